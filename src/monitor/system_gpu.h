/* GPUs of this host, measured through NVML, the library of NVIDIA's driver. It is loaded at run
 * time: most hosts have none. Depends on base. */
#ifndef MONITOR_SYSTEM_GPU_H
#define MONITOR_SYSTEM_GPU_H

#include "monitor/system.h"

typedef struct SystemNvml SystemNvml;

/* Loads the library of this file name. Returns NULL if there is none or if it has no GPU. */
SystemNvml *gpu_open(const char *library);
void gpu_close(SystemNvml *n); /* accepts NULL */
/* Measures every GPU and returns their number, at most `max`. What a GPU does not report is NAN. */
size_t gpu_take(SystemNvml *n, SystemGpu *gpu, size_t max);

/* Returns the name of reason number `bit` of SystemGpu.throttle; NULL for a bit that is no reason
 * (the GPU is idle). */
const char *gpu_throttle_name(int bit);

#endif
