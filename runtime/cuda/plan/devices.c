/* devices.c - GPUs that can be planned for where there is none.
 *
 * Rates are peaks of NVIDIA's data sheets and white papers: H200 (SXM) data sheet 2023; A100 (SXM,
 * 40 GB) data sheet 2020; T4 data sheet 2018; Ada GPU architecture white paper 2022 for the RTX
 * 4090. TF32 is without sparsity. The time from kernel to kernel is what launches in a row cost
 * when they are replayed as a graph (A. Gray, "Getting Started with CUDA Graphs", NVIDIA developer
 * blog 2019, measures 3.4 us a kernel of 2.9 us), with some for kernels that fill a GPU only
 * slowly. Limits are those of the compute capability (CUDA C++ Programming Guide, "Compute
 * Capabilities"). */
#include "cuda_plan.h"

#include <stdio.h>
#include <string.h>

static const CudaDevice devices[] = {
    {.name = "h200",
     .title = "NVIDIA H200",
     .arch = 90,
     .processors = 132,
     .memory_bytes = 150120000000,
     .flops_per_ns = 67e3,
     .tf32_flops_per_ns = 494e3,
     .bytes_per_ns = 4800,
     .fixed_ns = 1500,
     .clock_mhz = 1980,
     .memory_clock_mhz = 3201,
     .blocks_per_processor = 32,
     .threads_per_processor = 2048,
     .cache_bytes = 62914560,
     .shared_bytes = 232448},
    {.name = "a100",
     .title = "NVIDIA A100",
     .arch = 80,
     .processors = 108,
     .memory_bytes = 42400000000,
     .flops_per_ns = 19.5e3,
     .tf32_flops_per_ns = 156e3,
     .bytes_per_ns = 1555,
     .fixed_ns = 1500,
     .clock_mhz = 1410,
     .memory_clock_mhz = 1215,
     .blocks_per_processor = 32,
     .threads_per_processor = 2048,
     .cache_bytes = 41943040,
     .shared_bytes = 166912},
    {.name = "t4",
     .title = "Tesla T4",
     .arch = 75,
     .processors = 40,
     .memory_bytes = 15800000000,
     .flops_per_ns = 8.1e3,
     .tf32_flops_per_ns = 8.1e3,
     .bytes_per_ns = 320,
     .fixed_ns = 2000,
     .clock_mhz = 1590,
     .memory_clock_mhz = 5001,
     .blocks_per_processor = 16,
     .threads_per_processor = 1024,
     .cache_bytes = 4194304,
     .shared_bytes = 65536},
    {.name = "rtx4090",
     .title = "NVIDIA GeForce RTX 4090",
     .arch = 89,
     .processors = 128,
     .memory_bytes = 25400000000,
     .flops_per_ns = 82.6e3,
     .tf32_flops_per_ns = 82.6e3,
     .bytes_per_ns = 1008,
     .fixed_ns = 1500,
     .clock_mhz = 2520,
     .memory_clock_mhz = 10501,
     .blocks_per_processor = 24,
     .threads_per_processor = 1536,
     .cache_bytes = 75497472,
     .shared_bytes = 101376},
};

const CudaDevice *cuda_device(uint32_t i) {
    return i < sizeof devices / sizeof *devices ? &devices[i] : NULL;
}

const CudaDevice *cuda_device_named(const char *name) {
    for (uint32_t i = 0; cuda_device(i); i++)
        if (!strcmp(devices[i].name, name)) return &devices[i];
    return NULL;
}

/* Keys as cuDNN 9.8 and later read them (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION); those that are
 * the same for all devices stand in the text. The driver is that of CUDA 13. */
size_t cuda_device_json(const CudaDevice *d, char *to, size_t room) {
    int n = snprintf(
        to, room,
        "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
        "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"warpSize\": 32, "
        "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %llu, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
        "\"maxCtasPerSM\": %d, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, "
        "\"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
        "\"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %llu, "
        "\"deviceName\": \"%s\", \"deviceVer\": %d, \"driverVer\": 13000, "
        "\"totalGlobalMem\": %llu, \"cudaDeviceId\": 0}",
        d->processors, (unsigned long long)d->shared_bytes, d->blocks_per_processor,
        d->threads_per_processor, 1000 * d->clock_mhz, 1000 * d->memory_clock_mhz,
        (unsigned long long)d->cache_bytes, d->title, 10 * d->arch,
        (unsigned long long)d->memory_bytes);
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}
