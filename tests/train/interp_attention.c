/* interp_attention.c - attention and its gradient for the test interpreter: one query at a time,
 * from the definitions, probabilities computed anew where the kernels use what was saved. */
#include "dtrt_math.h"
#include "interp.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    const Call *c;
    const Ten *q, *k, *v, *add, *cond; /* masks: NULL when absent */
    Shape scores;
    uint64_t rows, keys, depth, width; /* rows of all heads */
    double alpha;
} Heads;

static const Ten *maybe(const Call *c, uint32_t i) {
    return i < c->nin && c->in[i].x ? &c->in[i] : NULL;
}

static Heads heads_of(const Call *c, bool grad) {
    Heads h = {.c = c, .q = &c->in[grad], .k = &c->in[1 + grad], .v = &c->in[2 + grad]};
    h.add = maybe(c, grad ? 5 : 3);
    h.cond = maybe(c, grad ? 6 : 4);
    uint32_t last = h.q->s.rank - 1;
    h.scores = h.q->s;
    h.scores.dim[last] = h.v->s.dim[last - 1];
    h.keys = (uint64_t)h.scores.dim[last];
    h.depth = (uint64_t)h.q->s.dim[last];
    h.width = (uint64_t)h.v->s.dim[last];
    h.rows = ten_count(&h.scores) / h.keys;
    h.alpha = call_f(c, A_alpha, 1);
    return h;
}

/* Key j, part e of the head of row r. */
static uint64_t key_at(const Heads *h, uint64_t r, uint64_t j, uint64_t e) {
    uint64_t head = r / (uint64_t)h->q->s.dim[h->q->s.rank - 2] * h->keys * h->depth;
    return head + (call_i(h->c, A_trans_b, 0) ? j * h->depth + e : e * h->keys + j);
}

static uint64_t value_at(const Heads *h, uint64_t r, uint64_t j) {
    return (r / (uint64_t)h->q->s.dim[h->q->s.rank - 2] * h->keys + j) * h->width;
}

static bool hidden(const Heads *h, uint64_t r, uint64_t j) {
    int64_t at[IR_MAX_RANK];
    if (!h->cond) return false;
    ten_index(&h->scores, r * h->keys + j, at);
    bool is = h->cond->x[ten_broadcast(&h->cond->s, &h->scores, at)] != 0;
    return is != (call_i(h->c, A_mode, 0) != 0);
}

static void probabilities(const Heads *h, uint64_t r, double *p) {
    double top = -INFINITY, sum = 0;
    int64_t at[IR_MAX_RANK];
    for (uint64_t j = 0; j < h->keys; j++) {
        p[j] = 0;
        for (uint64_t e = 0; e < h->depth; e++)
            p[j] += h->alpha * h->q->x[r * h->depth + e] * h->k->x[key_at(h, r, j, e)];
        if (hidden(h, r, j)) p[j] = call_f(h->c, A_value, 0);
        ten_index(&h->scores, r * h->keys + j, at);
        if (h->add) p[j] += h->add->x[ten_broadcast(&h->add->s, &h->scores, at)];
        top = fmax(top, p[j]);
    }
    for (uint64_t j = 0; j < h->keys; j++) sum += p[j] = exp(p[j] - top);
    for (uint64_t j = 0; j < h->keys; j++) p[j] /= sum;
}

/* What dropout makes of a probability 1. */
static double kept(const Heads *h, uint64_t r, uint64_t j) {
    double ratio = call_f(h->c, A_ratio, 0);
    float one = dtrt_dropout(1, (float)ratio, 1, 0, h->c->key, r * h->keys + j);
    return ratio <= 0 ? 1 : one > 0 ? 1 / (1 - ratio) : 0;
}

static void forward(const Heads *h, uint64_t r, const double *p) {
    for (uint64_t e = 0; e < h->width; e++) {
        double y = 0;
        for (uint64_t j = 0; j < h->keys; j++)
            y += p[j] * kept(h, r, j) * h->v->x[value_at(h, r, j) + e];
        h->c->out[0].x[r * h->width + e] = y;
    }
}

static void backward(const Heads *h, uint64_t r, const double *p, double *d) {
    const double *dy = h->c->in[0].x + r * h->width;
    Ten *out = h->c->out;
    double sum = 0;
    for (uint64_t j = 0; j < h->keys; j++) {
        d[j] = 0;
        for (uint64_t e = 0; e < h->width; e++) {
            d[j] += dy[e] * kept(h, r, j) * h->v->x[value_at(h, r, j) + e];
            out[2].x[value_at(h, r, j) + e] += p[j] * kept(h, r, j) * dy[e];
        }
        sum += p[j] * d[j];
    }
    for (uint64_t j = 0; j < h->keys; j++) {
        double ds = hidden(h, r, j) ? 0 : h->alpha * p[j] * (d[j] - sum);
        if (h->c->nout > 3 && out[3].x) out[3].x[r * h->keys + j] = p[j] * (d[j] - sum);
        for (uint64_t e = 0; e < h->depth; e++) {
            out[0].x[r * h->depth + e] += ds * h->k->x[key_at(h, r, j, e)];
            out[1].x[key_at(h, r, j, e)] += ds * h->q->x[r * h->depth + e];
        }
    }
}

bool interp_attention(const Call *c) {
    bool grad = c->op == OP_AttentionGrad;
    if (c->op != OP_Attention && !grad) return false;
    Heads h = heads_of(c, grad);
    double *p = calloc(2 * h.keys, sizeof *p);
    for (uint32_t k = 0; k < 3 && grad; k++)
        for (uint64_t i = 0; i < ten_count(&c->out[k].s); i++) c->out[k].x[i] = 0;
    for (uint64_t r = 0; r < h.rows; r++) {
        probabilities(&h, r, p);
        if (grad)
            backward(&h, r, p, p + h.keys);
        else
            forward(&h, r, p);
    }
    free(p);
    return true;
}
