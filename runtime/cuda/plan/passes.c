/* passes.c - geometry of a convolution -> how each of its passes is done, and its workspace.
 *
 * With channels last a kernel of one cell is a matrix product, which cuBLAS does in f32 without
 * copies. Depthwise convolutions are bound by memory and are loops of our own: the library's exact
 * deterministic engine for them is its generic one. Everything else is cuDNN's, which with channels
 * last has few exact engines: the good ones copy images into channels first, so that they want as
 * much workspace as the images have bytes. Images of a batch are independent, so such a pass is
 * given parts of the batch, small enough for its workspace to stay below the cap (micro-batching of
 * convolutions: Oyama, Ben-Nun, Hoefler, Matsuoka, "Accelerating Deep Learning Frameworks with
 * Micro-Batches", IEEE CLUSTER 2018; theirs are chosen by measured times, ours are the largest
 * that fit). Weight gradients sum over the batch, and need little workspace: they stay whole.
 *
 * The choice depends on geometry, device and cap alone, never on the budget. */
#include "cuda_plan.h"

enum { ALIGN = 256, LIBRARY_ALIGN = 16, MAX_PARTS = 256, PART_ROWS = 2, PART_FLOATS = 1 << 20 };
static const uint64_t mib = 1 << 20, kib = 1 << 10;

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t product(const int64_t *v, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= v[i];
    return p;
}

int64_t cuda_conv_weights(const DtrtConv *c) {
    return c->co * (c->ci / c->group) * product(c->k, c->nd);
}

static uint64_t image_bytes(const DtrtConv *c) {
    return sizeof(float) *
           (uint64_t)(c->ci * product(c->in, c->nd) + c->co * product(c->out, c->nd));
}

/* Engines that transform weights keep up to four times their bytes. Small convolutions get no more
 * than they work on, or workspaces would be all of a small model's memory. */
uint64_t cuda_conv_cap(const DtrtConv *c) {
    uint64_t weights = 4 * sizeof(float) * (uint64_t)cuda_conv_weights(c) + 64 * kib;
    uint64_t one = image_bytes(c) + weights, all = (uint64_t)c->n * image_bytes(c) + weights;
    return one > 32 * mib ? one : all < 32 * mib ? all : 32 * mib;
}

/* ---- ways ---- */

static bool is_product(const DtrtConv *c) {
    if (!c->channels_last || c->group != 1) return false;
    for (int i = 0; i < c->nd; i++)
        if (c->k[i] != 1 || c->stride[i] != 1 || c->pad_lo[i] || c->pad_hi[i]) return false;
    return true;
}

static void take_product(const DtrtConv *c, CudaPass pass, uint64_t most, CudaConvPass *out) {
    int64_t rows = c->n * product(c->out, c->nd);
    uint64_t wanted = pass == PASS_FWD      ? cuda_product_workspace(rows * c->co, c->ci)
                      : pass == PASS_GRAD_X ? cuda_product_workspace(rows * c->ci, c->co)
                                            : cuda_product_workspace(c->co * c->ci, rows);
    *out = (CudaConvPass){.way = WAY_PRODUCT};
    out->bytes = out->library = wanted < most ? wanted : most;
}

/* Weight gradients are summed by several blocks, whose partial sums (doubles) a second kernel adds
 * in order. */
static void take_own(const DtrtConv *c, CudaPass pass, uint64_t most, CudaConvPass *out) {
    int64_t weights = cuda_conv_weights(c), rows = c->n * product(c->out, c->nd - 1);
    uint64_t bytes = sizeof(double) * (uint64_t)weights;
    *out = (CudaConvPass){.way = WAY_OWN, .parts = 1};
    if (pass != PASS_GRAD_W || weights == 0) return;
    int64_t parts = PART_FLOATS / weights, room = (int64_t)(most / bytes);
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    if (parts > rows / PART_ROWS) parts = rows / PART_ROWS;
    if (parts > room) parts = room;
    if (parts < 2) return;
    out->parts = parts;
    out->bytes = (uint64_t)parts * bytes;
}

/* Does the library need a copy of the weights in its layout? */
static bool turns_weights(const DtrtConv *c) {
    return c->channels_last && !c->packed && c->ci != c->group && product(c->k, c->nd) > 1;
}

/* Do all parts of the batch begin at addresses that the library was promised? */
static bool is_aligned(const DtrtConv *c, int64_t images) {
    int64_t x = images * c->ci * product(c->in, c->nd), y = images * c->co * product(c->out, c->nd);
    return images == c->n || (x % (LIBRARY_ALIGN / 4) == 0 && y % (LIBRARY_ALIGN / 4) == 0);
}

/* The library's favourite engine, for the largest part of the batch with which it keeps to its
 * bytes; failing that, the first engine that keeps to them with the whole batch. */
static bool plan_library(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most,
                         CudaConvPass *out) {
    DtrtConv part = *c;
    for (int64_t split = 1; pass != PASS_GRAD_W && split < 2 * c->n; split *= 2) {
        part.n = c->n % split == 0 ? c->n / split : 1;
        if (!is_aligned(c, part.n)) break;
        if (dnn_plan(d, &part, pass, tf32, UINT64_MAX, &out->plan, &out->library)) {
            out->images = part.n;
            if (out->library <= most) return true;
            dnn_drop(d, out->plan);
            out->plan = NULL;
        }
        if (part.n == 1) break;
    }
    out->images = c->n;
    return dnn_plan(d, c, pass, tf32, most, &out->plan, &out->library);
}

static bool take_library(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most,
                         CudaConvPass *out) {
    *out = (CudaConvPass){.way = WAY_LIBRARY, .images = c->n};
    if (turns_weights(c)) out->weights = sizeof(float) * (uint64_t)cuda_conv_weights(c);
    if (out->weights > most) return false;
    uint64_t left = most - out->weights;
    if (out->weights) left = left / ALIGN * ALIGN;
    if (!d) {
        out->library = left;
    } else if (!plan_library(d, c, pass, tf32, left, out)) {
        return false;
    }
    if (out->weights) out->library = aligned(out->library);
    out->bytes = out->library + out->weights;
    return true;
}

void cuda_conv_pass(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t limit,
                    CudaConvPass *out) {
    const uint64_t most = limit ? limit - 1 : cuda_conv_cap(c);
    const bool depthwise = c->group > 1 && c->ci == c->group;
    if (is_product(c) && most >= 64 * kib)
        take_product(c, pass, most, out);
    else if (depthwise || !take_library(d, c, pass, tf32, most, out))
        take_own(c, pass, most, out);
}

void cuda_plan_conv(const DtrtConv *c, const CudaTarget *t, DtrtConvNeeds *out) {
    const int wanted[PASSES] = {c->fwd, c->grad_x, c->grad_w};
    uint64_t bytes[PASSES] = {0};
    const Dnn *d = dnn_for(t->device);
    for (int i = 0; i < PASSES; i++) {
        CudaConvPass p;
        if (!wanted[i]) continue;
        cuda_conv_pass(d, c, (CudaPass)i, t->tf32, t->conv_limit, &p);
        dnn_drop(d, p.plan);
        bytes[i] = p.bytes;
    }
    *out = (DtrtConvNeeds){.weight_bytes = sizeof(float) * (uint64_t)cuda_conv_weights(c),
                           .fwd = bytes[PASS_FWD],
                           .grad_x = bytes[PASS_GRAD_X],
                           .grad_w = bytes[PASS_GRAD_W]};
}
