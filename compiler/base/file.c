/* file.c - whole files in and out. Writing never leaves half a file under the final name: a
 * temporary one beside it is written, synced and renamed. Devices and pipes (/dev/null) are written
 * in place: a rename would replace them. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* A new file beside path; its name goes to tmp. */
static int open_temporary(const char *path, char *tmp, size_t ntmp) {
    for (int i = 0; i < 100; i++) {
        int n = snprintf(tmp, ntmp, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        if (n < 0 || (size_t)n >= ntmp) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* Makes the rename itself durable; a file system that cannot is no reason to fail. */
static void sync_folder(const char *path) {
    char dir[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof dir) return;
    memcpy(dir, path, n);
    if (!slash)
        dir[n++] = '.';
    else if (n == 0)
        dir[n++] = '/';
    dir[n] = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* A device or a pipe. A pipe that nobody reads is an error. */
static bool write_in_place(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a reader */
    if (fd < 0) return false;
    fcntl(fd, F_SETFL, 0);
    bool ok = write_all(fd, bytes, n);
    int err = errno;
    if (close(fd) && ok) return false;
    errno = err;
    return ok;
}

static bool is_device(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool file_can_write(const char *path) {
    char tmp[4096];
    struct stat st;
    if (is_device(path)) return !access(path, W_OK);
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return false;
    }
    int fd = open_temporary(path, tmp, sizeof tmp);
    if (fd < 0) return false;
    close(fd);
    unlink(tmp);
    return true;
}

bool file_write(const char *path, const void *bytes, size_t n) {
    char tmp[4096];
    if (is_device(path)) return write_in_place(path, bytes, n);
    int fd = open_temporary(path, tmp, sizeof tmp);
    if (fd < 0) return false;
    bool ok = write_all(fd, bytes, n) && fsync(fd) == 0;
    int err = errno;
    if (close(fd) && ok) ok = false, err = errno;
    if (ok && rename(tmp, path)) ok = false, err = errno;
    if (ok) {
        sync_folder(path);
        return true;
    }
    unlink(tmp);
    errno = err;
    return false;
}

static char *read_open(Arena *a, int fd, size_t max, size_t *n) {
    struct stat st;
    if (fstat(fd, &st)) return NULL;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    if ((uint64_t)st.st_size > max) {
        errno = EFBIG;
        return NULL;
    }
    size_t size = (size_t)st.st_size, have = 0;
    char *buf = arena_alloc(a, size + 1); /* the byte more is the NUL */
    while (have < size) {
        ssize_t k = read(fd, buf + have, size - have);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return NULL;
        if (k == 0) break; /* it shrank meanwhile */
        have += (size_t)k;
    }
    buf[have] = 0;
    *n = have;
    return buf;
}

char *file_read(Arena *a, const char *path, size_t max, size_t *n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0) return NULL;
    char *buf = read_open(a, fd, max, n);
    int err = errno;
    close(fd);
    errno = err;
    return buf;
}
