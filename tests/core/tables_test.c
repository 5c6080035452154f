/* tables_test.c - damaged tables are refused before anything follows them. The tables are those of
 * tiny.c. Each case changes one field to the first value that must not be; and when random damage
 * is not refused, a step, its diagnosis and hard mode must keep to the block and to the tables:
 * with kernels that do nothing, so that the reads are the runtime's own (a sanitizer watches). */
#define main tiny_main
#include "tiny.c"
#undef main

#include "core.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Copies that may be damaged. */
static struct {
    DtrtProgram p;
    DtrtTensor tensor[COUNT(tensors)];
    DtrtStorage storage[COUNT(storages)];
    int32_t operand[COUNT(operands)];
    DtrtNode node[COUNT(nodes)];
    DtrtRun run[COUNT(runs)];
    DtrtStep step[COUNT(steps)];
    uint64_t addr[COUNT(addr)];
    DtrtRefNode refnode[COUNT(ref_node)];
    DtrtRefValue value[COUNT(ref_value)];
} d;

static void repair(void) {
    d.p = program;
    memcpy(d.tensor, tensors, sizeof tensors);
    memcpy(d.run, runs, sizeof runs);
    memcpy(d.step, steps, sizeof steps);
    memcpy(d.addr, addr, sizeof addr);
    memcpy(d.storage, storages, sizeof storages);
    memcpy(d.operand, operands, sizeof operands);
    memcpy(d.node, nodes, sizeof nodes);
    memcpy(d.refnode, ref_node, sizeof ref_node);
    memcpy(d.value, ref_value, sizeof ref_value);
    d.p.tensor = d.tensor;
    d.p.storage = d.storage;
    d.p.operand = d.operand;
    d.p.node = d.node;
    d.p.plan.run = d.run;
    d.p.plan.step = d.step;
    d.p.plan.addr = d.addr;
    d.p.refnode = d.refnode;
    d.p.refvalue = d.value;
}

static int messages, nowhere; /* stderr and /dev/null */

static Status check(void) {
    dup2(nowhere, STDERR_FILENO);
    Status st = dtrt_tables_check(&d.p);
    dup2(messages, STDERR_FILENO);
    return st;
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        repair();                                                                                  \
        change;                                                                                    \
        CHECK_EQ(check(), ST_DATA);                                                                \
    } while (0)

static void test_program_fields(void) {
    repair();
    CHECK_EQ(check(), ST_OK);
    REFUSED(d.p.interface ^= 1);
    REFUSED(d.p.loss_kind = NULL);
    REFUSED(d.p.threads = 0);
    REFUSED(d.p.plan.arena_bytes = UINT64_MAX); /* the sum overflows */
    REFUSED(d.p.storage = NULL);
    REFUSED(d.p.plan.addr = NULL);
    REFUSED(d.p.plan.naddr--); /* the last run's */
    REFUSED(d.p.plan.naddr++);
    REFUSED(d.p.noperand++);
    REFUSED(d.p.plan.nrun--);
    REFUSED(d.p.nnode--);
    REFUSED(d.p.noperand--);
    REFUSED(d.p.nstorage--);
    REFUSED(d.p.loss_storage = -1);
    REFUSED(d.p.loss_storage = (int)COUNT(storages));
    REFUSED(d.p.loss_storage = 1);    /* not a float */
    REFUSED(d.p.logits_storage = 10); /* 2 floats for 4 x 2 */
    REFUSED(d.p.logits_storage = (int)COUNT(storages));
    REFUSED(d.p.logits_rank = 9);
    REFUSED(d.p.class_axis = 2);
    REFUSED(d.p.class_axis = -3);
    REFUSED(d.p.ref_output = (int)COUNT(ref_value));
    REFUSED(d.p.pack = NULL);
}

static void test_tensors(void) {
    REFUSED(d.tensor[0].name = NULL);
    REFUSED(d.tensor[0].role = (DtrtRole)(DTRT_STATE + 1));
    REFUSED(d.tensor[0].type = (DtrtType)(DTRT_BOOL + 1));
    REFUSED(d.tensor[0].rank = 9);
    REFUSED(d.tensor[0].dim[0] = -1);
    REFUSED(d.tensor[0].dim[0] = INT64_MAX);
    REFUSED(d.tensor[0].dim[0] = N + 1);                      /* more than its bytes */
    REFUSED(d.tensor[0].offset = PERSISTENT - N * D * 4 + 4); /* its end in the arena */
    REFUSED(d.tensor[0].offset = UINT64_MAX - 3);
    REFUSED(d.tensor[0].offset = 2);
    REFUSED(d.tensor[1].type = DTRT_U8); /* labels are read as integers of 4 or 8 bytes */
    REFUSED(d.tensor[5].param = -1);
    REFUSED(d.tensor[5].param = (int)COUNT(tensors));
}

static void test_schedule(void) {
    REFUSED(d.addr[0] = END - N * D * 4 + 4);
    REFUSED(d.addr[0] = 2);
    REFUSED(d.run[7].node = COUNT(nodes));
    REFUSED(d.run[7].node = 0); /* takes more addresses than there are */
    REFUSED(d.run[7].first++);
    REFUSED(d.run[7].first = UINT32_MAX);
    REFUSED(d.addr[21] = DTRT_NOWHERE); /* the gradient of run 5 */
    REFUSED(d.step[0].run = (int)COUNT(runs));
    REFUSED(d.step[0].run = -2);
    REFUSED(d.step[4].storage = -1);
    REFUSED(d.step[4].storage = (int)COUNT(storages));
    REFUSED(d.step[4].offset = END - N * C * 4 + 4);
}

static void test_nodes(void) {
    REFUSED(d.storage[0].type = (DtrtType)(DTRT_BOOL + 1));
    REFUSED(d.storage[0].tensor = -2);
    REFUSED(d.storage[0].tensor = (int)COUNT(tensors));
    REFUSED(d.storage[0].bytes = UINT64_MAX); /* not its tensor's */
    REFUSED(d.storage[6].bytes = UINT64_MAX);
    REFUSED(d.operand[0] = -2);
    REFUSED(d.operand[0] = (int)COUNT(storages));
    REFUSED(d.operand[0] = -1); /* absent, but with an address */
    REFUSED(d.node[0].run = NULL);
    REFUSED(d.node[7].first++);
    REFUSED(d.node[7].first = UINT32_MAX);
    REFUSED(d.node[7].nin = UINT32_MAX);
    REFUSED(d.node[0].nout = UINT32_MAX);
    REFUSED(d.node[0].phase = 3);
    REFUSED(d.node[5].param = -2);
    REFUSED(d.node[5].param = (int)COUNT(tensors));
    REFUSED(d.node[5].nin = 1);            /* no gradient */
    REFUSED(d.node[5].param = 0);          /* a gradient smaller than the tensor */
    REFUSED(d.storage[9].type = DTRT_I32); /* the gradient of node 5 */
    REFUSED(d.node[0].workspace = 1ull << 63);
    /* What a header with a field fewer before `param` makes of a row: 0 for the parameter, -1 for
     * the number of inputs. */
    REFUSED(d.node[0].param = 0; d.node[0].nin = UINT32_MAX; d.node[0].nout = 3);
}

static void test_reference(void) {
    static const int32_t wild[] = {0, 1, (int)COUNT(ref_value)};
    REFUSED(d.refnode[0].in = wild);
    REFUSED(d.refnode[0].in = NULL);
    REFUSED(d.refnode[0].attr_i = NULL);
    REFUSED(d.refnode[0].op = NULL);
    REFUSED(d.value[0].tensor = (int)COUNT(tensors));
    REFUSED(d.value[0].tensor = -2);
    REFUSED(d.value[3].file_bytes = 4); /* a constant of 32 bytes */
    REFUSED(d.value[0].rank = -1);
}

/* ---- random damage ---- */

static void no_kernel(DtrtCtx *c, void *const *p) {
    (void)c, (void)p;
}

/* One number of one table gets another value: near, large, or any. */
static void damage(void) {
    static const int64_t far[] = {-1, 0, 1, INT32_MAX, UINT32_MAX, INT64_MAX, INT64_MIN};
    struct {
        void *at;
        size_t bytes;
    } field[] = {{&d.node[test_random() >> 33 & 7].first, 4},
                 {&d.node[test_random() >> 33 & 7].nin, 4},
                 {&d.node[test_random() >> 33 & 7].nout, 4},
                 {&d.node[test_random() >> 33 & 7].param, 4},
                 {&d.node[test_random() >> 33 & 7].workspace, 8},
                 {&d.run[test_random() >> 33 & 7].node, 4},
                 {&d.run[test_random() >> 33 & 7].first, 4},
                 {&d.operand[(test_random() >> 33) % COUNT(operands)], 4},
                 {&d.storage[(test_random() >> 33) % COUNT(storages)].bytes, 8},
                 {&d.storage[(test_random() >> 33) % COUNT(storages)].tensor, 4},
                 {&d.storage[(test_random() >> 33) % COUNT(storages)].type, 4},
                 {&d.addr[(test_random() >> 33) % COUNT(addr)], 8},
                 {&d.step[(test_random() >> 33) % 12].run, 4},
                 {&d.step[(test_random() >> 33) % 12].storage, 4},
                 {&d.step[(test_random() >> 33) % 12].offset, 8},
                 {&d.tensor[(test_random() >> 33) % 6].bytes, 8},
                 {&d.tensor[(test_random() >> 33) % 6].offset, 8},
                 {&d.tensor[(test_random() >> 33) % 6].type, 4},
                 {&d.p.loss_storage, 4},
                 {&d.p.logits_storage, 4},
                 {&d.p.logits_dim[test_random() >> 63], 8},
                 {&d.p.plan.naddr, 4},
                 {&d.p.plan.nrun, 4},
                 {&d.p.plan.nstep, 4},
                 {&d.p.plan.arena_bytes, 8}};
    size_t k = (test_random() >> 33) % COUNT(field);
    uint64_t v = 0;
    memcpy(&v, field[k].at, field[k].bytes);
    switch (test_random() >> 62) {
    case 0: v = (uint64_t)far[(test_random() >> 33) % COUNT(far)]; break;
    case 1: v = test_random(); break;
    default: v += (test_random() >> 33) % 65 - 32; break;
    }
    memcpy(field[k].at, &v, field[k].bytes);
}

/* The block is on the heap and as large as the tables say; the loss or a gradient is not finite. */
static void walk(void) {
    static float rates[] = {1};
    uint64_t bytes = d.p.persistent_bytes + d.p.plan.arena_bytes;
    Runtime rt = {.p = &d.p, .s = &d.p.plan, .exe = -1, .running = -1, .block_bytes = bytes};
    if (bytes > 1 << 20) return;
    rt.block = calloc(1, bytes + 1);
    rt.o = (Options){.nlr = 1, .lr = rates, .hard = test_random() >> 63};
    rt.o.accuracy = d.p.logits_storage >= 0; /* as the options have it */
    rt.ctx = (DtrtCtx){.threads = 1, .user = &rt};
    float *x = (float *)rt.block;
    for (uint64_t i = 0; i < 8 && bytes > 4; i++) x[(test_random() >> 33) % (bytes / 4)] = INFINITY;
    dup2(nowhere, STDERR_FILENO);
    if (!dtrt_step_open(&rt)) dtrt_step_run(&rt);
    dup2(messages, STDERR_FILENO);
    dtrt_step_free(&rt);
    free(rt.block);
}

static void test_random_damage(void) {
    uint32_t accepted = 0;
    for (int i = 0; i < 20000; i++) {
        repair();
        for (size_t k = 0; k < COUNT(nodes); k++) d.node[k].run = no_kernel;
        for (uint64_t n = 1 + (test_random() >> 62); n; n--) damage();
        if (check()) continue;
        accepted++;
        walk();
    }
    CHECK(accepted > 1000 && accepted < 15000); /* both ways were tried often */
}

int main(void) {
    messages = dup(STDERR_FILENO);
    nowhere = open("/dev/null", O_WRONLY);
    if (messages < 0 || nowhere < 0) return 1;
    test_program_fields();
    test_tensors();
    test_schedule();
    test_nodes();
    test_reference();
    test_random_damage();
    return test_end();
}
