/* weights.c - weights.bin: initial values of persistent tensors, and of constants that only the
 * reference graph has, plain row-major, the bytes of the model's file between its weights, a
 * device's compiled kernels, each aligned to 64 bytes; then the footer of runtime/core/payload.h.
 * Values are written from where they are (often the mapped model file), never copied. */
#include "gen.h"

#include "payload.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ENTRY_ALIGN = 64 };

static uint64_t place(Gen *g, const Data *data) {
    uint64_t at = g->payload_bytes;
    if (data) g->payload_bytes = round_up(at + data->n, ENTRY_ALIGN);
    return data ? at : 0;
}

void cg_place_weights(Gen *g) {
    Map *by_name = map_new(g->a);
    g->file_offset = ARENA_ARRAY(g->a, uint64_t, g->ntensor + 1);
    g->ref_offset = ARENA_ARRAY(g->a, uint64_t, g->fwd->nvalue + 1);
    g->ref_tensor = ARENA_ARRAY(g->a, uint32_t, g->fwd->nvalue + 1);
    for (uint32_t i = 0; i < g->ntensor; i++) {
        const Value *v = &g->g->value[g->tensor[i]];
        map_put(by_name, v->name, i);
        g->file_offset[i] = place(g, v->data);
    }
    for (ValueId v = 0; v < g->fwd->nvalue; v++) {
        const Value *x = &g->fwd->value[v];
        g->ref_tensor[v] = x->role == ROLE_TEMP ? NO_ID : map_get(by_name, x->name);
        if (g->ref_tensor[v] == NO_ID) g->ref_offset[v] = place(g, x->data);
    }
    const OnnxExport *x = &g->o->model_file;
    g->piece_offset = ARENA_ARRAY(g->a, uint64_t, x->n + 1);
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->piece[i].value != NO_ID) continue;
        g->piece_offset[i] = g->payload_bytes;
        g->payload_bytes = round_up(g->payload_bytes + x->piece[i].n, ENTRY_ALIGN);
    }
    for (uint32_t i = 0; i < g->image.n; i++) {
        g->image.at[i].file_offset = g->payload_bytes;
        g->payload_bytes = round_up(g->payload_bytes + g->image.at[i].n, ENTRY_ALIGN);
    }
}

static bool put_bytes(FILE *f, const void *bytes, uint64_t n) {
    static const char zero[ENTRY_ALIGN];
    uint64_t pad = round_up(n, ENTRY_ALIGN) - n;
    return fwrite(bytes, 1, n, f) == n && fwrite(zero, 1, pad, f) == pad;
}

static bool put(FILE *f, const Data *data) {
    return !data || !data->n || put_bytes(f, data->bytes, data->n);
}

static bool put_all(const Gen *g, FILE *f) {
    for (uint32_t i = 0; i < g->ntensor; i++) TRY(put(f, g->g->value[g->tensor[i]].data));
    for (ValueId v = 0; v < g->fwd->nvalue; v++)
        if (g->ref_tensor[v] == NO_ID) TRY(put(f, g->fwd->value[v].data));
    const OnnxExport *x = &g->o->model_file;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->piece[i].value == NO_ID) TRY(put_bytes(f, x->piece[i].bytes, x->piece[i].n));
    for (uint32_t i = 0; i < g->image.n; i++)
        TRY(put_bytes(f, g->image.at[i].bytes, g->image.at[i].n));
    DtrtFooter end = {.bytes = g->payload_bytes};
    memcpy(end.magic, DTRT_PAYLOAD_MAGIC, sizeof end.magic);
    return fwrite(&end, sizeof end, 1, f) == 1;
}

bool cg_write_weights(Gen *g, const char *path) {
    const char *tmp = arena_printf(g->a, "%s.tmp", path);
    FILE *f = fopen(tmp, "wb");
    bool ok = f && put_all(g, f);
    if (f && fclose(f)) ok = false;
    if (ok && !rename(tmp, path)) return true;
    int why = errno;
    if (f) unlink(tmp);
    return diag_error(g->d, (Place){.file = path}, "cannot write the initial weights: %s",
                      strerror(why));
}
