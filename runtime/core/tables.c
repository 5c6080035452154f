/* tables.c - the program's tables, checked before anything is done with them: every index, range
 * and pointer that the runtime follows, in one pass over each table. The steps, the diagnosis, the
 * loader and the reference then read them without looking.
 *
 * Tables are wrong when a program, the headers it was compiled with and this library are not of one
 * build (a field more or less shifts those after it), or when the code generator is wrong. Both are
 * told here with the entry's number, in place of a wild read later. */
#include "core.h"
#include "dtrt_interface.h"

#include <inttypes.h>
#include <stdarg.h>

__attribute__((format(printf, 1, 2))) static bool damaged(const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    dtrt_error("the program's tables are damaged: %s", what);
    dtrt_hint("compile the model again");
    return false;
}

static bool inside(uint64_t at, uint64_t n, uint64_t end) {
    return n <= end && at <= end - n;
}

/* Bytes of an array; false when the rank, a dimension or the type is none, or the size overflows.
 */
static bool array_bytes(int type, int rank, const int64_t *dim, uint64_t *bytes) {
    if (type < DTRT_F32 || type > DTRT_BOOL || rank < 0 || rank > DTRT_MAX_RANK) return false;
    *bytes = dtrt_type_bytes((DtrtType)type);
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || !dtrt_mul_u64(*bytes, (uint64_t)dim[i], bytes)) return false;
    return *bytes <= INT64_MAX;
}

/* A place in [0, end) for n bytes of a type. */
static bool is_place(uint64_t at, uint64_t n, DtrtType type, uint64_t end) {
    return inside(at, n, end) && at % dtrt_type_bytes(type) == 0;
}

static bool check_interface(const DtrtProgram *p) {
    if (p->interface == DTRT_INTERFACE) return true;
    dtrt_error("the program was compiled for runtime interface %016" PRIx64
               ", this library has %016" PRIx64,
               p->interface, DTRT_INTERFACE);
    dtrt_hint("dtrc and libdtrt.a must come from one build; compile the model again");
    return false;
}

static bool check_head(const DtrtProgram *p) {
    if (!p->model || !p->model_sha256 || !p->command || !p->target || !p->loss_kind ||
        !p->optimizer)
        return damaged("a text is missing");
    if (p->persistent_bytes > INT64_MAX || p->arena_bytes > INT64_MAX - p->persistent_bytes)
        return damaged("%" PRIu64 " + %" PRIu64 " bytes of memory", p->persistent_bytes,
                       p->arena_bytes);
    if (p->threads < 1) return damaged("%d threads", p->threads);
    if (p->ntensor > INT32_MAX || p->nrun > INT32_MAX || p->nstep > INT32_MAX ||
        p->nrefvalue > INT32_MAX)
        return damaged("a table is too long");
    if ((p->ntensor && !p->tensor) || (p->nrun && !p->run) || (p->nstep && !p->step) ||
        (p->naddr && (!p->addr || !p->addr_bytes || !p->addr_type)) ||
        (p->nrefnode && !p->refnode) || (p->nrefvalue && !p->refvalue))
        return damaged("a table is missing");
    return true;
}

static bool check_tensor(const DtrtProgram *p, uint32_t i) {
    const DtrtTensor *t = &p->tensor[i];
    uint64_t plain;
    if (!t->name) return damaged("tensor %u has no name", i);
    if ((int)t->role < DTRT_INPUT || t->role > DTRT_STATE)
        return damaged("tensor %u has role %d", i, (int)t->role);
    if (!array_bytes((int)t->type, t->rank, t->dim, &plain))
        return damaged("tensor %u has no size (type %d, rank %d)", i, (int)t->type, t->rank);
    if (t->bytes < plain || !is_place(t->offset, t->bytes, t->type, p->persistent_bytes))
        return damaged("tensor %u lies at %" PRIu64 " with %" PRIu64 " bytes, %" PRIu64
                       " are needed below %" PRIu64,
                       i, t->offset, t->bytes, plain, p->persistent_bytes);
    if (t->conv >= 0 && (t->type != DTRT_F32 || !p->pack || !p->unpack))
        return damaged("tensor %u is packed, but nothing converts it", i);
    if (t->role == DTRT_STATE && (t->param < 0 || (uint32_t)t->param >= p->ntensor))
        return damaged("tensor %u is the state of tensor %d of %u", i, t->param, p->ntensor);
    return true;
}

static bool check_operand(const DtrtProgram *p, uint32_t k) {
    uint64_t end = p->persistent_bytes + p->arena_bytes;
    if (p->addr_type[k] > DTRT_BOOL) return damaged("operand %u has type %u", k, p->addr_type[k]);
    if (p->addr[k] == DTRT_NOWHERE
            ? !p->addr_bytes[k]
            : is_place(p->addr[k], p->addr_bytes[k], (DtrtType)p->addr_type[k], end))
        return true;
    return damaged("operand %u lies at %" PRIu64 " with %" PRIu64 " bytes, the block has %" PRIu64,
                   k, p->addr[k], p->addr_bytes[k], end);
}

/* Operand 1 of an update is a gradient as large as its parameter. */
static bool check_gradient(const DtrtProgram *p, uint32_t i) {
    const DtrtRun *r = &p->run[i];
    uint32_t g = r->first + 1;
    if (r->param < -1 || r->param >= (int64_t)p->ntensor)
        return damaged("run %u updates tensor %d of %u", i, r->param, p->ntensor);
    if (r->nin < 2 || p->addr_type[g] != DTRT_F32 || p->addr[g] == DTRT_NOWHERE ||
        p->addr_bytes[g] < p->tensor[r->param].bytes)
        return damaged("run %u updates tensor %d without its gradient", i, r->param);
    return true;
}

static bool check_run(const DtrtProgram *p, uint32_t i) {
    const DtrtRun *r = &p->run[i];
    if (!r->run || !r->name || !r->op) return damaged("run %u has no code or no name", i);
    if (!inside(r->first, r->count, p->naddr))
        return damaged("run %u has operands %u + %u of %u", i, r->first, r->count, p->naddr);
    if (!inside(r->nin, r->nout, r->count))
        return damaged("run %u has %u inputs and %u outputs in %u operands", i, r->nin, r->nout,
                       r->count);
    if (r->phase > 2) return damaged("run %u has phase %u", i, r->phase);
    return r->param == -1 || check_gradient(p, i);
}

static bool check_step(const DtrtProgram *p, uint32_t i) {
    const DtrtStep *s = &p->step[i];
    if (s->run < -1 || s->run >= (int64_t)p->nrun)
        return damaged("step %u is run %d of %u", i, s->run, p->nrun);
    if (s->run < 0 && !inside(s->offset, s->bytes, p->persistent_bytes + p->arena_bytes))
        return damaged("step %u drops %" PRIu64 " + %" PRIu64 " bytes, outside the block", i,
                       s->offset, s->bytes);
    return true;
}

/* The axis of the classes lies in an array of this rank. */
static bool has_axis(const DtrtProgram *p, int rank) {
    return p->class_axis >= -rank && p->class_axis < rank;
}

static bool check_loss(const DtrtProgram *p) {
    const DtrtTensor *target = dtrt_program_target(p);
    uint64_t end = p->persistent_bytes + p->arena_bytes, bytes;
    if (!is_place(p->loss_offset, sizeof(float), DTRT_F32, end))
        return damaged("the loss lies at %" PRIu64 ", outside the block", p->loss_offset);
    if (p->logits_offset == DTRT_NOWHERE) return true;
    if (!array_bytes(DTRT_F32, p->logits_rank, p->logits_dim, &bytes) ||
        !is_place(p->logits_offset, bytes, DTRT_F32, end))
        return damaged("the model's output lies at %" PRIu64 ", outside the block",
                       p->logits_offset);
    if (p->logits_run < 0 || (uint32_t)p->logits_run >= p->nstep)
        return damaged("the model's output is there after step %d of %u", p->logits_run, p->nstep);
    if (p->nclass > 0 && !has_axis(p, p->logits_rank))
        return damaged("classes on axis %" PRId64 " of %d", p->class_axis, p->logits_rank);
    if (p->nclass > 0 && target && dtrt_type_bytes(target->type) < sizeof(int32_t))
        return damaged("labels of type %d", (int)target->type);
    return true;
}

static bool check_value(const DtrtProgram *p, uint32_t i) {
    const DtrtRefValue *v = &p->refvalue[i];
    uint64_t bytes;
    if (!v->name || !array_bytes((int)v->type, v->rank, v->dim, &bytes))
        return damaged("value %u of the model has no name or no size", i);
    if (v->tensor < -1 || v->tensor >= (int64_t)p->ntensor)
        return damaged("value %u of the model is tensor %d of %u", i, v->tensor, p->ntensor);
    if (v->tensor < 0 && v->file_bytes && v->file_bytes != bytes)
        return damaged("value %u of the model has %" PRIu64 " bytes, expected %" PRIu64, i,
                       v->file_bytes, bytes);
    return true;
}

static bool are_values(const DtrtProgram *p, uint32_t n, const int32_t *value) {
    if (n && !value) return false;
    for (uint32_t k = 0; k < n; k++)
        if (value[k] < -1 || value[k] >= (int64_t)p->nrefvalue) return false;
    return true;
}

static bool check_node(const DtrtProgram *p, uint32_t i) {
    const DtrtRefNode *n = &p->refnode[i];
    if (!n->op || !n->name) return damaged("node %u of the model has no name", i);
    if (!are_values(p, n->nin, n->in) || !are_values(p, n->nout, n->out))
        return damaged("node %u of the model has a value that is none of %u", i, p->nrefvalue);
    if (n->nattr && (!n->attr_name || !n->attr_i || !n->attr_f || !n->attr_n))
        return damaged("node %u of the model has no attributes", i);
    for (uint32_t k = 0; k < n->nattr; k++)
        if (!n->attr_name[k] || (n->attr_n[k] && !n->attr_i[k] && !n->attr_f[k]))
            return damaged("attribute %u of node %u of the model is empty", k, i);
    return true;
}

static bool check_output(const DtrtProgram *p) {
    if (p->ref_output < -1 || p->ref_output >= (int64_t)p->nrefvalue)
        return damaged("the model's output is value %d of %u", p->ref_output, p->nrefvalue);
    if (p->ref_output >= 0 && p->nclass > 0 && !has_axis(p, p->refvalue[p->ref_output].rank))
        return damaged("classes on axis %" PRId64 " of the model's output", p->class_axis);
    return true;
}

static bool check_all(const DtrtProgram *p, uint32_t n,
                      bool (*check)(const DtrtProgram *, uint32_t)) {
    for (uint32_t i = 0; i < n; i++)
        if (!check(p, i)) return false;
    return true;
}

Status dtrt_tables_check(const DtrtProgram *p) {
    bool ok = check_interface(p) && check_head(p) && check_all(p, p->ntensor, check_tensor) &&
              check_all(p, p->naddr, check_operand) && check_all(p, p->nrun, check_run) &&
              check_all(p, p->nstep, check_step) && check_loss(p) &&
              check_all(p, p->nrefvalue, check_value) && check_all(p, p->nrefnode, check_node) &&
              check_output(p);
    return ok ? ST_OK : ST_DATA;
}
