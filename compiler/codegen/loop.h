/* loop.h - private to the files that write loops: loops.c (CPU), cuda_loops.c. */
#ifndef DTRC_LOOP_H
#define DTRC_LOOP_H

#include "gen.h"

typedef enum { FLAT, ROWS, SUMS, COLUMNS } Form;

typedef struct {
    Arena *a;
    const Graph *g;
    const Node *n;
    LoopNest l;
    Form form;
    Text *t;
    uint32_t nop;      /* operands: inputs, then outputs */
    uint32_t last;     /* innermost axis */
    bool scalar_sums;  /* sums are scalars, not arrays over columns */
    const char *in_at; /* how a moving operand is indexed: "i" or "e" */
    const char *index; /* linear index of the element */
} Loop;

/* Operand k: an input, or output k - nin. */
bool loop_is_given(const Loop *w, uint32_t k);
DType loop_type(const Loop *w, uint32_t k);
bool loop_out_is_sum(const Loop *w, uint32_t o);
/* Operands that the walking code points at: all inputs and elementwise outputs. */
bool loop_is_walked(const Loop *w, uint32_t k);
bool loop_moves(const Loop *w, uint32_t k, uint32_t axis);
bool loop_moves_everywhere(const Loop *w, uint32_t k);
/* "n1 * n2" for axes from..to; "1" when empty. */
const char *loop_product(const Loop *w, uint32_t from, uint32_t to);
/* Results t0.. of the instructions, from the operands v0..; reductions add to sum0... */
void loop_compute(const Loop *w, const char *pad);
/* Results of all reductions for column `at`, from sums that are in scope under the given suffix. */
void loop_finish_sums(const Loop *w, const char *pad, const char *suffix, const char *at);
/* The node's loop: form and iteration space; parameters beside context and operands. */
void loop_open(Loop *w, Arena *a, const Graph *g, const Node *n, bool by_columns, Text *t);
void loop_parameters(const Loop *w, Text *params, Text *args);

#endif
