/* Attention and its gradient on the device against loops in double: both layouts of K, masks of
 * several shapes, sizes that make one block, several groups of heads, several blocks of queries
 * with fewer rows in the last. Twice, at other addresses: the same bits. */
#include "on_device.h"

#include "cpu/attention_case.h"
#include "test.h"

/* Blocks have 2^22 scores: 4 of 5 heads; 1501 of 3001 rows, for 2796 would fit. */
static const Case large[] = {
    {"groups of heads", 1, {5}, 100, 9000, 4, 3, 1, 0, 1, {0}, {1, 100}, MINUS, 0, false},
    {"blocks of queries", 1, {1}, 3001, 1500, 4, 3, 0, 1, 0, {1, 1}, {0}, 0, 0.5f, false},
};

static void run(const Case *c, const Host *x, float **out) {
    DtrtAttention fwd = object_of(c, 0), bwd = object_of(c, 1);
    CHECK(dtrt_attention_init(&fwd, 1) && dtrt_attention_init(&bwd, 1));
    void *in[INPUTS], *to[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = device_put(x->in[i], (uint64_t)x->nin[i] * 4);
    for (int i = 0; i < OUTPUTS; i++) to[i] = device_room((uint64_t)x->nout[i] * 4);
    void *add = device_put(x->add, (uint64_t)x->nadd * 4), *a = c->add ? add : NULL;
    void *cond = device_put(x->cond, (uint64_t)x->ncond), *b = c->cond ? cond : NULL;
    void *ws = device_room(dtrt_attention_workspace(&fwd));
    dtrt_attention_forward(NULL, &fwd, DROP_KEY, in[Q], in[K], in[V], a, b, to[Y], to[STATS], ws);
    device_drop(ws);
    ws = device_room(dtrt_attention_workspace(&bwd));
    dtrt_attention_grad(NULL, &bwd, DROP_KEY, in[DY], in[Q], in[K], in[V], a, b, to[STATS], to[DQ],
                        to[DK], to[DV], c->wants_mask ? to[DSCORES] : NULL, ws);
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = malloc((size_t)x->nout[i] * 4);
        if (!out[i]) abort();
        device_get(out[i], to[i], (uint64_t)x->nout[i] * 4);
        device_drop(to[i]);
    }
    for (int i = 0; i < INPUTS; i++) device_drop(in[i]);
    void *all[] = {add, cond, ws};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_drop(all[i]);
    dtrt_attention_free(&fwd);
    dtrt_attention_free(&bwd);
}

/* Largest difference relative to the largest value; infinite when something is not finite. */
static double worst(const float *got, const double *want, int64_t n) {
    double err = 0.0, top = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= err)) err = isnan(d) ? INFINITY : d;
        if (fabs(want[i]) > top) top = fabs(want[i]);
    }
    return err / top;
}

static void check_case(const Case *c, bool twice) {
    Host x = make_host(c);
    float *one[OUTPUTS], *two[OUTPUTS];
    reference(c, &x);
    run(c, &x, one);
    void *gap = device_room(1 << 20);
    if (twice) run(c, &x, two);
    device_drop(gap);
    for (int i = 0; i < OUTPUTS; i++) {
        bool other = i == STATS || (i == DSCORES && !c->wants_mask);
        double off = other ? 0 : worst(one[i], x.want[i], x.nout[i]);
        CHECK(off <= 3e-6);
        if (!(off <= 3e-6)) fprintf(stderr, "   %s, output %d: off by %g\n", c->name, i, off);
        if (twice) {
            CHECK(!memcmp(one[i], two[i], (size_t)x.nout[i] * 4));
            free(two[i]);
        }
        free(one[i]);
    }
    free_host(&x);
}

int main(int argc, char **argv) {
    static const char *const kernels[] = {"attention", NULL};
    bool all = argc > 2; /* large ones: without the check of every access, which takes a minute */
    if (all) setenv("DTRC_SIM_CHECK", "0", 1);
    if (argc < 2 || !device_open(argv[1], kernels, false)) return 77;
    for (size_t i = 0; !all && i < sizeof small_cases / sizeof *small_cases; i++)
        check_case(&small_cases[i], true);
    for (size_t i = 0; all && i < sizeof large / sizeof *large; i++) check_case(&large[i], false);
    device_close();
    return test_end();
}
