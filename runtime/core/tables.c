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
    if (p->persistent_bytes > INT64_MAX || p->plan.arena_bytes > INT64_MAX - p->persistent_bytes)
        return damaged("%" PRIu64 " + %" PRIu64 " bytes of memory", p->persistent_bytes,
                       p->plan.arena_bytes);
    if (p->threads < 1) return damaged("%d threads", p->threads);
    const DtrtSchedule *s = &p->plan;
    if (p->ntensor > INT32_MAX || p->nstorage > INT32_MAX || p->nnode > INT32_MAX ||
        s->nrun > INT32_MAX || s->nstep > INT32_MAX || p->nrefvalue > INT32_MAX)
        return damaged("a table is too long");
    if ((p->ntensor && !p->tensor) || (p->nstorage && !p->storage) || (p->nnode && !p->node) ||
        (p->noperand && !p->operand) || (s->nrun && !s->run) || (s->nstep && !s->step) ||
        (s->naddr && !s->addr) || (p->nrefnode && !p->refnode) || (p->nrefvalue && !p->refvalue) ||
        (p->npiece && !p->piece))
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

/* Every operand belongs to a node, every address to a run. Comes first: what follows trusts the
 * lengths of these tables. */
static bool check_lengths(const DtrtProgram *p) {
    uint64_t operands = 0, addresses = 0;
    for (uint32_t i = 0; i < p->nnode; i++) operands += (uint64_t)p->node[i].nin + p->node[i].nout;
    for (uint32_t i = 0; i < p->plan.nrun; i++) {
        uint32_t node = p->plan.run[i].node;
        if (node >= p->nnode) return damaged("run %u is node %u of %u", i, node, p->nnode);
        const DtrtNode *n = &p->node[node];
        addresses += (uint64_t)n->nin + n->nout + 1;
    }
    if (operands == p->noperand && addresses == p->plan.naddr) return true;
    return damaged("%" PRIu64 " operands in a table of %u, %" PRIu64 " addresses in one of %u",
                   operands, p->noperand, addresses, p->plan.naddr);
}

static bool check_storage(const DtrtProgram *p, uint32_t i) {
    const DtrtStorage *s = &p->storage[i];
    if ((int)s->type < DTRT_F32 || s->type > DTRT_BOOL)
        return damaged("storage %u has type %d", i, (int)s->type);
    if (s->tensor < -1 || s->tensor >= (int64_t)p->ntensor)
        return damaged("storage %u is tensor %d of %u", i, s->tensor, p->ntensor);
    if (s->tensor >= 0 && s->bytes != p->tensor[s->tensor].bytes)
        return damaged("storage %u has %" PRIu64 " bytes, its tensor %" PRIu64, i, s->bytes,
                       p->tensor[s->tensor].bytes);
    return true;
}

static bool check_operand(const DtrtProgram *p, uint32_t i) {
    if (p->operand[i] >= -1 && p->operand[i] < (int64_t)p->nstorage) return true;
    return damaged("operand %u is storage %d of %u", i, p->operand[i], p->nstorage);
}

/* Input 1 of an update is a gradient as large as its parameter. */
static bool check_gradient(const DtrtProgram *p, uint32_t i) {
    const DtrtNode *n = &p->node[i];
    if (n->param < -1 || n->param >= (int64_t)p->ntensor)
        return damaged("node %u updates tensor %d of %u", i, n->param, p->ntensor);
    int32_t g = n->nin < 2 ? -1 : p->operand[n->first + 1];
    if (g < 0 || p->storage[g].type != DTRT_F32 || p->storage[g].bytes < p->tensor[n->param].bytes)
        return damaged("node %u updates tensor %d without its gradient", i, n->param);
    return true;
}

static bool check_node(const DtrtProgram *p, uint32_t i) {
    const DtrtNode *n = &p->node[i];
    if (!n->run || !n->name || !n->op) return damaged("node %u has no code or no name", i);
    if (!inside(n->first, (uint64_t)n->nin + n->nout, p->noperand))
        return damaged("node %u has operands %u + %u + %u of %u", i, n->first, n->nin, n->nout,
                       p->noperand);
    if (n->phase > 2) return damaged("node %u has phase %u", i, n->phase);
    if (n->workspace > INT64_MAX) return damaged("node %u has no workspace size", i);
    return n->param == -1 || check_gradient(p, i);
}

static bool check_address(const DtrtProgram *p, uint32_t run, uint32_t k) {
    const DtrtNode *n = &p->node[p->plan.run[run].node];
    uint64_t at = p->plan.addr[p->plan.run[run].first + k];
    uint64_t end = p->persistent_bytes + p->plan.arena_bytes;
    bool works = k == n->nin + n->nout;
    int32_t storage = works ? -1 : p->operand[n->first + k];
    if (at == DTRT_NOWHERE) return true;
    if (!works && storage < 0)
        return damaged("run %u has an address for operand %u, which is absent", run, k);
    uint64_t bytes = works ? n->workspace : p->storage[storage].bytes;
    if (is_place(at, bytes, works ? DTRT_F64 : p->storage[storage].type, end)) return true;
    return damaged("operand %u of run %u lies at %" PRIu64 " with %" PRIu64
                   " bytes, the block has %" PRIu64,
                   k, run, at, bytes, end);
}

static bool check_run(const DtrtProgram *p, uint32_t i) {
    const DtrtRun *r = &p->plan.run[i];
    const DtrtNode *n = &p->node[r->node];
    if (!inside(r->first, (uint64_t)n->nin + n->nout + 1, p->plan.naddr))
        return damaged("run %u has addresses %u + %u + %u + 1 of %u", i, r->first, n->nin, n->nout,
                       p->plan.naddr);
    for (uint32_t k = 0; k <= n->nin + n->nout; k++)
        if (!check_address(p, i, k)) return false;
    if (n->param >= 0 && p->plan.addr[r->first + 1] == DTRT_NOWHERE)
        return damaged("run %u updates tensor %d without its gradient", i, n->param);
    return true;
}

static bool check_step(const DtrtProgram *p, uint32_t i) {
    const DtrtStep *s = &p->plan.step[i];
    if (s->run < -1 || s->run >= (int64_t)p->plan.nrun)
        return damaged("step %u is run %d of %u", i, s->run, p->plan.nrun);
    if (s->run >= 0) return true;
    if (s->storage < 0 || s->storage >= (int64_t)p->nstorage)
        return damaged("step %u drops storage %d of %u", i, s->storage, p->nstorage);
    if (!inside(s->offset, p->storage[s->storage].bytes, p->persistent_bytes + p->plan.arena_bytes))
        return damaged("step %u drops %" PRIu64 " + %" PRIu64 " bytes, outside the block", i,
                       s->offset, p->storage[s->storage].bytes);
    return true;
}

/* The axis of the classes lies in an array of this rank. */
static bool has_axis(const DtrtProgram *p, int rank) {
    return p->class_axis >= -rank && p->class_axis < rank;
}

static bool check_loss(const DtrtProgram *p) {
    const DtrtTensor *target = dtrt_program_target(p);
    uint64_t bytes;
    if (p->loss_storage < 0 || p->loss_storage >= (int64_t)p->nstorage ||
        p->storage[p->loss_storage].type != DTRT_F32 ||
        p->storage[p->loss_storage].bytes < sizeof(float))
        return damaged("the loss is storage %d of %u", p->loss_storage, p->nstorage);
    if (p->logits_storage < 0) return true;
    if (p->logits_storage >= (int64_t)p->nstorage ||
        !array_bytes(DTRT_F32, p->logits_rank, p->logits_dim, &bytes) ||
        p->storage[p->logits_storage].type != DTRT_F32 ||
        p->storage[p->logits_storage].bytes < bytes)
        return damaged("the model's output is storage %d of %u", p->logits_storage, p->nstorage);
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

static bool check_ref_node(const DtrtProgram *p, uint32_t i) {
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

static bool check_piece(const DtrtProgram *p, uint32_t i) {
    const DtrtPiece *piece = &p->piece[i];
    if (piece->tensor < 0) return true; /* dtrt_payload_read looks */
    if ((uint32_t)piece->tensor >= p->ntensor)
        return damaged("piece %u is tensor %d of %u", i, piece->tensor, p->ntensor);
    const DtrtTensor *t = &p->tensor[piece->tensor];
    uint64_t size = piece->as == DTRT_AS_IT_IS ? dtrt_type_bytes(t->type) : 2;
    if ((piece->as == DTRT_AS_IT_IS || t->type == DTRT_F32) &&
        piece->bytes == dtrt_tensor_count(t) * size)
        return true;
    return damaged("piece %u has %" PRIu64 " bytes, tensor %d another number", i, piece->bytes,
                   piece->tensor);
}

static bool check_all(const DtrtProgram *p, uint32_t n,
                      bool (*check)(const DtrtProgram *, uint32_t)) {
    for (uint32_t i = 0; i < n; i++)
        if (!check(p, i)) return false;
    return true;
}

Status dtrt_tables_check(const DtrtProgram *p) {
    bool ok = check_interface(p) && check_head(p) && check_lengths(p) &&
              check_all(p, p->ntensor, check_tensor) && check_all(p, p->nstorage, check_storage) &&
              check_all(p, p->noperand, check_operand) && check_all(p, p->nnode, check_node) &&
              check_all(p, p->plan.nrun, check_run) && check_all(p, p->plan.nstep, check_step) &&
              check_loss(p) && check_all(p, p->nrefvalue, check_value) &&
              check_all(p, p->nrefnode, check_ref_node) && check_output(p) &&
              check_all(p, p->npiece, check_piece);
    return ok ? ST_OK : ST_DATA;
}
