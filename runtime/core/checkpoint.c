/* checkpoint.c - safetensors files (8 bytes of header length, a JSON header, the tensors' bytes one
 * after another): weights under their ONNX names, running statistics, optimizer state as
 * optim.m.NAME and optim.v.NAME, and the gradients of one step. Tensors are written straight from
 * the device block; packed ones pass through a bounce buffer, one at a time. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    TensorNames names;
    uint64_t *offset; /* from the end of the header */
    uint64_t bytes;   /* of all tensors */
    uint64_t start;   /* of the first tensor in the file */
} Index;

const char *dtrt_safetensors_type(DtrtType t) {
    static const char *const name[] = {"F32", "F64", "I64", "I32", "U8", "BOOL"};
    return name[t];
}

/* ---- names of tensors in a file ----------------------------------------------------------- */

static char *tensor_name(const DtrtProgram *p, const DtrtTensor *t, uint32_t suffix) {
    char *name = NULL, *longer = NULL;
    int rc = t->role == DTRT_STATE
                 ? asprintf(&name, "optim.%c.%s", t->state_kind, p->tensor[t->param].name)
                 : asprintf(&name, "%s", t->name);
    if (rc < 0) return NULL;
    if (!suffix) return name;
    rc = asprintf(&longer, "%s#%u", name, suffix);
    free(name);
    return rc < 0 ? NULL : longer;
}

static bool is_taken(const TensorNames *x, const char *name) {
    if (!strcmp(name, "__metadata__")) return true;
    for (uint32_t i = 0; i < x->n; i++)
        if (!strcmp(x->name[i], name)) return true;
    return false;
}

static Status add_name(const DtrtProgram *p, TensorNames *x, int tensor) {
    const DtrtTensor *t = &p->tensor[tensor];
    char *name = tensor_name(p, t, 0);
    for (uint32_t suffix = 2; name && is_taken(x, name); suffix++) {
        free(name);
        name = tensor_name(p, t, suffix);
    }
    if (!name) return dtrt_no_memory(strlen(t->name));
    x->tensor[x->n] = tensor;
    x->name[x->n++] = name;
    return ST_OK;
}

Status dtrt_names_open(const DtrtProgram *p, uint32_t roles, TensorNames *x) {
    Status st = ST_OK;
    *x = (TensorNames){.tensor = calloc(p->ntensor + 1, sizeof *x->tensor),
                       .name = calloc(p->ntensor + 1, sizeof *x->name)};
    if (!x->tensor || !x->name) st = dtrt_no_memory(p->ntensor * sizeof *x->name);
    for (uint32_t i = 0; i < p->ntensor && !st; i++)
        if (roles >> p->tensor[i].role & 1) st = add_name(p, x, (int)i);
    if (st) dtrt_names_free(x);
    return st;
}

void dtrt_names_free(TensorNames *x) {
    for (uint32_t i = 0; i < x->n; i++) free(x->name[i]);
    free(x->name);
    free(x->tensor);
    *x = (TensorNames){0};
}

/* ---- the file ------------------------------------------------------------------------------- */

static void free_index(Index *x) {
    dtrt_names_free(&x->names);
    free(x->offset);
    *x = (Index){0};
}

static Status make_index(const DtrtProgram *p, uint32_t roles, Index *x) {
    *x = (Index){.offset = calloc(p->ntensor + 1, sizeof *x->offset)};
    if (!x->offset) return dtrt_no_memory(p->ntensor * sizeof *x->offset);
    Status st = dtrt_names_open(p, roles, &x->names);
    for (uint32_t i = 0; i < x->names.n; i++) {
        x->offset[i] = x->bytes;
        x->bytes += dtrt_tensor_plain_bytes(&p->tensor[x->names.tensor[i]]);
    }
    return st;
}

static void put_entry(FILE *f, const DtrtTensor *t, const char *name, uint64_t offset) {
    fputc(',', f);
    dtrt_json_string(f, name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", dtrt_safetensors_type(t->type));
    for (int k = 0; k < t->rank; k++) fprintf(f, k ? ",%" PRId64 : "%" PRId64, t->dim[k]);
    fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
            offset + dtrt_tensor_plain_bytes(t));
}

/* The header, padded with spaces to a multiple of 8, and its length before it. */
static Status put_header(OutFile *out, const Runtime *rt, Index *x, uint64_t steps) {
    const Loader *l = &rt->loader;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return dtrt_no_memory(4096);
    uint64_t epoch = dtrt_loader_epoch(l, steps);
    fputs("{\"__metadata__\":{\"format\":\"dtrc\",\"model\":", f);
    dtrt_json_string(f, rt->p->model);
    fprintf(f,
            ",\"model_sha256\":\"%s\",\"optimizer\":\"%s\",\"step\":\"%" PRIu64
            "\",\"epoch\":\"%" PRIu64 "\",\"position\":\"%" PRIu64 "\",\"seed\":\"%" PRIu64
            "\",\"shuffle\":\"%s\"}",
            rt->p->model_sha256, rt->p->optimizer, steps, epoch, dtrt_loader_position(l, steps),
            rt->ctx.seed, l->order ? "on" : "off");
    for (uint32_t i = 0; i < x->names.n; i++)
        put_entry(f, &rt->p->tensor[x->names.tensor[i]], x->names.name[i], x->offset[i]);
    fputc('}', f);
    while (ftell(f) % 8) fputc(' ', f);
    if (fclose(f)) return dtrt_no_memory(4096);
    uint64_t length = n;
    dtrt_out_write(out, &length, 8); /* little-endian, as all that this runs on */
    dtrt_out_write(out, text, n);
    free(text);
    x->start = 8 + n;
    return ST_OK;
}

void *dtrt_idle_bounce(Runtime *rt, void **own) {
    uint64_t need = dtrt_bounce_bytes(rt);
    *own = NULL;
    if (need <= rt->s->arena_bytes && !rt->p->device) return rt->block + rt->p->persistent_bytes;
    *own = malloc(need + 1);
    if (!*own) dtrt_no_memory(need);
    return *own;
}

Status dtrt_checkpoint_save(Runtime *rt, const char *path, uint64_t steps) {
    const DtrtProgram *p = rt->p;
    OutFile f;
    Index x;
    void *own, *bounce = dtrt_idle_bounce(rt, &own);
    if (!bounce) return ST_MACHINE;
    Status st = make_index(p, DTRT_SAVED_ROLES, &x);
    if (!st) st = dtrt_out_open(&f, path);
    if (st) {
        free_index(&x);
        free(own);
        return st;
    }
    st = put_header(&f, rt, &x, steps);
    for (uint32_t i = 0; i < x.names.n && !st && !f.failed; i++) {
        const DtrtTensor *t = &p->tensor[x.names.tensor[i]];
        const void *plain = dtrt_tensor_plain(rt, t, rt->block + t->offset, bounce);
        if (plain)
            dtrt_out_write(&f, plain, dtrt_tensor_plain_bytes(t));
        else
            st = ST_MACHINE;
    }
    free_index(&x);
    free(own);
    if (!st) return dtrt_out_commit(&f);
    dtrt_out_abort(&f);
    return st;
}

/* ---- gradients of one step ---------------------------------------------------------------- */

typedef struct {
    OutFile file;
    Index index;
    uint32_t seen;
} GradFile;

static Status put_gradient(Runtime *rt, int tensor, const float *g) {
    GradFile *gf = rt->grad_user;
    for (uint32_t i = 0; i < gf->index.names.n; i++) {
        if (gf->index.names.tensor[i] != tensor) continue;
        dtrt_out_at(&gf->file, gf->index.start + gf->index.offset[i], g,
                    dtrt_tensor_plain_bytes(&rt->p->tensor[tensor]));
        gf->seen++;
    }
    return gf->file.failed ? ST_MACHINE : ST_OK;
}

static bool is_updated(const DtrtProgram *p, int tensor) {
    for (uint32_t i = 0; i < p->nnode; i++)
        if (p->node[i].param == tensor) return true;
    return false;
}

/* The loss does not depend on a parameter that no node updates. */
static void put_zero_gradients(const Runtime *rt, GradFile *gf) {
    static const char zeros[4096];
    const Index *x = &gf->index;
    for (uint32_t i = 0; i < x->names.n; i++) {
        if (is_updated(rt->p, x->names.tensor[i])) continue;
        uint64_t n = dtrt_tensor_plain_bytes(&rt->p->tensor[x->names.tensor[i]]);
        for (uint64_t at = 0; at < n; at += sizeof zeros)
            dtrt_out_at(&gf->file, x->start + x->offset[i] + at, zeros,
                        n - at < sizeof zeros ? n - at : sizeof zeros);
        gf->seen++;
    }
}

Status dtrt_grads_open(Runtime *rt, const char *path) {
    GradFile *gf = calloc(1, sizeof *gf);
    if (gf) gf->file.fd = -1;
    rt->bounce = malloc(dtrt_bounce_bytes(rt) + 1);
    if (!gf || !rt->bounce) {
        free(gf);
        return dtrt_no_memory(dtrt_bounce_bytes(rt));
    }
    rt->grad_user = gf;
    rt->on_grad = put_gradient;
    Status st = make_index(rt->p, 1u << DTRT_PARAM, &gf->index);
    if (!st) st = dtrt_out_open(&gf->file, path);
    if (!st) st = put_header(&gf->file, rt, &gf->index, 0);
    if (!st) put_zero_gradients(rt, gf);
    return st;
}

Status dtrt_grads_close(Runtime *rt, Status st) {
    GradFile *gf = rt->grad_user;
    if (!st && gf->seen != gf->index.names.n) {
        dtrt_error("the program's tables update %u of %u parameters", gf->seen, gf->index.names.n);
        st = ST_DATA;
    }
    if (st)
        dtrt_out_abort(&gf->file);
    else
        st = dtrt_out_commit(&gf->file);
    free_index(&gf->index);
    free(gf);
    free(rt->bounce);
    rt->bounce = NULL;
    rt->grad_user = NULL;
    rt->on_grad = NULL;
    return st;
}

Status dtrt_weights_sha256(Runtime *rt, char hex[65]) {
    const DtrtProgram *p = rt->p;
    Sha256 s;
    void *own, *bounce = dtrt_idle_bounce(rt, &own);
    if (!bounce) return ST_MACHINE;
    dtrt_sha256_init(&s);
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if (t->role != DTRT_PARAM && t->role != DTRT_BUFFER) continue;
        const void *plain = dtrt_tensor_plain(rt, t, rt->block + t->offset, bounce);
        if (!plain) {
            free(own);
            return ST_MACHINE;
        }
        dtrt_sha256_add(&s, plain, dtrt_tensor_plain_bytes(t));
    }
    free(own);
    dtrt_sha256_hex(&s, hex);
    return ST_OK;
}
