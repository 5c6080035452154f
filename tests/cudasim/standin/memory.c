/* memory.c - allocations, pinned memory, device and pinned.
 *
 * An allocation is a mapping between two guard pages, its end as near to the second one as 256-byte
 * alignment allows, filled with 0xFF (NaN). Freed addresses stay unusable and are not used again,
 * so that every later use of them is seen. The device has DTRC_SIM_MEMORY bytes, in units of 512.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

enum { PAGE = 4096, ALIGN = 256, UNIT = 512, POISON = 0xFF, WORD = 4 };

static SimAlloc *table; /* ascending addresses */
static uint32_t count, capacity, next_id;
static uint64_t used, peak;

static uint64_t up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

SimAlloc *sim_alloc_at(uint64_t at, uint64_t bytes) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (table[mid].at <= at)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low) return NULL;
    SimAlloc *a = &table[low - 1];
    return at - a->at < a->bytes && bytes <= a->bytes - (at - a->at) ? a : NULL;
}

const char *sim_place(uint64_t at) {
    static char texts[4][96];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    for (uint32_t i = 0; i < count; i++) {
        const SimAlloc *a = &table[i];
        if (at < a->map || at >= a->map + a->map_bytes) continue;
        snprintf(text, sizeof texts[0], "%sbuffer %u (%llu bytes) %+lld", a->freed ? "freed " : "",
                 a->id, (unsigned long long)a->bytes, (long long)(at - a->at));
        return text;
    }
    snprintf(text, sizeof texts[0], "address 0x%llx", (unsigned long long)at);
    return text;
}

uint64_t sim_memory_peak(void) {
    return peak;
}

void sim_overhead(int64_t bytes) {
    used += (uint64_t)bytes;
    if (used > peak) peak = used;
}

void sim_memory_report(void) {
    for (uint32_t i = 0; i < count; i++)
        if (!table[i].freed && !table[i].lent)
            sim_finding("leak: %s buffer %u of %llu bytes", table[i].host ? "pinned" : "device",
                        table[i].id, (unsigned long long)table[i].bytes);
}

static bool grow(void) {
    if (count < capacity) return true;
    uint32_t more = capacity ? 2 * capacity : 64;
    SimAlloc *p = realloc(table, more * sizeof *p);
    if (!p) return false;
    table = p;
    capacity = more;
    return true;
}

static void insert(SimAlloc a) {
    uint32_t i = count++;
    for (; i > 0 && table[i - 1].at > a.at; i--) table[i] = table[i - 1];
    table[i] = a;
}

void sim_lend(uint64_t at, uint64_t bytes) {
    if (!grow()) abort();
    insert((SimAlloc){
        .at = at, .bytes = bytes, .map = at, .map_bytes = bytes, .id = next_id++, .lent = true});
}

void sim_take_back(uint64_t at) {
    for (uint32_t i = 0; i < count; i++) {
        if (table[i].at != at || !table[i].lent) continue;
        count--;
        memmove(&table[i], &table[i + 1], (count - i) * sizeof *table);
        return;
    }
}

void sim_mark(uint64_t at, uint64_t bytes, bool written) {
    const SimAlloc *a = sim_alloc_at(at, bytes);
    if (!a || !a->written || !bytes) return;
    uint64_t first = (at - a->at) / WORD, last = (at - a->at + bytes - 1) / WORD;
    for (uint64_t i = first; i <= last; i++) {
        if (i % 64 == 0 && i + 63 <= last) {
            a->written[i / 64] = written ? UINT64_MAX : 0;
            i += 63;
        } else if (written) {
            a->written[i / 64] |= (uint64_t)1 << i % 64;
        } else {
            a->written[i / 64] &= ~((uint64_t)1 << i % 64);
        }
    }
}

bool sim_is_written(uint64_t at, uint64_t bytes) {
    const SimAlloc *a = sim_alloc_at(at, bytes);
    if (!a || !a->written) return true;
    uint64_t first = (at - a->at) / WORD, last = (at - a->at + bytes - 1) / WORD;
    for (uint64_t i = first; i <= last; i++)
        if (!(a->written[i / 64] >> i % 64 & 1)) return false;
    return true;
}

static CUresult allocate(uint64_t *at, size_t bytes, bool host) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    uint64_t taken = host ? 0 : up(bytes, UNIT);
    if (taken > sim_options()->memory - used || used > sim_options()->memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t inner = up(bytes, PAGE);
    char *map =
        mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || !grow()) return CUDA_ERROR_OUT_OF_MEMORY;
    mprotect(map + PAGE, inner, PROT_READ | PROT_WRITE);
    SimAlloc a = {.map = (uint64_t)(uintptr_t)map,
                  .map_bytes = inner + 2 * PAGE,
                  .bytes = bytes,
                  .id = next_id++,
                  .host = host};
    a.at = a.map + PAGE + (inner - up(bytes, ALIGN));
    memset(map + PAGE, POISON, inner);
    if (sim_options()->check && !host) {
        a.written = calloc(bytes / WORD / 64 + 2, sizeof *a.written);
        if (!a.written) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    insert(a);
    sim_overhead((int64_t)taken);
    *at = a.at;
    return CUDA_SUCCESS;
}

/* The bytes between the end of an allocation and its guard page still hold what they were filled
 * with, else something wrote past the end. */
static void check_tail(const SimAlloc *a) {
    const unsigned char *p = (const unsigned char *)(uintptr_t)(a->at + a->bytes);
    const unsigned char *end = (const unsigned char *)(uintptr_t)(a->map + a->map_bytes - PAGE);
    for (; p < end; p++) {
        if (*p == POISON) continue;
        sim_finding("write past the end: %s", sim_place((uint64_t)(uintptr_t)p));
        return;
    }
}

static CUresult release(const char *function, uint64_t at, bool host) {
    sim_drain(); /* the driver waits for work that may use the memory */
    SimAlloc *a = sim_alloc_at(at, 1);
    if (!a || a->at != at || a->freed || a->lent || a->host != host) {
        sim_finding("%s: %s is not the start of a living %s buffer", function, sim_place(at),
                    host ? "pinned" : "device");
        return CUDA_ERROR_INVALID_VALUE;
    }
    check_tail(a);
    a->freed = true;
    free(a->written);
    a->written = NULL;
    if (!host) used -= up(a->bytes, UNIT);
    sim_arena_forget(a->at, a->bytes);
    sim_race_forget(a->at, a->bytes);
    void *map = (void *)(uintptr_t)a->map;
    madvise(map, a->map_bytes, MADV_DONTNEED);
    mprotect(map, a->map_bytes, PROT_NONE);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    SIM_ENTER(CUDA_ERROR_UNKNOWN);
    *total = sim_options()->memory;
    *free_bytes = *total > used ? *total - used : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    uint64_t at = 0;
    CUresult r = allocate(&at, bytes, false);
    if (r == CUDA_SUCCESS) *p = at;
    return r;
}

CUresult cuMemFree(CUdeviceptr p) {
    SIM_ENTER_SURE;
    if (!p) return CUDA_SUCCESS;
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return release("cuMemFree", p, false);
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                            CU_MEMHOSTALLOC_WRITECOMBINED))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    uint64_t at = 0;
    CUresult r = allocate(&at, bytes, true);
    if (r == CUDA_SUCCESS) *p = (void *)(uintptr_t)at;
    return r;
}

CUresult cuMemFreeHost(void *p) {
    SIM_ENTER_SURE;
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return release("cuMemFreeHost", (uint64_t)(uintptr_t)p, true);
}
