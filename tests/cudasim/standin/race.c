/* race.c - unordered accesses of streams, found by vector clocks.
 *
 * Each piece of work carries, per stream, the number of the last work that happened before it:
 * through its own stream, events, and the host. Work that ran is remembered with its ranges; later
 * work that touches the same bytes, in another stream and not after it, races unless both only
 * read. The answer depends on the program's synchronisation only, not on the order in which things
 * happened to run. (L. Lamport, Time, clocks, and the ordering of events, CACM 21(7), 1978; C.
 * Fidge, 1988. As a race detector: Flanagan and Freund, FastTrack, PLDI 2009, with ranges in place
 * of variables.)
 *
 * Deviation: the list holds the last MAX_PAST accesses; a race with an older one is missed.
 */
#include <string.h>

#include "sim.h"

enum { MAX_PAST = 8192 };

typedef struct {
    uint64_t begin, end;
    uint32_t stream, number;
    bool write;
    const char *name;
} Access;

static Access past[MAX_PAST];
static uint32_t count; /* ever; the last MAX_PAST are there */

void sim_clock_join(SimClock *clock, const SimClock *other) {
    for (int i = 0; i < SIM_STREAMS; i++)
        if (other->at[i] > clock->at[i]) clock->at[i] = other->at[i];
}

static bool races(const Access *old, const Access *now, const SimClock *clock) {
    return old->stream != now->stream && old->begin < now->end && now->begin < old->end &&
           (old->write || now->write) && clock->at[old->stream] < old->number;
}

/* Room for one more: the newest access of the same stream to the same bytes stands for an older one
 * that it covers, which keeps the list short in programs that repeat a step. */
static Access *place(const Access *now) {
    uint32_t n = count < MAX_PAST ? count : MAX_PAST;
    for (uint32_t i = 0; i < n; i++) {
        Access *old = &past[i];
        if (old->stream == now->stream && old->begin >= now->begin && old->end <= now->end &&
            (now->write || !old->write))
            return old;
    }
    return &past[count++ % MAX_PAST];
}

void sim_race(uint32_t stream, const SimClock *clock, const char *name, uint64_t at, uint64_t bytes,
              bool write) {
    if (!bytes) return;
    Access now = {at, at + bytes, stream, clock->at[stream], write, name};
    uint32_t n = count < MAX_PAST ? count : MAX_PAST;
    for (uint32_t i = 0; i < n; i++) {
        if (!races(&past[i], &now, clock)) continue;
        sim_finding("race: %s (stream %u) %s %s, which %s (stream %u) %s; nothing orders them",
                    name, stream, write ? "writes" : "reads",
                    sim_place(at > past[i].begin ? at : past[i].begin), past[i].name,
                    past[i].stream, past[i].write ? "writes" : "reads");
        break;
    }
    *place(&now) = now;
}

void sim_race_forget(uint64_t at, uint64_t bytes) {
    uint32_t n = count < MAX_PAST ? count : MAX_PAST;
    for (uint32_t i = 0; i < n; i++)
        if (past[i].begin - at < bytes) past[i].end = past[i].begin;
}
