/* fail_alloc.c - preloaded into a program: the FAIL_AT-th allocation after main has begun fails,
 * and with FAIL_FROM that one and all later ones do. FAIL_COUNT names a file that gets the number
 * of allocations when the program ends. Counts malloc and its relatives, and anonymous mmap.
 *
 * The functions behind are glibc's own (__libc_malloc, ...), since dlsym allocates. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_bool started;
static atomic_long count;
static long fail_at, fail_from;

static bool fails(void) {
    if (!atomic_load(&started)) return false;
    long k = atomic_fetch_add(&count, 1) + 1;
    bool now = k == fail_at || (fail_from && k >= fail_from);
    if (now) errno = ENOMEM;
    return now;
}

void *malloc(size_t n) {
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t m) {
    return fails() ? NULL : __libc_calloc(n, m);
}

void *realloc(void *p, size_t n) {
    return fails() ? NULL : __libc_realloc(p, n);
}

void *memalign(size_t align, size_t n) {
    return fails() ? NULL : __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n) {
    return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
    int before = errno;
    void *got = memalign(align, n);
    errno = before;
    if (!got) return ENOMEM;
    *p = got;
    return 0;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) && fails()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

static void report(void) {
    const char *file = getenv("FAIL_COUNT");
    char text[32];
    atomic_store(&started, false);
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd < 0) return;
    int n = snprintf(text, sizeof text, "%ld", atomic_load(&count));
    if (write(fd, text, (size_t)n) != n) abort();
    close(fd);
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **env) {
    const char *at = getenv("FAIL_AT"), *from = getenv("FAIL_FROM");
    fail_at = at ? atol(at) : 0;
    fail_from = from ? atol(from) : 0;
    atexit(report);
    atomic_store(&started, true);
    return real_main(argc, argv, env);
}

typedef int Start(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                  void (*)(void), void *);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack) {
    Start *start;
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&start, &found, sizeof start);
    real_main = main;
    return start(counted_main, argc, argv, init, fini, rtld_fini, stack);
}
