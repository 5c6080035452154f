/* load.c - from a path to an unpacked model: map the file, let wire.c check and shorten it, hand
 * the short message to protobuf-c with an allocator that has a limit, look at the versions.
 *
 * The mapping stays (weights are read from it); only a failed import takes it back. */
#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_FILE ((uint64_t)1 << 20)
#define UNPACKED_MAX ((uint64_t)112 << 20) /* plus some multiple of the message */

static bool read_all(int fd, uint8_t *to, uint64_t n) {
    while (n) {
        ssize_t got = read(fd, to, n);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO; /* it became shorter */
        if (got <= 0) return false;
        to += got;
        n -= (uint64_t)got;
    }
    return true;
}

/* Small files are read, so that a program that imports many does not run out of mappings. */
static bool take(Arena *a, int fd, LoadedFile *out) {
    if (out->bytes.n <= SMALL_FILE) {
        uint8_t *at = arena_alloc(a, out->bytes.n);
        out->bytes.at = at;
        return read_all(fd, at, out->bytes.n);
    }
    void *at = mmap(NULL, out->bytes.n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return false;
    out->bytes.at = at;
    out->mapped = true;
    return true;
}

bool load_file(Arena *a, Diag *d, const char *path, LoadedFile *out) {
    Place p = {.file = path};
    *out = (LoadedFile){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return diag_error(d, p, "cannot be opened: %s", strerror(errno));
    struct stat st;
    bool ok = fstat(fd, &st) == 0 || diag_error(d, p, "cannot be read: %s", strerror(errno));
    if (ok && !S_ISREG(st.st_mode)) ok = diag_error(d, p, "is not a regular file");
    if (ok && st.st_size == 0) ok = diag_error(d, p, "is empty");
    if (ok) out->bytes.n = (uint64_t)st.st_size;
    if (ok && !take(a, fd, out)) ok = diag_error(d, p, "cannot be read: %s", strerror(errno));
    close(fd);
    return ok;
}

void load_drop(const LoadedFile *f) {
    if (f->mapped) munmap((void *)(uintptr_t)f->bytes.at, f->bytes.n);
}

typedef struct {
    Arena *a;
    uint64_t used, limit;
} Budget;

static void *budget_alloc(void *data, size_t n) {
    Budget *b = data;
    if (n > b->limit - b->used) return NULL;
    b->used += n + 16;
    if (b->used > b->limit) b->used = b->limit;
    return arena_alloc(b->a, n);
}

static void budget_free(void *data, void *at) {
    (void)data;
    (void)at;
}

static bool unpack(Import *x, Span message) {
    Budget budget = {x->tmp, 0, UNPACKED_MAX + 10 * message.n};
    ProtobufCAllocator alloc = {budget_alloc, budget_free, &budget};
    x->model = onnx__model_proto__unpack(&alloc, message.n, message.at);
    Place p = {.file = x->file};
    if (!x->model && budget.limit - budget.used < 4096)
        return diag_error(x->d, p, "the model's structure needs more than %llu MiB of memory",
                          (unsigned long long)(budget.limit >> 20));
    if (!x->model) return diag_error(x->d, p, "not a valid ONNX model: a field of the wrong type");
    x->graph = x->model->graph;
    if (!x->graph) {
        diag_error(x->d, p, "not an ONNX model: it holds no graph");
        diag_hint(x->d, "expected a file written by an ONNX exporter");
        return false;
    }
    return true;
}

/* Field 11 of FunctionProto, which older schemas do not have: the bindings keep it as unknown. */
const AttributeProto *load_default(Import *x, const Onnx__FunctionProto *f, const char *name) {
    for (unsigned i = 0; i < f->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *u = &f->base.unknown_fields[i];
        size_t at = 0;
        if (u->tag != 11 || u->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) continue;
        while (at < u->len && u->data[at] & 0x80) at++;
        if (at++ >= u->len) continue;
        Budget budget = {x->tmp, 0, UNPACKED_MAX};
        ProtobufCAllocator alloc = {budget_alloc, budget_free, &budget};
        const AttributeProto *a = onnx__attribute_proto__unpack(&alloc, u->len - at, u->data + at);
        if (a && a->name && !strcmp(a->name, name)) return a;
    }
    return NULL;
}

static bool check_versions(Import *x) {
    Place p = {.file = x->file};
    for (size_t i = 0; i < x->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = x->model->opset_import[i];
        if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx")) x->opset = o->version;
    }
    if (x->info) {
        x->info->ir_version = x->model->ir_version;
        x->info->opset = x->opset;
        const char *producer = x->model->producer_name ? x->model->producer_name : "";
        const char *version = x->model->producer_version ? x->model->producer_version : "";
        if (*producer)
            x->info->producer =
                arena_printf(x->a, "%s%s%s", producer, *version ? " " : "", version);
    }
    if (x->opset < OPSET_MIN || x->opset > OPSET_MAX) {
        diag_error(x->d, p, "expected operator set %d to %d, found %lld", OPSET_MIN, OPSET_MAX,
                   (long long)x->opset);
        diag_hint(x->d, "re-export the model with opset 17");
        return false;
    }
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void fill_histogram(Import *x) {
    const GraphProto *g = x->graph;
    uint32_t n = 0, nname = (uint32_t)g->n_node;
    const char **name = ARENA_ARRAY(x->tmp, const char *, g->n_node);
    for (uint32_t i = 0; i < nname; i++) name[i] = g->node[i]->op_type;
    qsort(name, nname, sizeof *name, by_name);
    for (uint32_t i = 0; i < nname; i++) n += i == 0 || strcmp(name[i], name[i - 1]) != 0;
    x->info->op_name = ARENA_ARRAY(x->a, const char *, n);
    x->info->op_count = ARENA_ARRAY(x->a, uint32_t, n);
    for (uint32_t i = 0, k = 0; i < nname; i++) {
        if (i && strcmp(name[i], name[i - 1]) != 0) k++;
        if (!x->info->op_count[k]++) x->info->op_name[k] = arena_str(x->a, name[i]);
    }
    x->info->nop = n;
}

const char *load_digest(Arena *a, Span bytes) {
    char hex[SHA256_DIGEST_STRING_LENGTH];
    return arena_str(a, SHA256Data(bytes.at, bytes.n, hex));
}

bool load_model(Import *x, Span bytes) {
    if (x->info) x->info->file_bytes = bytes.n;
    Wire wire;
    TRY(wire_shrink(x->tmp, x->d, x->file, bytes, &wire));
    x->src.payload = wire.payload;
    x->src.npayload = wire.npayload;
    TRY(unpack(x, wire.message));
    TRY(check_versions(x));
    if (x->info) fill_histogram(x);
    if (wire.nsparse)
        return diag_error(x->d, (Place){.file = x->file},
                          "sparse tensors (%u) are not supported; store them densely",
                          wire.nsparse);
    return true;
}
