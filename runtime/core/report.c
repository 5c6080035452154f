/* report.c - what the user sees of a run: the progress line on stderr, the log of --log, the
 * profile, and the summary of --json. Times of steps go into fixed rings, so that a step allocates
 * nothing. */
#include "core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t dtrt_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

Status dtrt_report_open(Runtime *rt, Report *r, uint64_t steps) {
    *r = (Report){.first = rt->first_step,
                  .steps = steps,
                  .start_ns = dtrt_now_ns(),
                  .tty = isatty(STDERR_FILENO)};
    if (!rt->o.log) return ST_OK;
    r->log = fopen(rt->o.log, "w");
    if (r->log) return ST_OK;
    dtrt_error("%s: cannot be written: %s", rt->o.log, strerror(errno));
    return ST_MACHINE;
}

/* "3.91/4.00 GiB", in the unit of the budget */
static void memory_text(const Runtime *rt, char *buf, size_t n) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
    double have = (double)rt->block_bytes, all = (double)rt->limit;
    int u = 0;
    for (; all >= 1024 && u < 3; u++, have /= 1024) all /= 1024;
    snprintf(buf, n, "%.2f/%.2f %s", have, all, unit[u]);
}

static bool due(Report *r, uint64_t now) {
    uint64_t tenth = r->steps / 10, gap = r->tty ? 100000000u : 1000000000u;
    if (r->done == 1 || r->first + r->done == r->steps) return true;
    if (now - r->last_ns >= gap) return true;
    return !r->tty && tenth && r->done % tenth == 0;
}

static void progress(Runtime *rt, Report *r, uint64_t now) {
    char mem[64], acc[32] = "";
    double seconds = (double)(now - r->start_ns) * 1e-9;
    double samples = (double)r->samples;
    memory_text(rt, mem, sizeof mem);
    if (r->epoch_counted)
        snprintf(acc, sizeof acc, " acc %.4g", (double)r->epoch_hits / (double)r->epoch_counted);
    fprintf(stderr, "%sstep %" PRIu64 "/%" PRIu64 " loss %.6g%s lr %.4g %.0f samples/s mem %s%s",
            r->tty ? "\r" : "", r->first + r->done, r->steps, (double)rt->loss, acc,
            (double)rt->ctx.lr, seconds > 0 ? samples / seconds : 0, mem, r->tty ? "\x1b[K" : "\n");
    dtrt_line_is_open(r->tty);
    if (r->first + r->done == r->steps) dtrt_end_line();
    r->last_ns = now;
}

static Status log_step(Runtime *rt, Report *r, uint64_t step, double ms) {
    fprintf(r->log, "{\"step\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"loss\":", step,
            dtrt_loader_epoch(&rt->loader, step));
    dtrt_json_float(r->log, rt->loss);
    if (rt->counted) fprintf(r->log, ",\"accuracy\":%.9g", (double)rt->hits / (double)rt->counted);
    fprintf(r->log, ",\"lr\":%.9g,\"step_ms\":%.3f}\n", (double)rt->ctx.lr, ms);
    if (!fflush(r->log)) return ST_OK;
    dtrt_error("%s: cannot be written: %s", rt->o.log, strerror(errno));
    return ST_MACHINE;
}

Status dtrt_report_step(Runtime *rt, Report *r, uint64_t step, uint64_t step_ns, uint64_t data_ns) {
    uint64_t now = dtrt_now_ns();
    if (step && dtrt_loader_epoch(&rt->loader, step) != dtrt_loader_epoch(&rt->loader, step - 1))
        r->epoch_hits = r->epoch_counted = 0;
    r->epoch_hits += rt->hits;
    r->epoch_counted += rt->counted;
    if (r->nloss < MAX_LOSSES) r->loss[r->nloss++] = rt->loss;
    r->ms[r->done % MAX_TIMES] = (float)step_ns * 1e-6f;
    r->data_ms[r->done % MAX_TIMES] = (float)data_ns * 1e-6f;
    r->done++;
    r->samples += (uint64_t)dtrt_program_batch(rt->p);
    if (due(r, now)) progress(rt, r, now);
    return r->log ? log_step(rt, r, step, (double)step_ns * 1e-6) : ST_OK;
}

Status dtrt_report_close(Runtime *rt, Report *r) {
    if (!r->log) return ST_OK;
    int rc = fclose(r->log);
    r->log = NULL;
    if (!rc) return ST_OK;
    dtrt_error("%s: cannot be written: %s", rt->o.log, strerror(errno));
    return ST_MACHINE;
}

static int by_float(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts the ring: for the end of the run. */
static double median(float *ms, uint64_t done) {
    uint64_t n = done < MAX_TIMES ? done : MAX_TIMES;
    if (!n) return 0;
    qsort(ms, n, sizeof *ms, by_float);
    return n % 2 ? (double)ms[n / 2] : ((double)ms[n / 2 - 1] + (double)ms[n / 2]) / 2;
}

/* Largest resident set of this program so far: block, libraries, buffers, code. Not ru_maxrss,
 * which still counts what the process held before it became this program. 0 when unknown. */
static uint64_t max_resident_bytes(void) {
    FILE *f = fopen("/proc/self/status", "re");
    if (!f) return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %llu", &kib) != 1) {
    }
    fclose(f);
    return kib * 1024;
}

Status dtrt_report_summary(Runtime *rt, Report *r) {
    const DtrtProgram *p = rt->p;
    char hex[65];
    Status st = dtrt_weights_sha256(rt, hex);
    if (st) return st;
    printf("{\"model\":");
    dtrt_json_string(stdout, p->model);
    printf(",\"target\":\"%s\",\"mode\":\"%s\",\"steps\":%" PRIu64 ",\"losses\":[", p->target,
           rt->is_dynamic ? "dynamic" : "static", r->done);
    for (uint64_t i = 0; i < r->nloss; i++) {
        if (i) putchar(',');
        dtrt_json_float(stdout, r->loss[i]);
    }
    printf("],\"step_ms\":%.6g,\"data_ms\":%.6g", median(r->ms, r->done),
           median(r->data_ms, r->done));
    printf(",\"budget_bytes\":%" PRIu64 ",\"peak_bytes\":%" PRIu64
           ",\"planned_peak_bytes\":%" PRIu64,
           rt->limit, rt->block_bytes, p->persistent_bytes + rt->s->arena_bytes);
    printf(",\"persistent_bytes\":%" PRIu64 ",\"library_bytes\":%" PRIu64
           ",\"max_resident_bytes\":%" PRIu64,
           p->persistent_bytes, rt->library_bytes, max_resident_bytes());
    if (*rt->device) {
        printf(",\"device\":");
        dtrt_json_string(stdout, rt->device);
    }
    printf(",\"planned_overhead\":%.6g,\"recomputed_runs\":%u,\"evictions\":%u,\"threads\":%d",
           rt->is_dynamic ? dtrt_dynamic_overhead(&rt->dynamic) : p->planned_overhead,
           rt->s->recomputed_runs, rt->s->evictions, rt->ctx.threads);
    if (rt->is_dynamic)
        printf(",\"heuristic\":\"%s\",\"decisions\":%u,\"decide_ns\":%" PRIu64
               ",\"planning_ms\":%.6g",
               rt->dynamic.heuristic, rt->dynamic.decisions, rt->dynamic.decide_ns,
               (double)rt->dynamic.plan_ns * 1e-6);
    if (r->epoch_counted)
        printf(",\"metric\":\"accuracy\",\"accuracy\":%.9g",
               (double)r->epoch_hits / (double)r->epoch_counted);
    else
        printf(",\"metric\":null");
    printf(",\"batch\":%" PRId64 ",\"samples\":%" PRIu64, dtrt_program_batch(p), r->samples);
    printf(",\"seed\":%" PRIu64 ",\"weights_sha256\":\"%s\"}\n", rt->ctx.seed, hex);
    if (!fflush(stdout)) return ST_OK;
    dtrt_error("stdout cannot be written: %s", strerror(errno));
    return ST_MACHINE;
}

/* ---- profile ------------------------------------------------------------------------------ */

static int by_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void put_node(FILE *f, const DtrtNode *n, ProfileSlot *s) {
    uint64_t have = s->runs < PROFILE_SAMPLES ? s->runs : PROFILE_SAMPLES;
    qsort(s->ns, have, sizeof *s->ns, by_u64);
    fprintf(f, "\n{\"node\":%u,\"name\":", n->graph_node);
    dtrt_json_string(f, n->name);
    fprintf(f,
            ",\"op\":\"%s\",\"phase\":%u,\"runs\":%" PRIu64 ",\"min_ns\":%" PRIu64
            ",\"median_ns\":%" PRIu64 "}",
            n->op, n->phase, s->runs, s->min_ns, s->ns[have / 2]);
}

Status dtrt_report_profile(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    char *text = NULL;
    size_t n = 0;
    OutFile out;
    FILE *f = open_memstream(&text, &n);
    if (!f) return dtrt_no_memory(4096);
    fputs("{\"format\":\"dtrc-profile\",\"version\":1,\"model\":", f);
    dtrt_json_string(f, p->model);
    fputs(",\"command\":", f);
    dtrt_json_string(f, p->command);
    fprintf(f,
            ",\"model_sha256\":\"%s\",\"graph\":\"%016" PRIx64
            "\",\"target\":\"%s\",\"threads\":%d,\"batch\":%" PRId64 ",\"nodes\":[",
            p->model_sha256, p->graph_digest, p->target, rt->ctx.threads, dtrt_program_batch(p));
    const char *separator = "";
    for (uint32_t i = 0; i < p->nnode; i++) {
        if (!rt->profile[i].runs) continue;
        fputs(separator, f);
        put_node(f, &p->node[i], &rt->profile[i]);
        separator = ",";
    }
    fputs("]}\n", f);
    if (fclose(f)) return dtrt_no_memory(4096);
    Status st = dtrt_out_open(&out, rt->o.profile);
    dtrt_out_write(&out, text, n);
    free(text);
    return st ? (dtrt_out_abort(&out), st) : dtrt_out_commit(&out);
}
