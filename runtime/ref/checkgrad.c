/* checkgrad.c - --check-grad: the gradients that the program computes for its first batch against
 * central differences of the reference's loss in double precision. For each trained parameter w
 * with gradient g, along two unit directions v (the gradient itself, and a random one):
 *
 *     (L(w + h*v) - L(w - h*v)) / (2h)   against   g . v
 *
 * Step: h = 1e-6 * (1 + |w|). The truncation error is then about 1e-12 of the third derivative and
 * rounding about 1e-16*L/h = 1e-10.
 *
 * Kinks of ReLU, max-pooling and the like. One that lies within h makes the two one-sided
 * differences unequal, by twice the error of the central one; then a smaller step is taken, down to
 * h/64, and the one that bends least counts. Whether it does is decided without a look at g. One
 * that lies so near that f32 arithmetic stands on its other side is no error of the program either:
 * a gradient that disagrees is compared with the slopes in the same direction at points where all
 * weights differ by a few units of f32 rounding, and is counted as "kink", neither right nor wrong,
 * when it lies among them. A smooth loss has one slope there, so that a wrong formula stays wrong.
 *
 * Tolerance: f32 arithmetic leaves relative errors of 1e-6 to 1e-4 in a gradient, a wrong formula
 * errors of 1e-2 and more; 1e-3 divides the two. Errors are relative to the larger of |g . v|,
 * |g|/sqrt(n) (what a random direction sees of a gradient of n elements) and 1e-3/sqrt(n) of the
 * gradient of all parameters, because a gradient that is zero in exact arithmetic, such as that of
 * a bias before a batch norm, is rounding noise. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtrt_math.h"

#define TOLERANCE 1e-3
#define FLOOR 1e-3
#define STEP 1e-6
#define SHRINKS 2 /* each by 8 */
#define SHAKES 8
#define SHAKE 0x1p-21 /* of a weight, 8 units of rounding: what a sum of f32 products may lose */
#define RANDOM_KEY 0x63686b00u
#define SHAKE_KEY 0x73686b00u

static Status keep_gradient(Runtime *rt, int tensor, const float *g) {
    float **kept = rt->grad_user;
    uint64_t bytes = dtrt_tensor_plain_bytes(&rt->p->tensor[tensor]);
    kept[tensor] = malloc(bytes + 1);
    if (!kept[tensor]) return dtrt_no_memory(bytes);
    memcpy(kept[tensor], g, bytes);
    return ST_OK;
}

static double norm(const double *x, uint64_t n) {
    double s = 0;
    for (uint64_t i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}

static double whole_norm(const DtrtProgram *p, float *const *g) {
    double s = 0;
    for (uint32_t t = 0; t < p->ntensor; t++)
        for (uint64_t i = 0; g[t] && i < dtrt_tensor_count(&p->tensor[t]); i++)
            s += (double)g[t][i] * (double)g[t][i];
    return sqrt(s);
}

typedef struct {
    const float *g;
    uint64_t n;
    double size, whole; /* norms of g and of all gradients */
    double *v, *w;      /* direction; perturbed weights */
} Probe;

typedef struct {
    double slope;  /* central difference */
    double lo, hi; /* the one-sided ones, in order */
} Slope;

static Status loss_at(Ref *r, int value, Probe *q, double h, double *loss) {
    const double *w = r->base[value];
    for (uint64_t i = 0; i < q->n; i++) q->w[i] = w[i] + h * q->v[i];
    return dtrt_ref_loss_with(r, value, q->w, loss);
}

/* The slope of the loss along q->v at the weights of r, where its value is `here`. */
static Status difference(Ref *r, int value, Probe *q, double here, double scale, Slope *best) {
    double h = STEP * (1 + norm(r->base[value], q->n)), up, down;
    for (int shrunk = 0; shrunk <= SHRINKS; shrunk++, h /= 8) {
        Status st = loss_at(r, value, q, h, &up);
        if (!st) st = loss_at(r, value, q, -h, &down);
        if (st) return st;
        double forward = (up - here) / h, backward = (here - down) / h;
        Slope s = {(up - down) / (2 * h), fmin(forward, backward), fmax(forward, backward)};
        if (!shrunk || s.hi - s.lo < best->hi - best->lo) *best = s;
        if (!(best->hi - best->lo > TOLERANCE * scale)) break;
    }
    return ST_OK;
}

/* Scales v to length 1; false when it has none. */
static bool make_unit(double *v, uint64_t n) {
    double size = norm(v, n);
    for (uint64_t i = 0; i < n && size > 0; i++) v[i] /= size;
    return size > 0;
}

/* Does `along` lie among the slopes that the loss has within the rounding of the weights? */
static Status near_kink(const Ref *r, int value, Probe *q, double along, double scale, Slope at,
                        bool *kink) {
    double lo = at.lo, hi = at.hi, margin = TOLERANCE * scale;
    *kink = along >= lo - margin && along <= hi + margin;
    for (uint32_t k = 0; k < SHAKES && !*kink; k++) {
        Ref shaken;
        Slope s = {0};
        Status st = dtrt_ref_shake(&shaken, r, SHAKE_KEY + k, SHAKE);
        if (!st) st = difference(&shaken, value, q, dtrt_ref_loss(&shaken), scale, &s);
        dtrt_ref_free(&shaken);
        if (st) return st;
        lo = fmin(lo, s.slope);
        hi = fmax(hi, s.slope);
        *kink = along >= lo - margin && along <= hi + margin;
    }
    return ST_OK;
}

typedef struct {
    double error; /* the worst one, kinks left out */
    bool kink;
} Finding;

/* One direction: prints program, reference and relative error. */
static Status probe(Ref *r, int value, Probe *q, double here, Finding *f) {
    Slope s;
    double along = 0, share = 1 / sqrt((double)q->n);
    for (uint64_t i = 0; i < q->n; i++) along += (double)q->g[i] * q->v[i];
    double scale = fmax(fabs(along), fmax(q->size, FLOOR * q->whole) * share);
    Status st = difference(r, value, q, here, scale, &s);
    if (st) return st;
    double e = scale > 0 ? fabs(s.slope - along) / scale : fabs(s.slope);
    printf(" %13.6g %13.6g %8.1e", along, s.slope, e);
    bool kink = false;
    if (!(e <= TOLERANCE)) st = near_kink(r, value, q, along, scale, s, &kink);
    f->kink |= kink;
    if (!kink && !(e <= f->error)) f->error = e; /* a NaN is an error too */
    return st;
}

static Status probe_parameter(Ref *r, int value, Probe *q, double here, Finding *f) {
    for (uint64_t i = 0; i < q->n; i++) q->v[i] = (double)q->g[i];
    q->size = norm(q->v, q->n);
    Status st = ST_OK;
    if (make_unit(q->v, q->n))
        st = probe(r, value, q, here, f);
    else
        printf(" %13s %13s %8s", "0", "-", "-");
    for (uint64_t i = 0; i < q->n; i++)
        q->v[i] = dtrt_random(r->seed, 0, RANDOM_KEY + (uint32_t)value, i) * 0x1p-31 - 1;
    make_unit(q->v, q->n);
    return st ? st : probe(r, value, q, here, f);
}

static int value_of(const DtrtProgram *p, uint32_t tensor) {
    for (uint32_t v = 0; v < p->nrefvalue; v++)
        if (p->refvalue[v].tensor == (int)tensor) return (int)v;
    return -1;
}

typedef struct {
    uint32_t checked, failed, kinks;
    double worst, here; /* here: the loss */
} Tally;

static Status check_parameter(Ref *r, uint32_t tensor, float *const *g, double whole,
                              Tally *tally) {
    const DtrtTensor *t = &r->p->tensor[tensor];
    int value = value_of(r->p, tensor);
    uint64_t n = dtrt_tensor_count(t);
    Finding f = {0};
    if (!g[tensor] || value < 0) {
        printf("%-32s the program computes no gradient\n", dtrt_name_str(t->name));
        return ST_OK;
    }
    Probe q = {.g = g[tensor], .n = n, .whole = whole};
    q.v = malloc((n + 1) * sizeof *q.v);
    q.w = malloc((n + 1) * sizeof *q.w);
    printf("%-32s %10llu", dtrt_name_str(t->name), (unsigned long long)n);
    Status st =
        q.v && q.w ? probe_parameter(r, value, &q, tally->here, &f) : dtrt_no_memory(n * 16);
    free(q.v);
    free(q.w);
    if (st) return st;
    bool ok = f.error <= TOLERANCE;
    printf(" %s\n", !ok ? "WRONG" : f.kink ? "kink" : "ok");
    fflush(stdout);
    tally->checked++;
    tally->failed += !ok;
    tally->kinks += ok && f.kink;
    if (!(f.error <= tally->worst)) tally->worst = f.error;
    return ST_OK;
}

static Status check_all(Runtime *rt, Ref *r, float *const *g) {
    const DtrtProgram *p = rt->p;
    Status st = dtrt_ref_forward(r);
    if (st) return st;
    double loss = dtrt_ref_loss(r), whole = whole_norm(p, g);
    Tally tally = {.here = loss};
    printf("loss: program %.9g, reference %.9g\n", (double)rt->loss, loss);
    printf("%-32s %10s %13s %13s %8s %13s %13s %8s\n", "parameter", "elements", "along g",
           "reference", "error", "random", "reference", "error");
    for (uint32_t t = 0; t < p->ntensor && !st; t++)
        if (p->tensor[t].role == DTRT_PARAM) st = check_parameter(r, t, g, whole, &tally);
    if (st) return st;
    bool same_loss = fabs((double)rt->loss - loss) <= TOLERANCE * fmax(fabs(loss), 1e-3);
    if (!same_loss) printf("the losses differ\n");
    uint32_t agree = tally.checked - tally.failed - tally.kinks;
    printf("%u of %u parameters agree within %g (worst %.1e)\n", agree, tally.checked, TOLERANCE,
           tally.worst);
    if (tally.kinks)
        printf("%u cannot be told: rounding decides there on which side of a kink the loss is\n",
               tally.kinks);
    return tally.failed || !same_loss || !agree ? ST_DATA : ST_OK;
}

Status dtrt_check_grad(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    static Ref r; /* static: still reachable when a kernel ends the run */
    float **g = calloc(p->ntensor + 1, sizeof *g);
    rt->bounce = malloc(dtrt_bounce_bytes(rt) + 1);
    r = (Ref){.p = p};
    if (!g || !rt->bounce) {
        free(g);
        return dtrt_no_memory(dtrt_bounce_bytes(rt));
    }
    dtrt_note("the reference works in double precision; its memory is outside the budget");
    rt->on_grad = keep_gradient;
    rt->grad_user = g;
    Status st = dtrt_loader_stage(rt, 0);
    if (!st) st = dtrt_ref_open(&r, rt);
    if (!st) st = dtrt_step_run(rt);
    rt->on_grad = NULL;
    rt->grad_user = NULL;
    if (!st) st = check_all(rt, &r, g);
    dtrt_ref_free(&r);
    for (uint32_t t = 0; t < p->ntensor; t++) free(g[t]);
    free(g);
    return st;
}
