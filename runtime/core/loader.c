/* loader.c - from a data set to staged batches: checks everything that can be known before the
 * first step, then fills the inputs and targets of the device block for each step.
 *
 * Order of samples: as in the file, or shuffled per epoch (Fisher and Yates, with the counter-based
 * generator keyed by seed and epoch, so that an epoch's order does not depend on how the run got
 * there). The last batch of an epoch is smaller where the samples do not make whole ones, or is
 * left out: with --drop-last, or where the batch is fixed. */
#include "core.h"
#include "dtrt_math.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_MIN 65536u
#define SHUFFLE_KEY 0x5u

const DtrtTensor *dtrt_program_input(const DtrtProgram *p) {
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (p->tensor[i].role == DTRT_INPUT) return &p->tensor[i];
    return NULL;
}

const DtrtTensor *dtrt_program_target(const DtrtProgram *p) {
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (p->tensor[i].role == DTRT_TARGET) return &p->tensor[i];
    return NULL;
}

int64_t dtrt_program_batch(const DtrtProgram *p) {
    const DtrtTensor *x = dtrt_program_input(p);
    return x && x->rank ? x->dim[0] : 0;
}

uint64_t dtrt_loader_epoch(const Loader *l, uint64_t step) {
    return l->steps_per_epoch ? step / l->steps_per_epoch : 0;
}

uint64_t dtrt_loader_position(const Loader *l, uint64_t step) {
    return (step - dtrt_loader_epoch(l, step) * l->steps_per_epoch) * l->batch;
}

bool dtrt_loader_is_tail(const Loader *l, uint64_t step) {
    return l->tail && step % l->steps_per_epoch == l->steps_per_epoch - 1;
}

/* Order of one epoch. Swapping i with a number in [0, i]: the 64-bit product scales a 32-bit
 * number. */
static void shuffle(Runtime *rt, uint64_t epoch) {
    Loader *l = &rt->loader;
    for (uint64_t i = 0; i < l->rows; i++) l->order[i] = (uint32_t)i;
    for (uint64_t i = l->rows - 1; i > 0; i--) {
        uint64_t j = dtrt_random(rt->ctx.seed, epoch, SHUFFLE_KEY, i) * (i + 1) >> 32;
        uint32_t t = l->order[i];
        l->order[i] = l->order[j];
        l->order[j] = t;
    }
    l->epoch = epoch;
}

/* Rows first .. first+n of the batch sequence that lie one after another in the file. */
static uint64_t run_length(const Loader *l, const DataArray *a, uint64_t first, uint64_t n,
                           bool direct, uint64_t *row) {
    uint64_t len = 1, most = direct ? n : l->scratch_bytes / a->row_bytes;
    *row = l->order ? l->order[first] : first;
    uint64_t span = dtrt_dataset_span(a, *row);
    if (most > span) most = span;
    if (most > n) most = n;
    while (len < most && (!l->order || l->order[first + len] == *row + len)) len++;
    return len;
}

static Status stage_feed(Runtime *rt, const Feed *f, uint64_t first, uint64_t rows) {
    Loader *l = &rt->loader;
    const DtrtTensor *t = &rt->p->tensor[f->tensor];
    const DataArray *a = f->array;
    uint64_t elem = dtrt_type_bytes(t->type), per_row = a->row_bytes / dtrt_data_size(a->type);
    uint8_t *to = dtrt_staging(rt, t);
    bool direct = dtrt_same_type(a->type, t->type); /* straight to its place */
    for (uint64_t done = 0, len, row; done < rows; done += len) {
        len = run_length(l, a, first + done, rows - done, direct, &row);
        Status st = dtrt_dataset_rows(a, row, len, direct ? to : l->scratch);
        if (st) return st;
        if (!direct) dtrt_convert(a->type, l->scratch, t->type, to, len * per_row, f->divide);
        if (t->role == DTRT_TARGET) {
            st = dtrt_labels_check(rt->p, a, t->type, to, row, len * per_row);
            if (st) return st;
        }
        to += len * per_row * elem;
    }
    return ST_OK;
}

Status dtrt_loader_stage(Runtime *rt, uint64_t step) {
    Loader *l = &rt->loader;
    uint64_t epoch = dtrt_loader_epoch(l, step);
    uint64_t rows = dtrt_loader_is_tail(l, step) ? l->tail : l->batch;
    if (l->order && epoch != l->epoch) shuffle(rt, epoch);
    for (uint32_t i = 0; i < l->nfeed; i++) {
        const Feed *f = &l->feed[i];
        if (!f->array) {
            dtrt_synthetic_fill(rt, f, step);
            continue;
        }
        Status st = stage_feed(rt, f, (step - epoch * l->steps_per_epoch) * l->batch, rows);
        if (st) return st;
    }
    return ST_OK;
}

/* The first axis must be the batch everywhere, or samples cannot be cut from the arrays. */
static Status sample_batch(const DtrtProgram *p, uint64_t *batch) {
    const DtrtTensor *first = NULL;
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if (t->role != DTRT_INPUT && t->role != DTRT_TARGET) continue;
        if (!first) first = t;
        if (t->rank && first->rank && t->dim[0] == first->dim[0]) continue;
        dtrt_error("inputs %s %s and %s %s do not share a first axis that counts samples",
                   dtrt_name_str(first->name), dtrt_shape_str(first->rank, first->dim, NULL),
                   dtrt_name_str(t->name), dtrt_shape_str(t->rank, t->dim, NULL));
        dtrt_hint("store whole batches, [number of batches, ...], and give --batched");
        return ST_DATA;
    }
    *batch = first ? (uint64_t)first->dim[0] : 1;
    return ST_OK;
}

static Status find_feeds(Runtime *rt) {
    Loader *l = &rt->loader;
    const DtrtProgram *p = rt->p;
    l->feed = calloc(p->ntensor + 1, sizeof *l->feed);
    if (!l->feed) return dtrt_no_memory(p->ntensor * sizeof *l->feed);
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if (t->role != DTRT_INPUT && t->role != DTRT_TARGET) continue;
        Feed *f = &l->feed[l->nfeed++];
        *f = (Feed){.tensor = (int)i};
        if (rt->o.synthetic) f->limit = dtrt_synthetic_limit(p, (int)i);
        for (uint32_t k = 0; k < l->data.n && !rt->o.synthetic; k++)
            if (!strcmp(l->data.array[k].name, t->name)) f->array = &l->data.array[k];
        f->divide =
            f->array && f->array->type == D_U8 && t->type == DTRT_F32 && t->role == DTRT_INPUT;
    }
    return ST_OK;
}

/* The samples that make no whole batch. */
static Status open_tail(Runtime *rt, uint64_t rows) {
    Loader *l = &rt->loader;
    if (!rows) return ST_OK;
    if (rt->o.drop_last) {
        dtrt_note("%" PRIu64 " samples in batches of %" PRIu64 ": the last %" PRIu64
                  " of an epoch are left out",
                  l->rows, l->batch, rows);
        return ST_OK;
    }
    Status st = dtrt_sizes_tail(rt, rows);
    if (st || !rt->tail) return st;
    l->tail = rows;
    l->steps_per_epoch++;
    return ST_OK;
}

static Status count_rows(Runtime *rt) {
    Loader *l = &rt->loader;
    l->rows = l->nfeed ? l->feed[0].array->rows : 0;
    l->steps_per_epoch = l->rows / l->batch;
    const char *what = rt->o.batched ? "batches" : "samples";
    if (!l->rows) {
        dtrt_error("%s: the data is empty", rt->o.data);
        return ST_DATA;
    }
    Status st = open_tail(rt, l->rows % l->batch);
    if (st) return st;
    if (!l->steps_per_epoch) {
        dtrt_error("%s: %" PRIu64 " samples are fewer than one batch of %" PRIu64, rt->o.data,
                   l->rows, l->batch);
        dtrt_hint(rt->o.drop_last ? "leave --drop-last out, or give a smaller --batch"
                                  : "compile the model with a smaller --batch");
        return ST_DATA;
    }
    if (!rt->o.shuffle) return ST_OK;
    if (l->rows > UINT32_MAX) {
        dtrt_error("%s: more than 2^32 %s cannot be shuffled; give --shuffle off", rt->o.data,
                   what);
        return ST_USAGE;
    }
    l->order = malloc(l->rows * sizeof *l->order);
    if (!l->order) return dtrt_no_memory(l->rows * sizeof *l->order);
    shuffle(rt, 0);
    return ST_OK;
}

/* Room for a row of each array that is converted, and of the labels, which are checked beforehand.
 */
static Status open_scratch(const DtrtProgram *p, Loader *l) {
    l->scratch_bytes = SCRATCH_MIN;
    for (uint32_t i = 0; i < l->nfeed; i++) {
        const DtrtTensor *t = &p->tensor[l->feed[i].tensor];
        const DataArray *a = l->feed[i].array;
        if (dtrt_same_type(a->type, t->type) && t->role != DTRT_TARGET) continue;
        if (a->row_bytes > l->scratch_bytes) l->scratch_bytes = a->row_bytes;
    }
    l->scratch = malloc(l->scratch_bytes);
    return l->scratch ? ST_OK : dtrt_no_memory(l->scratch_bytes);
}

Status dtrt_loader_open(Runtime *rt) {
    Loader *l = &rt->loader;
    if (rt->o.synthetic) {
        l->batch = (uint64_t)dtrt_program_batch(rt->p);
        return find_feeds(rt);
    }
    l->batch = 1;
    Status st = dtrt_dataset_open(rt->p, rt->o.data, &l->data);
    if (!st && !rt->o.batched) st = sample_batch(rt->p, &l->batch);
    if (!st) st = find_feeds(rt);
    if (!st) st = dtrt_data_check(rt);
    if (!st) st = count_rows(rt);
    if (!st) st = open_scratch(rt->p, l);
    return st ? st : dtrt_labels_scan(rt);
}

void dtrt_loader_free(Loader *l) {
    dtrt_dataset_free(&l->data);
    free(l->feed);
    free(l->order);
    free(l->scratch);
    *l = (Loader){0};
}
