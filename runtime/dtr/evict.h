/* evict.h - choosing victims: what evict.c, incremental.c and published.c share. */
#ifndef DTRT_DTR_EVICT_H
#define DTRT_DTR_EVICT_H

#include "engine.h"

/* A run of blocks in address order. */
typedef struct {
    uint32_t from, to; /* first and last block */
    uint64_t bytes;
    double cost;
} Window;

/* ---- evict.c ---- */
double dtr_numbers_score(Dtr *d, uint32_t x); /* h of what is known of x */

/* The cheapest run of blocks with enough bytes, of all; false: none. */
bool dtr_slide(Dtr *d, uint64_t need, Window *w);

/* ---- published.c ---- */
uint32_t dtr_published_victim(Dtr *d);

/* ---- incremental.c ---- */
uint32_t dtr_incremental_victim(Dtr *d);
/* Dtr.window and Dtr.window_cost. */
void dtr_incremental_costs(Dtr *d);
/* The cheapest run with `need` bytes that it finds; false: none. */
bool dtr_incremental_window(Dtr *d, uint64_t need, Window *w);

#endif
