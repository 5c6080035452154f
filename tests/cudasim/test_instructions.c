/* test_instructions.c - single PTX instructions, translated and run: results derived by hand from
 * the PTX manual, most at the edges (counts of 32 and more, carries, NaN, ties). Also: what is not
 * known is refused with its line. Needs a C compiler, no CUDA. */
#include "simt.h"
#include "ptx2c.h"
#include "test.h"

/* %x %y %z hold the inputs (64 bits; %a %b %c their low halves), %d is the result (%r: its low
 * half, zero above), %p a predicate whose value is the result when d is untouched and `p` is asked
 * for. */
typedef struct {
    const char *body;
    uint64_t x, y, z, want;
} Case;

static const Case cases[] = {
    /* carries: 0xffffffff + 1 = 0 carry 1; then 2 + 3 + 1 */
    {"add.cc.u32 %r, %a, %b; addc.u32 %r, 2, 3;", 0xffffffff, 1, 0, 6},
    {"sub.cc.u32 %r, %a, %b; subc.u32 %r, 10, 3;", 1, 2, 0, 6},
    {"add.cc.u32 %r, %a, %b; addc.cc.u32 %r, -1, 0; addc.u32 %r, 0, 0;", 0xffffffff, 1, 0, 1},
    {"mad.lo.cc.u32 %r, %a, %b, %c; madc.hi.u32 %r, %a, %b, 5;", 0x80000000, 3, 0x80000000, 7},
    /* products: (2^32-1)^2 = 0xfffffffe00000001; -1 * 2 = -2 */
    {"mul.hi.u32 %r, %a, %b;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
    {"mul.hi.s32 %r, %a, %b;", 0xffffffff, 2, 0, 0xffffffff},
    {"mul.wide.s32 %d, %a, %b;", 0xffffffff, 2, 0, (uint64_t)-2},
    {"mul.wide.u32 %d, %a, -858993459;", 5, 0, 0, 0x400000001}, /* 5 * 0xcccccccd */
    {"mul.hi.u64 %d, %x, %y;", UINT64_MAX, 16, 0, 15},
    {"mad.wide.u32 %d, %a, %b, %z;", 0xffffffff, 2, 3, 0x200000001},
    {"mul.lo.s16 %h, -300, 300; cvt.s32.s16 %r, %h;", 0, 0, 0,
     0xffffa070}, /* -90000 + 65536 = -24464 */
    {"div.s32 %r, %a, %b;", (uint32_t)-7, 2, 0, (uint32_t)-3},
    {"rem.s32 %r, %a, %b;", (uint32_t)-7, 2, 0, (uint32_t)-1},
    {"div.s32 %r, %a, %b;", 0x80000000, 0xffffffff, 0, 0x80000000},
    {"div.u64 %d, %x, %y;", 100, 7, 0, 14},
    {"div.s64 %d, %x, %y;", (uint64_t)-100, 7, 0, (uint64_t)-14},
    {"abs.s32 %r, %a;", 0x80000000, 0, 0, 0x80000000},
    {"sad.u32 %r, %a, %b, %c;", 3, 10, 100, 107},
    /* shifts: counts beyond the width give zeros or signs */
    {"shl.b32 %r, %a, %b;", 1, 32, 0, 0},
    {"shl.b32 %r, %a, %b;", 1, 31, 0, 0x80000000},
    {"shr.s32 %r, %a, %b;", 0x80000000, 40, 0, 0xffffffff},
    {"shr.u64 %d, %x, %b;", 1ull << 63, 63, 0, 1},
    {"shf.l.wrap.b32 %r, %a, %b, %c;", 0x80000001, 0x12345678, 36, 0x23456788},
    {"shf.r.wrap.b32 %r, %a, %b, %c;", 0x80000001, 0x12345678, 4, 0x88000000},
    {"shf.l.clamp.b32 %r, %a, %b, %c;", 0x80000001, 0x12345678, 36, 0x80000001},
    {"shf.r.clamp.b32 %r, %a, %b, %c;", 0x80000001, 0x12345678, 36, 0x12345678},
    /* bytes 7 6 5 4 | 3 2 1 0 are y, x: picks 2 1 4 3 */
    {"prmt.b32 %r, %a, %b, %c;", 0x33221100, 0x77665544, 0x2143, 0x22114433},
    {"prmt.b32 %r, %a, %b, %c;", 0x80, 0, 0x9998, 0x000000ff}, /* 8: the sign of byte 0 */
    {"bfe.u32 %r, %a, 8, 8;", 0x12345678, 0, 0, 0x56},
    {"bfe.s32 %r, %a, 4, 4;", 0x80, 0, 0, 0xfffffff8},
    {"bfe.s32 %r, %a, 28, 8;", 0x80000000, 0, 0, 0xfffffff8}, /* beyond the top: the sign */
    {"bfe.u32 %r, %a, 40, 8;", 0xffffffff, 0, 0, 0},
    {"bfi.b32 %r, %a, %b, 8, 4;", 0xff, 0, 0, 0xf00},
    {"bfi.b64 %d, %x, %y, 32, 32;", 0x1234, 0xffffffff99999999, 0, 0x123499999999},
    {"brev.b32 %r, %a;", 1, 0, 0, 0x80000000},
    {"popc.b64 %r, %x;", 0xf0f0f0f0f0f0f0f0, 0, 0, 32},
    {"clz.b32 %r, %a;", 0, 0, 0, 32},
    {"clz.b64 %r, %x;", 1, 0, 0, 63},
    {"bfind.u32 %r, %a;", 0x10, 0, 0, 4},
    {"bfind.shiftamt.u32 %r, %a;", 0x10, 0, 0, 27},
    {"bfind.s32 %r, %a;", 0xffffffff, 0, 0, 0xffffffff},
    {"lop3.b32 %r, %a, %b, %c, 0x96;", 0xf0, 0xcc, 0xaa, 0x96}, /* xor of three */
    {"not.b32 %r, %a;", 0x0f, 0, 0, 0xfffffff0},
    /* floats: 1.5 = 3fc00000, 2 = 40000000, nan = 7fc00000 */
    {"min.f32 %f, %e, 0f7FC00000; mov.b32 %r, %f;", 0x3fc00000, 0, 0, 0x3fc00000},
    {"max.f32 %f, %e, 0f80000000; mov.b32 %r, %f;", 0, 0, 0, 0}, /* +0 over -0 */
    {"min.f32 %f, %e, 0f80000000; mov.b32 %r, %f;", 0, 0, 0, 0x80000000},
    {"copysign.f32 %f, %e, 0f40000000; mov.b32 %r, %f;", 0xbfc00000, 0, 0, 0xc0000000},
    {"add.rz.f32 %f, %e, 0f33000000; mov.b32 %r, %f;", 0x3f800001, 0, 0, 0x3f800001}, /* + 2^-25 */
    {"add.rp.f32 %f, %e, 0f33000000; mov.b32 %r, %f;", 0x3f800001, 0, 0, 0x3f800002},
    {"add.rz.f32 %f, %e, 0fB3000000; mov.b32 %r, %f;", 0x3f800001, 0, 0, 0x3f800000},
    {"fma.rm.f32 %f, %e, %e, 0fB3000000; mov.b32 %r, %f;", 0x3f800000, 0, 0, 0x3f7fffff},
    {"fma.rn.f32 %f, %e, %e, 0fBF800002; mov.b32 %r, %f;", 0x3f800001, 0, 0,
     0x28800000}, /* 2^-46 */
    {"mul.ftz.f32 %f, %e, 0f3F000000; mov.b32 %r, %f;", 0x00800000, 0, 0, 0},
    {"mul.f32 %f, %e, 0f3F000000; mov.b32 %r, %f;", 0x00800000, 0, 0, 0x00400000},
    {"add.sat.f32 %f, %e, 0f40000000; mov.b32 %r, %f;", 0x3fc00000, 0, 0, 0x3f800000},
    {"div.rn.f32 %f, %e, 0f40400000; mov.b32 %r, %f;", 0x3f800000, 0, 0, 0x3eaaaaab},
    {"sqrt.rn.f32 %f, %e; mov.b32 %r, %f;", 0x40000000, 0, 0, 0x3fb504f3},
    /* comparisons with NaN */
    {"setp.ne.f32 %p, %e, 0f3F800000; selp.b32 %r, 1, 0, %p;", 0x7fc00000, 0, 0, 0},
    {"setp.neu.f32 %p, %e, 0f3F800000; selp.b32 %r, 1, 0, %p;", 0x7fc00000, 0, 0, 1},
    {"setp.geu.f32 %p, %e, 0f3F800000; selp.b32 %r, 1, 0, %p;", 0x7fc00000, 0, 0, 1},
    {"setp.nan.f32 %p, %e, %e; selp.b32 %r, 1, 0, %p;", 0x7fc00000, 0, 0, 1},
    {"setp.lt.s32 %p, %a, %b; selp.b32 %r, 1, 0, %p;", 0xffffffff, 0, 0, 1},
    {"setp.lt.u32 %p, %a, %b; selp.b32 %r, 1, 0, %p;", 0xffffffff, 0, 0, 0},
    {"setp.eq.s32 %q, %a, 1; setp.eq.and.s32 %p|%q, %b, 2, %q; selp.b32 %r, 1, 0, %q;", 1, 3, 0, 1},
    {"setp.eq.s32 %q, %a, 1; setp.eq.or.s32 %p, %b, 2, !%q; selp.b32 %r, 1, 0, %p;", 1, 3, 0, 0},
    {"setp.eq.s32 %p, %a, 1; @!%p mov.u32 %r, 7; @%p mov.u32 %r, 8;", 1, 0, 0, 8},
    {"slct.s32.s32 %r, %a, %b, %c;", 5, 6, 0xffffffff, 6},
    {"set.lt.u32.f32 %r, %e, 0f40000000;", 0x3fc00000, 0, 0, 0xffffffff},
    /* conversions: saturation, ties to even, signs */
    {"cvt.rzi.s32.f32 %r, %e;", 0x4f800000, 0, 0, 0x7fffffff},
    {"cvt.rzi.u32.f32 %r, %e;", 0xbf800000, 0, 0, 0},
    {"cvt.rni.s32.f32 %r, %e;", 0x40200000, 0, 0, 2}, /* 2.5 */
    {"cvt.rzi.s32.f32 %r, %e;", 0x7fc00000, 0, 0, 0},
    {"cvt.rzi.s64.f32 %d, %e;", 0xdf000000, 0, 0, 0x8000000000000000}, /* -2^63 */
    {"cvt.rmi.f32.f32 %f, %e; mov.b32 %r, %f;", 0xbfc00000, 0, 0, 0xc0000000},
    {"cvt.rn.f32.s32 %f, %a; mov.b32 %r, %f;", 0xffffffff, 0, 0, 0xbf800000},
    {"cvt.rn.f32.u64 %f, %x; mov.b32 %r, %f;", UINT64_MAX, 0, 0, 0x5f800000},
    {"cvt.s64.s32 %d, %a;", 0x80000000, 0, 0, 0xffffffff80000000},
    {"cvt.u16.u32 %h, %a; cvt.u32.u16 %r, %h;", 0x12345678, 0, 0, 0x5678},
    {"cvt.s32.s8 %r, %a;", 0x80, 0, 0, 0xffffff80},
    {"cvt.rn.f16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x3f801000, 0, 0, 0x3c00}, /* 1 + 2^-11: even */
    {"cvt.rn.f16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x3f803000, 0, 0, 0x3c02},
    {"cvt.rn.f16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x33800000, 0, 0, 1}, /* 2^-24 */
    {"cvt.rn.f16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x477ff000, 0, 0, 0x7c00},
    {"cvt.rn.bf16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x3f808000, 0, 0, 0x3f80},
    {"cvt.rn.bf16.f32 %h, %e; cvt.u32.u16 %r, %h;", 0x3f818000, 0, 0, 0x3f82},
    {"mov.b16 %h, 0x0001; cvt.f32.f16 %f, %h; mov.b32 %r, %f;", 0, 0, 0, 0x33800000},
    {"cvt.rn.f64.s32 %g, %a; mov.b64 %d, %g;", 3, 0, 0, 0x4008000000000000},
    {"rcp.approx.ftz.f64 %g, 0d4000000000000000; mov.b64 %d, %g;", 0, 0, 0, 0x3fe0000000000000},
    {"mov.b64 %d, {%a, %b};", 1, 2, 0, 0x200000001},
    {"mov.b64 {%q1, %r}, %x;", 0x1234567800000000, 0, 0, 0x12345678},
    {"fma.rn.f16x2 %r, %a, %b, %c;", 0x40003c00, 0x42004000, 0x3c003c00,
     0x47004200}, /* 2*3+1, 1*2+1 */
    /* names in an inner scope hide those outside */
    {"mov.u32 %r, 5; { .reg .b32 %r; mov.u32 %r, 6; bra L; L: }", 0, 0, 0, 5},
    {"bra L; mov.u32 %r, 1; L: { bra L; L: } add.u32 %r, %r, 2;", 0, 0, 0, 2},
    {"{ .param .b32 q; st.param.b32 [q+0], %a; .param .b32 ret; call.uni (ret), twice, (q); "
     "ld.param.b32 %r, [ret+0]; }",
     21, 0, 0, 42},
    {"mov.u64 %d, table; ld.global.u32 %r, [%d+4];", 0, 0, 0, 0x01020304},
    {"ld.const.v2.u16 {%h, %h1}, [coeff+4]; cvt.u32.u16 %r, %h1;", 0, 0, 0, 9},
    {"st.local.v2.u32 [stack+8], {%a, %b}; mov.u64 %y, stack; ld.local.u32 %r, [%y+12];", 1, 2, 0,
     2},
    {"st.shared.u8 [buf+3], 200; mov.u64 %y, buf; cvta.shared.u64 %y, %y; ld.s8 %r, [%y+3];", 0, 0,
     0, 0xffffffc8},
    {"mov.u64 %y, buf; st.shared.u32 [%y], 5; atom.shared.add.u32 %r, [%y], 3; ld.shared.u32 %q1, "
     "[%y]; "
     "shl.b32 %q1, %q1, 8; or.b32 %r, %r, %q1;",
     0, 0, 0, 0x805},
    {"st.shared.u32 [buf], 5; atom.shared.cas.b32 %r, [buf], 5, 9; ld.shared.u32 %r, [buf];", 0, 0,
     0, 9},
    {"st.shared.u32 [buf], 7; atom.shared.inc.u32 %r, [buf], 7; ld.shared.u32 %r, [buf];", 0, 0, 0,
     0},
    {"st.shared.f32 [buf], 0f3F800000; red.shared.add.f32 [buf], 0f3F800000; ld.shared.u32 %r, "
     "[buf];",
     0, 0, 0, 0x40000000},
    {"mov.u32 %r, %ntid.x; mad.lo.u32 %r, %r, 100, %tid.y;", 0, 0, 0, 100},
};

static const char *header = ".version 9.0\n.target sm_75\n.address_size 64\n"
                            ".global .align 4 .b8 table[8] = {0, 0, 0, 0, 4, 3, 2, 1};\n"
                            ".const .align 4 .u16 coeff[4] = {6, 7, 8, 9};\n"
                            ".func (.param .b32 result) twice(.param .b32 value)\n{\n"
                            ".reg .b32 %r; ld.param.u32 %r, [value]; add.u32 %r, %r, %r;\n"
                            "st.param.b32 [result+0], %r; ret; }\n";

static void add_kernel(Text *t, size_t i, const char *body) {
    bool low = strstr(body, "%r"); /* the result is in %r, else in %d */
    text_add(
        t,
        ".visible .entry k%zu(.param .u64 out, .param .u64 x, .param .u64 y, .param .u64 z)\n{\n",
        i);
    text_str(t,
             ".reg .b64 %d, %x, %y, %z, %o; .reg .b32 %r, %a, %b, %c, %q1; .reg .b16 %h, %h1;\n"
             ".reg .f32 %e, %f; .reg .f64 %g; .reg .pred %p, %q;\n"
             ".shared .align 8 .b8 buf[16]; .local .align 8 .b8 stack[16];\n"
             "ld.param.u64 %o, [out]; ld.param.u64 %x, [x]; ld.param.u64 %y, [y];\n"
             "ld.param.u64 %z, [z]; cvt.u32.u64 %a, %x; cvt.u32.u64 %b, %y; cvt.u32.u64 %c, %z;\n"
             "mov.b32 %e, %a; mov.u32 %r, 0;\n");
    text_add(t, "%s\n%sst.global.u64 [%%o], %%d; ret;\n}\n", body,
             low ? "cvt.u64.u32 %d, %r; " : "");
}

static void run_cases(bool check) {
    Arena *a = arena_new();
    Text ptx;
    text_init(&ptx, a);
    text_str(&ptx, header);
    size_t n = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n; i++) add_kernel(&ptx, i, cases[i].body);
    char message[4000];
    SimtModule *m =
        simt_load(ptx.at, check ? SIMT_CHECKED : SIMT_FAST, NULL, message, sizeof message);
    if (!m) fprintf(stderr, "%s\n", message);
    CHECK(m != NULL);
    for (size_t i = 0; m && i < n; i++) {
        Case c = cases[i];
        uint64_t out = 0, *p = &out;
        void *args[] = {&p, &c.x, &c.y, &c.z};
        SimtOptions o = {.check = check};
        SimtFindings found = {0};
        const SimtKernel *k = simt_kernel(m, arena_printf(a, "k%zu", i));
        CHECK(k && simt_launch(k, (SimtDim){1, 1, 1}, (SimtDim){1, 1, 1}, 0, args, &o, &found));
        for (uint32_t f = 0; f < found.count; f++) fprintf(stderr, "%s\n", found.list[f].text);
        if (out != c.want)
            fprintf(stderr, "%s: %llx, expected %llx\n", c.body, (unsigned long long)out,
                    (unsigned long long)c.want);
        CHECK(out == c.want);
    }
    if (m) simt_unload(m);
    arena_free(a);
}

/* What must be refused, and where: the body starts in line 2. */
static const struct {
    const char *body, *message;
} refused[] = {
    {"\nfrob.u32 %r1, %r1;", "line 3: frob.u32: unknown instruction"},
    {"\n\nadd.rz.f64 %d1, %d1, %d1;", "line 4: add.rz.f64: unknown modifier .rz"},
    {"add.u32 %r1, %r2, %r9;", "line 2: add.u32: unknown register %r9"},
    {"add.u32 %r1, %r2;", "line 2: add.u32: too few operands"},
    {"add.u32 %p1, %r2, %r1;", "line 2: add.u32: a predicate and a value mixed"},
    {"ld.global.v8.u32 %r1, [%d1];", "line 2: ld.global.v8.u32: unknown modifier .v8"},
    {"ld.global.v2.u32 %r1, [%d1];", "line 2: ld.global.v2.u32: the vector has another length"},
    {"cvt.rz.f32.s32 %r1, %r1;", "line 2: cvt.rz.f32.s32: unknown modifier .rz"},
    {"setp.foo.s32 %p1, %r1, %r2;", "line 2: setp.foo.s32: unknown comparison"},
    {"bra nowhere;", "line 2: bra: no such label"},
    {"bar.sync 1;", "line 2: bar.sync: only barrier 0 of all threads is known"},
    {"bar.sync 0, 64;", "line 2: bar.sync: unexpected number of operands"},
    {"call.uni other, ();", "line 2: call.uni: other is not in this module"},
    {"mov.u32 %r1, %clock;", "line 2: mov.u32: unknown register %clock"},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "line 2: mma"},
    {"cp.async.ca.shared.global [%d1], [%d1], 16;", "line 2: cp.async.ca.shared.global: unknown"},
    {"add.u32 %r1, %r2, 0fZZ;", "line 2: malformed number 0fZZ"},
    {"add.u32 %r1, %r2", "line 3: expected ';', found ret"},
    {".reg .b128 %q<2>;", "line 2: unknown type .b128"},
    {".weird 5;", "line 2: unknown directive .weird"},
    {"atom.global.add.f16 %h1, [%d1], %h1;", "line 2: atom.global.add.f16: unknown atomic"},
};

static void run_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        Arena *a = arena_new();
        Text out;
        text_init(&out, a);
        char message[300];
        const char *ptx = arena_printf(
            a,
            ".version 9.0 .target sm_75 .address_size 64 .entry k() {\n.reg .b32 "
            "%%r<3>; .reg .b64 %%d<2>; .reg .b16 %%h<2>; .reg .pred %%p<2>; %s\nret; }",
            refused[i].body);
        CHECK(!ptx2c(a, ptx, &out, message, sizeof message));
        if (strncmp(message, refused[i].message, strlen(refused[i].message)))
            CHECK_STR(message, refused[i].message);
        arena_free(a);
    }
}

int main(void) {
    run_cases(false);
    run_cases(true);
    run_refused();
    return test_end();
}
