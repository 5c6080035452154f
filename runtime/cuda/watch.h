/* watch.h - what a CUDA program may tell a checker about its own memory and work.
 *
 * The stand-in libcuda exports these functions; NVIDIA's does not. A program looks them up by name
 * in the libcuda that it opened and calls those that it found: all or none of them are there. They
 * cost nothing where they are absent, and they change no result where they are present.
 *
 * The problem that they solve: a program that takes one block from the driver and divides it itself
 * hides its memory errors from every tool that knows blocks only. Here it says which parts of the
 * block mean something at which point of which stream, and which of them the next work may touch.
 *
 * Order: every call except dtrt_watch_arena takes its place in the queue of its stream like a copy
 * or a launch would, and inside a capture it becomes a node of the graph and is replayed. It is
 * called before the work that it speaks of, from the thread that enqueues that work.
 *
 * Rules, each one a finding of the checker when broken:
 *  1. Inside an arena only bytes of live ranges are read or written: by kernels (each access in
 *     checked mode, else the ranges of their step), copies, memsets and libraries.
 *  2. A range that becomes live overlaps no live range. A range that dies is a live one, with the
 *     same start and length.
 *  3. Work enqueued between two dtrt_watch_step of one stream touches no arena byte outside the
 *     ranges of the former, and writes none outside those with DTRT_WATCH_WRITE.
 *  4. Ranges of a step are live when the work runs.
 *  5. Two steps that are not ordered by streams and events do not touch the same bytes, unless both
 *     only read. Liveness counts as writing: a dropped wait before memory is used again is found
 *     whatever the timing was.
 */
#ifndef DTRT_WATCH_H
#define DTRT_WATCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    DTRT_WATCH_READ = 1,
    DTRT_WATCH_WRITE = 2, /* contents before are not read unless READ is said too */
    DTRT_WATCH_KEEP = 4   /* live, dead: the bytes keep their values (in-place results, views) */
};

typedef struct {
    uint64_t at; /* device address */
    uint64_t bytes;
    uint32_t use;      /* READ, WRITE or both */
    uint32_t reserved; /* 0 */
} DtrtWatchRange;

/* [at, at + bytes) lies in one device allocation and is divided by the program. At once, not in
 * stream order; nothing in it is live, the bytes stay. Ends when the allocation is freed. */
typedef void DtrtWatchArena(uint64_t at, uint64_t bytes);

/* The range holds a storage from here on. Its contents are undefined (filled with 0xFF, which is
 * NaN) unless flags has KEEP. `name` goes into findings and stays valid until the stream, or the
 * graph that recorded the call, is destroyed. */
typedef void DtrtWatchLive(void *stream, uint64_t at, uint64_t bytes, uint32_t flags,
                           const char *name);

/* The range is free from here on; it is filled with 0xFF unless flags has KEEP. */
typedef void DtrtWatchDead(void *stream, uint64_t at, uint64_t bytes, uint32_t flags);

/* What is enqueued on `stream` from here to the next call of this function for it touches only
 * these ranges of arenas. Scratch and library workspaces are ranges too, with READ and WRITE. The
 * array is copied. n == 0 with ranges == NULL: no restriction from here on. */
typedef void DtrtWatchStep(void *stream, const char *name, const DtrtWatchRange *ranges,
                           uint32_t n);

/* Names to look up. */
#define DTRT_WATCH_ARENA "dtrt_watch_arena"
#define DTRT_WATCH_LIVE "dtrt_watch_live"
#define DTRT_WATCH_DEAD "dtrt_watch_dead"
#define DTRT_WATCH_STEP "dtrt_watch_step"

#endif
