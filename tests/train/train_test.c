/* train_test.c - the training step as text, the places of updates, specs, roles and messages. */
#include "test.h"
#include "train.h"

static Graph *parse(Arena *a, const char *text) {
    Diag d;
    diag_init(&d, a, stderr);
    Graph *g = ir_parse(a, &d, "t", text);
    CHECK(g != NULL);
    return g;
}

static Graph *step_of(Arena *a, Diag *d, const char *text, const char *loss,
                      const char *optimizer) {
    LossSpec l;
    OptSpec o;
    const Graph *g = parse(a, text);
    CHECK(train_parse_loss(d, a, loss, &l) && train_parse_optimizer(d, a, optimizer, &o));
    return g ? train_build(a, d, g, &l, &o) : NULL;
}

static const char *text_of(Arena *a, const Graph *g) {
    Text t;
    text_init(&t, a);
    ir_print(&t, g);
    return t.at;
}

#define SOURCES                                                                                    \
    "graph \"t\"\n%0 input f32[2,3] \"x\"\n%1 param f32[3,4] \"w\"\n%2 param f32[4] \"b\"\n"

/* Two layers; the second is x w2 without a bias. */
static const char mlp[] = SOURCES "%3 param f32[4,5] \"w2\"\n"
                                  "fwd %4 f32[2,4] \"h\" = MatMul(%0, %1, %2) \"fc1\"\n"
                                  "fwd %5 f32[2,4] \"r\" = Relu(%4) \"relu\"\n"
                                  "fwd %6 f32[2,5] \"y\" = MatMul(%5, %3) \"fc2\"\n"
                                  "output %6\n";

/* By hand: dy = softmax gradient [2,5]; dw2 = r' dy, dr = dy w2', and only then may w2 change. dh
 * reads r, not h. db sums dh over the batch; x needs no gradient; b and w are read by fc1 alone, so
 * that their updates follow the gradients at once. */
static const char mlp_step[] =
    SOURCES "%3 param f32[4,5] \"w2\"\n"
            "%4 target i64[2] \"target\"\n"
            "%5 state f32[3,4] \"optim.m.w\" of %1\n"
            "%6 state f32[4] \"optim.m.b\" of %2\n"
            "%7 state f32[4,5] \"optim.m.w2\" of %3\n"
            "fwd %8 f32[2,4] \"h\" = MatMul(%0, %1, %2) \"fc1\"\n"
            "fwd %9 f32[2,4] \"r\" = Relu(%8) \"relu\"\n"
            "fwd %10 f32[2,5] \"y\" = MatMul(%9, %3) \"fc2\"\n"
            "fwd %11 f32[] \"loss\" = SoftmaxCE(%10, %4) {axis=1} \"loss\"\n"
            "bwd %12 f32[] \"loss.grad.out\" = Fill() {value=1.0, shape=[]} \"loss.grad\"\n"
            "bwd %13 f32[2,5] \"loss.grad.out\" = SoftmaxCEGrad(%12, %10, %4) {axis=1} "
            "\"loss.grad\"\n"
            "bwd %14 f32[4,5] \"w2.grad\" of %3 = MatMul(%9, %13) {trans_a=1} \"fc2.db\"\n"
            "bwd %15 f32[2,4] \"fc2.da.out\" = MatMul(%13, %3) {trans_b=1} \"fc2.da\"\n"
            "upd Sgd(%3, %14, %7) \"w2.update\"\n"
            "bwd %16 f32[2,4] \"relu.grad.out\" = ReluGrad(%15, %9) \"relu.grad\"\n"
            "bwd %17 f32[4] \"b.grad\" of %2 = ReduceSum(%16) {axes=0, keepdims=0} \"fc1.dbias\"\n"
            "upd Sgd(%2, %17, %6) \"b.update\"\n"
            "bwd %18 f32[3,4] \"w.grad\" of %1 = MatMul(%0, %16) {trans_a=1} \"fc1.db\"\n"
            "upd Sgd(%1, %18, %5) \"w.update\"\n"
            "output %11\n"
            "loss %11\n"
            "logits %10\n";

static void test_golden(void) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    Graph *g = step_of(a, &d, mlp, "cross-entropy", "sgd:momentum=0.9");
    CHECK(g && ir_verify(&d, g));
    if (g) CHECK_STR(text_of(a, g), mlp_step);
    arena_free(a);
}

/* The class axis 1 of the output is axis 3 of the channels-last image, which the loss reads;
 * another order of the other axes cannot be looked through. */
static void test_channels_last(const char *perm, int64_t axis) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    const char *text = arena_printf(a,
                                    "graph \"t\"\n%%0 param f32[2,3,3,4] \"w\"\n"
                                    "fwd %%1 f32[2,3,3,4] \"h\" = Tanh(%%0) \"h\"\n"
                                    "fwd %%2 f32[2,4,3,3] \"y\" = Transpose(%%1) {perm=%s} \"y\"\n"
                                    "output %%2\n",
                                    perm);
    Graph *g = step_of(a, &d, text, "cross-entropy", "sgd");
    CHECK(g && ir_verify(&d, g));
    if (g) {
        const Node *loss = &g->node[g->value[g->loss].def];
        CHECK_EQ(loss->in[0], axis == 3 ? 1 : 2);
        CHECK_EQ(ir_get_i(loss, A_axis, -1), axis);
        CHECK_EQ(g->logits, 2);
    }
    arena_free(a);
}

/* ---- updates ---- */
static NodeId node_named(const Graph *g, const char *name) {
    for (NodeId n = 0; g && n < g->nnode; n++)
        if (!strcmp(g->node[n].name, name)) return n;
    return NO_ID;
}

/* The weight is read last by the backward pass of `first`, through a view: its update is the last
 * node, although the other half of its gradient came early. Adam keeps two states. */
static void test_shared_weight(void) {
    static const char text[] = "graph \"t\"\n%0 param f32[4] \"w\" %1 param f32[2,2] \"u\"\n"
                               "fwd %2 f32[2,2] \"v\" = Reshape(%0) {shape=[2,2]} \"view\"\n"
                               "fwd %3 f32[2,2] \"p\" = MatMul(%1, %2) \"first\"\n"
                               "fwd %4 f32[4] \"f\" = Reshape(%3) {shape=4} \"flat\"\n"
                               "fwd %5 f32[4] \"y\" = Mul(%4, %0) \"second\"\noutput %5\n";
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    Graph *g = step_of(a, &d, text, "mse", "adam");
    CHECK(g && ir_verify(&d, g));
    NodeId w = node_named(g, "w.update"), u = node_named(g, "u.update");
    CHECK(w != NO_ID && u != NO_ID);
    if (w != NO_ID && u != NO_ID) {
        CHECK_EQ(g->node[w].nin, 4);
        CHECK_STR(g->value[g->node[w].in[2]].name, "optim.m.w");
        CHECK_STR(g->value[g->node[w].in[3]].name, "optim.v.w");
        CHECK_EQ(g->node[w].op, OP_Adam);
        CHECK(w > node_named(g, "first.da") && u > node_named(g, "first.da"));
    }
    arena_free(a);
}

/* Five factors of 64 bytes behind a matrix of 8192: 8512 bytes of gradients, of which a 64th, 133,
 * may wait: those of e and d, until c's would make it 192; then those of b and a, until w's. */
static void test_join_updates(void) {
    static const char text[] =
        "graph \"t\"\n%0 input f32[2,128] \"x\"\n%1 param f32[128,16] \"w\"\n"
        "%2 param f32[16] \"a\"\n%3 param f32[16] \"b\"\n%4 param f32[16] \"c\"\n"
        "%5 param f32[16] \"d\"\n%6 param f32[16] \"e\"\n"
        "fwd %7 f32[2,16] \"0\" = MatMul(%0, %1) \"fc\"\n"
        "fwd %8 f32[2,16] \"1\" = Mul(%7, %2) \"m1\"\n"
        "fwd %9 f32[2,16] \"2\" = Mul(%8, %3) \"m2\"\n"
        "fwd %10 f32[2,16] \"3\" = Mul(%9, %4) \"m3\"\n"
        "fwd %11 f32[2,16] \"4\" = Mul(%10, %5) \"m4\"\n"
        "fwd %12 f32[2,16] \"y\" = Mul(%11, %6) \"m5\"\noutput %12\n";
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    Graph *g = step_of(a, &d, text, "mse", "sgd:momentum=0.9");
    Graph *j = g ? train_join_updates(a, g) : NULL;
    CHECK(j && ir_verify(&d, j));
    if (j) {
        NodeId e = node_named(j, "e.update"), b = node_named(j, "b.update");
        CHECK_EQ(j->nnode, g->nnode);
        CHECK_EQ(node_named(j, "d.update"), e + 1);
        CHECK_EQ(node_named(j, "c.update"), e + 2);
        CHECK_EQ(j->value[j->node[e + 2].in[1]].def, e - 1); /* c's gradient: at its place */
        CHECK_EQ(node_named(j, "a.update"), b + 1);
        CHECK_EQ(node_named(j, "w.update"), b + 2);
        CHECK_EQ(b + 3, j->nnode);
    }
    arena_free(a);
}

static void test_nothing_trained(const char *sources, const char *warning) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    const char *text = arena_printf(a,
                                    "graph \"t\"\n%%0 input f32[2] \"x\" %s\n"
                                    "fwd %%9 f32[2] \"y\" = Neg(%%0) \"neg\"\noutput %%9\n",
                                    sources);
    Graph *g = step_of(a, &d, text, "mse", "sgd");
    CHECK(g && ir_verify(&d, g));
    CHECK(g && g->loss != NO_ID && node_named(g, "u.update") == NO_ID);
    CHECK_EQ(d.errors, 0);
    CHECK_STR(d.log.at, warning);
    arena_free(a);
}

/* ---- messages ---- */
static void expect_error(const char *text, const char *loss, const char *message) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    CHECK(step_of(a, &d, text, loss, "sgd") == NULL);
    CHECK(d.errors > 0);
    CHECK_STR(d.log.at ? d.log.at : "", message);
    arena_free(a);
}

static void test_messages(void) {
    expect_error(mlp, "mse:output=z",
                 "error: t: the loss reads output 'z', which the model does not have\n"
                 "  hint: an output is 'y', f32[2,5]\n");
    expect_error(mlp, "nll:class_axis=2",
                 "error: t: node 'fc2' (MatMul), tensor 'y': class_axis 2 is not an axis of shape "
                 "[2,5]\n");
    expect_error(mlp, "output",
                 "error: t: node 'fc2' (MatMul), tensor 'y': an output that is the loss must be a "
                 "scalar, found shape [2,5]\n"
                 "  hint: choose a loss over this output, such as --loss cross-entropy or --loss "
                 "mse\n");
    expect_error(mlp, "mse:label=w",
                 "error: t: tensor 'w': the name of the labels is taken by param of the model\n"
                 "  hint: name the labels otherwise: --loss KIND:label=NAME\n");
    expect_error(SOURCES "fwd %3 bool[4] \"y\" = Less(%2, %2) \"less\"\noutput %3\n", "mse",
                 "error: t: node 'less' (Less), tensor 'y': the loss expects an output of type "
                 "f32, found bool\n");
    /* both operators without a gradient, the one behind the other */
    expect_error(SOURCES "fwd %3 f32[4] \"u\" = ReluGrad(%2, %2) \"one\"\n"
                         "fwd %4 f32[4] \"v\" = Exp(%3) \"exp\"\n"
                         "fwd %5 f32[4] \"y\" = TanhGrad(%4, %2) \"two\"\noutput %5\n",
                 "mse",
                 "error: t: node 'two' (TanhGrad): no gradient is known for this operator, and the "
                 "loss depends on trained weights through it\n"
                 "error: t: node 'one' (ReluGrad): no gradient is known for this operator, and the "
                 "loss depends on trained weights through it\n"
                 "  hint: freeze the weights above with --freeze GLOB, or choose another output\n");
}

/* An operator without a gradient is fine where none is needed: below frozen weights. */
static void test_frozen_backbone(void) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    const Graph *g = step_of(a, &d,
                             "graph \"t\"\n%0 input f32[4] \"x\"\n%1 frozen f32[4] \"b\"\n"
                             "%2 param f32[4] \"w\"\n"
                             "fwd %3 f32[4] \"u\" = ReluGrad(%0, %1) \"backbone\"\n"
                             "fwd %4 f32[4] \"y\" = Mul(%3, %2) \"head\"\noutput %4\n",
                             "mse", "sgd");
    CHECK(g != NULL && d.errors == 0);
    for (NodeId n = 0; g && n < g->nnode; n++)
        CHECK(g->node[n].phase == PHASE_FORWARD || !strstr(g->node[n].name, "backbone"));
    arena_free(a);
}

/* ---- specs ---- */
static const char *loss_round_trip(Arena *a, Diag *d, const char *s) {
    LossSpec l;
    return train_parse_loss(d, a, s, &l) ? train_loss_str(a, &l) : "";
}
static const char *opt_round_trip(Arena *a, Diag *d, const char *s) {
    OptSpec o;
    return train_parse_optimizer(d, a, s, &o) ? train_optimizer_str(a, &o) : "";
}

static void test_specs(void) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    static const char *const losses[] = {"cross-entropy",
                                         "mse:output=a::b/c=d",
                                         "nll:output=x\\,y\\\\z,label=l,class_axis=-1",
                                         "output:output=o",
                                         "cross-entropy:ignore_index=-100,label_smoothing=0.5",
                                         "l1",
                                         "bce-logits"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        CHECK_STR(loss_round_trip(a, &d, losses[i]), losses[i]);
    CHECK_STR(opt_round_trip(a, &d, "sgd:momentum=0.5,lr=0.25,nesterov"),
              "sgd:lr=0.25,weight_decay=0,momentum=0.5,nesterov=true");
    CHECK_STR(opt_round_trip(a, &d, "adamw:betas=0.5/0.75,eps=0.125,lr=1,weight_decay=0.5"),
              "adamw:lr=1,weight_decay=0.5,betas=0.5/0.75,eps=0.125");
    CHECK_EQ(d.errors, 0);
    OptSpec o;
    CHECK(train_parse_optimizer(&d, a, "sgd:momentum=0", &o) && !o.momentum_state);
    CHECK(train_parse_optimizer(&d, a, "sgd:momentum=0.9", &o) && o.momentum_state);
    CHECK(train_parse_optimizer(&d, a, "adam", &o) && !o.momentum_state);
    CHECK(o.lr == 0.001 && o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8);
    arena_free(a);
}

static void test_bad_specs(void) {
    static const char *const bad[] = {"",
                                      "hinge",
                                      "mse:class_axis=1",
                                      "cross-entropy:class_axis=x",
                                      "l1:output",
                                      "l1:output=",
                                      "nll:label_smoothing=2",
                                      "nll:label_smoothing=nan",
                                      "l1:",
                                      "output:label=x",
                                      "nll:ignore_index=99999999999999999999"};
    static const char *const bad_opt[] = {"",
                                          "rmsprop",
                                          "sgd:betas=0.9/0.9",
                                          "adam:betas=0.9",
                                          "adam:betas=1/0.9",
                                          "adam:lr=-1",
                                          "sgd:nesterov",
                                          "sgd:momentum",
                                          "adamw:eps=1e",
                                          "sgd:nesterov=maybe",
                                          "sgd:lr=inf",
                                          "sgd:momentum=0.9,dampening=0.1,nesterov=1"};
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++, n++)
        CHECK_STR(loss_round_trip(a, &d, bad[i]), "");
    for (size_t i = 0; i < sizeof bad_opt / sizeof *bad_opt; i++, n++)
        CHECK_STR(opt_round_trip(a, &d, bad_opt[i]), "");
    CHECK_EQ(d.errors, n); /* one message each */
    diag_init(&d, a, NULL);
    loss_round_trip(a, &d, "hinge");
    loss_round_trip(a, &d, "mse:ignore_index=1");
    opt_round_trip(a, &d, "sgd:momentum=2");
    CHECK_STR(d.log.at,
              "error: --loss: kind: expected one of cross-entropy, nll, mse, l1, bce-logits, "
              "output, found 'hinge'\n"
              "error: --loss: mse takes no key 'ignore_index': expected one of output, label\n"
              "error: --optimizer: momentum: expected a number of 0 to 1, found '2'\n");
    arena_free(a);
}

/* ---- roles ---- */
static void test_roles(void) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    Graph *g = parse(a, "graph \"t\"\n%0 param f32[1] \"a/w\" %1 frozen f32[1] \"a/b\"\n"
                        "%2 buffer f32[1] \"a/mean\" %3 param f32[1] \"c.w\"\n");
    RoleRule rules[] = {{false, "*"}, {true, "a/?"}, {false, "*b"}};
    CHECK(train_roles(g, &d, rules, 3)); /* the last rule that matches wins */
    CHECK_EQ(g->value[0].role, ROLE_PARAM);
    CHECK_EQ(g->value[1].role, ROLE_FROZEN);
    CHECK_EQ(g->value[2].role, ROLE_BUFFER);
    CHECK_EQ(g->value[3].role, ROLE_FROZEN);
    RoleRule fixed = {false, "a/mean"}, wrong = {true, "a/mean"};
    CHECK(train_roles(g, &d, &fixed, 1)); /* it is not trained anyway */
    CHECK(!train_roles(g, &d, &wrong, 1));
    CHECK_STR(d.log.at, "error: t: --train 'a/mean' matches none of the weights\n"
                        "  hint: a weight is named 'a/w'\n  hint: a weight is named 'a/b'\n"
                        "  hint: a weight is named 'c.w'\n");
    arena_free(a);
}

int main(void) {
    test_golden();
    test_channels_last("[0,3,1,2]", 3);
    test_channels_last("[0,3,2,1]", 1);
    test_shared_weight();
    test_join_updates();
    test_nothing_trained("%1 param f32[2] \"u\"",
                         "warning: t: tensor 'u': the loss does not depend on this weight: it "
                         "stays as it is\n");
    test_nothing_trained("%1 param f32[2] \"u\" %2 param f32[2] \"v\" %3 frozen f32[2] \"w\"",
                         "warning: t: tensor 'u': the loss does not depend on this weight and 1 "
                         "others: they stay as they are\n");
    test_messages();
    test_frozen_backbone();
    test_specs();
    test_bad_specs();
    test_roles();
    return test_end();
}
