/* test_clean.c - clean.c and lower.c: small graphs before and after. */
#include "golden.h"

/* The second Relu equals the first; Neg is dead; an unread constant goes, an unread input stays. */
static void shares_and_drops(void) {
    CHECK_STR(after(simplify_clean, "graph \"m\"\n"
                                    "%0 input f32[2,3] \"x\"\n"
                                    "%1 const f32[] \"c\" fill(1)\n"
                                    "%2 input f32[2] \"unread\"\n"
                                    "fwd %3 f32[2,3] \"r1\" = Relu(%0) \"n1\"\n"
                                    "fwd %4 f32[2,3] \"dead\" = Neg(%0) \"n2\"\n"
                                    "fwd %5 f32[2,3] \"r2\" = Relu(%0) \"n3\"\n"
                                    "fwd %6 f32[2,3] \"y\" = Add(%3, %5) \"n4\"\n"
                                    "output %6\n"),
              "graph \"m\"\n"
              "%0 input f32[2,3] \"x\"\n"
              "%1 input f32[2] \"unread\"\n"
              "fwd %2 f32[2,3] \"r1\" = Relu(%0) \"n1\"\n"
              "fwd %3 f32[2,3] \"y\" = Add(%2, %2) \"n4\"\n"
              "output %3\n");
}

/* [2,3,4] -> perm 1,0,2 -> perm 1,0,2 is the identity; with perm 2,0,1 after 0,2,1 it is (1,0,2)
 * over the first operand (both[i] = first[perm[i]] = {0,2,1}[{2,0,1}] = {1,0,2}), which n1 is, too.
 */
static void composes_transposes(void) {
    CHECK_STR(after(simplify_clean,
                    "graph \"m\"\n"
                    "%0 input f32[2,3,4] \"x\"\n"
                    "fwd %1 f32[3,2,4] \"a\" = Transpose(%0) {perm=[1,0,2]} \"n1\"\n"
                    "fwd %2 f32[2,3,4] \"b\" = Transpose(%1) {perm=[1,0,2]} \"n2\"\n"
                    "fwd %3 f32[2,4,3] \"c\" = Transpose(%0) {perm=[0,2,1]} \"n3\"\n"
                    "fwd %4 f32[3,2,4] \"d\" = Transpose(%3) {perm=[2,0,1]} \"n4\"\n"
                    "fwd %5 f32[2,3,4] \"y\" = Neg(%2) \"n5\"\n"
                    "fwd %6 f32[3,2,4] \"z\" = Neg(%4) \"n6\"\n"
                    "output %5, %6\n"),
              "graph \"m\"\n"
              "%0 input f32[2,3,4] \"x\"\n"
              "fwd %1 f32[3,2,4] \"a\" = Transpose(%0) {perm=[1,0,2]} \"n1\"\n"
              "fwd %2 f32[2,3,4] \"y\" = Neg(%0) \"n5\"\n"
              "fwd %3 f32[3,2,4] \"z\" = Neg(%1) \"n6\"\n"
              "output %2, %3\n");
}

/* A Transpose that moves only an axis of size 1 is a view, views of views are one, and a view to
 * the shape that was there before is nothing. */
static void forms_views(void) {
    CHECK_STR(after(simplify_clean,
                    "graph \"m\"\n"
                    "%0 input f32[2,1,4] \"x\"\n"
                    "fwd %1 f32[2,4,1] \"a\" = Transpose(%0) {perm=[0,2,1]} \"n1\"\n"
                    "fwd %2 f32[8] \"b\" = Reshape(%1) {shape=8} \"n2\"\n"
                    "fwd %3 f32[2,1,4] \"c\" = Reshape(%2) {shape=[2,1,4]} \"n3\"\n"
                    "fwd %4 f32[8] \"y\" = Neg(%2) \"n4\"\n"
                    "fwd %5 f32[2,1,4] \"z\" = Neg(%3) \"n5\"\n"
                    "output %4, %5\n"),
              "graph \"m\"\n"
              "%0 input f32[2,1,4] \"x\"\n"
              "fwd %1 f32[8] \"b\" = Reshape(%0) {shape=8} \"n2\"\n"
              "fwd %2 f32[8] \"y\" = Neg(%1) \"n4\"\n"
              "fwd %3 f32[2,1,4] \"z\" = Neg(%0) \"n5\"\n"
              "output %2, %3\n");
}

/* Equal elementwise nodes of two phases stay two; equal products become one. */
static void shares_across_phases(void) {
    CHECK_STR(after(simplify_clean, "graph \"m\"\n"
                                    "%0 input f32[2,2] \"x\"\n"
                                    "fwd %1 f32[2,2] \"a\" = Exp(%0) \"n1\"\n"
                                    "fwd %2 f32[2,2] \"b\" = MatMul(%0, %1) \"n2\"\n"
                                    "bwd %3 f32[2,2] \"c\" = Exp(%0) \"n3\"\n"
                                    "bwd %4 f32[2,2] \"d\" = MatMul(%0, %1) \"n4\"\n"
                                    "bwd %5 f32[2,2] \"e\" = Add(%3, %4) \"n5\"\n"
                                    "output %2, %5\n"),
              "graph \"m\"\n"
              "%0 input f32[2,2] \"x\"\n"
              "fwd %1 f32[2,2] \"a\" = Exp(%0) \"n1\"\n"
              "fwd %2 f32[2,2] \"b\" = MatMul(%0, %1) \"n2\"\n"
              "bwd %3 f32[2,2] \"c\" = Exp(%0) \"n3\"\n"
              "bwd %4 f32[2,2] \"d\" = MatMul(%0, %1) \"n4\"\n"
              "bwd %5 f32[2,2] \"e\" = Add(%3, %4) \"n5\"\n"
              "output %2, %5\n");
}

#define BN(TRAINING)                                                                               \
    "graph \"m\"\n"                                                                                \
    "%0 input f32[4,3] \"x\"\n"                                                                    \
    "%1 param f32[3] \"s\" fill(1)\n"                                                              \
    "%2 param f32[3] \"b\" fill(0)\n"                                                              \
    "%3 buffer f32[3] \"m\" fill(0)\n"                                                             \
    "%4 buffer f32[3] \"v\" fill(1)\n"                                                             \
    "fwd %5 f32[4,3] \"y\" = BatchNorm(%0, %1, %2, %3, %4) {eps=0.5, momentum=0.75, "              \
    "training=" TRAINING "} \"bn\"\n"                                                              \
    "output %5\n"

static void lowers_batch_norm(void) {
    CHECK_STR(after(lower_graph, BN("1")),
              "graph \"m\"\n"
              "%0 input f32[4,3] \"x\"\n"
              "%1 param f32[3] \"s\" fill(1.0)\n"
              "%2 param f32[3] \"b\" fill(0.0)\n"
              "%3 buffer f32[3] \"m\" fill(0.0)\n"
              "%4 buffer f32[3] \"v\" fill(1.0)\n"
              "fwd %5 f32[3] \"bn.stats.out\", %6 f32[3] \"bn.stats.out1\" = BnStats(%0) "
              "\"bn.stats\"\n"
              "fwd %7 f32[3] \"bn.invstd.out\" = InvStd(%6) {eps=0.5} \"bn.invstd\"\n"
              "fwd %8 f32[4,3] \"y\" = BnApply(%0, %5, %7, %1, %2) \"bn\"\n"
              "fwd BnUpdate(%3, %4, %5, %6) {momentum=0.75} \"bn.update\"\n"
              "output %8\n");
    CHECK_STR(after(lower_graph, BN("0")),
              "graph \"m\"\n"
              "%0 input f32[4,3] \"x\"\n"
              "%1 param f32[3] \"s\" fill(1.0)\n"
              "%2 param f32[3] \"b\" fill(0.0)\n"
              "%3 buffer f32[3] \"m\" fill(0.0)\n"
              "%4 buffer f32[3] \"v\" fill(1.0)\n"
              "fwd %5 f32[3] \"bn.invstd.out\" = InvStd(%4) {eps=0.5} \"bn.invstd\"\n"
              "fwd %6 f32[4,3] \"y\" = BnApply(%0, %3, %5, %1, %2) \"bn\"\n"
              "output %6\n");
}

int main(void) {
    shares_and_drops();
    composes_transposes();
    forms_views();
    shares_across_phases();
    lowers_batch_norm();
    return test_end();
}
