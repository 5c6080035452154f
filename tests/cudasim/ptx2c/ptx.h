/* ptx.h - the translator from PTX to C, inside: text -> tokens (lex.c) -> PtxModule (parse.c,
 * body.c) -> C (emit.c and emit_*.c). What PTX means is in "Parallel Thread Execution ISA", NVIDIA,
 * version 9.0. Accepted is the part that NVRTC makes of C++ kernels without textures, tensor cores
 * and asynchronous copies; everything else is refused with its line. */
#ifndef PTX_H
#define PTX_H

#include "ptx2c.h"

typedef enum {
    TY_NONE,
    TY_PRED,
    TY_B8,
    TY_U8,
    TY_S8,
    TY_B16,
    TY_U16,
    TY_S16,
    TY_F16,
    TY_BF16,
    TY_B32,
    TY_U32,
    TY_S32,
    TY_F32,
    TY_F16X2,
    TY_BF16X2,
    TY_B64,
    TY_U64,
    TY_S64,
    TY_F64,
    TY_COUNT
} PtxType;

typedef struct {
    const char *name; /* "f32" */
    uint32_t bits;
    char kind;     /* 'p' predicate, 'b' bits, 'u', 's' integers, 'f' float or double, 'h' halves */
    const char *c; /* C type of a value: "float" */
    const char *storage; /* C type of a register: "uint32_t" */
} PtxTypeInfo;
extern const PtxTypeInfo ptx_types[TY_COUNT];

typedef enum { SP_NONE, SP_PARAM, SP_GLOBAL, SP_CONST, SP_SHARED, SP_LOCAL } PtxSpace;

typedef enum {
    OPD_REG,     /* name, scope resolved later */
    OPD_SPECIAL, /* name: "%tid.x" */
    OPD_INT,     /* bits */
    OPD_F32,     /* bits */
    OPD_F64,     /* bits */
    OPD_SYMBOL,  /* variable, label or function: name */
    OPD_ADDRESS, /* [item[0] + offset] */
    OPD_LIST,    /* {a, b} or (a, b) */
    OPD_SINK     /* _ */
} OperandKind;

typedef struct Operand Operand;
struct Operand {
    OperandKind kind;
    bool negated; /* !p */
    const char *name;
    uint64_t bits;
    int64_t offset;
    Operand *item; /* of a list, or the base of an address */
    uint32_t nitem;
    Operand *second; /* the q of p|q */
};

enum { MAX_MODS = 10, MAX_OPERANDS = 6 };

/* One statement: an instruction or a label. */
typedef struct {
    uint32_t line, scope;
    const char *label; /* not NULL: a label, nothing else is set */
    const char *guard; /* predicate register, or NULL */
    bool guard_negated;
    const char *text; /* "ld.global.v4.f32", for comments and messages */
    const char *op;   /* "ld" */
    const char *mod[MAX_MODS];
    bool used[MAX_MODS]; /* the emitter knows this modifier; what stays unused is refused */
    uint32_t nmod;
    PtxType type[3]; /* in order of appearance */
    uint32_t ntype;
    Operand operand[MAX_OPERANDS];
    uint32_t noperand;
} Inst;

typedef struct {
    const char *name;
    uint32_t scope; /* 0: of the module or the function's parameters */
    PtxSpace space;
    PtxType type;
    uint32_t align;
    uint64_t bytes; /* 0: extern array */
    bool external;
    const uint8_t *init; /* bytes, or NULL */
    uint64_t offset;     /* in its space; the emitter's */
    uint32_t number;     /* of a __shared__ array among those of a kernel: 1, 2, .. */
} Variable;

typedef VEC(Variable) Variables;

typedef struct {
    const char *name;
    uint32_t scope;
    PtxType type;
} Register;

typedef struct {
    const char *name;
    uint32_t line;
    bool entry, has_body, collective;
    uint32_t max_threads;
    Variables params, results, vars; /* vars: of the body */
    VEC(Register) regs;              /* %r<10> is ten of them */
    Map *reg_index;                  /* "SCOPE NAME" -> index into regs */
    VEC(uint32_t) parent;            /* of each scope; scope 1 is the body, 0 has no parent */
    VEC(Inst) body;
} Function;

typedef struct {
    Arena *arena;
    const char *target;
    Variables vars;
    VEC(Function) functions;
    char *message; /* the first error */
    size_t message_size;
    bool failed;
} PtxModule;

/* lex.c */
typedef enum { TOK_END, TOK_WORD, TOK_NUMBER, TOK_STRING, TOK_CHAR } TokenKind;
typedef struct {
    TokenKind kind;
    uint32_t line;
    const char *text; /* WORD, STRING */
    char c;           /* CHAR */
    uint64_t bits;    /* NUMBER */
    char form;        /* NUMBER: 'i', 'f' (0f..), 'd' (0d..), 'v' (9.0, a version) */
} Token;
typedef struct {
    PtxModule *m;
    const char *at;
    uint32_t line;
    Token token; /* the current one */
} Lexer;
void lex_start(Lexer *l, PtxModule *m, const char *text);
void lex_next(Lexer *l);
bool lex_is(const Lexer *l, char c);
bool lex_is_word(const Lexer *l, const char *word);
bool lex_skip(Lexer *l, char c);           /* takes it if it is there */
bool lex_expect(Lexer *l, char c);         /* or fails */
bool lex_word(Lexer *l, const char **out); /* any word, or fails */
bool lex_number(Lexer *l, uint64_t *out);  /* an integer, or fails */

/* "line 12: ..." once; always false. */
bool ptx_fail(PtxModule *m, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* parse.c, body.c */
bool ptx_parse(PtxModule *m, const char *text);
PtxType ptx_type_named(const char *name); /* TY_NONE: no such */
bool parse_variable(Lexer *l, PtxSpace space, uint32_t scope, Variable *v);
bool parse_body(Lexer *l, Function *f);

/* names.c: what a name means at a place in a function */
const Register *find_register(const Function *f, uint32_t scope, const char *name);
const Variable *find_variable(const PtxModule *m, const Function *f, uint32_t scope,
                              const char *name);
const Inst *find_label(const Function *f, uint32_t scope, const char *name);
const Function *find_function(const PtxModule *m, const char *name);
/* A C identifier for a name; of the same name in another scope, another one. */
void put_name(Text *out, const char *name, uint32_t scope);

/* emit.c */
bool ptx_emit(PtxModule *m, Text *out);

/* What the emitters of instructions work on. */
typedef struct {
    PtxModule *m;
    const Function *f;
    Text *out;
    Inst *inst;
} Emit;

/* emit_inst.c */
bool emit_instruction(Emit *e);
bool has_mod(Emit *e, const char *mod); /* marks it as known */
bool fail_inst(Emit *e, const char *what);
bool need_operands(Emit *e, uint32_t n);
/* The operand as a C expression of this type. */
bool put_operand(Emit *e, const Operand *o, PtxType type);
/* "REG = " ... ";" around a C expression of this type, widened into the register. */
bool put_assign_begin(Emit *e, const Operand *dest, PtxType type);
void put_assign_end(Emit *e);
bool put_address(Emit *e, const Operand *address);        /* a 64-bit expression */
bool put_symbol_address(Emit *e, const char *name);       /* as above; of a variable */
PtxType unsigned_type(PtxType t, uint32_t at_least_bits); /* same width: for wrapping arithmetic */

/* One function a family; they return false after fail_inst. */
bool emit_alu(Emit *e, bool *known); /* emit_alu.c: from its table of forms */
bool emit_setp(Emit *e);             /* emit_convert.c */
bool emit_set(Emit *e);
bool emit_selp(Emit *e);
bool emit_slct(Emit *e);
bool emit_mov(Emit *e);
bool emit_cvt(Emit *e);
bool emit_cvta(Emit *e);
bool emit_ld(Emit *e); /* emit_memory.c */
bool emit_st(Emit *e);
bool emit_atom(Emit *e);
bool emit_bra(Emit *e); /* emit_control.c */
bool emit_call(Emit *e);
bool emit_ret(Emit *e);
bool emit_trap(Emit *e);
bool emit_bar(Emit *e);
bool emit_shfl(Emit *e);
bool emit_vote(Emit *e);
bool emit_redux(Emit *e);
bool emit_nothing(Emit *e);

#endif
