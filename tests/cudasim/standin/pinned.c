/* pinned.c - pinned memory under queued work.
 *
 * Here host and device meet without a lock, and there are two ways to get it wrong. A host that
 * reads before a copy from the device is done: while such a copy is queued its target holds 0xFF,
 * so that the host sees NaN and not the value of the step before. A host that writes before a copy
 * to the device is done: the copy remembers a sum of its source, which must be the same when it
 * runs.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef struct {
    uint64_t begin, end;
    bool write;
} Pending;

static Pending *list;
static uint32_t count, capacity;

/* FNV-1a (Fowler, Noll, Vo) over words, to be quick. */
static uint64_t sum_of(uint64_t at, uint64_t bytes) {
    const unsigned char *p = (const unsigned char *)(uintptr_t)at;
    uint64_t sum = 14695981039346656037u;
    for (uint64_t i = 0; i < bytes;) {
        uint64_t word = 0, n = bytes - i < 8 ? bytes - i : 8;
        memcpy(&word, p + i, n);
        sum = (sum ^ word) * 1099511628211u;
        i += n;
    }
    return sum;
}

static bool is_pinned(uint64_t at, uint64_t bytes) {
    const SimAlloc *a = sim_alloc_at(at, bytes);
    return a && a->host && !a->freed;
}

static bool overlaps(uint64_t begin, uint64_t end, bool writes_only) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i].begin < end && begin < list[i].end && (list[i].write || !writes_only))
            return true;
    return false;
}

void sim_pin(SimPin *pin, uint64_t at, uint64_t bytes, bool write) {
    pin->summed = false;
    if (!bytes || !is_pinned(at, bytes)) return;
    if (write && !overlaps(at, at + bytes, false)) memset((void *)(uintptr_t)at, 0xFF, bytes);
    if (!write && !overlaps(at, at + bytes, true)) {
        pin->summed = true;
        pin->sum = sum_of(at, bytes);
    }
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        list = realloc(list, capacity * sizeof *list);
        if (!list) abort();
    }
    list[count++] = (Pending){at, at + bytes, write};
    pin->pending++;
}

void sim_unpin_before(const SimPin *pin, const char *name, uint64_t at, uint64_t bytes) {
    if (pin->summed && is_pinned(at, bytes) && sum_of(at, bytes) != pin->sum)
        sim_finding("%s: the host changed its pinned source, %s, before the copy ran", name,
                    sim_place(at));
}

void sim_unpin(SimPin *pin, uint64_t at, uint64_t bytes, bool write) {
    if (!pin->pending) return;
    pin->pending--;
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].begin != at || list[i].end != at + bytes || list[i].write != write) continue;
        list[i] = list[--count];
        return;
    }
}
