/* checkgrad.c - gradients against finite differences of the reference. */
#include "core.h"

Status dtrt_check_grad(Runtime *rt) {
    (void)rt;
    dtrt_error("--check-grad is not available in this version");
    return ST_USAGE;
}
