/* rate.c - the learning rate of a step. --lr is a number or a list by step; --warmup raises it from
 * 0 over the first steps, --schedule lowers it over the remaining ones, down to 0 at the end:
 *     linear   1 - t,  cosine  (1 + cos(pi t)) / 2,  t from 0 right after the warm-up to 1 at the
 * end (Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5, without restarts). Computed from the
 * number of the step alone, so that a resumed run goes on where it stopped. */
#include "core.h"

#include <math.h>

float dtrt_rate(const Options *o, uint64_t step, uint64_t steps) {
    const double pi = 3.14159265358979323846;
    double lr = (double)o->lr[step < o->nlr ? step : o->nlr - 1], warmup = (double)o->warmup;
    if (step < (uint64_t)o->warmup) return (float)(lr * ((double)step + 1) / warmup);
    double t = ((double)step - warmup) / ((double)steps - warmup);
    switch (o->schedule) {
    case RATE_LINEAR: lr *= 1 - t; break;
    case RATE_COSINE: lr *= (1 + cos(pi * t)) / 2; break;
    case RATE_CONSTANT: break;
    }
    return (float)lr;
}
