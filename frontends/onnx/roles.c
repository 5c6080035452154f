/* roles.c - what each initializer is for. ONNX does not say which ones are weights, so it is
 * inferred:
 *
 *   buffer    mean or variance of a BatchNormalization
 *   constant  integers and booleans; floats from which no gradient can reach an output (all ways
 *             end in comparisons, shapes, indices, conditions); exporter-made scalars; floats with
 *             an infinity among them; floats named and filled like masks, or named like tables of
 *             frequencies
 *   param     every other float that is read; --freeze does the rest
 *   frozen    a float that nothing reads
 *
 * Constants are known at compile time; all initializers become values, so that the role can be
 * shown.
 *
 * What inference exports did to weights is undone first (repair.c). */
#include "import.h"

#include <math.h>
#include <string.h>

/* ---- where gradients can flow ---- */

static bool is_batch_norm(const FileNode *f) {
    return f->live && !strcmp(f->p->op_type, "BatchNormalization") && f->nin == 5;
}

static bool passes_gradient(const FileNode *f, uint32_t i) {
    if (!f->row || i >= f->nin) return true;
    if (!(f->row->diff >> (i < 31 ? i : 31) & 1)) return false;
    if (strcmp(f->p->op_type, "Cast") != 0) return true;
    DType dt;
    for (size_t k = 0; k < f->p->n_attribute; k++) {
        const AttributeProto *a = f->p->attribute[k];
        if (a->name && !strcmp(a->name, "to") && a->i >= 0 && a->i <= INT32_MAX &&
            elem_dtype((int32_t)a->i, &dt))
            return is_real(dt);
    }
    return true;
}

/* Per slot: a change of it can change an output smoothly. */
static bool *fill_smooth(Import *x) {
    bool *smooth = ARENA_ARRAY(x->tmp, bool, x->slot.n);
    for (uint32_t s = 0; s < x->slot.n; s++) smooth[s] = x->slot.at[s].is_output;
    for (uint32_t k = x->nnode; k--;) {
        const FileNode *f = &x->node[x->order[k]];
        bool any = false;
        for (uint32_t i = 0; f->live && i < f->nout; i++)
            any |= f->out[i] != NO_ID && smooth[f->out[i]];
        for (uint32_t i = 0; any && i < f->nin + f->ncap; i++)
            if (f->in[i] != NO_ID && passes_gradient(f, i)) smooth[f->in[i]] = true;
    }
    return smooth;
}

/* Per slot, bits: read as running statistic of batch norm, as exponent of Pow. Exponents may be
 * trained as well (generalized-mean pooling, F. Radenovic et al., 2018): names decide. */
enum { AS_STATISTIC = 1, AS_EXPONENT = 2 };

static uint8_t *fill_uses(Import *x) {
    uint8_t *use = ARENA_ARRAY(x->tmp, uint8_t, x->slot.n);
    for (uint32_t k = 0; k < x->nnode; k++) {
        const FileNode *f = &x->node[k];
        for (uint32_t i = 3; is_batch_norm(f) && i < 5; i++)
            if (f->in[i] != NO_ID) use[f->in[i]] |= AS_STATISTIC;
        if (f->live && !strcmp(f->p->op_type, "Pow") && f->nin == 2 && f->in[1] != NO_ID)
            use[f->in[1]] |= AS_EXPONENT;
    }
    return use;
}

/* ---- names ---- */

/* Scalars that an exporter made of literals: "onnx::Mul_12", "/Constant_output_0", "123",
 * "const_fold". */
static bool is_made_name(const char *s) {
    return strchr(s, ':') || strchr(s, '/') || strstr(s, "onst") || !s[strspn(s, "0123456789")];
}

static bool ends_like(const char *name, const char *const *words) {
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    for (; *words; words++)
        if (strstr(last, *words)) return true;
    return false;
}

/* Only 0, 1 and numbers that stand for minus infinity. */
static bool is_filled_like_mask(const Tensor *t) {
    for (uint64_t i = 0; !t->missing && i < t->count; i++) {
        double v = tensor_real(t, i);
        if (v != 0 && v != 1 && !(v <= -1e4)) return false;
    }
    return true;
}

/* No step of an optimizer makes an infinity anything else, but NaN. */
static bool has_infinity(const Tensor *t) {
    for (uint64_t i = 0; !t->missing && i < t->count; i++)
        if (isinf(tensor_real(t, i))) return true;
    return false;
}

static bool is_named_constant(const char *name, const Tensor *t) {
    static const char *const masks[] = {"mask", "tril", "causal", NULL};
    static const char *const tables[] = {"inv_freq", "cos_cached", "sin_cached", NULL};
    return ends_like(name, tables) || (ends_like(name, masks) && is_filled_like_mask(t));
}

static Role choose_role(Import *x, const Init *init, bool smooth, uint8_t use) {
    const Slot *s = &x->slot.at[init->slot];
    const Tensor *t = &init->tensor;
    if (!is_real(t->dtype)) return ROLE_CONST;
    if (use & AS_STATISTIC) return ROLE_BUFFER;
    if (!s->nread && !s->is_output) return ROLE_FROZEN;
    if (!smooth) return ROLE_CONST;
    bool scalar = t->shape.rank == 0 || (use & AS_EXPONENT && t->count == 1);
    if (scalar && is_made_name(s->name)) return ROLE_CONST;
    if (is_named_constant(s->name, t)) {
        import_note(x, "'%s' is taken for a constant by its name", diag_name(x->tmp, s->name));
        return ROLE_CONST;
    }
    if (has_infinity(t)) return ROLE_CONST;
    return ROLE_PARAM;
}

/* ---- all of them ---- */

static bool read_tensors(Import *x) {
    for (uint32_t i = 0; i < x->init.n; i++) {
        Init *init = &x->init.at[i];
        const Init *first = &x->init.at[x->slot.at[slot_of(x, init->proto->name)].init];
        if (first != init) {
            init->tensor = first->tensor;
            continue;
        }
        Place p = {.file = x->file, .tensor = init->proto->name};
        TRY(tensor_read(x->a, x->d, &x->src, p, init->proto, &init->tensor));
    }
    return true;
}

bool roles_assign(Import *x) {
    repair_merged(x);
    TRY(read_tensors(x));
    repair_notes(x);
    bool *smooth = fill_smooth(x);
    uint8_t *use = fill_uses(x);
    for (uint32_t i = 0; i < x->init.n; i++) {
        Init *init = &x->init.at[i];
        Slot *s = &x->slot.at[init->slot];
        init->role = choose_role(x, init, smooth[init->slot], use[init->slot]);
        if (init->role == ROLE_CONST) s->known = &init->tensor;
        s->value = constant(x, s->name, &init->tensor, init->role);
        if (init->role == ROLE_FROZEN && !x->unsupported.n)
            import_note(x, "initializer '%s' is not used", diag_name(x->tmp, s->name));
        if (init->role == ROLE_CONST && init->tensor.missing && x->opt->need_weights)
            import_note(
                x, "constant '%s' is in an external file that is not there; zeros take its place",
                diag_name(x->tmp, s->name));
    }
    return true;
}
