/* group_norm.c - GroupNorm and its input gradient: a block a group. */
#include "walk.h"

static CuGroups groups_of(int64_t n, int64_t c, int64_t s, int64_t groups, int channels_last) {
    CuGroups q = {.n = n,
                  .c = c,
                  .s = s,
                  .groups = groups,
                  .per = c / groups,
                  .channels_last = channels_last};
    int64_t by = channels_last ? q.per : s;
    q.small = q.per * s <= INT32_MAX;
    q.by = cu_divider((uint64_t)(q.small && by ? by : 1));
    return q;
}

void dtrt_groupnorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t n, int64_t c, int64_t s, int64_t group,
                    int channels_last, float eps) {
    CuGroups q = groups_of(n, c, s, group, channels_last);
    CU_LAUNCH(groupnorm, cu_blocks(n * group, 1), 256, &q, &x, &scale, &bias, &y, &mean, &invstd,
              &eps);
}

void dtrt_groupnorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t n, int64_t c, int64_t s,
                           int64_t group, int channels_last) {
    CuGroups q = groups_of(n, c, s, group, channels_last);
    CU_LAUNCH(groupnorm_grad, cu_blocks(n * group, 1), 256, &q, &dy, &x, &scale, &mean, &invstd,
              &dx);
}
