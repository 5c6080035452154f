/* init.c - initial weights for --init. "kaiming" (He et al., "Delving deep into rectifiers", ICCV
 * 2015, fan-in, gain sqrt 2) and "xavier" (Glorot and Bengio, AISTATS 2010), both with the uniform
 * distribution, are drawn for parameters of rank 2 and more; other parameters keep the values of
 * the file, and where those are missing scales and variances become 1, the rest 0. "keep" leaves
 * all as it is. */
#include "driver.h"

#include <math.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
 */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t seed_of(const char *name, uint64_t seed) {
    uint64_t h =
        0xCBF29CE484222325u; /* FNV-1a, so that a weight's values do not depend on its neighbours */
    for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001B3u;
    return h ^ (seed * 0x9E3779B97F4A7C15u);
}

/* [out, in, k..]: fan in = in*k, fan out = out*k, as for Conv and Gemm with trans_b. */
static void fans(const Shape *s, double *in, double *out) {
    double window = 1;
    for (uint32_t i = 2; i < s->rank; i++) window *= (double)s->dim[i];
    *in = (double)s->dim[1] * window;
    *out = (double)s->dim[0] * window;
}

static void draw(Arena *a, Value *v, const char *kind, uint64_t seed, uint64_t n) {
    double in, out;
    fans(&v->shape, &in, &out);
    double bound = !strcmp(kind, "xavier") ? sqrt(6 / (in + out)) : sqrt(6 / in);
    float *w = ARENA_ARRAY(a, float, n);
    uint64_t state = seed_of(v->name, seed);
    for (uint64_t i = 0; i < n; i++)
        w[i] = (float)(bound * (2 * ((double)(next_random(&state) >> 11) * 0x1p-53) - 1));
    Data *data = ARENA_NEW(a, Data);
    *data = (Data){w, n * sizeof(float)};
    v->data = data;
}

static bool starts_at_one(const Graph *g, ValueId v) {
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++)
            if (g->node[n].in[i] == v && op_def(g->node[n].op)->ones >> i & 1) return true;
    return false;
}

static void fill_missing(Arena *a, const Graph *g, ValueId id, uint64_t n) {
    float x = starts_at_one(g, id) ? 1 : 0;
    float *w = ARENA_ARRAY(a, float, n);
    for (uint64_t i = 0; i < n; i++) w[i] = x;
    Data *data = ARENA_NEW(a, Data);
    *data = (Data){w, n * sizeof(float)};
    g->value[id].data = data;
}

bool init_weights(Arena *a, Diag *d, Graph *g, const char *kind, uint64_t seed) {
    if (!strcmp(kind, "keep")) return true;
    for (ValueId id = 0; id < g->nvalue; id++) {
        Value *v = &g->value[id];
        bool weight = v->role == ROLE_PARAM || v->role == ROLE_FROZEN || v->role == ROLE_BUFFER;
        if (!weight || v->dtype != DT_F32) continue;
        uint64_t n = value_count(g, id);
        if (v->role == ROLE_PARAM && v->shape.rank >= 2 && n)
            draw(a, v, kind, seed, n);
        else if (!v->data && v->role == ROLE_FROZEN && v->shape.rank >= 2)
            return diag_error(d, (Place){.file = g->file, .tensor = v->name},
                              "a frozen weight has no values: its external data file is missing");
        else if (!v->data)
            fill_missing(a, g, id, n);
    }
    return true;
}
