/* interp_index.c - gathering and scattering by indices, TopK, for the test interpreter. */
#include "interp.h"

#include <math.h>
#include <string.h>

static int64_t wrap(double v, int64_t n) {
    return (int64_t)(v < 0 ? v + (double)n : v);
}

static double combine(int64_t how, double a, double b) {
    return how == 1 ? a + b : how == 2 ? a * b : how == 3 ? fmax(a, b) : how == 4 ? fmin(a, b) : b;
}

/* Visits each element that the indices name, with its place in `data` and in the other tensor. */
static void visit(const Call *c, const Ten *data, const Ten *index, const double *from, double *to,
                  bool scatter) {
    bool tuples = c->op == OP_GatherND || c->op == OP_ScatterND;
    int64_t axis = call_i(c, A_axis, 0), how = call_i(c, A_reduction, 0);
    uint32_t batch = (uint32_t)call_i(c, A_batch_dims, 0), rank = index->s.rank;
    uint32_t k = tuples ? (uint32_t)index->s.dim[rank - 1] : 0;
    if (axis < 0) axis += data->s.rank;
    Shape other = index->s; /* of updates or of the result */
    if (tuples) other.rank--;
    for (uint32_t i = batch + k; tuples && i < data->s.rank; i++)
        other.dim[other.rank++] = data->s.dim[i];
    for (uint64_t i = 0; i < ten_count(&other); i++) {
        int64_t at[IR_MAX_RANK], place[IR_MAX_RANK], tuple[IR_MAX_RANK];
        ten_index(&other, i, at);
        memcpy(place, at, sizeof place);
        if (!tuples) place[axis] = wrap(index->x[i], data->s.dim[axis]);
        for (uint32_t j = 0; tuples && j < data->s.rank; j++) {
            memcpy(tuple, at, sizeof tuple);
            tuple[rank - 1] = (int64_t)j - batch;
            if (j >= batch && j < batch + k)
                place[j] = wrap(index->x[ten_flat(&index->s, tuple)], data->s.dim[j]);
            else if (j >= batch + k)
                place[j] = at[rank - 1 + j - batch - k];
        }
        uint64_t d = ten_flat(&data->s, place);
        if (scatter)
            to[d] = combine(how, to[d], from[i]);
        else
            to[i] = from[d];
    }
}

static void topk(const Call *c) {
    const Ten *x = &c->in[0];
    int64_t axis = call_i(c, A_axis, -1), k = call_i(c, A_k, 1);
    if (axis < 0) axis += x->s.rank;
    double sign = call_i(c, A_largest, 1) ? 1 : -1;
    for (uint64_t i = 0; i < ten_count(&x->s); i++) {
        int64_t at[IR_MAX_RANK], rank = 0, mine;
        ten_index(&x->s, i, at);
        mine = at[axis];
        for (at[axis] = 0; at[axis] < x->s.dim[axis]; at[axis]++) {
            double v = x->x[ten_flat(&x->s, at)];
            rank += sign * v > sign * x->x[i] || (v == x->x[i] && at[axis] < mine);
        }
        at[axis] = rank;
        if (rank >= k) continue;
        c->out[0].x[ten_flat(&c->out[0].s, at)] = x->x[i];
        if (c->out[1].x) c->out[1].x[ten_flat(&c->out[0].s, at)] = (double)mine;
    }
}

bool interp_index(const Call *c) {
    double *y = c->out[0].x;
    switch (c->op) {
    case OP_GatherElements:
    case OP_GatherND: visit(c, &c->in[0], &c->in[1], c->in[0].x, y, false); return true;
    case OP_ScatterElements:
    case OP_ScatterND:
        memset(y, 0, ten_count(&c->out[0].s) * sizeof *y);
        if (c->nin > 2 && c->in[2].x) memcpy(y, c->in[2].x, ten_count(&c->out[0].s) * sizeof *y);
        visit(c, &c->out[0], &c->in[0], c->in[1].x, y, true);
        return true;
    case OP_TopK: topk(c); return true;
    default: return false;
    }
}
