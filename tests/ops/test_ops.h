/* test_ops.h - what the files of this test share. */
#ifndef TEST_OPS_H
#define TEST_OPS_H

#include "ops.h"
#include "test.h"

typedef struct {
    Arena *arena;
    Diag diag;
    Graph *g;
} Bench;

/* A graph from lines of text (without the head); fails the test when it does not parse. */
Bench bench_new(const char *lines);
void bench_free(Bench *b);
/* The text form without its first line and without sources. */
const char *bench_print(Bench *b);

int test_infer(void); /* each returns its number of failed checks */
int test_grad(void);
int test_emit(void);

#endif
