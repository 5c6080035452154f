/* resume.c - a checkpoint back into the block: safetensors as checkpoint.c writes them, and those
 * of others, which have no training state. What a step does depends on weights, state, seed and the
 * number of the step alone, so a run that was saved and resumed makes the bits of one that was not
 * interrupted.
 *
 * The file is not trusted: lengths, offsets, types and shapes are checked against its size and the
 * program's tensors before anything is read into the block. */
#include "core.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX (UINT64_C(100) << 20) /* as the format's own library has it */

static Status bad(const Runtime *rt, const char *what) {
    dtrt_error("%s: %s", rt->o.resume, what);
    dtrt_hint("--resume takes a file of --save, or safetensors with the model's weights by their "
              "ONNX names");
    return ST_DATA;
}

static Status read_header(Runtime *rt) {
    Resume *r = &rt->resume;
    struct stat s;
    uint64_t n = 0;
    r->fd = open(rt->o.resume, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &s)) {
        dtrt_error("%s: cannot be read: %s", rt->o.resume, strerror(errno));
        return ST_DATA;
    }
    r->bytes = S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0;
    if (r->bytes < 8 || !dtrt_read_at(r->fd, &n, sizeof n, 0) || n > r->bytes - 8 || n > HEADER_MAX)
        return bad(rt, "this is no safetensors file");
    char *text = malloc(n + 1);
    if (!text) return dtrt_no_memory(n);
    bool read = dtrt_read_at(r->fd, text, n, 8);
    text[n] = 0;
    r->header = read ? cJSON_ParseWithLength(text, n) : NULL;
    free(text);
    r->start = 8 + n;
    return cJSON_IsObject(r->header) ? ST_OK : bad(rt, "its header is damaged");
}

static bool metadata(const Resume *r, const char *key, uint64_t *out) {
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(r->header, "__metadata__");
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(all, key);
    char *end;
    if (!cJSON_IsString(v) || v->valuestring[0] < '0' || v->valuestring[0] > '9') return false;
    errno = 0;
    *out = strtoull(v->valuestring, &end, 10);
    return !errno && !*end && *out <= INT64_MAX;
}

static const char *metadata_text(const Resume *r, const char *key) {
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(r->header, "__metadata__");
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(all, key));
    return text ? text : "";
}

Status dtrt_resume_open(Runtime *rt) {
    uint64_t seed;
    Options *o = &rt->o;
    Resume *r = &rt->resume;
    Status st = read_header(rt);
    if (st) return st;
    if (!metadata(r, "step", &rt->first_step)) {
        dtrt_note("%s has weights, but no training state: training starts at step 0", o->resume);
        return ST_OK;
    }
    if (strcmp(metadata_text(r, "model_sha256"), rt->p->model_sha256))
        dtrt_note("%s was written by a program of another model (%s); its tensors are taken where "
                  "names and shapes are the same",
                  o->resume, dtrt_name_str(metadata_text(r, "model")));
    if (metadata(r, "seed", &seed)) {
        if (o->seed_given && seed != o->seed)
            dtrt_note("--seed %" PRIu64 " is not the seed %" PRIu64 " that training began with",
                      o->seed, seed);
        else
            o->seed = seed;
    }
    return ST_OK;
}

static bool numbers(const cJSON *list, uint64_t *v, int n) {
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n) return false;
    const cJSON *e;
    int i = 0;
    cJSON_ArrayForEach(e, list) {
        if (!cJSON_IsNumber(e) || !(e->valuedouble >= 0) || e->valuedouble > 0x1p53) return false;
        v[i] = (uint64_t)e->valuedouble;
        if ((double)v[i++] != e->valuedouble) return false; /* 2.5 is no length */
    }
    return true;
}

/* Where the bytes of tensor t lie in the file; false after a message. */
static bool find_bytes(Runtime *rt, const DtrtTensor *t, const char *name, const cJSON *e,
                       uint64_t *at) {
    const Resume *r = &rt->resume;
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "dtype"));
    uint64_t dim[DTRT_MAX_RANK], range[2], bytes = dtrt_tensor_plain_bytes(t);
    bool same = type && !strcmp(type, dtrt_safetensors_type(t->type)) &&
                numbers(cJSON_GetObjectItemCaseSensitive(e, "shape"), dim, t->rank);
    for (int i = 0; same && i < t->rank; i++) same = dim[i] == (uint64_t)t->dim[i];
    if (!same) {
        dtrt_error("%s: tensor %s is not %s %s, as the program needs it", rt->o.resume,
                   dtrt_name_str(name), dtrt_safetensors_type(t->type),
                   dtrt_shape_str(t->rank, t->dim, NULL));
        return false;
    }
    if (!numbers(cJSON_GetObjectItemCaseSensitive(e, "data_offsets"), range, 2) ||
        range[1] < range[0] || range[1] - range[0] != bytes || range[1] > r->bytes - r->start) {
        dtrt_error("%s: tensor %s does not lie inside the file with its %" PRIu64 " bytes",
                   rt->o.resume, dtrt_name_str(name), bytes);
        return false;
    }
    *at = r->start + range[0];
    return true;
}

static Status load_tensor(Runtime *rt, const DtrtTensor *t, uint64_t at, void *bounce) {
    void *to = dtrt_tensor_room(rt, t, bounce);
    if (!dtrt_read_at(rt->resume.fd, to, dtrt_tensor_plain_bytes(t), at))
        return bad(rt, "it ends early");
    return dtrt_tensor_put(rt, t, to);
}

/* A file without any optimizer state leaves zeros there, as at the start of training. */
static bool has_state(const Resume *r) {
    const cJSON *e;
    cJSON_ArrayForEach(e, r->header) if (e->string && !strncmp(e->string, "optim.", 6)) return true;
    return false;
}

Status dtrt_resume_load(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    const Resume *r = &rt->resume;
    bool state = has_state(r), left_out = false;
    TensorNames names;
    void *own, *bounce = dtrt_idle_bounce(rt, &own);
    Status st = bounce ? dtrt_names_open(p, DTRT_SAVED_ROLES, &names) : ST_MACHINE;
    if (st) {
        free(own);
        return st;
    }
    for (uint32_t i = 0; i < names.n && !st; i++) {
        const DtrtTensor *t = &p->tensor[names.tensor[i]];
        const cJSON *e = cJSON_GetObjectItemCaseSensitive(r->header, names.name[i]);
        uint64_t at;
        if (!e && t->role == DTRT_STATE && !state) {
            left_out = true;
        } else if (!e) {
            dtrt_error("%s: tensor %s is missing", rt->o.resume, dtrt_name_str(names.name[i]));
            st = ST_DATA;
        } else {
            st =
                find_bytes(rt, t, names.name[i], e, &at) ? load_tensor(rt, t, at, bounce) : ST_DATA;
        }
    }
    if (left_out && !st) dtrt_note("%s has no optimizer state: it starts at zero", rt->o.resume);
    dtrt_names_free(&names);
    free(own);
    return st;
}

/* A step's number says which samples it reads only together with batch, data and order. */
static void note_place(const Runtime *rt) {
    const Resume *r = &rt->resume;
    const Loader *l = &rt->loader;
    uint64_t epoch, position, step = rt->first_step, here = dtrt_loader_position(l, step);
    const char *shuffle = metadata_text(r, "shuffle"), *now = l->order ? "on" : "off";
    if (metadata(r, "epoch", &epoch) && metadata(r, "position", &position) &&
        (epoch != dtrt_loader_epoch(l, step) || position != here))
        dtrt_note("%s was saved in epoch %" PRIu64 " after %" PRIu64
                  " samples; with this batch and "
                  "data, step %" PRIu64 " is in epoch %" PRIu64 " after %" PRIu64
                  ": some samples come again or are left out",
                  rt->o.resume, epoch, position, step, dtrt_loader_epoch(l, step), here);
    if (*shuffle && strcmp(shuffle, now))
        dtrt_note("%s was saved with shuffle %s, and now it is %s: samples come in another order",
                  rt->o.resume, dtrt_name_str(shuffle), now);
}

void dtrt_resume_notes(const Runtime *rt) {
    const Resume *r = &rt->resume;
    const char *optimizer = metadata_text(r, "optimizer");
    uint64_t step;
    if (metadata(r, "step", &step)) note_place(rt);
    if (has_state(r) && *optimizer && strcmp(optimizer, rt->p->optimizer))
        dtrt_note("the optimizer state of %s is that of %s, and this program uses %s", rt->o.resume,
                  dtrt_name_str(optimizer), rt->p->optimizer);
}

void dtrt_resume_free(Runtime *rt) {
    cJSON_Delete(rt->resume.header);
    if (rt->resume.fd >= 0) close(rt->resume.fd);
    rt->resume = (Resume){.fd = -1};
}
