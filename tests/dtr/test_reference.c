/* The online heuristics of the DTR paper against its authors' simulator: overheads of
 * planbench/reference.json (columns dtr, dtr_eq, dtr_local; dead tensors freed, byte accounting) at
 * every budget, to 0.0005; where it says "infeasible" or "thrash", the engine must say the same.
 * "thrash" is more than twice the base time spent on running again (at four times, dtr_local would
 * end on resnet32 at 30 %). The graphs are read from $DTRC_SHARED/planbench, else
 * ../shared/planbench; skipped when they are not there. DTRC_TEST_VERBOSE prints the table. */
#include "problem.h"
#include "test.h"
#include "trace.h"

#include <cjson/cJSON.h>

static Arena *a;
static Diag d;
static bool verbose;

static const struct {
    const char *column;
    DtrHeuristic h;
} heuristic[] = {{"dtr", DTR_FULL}, {"dtr_eq", DTR_EQ}, {"dtr_local", DTR_LOCAL}};

/* A result in words of the reference, or an overhead. */
static void check_cell(const char *graph, double ratio, const char *column, const cJSON *want,
                       DtrStatus got, double overhead) {
    const char *word = got == DTR_OK ? "" : got == DTR_STOPPED ? "thrash" : "infeasible";
    bool same = cJSON_IsString(want) ? !strcmp(word, want->valuestring)
                                     : got == DTR_OK && fabs(overhead - want->valuedouble) <= 5e-4;
    char *text = cJSON_PrintUnformatted(want);
    if (verbose || !same)
        fprintf(stderr, "%s %-12s %.1f %-10s %.5f%s want %s\n", same ? "   " : "BAD", graph, ratio,
                column, overhead, word, text);
    cJSON_free(text);
    CHECK(same);
}

typedef struct {
    const Problem *p;
    uint64_t again_ns;
} Again;

static bool count_again(void *user, const DtrRun *r) {
    Again *x = user;
    if (r->again) x->again_ns += x->p->ns[r->run];
    return x->again_ns <= 2 * x->p->base_ns;
}

static int compare_ids(const void *x, const void *y) {
    uint32_t a_ = *(const uint32_t *)x, b_ = *(const uint32_t *)y;
    return a_ < b_ ? -1 : a_ > b_;
}

/* Node-link graphs give operands no order; the reference made missing ones by number. */
static void sort_operands(Problem *p) {
    for (uint32_t r = 0; r < p->nrun; r++)
        qsort(p->in.at + p->in.first[r], list_len(&p->in, r), sizeof *p->in.at, compare_ids);
}

static void check_graph(const char *folder, const cJSON *entry) {
    const char *file = cJSON_GetObjectItem(entry, "file")->valuestring;
    const Graph *g = trace_read(a, &d, arena_printf(a, "%s/%s", folder, file));
    CHECK(g);
    if (!g) return;
    Cost *c = cost_opaque(a, g);
    Problem *p = problem_new(a, g, c, NULL, true);
    if (strstr(file, ".json")) sort_operands(p);
    uint64_t peak = plan_peak_without_budget(g, c, true);
    if (verbose) fprintf(stderr, "%s live peak %.1f MB\n", entry->string, (double)peak / 1e6);
    DtrOptions o = {.bytes_only = true, .evict = true, .gamma = 1, .published = true};
    o.cost_limit = UINT64_MAX;
    Dtr *dtr = dtr_open(&p->dtr, &o);
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(entry, "rows")) {
        double ratio = cJSON_GetObjectItem(row, "ratio_of_live_peak")->valuedouble;
        uint64_t budget = (uint64_t)((double)peak * ratio);
        for (size_t i = 0; i < sizeof heuristic / sizeof *heuristic; i++) {
            const cJSON *want = cJSON_GetObjectItem(row, heuristic[i].column);
            if (!want) continue;
            o.h = heuristic[i].h;
            o.capacity = budget < p->persistent_bytes ? 0 : budget - p->persistent_bytes;
            dtr_set(dtr, &o);
            Again again = {p, 0};
            DtrStatus st = dtr_step(dtr, &(DtrHooks){.user = &again, .run = count_again});
            double overhead = (double)dtr_counters(dtr)->cost_ns / (double)p->base_ns - 1;
            check_cell(entry->string, ratio, heuristic[i].column, want, st, overhead);
        }
    }
    dtr_close(dtr);
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, stderr);
    verbose = getenv("DTRC_TEST_VERBOSE");
    const char *shared = getenv("DTRC_SHARED");
    const char *folder = arena_printf(a, "%s/planbench", shared ? shared : "../shared");
    size_t n;
    char *text = file_read(a, arena_printf(a, "%s/reference.json", folder), 1 << 24, &n);
    if (!text) {
        printf("skipped: no planning benchmark at %s\n", folder);
        return 77;
    }
    cJSON *root = cJSON_Parse(text);
    CHECK(root);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, root) if (cJSON_GetObjectItem(entry, "rows"))
        check_graph(folder, entry);
    cJSON_Delete(root);
    arena_free(a);
    return test_end();
}
