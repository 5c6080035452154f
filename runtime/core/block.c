/* block.c - the device block: persistent + arena bytes, on the processor one anonymous mapping that
 * is touched as it is used, and the initial weights, which are read from the payload of the
 * executable straight to their places. The executable is never mapped for that, so the resident set
 * stays within the block plus a constant.
 *
 * Weights that are packed, or that lie where the host cannot see them, pass through a bounce
 * buffer. The arena serves as one when it is large enough, because no step runs while weights are
 * loaded or saved. */
#include "core.h"
#include "payload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t dtrt_type_bytes(DtrtType t) {
    static const uint8_t size[] = {4, 8, 8, 4, 1, 1};
    return size[t];
}

uint64_t dtrt_tensor_count(const DtrtTensor *t) {
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

uint64_t dtrt_tensor_plain_bytes(const DtrtTensor *t) {
    return dtrt_tensor_count(t) * dtrt_type_bytes(t->type);
}

static uint64_t bounce_half(const DtrtProgram *p) {
    uint64_t max = 0;
    for (uint32_t i = 0; i < p->ntensor; i++) {
        uint64_t n = dtrt_tensor_plain_bytes(&p->tensor[i]), bytes = p->tensor[i].bytes;
        if (p->tensor[i].conv < 0 && !p->device) continue;
        if (p->device && bytes > n) n = bytes;
        if (n > max) max = n;
    }
    return (max + DTRT_ALIGN - 1) / DTRT_ALIGN * DTRT_ALIGN;
}

/* A device's packed bytes need room of their own beside the plain ones. */
uint64_t dtrt_bounce_bytes(const Runtime *rt) {
    return bounce_half(rt->p) * (rt->p->device ? 2 : 1);
}

static void *packed_room(const Runtime *rt, void *bounce) {
    return (uint8_t *)bounce + bounce_half(rt->p);
}

const void *dtrt_tensor_plain(const Runtime *rt, const DtrtTensor *t, const void *at,
                              void *bounce) {
    const DtrtProgram *p = rt->p;
    if (p->device) {
        void *to = t->conv < 0 ? bounce : packed_room(rt, bounce);
        uint64_t n = t->conv < 0 ? dtrt_tensor_plain_bytes(t) : t->bytes;
        if (p->device->read(to, at, n)) return NULL;
        at = to;
    }
    if (t->conv < 0) return at;
    dtrt_fence(true);
    bool done = p->unpack(t->conv, at, bounce);
    dtrt_fence(false);
    if (done) return bounce;
    dtrt_error("the library could not convert weight %s to its plain layout",
               dtrt_name_str(t->name));
    return NULL;
}

uint64_t dtrt_resident_bytes(void) {
    unsigned long long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t dtrt_taken_bytes(const Runtime *rt) {
    return rt->p->device ? UINT64_MAX - rt->p->device->left() : dtrt_resident_bytes();
}

bool dtrt_read_at(int fd, void *buf, uint64_t n, uint64_t offset) {
    uint8_t *at = buf;
    while (n) {
        ssize_t got = pread(fd, at, n < 1u << 30 ? (size_t)n : 1u << 30, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        n -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

/* A program without initial values needs no payload; then payload_bytes stays 0. */
Status dtrt_payload_open(Runtime *rt) {
    DtrtFooter f;
    rt->exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    off_t end = rt->exe < 0 ? -1 : lseek(rt->exe, 0, SEEK_END);
    if (end < 0) {
        dtrt_error("the program's own file cannot be opened: %s", strerror(errno));
        return ST_MACHINE;
    }
    if (end < (off_t)sizeof f || !dtrt_read_at(rt->exe, &f, sizeof f, (uint64_t)end - sizeof f) ||
        memcmp(f.magic, DTRT_PAYLOAD_MAGIC, sizeof f.magic) || f.bytes > (uint64_t)end - sizeof f)
        return ST_OK;
    rt->payload = (uint64_t)end - sizeof f - f.bytes;
    rt->payload_bytes = f.bytes;
    return ST_OK;
}

Status dtrt_payload_read(Runtime *rt, uint64_t offset, void *buf, uint64_t bytes) {
    if (bytes > rt->payload_bytes || offset > rt->payload_bytes - bytes) {
        dtrt_error("the program's file has lost its weights: %" PRIu64 " bytes at offset %" PRIu64
                   " are needed, %" PRIu64 " are there",
                   bytes, offset, rt->payload_bytes);
        dtrt_hint(
            "the weights are at the end of the executable: was it stripped or cut? Compile it "
            "again");
        return ST_DATA;
    }
    if (dtrt_read_at(rt->exe, buf, bytes, rt->payload + offset)) return ST_OK;
    dtrt_error("the program's own file cannot be read: %s", strerror(errno));
    return ST_MACHINE;
}

void *dtrt_tensor_room(const Runtime *rt, const DtrtTensor *t, void *bounce) {
    return t->conv < 0 && !rt->p->device ? rt->block + t->offset : bounce;
}

Status dtrt_tensor_put(Runtime *rt, const DtrtTensor *t, void *room) {
    const DtrtDevice *device = rt->p->device;
    uint8_t *to = rt->block + t->offset;
    if (t->conv < 0) return device ? device->write(to, room, dtrt_tensor_plain_bytes(t)) : ST_OK;
    void *packed = device ? packed_room(rt, room) : to;
    dtrt_fence(true);
    bool done = rt->p->pack(t->conv, room, packed);
    dtrt_fence(false);
    if (done) return device ? device->write(to, packed, t->bytes) : ST_OK;
    dtrt_error("the library could not convert weight %s to its packed layout",
               dtrt_name_str(t->name));
    return ST_MACHINE;
}

/* Weights without initial values, and optimizer state, start as the zeros of the fresh block. */
Status dtrt_block_load(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    void *own, *bounce = dtrt_idle_bounce(rt, &own);
    if (!bounce) return ST_MACHINE;
    Status st = ST_OK;
    for (uint32_t i = 0; i < p->ntensor && !st; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if (!t->file_bytes) continue;
        void *room = dtrt_tensor_room(rt, t, bounce);
        if (dtrt_is_resized(rt, i)) {
            st = dtrt_constant_load(rt, i, room);
        } else if (t->file_bytes != dtrt_tensor_plain_bytes(t)) {
            dtrt_error("%s: %" PRIu64 " bytes of initial values, expected %" PRIu64,
                       dtrt_name_str(t->name), t->file_bytes, dtrt_tensor_plain_bytes(t));
            st = ST_DATA;
        } else {
            st = dtrt_payload_read(rt, t->file_offset, room, t->file_bytes);
        }
        if (!st) st = dtrt_tensor_put(rt, t, room);
    }
    free(own);
    return st;
}

bool dtrt_block_map(Runtime *rt) {
    rt->block_bytes = rt->p->persistent_bytes + rt->s->arena_bytes;
    if (rt->p->device) {
        rt->block = rt->p->device->alloc(rt->block_bytes ? rt->block_bytes : 1);
        return rt->block != NULL;
    }
    rt->block = mmap(NULL, (size_t)(rt->block_bytes ? rt->block_bytes : 1), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rt->block == MAP_FAILED) rt->block = NULL;
    return rt->block != NULL;
}

void dtrt_block_free(Runtime *rt) {
    if (rt->p->device)
        rt->p->device->release(rt->block);
    else if (rt->block)
        munmap(rt->block, (size_t)(rt->block_bytes ? rt->block_bytes : 1));
    if (rt->exe >= 0) close(rt->exe);
    rt->block = NULL;
    rt->exe = -1;
}
