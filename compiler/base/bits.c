/* bits.c - a fixed set of small numbers, one bit each, empty at the start. */
#include "base.h"

Bits bits_new(Arena *a, uint32_t n) {
    return (Bits){.w = ARENA_ARRAY(a, uint64_t, (uint64_t)n / 64 + 1), .n = n};
}
