/* codegen.h - Graph + Cost + Plan -> a program folder with readable C, and the executable built
 * from it. */
#ifndef DTRC_CODEGEN_H
#define DTRC_CODEGEN_H

#include "onnx.h"
#include "plan.h"
#include "sizes.h"
#include "train.h"

/* Kernels for compute capability number / 10: machine code, which runs on it and on later minor
 * versions, or PTX, which drivers compile for it and all later ones. */
typedef struct {
    int number; /* 80 for sm_80 */
    bool cubin, ptx;
} GpuArch;

typedef struct {
    const char *command; /* command line, for the front matter */
    const char *model;   /* path as given */
    const char *model_sha256;
    Target target;
    LossSpec loss;
    OptSpec opt;
    bool no_budget;                    /* none was given: other sizes may take what they need */
    uint64_t seed;                     /* --init */
    const char *init;                  /* keep, kaiming, xavier */
    const char *include_dir, *lib_dir; /* of the runtime */
    const GpuArch *gpu_arch; /* the target cuda: what its kernels are compiled to, ascending */
    uint32_t ngpu_arch;
    bool tf32;             /* convolutions and products may round their inputs to TF32 */
    const Sizes *sizes;    /* other sizes that the program can have, or NULL */
    const char *one_size;  /* why not */
    OnnxExport model_file; /* the model's file, to be written again with the weights of step */
} CgOptions;

/* Writes program.c (front matter, memory map, kernels, schedule table), Makefile, manifest.json
 * into dir (created if need be) and weights.bin (initial values of persistent storages). `fwd` is
 * the forward graph as imported, for the reference interpreter of --check-grad. */
bool cg_emit(Arena *a, Diag *d, const char *dir, const Graph *fwd, const Graph *step, const Cost *c,
             const Plan *p, const CgOptions *o);
/* Compiles the folder's C with the system compiler ($CC or cc) and appends weights.bin to the
 * executable; out is replaced atomically. */
bool cg_build(Arena *a, Diag *d, const char *dir, const char *out, const CgOptions *o);

#endif
