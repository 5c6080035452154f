/* outfile.c - files that appear whole or not at all: written under another name in the same folder,
 * synced, renamed over the old one. If anything fails on the way (disk full, killed) the old file
 * stays as it was. Devices and pipes (/dev/stdout) are written in place, a pipe that nobody reads
 * is an error. The first failure is reported; later calls are ignored and dtrt_out_commit returns
 * it. */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER 65536
#define OPEN 8

static char *volatile unfinished[OPEN]; /* temporary files */

static void replace(const char *old, char *with) {
    for (int i = 0; i < OPEN; i++) {
        if (unfinished[i] != old) continue;
        unfinished[i] = with;
        return;
    }
}

void dtrt_out_forget(void) {
    for (int i = 0; i < OPEN; i++)
        if (unfinished[i]) unlink(unfinished[i]);
}

static Status fault(OutFile *f, const char *doing) {
    if (!f->failed) dtrt_error("%s: %s: %s", f->path, doing, strerror(errno));
    f->failed = true;
    return ST_MACHINE;
}

/* Opens the temporary file: PATH.tmp-PID. */
static int open_target(const char *path, char **tmp) {
    struct stat s;
    *tmp = NULL;
    if (!stat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) {
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a reader */
        if (fd >= 0) fcntl(fd, F_SETFL, 0);
        return fd;
    }
    if (!stat(path, &s) && S_ISDIR(s.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    if (asprintf(tmp, "%s.tmp-%ld", path, (long)getpid()) < 0) {
        *tmp = NULL;
        errno = ENOMEM;
        return -1;
    }
    return open(*tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
}

Status dtrt_out_open(OutFile *f, const char *path) {
    *f = (OutFile){.path = path, .buf = malloc(BUFFER)};
    if (!f->buf) {
        f->fd = -1;
        return dtrt_no_memory(BUFFER);
    }
    f->fd = open_target(path, &f->tmp);
    if (f->fd >= 0 && f->tmp) replace(NULL, f->tmp);
    return f->fd < 0 ? fault(f, "cannot be written") : ST_OK;
}

Status dtrt_out_check(const char *path) {
    OutFile f;
    Status st = dtrt_out_open(&f, path);
    dtrt_out_abort(&f);
    return st;
}

static bool write_all(OutFile *f, const uint8_t *at, uint64_t n) {
    while (n) {
        ssize_t did = write(f->fd, at, n < 1u << 30 ? n : 1u << 30);
        if (did < 0 && errno == EINTR) continue;
        if (did <= 0) {
            if (!did) errno = ENOSPC;
            fault(f, "cannot be written");
            return false;
        }
        at += did;
        n -= (uint64_t)did;
    }
    return true;
}

static void flush(OutFile *f) {
    if (!f->failed) write_all(f, (const uint8_t *)f->buf, f->fill);
    f->fill = 0;
}

void dtrt_out_write(OutFile *f, const void *bytes, uint64_t n) {
    if (f->failed) return;
    if (f->fill + n > BUFFER) flush(f);
    if (f->failed) return;
    if (n > BUFFER) {
        write_all(f, bytes, n);
        return;
    }
    memcpy(f->buf + f->fill, bytes, n);
    f->fill += n;
}

/* For tensors that come in an order of their own. */
void dtrt_out_at(OutFile *f, uint64_t offset, const void *bytes, uint64_t n) {
    flush(f);
    if (f->failed) return;
    if (lseek(f->fd, (off_t)offset, SEEK_SET) < 0)
        fault(f, "cannot be written");
    else
        write_all(f, bytes, n);
}

static void sync_folder(const char *path) {
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    if (slash) slash[slash == copy] = 0;
    int fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot; the rename is done all the same */
        close(fd);
    }
    free(copy);
}

static void release(OutFile *f) {
    if (f->fd >= 0) close(f->fd);
    if (f->tmp) replace(f->tmp, NULL);
    free(f->tmp);
    free(f->buf);
    f->fd = -1;
    f->tmp = f->buf = NULL;
}

Status dtrt_out_commit(OutFile *f) {
    flush(f);
    if (!f->failed && f->tmp && fsync(f->fd)) fault(f, "cannot be written");
    if (!f->failed && f->tmp && rename(f->tmp, f->path)) fault(f, "cannot be replaced");
    if (f->failed) {
        dtrt_out_abort(f);
        return ST_MACHINE;
    }
    if (f->tmp) sync_folder(f->path);
    release(f);
    return ST_OK;
}

void dtrt_out_abort(OutFile *f) {
    if (f->tmp && f->fd >= 0) unlink(f->tmp);
    release(f);
}
