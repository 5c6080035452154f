/* export.c - the model's file as a table of pieces, for --export of the program: bytes in the
 * payload, and holes for tensors (frontends/onnx/export.c says where). */
#include "gen.h"

static const char *elements_name(OnnxElements e) {
    return e == ONNX_AS_F16 ? "DTRT_AS_F16" : e == ONNX_AS_BF16 ? "DTRT_AS_BF16" : "DTRT_AS_IT_IS";
}

void cg_print_pieces(const Gen *g, Text *t) {
    const OnnxExport *x = &g->o->model_file;
    if (!x->n) return;
    text_str(
        t,
        "/* The model's file: tensor or -1, its elements, payload offset, bytes in the file. */\n"
        "static const DtrtPiece pieces[] = {\n");
    for (uint32_t i = 0; i < x->n; i++) {
        const OnnxPiece *p = &x->piece[i];
        text_add(t, "    {%d, %s, %llu, %llu},\n",
                 p->value == NO_ID ? -1 : (int)g->tensor_of[p->value], elements_name(p->as),
                 (unsigned long long)g->piece_offset[i], (unsigned long long)p->n);
    }
    text_str(t, "};\n\n");
}
