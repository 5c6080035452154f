/* external.c - tensors whose bytes lie in a file beside the model. The name of that file comes from
 * the model, so it is not trusted: relative, below the model's folder, no "..", no symbolic link on
 * the way, a regular file with one name only, and exactly the bytes that the tensor has. The kernel
 * checks the way in one call where it can (openat2, Linux 5.6); elsewhere each component is opened
 * by itself.
 *
 * The rules are those of the ONNX project's advice on external data (docs/ExternalDataSecurity.md),
 * after CVE-2022-25882, CVE-2024-27318 and their successors. Files stay mapped, one mapping each.
 */
#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)

/* Every component a plain name; empty ones and "." are let through. */
static bool is_inside(const char *path) {
    if (!*path || *path == '/') return false;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && path[0] == '.' && path[1] == '.') return false;
        path += n + (path[n] == '/');
    }
    return true;
}

/* Component by component, without following links: for kernels without openat2. */
static int open_stepwise(int dir, const char *path) {
    int at = dup(dir);
    while (at >= 0) {
        size_t n = strcspn(path, "/");
        size_t skip = n + strspn(path + n, "/");
        bool last = path[skip] == 0;
        char name[256];
        if (n >= sizeof name) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, n);
        name[n] = 0;
        int next =
            openat(at, name, last ? FILE_FLAGS : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int e = errno;
        close(at);
        errno = e;
        if (last || next < 0) return next;
        at = next;
        path += skip;
    }
    return -1;
}

static int open_below(const char *folder, const char *path) {
    int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return -1;
    struct open_how how = {.flags = FILE_FLAGS,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL))
        fd = open_stepwise(dir, path);
    int e = errno;
    close(dir);
    errno = e;
    return fd;
}

static bool open_error(Diag *d, Place p, const char *location) {
    const char *shown = diag_name(d->arena, location);
    if (errno == ELOOP || errno == EXDEV || errno == ENOTDIR) {
        diag_error(d, p, "external file '%s' is reached through a symbolic link, or is none",
                   shown);
        diag_hint(d, "copy the files themselves into the model's folder");
        return false;
    }
    return diag_error(d, p, "external file '%s' cannot be opened: %s", shown, strerror(errno));
}

static bool map_file(Diag *d, Place p, const char *location, int fd, Span *out) {
    const char *shown = diag_name(d->arena, location);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return diag_error(d, p, "external file '%s': %s", shown, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return diag_error(d, p, "external file '%s' is not a regular file", shown);
    if (st.st_nlink != 1)
        return diag_error(d, p, "external file '%s' has %llu names (hard links), expected one",
                          shown, (unsigned long long)st.st_nlink);
    out->n = (uint64_t)st.st_size;
    out->at = (const uint8_t *)"";
    if (out->n == 0) return true;
    void *at = mmap(NULL, out->n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return diag_error(d, p, "external file '%s' cannot be mapped: %s", shown, strerror(errno));
    out->at = at;
    return true;
}

/* The mapping of a location; at == NULL: the file is not there. */
static bool find_file(Arena *a, Diag *d, Sources *s, Place p, const char *location, Span *out) {
    if (!is_inside(location)) {
        diag_error(d, p, "external file '%s' is not inside the model's folder",
                   diag_name(d->arena, location));
        diag_hint(d, "locations must be relative and free of '..'");
        return false;
    }
    if (!s->maps) s->maps = map_new(a);
    uint32_t i = map_get(s->maps, location);
    if (i == NO_ID) {
        Span m = {NULL, 0};
        int fd = s->folder ? open_below(s->folder, location) : -1;
        if (fd < 0 && s->folder && errno != ENOENT) return open_error(d, p, location);
        bool ok = fd < 0 || map_file(d, p, location, fd, &m);
        if (fd >= 0) close(fd);
        TRY(ok);
        i = s->mapped.n;
        VEC_PUSH(a, s->mapped, m);
        map_put(s->maps, location, i);
    }
    *out = s->mapped.at[i];
    return true;
}

static bool parse_number(Diag *d, Place p, const char *key, const char *text, uint64_t *out) {
    uint64_t v = 0;
    const char *s = text;
    for (; *s >= '0' && *s <= '9'; s++)
        if (!checked_mul(v, 10, &v) || !checked_add(v, (uint64_t)(*s - '0'), &v)) break;
    if (*s || s == text)
        return diag_error(d, p, "external data: expected a non-negative number for %s, found '%s'",
                          key, diag_name(d->arena, text));
    *out = v;
    return true;
}

bool external_read(Arena *a, Diag *d, Sources *s, Place p, const TensorProto *t, uint64_t bytes,
                   Span *out, bool *missing) {
    const char *location = NULL;
    uint64_t offset = 0, length = bytes, end = 0;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
        if (!key || !value) continue;
        if (!strcmp(key, "location")) location = value;
        if (!strcmp(key, "offset")) TRY(parse_number(d, p, key, value, &offset));
        if (!strcmp(key, "length")) TRY(parse_number(d, p, key, value, &length));
    }
    if (!location) return diag_error(d, p, "external data without a location");
    if (length != bytes)
        return diag_error(d, p, "external data has length %llu, the shape needs %llu bytes",
                          (unsigned long long)length, (unsigned long long)bytes);
    Span file = {NULL, 0};
    TRY(find_file(a, d, s, p, location, &file));
    *missing = !file.at;
    if (*missing) {
        s->missing_bytes += bytes;
        if (!s->need) return true;
        diag_error(d, p, "external file '%s' is not there", diag_name(d->arena, location));
        diag_hint(d, "put it into the model's folder, or start from new weights with --init");
        return false;
    }
    if (!checked_add(offset, length, &end) || end > file.n)
        return diag_error(d, p, "bytes %llu to %llu of external file '%s' are past its end at %llu",
                          (unsigned long long)offset, (unsigned long long)end,
                          diag_name(d->arena, location), (unsigned long long)file.n);
    *out = (Span){file.at + offset, length};
    return true;
}

void external_unmap(Sources *s) {
    for (uint32_t i = 0; i < s->mapped.n; i++)
        if (s->mapped.at[i].n) munmap((void *)(uintptr_t)s->mapped.at[i].at, s->mapped.at[i].n);
    s->mapped.n = 0;
}
