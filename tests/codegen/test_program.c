/* test_program.c - a whole program folder from a graph with hostile names: the C must compile
 * without warnings whatever the names hold, the payload must be where the tables say, and failures
 * of the compiler and of the disk are errors with a hint. */
#include "codegen.h"
#include "payload.h"
#include "test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Comment ends, quotes, newlines, trigraphs and format directives in every name. */
static const char step_text[] =
    "graph \"evil\\052/\\012#error x\"\n"
    "%0 input f32[4,3] \"x*/ #error \\?\\?/\"\n"
    "%1 param f32[3,2] \"w\\\"); exit(1); //\" fill(0.5)\n"
    "%2 param f32[2] \"\\012#error nl\\\\\" data[1.0,2.0]\n"
    "fwd %3 f32[4,2] \"y\" = MatMul(%0, %1, %2) \"*/ int evil; /*\\012#error\"\n"
    "fwd %4 f32[4,2] \"r\" = Relu(%3) \"%s%n\\?\\?)\"\n"
    "fwd %5 f32[] \"loss\" = ReduceSum(%4) {axes=[0,1], keepdims=0} \"loss\"\n"
    "bwd %6 f32[2] \"g\" = ReduceSum(%4) {axes=0, keepdims=0} \"gg\"\n"
    "upd Sgd(%2, %6) \"u\"\n"
    "output %5\nloss %5\nlogits %4\n";

typedef struct {
    Arena *a;
    Diag d;
    Graph *g;
    Cost *c;
    Plan *p;
    CgOptions o;
    const char *build, *dir;
} Work;

static void begin(Work *w, const char *build) {
    *w = (Work){.a = arena_new(), .build = build};
    diag_init(&w->d, w->a, NULL);
    w->g = ir_parse(w->a, &w->d, "test", step_text);
    CHECK(w->g && ir_verify(&w->d, w->g));
    w->c = cost_analytic(w->a, w->g, TARGET_CPU, 2);
    PlanOptions po = {.budget = 1 << 20, .planner = "none"};
    CHECK_EQ(plan_make(w->a, w->g, w->c, &po, &w->p), PLAN_OK);
    w->o = (CgOptions){.command = "dtrc */ \n#error",
                       .model = "*/",
                       .model_sha256 = "0",
                       .target = TARGET_CPU,
                       .loss = {.kind = LOSS_OUTPUT},
                       .opt = {.kind = OPT_SGD},
                       .init = "keep"};
    w->o.include_dir = arena_printf(w->a, "%s/include/dtrc", build);
    w->o.lib_dir = arena_printf(w->a, "%s/lib/dtrc", build);
    w->dir = arena_printf(w->a, "%s/tests/program-%ld", build, (long)getpid());
}

static char *contents(Work *w, const char *name, size_t *n) {
    return file_read(w->a, arena_printf(w->a, "%s/%s", w->dir, name), 1 << 20, n);
}

static void compiles_without_warnings(Work *w, Target target) {
    w->o.target = target;
    CHECK(cg_emit(w->a, &w->d, w->dir, w->g, w->g, w->c, w->p, &w->o));
    const char *cmd =
        arena_printf(w->a,
                     "cc -std=c11 -fopenmp -Wall -Wextra -Wpedantic -Werror -fsyntax-only '-I%s' "
                     "'%s/program.c'",
                     w->o.include_dir, w->dir);
    CHECK_EQ(system(cmd), 0);
}

/* Headers of another build, here ones that give another number, are refused by the compiler. */
static void other_headers_are_refused(Work *w) {
    static const char other[] = "#define DTRT_INTERFACE UINT64_C(1)\n";
    const char *header = arena_printf(w->a, "%s/dtrt_interface.h", w->dir);
    const char *out = arena_printf(w->a, "%s/trainer", w->dir);
    CHECK(file_write(header, other, strlen(other)));
    CHECK(!cg_build(w->a, &w->d, w->dir, out, &w->o));
    CHECK(strstr(w->d.log.at, "headers of the runtime do not belong to the dtrc") != NULL);
    CHECK(access(out, F_OK) != 0);
    unlink(header);
}

/* w is 6 floats (24 bytes, padded to 64), then the bias: 2 floats at offset 64; footer: 16 bytes.
 */
static void payload_is_where_it_should_be(Work *w) {
    size_t n;
    const char *bytes = contents(w, "weights.bin", &n);
    CHECK(bytes != NULL);
    CHECK_EQ(n, 64 + 64 + 16);
    float f[2];
    DtrtFooter end;
    memcpy(f, bytes + 64, sizeof f);
    memcpy(&end, bytes + n - sizeof end, sizeof end);
    CHECK(f[0] == 1 && f[1] == 2);
    CHECK_EQ(end.bytes, 128);
    CHECK(!memcmp(end.magic, DTRT_PAYLOAD_MAGIC, sizeof end.magic));
    const char *program = contents(w, "program.c", &n);
    CHECK(strstr(program, "{2}, 512, 8, -1, -1, 0, 64, 8},") != NULL);
}

/* One run a line, with the node's name; the schedule says what is dropped. */
static void schedule_is_readable(Work *w) {
    size_t n;
    const char *program = contents(w, "program.c", &n);
    CHECK(strstr(program, "    {0, -1, 0}, /* _/ int evil; /__#error */\n") != NULL);
    CHECK(strstr(program, "/* drop y */\n") != NULL || strstr(program, "drop r") != NULL);
    CHECK(strstr(program, " * command   dtrc _/ _#error\n") != NULL);
    CHECK(strstr(program, "known before the run") != NULL);
}

static void failures_are_errors(Work *w) {
    const char *out = arena_printf(w->a, "%s/trainer", w->dir);
    setenv("CC", "/nonexistent/cc", 1);
    CHECK(!cg_build(w->a, &w->d, w->dir, out, &w->o));
    CHECK(strstr(w->d.log.at, "cannot run the C compiler") != NULL);
    setenv("CC", "cc --no-such-option", 1);
    CHECK(!cg_build(w->a, &w->d, w->dir, out, &w->o));
    CHECK(strstr(w->d.log.at, "the C compiler failed with status 1") != NULL);
    CHECK(strstr(w->d.log.at, "no-such-option") != NULL);
    unsetenv("CC");
    CHECK(access(out, F_OK) != 0);
    CHECK(!cg_emit(w->a, &w->d, "/proc/no/such", w->g, w->g, w->c, w->p, &w->o));
    CHECK(strstr(w->d.log.at, "cannot make the program folder") != NULL);
    /* The result's place is a pipe: it stays one. */
    struct stat st;
    const char *fifo = arena_printf(w->a, "%s/pipe", w->dir);
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(!cg_build(w->a, &w->d, w->dir, fifo, &w->o));
    CHECK(lstat(fifo, &st) == 0 && S_ISFIFO(st.st_mode));
    unlink(fifo);
    /* The result's place is a folder: the earlier content stays, no temporary file is left. */
    CHECK(!cg_build(w->a, &w->d, w->dir, w->build, &w->o));
}

static void clean_up(Work *w) {
    static const char *const name[] = {"program.c", "Makefile", "manifest.json", "weights.bin",
                                       "compiler.log"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        unlink(arena_printf(w->a, "%s/%s", w->dir, name[i]));
    CHECK_EQ(rmdir(w->dir), 0);
    arena_free(w->a);
}

int main(int argc, char **argv) {
    Work w;
    begin(&w, argc > 1 ? argv[1] : ".");
    compiles_without_warnings(&w, TARGET_NULL);
    compiles_without_warnings(&w, TARGET_CPU);
    payload_is_where_it_should_be(&w);
    schedule_is_readable(&w);
    other_headers_are_refused(&w);
    failures_are_errors(&w);
    clean_up(&w);
    return test_end();
}
