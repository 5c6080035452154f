/* Attention and its gradient against loops in double: both layouts of K, masks of several shapes,
 * dropout, sizes that make one block, several groups of heads, several blocks of queries with fewer
 * rows in the last. Twice, at other addresses: the same bits. */
#include "cpu_test.h"

#include "attention_case.h"

static const Case large[] = {
    {"groups of heads", 1, {12}, 160, 300, 8, 8, 1, 0, 1, {0}, {1, 160}, MINUS, 0, false},
    {"blocks of queries", 1, {2}, 500, 1000, 8, 4, 0, 1, 0, {2, 1}, {0}, 0, 0.1f, true},
    {"uneven blocks", 1, {2}, 527, 1000, 4, 8, 1, 0, 1, {0}, {1, 527}, MINUS, 0, false},
};

static void run(const Case *c, const Host *x, Buf *out, int odd) {
    DtrtAttention fwd = object_of(c, 0), bwd = object_of(c, 1);
    DtrtCtx ctx = {.seed = x->seed, .step = x->step};
    uint64_t need[2];
    char err[200];
    CHECK(dtrt_attention_needs(&fwd, 2, &need[0], err, sizeof err));
    CHECK(dtrt_attention_needs(&bwd, 2, &need[1], err, sizeof err));
    CHECK(dtrt_attention_init(&fwd, 2) && dtrt_attention_init(&bwd, 2));
    CHECK(dtrt_attention_workspace(&fwd) == need[0] && dtrt_attention_workspace(&bwd) == need[1]);
    Buf ws = buf_new(need[0], odd), ws2 = buf_new(need[1], odd), in[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        in[i] = buf_new((size_t)x->nin[i] * sizeof(float), odd);
        memcpy(in[i].at, x->in[i], in[i].n);
    }
    const float *a = c->add ? x->add : NULL;
    const void *b = c->cond ? x->cond : NULL;
    dtrt_attention_forward(&ctx, &fwd, DROP_KEY, buf_f(&in[Q]), buf_f(&in[K]), buf_f(&in[V]), a, b,
                           buf_f(&out[Y]), buf_f(&out[STATS]), ws.at);
    dtrt_attention_grad(&ctx, &bwd, DROP_KEY, buf_f(&in[DY]), buf_f(&in[Q]), buf_f(&in[K]),
                        buf_f(&in[V]), a, b, buf_f(&out[STATS]), buf_f(&out[DQ]), buf_f(&out[DK]),
                        buf_f(&out[DV]), c->wants_mask ? buf_f(&out[DSCORES]) : NULL, ws2.at);
    dtrt_attention_free(&fwd);
    dtrt_attention_free(&bwd);
    for (int i = 0; i < INPUTS; i++) buf_free(&in[i]);
    buf_free(&ws);
    buf_free(&ws2);
}

static void check_case(const Case *c) {
    Host x = make_host(c);
    Buf out[2][OUTPUTS];
    x.seed = UINT64_C(0x123456789), x.step = 3;
    reference(c, &x);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < OUTPUTS; i++) out[k][i] = buf_new((size_t)x.nout[i] * 4, k);
        run(c, &x, out[k], k);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        if (i == DSCORES && !c->wants_mask) continue;
        if (i != STATS) CHECK_CLOSE(c->name, buf_f(&out[0][i]), x.want[i], x.nout[i], 3e-6);
        CHECK_SAME(c->name, out[0][i], out[1][i]);
    }
    for (int i = 0; i < 2 * OUTPUTS; i++) buf_free(&out[i / OUTPUTS][i % OUTPUTS]);
    free_host(&x);
}

int main(void) {
    omp_set_num_threads(2);
    for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++)
        check_case(&small_cases[i]);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) check_case(&large[i]);
    return test_end();
}
