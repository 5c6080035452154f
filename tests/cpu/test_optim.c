/* Five steps of every optimizer against the formulas of PyTorch in double, and padding that stays
 * zero. */
#include "cpu_test.h"

enum { N = 1003, STEPS = 5 };

static double grad_at(int step, int i) {
    return (double)(float)(sin(0.37 * i + step) + 0.1 * step);
}

/* kind 0 sgd without state, 1 sgd with velocity, 2 adam, 3 adamw; one step on doubles */
static void reference(const DtrtCtx *c, int kind, double *w, double *m, double *v) {
    double lr = (double)c->lr, decay = (double)c->weight_decay, mu = (double)c->momentum;
    double b1 = (double)c->beta1, b2 = (double)c->beta2, t = (double)c->step + 1.0;
    for (int i = 0; i < N; i++) {
        double g = grad_at((int)c->step, i);
        if (kind < 3) g += decay * w[i];
        if (kind == 0) {
            w[i] -= lr * g;
        } else if (kind == 1) {
            m[i] = c->step ? mu * m[i] + (1.0 - (double)c->dampening) * g : g;
            w[i] -= lr * (c->nesterov ? g + mu * m[i] : m[i]);
        } else {
            if (kind == 3) w[i] *= 1.0 - lr * decay;
            m[i] = b1 * m[i] + (1.0 - b1) * g;
            v[i] = b2 * v[i] + (1.0 - b2) * g * g;
            w[i] -= lr * (m[i] / (1.0 - pow(b1, t))) /
                    (sqrt(v[i]) / sqrt(1.0 - pow(b2, t)) + (double)c->eps);
        }
    }
}

static void check(const char *name, DtrtCtx c, int kind) {
    Buf w = buf_random(N, 0), g = buf_new(N * 4, 0), m = buf_new(N * 4, 0), v = buf_new(N * 4, 1);
    double rw[N], rm[N] = {0}, rv[N] = {0};
    memset(m.at, 0, m.n);
    memset(v.at, 0, v.n);
    for (int i = 0; i < N; i++) rw[i] = (double)buf_f(&w)[i];
    Buf w2 = buf_copy(&w, 1), m2 = buf_copy(&m, 1), v2 = buf_copy(&v, 0);
    for (c.step = 0; c.step < STEPS; c.step++) {
        for (int i = 0; i < N; i++) buf_f(&g)[i] = (float)grad_at((int)c.step, i);
        reference(&c, kind, rw, rm, rv);
        for (int run = 0; run < 2; run++) {
            float *pw = buf_f(run ? &w2 : &w), *pm = buf_f(run ? &m2 : &m),
                  *pv = buf_f(run ? &v2 : &v);
            if (kind < 2) dtrt_sgd(&c, pw, buf_f(&g), kind ? pm : NULL, N);
            if (kind >= 2) dtrt_adam(&c, pw, buf_f(&g), pm, pv, N, kind == 3);
        }
    }
    CHECK_CLOSE(name, buf_f(&w), rw, N, 1e-6);
    if (kind) CHECK_CLOSE(name, buf_f(&m), rm, N, 1e-6);
    if (kind > 1) CHECK_CLOSE(name, buf_f(&v), rv, N, 1e-6);
    CHECK_SAME(name, w, w2);
    CHECK_SAME(name, m, m2);
    CHECK_SAME(name, v, v2);
    Buf *all[] = {&w, &g, &m, &v, &w2, &m2, &v2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

/* Zero weight, gradient and state (padding of packed weights) stay zero even with eps = 0. */
static void check_padding(void) {
    DtrtCtx c = {.lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .weight_decay = 0.01f};
    float w[3] = {0}, g[3] = {0}, m[3] = {0}, v[3] = {0};
    dtrt_adam(&c, w, g, m, v, 3, 0);
    dtrt_adam(&c, w, g, m, v, 3, 1);
    dtrt_sgd(&c, w, g, m, 3);
    for (int i = 0; i < 3; i++) CHECK(w[i] == 0.0f && m[i] == 0.0f && v[i] == 0.0f);
}

int main(void) {
    DtrtCtx c = {.lr = 0.05f, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    omp_set_num_threads(2);
    check("sgd", c, 0);
    check("momentum", c, 1);
    check("adam", c, 2);
    c.weight_decay = 0.02f;
    check("sgd, decay", c, 0);
    check("momentum, decay", c, 1);
    check("adam, decay", c, 2);
    check("adamw", c, 3);
    c.nesterov = true;
    check("nesterov", c, 1);
    c.nesterov = false;
    c.dampening = 0.25f;
    check("dampening", c, 1);
    check_padding();
    return test_end();
}
