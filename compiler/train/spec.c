/* spec.c - the texts of --loss and --optimizer, "KIND[:key=value,...]", to their structs and back.
 * A backslash keeps the next character from ending a value, so that any name can be written. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *key, *value; /* value NULL: the key stands alone */
} Pair;

typedef struct {
    Diag *d;
    Arena *arena;
    const char *option; /* "--loss", "--optimizer" */
    const char *kind;
    const char *keys; /* the keys of this kind, for messages */
    const char *rest; /* what is left to read; NULL at the end */
} Reader;

static bool bad(const Reader *r, const char *what, const char *found, const char *expected) {
    return diag_error(r->d, (Place){0}, "%s: %s: expected %s, found '%s'", r->option, what,
                      expected, diag_name(r->arena, found));
}

/* Up to the first unescaped `stop`, without the backslashes; *p moves behind it, or becomes NULL.
 */
static char *until(Arena *a, const char **p, char stop) {
    char *out = arena_alloc(a, strlen(*p) + 1), *o = out;
    const char *s = *p;
    for (; *s && *s != stop; s++) {
        if (*s == '\\' && s[1]) s++;
        *o++ = *s;
    }
    *p = *s ? s + 1 : NULL;
    return out;
}

static void read_kind(Reader *r, const char *s) {
    r->rest = s;
    r->kind = until(r->arena, &r->rest, ':');
}

static bool next_pair(Reader *r, Pair *out) {
    if (!r->rest) return false;
    const char *end = r->rest;
    while (*end && *end != ',' && *end != '=') end++;
    out->key = arena_strn(r->arena, r->rest, (size_t)(end - r->rest));
    out->value = NULL;
    r->rest = *end ? end + 1 : NULL;
    if (*end == '=') out->value = until(r->arena, &r->rest, ',');
    return true;
}

/* One of several words; -1 after no match. */
static int word(const char *s, const char *const *words) {
    for (int k = 0; words[k]; k++)
        if (!strcmp(s, words[k])) return k;
    return -1;
}

static bool read_text(const Reader *r, Pair p, const char **out) {
    if (!p.value || !*p.value) return bad(r, p.key, p.value ? p.value : "", "a name");
    *out = p.value;
    return true;
}

/* A number in lo..hi (both allowed). */
static bool read_number(const Reader *r, Pair p, double lo, double hi, double *out) {
    char *end = NULL;
    const char *s = p.value ? p.value : "";
    double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v) || v < lo || v > hi) {
        const char *range = isfinite(hi) ? arena_printf(r->arena, "a number of %g to %g", lo, hi)
                                         : arena_printf(r->arena, "a number of at least %g", lo);
        return bad(r, p.key, s, range);
    }
    *out = v;
    return true;
}

static bool read_integer(const Reader *r, Pair p, int64_t *out) {
    char *end = NULL;
    const char *s = p.value ? p.value : "";
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || errno) return bad(r, p.key, s, "an integer");
    *out = v;
    return true;
}

static bool read_bool(const Reader *r, Pair p, bool *out) {
    static const char *const words[] = {"false", "off", "0", "true", "on", "1", NULL};
    int k = p.value ? word(p.value, words) : 3;
    if (k < 0) return bad(r, p.key, p.value, "true or false");
    *out = k >= 3;
    return true;
}

static bool unknown_key(const Reader *r, Pair p) {
    return diag_error(r->d, (Place){0}, "%s: %s takes no key '%s': expected one of %s", r->option,
                      r->kind, diag_name(r->arena, p.key), r->keys);
}

static bool unknown_kind(const Reader *r, const char *const *kinds) {
    Text t;
    text_init(&t, r->arena);
    for (int k = 0; kinds[k]; k++) text_add(&t, "%s%s", k ? ", " : "", kinds[k]);
    return bad(r, "kind", r->kind, arena_printf(r->arena, "one of %s", t.at));
}

/* ---- --loss ---- */
static const char *const loss_kinds[] = {"cross-entropy", "nll",    "mse", "l1",
                                         "bce-logits",    "output", NULL};

const char *train_loss_name(LossKind k) {
    return loss_kinds[k];
}

bool train_over_classes(LossKind k) {
    return k == LOSS_CROSS_ENTROPY || k == LOSS_NLL;
}

bool train_parse_loss(Diag *d, Arena *a, const char *s, LossSpec *out) {
    Reader r = {.d = d, .arena = a, .option = "--loss"};
    Pair p;
    read_kind(&r, s);
    int kind = word(r.kind, loss_kinds);
    if (kind < 0) return unknown_kind(&r, loss_kinds);
    *out = (LossSpec){.kind = (LossKind)kind, .class_axis = 1};
    bool classes = train_over_classes(out->kind);
    r.keys = classes                    ? "output, label, class_axis, ignore_index, label_smoothing"
             : out->kind == LOSS_OUTPUT ? "output"
                                        : "output, label";
    while (next_pair(&r, &p)) {
        if (!strcmp(p.key, "output")) {
            TRY(read_text(&r, p, &out->output));
        } else if (!strcmp(p.key, "label") && out->kind != LOSS_OUTPUT) {
            TRY(read_text(&r, p, &out->label));
        } else if (!strcmp(p.key, "class_axis") && classes) {
            TRY(read_integer(&r, p, &out->class_axis));
        } else if (!strcmp(p.key, "ignore_index") && classes) {
            TRY(read_integer(&r, p, &out->ignore_index));
            out->has_ignore = true;
        } else if (!strcmp(p.key, "label_smoothing") && classes) {
            TRY(read_number(&r, p, 0, 1, &out->label_smoothing));
        } else {
            return unknown_key(&r, p);
        }
    }
    return true;
}

static void add_name(Text *t, const char *key, const char *name) {
    if (!name) return;
    text_add(t, "%s%s=", strchr(t->at, ':') ? "," : ":", key);
    for (const char *s = name; *s; s++) {
        if (*s == ',' || *s == '\\') text_char(t, '\\');
        text_char(t, *s);
    }
}
static void add_key(Text *t, const char *key, const char *value) {
    text_add(t, "%s%s=%s", strchr(t->at, ':') ? "," : ":", key, value);
}
static void add_number(Text *t, const char *key, double v) {
    add_key(t, key, arena_printf(t->arena, "%.17g", v));
}

const char *train_loss_str(Arena *a, const LossSpec *l) {
    Text t;
    text_init(&t, a);
    text_str(&t, loss_kinds[l->kind]);
    add_name(&t, "output", l->output);
    add_name(&t, "label", l->label);
    if (!train_over_classes(l->kind)) return t.at;
    if (l->class_axis != 1)
        add_key(&t, "class_axis", arena_printf(a, "%lld", (long long)l->class_axis));
    if (l->has_ignore)
        add_key(&t, "ignore_index", arena_printf(a, "%lld", (long long)l->ignore_index));
    if (l->label_smoothing != 0) add_number(&t, "label_smoothing", l->label_smoothing);
    return t.at;
}

/* ---- --optimizer: defaults are PyTorch's ---- */
static const char *const opt_kinds[] = {"sgd", "adam", "adamw", NULL};

const char *train_optimizer_name(OptKind k) {
    return opt_kinds[k];
}

/* "0.9/0.999" */
static bool read_betas(const Reader *r, Pair p, OptSpec *out) {
    const char *rest = p.value ? p.value : "";
    Pair one = {p.key, until(r->arena, &rest, '/')}, two = {p.key, rest};
    if (!rest) return bad(r, p.key, one.value, "two numbers such as 0.9/0.999");
    TRY(read_number(r, one, 0, 1, &out->beta1));
    TRY(read_number(r, two, 0, 1, &out->beta2));
    if (out->beta1 < 1 && out->beta2 < 1) return true;
    return bad(r, p.key, p.value, "two numbers below 1");
}

static bool read_sgd(const Reader *r, Pair p, OptSpec *out) {
    if (!strcmp(p.key, "momentum")) return read_number(r, p, 0, 1, &out->momentum);
    if (!strcmp(p.key, "dampening")) return read_number(r, p, 0, 1, &out->dampening);
    if (!strcmp(p.key, "nesterov")) return read_bool(r, p, &out->nesterov);
    return unknown_key(r, p);
}
static bool read_adam(const Reader *r, Pair p, OptSpec *out) {
    if (!strcmp(p.key, "betas")) return read_betas(r, p, out);
    if (!strcmp(p.key, "eps")) return read_number(r, p, 0, 1, &out->eps);
    return unknown_key(r, p);
}

bool train_parse_optimizer(Diag *d, Arena *a, const char *s, OptSpec *out) {
    Reader r = {.d = d, .arena = a, .option = "--optimizer"};
    Pair p;
    read_kind(&r, s);
    int kind = word(r.kind, opt_kinds);
    if (kind < 0) return unknown_kind(&r, opt_kinds);
    *out = (OptSpec){.kind = (OptKind)kind, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    out->lr = kind == OPT_SGD ? 0.01 : 0.001;
    out->weight_decay = kind == OPT_ADAMW ? 0.01 : 0;
    r.keys = kind == OPT_SGD ? "lr, weight_decay, momentum, dampening, nesterov"
                             : "lr, weight_decay, betas, eps";
    while (next_pair(&r, &p)) {
        if (!strcmp(p.key, "lr"))
            TRY(read_number(&r, p, 0, INFINITY, &out->lr));
        else if (!strcmp(p.key, "weight_decay"))
            TRY(read_number(&r, p, 0, INFINITY, &out->weight_decay));
        else
            TRY(kind == OPT_SGD ? read_sgd(&r, p, out) : read_adam(&r, p, out));
    }
    out->momentum_state = kind == OPT_SGD && out->momentum != 0;
    if (out->nesterov && (out->momentum == 0 || out->dampening != 0))
        return bad(&r, "nesterov", s, "a momentum above 0 and no dampening with it");
    return true;
}

const char *train_optimizer_str(Arena *a, const OptSpec *o) {
    Text t;
    text_init(&t, a);
    text_str(&t, opt_kinds[o->kind]);
    add_number(&t, "lr", o->lr);
    add_number(&t, "weight_decay", o->weight_decay);
    if (o->kind == OPT_SGD) {
        if (o->momentum != 0) add_number(&t, "momentum", o->momentum);
        if (o->dampening != 0) add_number(&t, "dampening", o->dampening);
        if (o->nesterov) add_key(&t, "nesterov", "true");
        return t.at;
    }
    add_key(&t, "betas", arena_printf(a, "%.17g/%.17g", o->beta1, o->beta2));
    add_number(&t, "eps", o->eps);
    return t.at;
}
