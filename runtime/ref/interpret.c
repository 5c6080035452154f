/* interpret.c - runs the reference graph: loads its sources, computes every value in order, and
 * computes again only what depends on one perturbed weight. */
#include "ref.h"

#include <stdlib.h>
#include <string.h>

#include "dtrt_math.h"

uint64_t dtrt_ref_count(const DtrtRefValue *v) {
    uint64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->dim[i];
    return n;
}

const double *dtrt_ref_in(const RefCall *c, uint32_t k) {
    return k < c->n->nin && c->n->in[k] >= 0 ? c->r->now[c->n->in[k]] : NULL;
}

const DtrtRefValue *dtrt_ref_in_shape(const RefCall *c, uint32_t k) {
    return &c->r->p->refvalue[c->n->in[k]];
}

const DtrtRefValue *dtrt_ref_out_shape(const RefCall *c, uint32_t k) {
    return &c->r->p->refvalue[c->n->out[k]];
}

static uint32_t find_attr(const DtrtRefNode *n, const char *attr) {
    uint32_t i = 0;
    while (i < n->nattr && strcmp(n->attr_name[i], attr)) i++;
    return i;
}

int64_t dtrt_ref_i(const DtrtRefNode *n, const char *attr, int64_t dflt) {
    uint32_t i = find_attr(n, attr);
    return i < n->nattr && n->attr_i[i] ? n->attr_i[i][0] : dflt;
}

double dtrt_ref_f(const DtrtRefNode *n, const char *attr, double dflt) {
    uint32_t i = find_attr(n, attr);
    if (i == n->nattr) return dflt;
    return n->attr_f[i] ? n->attr_f[i][0] : (double)n->attr_i[i][0];
}

const int64_t *dtrt_ref_ints(const DtrtRefNode *n, const char *attr, uint32_t *count) {
    uint32_t i = find_attr(n, attr);
    *count = i < n->nattr && n->attr_i[i] ? n->attr_n[i] : 0;
    return *count ? n->attr_i[i] : NULL;
}

void dtrt_ref_split(const DtrtRefValue *v, int64_t axis, int64_t *outer, int64_t *n,
                    int64_t *inner) {
    if (axis < 0) axis += v->rank;
    *outer = *inner = 1;
    *n = v->dim[axis];
    for (int i = 0; i < axis; i++) *outer *= v->dim[i];
    for (int i = (int)axis + 1; i < v->rank; i++) *inner *= v->dim[i];
}

static RefOp *find_op(const char *op) {
    RefOp *f = dtrt_ref_elementwise(op);
    if (!f) f = dtrt_ref_norm(op);
    if (!f) f = dtrt_ref_fold(op);
    if (!f) f = dtrt_ref_index(op);
    if (!f) f = dtrt_ref_resize(op);
    if (!f) f = dtrt_ref_conv(op);
    if (!f) f = dtrt_ref_matmul(op);
    if (!f) f = dtrt_ref_pool(op);
    if (!f) f = dtrt_ref_class_loss(op);
    return f ? f : dtrt_ref_movement(op);
}

/* ---- sources ------------------------------------------------------------------------------ */

static double *to_double(DtrtType type, const void *src, uint64_t n) {
    double *v = malloc((n + 1) * sizeof *v);
    for (uint64_t i = 0; i < n && v; i++) switch (type) {
        case DTRT_F32: v[i] = (double)((const float *)src)[i]; break;
        case DTRT_F64: v[i] = ((const double *)src)[i]; break;
        case DTRT_I64: v[i] = (double)((const int64_t *)src)[i]; break;
        case DTRT_I32: v[i] = ((const int32_t *)src)[i]; break;
        case DTRT_U8:
        case DTRT_BOOL: v[i] = ((const uint8_t *)src)[i]; break;
        }
    return v;
}

static double *load_tensor(Runtime *rt, const DtrtTensor *t) {
    void *bounce = malloc(dtrt_bounce_bytes(rt) + 1);
    const void *plain = NULL;
    if (t->role == DTRT_INPUT || t->role == DTRT_TARGET)
        plain = dtrt_staging(rt, t);
    else if (bounce)
        plain = dtrt_tensor_plain(rt, t, rt->block + t->offset, bounce);
    double *v = plain ? to_double(t->type, plain, dtrt_tensor_count(t)) : NULL;
    free(bounce);
    return v;
}

static double *load_constant(Runtime *rt, const DtrtRefValue *v) {
    void *raw = malloc(v->file_bytes);
    double *d = NULL;
    if (raw && !dtrt_payload_read(rt, v->file_offset, raw, v->file_bytes))
        d = to_double(v->type, raw, dtrt_ref_count(v));
    free(raw);
    return d;
}

/* A source keeps its own shape in the program unless it was rewritten at compile time. */
static Status check_source(const Ref *r, const DtrtRefValue *v) {
    const DtrtTensor *t = &r->p->tensor[v->tensor];
    if (t->rank == v->rank && !memcmp(t->dim, v->dim, (size_t)v->rank * sizeof *v->dim))
        return ST_OK;
    dtrt_error("%s is %s in the model but %s in the program; the reference cannot follow",
               dtrt_name_str(v->name), dtrt_shape_str(v->rank, v->dim, NULL),
               dtrt_shape_str(t->rank, t->dim, NULL));
    return ST_DATA;
}

Status dtrt_ref_open(Ref *r, Runtime *rt) {
    const DtrtProgram *p = rt->p;
    const DtrtTensor *target = dtrt_program_target(p);
    *r = (Ref){.p = p, .seed = rt->ctx.seed, .step = rt->ctx.step};
    r->base = calloc(p->nrefvalue + 1, sizeof *r->base);
    r->now = calloc(p->nrefvalue + 1, sizeof *r->now);
    bool ok = r->base && r->now;
    if (target && ok) ok = (r->target = load_tensor(rt, target)) != NULL;
    for (uint32_t i = 0; i < p->nrefvalue && ok; i++) {
        const DtrtRefValue *v = &p->refvalue[i];
        if (v->tensor < 0 && !v->file_bytes) continue;
        if (v->tensor >= 0 && check_source(r, v)) return ST_DATA;
        r->base[i] = v->tensor >= 0 ? load_tensor(rt, &p->tensor[v->tensor]) : load_constant(rt, v);
        ok = r->base[i] != NULL;
    }
    return ok ? ST_OK : dtrt_no_memory(p->nrefvalue * sizeof *r->base);
}

void dtrt_ref_free(Ref *r) {
    for (uint32_t i = 0; r->base && i < r->p->nrefvalue; i++) free(r->base[i]);
    free(r->base);
    free(r->now);
    free(r->target);
}

/* ---- evaluation --------------------------------------------------------------------------- */

/* Results go into fresh arrays in out[]. Opaque results (pooling positions) have no array. */
static Status run_node(const Ref *r, const DtrtRefNode *n, double **out) {
    RefCall c = {.r = r, .n = n};
    RefOp *f = find_op(n->op);
    if (!f || n->nout > REF_OUT) {
        dtrt_error("node %s: the reference has no operator %s", dtrt_name_str(n->name), n->op);
        return ST_DATA;
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        if (n->out[k] < 0 || r->p->refvalue[n->out[k]].type == DTRT_U8) continue;
        uint64_t bytes = dtrt_ref_count(&r->p->refvalue[n->out[k]]) * sizeof(double);
        c.y[k] = out[n->out[k]] = malloc(bytes + 1);
        if (!c.y[k]) return dtrt_no_memory(bytes);
    }
    f(&c);
    return ST_OK;
}

Status dtrt_ref_forward(Ref *r) {
    for (uint32_t i = 0; i < r->p->nrefnode; i++) {
        memcpy(r->now, r->base, r->p->nrefvalue * sizeof *r->now);
        Status st = run_node(r, &r->p->refnode[i], r->base);
        if (st) return st;
    }
    memcpy(r->now, r->base, r->p->nrefvalue * sizeof *r->now);
    if (r->p->ref_output >= 0 && r->base[r->p->ref_output]) return ST_OK;
    dtrt_error("the program has no reference graph");
    return ST_DATA;
}

Status dtrt_ref_shake(Ref *to, const Ref *r, uint32_t key, double by) {
    const DtrtProgram *p = r->p;
    *to = (Ref){.p = p, .seed = r->seed, .step = r->step};
    to->base = calloc(p->nrefvalue + 1, sizeof *to->base);
    to->now = calloc(p->nrefvalue + 1, sizeof *to->now);
    uint64_t targets = r->target ? dtrt_tensor_count(dtrt_program_target(p)) : 0;
    to->target = malloc((targets + 1) * sizeof *to->target);
    if (!to->base || !to->now || !to->target) return dtrt_no_memory(targets * sizeof *to->target);
    for (uint64_t i = 0; i < targets; i++) to->target[i] = r->target[i];
    for (uint32_t k = 0; k < p->nrefvalue; k++) {
        const DtrtRefValue *v = &p->refvalue[k];
        if (v->tensor < 0 && !v->file_bytes) continue;
        uint64_t n = dtrt_ref_count(v);
        bool move = v->tensor >= 0 && v->type == DTRT_F32;
        double *x = to->base[k] = malloc((n + 1) * sizeof *x);
        if (!x) return dtrt_no_memory(n * sizeof *x);
        for (uint64_t i = 0; i < n; i++) {
            double u = dtrt_random(r->seed, k, key, i) * 0x1p-31 - 1;
            x[i] = r->base[k][i] * (move ? 1 + by * u : 1);
        }
    }
    return dtrt_ref_forward(to);
}

static bool depends(const Ref *r, const DtrtRefNode *n) {
    for (uint32_t k = 0; k < n->nin; k++)
        if (n->in[k] >= 0 && r->now[n->in[k]] != r->base[n->in[k]]) return true;
    return false;
}

Status dtrt_ref_loss_with(Ref *r, int v, const double *w, double *loss) {
    const DtrtProgram *p = r->p;
    Status st = ST_OK;
    memcpy(r->now, r->base, p->nrefvalue * sizeof *r->now);
    r->now[v] = (double *)w;
    for (uint32_t i = 0; i < p->nrefnode && !st; i++)
        if (depends(r, &p->refnode[i])) st = run_node(r, &p->refnode[i], r->now);
    if (!st) *loss = dtrt_ref_loss(r);
    r->now[v] = r->base[v];
    for (uint32_t i = 0; i < p->nrefvalue; i++)
        if (r->now[i] != r->base[i]) free(r->now[i]);
    memcpy(r->now, r->base, p->nrefvalue * sizeof *r->now);
    return st;
}
