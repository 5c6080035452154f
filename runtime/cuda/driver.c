/* driver.c - libcuda by dlopen: its functions, the device, the context, the program's kernels.
 *
 * The primary context is used, because cuDNN and cuBLAS work in it. Of the images that the program
 * carries the newest cubin that runs on the device is taken, else the text, which the driver
 * compiles. Nothing is linked against NVIDIA's libraries: where they are not, the program starts
 * and says so. */
#include "libraries.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

CuDriver cu;
CuDevice cu_device;

static void *driver; /* handle of libcuda */
static Runtime *run; /* the one that cu_fail ends */

/* ---- libraries ------------------------------------------------------------------------------- */

static void *open_in(const char *folders, const char *name) {
    char path[4096];
    while (folders && *folders) {
        size_t n = strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, name);
        void *lib = n ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
        if (lib) return lib;
        folders += n + (folders[n] == ':');
    }
    return NULL;
}

void *cu_library(const char *what, const char *const *names) {
    const char *folders = getenv("DTRT_CUDA_PATH");
    for (const char *const *n = names; *n; n++) {
        void *lib = open_in(folders, *n);
        if (!lib) lib = dlopen(*n, RTLD_NOW | RTLD_GLOBAL);
        if (lib) return lib;
    }
    const char *why = dlerror();
    dtrt_error("%s cannot be opened: %s", what, why ? why : "not found");
    return NULL;
}

bool cu_symbols(void *library, const char *what, const char *const *name, void **to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        to[i] = dlsym(library, name[i]);
        if (to[i]) continue;
        dtrt_error("%s has no function %s: it is too old", what, name[i]);
        dtrt_hint("this program was compiled with CUDA %d.%d: it needs the libraries of that "
                  "version, and a driver that is no older",
                  CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
        return false;
    }
    return true;
}

#define STR2(x) #x
#define STR(x) STR2(x)

static bool open_driver(void) {
    static const char *const file[] = {"libcuda.so.1", NULL};
#define F(name) STR(name),
    static const char *const name[] = {CU_FUNCTIONS(F)};
#undef F
    enum { COUNT = sizeof name / sizeof *name };
    void *to[COUNT];
    driver = cu_library("the CUDA driver (libcuda.so.1)", file);
    if (!driver) {
        dtrt_hint("this program was compiled with --target cuda: it needs a machine with an NVIDIA "
                  "GPU and its driver. Compile the model with --target cpu to train without one; "
                  "folders of libraries can be named in the environment variable DTRT_CUDA_PATH");
        return false;
    }
    if (!cu_symbols(driver, "the CUDA driver", name, to, COUNT)) return false;
    memcpy(&cu, to, sizeof cu);
    return true;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *error_text(CUresult r) {
    const char *name = NULL, *text = NULL;
    static char line[256];
    if (cu.cuGetErrorName) cu.cuGetErrorName(r, &name);
    if (cu.cuGetErrorString) cu.cuGetErrorString(r, &text);
    snprintf(line, sizeof line, "%s (%d): %s", name ? name : "CUDA error", (int)r,
             text ? text : "no text");
    return line;
}

bool cu_good(CUresult r, const char *what) {
    if (r == CUDA_SUCCESS) return true;
    dtrt_error("%s failed: %s", what, error_text(r));
    return false;
}

int cu_node(void) {
    return run ? run->running : -1;
}

void cu_fail(const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dtrt_end_line();
    if (run->running >= 0) {
        const DtrtNode *n = &run->p->node[run->running];
        dtrt_error("node %s (%s): %s", dtrt_name_str(n->name), n->op, text);
    } else {
        dtrt_error("%s", text);
    }
    cu_step_interrupted(); /* before what it uses is released */
    run->failed = ST_MACHINE;
    longjmp(run->fail, 1);
}

void cu_check(CUresult r, const char *what) {
    if (r != CUDA_SUCCESS) cu_fail("%s failed: %s", what, error_text(r));
}

/* ---- device ---------------------------------------------------------------------------------- */

static int attribute(CUdevice_attribute a) {
    int v = 0;
    return cu.cuDeviceGetAttribute(&v, a, cu_device.device) == CUDA_SUCCESS ? v : 0;
}

static bool open_device(void) {
    int count = 0;
    CUresult r = cu.cuInit(0);
    if (r == CUDA_SUCCESS) r = cu.cuDeviceGetCount(&count);
    if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && !count)) {
        dtrt_error("the CUDA driver finds no GPU");
        dtrt_hint("nvidia-smi lists those of the machine; CUDA_VISIBLE_DEVICES may hide them");
        return false;
    }
    if (!cu_good(r, "starting the CUDA driver")) return false;
    if (!cu_good(cu.cuDeviceGet(&cu_device.device, 0), "cuDeviceGet")) return false;
    cu.cuDeviceGetName(cu_device.name, sizeof cu_device.name, cu_device.device);
    cu_device.arch = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                     attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    cu_device.processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return true;
}

static bool open_context(void) {
    return cu_good(cu.cuDevicePrimaryCtxRetain(&cu_device.context, cu_device.device),
                   "opening a context on the GPU") &&
           cu_good(cu.cuCtxSetCurrent(cu_device.context), "cuCtxSetCurrent") &&
           cu_good(cu.cuStreamCreate(&cu_device.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Cubins run on their architecture and later minor versions of it. */
static bool can_run(const DtrtImage *i) {
    if (i->is_text) return i->arch <= cu_device.arch;
    return i->arch / 10 == cu_device.arch / 10 && i->arch <= cu_device.arch;
}

static Status load_image(Runtime *rt, const DtrtImage *i, CUresult *r) {
    char *bytes = malloc(i->file_bytes + 1);
    if (!bytes) return dtrt_no_memory(i->file_bytes);
    Status st = dtrt_payload_read(rt, i->file_offset, bytes, i->file_bytes);
    bytes[i->file_bytes] = 0; /* text ends with it */
    if (!st) *r = cu.cuModuleLoadData(&cu_device.module, bytes);
    free(bytes);
    return st;
}

static Status load_kernels(Runtime *rt) {
    CUresult r = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (int text = 0; text < 2 && r != CUDA_SUCCESS; text++) {
        for (uint32_t i = rt->p->nimage; i-- > 0 && r != CUDA_SUCCESS;) {
            if (rt->p->image[i].is_text != text || !can_run(&rt->p->image[i])) continue;
            Status st = load_image(rt, &rt->p->image[i], &r);
            if (st) return st;
        }
    }
    size_t now, report;
    if (r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
        dtrt_error("the CUDA driver is older than the program's kernels, which CUDA %d.%d made",
                   CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
        dtrt_hint("install a newer driver");
        return ST_MACHINE;
    }
    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU) {
        dtrt_error("%s has compute capability %d.%d, and the program has no kernels for it",
                   cu_device.name, cu_device.arch / 10, cu_device.arch % 10);
        dtrt_hint("compile the model with --gpu-arch sm_%d", cu_device.arch);
        return ST_MACHINE;
    }
    if (!cu_good(r, "loading the program's kernels") ||
        !cu_good(cu.cuModuleGetGlobal(&cu_device.now, &now, cu_device.module, "cu_now"),
                 "cuModuleGetGlobal(cu_now)") ||
        !cu_good(cu.cuModuleGetGlobal(&cu_device.report, &report, cu_device.module, "cu_report"),
                 "cuModuleGetGlobal(cu_report)"))
        return ST_MACHINE;
    if (now == sizeof(CuStep) && report == sizeof(CuReport)) return ST_OK;
    dtrt_error("the program's kernels do not belong to this runtime");
    return ST_DATA;
}

uint64_t cu_left(void) {
    size_t left = 0, total = 0;
    return cu.cuMemGetInfo(&left, &total) == CUDA_SUCCESS ? left : 0;
}

Status cu_open(Runtime *rt) {
    run = rt;
    cu_device.tf32 = rt->p->tf32;
    if (!open_driver() || !open_device() || !open_context()) return ST_MACHINE;
    cu_watch_open(driver);
    uint64_t before = cu_left();
    Status st = load_kernels(rt);
    uint64_t after = cu_left();
    rt->library_bytes = before > after ? before - after : 0;
    snprintf(rt->device, sizeof rt->device, "%s (sm_%d)", cu_device.name, cu_device.arch);
    return st;
}

void cu_close(void) {
    if (!cu_device.context) return;
    cu_dnn_close();
    cu_blas_close();
    if (cu_device.module) cu.cuModuleUnload(cu_device.module);
    if (cu_device.stream) cu.cuStreamDestroy(cu_device.stream);
    cu.cuDevicePrimaryCtxRelease(cu_device.device);
    cu_device = (CuDevice){0};
}
