/* interp.h - an interpreter of graphs for tests: double precision, one element at a time, written
 * from the definitions of the operators and sharing nothing with kernels or emitted code. Integers
 * and bools are doubles too. Effects (updates) do nothing. */
#ifndef DTRC_TESTS_INTERP_H
#define DTRC_TESTS_INTERP_H

#include "ops.h"

/* A tensor; x may be shared between a value and its views. */
typedef struct {
    Shape s;
    double *x;
} Ten;

/* An operator with operands and results (whose memory is there). */
typedef struct {
    OpCode op;
    uint32_t nattr, nin, nout;
    const Attr *attr;
    const Ten *in; /* x NULL: absent */
    Ten *out;
    uint32_t key;
} Call;

uint64_t ten_count(const Shape *s);
void ten_index(const Shape *s, uint64_t i, int64_t *at); /* flat number to coordinates */
uint64_t ten_flat(const Shape *s, const int64_t *at);    /* and back */
uint64_t ten_broadcast(const Shape *s, const Shape *o,
                       const int64_t *at); /* element of s for `at` of o */
int64_t call_i(const Call *c, AttrKey k, int64_t dflt);
double call_f(const Call *c, AttrKey k, double dflt);
const int64_t *call_ints(const Call *c, AttrKey k); /* NULL when absent */

/* interp_move.c: convolution, products, pooling, movement. False: not one of these. */
bool interp_window(const Call *c);
bool interp_movement(const Call *c);

bool interp_index(const Call *c);     /* interp_index.c */
bool interp_resize(const Call *c);    /* interp_resize.c */
bool interp_attention(const Call *c); /* interp_attention.c */

/* Runs one operator. */
void interp_call(const Call *c);
/* Memory for all values; sources with data are filled from it. */
Ten *interp_new(Arena *a, const Graph *g);
/* Runs nodes from .. to-1. */
void interp_run(const Graph *g, Ten *val, NodeId from, NodeId to);

#endif
