/* repair.c - what exporters do to weights that hurts training, undone or at least said.
 *
 * Inference exports merge initializers of equal bytes and hand out copies through Identity nodes,
 * which would tie weights that only start equal; running statistics may be shared in the same way.
 * Such weights get private copies under the Identity's name. What cannot be undone (batch norm
 * folded into convolutions, tied weights split in two, Dropout that is off) is noted with the
 * export that avoids it. */
#include "import.h"

#include <string.h>

#define RE_EXPORT "re-export with training=TrainingMode.TRAINING, do_constant_folding=False"

/* ---- merged initializers ---- */

static bool is_float_elem(const TensorProto *t) {
    DType dt;
    return elem_dtype(t->data_type, &dt) && is_real(dt);
}

static void private_copy(Import *x, uint32_t of, uint32_t slot) {
    Init copy = {.proto = x->init.at[of].proto, .slot = slot};
    Slot *s = &x->slot.at[slot];
    s->init = x->init.n;
    s->node = NO_ID;
    VEC_PUSH(x->tmp, x->init, copy);
}

/* Per slot: what it is read as, by live nodes. */
enum { AS_EMBEDDING = 1, AS_MATRIX = 2 };

static uint8_t *fill_readers(Import *x) {
    static const char *const matrix[] = {"MatMul", "Gemm", "Transpose"};
    uint8_t *reader = ARENA_ARRAY(x->tmp, uint8_t, x->slot.n);
    for (uint32_t k = 0; k < x->nnode; k++) {
        const FileNode *f = &x->node[k];
        for (uint32_t i = 0; f->live && i < f->nin && i < 2; i++) {
            if (f->in[i] == NO_ID) continue;
            if (i == 0 && !strcmp(f->p->op_type, "Gather")) reader[f->in[i]] |= AS_EMBEDDING;
            for (size_t m = 0; m < sizeof matrix / sizeof *matrix; m++)
                if (!strcmp(f->p->op_type, matrix[m])) reader[f->in[i]] |= AS_MATRIX;
        }
    }
    return reader;
}

/* An embedding that is also the matrix of a product is meant to be one weight. */
static uint32_t untie_identities(Import *x) {
    uint32_t count = 0;
    const uint8_t *reader = fill_readers(x);
    for (uint32_t k = 0; k < x->nnode; k++) {
        FileNode *f = &x->node[x->order[k]];
        if (!f->live || strcmp(f->p->op_type, "Identity") != 0 || f->nin != 1 || f->nout != 1)
            continue;
        if (f->in[0] == NO_ID || f->out[0] == NO_ID) continue;
        Slot *from = &x->slot.at[f->in[0]], *to = &x->slot.at[f->out[0]];
        if (from->init == NO_ID || from->nread < 2 || to->is_output) continue;
        if (!is_float_elem(x->init.at[from->init].proto)) continue;
        if (reader[f->in[0]] && reader[f->out[0]] && reader[f->in[0]] != reader[f->out[0]]) {
            import_note(x, "'%s' is an embedding and a matrix: kept tied, one weight",
                        diag_name(x->tmp, from->name));
            continue;
        }
        from->nread--;
        from->uses--;
        f->live = false;
        private_copy(x, from->init, f->out[0]);
        count++;
    }
    return count;
}

static bool is_batch_norm(const FileNode *f) {
    return f->live && !strcmp(f->p->op_type, "BatchNormalization") && f->nin == 5;
}

/* Running statistics that something else reads too. */
static uint32_t untie_statistics(Import *x) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < x->nnode; k++) {
        FileNode *f = &x->node[x->order[k]];
        for (uint32_t i = 3; is_batch_norm(f) && i < 5; i++) {
            if (f->in[i] == NO_ID) continue;
            Slot *s = &x->slot.at[f->in[i]];
            if (s->init == NO_ID || s->nread < 2) continue;
            const char *name = arena_printf(x->tmp, "%s.%s", f->name, i == 3 ? "mean" : "var");
            if (slot_of(x, name) != NO_ID) continue;
            s->nread--;
            s->uses--;
            uint32_t init = s->init, copy = slot_new(x, name);
            x->slot.at[copy].nread = x->slot.at[copy].uses = 1;
            f->in[i] = copy;
            private_copy(x, init, copy);
            count++;
        }
    }
    return count;
}

void repair_merged(Import *x) {
    uint32_t untied = untie_identities(x) + untie_statistics(x);
    if (untied)
        import_note(x, "untied %u: weights that the exporter had merged because they were equal",
                    untied);
}

/* ---- what cannot be undone ---- */

static bool starts(const char *s, const char *with) {
    return !strncmp(s, with, strlen(with));
}

static uint32_t count_op(const Import *x, const char *op) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < x->nnode; k++) n += !strcmp(x->node[k].p->op_type, op);
    return n;
}

static void note_inference_export(Import *x) {
    uint32_t conv = count_op(x, "Conv"), norm = count_op(x, "BatchNormalization");
    uint32_t folded = 0, turned = 0;
    for (uint32_t i = 0; i < x->init.n; i++) {
        const char *name = x->slot.at[x->init.at[i].slot].name;
        folded += starts(name, "onnx::Conv_");
        turned += starts(name, "onnx::MatMul_") || starts(name, "onnx::Gemm_");
    }
    if (conv && !norm && folded)
        import_note(x,
                    "looks like an inference export: %u Conv, 0 BatchNormalization, %u weights "
                    "named onnx::Conv_*; " RE_EXPORT,
                    conv, folded);
    else if (turned && !count_op(x, "Dropout"))
        import_note(x,
                    "looks like an inference export: %u weights named onnx::MatMul_*, 0 Dropout; "
                    "if the model has Dropout, it is lost: " RE_EXPORT,
                    turned);
}

/* Dropout says by a constant flag whether it drops (from operator set 12 on; before that, a
 * training export has the output of the mask). */
static void note_idle_dropout(Import *x) {
    uint32_t idle = 0;
    for (uint32_t k = 0; k < x->nnode; k++) {
        const FileNode *f = &x->node[k];
        if (!f->live || strcmp(f->p->op_type, "Dropout") != 0) continue;
        bool has_flag = f->nin > 2 && f->in[2] != NO_ID;
        bool has_mask = f->nout > 1 && f->out[1] != NO_ID;
        idle += x->opset < 12 ? !has_mask : !has_flag;
    }
    if (idle)
        import_note(x, "%u Dropout nodes are in inference mode and do nothing; " RE_EXPORT, idle);
}

/* Equal numbers, b as it is or transposed. */
static bool same_numbers(const Tensor *a, const Tensor *b, bool turned) {
    uint64_t rows = (uint64_t)a->shape.dim[0], columns = (uint64_t)a->shape.dim[1];
    bool varies = false;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            double v = tensor_real(a, r * columns + c);
            if (v != tensor_real(b, turned ? c * rows + r : r * columns + c)) return false;
            varies |= v != tensor_real(a, 0);
        }
    return varies;
}

/* An embedding whose numbers another weight has, too: they were one before constants were folded.
 */
static void note_split(Import *x, const Init *e) {
    const Shape *s = &e->tensor.shape;
    for (uint32_t i = 0; i < x->init.n; i++) {
        const Init *o = &x->init.at[i];
        const Shape *t = &o->tensor.shape;
        if (o == e || t->rank != 2 || o->tensor.missing || o->tensor.dtype != e->tensor.dtype)
            continue;
        bool same = t->dim[0] == s->dim[0] && t->dim[1] == s->dim[1];
        bool turned = t->dim[0] == s->dim[1] && t->dim[1] == s->dim[0];
        if (!(same && same_numbers(&e->tensor, &o->tensor, false)) &&
            !(turned && same_numbers(&e->tensor, &o->tensor, true)))
            continue;
        import_note(x,
                    "'%s' and '%s' hold the same numbers: if they are one tied weight, the export "
                    "split it and they are trained apart; " RE_EXPORT,
                    diag_name(x->tmp, x->slot.at[e->slot].name),
                    diag_name(x->tmp, x->slot.at[o->slot].name));
    }
}

static void note_split_weights(Import *x) {
    const uint8_t *reader = fill_readers(x);
    for (uint32_t i = 0; i < x->init.n; i++) {
        const Init *e = &x->init.at[i];
        bool matrix = e->tensor.shape.rank == 2 && is_real(e->tensor.dtype) && e->tensor.count > 1;
        if (matrix && !e->tensor.missing && reader[e->slot] == AS_EMBEDDING) note_split(x, e);
    }
}

void repair_notes(Import *x) {
    note_inference_export(x);
    note_idle_dropout(x);
    note_split_weights(x);
}
