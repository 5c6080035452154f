/* dataset.c - opens what --data names and presents it as arrays of rows: .npz, .npy, IDX, CIFAR
 * binary, token files, each plain or (but for .npz) gzipped. Files are told apart by their first
 * bytes; those without a magic number by what the program expects. Nothing is read but headers:
 * rows are read with pread when a batch wants them. */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const DtrtProgram *p;
    Dataset *d;
    const char *file, *name; /* name: given as NAME=FILE, or NULL */
    int fd;
} Open;

static Status keep_fd(Dataset *d, int fd) {
    int *grown = realloc(d->fd, (d->nfd + 1) * sizeof *grown);
    if (!grown) {
        close(fd);
        return dtrt_no_memory(d->nfd);
    }
    d->fd = grown;
    d->fd[d->nfd++] = fd;
    return ST_OK;
}

static Status list_name(Dataset *d, const char *name) {
    char *old = d->listing;
    if (old && strlen(old) > 2000) return ST_OK; /* enough to see what the file is */
    int rc = old ? asprintf(&d->listing, "%s, %s", old, dtrt_name_str(name))
                 : asprintf(&d->listing, "%s", dtrt_name_str(name));
    if (rc < 0) d->listing = NULL;
    free(old);
    return rc < 0 ? dtrt_no_memory(4096) : ST_OK;
}

/* The program's own string for this name, or NULL when it wants no such array. */
static const char *wanted(const DtrtProgram *p, const char *name, size_t n) {
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if ((t->role == DTRT_INPUT || t->role == DTRT_TARGET) && strlen(t->name) == n &&
            !memcmp(t->name, name, n))
            return t->name;
    }
    return NULL;
}

static bool same_rows(const DataArray *a, const DataArray *b) {
    return a->type == b->type && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) && a->stride == b->stride;
}

static Status add_part(DataArray *a, const DataPart *part, uint64_t rows) {
    DataPart *grown = realloc(a->part, (a->npart + 1) * sizeof *grown);
    if (!grown) return dtrt_no_memory(sizeof *grown);
    a->part = grown;
    a->part[a->npart++] = *part;
    a->rows += rows;
    return ST_OK;
}

/* Takes an array; one of a name that is there already continues it. */
static Status add_array(Dataset *d, const DataArray *a, const DataPart *part) {
    for (uint32_t i = 0; i < d->n && a->name; i++) {
        DataArray *b = &d->array[i];
        if (!b->name || strcmp(b->name, a->name)) continue;
        if (b->file == a->file) {
            dtrt_error("%s: two arrays are named %s", a->file, dtrt_name_str(a->name));
            return ST_DATA;
        }
        if (same_rows(a, b)) return add_part(b, part, a->rows);
        dtrt_error("array %s is %s in %s but %s in %s", dtrt_name_str(a->name), dtrt_dataset_str(b),
                   b->file, dtrt_dataset_str(a), a->file);
        return ST_DATA;
    }
    DataArray *grown = realloc(d->array, (d->n + 1) * sizeof *grown);
    if (!grown) return dtrt_no_memory(sizeof *grown);
    d->array = grown;
    DataArray *b = &d->array[d->n++];
    *b = *a;
    b->rows = 0;
    return add_part(b, part, a->rows);
}

static Status add_npy(Open *o, int fd, uint64_t offset, uint64_t size, const char *name,
                      const char *what) {
    NpyHeader h;
    Status st = dtrt_npy_read(fd, offset, size, what, &h);
    if (st) return st;
    if (!h.rank) {
        dtrt_error("%s: a single number; an array whose first axis counts samples is expected",
                   what);
        return ST_DATA;
    }
    DataArray a = {.name = name, .file = o->file, .type = h.type, .rank = h.rank - 1};
    memcpy(a.dim, h.dim + 1, (size_t)a.rank * sizeof *a.dim);
    a.rows = (uint64_t)h.dim[0];
    a.stride = a.row_bytes = a.rows ? h.bytes / a.rows : 0;
    return add_array(o->d, &a, &(DataPart){fd, offset + h.offset, a.rows});
}

static Status add_entry(Open *o, const ZipEntry *e) {
    size_t n = strlen(e->name);
    if (n > 4 && !strcmp(e->name + n - 4, ".npy")) n -= 4;
    char shown[256], what[512];
    snprintf(shown, sizeof shown, "%.*s", n < 200 ? (int)n : 200, e->name);
    Status st = list_name(o->d, shown);
    const char *name = wanted(o->p, e->name, n);
    if (st || !name) return st;
    int fd;
    uint64_t offset;
    st = dtrt_zip_open(o->fd, o->file, e, &fd, &offset);
    if (!st && fd != o->fd) st = keep_fd(o->d, fd);
    snprintf(what, sizeof what, "%s: array %s", o->file, dtrt_name_str(name));
    return st ? st : add_npy(o, fd, offset, e->bytes, name, what);
}

static Status add_npz(Open *o) {
    Zip z;
    if (o->name) {
        dtrt_error("%s=%s: an .npz file names its arrays itself", o->name, o->file);
        return ST_USAGE;
    }
    Status st = dtrt_zip_read(o->fd, o->file, &z);
    if (st) return st;
    for (uint32_t i = 0; i < z.n && !st; i++) st = add_entry(o, &z.entry[i]);
    dtrt_zip_free(&z);
    return st;
}

/* A file that holds input and target. */
static Status add_pair(Open *o, DataArray a[2], const DataPart part[2]) {
    a[0].name = dtrt_program_input(o->p)->name;
    a[1].name = dtrt_program_target(o->p)->name;
    a[0].file = a[1].file = o->file;
    Status st = add_array(o->d, &a[0], &part[0]);
    return st ? st : add_array(o->d, &a[1], &part[1]);
}

static Status add_file(Open *o) {
    uint8_t m[6] = {0};
    DataArray a[2];
    DataPart part[2];
    Status st;
    ssize_t n = pread(o->fd, m, sizeof m, 0);
    if (n >= 2 && m[0] == 0x1f && m[1] == 0x8b) {
        st = dtrt_gzip_open(o->fd, o->file, &o->fd);
        if (!st) st = keep_fd(o->d, o->fd);
        if (st) return st;
        n = pread(o->fd, m, sizeof m, 0);
    }
    if (n == 0) {
        dtrt_error("%s: the file is empty", o->file);
        return ST_DATA;
    }
    if (dtrt_is_zip(o->fd)) return add_npz(o);
    if (n == 6 && !memcmp(m, "\x93NUMPY", 6)) {
        off_t size = lseek(o->fd, 0, SEEK_END);
        return add_npy(o, o->fd, 0, size > 0 ? (uint64_t)size : 0, o->name, o->file);
    }
    if (dtrt_is_cifar(o->p, o->fd)) {
        dtrt_cifar_open(o->p, o->fd, a, part);
        return add_pair(o, a, part);
    }
    if (dtrt_is_idx(o->fd)) {
        st = dtrt_idx_open(o->fd, o->file, a, part);
        a[0].name = o->name;
        a[0].file = o->file;
        return st ? st : add_array(o->d, a, part);
    }
    if (dtrt_is_tokens(o->p, o->fd)) {
        st = dtrt_tokens_open(o->p, o->fd, o->file, a, part);
        return st ? st : add_pair(o, a, part);
    }
    dtrt_error("%s: not a data file that this program can read", o->file);
    dtrt_hint(
        ".npz and .npy (numpy), IDX (MNIST), CIFAR binary for inputs [N,3,32,32], token files for "
        "inputs and targets [N,T]; each but .npz may be gzipped");
    return ST_DATA;
}

/* item: FILE or NAME=FILE, where NAME is one of the program's. */
static Status open_item(const DtrtProgram *p, Dataset *d, char *item) {
    Open o = {.p = p, .d = d, .file = item};
    char *eq = strchr(item, '=');
    if (eq && (o.name = wanted(p, item, (size_t)(eq - item)))) o.file = eq + 1;
    o.fd = open(o.file, O_RDONLY | O_CLOEXEC);
    if (o.fd < 0) {
        dtrt_error("%s: %s", o.file, strerror(errno));
        return ST_DATA;
    }
    Status st = keep_fd(d, o.fd);
    return st ? st : add_file(&o);
}

/* Arrays without a name take the names that are left, in the program's order: inputs, then target.
 */
static Status name_by_position(const DtrtProgram *p, Dataset *d) {
    for (uint32_t i = 0; i < d->n; i++) {
        DataArray *a = &d->array[i];
        for (int role = 0; role < 2 && !a->name; role++)
            for (uint32_t t = 0; t < p->ntensor && !a->name; t++) {
                bool taken = p->tensor[t].role != (role ? DTRT_TARGET : DTRT_INPUT);
                for (uint32_t k = 0; k < d->n; k++)
                    taken |= d->array[k].name && !strcmp(d->array[k].name, p->tensor[t].name);
                if (!taken) a->name = p->tensor[t].name;
            }
        if (a->name) continue;
        dtrt_error("%s: more files than the program has inputs and targets", a->file);
        return ST_USAGE;
    }
    return ST_OK;
}

Status dtrt_dataset_open(const DtrtProgram *p, const char *spec, Dataset *d) {
    *d = (Dataset){.spec = strdup(spec)};
    if (!d->spec) return dtrt_no_memory(strlen(spec));
    if (!access(spec, F_OK)) { /* a comma in a file's name is no separator */
        Status st = open_item(p, d, d->spec);
        return st ? st : name_by_position(p, d);
    }
    Status st = ST_OK;
    char *rest = d->spec;
    for (char *item; !st && (item = strsep(&rest, ","));) st = open_item(p, d, item);
    return st ? st : name_by_position(p, d);
}

void dtrt_dataset_free(Dataset *d) {
    for (uint32_t i = 0; i < d->n; i++) free(d->array[i].part);
    for (uint32_t i = 0; i < d->nfd; i++) close(d->fd[i]);
    free(d->array);
    free(d->fd);
    free(d->spec);
    free(d->listing);
    *d = (Dataset){0};
}

static const DataPart *find_part(const DataArray *a, uint64_t *r) {
    uint32_t i = 0;
    for (; *r >= a->part[i].rows; i++) *r -= a->part[i].rows;
    return &a->part[i];
}

uint64_t dtrt_dataset_span(const DataArray *a, uint64_t r) {
    const DataPart *part = find_part(a, &r);
    return a->stride == a->row_bytes ? part->rows - r : 1;
}

Status dtrt_dataset_rows(const DataArray *a, uint64_t r, uint64_t n, void *buf) {
    const DataPart *part = find_part(a, &r);
    uint64_t left = n * a->row_bytes, at = part->offset + r * a->stride;
    for (uint8_t *to = buf; left;) {
        ssize_t got = pread(part->fd, to, left < 1u << 30 ? left : 1u << 30, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            dtrt_error("%s: array %s, row %" PRIu64 ": %s", a->file, dtrt_name_str(a->name), r,
                       got ? strerror(errno) : "the file has become shorter");
            return got ? ST_MACHINE : ST_DATA;
        }
        to += got;
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    return ST_OK;
}

const char *dtrt_dataset_str(const DataArray *a) {
    static char buf[4][320];
    static int next;
    char first[24];
    char *s = buf[next++ % 4];
    snprintf(first, sizeof first, "%" PRIu64, a->rows);
    snprintf(s, sizeof buf[0], "%s %s", dtrt_data_type_name(a->type),
             dtrt_shape_str(a->rank, a->dim, first));
    return s;
}
