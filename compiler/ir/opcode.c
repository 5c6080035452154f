/* opcode.c - the few facts about operators that this room needs to print, parse and verify a graph
 * by itself: names, which are views, which write to their inputs. The full rows are in ops; a test
 * there checks that both agree. */
#include "ir.h"

#include <string.h>

static const char *const name[OP_COUNT] = {
    "None",
#define OP(n, what) #n,
#include "ops.def"
#undef OP
};

const char *ir_op_name(OpCode op) {
    return op < OP_COUNT ? name[op] : "?";
}

OpCode ir_op_by_name(const char *s) {
    for (OpCode op = 1; op < OP_COUNT; op++)
        if (!strcmp(name[op], s)) return op;
    return OP_NONE;
}

uint32_t ir_op_mutates(OpCode op) {
    switch (op) {
    case OP_BnUpdate: return 1 << 0 | 1 << 1;
    case OP_Sgd: return 1 << 0 | 1 << 2;
    case OP_Adam:
    case OP_AdamW: return 1 << 0 | 1 << 2 | 1 << 3;
    default: return 0;
    }
}

NodeClass ir_op_class(OpCode op) {
    if (ir_op_mutates(op)) return CLS_EFFECT;
    if (op == OP_Reshape || op == OP_OpaqueView) return CLS_VIEW;
    bool random =
        op == OP_Dropout || op == OP_Bernoulli || op == OP_RandomUniform || op == OP_RandomNormal;
    return random ? CLS_RANDOM : CLS_PURE;
}
