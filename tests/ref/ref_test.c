/* ref_test.c - the reference's operators and losses on cases small enough to compute by hand (in
 * the comments). */
#include "ref.h"
#include "test.h"

#include "dtrt_math.h"

#define MAX_ATTR 6

/* One node with up to five inputs, as the tables of a program. */
typedef struct {
    DtrtRefNode node;
    DtrtRefValue value[8];
    int32_t in[5], out[3];
    const char *attr_name[MAX_ATTR];
    const int64_t *attr_i[MAX_ATTR];
    const double *attr_f[MAX_ATTR];
    uint32_t attr_n[MAX_ATTR];
    double *base[8], *now[8];
    DtrtProgram p;
    Ref r;
} Case;

static Case c; /* the one at work */

static void begin(const char *op) {
    memset(&c, 0, sizeof c);
    c.node = (DtrtRefNode){.op = op, .name = op, .in = c.in, .out = c.out, .key = 7};
    c.node.attr_name = c.attr_name;
    c.node.attr_i = c.attr_i;
    c.node.attr_f = c.attr_f;
    c.node.attr_n = c.attr_n;
}

static void shape(DtrtRefValue *v, int rank, const int64_t *dim) {
    v->rank = rank;
    v->tensor = -1;
    for (int i = 0; i < rank; i++) v->dim[i] = dim[i];
}
#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                 \
        __VA_ARGS__                                                                                \
    }
#define VALUES(...)                                                                                \
    (double[]) {                                                                                   \
        __VA_ARGS__                                                                                \
    }

static void input(double *data, int rank, const int64_t *dim) {
    uint32_t k = c.node.nin++;
    c.in[k] = (int32_t)k;
    c.base[k] = data;
    shape(&c.value[k], rank, dim);
}

static void ints(const char *name, const int64_t *v, uint32_t n) {
    uint32_t k = c.node.nattr++;
    c.attr_name[k] = name;
    c.attr_i[k] = v;
    c.attr_n[k] = n;
}
#define INTS(name, ...)                                                                            \
    ints(name, (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void real(const char *name, const double *v) {
    uint32_t k = c.node.nattr++;
    c.attr_name[k] = name;
    c.attr_f[k] = v;
    c.attr_n[k] = 1;
}
#define REAL(name, v) real(name, (const double[]){v})

/* Runs the node; its output is value 5. */
static const double *run(DtrtType type, int rank, const int64_t *dim) {
    c.node.nout = 1;
    c.out[0] = 5;
    shape(&c.value[5], rank, dim);
    c.value[5].type = type;
    c.p = (DtrtProgram){
        .nrefnode = 1, .nrefvalue = 8, .refnode = &c.node, .refvalue = c.value, .ref_output = 5};
    c.r = (Ref){.p = &c.p, .base = c.base, .now = c.now, .seed = 3, .step = 4};
    CHECK_EQ(dtrt_ref_forward(&c.r), ST_OK);
    return c.base[5];
}

/* Doubles of a few operations: 1e-12 is a thousand roundings. */
static void expect_n(const double *got, const double *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        test_checks++;
        if (fabs(got[i] - want[i]) <= 1e-12) continue;
        test_failed++;
        fprintf(stderr, "%s: element %zu is %.15g, expected %.15g\n", what, i, got[i], want[i]);
    }
    free(c.base[5]);
}
#define EXPECT(got, ...)                                                                           \
    expect_n(got, (const double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), \
             c.node.op)

static void test_conv(void) {
    begin("Conv"); /* padded 0 1 2 3 4, taps 1 and 10 */
    input(VALUES(1, 2, 3, 4), DIMS(1, 1, 4));
    input(VALUES(1, 10), DIMS(1, 1, 2));
    INTS("pads", 1, 0);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 4)), 10, 21, 32, 43);
    begin("Conv"); /* two groups, taps two apart: 1+3+10, 4-6+20 */
    input(VALUES(1, 2, 3, 4, 5, 6), DIMS(1, 2, 1, 3));
    input(VALUES(1, 1, 1, -1), DIMS(2, 1, 1, 2));
    input(VALUES(10, 20), DIMS(2));
    INTS("dilations", 1, 2);
    INTS("group", 2);
    EXPECT(run(DTRT_F32, DIMS(1, 2, 1, 1)), 14, 18);
    begin("Conv"); /* stride 2, kernel 2x2 of ones: sums of the four quarters, negative ones cut by
                      relu */
    input(VALUES(1, 2, 3, 4, 5, 6, 7, 8, -9, 1, 1, 1, 1, 1, 1, 1), DIMS(1, 1, 4, 4));
    input(VALUES(1, 1, 1, 1), DIMS(1, 1, 2, 2));
    INTS("strides", 2, 2);
    INTS("relu", 1);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 2, 2)), 14, 22, 0, 4);
}

static void test_conv_transposed(void) {
    /* stride 2: 1 and 2 spread taps 1 10 100: 1 10 100+2 20 200, the first cut off by the padding,
     * one place more at the end, which no window of a cell reaches: (6 + 1 - 3) / 2 + 1 = 3 */
    begin("ConvGradX");
    input(VALUES(1, 2, 0), DIMS(1, 1, 3));
    input(VALUES(1, 10, 100), DIMS(1, 1, 3));
    INTS("strides", 2);
    INTS("pads", 1, 0);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 6)), 10, 102, 20, 200, 0, 0);
    /* two groups, weights [2 cells, 2 channels each, 1, 2]: 3 and 5 times the taps */
    begin("ConvGradX");
    input(VALUES(3, 5), DIMS(1, 2, 1, 1));
    input(VALUES(1, 2, 3, 4, 5, 6, 7, 8), DIMS(2, 2, 1, 2));
    INTS("group", 2);
    EXPECT(run(DTRT_F32, DIMS(1, 4, 1, 2)), 3, 6, 9, 12, 25, 30, 35, 40);
}

/* padded . 1 3 2 5 . in windows of two */
static void pool(const char *op, int include) {
    static double x[] = {1, 3, 2, 5};
    static const int64_t two[] = {2}, pads[] = {1, 1}, all[] = {1};
    begin(op);
    input(x, DIMS(1, 1, 4));
    ints("kernel", two, 1);
    ints("strides", two, 1);
    ints("pads", pads, 2);
    if (include) ints("count_include_pad", all, 1);
}

static void test_pool(void) {
    pool("MaxPool", 0);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 3)), 1, 3, 5);
    pool("AveragePool", 0);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 3)), 1, 2.5, 5);
    pool("AveragePool", 1);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 3)), 0.5, 2.5, 2.5);
    begin("AveragePool"); /* ceil_mode: the last window holds one cell */
    input(VALUES(1, 3, 2, 5, 4), DIMS(1, 1, 5));
    INTS("kernel", 2);
    INTS("strides", 2);
    INTS("ceil_mode", 1);
    INTS("count_include_pad", 1);
    EXPECT(run(DTRT_F32, DIMS(1, 1, 3)), 2, 3.5, 4);
}

static void test_matmul(void) {
    begin("MatMul"); /* [1 2] [3 4]' = 11 and [1 2] [5 6]' = 17, doubled, plus bias */
    input(VALUES(1, 2), DIMS(1, 2));
    input(VALUES(3, 4, 5, 6), DIMS(2, 2));
    input(VALUES(100, 200), DIMS(2));
    INTS("trans_b", 1);
    REAL("alpha", 2);
    EXPECT(run(DTRT_F32, DIMS(1, 2)), 122, 234);
    begin("MatMul"); /* batch: two columns [1 2]', [3 4]' (transposed A) times one row [5 6] */
    input(VALUES(1, 2, 3, 4), DIMS(2, 1, 2));
    input(VALUES(5, 6), DIMS(1, 1, 2));
    INTS("trans_a", 1);
    EXPECT(run(DTRT_F32, DIMS(2, 2, 2)), 5, 6, 10, 12, 15, 18, 20, 24);
}

static void test_places(void) {
    begin("GatherElements"); /* down the columns: rows 1 0, then 0 and the last */
    input(VALUES(1, 2, 3, 4), DIMS(2, 2));
    input(VALUES(1, 0, 0, -1), DIMS(2, 2));
    EXPECT(run(DTRT_F32, DIMS(2, 2)), 3, 2, 1, 4);
    begin("ScatterElements"); /* two updates of one place add up */
    input(VALUES(1, 1), DIMS(1, 2));
    input(VALUES(5, 6), DIMS(1, 2));
    input(VALUES(1, 2, 3), DIMS(1, 3));
    INTS("axis", 1);
    INTS("reduction", 1);
    EXPECT(run(DTRT_F32, DIMS(1, 3)), 1, 13, 3);
    begin("GatherND"); /* in batch 0 row 1, in batch 1 row 0 */
    input(VALUES(1, 2, 3, 4, 5, 6, 7, 8), DIMS(2, 2, 2));
    input(VALUES(1, 0), DIMS(2, 1));
    INTS("batch_dims", 1);
    EXPECT(run(DTRT_F32, DIMS(2, 2)), 3, 4, 5, 6);
    begin("ScatterND"); /* the later of two updates stays */
    input(VALUES(-1, 1), DIMS(2, 1));
    input(VALUES(5, 6), DIMS(2));
    EXPECT(run(DTRT_F32, DIMS(2)), 0, 6);
    begin("TopK"); /* of equal ones the first */
    input(VALUES(3, 7, 7, 1), DIMS(4));
    INTS("k", 3);
    EXPECT(run(DTRT_F32, DIMS(3)), 7, 7, 3);
    begin("Resize"); /* places -0.25 0.25 0.75 1.25 of 0 10 */
    input(VALUES(0, 10), DIMS(2));
    INTS("mode", 1);
    REAL("scales", 2);
    EXPECT(run(DTRT_F32, DIMS(4)), 0, 2.5, 7.5, 10);
}

static void test_fold(void) {
    static const char *const op[] = {"ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"};
    /* rows 3 4 and -1 0: log(e^3 + e^4) = 4 + log(1 + 1/e), and 4 less */
    static const double want[][2] = {
        {4, 0}, {3, -1}, {12, 0}, {4.313261687518222834, 0.313261687518222834}};
    for (int i = 0; i < 4; i++) {
        begin(op[i]);
        input(VALUES(3, 4, -1, 0), DIMS(2, 2));
        INTS("axes", 1);
        EXPECT(run(DTRT_F32, DIMS(2, 1)), want[i][0], want[i][1]);
    }
    begin("CumSum"); /* down the columns, without the element itself, from the end */
    input(VALUES(3, 4, -1, 0, 5, 6), DIMS(3, 2));
    INTS("exclusive", 1);
    INTS("reverse", 1);
    EXPECT(run(DTRT_F32, DIMS(3, 2)), 4, 6, 5, 6, 0, 0);
    begin("ArgMax");
    input(VALUES(3, 4, 4, 1, 0, 1), DIMS(2, 3));
    INTS("axis", 1);
    EXPECT(run(DTRT_I64, DIMS(2, 1)), 1, 0);
    begin("ArgMin");
    input(VALUES(3, 4, 4, 1, 0, 0), DIMS(2, 3));
    INTS("axis", 1);
    INTS("last", 1);
    EXPECT(run(DTRT_I64, DIMS(2, 1)), 0, 2);
}

static void test_norm(void) {
    begin("ReduceSum"); /* rows 1+2, 3+4, halved */
    input(VALUES(1, 2, 3, 4), DIMS(2, 2));
    INTS("axes", 1);
    REAL("scale", 0.5);
    EXPECT(run(DTRT_F32, DIMS(2, 1)), 1.5, 3.5);
    begin("ReduceSum"); /* columns, axis dropped */
    input(VALUES(1, 2, 3, 4), DIMS(2, 2));
    INTS("axes", 0);
    INTS("keepdims", 0);
    EXPECT(run(DTRT_F32, DIMS(2)), 4, 6);
    for (int training = 0; training < 2; training++) {
        begin("BatchNorm"); /* batch: mean 2, variance 1: (x-2)*2+1; running: mean 1, variance 4:
                               (x-1)/2*2+1 */
        input(VALUES(1, 3), DIMS(2, 1));
        input(VALUES(2), DIMS(1));
        input(VALUES(1), DIMS(1));
        input(VALUES(1), DIMS(1));
        input(VALUES(4), DIMS(1));
        REAL("eps", 0);
        ints("training", (const int64_t[]){training}, 1);
        if (training)
            EXPECT(run(DTRT_F32, DIMS(2, 1)), -1, 3);
        else
            EXPECT(run(DTRT_F32, DIMS(2, 1)), 1, 3);
    }
    begin("LayerNorm"); /* mean 2, deviation 1 */
    input(VALUES(1, 3), DIMS(1, 2));
    input(VALUES(10, 10), DIMS(2));
    REAL("eps", 0);
    EXPECT(run(DTRT_F32, DIMS(1, 2)), -10, 10);
    begin("RmsNorm"); /* mean of squares 4 */
    input(VALUES(2, -2), DIMS(1, 2));
    input(VALUES(10, 3), DIMS(2));
    REAL("eps", 0);
    EXPECT(run(DTRT_F32, DIMS(1, 2)), 10, -3);
    begin("GroupNorm"); /* channels 0, 1: mean 2, deviation 1; 2, 3: mean 10, deviation 5 */
    input(VALUES(1, 3, 1, 3, 5, 5, 15, 15), DIMS(1, 4, 2));
    input(VALUES(1, 1, 2, 1), DIMS(4));
    input(VALUES(0, 7, 0, 0), DIMS(4));
    INTS("group", 2);
    REAL("eps", 0);
    EXPECT(run(DTRT_F32, DIMS(1, 4, 2)), -1, 1, 6, 8, -2, -2, 1, 1);
    begin("Softmax"); /* 1 : 3 down the columns */
    input(VALUES(0, 1000, log(3), 1000), DIMS(2, 2));
    INTS("axis", 0);
    EXPECT(run(DTRT_F32, DIMS(2, 2)), 0.25, 0.5, 0.75, 0.5);
    begin("LogSoftmax");
    input(VALUES(0, log(3)), DIMS(1, 2));
    EXPECT(run(DTRT_F32, DIMS(1, 2)), log(0.25), log(0.75));
}

static void test_movement(void) {
    begin("Transpose");
    input(VALUES(1, 2, 3, 4, 5, 6), DIMS(1, 2, 3));
    INTS("perm", 2, 0, 1);
    EXPECT(run(DTRT_F32, DIMS(3, 1, 2)), 1, 4, 2, 5, 3, 6);
    begin("Slice"); /* every second from the end */
    input(VALUES(1, 2, 3, 4, 5), DIMS(5));
    INTS("starts", 4);
    INTS("steps", -2);
    EXPECT(run(DTRT_F32, DIMS(3)), 5, 3, 1);
    begin("Pad");
    input(VALUES(1, 2, 3), DIMS(3));
    INTS("pads", 2, -1);
    REAL("value", 9);
    EXPECT(run(DTRT_F32, DIMS(4)), 9, 9, 1, 2);
    begin("Pad");
    input(VALUES(1, 2, 3), DIMS(3));
    INTS("pads", 2, 1);
    INTS("mode", 1);
    EXPECT(run(DTRT_F32, DIMS(6)), 3, 2, 1, 2, 3, 2);
    begin("Pad");
    input(VALUES(1, 2, 3), DIMS(3));
    INTS("pads", 1, 2);
    INTS("mode", 2);
    EXPECT(run(DTRT_F32, DIMS(6)), 1, 1, 2, 3, 3, 3);
    begin("Concat");
    input(VALUES(1, 2), DIMS(2, 1));
    input(VALUES(3, 4, 5, 6), DIMS(2, 2));
    INTS("axis", 1);
    EXPECT(run(DTRT_F32, DIMS(2, 3)), 1, 3, 4, 2, 5, 6);
    begin("Gather"); /* columns 2 (as -1) and 0 */
    input(VALUES(1, 2, 3, 4, 5, 6), DIMS(2, 3));
    input(VALUES(-1, 0), DIMS(2));
    INTS("axis", 1);
    EXPECT(run(DTRT_F32, DIMS(2, 2)), 3, 1, 6, 4);
    begin("Fill");
    REAL("value", 2.5);
    EXPECT(run(DTRT_F32, DIMS(2)), 2.5, 2.5);
}

static void test_elementwise(void) {
    begin("Add"); /* a column and a row */
    input(VALUES(10, 20), DIMS(2, 1));
    input(VALUES(1, 2, 3), DIMS(3));
    EXPECT(run(DTRT_F32, DIMS(2, 3)), 11, 12, 13, 21, 22, 23);
    begin("Where");
    input(VALUES(1, 0), DIMS(2));
    input(VALUES(5, 6), DIMS(2));
    input(VALUES(7), DIMS(1));
    EXPECT(run(DTRT_F32, DIMS(2)), 5, 7);
    begin("Clip"); /* no upper bound */
    input(VALUES(-3, 1, 1e9), DIMS(3));
    REAL("min", 0);
    EXPECT(run(DTRT_F32, DIMS(3)), 0, 1, 1e9);
    begin("Cast");
    input(VALUES(-1.7, 2.9), DIMS(2));
    EXPECT(run(DTRT_I64, DIMS(2)), -1, 2);
    begin("Elu"); /* 0.5 * (1/e - 1) */
    input(VALUES(-1, 2), DIMS(2));
    REAL("alpha", 0.5);
    EXPECT(run(DTRT_F32, DIMS(2)), 0.5 * (exp(-1) - 1), 2);
    begin("HardSwish"); /* x*(x+3)/6 between -3 and 3 */
    input(VALUES(-4, 1, 5), DIMS(3));
    EXPECT(run(DTRT_F32, DIMS(3)), 0, 4.0 / 6, 5);
}

/* [1,2,1,2]: channel c, pixel p has index 2c+p; kept channels-last, it is 2p+c. */
static void test_dropout(void) {
    for (int last = 0; last < 2; last++) {
        double want[4];
        begin("Dropout");
        input(VALUES(1, 2, 3, 4), DIMS(1, 2, 1, 2));
        REAL("ratio", 0.5);
        ints("channels_last", (const int64_t[]){last}, 1);
        const double *y = run(DTRT_F32, DIMS(1, 2, 1, 2));
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t index = last ? 2 * (i % 2) + i / 2 : i;
            want[i] = (double)dtrt_dropout((float)(i + 1), 0.5f, 3, 4, 7, index);
        }
        expect_n(y, want, 4, "Dropout");
    }
}

static double loss(DtrtProgram p, double *x, double *target, int rank, const int64_t *dim) {
    DtrtRefValue v = {0};
    shape(&v, rank, dim);
    p.refvalue = &v;
    Ref r = {.p = &p, .now = &x, .target = target};
    return dtrt_ref_loss(&r);
}

static void test_loss(void) {
    double x[4] = {0, log(3), 5, 5},
           t[2] = {1, -1}; /* probabilities 1/4 and 3/4; the second row is ignored */
    DtrtProgram ce = {
        .loss_kind = "cross-entropy", .class_axis = 1, .has_ignore = true, .ignore_index = -1};
    CHECK_NEAR(loss(ce, x, t, DIMS(2, 2)), -log(0.75), 1e-12);
    ce.label_smoothing = 0.5; /* target distribution 1/4, 3/4 */
    CHECK_NEAR(loss(ce, x, t, DIMS(2, 2)), -0.25 * log(0.25) - 0.75 * log(0.75), 1e-12);
    double lp[4] = {-1, -2, -3, -4},
           first[2] = {0, 1}; /* class axis 0: columns (-1,-3) and (-2,-4) */
    DtrtProgram nll = {.loss_kind = "nll", .class_axis = 0};
    CHECK_NEAR(loss(nll, lp, first, DIMS(2, 2)), (1 + 4) / 2.0, 1e-12);
    double y[2] = {1, 4}, z[2] = {3, 3}; /* differences -2 and 1 */
    CHECK_NEAR(loss((DtrtProgram){.loss_kind = "mse"}, y, z, DIMS(2)), 2.5, 1e-12);
    CHECK_NEAR(loss((DtrtProgram){.loss_kind = "l1"}, y, z, DIMS(2)), 1.5, 1e-12);
    double logit[2] = {0, log(3)}, hit[2] = {1, 1}; /* sigmoid 1/2 and 3/4 */
    CHECK_NEAR(loss((DtrtProgram){.loss_kind = "bce-logits"}, logit, hit, DIMS(2)),
               (log(2) - log(0.75)) / 2, 1e-12);
    CHECK_NEAR(loss((DtrtProgram){.loss_kind = "output"}, y, NULL, 0, NULL), 1, 1e-12);
}

int main(void) {
    test_conv();
    test_conv_transposed();
    test_pool();
    test_matmul();
    test_places();
    test_fold();
    test_norm();
    test_movement();
    test_elementwise();
    test_dropout();
    test_loss();
    return test_end();
}
