/* fuzz_plan.c - any bytes as a plan for one small training step: what the parser accepts, the
 * verifier can judge. The same step as text: tests/fuzz/step.ir, whose plans are the seeds. */
#include "plan.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char step_text[] =
    "graph \"step.ir\"\n"
    "%0 input f32[4,8] \"x\"\n"
    "%1 param f32[8,8] \"w\"\n"
    "%2 param f32[8,3] \"v\"\n"
    "%3 target i64[4] \"target\"\n"
    "fwd %4 f32[4,8] \"h\" = MatMul(%0, %1) \"h\"\n"
    "fwd %5 f32[4,8] \"r\" = Relu(%4) \"r\"\n"
    "fwd %6 f32[4,3] \"y\" = MatMul(%5, %2) \"y\"\n"
    "fwd %7 f32[] \"loss\" = SoftmaxCE(%6, %3) {axis=1} \"loss\"\n"
    "bwd %8 f32[] \"one\" = Fill() {value=1.0, shape=[]} \"one\"\n"
    "bwd %9 f32[4,3] \"dy\" = SoftmaxCEGrad(%8, %6, %3) {axis=1} \"dy\"\n"
    "bwd %10 f32[8,3] \"dv\" of %2 = MatMul(%5, %9) {trans_a=1} \"dv\"\n"
    "bwd %11 f32[4,8] \"dr\" = MatMul(%9, %2) {trans_b=1} \"dr\"\n"
    "upd Sgd(%2, %10) \"v.update\"\n"
    "bwd %12 f32[4,8] \"dh\" = ReluGrad(%11, %5) \"dh\"\n"
    "bwd %13 f32[8,8] \"dw\" of %1 = MatMul(%0, %12) {trans_a=1} \"dw\"\n"
    "upd Sgd(%1, %13) \"w.update\"\n"
    "output %7\nloss %7\nlogits %6\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Graph *g;
    static Cost *cost;
    if (!g) {
        Arena *keep = arena_new(); /* for the whole run */
        Diag d;
        diag_init(&d, keep, stderr);
        g = ir_parse(keep, &d, "step.ir", step_text);
        if (!g || !ir_verify(&d, g)) abort();
        cost = cost_analytic(keep, g, TARGET_CPU, 1);
    }
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    Plan *p = plan_parse_json(a, &d, "fuzz.json", (const char *)data, size, g, cost);
    if (!p && !d.errors) abort();
    if (p && !plan_verify(&d, g, cost, p) && !d.errors) abort();
    arena_free(a);
    return 0;
}
