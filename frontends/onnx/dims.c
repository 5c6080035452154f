/* dims.c - model inputs and their symbolic dimensions. A training program has fixed shapes, so
 * every symbol is bound here: --dim NAME=N, or --batch N for the symbols that stand on axis 0 of an
 * input. Dimensions without a name (also 0 and -1, which some exporters write) are called
 * INPUT[AXIS]. What stays unbound is reported at once. */
#include "import.h"

#include <string.h>

typedef struct {
    const char *name;
    int64_t size; /* 0: not bound */
    bool first;   /* stands on axis 0 of an input */
} Symbol;

typedef struct {
    Map *by_name;
    Symbol *at;
    uint32_t n, cap;
} Symbols;

static const Onnx__TensorShapeProto *input_shape(const ValueInfoProto *v) {
    if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
    return v->type->tensor_type->shape;
}

static const char *symbol_name(Import *x, const ValueInfoProto *v, uint32_t axis) {
    const Onnx__TensorShapeProto__Dimension *d = input_shape(v)->dim[axis];
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param)
        return d->dim_param;
    bool fixed = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (fixed && d->dim_value > 0) return NULL;
    return arena_printf(x->a, "%s[%u]", v->name, axis);
}

static bool is_model_input(Import *x, const ValueInfoProto *v) {
    return x->slot.at[slot_of(x, v->name)].input != NO_ID;
}

static bool check_input(Import *x, const ValueInfoProto *v) {
    Place p = {.file = x->file, .tensor = v->name};
    const Onnx__TensorShapeProto *s = input_shape(v);
    DType dt;
    if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return diag_error(x->d, p, "model inputs must be tensors, found another type");
    int32_t elem = v->type->tensor_type->elem_type;
    if (!elem_dtype(elem, &dt) || dt == DT_F64)
        return diag_error(x->d, p, "expected a float, int64, int32 or bool input, found %s",
                          elem_name(elem));
    if (!s) return diag_error(x->d, p, "the input has no shape; export the model with shapes");
    if (s->n_dim > IR_MAX_RANK)
        return diag_error(x->d, p, "expected at most %d axes, found %zu", IR_MAX_RANK, s->n_dim);
    return true;
}

static Symbol *find_symbol(Symbols *s, const char *name) {
    uint32_t i = map_get(s->by_name, name);
    return i == NO_ID ? NULL : &s->at[i];
}

static bool collect(Import *x, Symbols *out) {
    for (size_t i = 0; i < x->graph->n_input; i++) {
        const ValueInfoProto *v = x->graph->input[i];
        if (!is_model_input(x, v)) continue;
        TRY(check_input(x, v));
        for (uint32_t k = 0; k < input_shape(v)->n_dim; k++) {
            const char *name = symbol_name(x, v, k);
            if (!name) continue;
            if (!find_symbol(out, name)) {
                map_put(out->by_name, name, out->n);
                Symbol s = {.name = name};
                VEC_PUSH(x->tmp, *out, s);
            }
            find_symbol(out, name)->first |= k == 0;
        }
    }
    return true;
}

#define MAX_SHOWN 20

static const char *list_unbound(Import *x, const Symbols *s) {
    Text t;
    text_init(&t, x->tmp);
    text_str(&t, "");
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->at[i].size) continue;
        if (n < MAX_SHOWN) text_add(&t, "%s%s", n ? ", " : "", diag_name(x->tmp, s->at[i].name));
        n++;
    }
    if (n > MAX_SHOWN) text_add(&t, " and %u more", n - MAX_SHOWN);
    return t.at;
}

/* "--batch 32 --dim 'T=128'" for the ones that are unbound. */
static const char *example_options(Import *x, const Symbols *s) {
    Text t;
    text_init(&t, x->tmp);
    text_str(&t, "");
    bool batch = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) batch |= s->at[i].first && !s->at[i].size;
    if (batch) text_str(&t, " --batch 32");
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->at[i].size && !s->at[i].first && n++ < MAX_SHOWN)
            text_add(&t, " --dim '%s=128'", diag_name(x->tmp, s->at[i].name));
    return t.at;
}

static bool apply_dims(Import *x, Symbols *s) {
    for (uint32_t i = 0; i < x->opt->ndim; i++) {
        const DimBinding *b = &x->opt->dim[i];
        Place p = {.file = x->file};
        Symbol *sym = find_symbol(s, b->name);
        if (!sym) { /* harmless: what it was meant for is reported as unbound */
            diag_warn(x->d, p, "no dimension is called '%s'; --dim %s=%lld does nothing",
                      diag_name(x->tmp, b->name), diag_name(x->tmp, b->name), (long long)b->size);
            continue;
        }
        if (b->size <= 0)
            return diag_error(x->d, p, "dimension '%s' must be positive, found %lld",
                              diag_name(x->d->arena, b->name), (long long)b->size);
        sym->size = b->size;
    }
    return true;
}

/* --batch where no symbol stands on axis 0: right only if an input has that size already. */
static bool check_fixed_batch(Import *x) {
    const ValueInfoProto *odd = NULL;
    int64_t found = 0;
    for (size_t i = 0; i < x->graph->n_input; i++) {
        const ValueInfoProto *v = x->graph->input[i];
        if (!is_model_input(x, v) || !input_shape(v)->n_dim || symbol_name(x, v, 0)) continue;
        int64_t n = input_shape(v)->dim[0]->dim_value;
        if (n == x->opt->batch) return true;
        if (!odd) odd = v, found = n;
    }
    if (!odd) return true;
    diag_error(x->d, (Place){.file = x->file, .tensor = odd->name},
               "axis 0 is fixed to %lld in the model, --batch asks for %lld", (long long)found,
               (long long)x->opt->batch);
    diag_hint(x->d, "re-export with a symbolic batch (dynamic_axes), or use --batch %lld",
              (long long)found);
    return false;
}

static bool bind_symbols(Import *x, Symbols *s) {
    uint32_t nfirst = 0, nunbound = 0;
    TRY(apply_dims(x, s));
    for (uint32_t i = 0; i < s->n; i++) {
        Symbol *sym = &s->at[i];
        nfirst += sym->first;
        if (sym->first && !sym->size && x->opt->batch > 0) sym->size = x->opt->batch;
        if (!sym->size && x->opt->inference_default) sym->size = 1;
        nunbound += !sym->size;
    }
    if (!nfirst && x->opt->batch > 0) TRY(check_fixed_batch(x));
    if (!nunbound) return true;
    diag_error(x->d, (Place){.file = x->file}, "dimensions without a size: %s", list_unbound(x, s));
    diag_hint(x->d, "give them sizes, for example%s", example_options(x, s));
    return false;
}

static bool make_input(Import *x, Symbols *s, const ValueInfoProto *v) {
    Slot *slot = &x->slot.at[slot_of(x, v->name)];
    Place p = {.file = x->file, .tensor = v->name};
    Shape shape = {.rank = (uint32_t)input_shape(v)->n_dim};
    for (uint32_t k = 0; k < shape.rank; k++) {
        const char *name = symbol_name(x, v, k);
        shape.dim[k] = name ? find_symbol(s, name)->size : input_shape(v)->dim[k]->dim_value;
    }
    uint64_t count;
    if (!shape_count(&shape, &count) || count > MAX_TENSOR_BYTES / 8)
        return diag_error(x->d, p, "shape %s is too large", shape_str(x->d->arena, &shape));
    if (!slot->nread && !slot->is_output) {
        import_note(x, "input '%s' is not used", diag_name(x->tmp, v->name));
        return true;
    }
    DType dt = DT_F32;
    elem_dtype(v->type->tensor_type->elem_type, &dt);
    slot->value = ir_value(x->g, v->name, dt, &shape, ROLE_INPUT);
    return true;
}

static void fill_info(Import *x, const Symbols *s, bool ok) {
    OnnxInfo *info = x->info;
    if (!info) return;
    info->nsymbol = s->n;
    info->symbol = ARENA_ARRAY(x->a, const char *, s->n);
    info->symbol_size = ARENA_ARRAY(x->a, int64_t, s->n);
    info->symbol_batch = ARENA_ARRAY(x->a, bool, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        info->symbol[i] = arena_str(x->a, s->at[i].name);
        info->symbol_size[i] = ok ? s->at[i].size : 0;
        info->symbol_batch[i] = s->at[i].first;
    }
}

bool dims_bind(Import *x) {
    Symbols s = {.by_name = map_new(x->tmp)};
    TRY(collect(x, &s));
    bool ok = bind_symbols(x, &s);
    fill_info(x, &s, ok);
    TRY(ok);
    for (size_t i = 0; i < x->graph->n_input; i++)
        if (is_model_input(x, x->graph->input[i])) TRY(make_input(x, &s, x->graph->input[i]));
    return true;
}
