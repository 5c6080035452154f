/* synthetic.c - random data of the right shapes (--synthetic): floats uniform in [-1,1), targets of
 * a binary cross entropy 0 or 1, labels uniform over the classes, indices uniform over the table
 * that a Gather looks them up in, booleans true. Numbers come from (seed, step, tensor, index), so
 * that runs with equal seeds see equal data. */
#include "core.h"
#include "dtrt_math.h"

#include <string.h>

#define KEY_BASE 0x73796e00u

/* Values that are this one under another name or shape. */
static bool passes(const char *op) {
    return !strcmp(op, "Reshape") || !strcmp(op, "Cast") || !strcmp(op, "Copy") ||
           !strcmp(op, "Expand") || !strcmp(op, "Slice") || !strcmp(op, "Transpose");
}

static int64_t attr_axis(const DtrtRefNode *n) {
    for (uint32_t i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr_name[i], "axis") && n->attr_i[i]) return n->attr_i[i][0];
    return 0;
}

/* Smallest table that a value indexes, following it through view-like nodes (they stand in order).
 */
static int64_t table_limit(const DtrtProgram *p, int32_t value) {
    int64_t limit = 0;
    for (uint32_t i = 0; i < p->nrefnode; i++) {
        const DtrtRefNode *n = &p->refnode[i];
        int64_t found = 0;
        if (!strcmp(n->op, "Gather") && n->nin == 2 && n->in[1] == value) {
            const DtrtRefValue *table = &p->refvalue[n->in[0]];
            int64_t axis = attr_axis(n);
            if (axis >= 0 && axis < table->rank) found = table->dim[axis];
        } else if (passes(n->op) && n->nin && n->in[0] == value && n->out[0] > value) {
            found = table_limit(p, n->out[0]);
        }
        if (found && (!limit || found < limit)) limit = found;
    }
    return limit;
}

int64_t dtrt_synthetic_limit(const DtrtProgram *p, int tensor) {
    if (p->tensor[tensor].role == DTRT_TARGET && p->nclass > 0) return p->nclass;
    for (uint32_t v = 0; v < p->nrefvalue; v++) {
        if (p->refvalue[v].tensor != tensor) continue;
        int64_t limit = table_limit(p, (int32_t)v);
        if (limit) return limit;
    }
    return 2;
}

void dtrt_synthetic_fill(Runtime *rt, const Feed *f, uint64_t step) {
    const DtrtTensor *t = &rt->p->tensor[f->tensor];
    uint8_t *at = dtrt_staging(rt, t);
    int64_t n = (int64_t)dtrt_tensor_count(t);
    uint32_t key = KEY_BASE + (uint32_t)f->tensor;
    bool bit = t->role == DTRT_TARGET && !strcmp(rt->p->loss_kind, "bce-logits");
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        uint32_t r = dtrt_random(rt->ctx.seed, step, key, (uint64_t)i);
        int64_t k = (int64_t)((uint64_t)r * (uint64_t)f->limit >> 32);
        switch (t->type) {
        case DTRT_F32:
            ((float *)at)[i] = bit ? (float)(r >> 31) : (float)(r >> 8) * 0x1p-23f - 1;
            break;
        case DTRT_F64: ((double *)at)[i] = r * 0x1p-31 - 1; break;
        case DTRT_I64: ((int64_t *)at)[i] = k; break;
        case DTRT_I32: ((int32_t *)at)[i] = (int32_t)k; break;
        case DTRT_U8:
        case DTRT_BOOL: at[i] = 1; break;
        }
    }
}
