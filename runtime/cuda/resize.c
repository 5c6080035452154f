/* resize.c - interpolation along any axes and its gradient. Weights are computed by the kernels, so
 * there is nothing to prepare. */
#include "walk.h"

/* As the numbers of DtrtResize.coord. */
enum { TF_HALF_PIXEL = 4, CROP = 5 };

bool dtrt_resize_init(DtrtResize *r, int threads) {
    (void)threads;
    r->impl = NULL;
    return true;
}

void dtrt_resize_free(DtrtResize *r) {
    r->impl = NULL;
}

/* Is axis k the same in both? */
static bool is_copied(const DtrtResize *r, int k) {
    return r->in[k] == r->out[k] && r->scale[k] == 1 && r->coord != CROP &&
           r->coord != TF_HALF_PIXEL;
}

static CuResize resize_of(const DtrtResize *r) {
    CuResize q = {.rest = cu_walk(),
                  .mode = r->mode,
                  .coord = r->coord,
                  .rounding = r->rounding,
                  .exclude = r->exclude,
                  .antialias = r->antialias,
                  .cubic = r->cubic,
                  .value = r->value};
    int64_t stride = 1, below = 1;
    for (int k = 0; k < r->nd; k++) q.naxis += !is_copied(r, k);
    for (int k = r->nd, a = q.naxis; k-- > 0;) {
        int64_t n = r->grad ? r->in[k] : r->out[k];
        cu_walk_push(&q.rest, n, below, is_copied(r, k) ? stride : 0);
        if (!is_copied(r, k)) {
            q.axis[--a] = (CuResizeAxis){.in = r->in[k],
                                         .out = r->out[k],
                                         .n = n,
                                         .below = below,
                                         .stride = stride,
                                         .scale = r->scale[k],
                                         .first = r->first[k],
                                         .last = r->last[k]};
        }
        below *= n;
        stride *= r->grad ? r->out[k] : r->in[k];
    }
    cu_walk_close(&q.rest);
    return q;
}

void dtrt_resize(const DtrtResize *r, const float *x, float *y) {
    CuResize q = resize_of(r);
    int64_t blocks = cu_blocks(q.rest.total, 256);
    if (q.naxis == 0) {
        dtrt_copy(x, y, (uint64_t)q.rest.total * sizeof *y);
        return;
    }
    if (r->grad) {
        CU_LAUNCH(resize_grad, blocks, 256, &q, &x, &y);
    } else {
        CU_LAUNCH(resize, blocks, 256, &q, &x, &y);
    }
}
