/* device.c - the constants of the analytic model as a file, and their fit to measured times.
 *
 *   {"format": "dtrc-device", "version": 1, "name": "...",
 *    "flops_per_ns": 105, "loop_flops_per_ns": 20, "bytes_per_ns": 25, "max_bytes_per_ns": 36,
 * "fixed_ns": 1500, "operators": {"Conv": 1.05, "Fused": 0.9}}
 *
 * For the target cuda also "gpu": "a100" (a name that device_gpu knows): the rates are those of one
 * of CUDA_SHARES threads, and what is not in the file is taken from that GPU. "operators" multiply
 * what the roofline says; an operator that is not there has the factor 1.
 */
#include "measured.h"

#include "cuda_plan.h"

#include <string.h>

/* Rates and factors that make sense; what is outside is a mistake of units. */
static const double rate_min = 1e-3, rate_max = 1e6, factor_min = 1e-3, factor_max = 1e3,
                    fixed_max = 1e9;

const Device *device_default(void) {
    static const Device x = {.name = "built in",
                             .flops_per_ns = 105,
                             .loop_flops_per_ns = 20,
                             .bytes_per_ns = 25,
                             .max_bytes_per_ns = 36,
                             .fixed_ns = 800,
                             .factor = {[OP_Fused] = 0.7,
                                        [OP_Add] = 0.4,
                                        [OP_Mul] = 0.5,
                                        [OP_Sgd] = 0.75,
                                        [OP_BnGradX] = 0.6,
                                        [OP_SliceGrad] = 0.6,
                                        [OP_Slice] = 0.6,
                                        [OP_AveragePool] = 1.8,
                                        [OP_MaxPool] = 3.5,
                                        [OP_MaxPoolGrad] = 3.5}};
    return &x;
}

/* The model's rates are those of one thread of CUDA_SHARES. */
bool device_gpu(const char *name, bool tf32, Device *out) {
    const CudaDevice *gpu = cuda_device_named(name);
    if (!gpu) return false;
    double products = tf32 ? gpu->tf32_flops_per_ns : gpu->flops_per_ns;
    *out = (Device){.name = gpu->title,
                    .flops_per_ns = products / CUDA_SHARES,
                    .loop_flops_per_ns = gpu->flops_per_ns / CUDA_SHARES,
                    .bytes_per_ns = gpu->bytes_per_ns / CUDA_SHARES,
                    .max_bytes_per_ns = gpu->bytes_per_ns,
                    .fixed_ns = gpu->fixed_ns,
                    .gpu = gpu->name,
                    .tf32 = tf32};
    return true;
}

const char *device_gpu_names(Arena *a) {
    Text t;
    text_init(&t, a);
    for (uint32_t i = 0; cuda_device(i); i++)
        text_add(&t, "%s%s", i ? ", " : "", cuda_device(i)->name);
    return t.at;
}

bool device_read(Arena *a, Diag *d, const char *file, Device *out) {
    *out = *device_default();
    cJSON *root = json_open(a, d, file, "dtrc-device");
    if (!root) return false;
    const char *name = json_string(root, "name");
    const char *gpu = json_string(root, "gpu");
    bool ok = true;
    if (gpu && !device_gpu(gpu, false, out))
        ok = diag_error(d, (Place){.file = file}, "\"gpu\": '%s' is not known: expected one of %s",
                        diag_name(a, gpu), device_gpu_names(a));
    out->name = arena_str(a, name ? name : file);
    ok = ok && json_number(d, file, root, "flops_per_ns", rate_min, rate_max, &out->flops_per_ns) &&
         json_number(d, file, root, "loop_flops_per_ns", rate_min, rate_max,
                     &out->loop_flops_per_ns) &&
         json_number(d, file, root, "bytes_per_ns", rate_min, rate_max, &out->bytes_per_ns) &&
         json_number(d, file, root, "max_bytes_per_ns", rate_min, rate_max,
                     &out->max_bytes_per_ns) &&
         json_number(d, file, root, "fixed_ns", 0, fixed_max, &out->fixed_ns);
    memset(out->factor, 0, sizeof out->factor);
    const cJSON *table = cJSON_GetObjectItemCaseSensitive(root, "operators"), *j;
    if (ok && table && !cJSON_IsObject(table))
        ok = diag_error(d, (Place){.file = file}, "expected an object for \"operators\"");
    if (ok && table) cJSON_ArrayForEach(j, table) {
            OpCode op = ir_op_by_name(j->string);
            if (op == OP_NONE)
                ok =
                    diag_error(d, (Place){.file = file}, "\"operators\": there is no operator '%s'",
                               diag_name(a, j->string));
            ok = ok &&
                 json_number(d, file, table, j->string, factor_min, factor_max, &out->factor[op]);
            if (!ok) break;
        }
    cJSON_Delete(root);
    return ok;
}

void device_print(Text *t, const Device *x) {
    text_str(t, "{\"format\": \"dtrc-device\", \"version\": 1, \"name\": ");
    text_json(t, x->name);
    if (x->gpu) text_add(t, ", \"gpu\": \"%s\"", x->gpu);
    text_add(t,
             ",\n \"flops_per_ns\": %.4g, \"loop_flops_per_ns\": %.4g, \"bytes_per_ns\": %.4g, "
             "\"max_bytes_per_ns\": %.4g, "
             "\"fixed_ns\": %.4g,\n \"operators\": {",
             x->flops_per_ns, x->loop_flops_per_ns, x->bytes_per_ns, x->max_bytes_per_ns,
             x->fixed_ns);
    bool first = true;
    for (OpCode op = 1; op < OP_COUNT; op++) {
        if (!x->factor[op]) continue;
        text_add(t, "%s\"%s\": %.4g", first ? "" : ", ", ir_op_name(op), x->factor[op]);
        first = false;
    }
    text_str(t, "}}\n");
}
