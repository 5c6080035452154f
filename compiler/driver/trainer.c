/* trainer.c - from a plan to an executable: where headers and runtime are (beside this executable:
 * PREFIX/include/dtrc, PREFIX/lib/dtrc), folders for generated files, code, the C compiler. */
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool trainer_runtime(Arena *a, Diag *d, CgOptions *cg) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return diag_error(d, (Place){0}, "cannot find the path of this executable");
    self[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(self, '/');
        if (slash) *slash = 0;
    }
    cg->include_dir = arena_printf(a, "%s/include/dtrc", self);
    cg->lib_dir = arena_printf(a, "%s/lib/dtrc", self);
    const char *lib = arena_printf(a, "%s/libdtrt.a", cg->lib_dir);
    if (access(lib, R_OK) == 0) return true;
    diag_error(d, (Place){.file = lib}, "the runtime library is not there");
    diag_hint(d, "dtrc finds it beside its own folder: PREFIX/bin/dtrc, PREFIX/lib/dtrc/libdtrt.a");
    return false;
}

bool trainer_temp_dir(Arena *a, Diag *d, const char **out) {
    const char *base = getenv("TMPDIR");
    char *dir = arena_printf(a, "%s/dtrc-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir))
        return diag_error(d, (Place){.file = dir}, "cannot make a temporary folder: %s",
                          strerror(errno));
    *out = dir;
    return true;
}

/* What cg_emit and a compiler that failed wrote. */
static void remove_dir(Arena *a, const char *dir) {
    static const char *const files[] = {"program.c",   "Makefile",   "manifest.json",
                                        "weights.bin", "kernels.cu", "compiler.log"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(arena_printf(a, "%s/%s", dir, files[i]));
    rmdir(dir);
}

int trainer_make(Arena *a, Diag *d, const Options *o, const Work *w, const CgOptions *runtime,
                 const char *dir, const char *out) {
    if (w->step == w->forward) {
        diag_error(d, (Place){.file = o->model},
                   "a text graph of a whole training step can be planned, but not compiled");
        diag_hint(d, "a text graph without a loss is compiled like a model");
        return EXIT_MODEL;
    }
    CgOptions cg = {.command = o->command,
                    .no_budget = !o->budget,
                    .model = o->model,
                    .model_sha256 = w->info.sha256 ? w->info.sha256 : "",
                    .target = o->target,
                    .loss = w->loss,
                    .opt = w->opt,
                    .gpu_arch = o->gpu_arch,
                    .ngpu_arch = o->ngpu_arch,
                    .tf32 = o->tf32,
                    .sizes = w->sizes,
                    .one_size = w->one_size,
                    .seed = o->seed,
                    .init = o->init,
                    .include_dir = runtime->include_dir,
                    .lib_dir = runtime->lib_dir};
    if (w->is_onnx) onnx_export(a, o->model, &w->info, w->step, &cg.model_file);
    bool keep = dir != NULL;
    if (!keep && !trainer_temp_dir(a, d, &dir)) return EXIT_MACHINE;
    bool ok = cg_emit(a, d, dir, w->forward, w->step, w->cost, w->plan, &cg);
    if (ok && out) ok = cg_build(a, d, dir, out, &cg);
    if (!keep) remove_dir(a, dir);
    return ok ? EXIT_DONE : EXIT_MACHINE;
}
