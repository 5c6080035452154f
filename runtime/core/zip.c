/* zip.c - the parts of the ZIP format that .npz files use (PKWARE APPNOTE 4.3-4.5): the central
 * directory with its 64-bit extensions, stored and deflated entries; and gzip files. Own reader
 * because entries must be read in place with pread, batch by batch: a stored entry is an offset in
 * the file, a deflated one is inflated once into an unlinked temporary file (TMPDIR) and its
 * checksum is verified. That of a stored entry is verified up to 256 MiB: beyond, reading all of it
 * before the first step would be felt.
 *
 * All sizes and offsets are hostile and are checked against the file before use. */
#include "core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define END_BYTES 22
#define END64_BYTES 56
#define CENTRAL_BYTES 46
#define LOCAL_BYTES 30
#define CHUNK 65536
#define DIRECTORY_MAX (64u << 20)
#define CHECKED_MAX (256u << 20)

static uint16_t u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static uint32_t u32(const uint8_t *p) {
    return u16(p) | (uint32_t)u16(p + 2) << 16;
}
static uint64_t u64(const uint8_t *p) {
    return u32(p) | (uint64_t)u32(p + 4) << 32;
}

static bool read_at(int fd, void *buf, uint64_t n, uint64_t offset) {
    return offset <= INT64_MAX && pread(fd, buf, (size_t)n, (off_t)offset) == (ssize_t)n;
}

static uint64_t file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
}

static Status bad(const char *file, const char *why) {
    dtrt_error("%s: not a readable .npz file: %s", file, why);
    return ST_DATA;
}

bool dtrt_is_zip(int fd) {
    uint8_t m[4];
    return read_at(fd, m, 4, 0) && (u32(m) == 0x04034b50 || u32(m) == 0x06054b50);
}

typedef struct {
    uint64_t offset, bytes, entries; /* of the central directory */
} Directory;

/* The end record stands at the very end unless a comment (at most 65535 bytes) follows. */
static Status find_directory(int fd, const char *file, Directory *d) {
    uint64_t size = file_size(fd);
    uint64_t tail = size < END_BYTES + 65535 + 20 ? size : END_BYTES + 65535 + 20;
    uint8_t buf[END_BYTES + 65535 + 20], e64[END64_BYTES];
    if (tail < END_BYTES || !read_at(fd, buf, tail, size - tail))
        return bad(file, "it is too short");
    uint64_t at = tail - END_BYTES;
    while (u32(buf + at) != 0x06054b50 || at + END_BYTES + u16(buf + at + 20) > tail)
        if (at-- == 0) return bad(file, "its directory is missing: was it cut short?");
    const uint8_t *e = buf + at;
    *d = (Directory){u32(e + 16), u32(e + 12), u16(e + 10)};
    if (d->offset == UINT32_MAX || d->bytes == UINT32_MAX || d->entries == UINT16_MAX) {
        if (at < 20 || u32(e - 20) != 0x07064b50)
            return bad(file, "its 64-bit directory is missing");
        if (!read_at(fd, e64, sizeof e64, u64(e - 12)) || u32(e64) != 0x06064b50)
            return bad(file, "its 64-bit directory is damaged");
        *d = (Directory){u64(e64 + 48), u64(e64 + 40), u64(e64 + 32)};
    }
    if (d->bytes > size || d->offset > size - d->bytes)
        return bad(file, "its directory lies outside the file");
    if (d->bytes > DIRECTORY_MAX || d->entries > d->bytes / CENTRAL_BYTES)
        return bad(file, "its directory is damaged");
    return ST_OK;
}

/* 64-bit sizes stand in extra field 1, in this order, each only when its 32-bit field is full. */
static bool read_extra64(const uint8_t *x, uint32_t n, ZipEntry *e) {
    for (uint32_t at = 0; at + 4 <= n;) {
        uint32_t len = u16(x + at + 2);
        if (len > n - at - 4) return false;
        if (u16(x + at) == 1) {
            uint64_t *field[3] = {&e->bytes, &e->packed, &e->header};
            for (uint32_t i = 0, pos = 0; i < 3; i++) {
                if (*field[i] != UINT32_MAX) continue;
                if (pos + 8 > len) return false;
                *field[i] = u64(x + at + 4 + pos);
                pos += 8;
            }
            return true;
        }
        at += 4 + len;
    }
    return e->bytes != UINT32_MAX && e->packed != UINT32_MAX && e->header != UINT32_MAX;
}

static Status read_entry(const char *file, const uint8_t *dir, uint64_t bytes, uint64_t *at,
                         ZipEntry *e) {
    const uint8_t *c = dir + *at;
    if (bytes - *at < CENTRAL_BYTES || u32(c) != 0x02014b50)
        return bad(file, "its directory is damaged");
    uint32_t name = u16(c + 28), extra = u16(c + 30), comment = u16(c + 32);
    if (bytes - *at - CENTRAL_BYTES < (uint64_t)name + extra + comment)
        return bad(file, "its directory is damaged");
    *e = (ZipEntry){NULL, u16(c + 10), u32(c + 16), u32(c + 20), u32(c + 24), u32(c + 42)};
    if (!read_extra64(c + CENTRAL_BYTES + name, extra, e))
        return bad(file, "its directory is damaged");
    e->name = strndup((const char *)c + CENTRAL_BYTES, name);
    if (!e->name) return dtrt_no_memory(name);
    *at += CENTRAL_BYTES + name + extra + comment;
    if (u16(c + 8) & 1) {
        dtrt_error("%s: entry %s is encrypted", file, dtrt_name_str(e->name));
        return ST_DATA;
    }
    if (e->method == 0 || e->method == 8) return ST_OK;
    dtrt_error(
        "%s: entry %s is compressed with method %d; stored and deflated entries are supported",
        file, dtrt_name_str(e->name), e->method);
    return ST_DATA;
}

Status dtrt_zip_read(int fd, const char *file, Zip *z) {
    Directory d;
    *z = (Zip){0};
    Status st = find_directory(fd, file, &d);
    if (st) return st;
    uint8_t *dir = malloc(d.bytes + 1);
    z->entry = calloc(d.entries + 1, sizeof *z->entry);
    if (!dir || !z->entry) {
        st = dtrt_no_memory(d.bytes);
    } else if (!read_at(fd, dir, d.bytes, d.offset)) {
        st = bad(file, "its directory cannot be read");
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < d.entries && !st; i++) {
        st = read_entry(file, dir, d.bytes, &at, &z->entry[i]);
        z->n += z->entry[i].name != NULL;
    }
    free(dir);
    if (st) dtrt_zip_free(z);
    return st;
}

void dtrt_zip_free(Zip *z) {
    for (uint32_t i = 0; i < z->n; i++) free(z->entry[i].name);
    free(z->entry);
    *z = (Zip){0};
}

/* ---- inflating into a temporary file ------------------------------------------------------ */

typedef struct {
    int in, out;
    uint64_t at, left; /* compressed bytes not read yet */
    uint64_t limit;    /* bytes that may come out */
    uint64_t bytes;    /* that did */
    uint32_t crc;
    const char *what;
} Inflate;

static Status temp_file(int *fd) {
    const char *dir = getenv("TMPDIR");
    char path[4096];
    if (!dir || !*dir) dir = "/tmp";
    if (snprintf(path, sizeof path, "%s/dtrc-XXXXXX", dir) >= (int)sizeof path) {
        dtrt_error("TMPDIR is too long a path");
        return ST_MACHINE;
    }
    *fd = mkstemp(path);
    if (*fd < 0) {
        dtrt_error("no temporary file in %s to unpack data into: %s", dir, strerror(errno));
        dtrt_hint("set TMPDIR to a folder with room");
        return ST_MACHINE;
    }
    unlink(path);
    return ST_OK;
}

static Status put(Inflate *f, const uint8_t *buf, size_t n) {
    if (n > f->limit - f->bytes) {
        dtrt_error("%s: more data comes out of it than its directory says", f->what);
        return ST_DATA;
    }
    f->crc = (uint32_t)crc32(f->crc, buf, (uInt)n);
    f->bytes += n;
    while (n) {
        ssize_t did = write(f->out, buf, n);
        if (did < 0 && errno == EINTR) continue;
        if (did <= 0) {
            dtrt_error("unpacking %s into a temporary file: %s", f->what, strerror(errno));
            dtrt_hint("set TMPDIR to a folder with room, or save uncompressed (np.savez)");
            return ST_MACHINE;
        }
        buf += did;
        n -= (size_t)did;
    }
    return ST_OK;
}

/* Runs z over the input until its stream ends. */
static Status inflate_stream(Inflate *f, z_stream *z, uint8_t *in, uint8_t *out) {
    int rc = Z_OK;
    while (rc != Z_STREAM_END) {
        if (!z->avail_in) {
            uint64_t n = f->left < CHUNK ? f->left : CHUNK;
            if (!n || !read_at(f->in, in, n, f->at)) break;
            f->at += n;
            f->left -= n;
            z->next_in = in;
            z->avail_in = (uInt)n;
        }
        z->next_out = out;
        z->avail_out = CHUNK;
        rc = inflate(z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END) break;
        Status st = put(f, out, CHUNK - z->avail_out);
        if (st) return st;
    }
    if (rc == Z_STREAM_END) return ST_OK;
    dtrt_error("%s: its compressed data is damaged or cut short", f->what);
    return ST_DATA;
}

/* bits: zlib's window bits, which also say what wraps the stream. */
static Status inflate_to_temp(Inflate *f, int bits) {
    z_stream z = {0};
    uint8_t *buf = malloc(2 * CHUNK);
    if (!buf || inflateInit2(&z, bits) != Z_OK) {
        free(buf);
        return dtrt_no_memory(2 * CHUNK);
    }
    Status st = temp_file(&f->out);
    if (!st) st = inflate_stream(f, &z, buf, buf + CHUNK);
    inflateEnd(&z);
    free(buf);
    if (st && f->out >= 0) close(f->out);
    return st;
}

static Status wrong_checksum(const char *what) {
    dtrt_error("%s: its checksum or size is wrong: the file is damaged", what);
    return ST_DATA;
}

static Status check_stored(int fd, const ZipEntry *e, uint64_t at, const char *what) {
    uint8_t *buf = malloc(CHUNK);
    uint32_t crc = 0;
    uint64_t left = e->bytes <= CHECKED_MAX ? e->bytes : 0;
    if (!buf) return dtrt_no_memory(CHUNK);
    for (uint64_t n; left; left -= n, at += n) {
        n = left < CHUNK ? left : CHUNK;
        if (!read_at(fd, buf, n, at)) break;
        crc = (uint32_t)crc32(crc, buf, (uInt)n);
    }
    free(buf);
    return left || (e->bytes <= CHECKED_MAX && crc != e->crc) ? wrong_checksum(what) : ST_OK;
}

Status dtrt_zip_open(int fd, const char *file, const ZipEntry *e, int *out_fd, uint64_t *offset) {
    uint8_t local[LOCAL_BYTES];
    uint64_t size = file_size(fd);
    if (!read_at(fd, local, sizeof local, e->header) || u32(local) != 0x04034b50)
        return bad(file, "an entry's header is damaged");
    uint64_t at = e->header + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    if (e->packed > size || at > size - e->packed || (e->method == 0 && e->packed != e->bytes))
        return bad(file, "an entry lies outside the file: was it cut short?");
    char what[512];
    snprintf(what, sizeof what, "%s: entry %s", file, dtrt_name_str(e->name));
    if (e->method == 0) {
        *out_fd = fd;
        *offset = at;
        return check_stored(fd, e, at, what);
    }
    Inflate f = {.in = fd, .out = -1, .at = at, .left = e->packed, .limit = e->bytes, .what = what};
    Status st = inflate_to_temp(&f, -MAX_WBITS);
    if (st) return st;
    if (f.bytes != e->bytes || f.crc != e->crc) {
        close(f.out);
        return wrong_checksum(what);
    }
    *out_fd = f.out;
    *offset = 0;
    return ST_OK;
}

Status dtrt_gzip_open(int fd, const char *file, int *out_fd) {
    Inflate f = {.in = fd, .out = -1, .left = file_size(fd), .limit = INT64_MAX, .what = file};
    Status st = inflate_to_temp(&f, MAX_WBITS + 16);
    *out_fd = f.out;
    return st;
}
