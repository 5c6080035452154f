/* export.c - --export: the model's file with the trained weights, in inference form. dtrc has cut
 * the file into pieces (frontends/onnx/export.c); here they are written one after another, the
 * bytes from the program's payload, the weights from the device block. */
#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

/* IEEE 754 half precision, to nearest, ties to even; 0x7FFF for what is no number. */
static uint16_t half_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float a = fabsf(v);
    if (isnan(v)) return 0x7FFF;
    if (a >= 65520) return sign | 0x7C00; /* above the middle of the largest and infinity */
    /* In units of the last place, by the exponent; subnormal below 2^-14. */
    int exponent = a < 0x1p-14f ? -14 : ilogbf(a);
    uint32_t units = (uint32_t)nearbyintf(ldexpf(a, 10 - exponent));
    /* A carry out of the fraction goes into the exponent, as it should. */
    return (uint16_t)(sign + ((uint32_t)(exponent + 14) << 10) + units);
}

static uint16_t bfloat_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (isnan(v)) return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void write_short(OutFile *f, const float *at, uint64_t n, DtrtPieceForm as) {
    uint16_t part[1024];
    for (uint64_t i = 0; i < n;) {
        uint32_t k = 0;
        for (; k < 1024 && i < n; k++, i++)
            part[k] = as == DTRT_AS_F16 ? half_bits(at[i]) : bfloat_bits(at[i]);
        dtrt_out_write(f, part, k * sizeof *part);
    }
}

static Status write_tensor(Runtime *rt, OutFile *f, const DtrtPiece *piece, void *bounce) {
    const DtrtTensor *t = &rt->p->tensor[piece->tensor];
    const void *plain = dtrt_tensor_plain(rt, t, rt->block + t->offset, bounce);
    if (!plain) return ST_MACHINE;
    if (piece->as == DTRT_AS_IT_IS)
        dtrt_out_write(f, plain, piece->bytes);
    else
        write_short(f, plain, piece->bytes / 2, piece->as);
    return ST_OK;
}

static Status write_bytes(Runtime *rt, OutFile *f, const DtrtPiece *piece) {
    char chunk[CHUNK];
    for (uint64_t at = 0; at < piece->bytes;) {
        uint64_t n = piece->bytes - at < CHUNK ? piece->bytes - at : CHUNK;
        Status st = dtrt_payload_read(rt, piece->payload_offset + at, chunk, n);
        if (st) return st;
        dtrt_out_write(f, chunk, n);
        at += n;
    }
    return ST_OK;
}

Status dtrt_export(Runtime *rt, const char *path) {
    OutFile f;
    void *own, *bounce = dtrt_idle_bounce(rt, &own);
    if (!bounce) return ST_MACHINE;
    Status st = dtrt_out_open(&f, path);
    for (uint32_t i = 0; i < rt->p->npiece && !st && !f.failed; i++) {
        const DtrtPiece *piece = &rt->p->piece[i];
        st = piece->tensor < 0 ? write_bytes(rt, &f, piece) : write_tensor(rt, &f, piece, bounce);
    }
    free(own);
    if (!st) return dtrt_out_commit(&f);
    dtrt_out_abort(&f);
    return st;
}
