/* report.c - options from the environment, findings, planned failures, and the end of the process.
 *
 * - DTRC_SIM_SEED=n: 0: work runs at once; odd: whenever work is forced, a pseudo-random stream
 * goes next; even: only the work that is needed runs. Default 1.
 * - DTRC_SIM_CHECK=1: kernels are checked access by access.
 * - DTRC_SIM_MEMORY=n: bytes of the device; default 4 GiB.
 * - DTRC_SIM_CC=90: compute capability; modules for a higher one are refused.
 * - DTRC_SIM_CACHE=folder: for translated modules.
 * - DTRC_SIM_FAIL=k: the k-th call of the API fails (from 1); NAME:k the k-th of that function.
 * - DTRC_SIM_DROP=k: the k-th cuStreamWaitEvent does nothing: a fault of the program, made here.
 * - DTRC_SIM_REPORT=file: findings and the last lines "calls N", "peak BYTES", "findings N" go
 * there.
 * - DTRC_SIM_TRACE=file: one line for each call.
 *
 * A process with findings ends with status SIM_EXIT_STATUS whatever it says itself. Leaks are
 * judged when it would end with status 0 and no failure was planned: a program that gives up need
 * not tidy.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

enum { MAX_PRINTED = 50, MAX_KINDS = 32 };

static SimEnv env;
static bool env_read;
static FILE *report, *trace;
static char fail_name[64];
static uint64_t fail_at, drop_at, waits, calls, named_calls, random_state;
static bool failed;
static uint64_t findings;
static int exit_status;
static struct {
    const char *name;
    int count;
} kinds[MAX_KINDS];
static pthread_mutex_t mutex;

static FILE *open_file(const char *name) {
    const char *path = getenv(name);
    return path && *path ? fopen(path, "a") : NULL;
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void read_fail(void) {
    const char *text = getenv("DTRC_SIM_FAIL");
    if (!text || !*text) return;
    const char *colon = strchr(text, ':');
    if (colon && (size_t)(colon - text) < sizeof fail_name)
        memcpy(fail_name, text, (size_t)(colon - text));
    fail_at = strtoull(colon ? colon + 1 : text, NULL, 10);
}

/* A kernel that runs unchecked meets the guard pages, or memory that was freed. */
static void crash(int signal, siginfo_t *info, void *unused) {
    (void)unused;
    fprintf(stderr, "cudasim: signal %d at %s\n", signal,
            sim_place((uint64_t)(uintptr_t)info->si_addr));
    if (report) {
        fprintf(report, "signal %d at %s\n", signal, sim_place((uint64_t)(uintptr_t)info->si_addr));
        fflush(report);
    }
    _exit(SIM_EXIT_STATUS);
}

static void watch_crashes(void) {
    static char stack[1 << 16]; /* threads of kernels have small ones */
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static void remember_status(int status, void *unused) {
    (void)unused;
    exit_status = status;
}

__attribute__((constructor)) static void start(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attr);
    on_exit(remember_status, NULL);
}

const SimEnv *sim_options(void) {
    if (env_read) return &env;
    env_read = true;
    env.seed = number("DTRC_SIM_SEED", 1);
    env.check = number("DTRC_SIM_CHECK", 0) != 0;
    env.memory = number("DTRC_SIM_MEMORY", (uint64_t)4 << 30);
    env.capability = (int)number("DTRC_SIM_CC", 90);
    env.cache = getenv("DTRC_SIM_CACHE");
    if (!env.cache || !*env.cache) env.cache = SIM_CACHE_FOLDER;
    report = open_file("DTRC_SIM_REPORT");
    trace = open_file("DTRC_SIM_TRACE");
    drop_at = number("DTRC_SIM_DROP", 0);
    read_fail();
    watch_crashes();
    random_state = env.seed * 0x9e3779b97f4a7c15u + 1;
    return &env;
}

void sim_lock(void) {
    pthread_mutex_lock(&mutex);
    sim_options();
}

void sim_unlock(int *unused) {
    (void)unused;
    pthread_mutex_unlock(&mutex);
}

void sim_finding(const char *format, ...) {
    sim_options();
    if (++findings > MAX_PRINTED) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "cudasim: %s\n", text);
    if (report) fprintf(report, "%s\n", text), fflush(report);
    if (trace) fprintf(trace, "! %s\n", text);
}

bool sim_call(const char *function) {
    calls++;
    if (trace) fprintf(trace, "%s\n", function);
    if (!fail_at) return false;
    if (fail_name[0]) {
        if (strcmp(fail_name, function) != 0 || ++named_calls != fail_at) return false;
    } else if (calls != fail_at) {
        return false;
    }
    failed = true;
    if (report) fprintf(report, "planned failure of %s\n", function), fflush(report);
    return true;
}

bool sim_drops_wait(void) {
    return ++waits == drop_at;
}

void sim_object(const char *kind, int change) {
    for (int i = 0; i < MAX_KINDS; i++) {
        if (kinds[i].name && strcmp(kinds[i].name, kind) != 0) continue;
        kinds[i].name = kind;
        kinds[i].count += change;
        return;
    }
}

void sim_keep(void *object) {
    typedef struct Kept {
        struct Kept *next;
        void *object;
    } Kept;
    static Kept *all; /* reachable, for leak checkers */
    Kept *kept = malloc(sizeof *kept);
    if (!kept) abort();
    *kept = (Kept){all, object};
    all = kept;
}

uint32_t sim_random(uint32_t n) {
    random_state ^= random_state << 13; /* xorshift64: Marsaglia, J. Stat. Soft. 8(14), 2003 */
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % n);
}

static void report_leaks(void) {
    for (int i = 0; i < MAX_KINDS; i++)
        if (kinds[i].count > 0) sim_finding("leak: %d %s", kinds[i].count, kinds[i].name);
    sim_memory_report();
}

__attribute__((destructor)) static void finish(void) {
    if (!env_read) return;
    if (exit_status == 0 && !failed) report_leaks();
    if (report) {
        fprintf(report, "calls %llu\npeak %llu\nfindings %llu\n", (unsigned long long)calls,
                (unsigned long long)sim_memory_peak(), (unsigned long long)findings);
        fclose(report);
    }
    if (trace) fclose(trace);
    if (!findings) return;
    fprintf(stderr, "cudasim: %llu findings\n", (unsigned long long)findings);
    fflush(NULL);
    _exit(SIM_EXIT_STATUS);
}
