/* test_compute.c - the stand-ins compute what the libraries are documented to: products and
 * convolutions against loops in double precision, through the API, with results that must not be
 * read filled with NaN. */
#include <cublas_v2.h>
#include <cuda.h>
#include <cudnn.h>

#include "test.h"

enum { DIMS = 5 };

static CUstream stream;

static CUdeviceptr device_floats(const float *values, int64_t n) {
    CUdeviceptr p = 0;
    CHECK(!cuMemAlloc(&p, (size_t)(n + 1) * sizeof(float)));
    if (values) CHECK(!cuMemcpyHtoD(p, values, (size_t)n * sizeof(float)));
    return p;
}

static float *random_floats(int64_t n) {
    float *p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) p[i] = (float)test_uniform(-1, 1);
    return p;
}

/* ---- products ---- */

typedef struct {
    int ta, tb, m, n, k, lda, ldb, ldc, batch;
    long long sa, sb, sc; /* strides of the batch */
    float alpha, beta;
} Product;

/* Column-major: element (i, j) is at i + j ld. */
static double product_at(const Product *p, const float *a, const float *b, const float *c, int q,
                         int i, int j) {
    double sum = 0;
    for (int k = 0; k < p->k; k++) {
        double x = a[q * p->sa + (p->ta ? k + i * p->lda : i + k * p->lda)];
        double y = b[q * p->sb + (p->tb ? j + k * p->ldb : k + j * p->ldb)];
        sum += x * y;
    }
    sum *= p->alpha;
    if (p->beta != 0) sum += (double)p->beta * c[q * p->sc + i + j * p->ldc];
    return sum;
}

static void check_product(cublasHandle_t handle, Product p) {
    int64_t na = p.sa * (p.batch - 1) + p.lda * (p.ta ? p.m : p.k);
    int64_t nb = p.sb * (p.batch - 1) + p.ldb * (p.tb ? p.k : p.n);
    int64_t nc = p.sc * (p.batch - 1) + p.ldc * p.n;
    float *a = random_floats(na), *b = random_floats(nb), *c = random_floats(nc);
    float *got = malloc((size_t)nc * sizeof *got);
    if (p.beta == 0)
        for (int64_t i = 0; i < nc; i++) c[i] = NAN;
    CUdeviceptr da = device_floats(a, na), db = device_floats(b, nb), dc = device_floats(c, nc);
    CHECK(!cublasSgemmStridedBatched(handle, p.ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                                     p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, p.m, p.n, p.k, &p.alpha,
                                     (float *)da, p.lda, p.sa, (float *)db, p.ldb, p.sb, &p.beta,
                                     (float *)dc, p.ldc, p.sc, p.batch));
    CHECK(!cuStreamSynchronize(stream));
    CHECK(!cuMemcpyDtoH(got, dc, (size_t)nc * sizeof *got));
    for (int q = 0; q < p.batch; q++)
        for (int i = 0; i < p.m; i++)
            for (int j = 0; j < p.n; j++)
                CHECK_NEAR(got[q * p.sc + i + j * p.ldc], product_at(&p, a, b, c, q, i, j), 1e-5);
    CHECK(!cuMemFree(da));
    CHECK(!cuMemFree(db));
    CHECK(!cuMemFree(dc));
    free(a);
    free(b);
    free(c);
    free(got);
}

static void check_products(void) {
    cublasHandle_t handle;
    CUdeviceptr workspace = device_floats(NULL, 4096);
    CHECK(!cublasCreate(&handle));
    CHECK(!cublasSetStream(handle, (cudaStream_t)stream));
    CHECK(!cublasSetWorkspace(handle, (void *)workspace, 4096 * sizeof(float)));
    for (int t = 0; t < 4; t++) {
        int ta = t & 1, tb = t >> 1;
        check_product(handle,
                      (Product){ta, tb, 7, 5, 9, ta ? 10 : 8, tb ? 6 : 11, 7, 1, 0, 0, 0, 1, 0});
        check_product(handle, (Product){ta, tb, 33, 1, 17, 40, 40, 33, 3, 1600, 0, 33, 0.5f, 2});
    }
    check_product(handle,
                  (Product){0, 0, 4, 3, 0, 4, 1, 4, 1, 0, 0, 0, 1, 0}); /* no terms: zeros */
    /* Heads of attention: the matrices of a batch lie between each other. */
    check_product(handle, (Product){1, 0, 6, 6, 4, 12, 12, 6, 3, 4, 4, 36, 1, 0});
    CHECK(!cublasDestroy(handle));
    CHECK(!cuMemFree(workspace));
}

/* ---- convolutions ---- */

typedef struct {
    int rank; /* with N and C */
    int64_t n, c, k, groups;
    int64_t in[3], ker[3], pre[3], post[3], step[3], dil[3];
    int channels_last;
    float alpha, beta;
} Conv;

typedef struct {
    int64_t dim[DIMS], stride[DIMS], count;
} Tensor;

static Tensor tensor_of(int rank, int channels_last, int64_t d0, int64_t d1, const int64_t *space) {
    Tensor t = {.dim = {d0, d1}, .count = d0 * d1};
    int64_t next = channels_last ? d1 : 1;
    for (int i = rank - 1; i >= 2; i--) {
        t.dim[i] = space[i - 2];
        t.stride[i] = next;
        next *= t.dim[i];
        t.count *= t.dim[i];
    }
    t.stride[1] = channels_last ? 1 : next;
    t.stride[0] = channels_last ? next : next * d1;
    return t;
}

static void out_space(const Conv *c, int64_t *out) {
    for (int i = 0; i < c->rank - 2; i++)
        out[i] =
            (c->in[i] + c->pre[i] + c->post[i] - ((c->ker[i] - 1) * c->dil[i] + 1)) / c->step[i] +
            1;
}

typedef enum { FORWARD, DATA, FILTER } Kind;

/* Adds every product of an operation to the element of the result that it belongs to. */
static void reference(const Conv *c, Kind kind, const Tensor t[3], const float *v[3],
                      double *result) {
    int64_t pos[7], size[7] = {c->n, c->groups, c->k / c->groups, c->c / c->groups};
    int nd = c->rank - 2;
    int64_t outs = 1, kers = 1;
    for (int i = 0; i < nd; i++) {
        outs *= t[2].dim[i + 2];
        kers *= c->ker[i];
    }
    size[4] = outs;
    size[5] = kers;
    int64_t all = size[0] * size[1] * size[2] * size[3] * outs * kers;
    for (int64_t flat = 0; flat < all; flat++) {
        int64_t rest = flat;
        for (int i = 5; i >= 0; i--) {
            pos[i] = rest % size[i];
            rest /= size[i];
        }
        int64_t ki = pos[1] * size[2] + pos[2], ci = pos[1] * size[3] + pos[3];
        int64_t x = pos[0] * t[0].stride[0] + ci * t[0].stride[1];
        int64_t w = ki * t[1].stride[0] + pos[3] * t[1].stride[1];
        int64_t y = pos[0] * t[2].stride[0] + ki * t[2].stride[1];
        int inside = 1;
        int64_t o = pos[4], q = pos[5];
        for (int i = nd - 1; i >= 0; i--) {
            int64_t oi = o % t[2].dim[i + 2], qi = q % c->ker[i];
            int64_t xi = oi * c->step[i] - c->pre[i] + qi * c->dil[i];
            o /= t[2].dim[i + 2];
            q /= c->ker[i];
            inside &= xi >= 0 && xi < c->in[i];
            x += xi * t[0].stride[i + 2];
            w += qi * t[1].stride[i + 2];
            y += oi * t[2].stride[i + 2];
        }
        if (!inside) continue;
        if (kind == FORWARD) result[y] += (double)v[0][x] * v[1][w];
        if (kind == DATA) result[x] += (double)v[2][y] * v[1][w];
        if (kind == FILTER) result[w] += (double)v[0][x] * v[2][y];
    }
}

static cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t kind) {
    cudnnBackendDescriptor_t d = NULL;
    CHECK(!cudnnBackendCreateDescriptor(kind, &d));
    return d;
}

static void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *v) {
    CHECK(!cudnnBackendSetAttribute(d, name, type, n, v));
}

static cudnnBackendDescriptor_t make_tensor(const Tensor *t, int rank, int64_t uid) {
    cudnnBackendDescriptor_t d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t align = 16;
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, t->dim);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, t->stride);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    CHECK(!cudnnBackendFinalize(d));
    return d;
}

static cudnnBackendDescriptor_t make_window(const Conv *c) {
    cudnnBackendDescriptor_t d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t nd = c->rank - 2;
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &nd);
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, nd, c->pre);
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, nd, c->post);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, nd, c->step);
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, nd, c->dil);
    CHECK(!cudnnBackendFinalize(d));
    return d;
}

static const struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} names[3] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* The plan of the fallback list: exact, without a workspace. */
static cudnnBackendDescriptor_t make_plan(const Conv *c, Kind kind, const Tensor t[3],
                                          cudnnHandle_t handle) {
    cudnnBackendDescriptor_t x = make_tensor(&t[0], c->rank, 'x'),
                             w = make_tensor(&t[1], c->rank, 'w');
    cudnnBackendDescriptor_t y = make_tensor(&t[2], c->rank, 'y'), window = make_window(c);
    cudnnBackendDescriptor_t op = make(names[kind].kind);
    cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_FALLBACK;
    int64_t n = 0, bytes = -1;
    set(op, names[kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    set(op, names[kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    set(op, names[kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    set(op, names[kind].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window);
    set(op, names[kind].alpha, CUDNN_TYPE_FLOAT, 1, &c->alpha);
    set(op, names[kind].beta, CUDNN_TYPE_FLOAT, 1, &c->beta);
    CHECK(!cudnnBackendFinalize(op));
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    CHECK(!cudnnBackendFinalize(graph));
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    CHECK(!cudnnBackendFinalize(heuristics));
    CHECK(!cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &config));
    CHECK_EQ(n, 1);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    CHECK(!cudnnBackendFinalize(plan));
    CHECK(!cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                    CUDNN_TYPE_INT64, 1, &n, &bytes));
    CHECK_EQ(bytes, 0);
    cudnnBackendDescriptor_t all[] = {x, w, y, window, op, graph, heuristics, config};
    for (int i = 0; i < 8; i++)
        CHECK(!cudnnBackendDestroyDescriptor(all[i])); /* the plan is enough */
    return plan;
}

static void check_conv(const Conv *c, Kind kind, cudnnHandle_t handle) {
    int64_t out[3] = {1, 1, 1}, uid[3] = {'x', 'w', 'y'};
    out_space(c, out);
    Tensor t[3] = {tensor_of(c->rank, c->channels_last, c->n, c->c, c->in),
                   tensor_of(c->rank, c->channels_last, c->k, c->c / c->groups, c->ker),
                   tensor_of(c->rank, c->channels_last, c->n, c->k, out)};
    int r = kind == FORWARD ? 2 : kind == DATA ? 0 : 1;
    float *v[3];
    CUdeviceptr d[3];
    for (int i = 0; i < 3; i++) {
        v[i] = random_floats(t[i].count);
        for (int64_t q = 0; i == r && c->beta == 0 && q < t[i].count; q++) v[i][q] = NAN;
        d[i] = device_floats(v[i], t[i].count);
    }
    double *want = calloc((size_t)t[r].count, sizeof *want);
    float *got = malloc((size_t)t[r].count * sizeof *got);
    reference(c, kind, t, (const float *[]){v[0], v[1], v[2]}, want);
    cudnnBackendDescriptor_t plan = make_plan(c, kind, t, handle);
    cudnnBackendDescriptor_t pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    void *at[3] = {(void *)d[0], (void *)d[1], (void *)d[2]};
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
    CHECK(!cudnnBackendFinalize(pack));
    CHECK(!cudnnBackendExecute(handle, plan, pack));
    CHECK(!cuStreamSynchronize(stream));
    CHECK(!cuMemcpyDtoH(got, d[r], (size_t)t[r].count * sizeof *got));
    for (int64_t i = 0; i < t[r].count; i++)
        CHECK_NEAR(got[i], c->alpha * want[i] + (c->beta != 0 ? (double)c->beta * v[r][i] : 0),
                   3e-5);
    CHECK(!cudnnBackendDestroyDescriptor(pack));
    CHECK(!cudnnBackendDestroyDescriptor(plan));
    for (int i = 0; i < 3; i++) {
        CHECK(!cuMemFree(d[i]));
        free(v[i]);
    }
    free(want);
    free(got);
}

static void check_convs(void) {
    static const Conv cases[] = {
        {4, 2, 3, 5, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, 1, 0},
        {4, 2, 3, 5, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 0, 1, 0},
        {4, 2, 4, 6, 2, {9, 8}, {3, 2}, {0, 1}, {2, 0}, {2, 3}, {1, 1}, 1, 0.5f, 0},
        {4, 1, 4, 4, 4, {8, 8}, {3, 3}, {2, 2}, {2, 2}, {1, 1}, {2, 2}, 1, 1, 0},
        {4, 3, 6, 4, 1, {5, 5}, {1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 1}, 1, 1, 2},
        {3, 2, 3, 4, 1, {11}, {4}, {2}, {1}, {2}, {1}, 1, 1, 0},
        {5, 1, 2, 3, 1, {4, 5, 6}, {2, 3, 2}, {1, 0, 1}, {0, 1, 1}, {1, 2, 1}, {1, 1, 2}, 1, 1, 0},
        /* More columns than fit at a time: 9216 bytes each, 2304 positions. */
        {4, 1, 256, 2, 1, {50, 50}, {3, 3}, {0, 0}, {0, 0}, {1, 1}, {1, 1}, 1, 0.1f, 0},
    };
    cudnnHandle_t handle;
    CHECK(!cudnnCreate(&handle));
    CHECK(!cudnnSetStream(handle, (cudaStream_t)stream));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = FORWARD; kind <= FILTER; kind++) check_conv(&cases[i], (Kind)kind, handle);
    CHECK(!cudnnDestroy(handle));
}

int main(void) {
    CUcontext context;
    CHECK(!cuInit(0));
    CHECK(!cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(!cuCtxSetCurrent(context));
    CHECK(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_products();
    check_convs();
    CHECK(!cuStreamDestroy(stream));
    CHECK(!cuDevicePrimaryCtxRelease(0));
    return test_end();
}
