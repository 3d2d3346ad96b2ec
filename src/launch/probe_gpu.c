/* Reads facts about GPUs and their driver through NVML, the driver's library. It is loaded at
 * run time, because a machine may have none. Depends on backend, base/plugin. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/file.h"
#include "base/plugin.h"
#include "launch/probe.h"

/* The part of NVML's stable binary interface that is used here. */
typedef int NvmlReturn; /* return code of NVML; 0 is success */
typedef void *NvmlDevice;
typedef struct {
  unsigned long long total, free, used; /* GPU memory in bytes */
} NvmlMemory;
#define NVML_DRIVER_MISMATCH 18

typedef struct {
  void *handle;
  NvmlReturn (*init)(void);
  NvmlReturn (*shutdown)(void);
  const char *(*explain)(NvmlReturn);
  NvmlReturn (*driver)(char *text, unsigned size);
  /* Newest CUDA version that the driver supports; 12040 is CUDA 12.4. */
  NvmlReturn (*cuda)(int *version);
  NvmlReturn (*count)(unsigned *devices);
  NvmlReturn (*device)(unsigned index, NvmlDevice *device);
  NvmlReturn (*name)(NvmlDevice device, char *text, unsigned size);
  NvmlReturn (*memory)(NvmlDevice device, NvmlMemory *memory);
} Nvml;

static bool load_nvml(Nvml *n) {
  const struct {
    void *address;
    const char *name;
  } symbols[] = {
      {&n->init, "nvmlInit_v2"},
      {&n->shutdown, "nvmlShutdown"},
      {&n->explain, "nvmlErrorString"},
      {&n->driver, "nvmlSystemGetDriverVersion"},
      {&n->cuda, "nvmlSystemGetCudaDriverVersion_v2"},
      {&n->count, "nvmlDeviceGetCount_v2"},
      {&n->device, "nvmlDeviceGetHandleByIndex_v2"},
      {&n->name, "nvmlDeviceGetName"},
      {&n->memory, "nvmlDeviceGetMemoryInfo"},
  };
  n->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!n->handle) return false;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *found = dlsym(n->handle, symbols[i].name);
    if (!found) return false;
    memcpy(symbols[i].address, &found, sizeof found);
  }
  return true;
}

static void list_gpus(const Nvml *n, MachineFacts *m) {
  int cuda = 0;
  unsigned count = 0;
  n->driver(m->gpu_driver, sizeof m->gpu_driver);
  if (n->cuda(&cuda) == 0)
    snprintf(m->gpu_cuda, sizeof m->gpu_cuda, "%d.%d", cuda / 1000 % 100, cuda % 1000 / 10);
  if (n->count(&count) != 0) return;
  for (unsigned i = 0; i < count && m->gpus < FACTS_GPUS; i++) {
    NvmlDevice device;
    NvmlMemory memory;
    NvmlReturn status = n->device(i, &device);
    GpuFacts *g = &m->gpu[m->gpus++];
    *g = (GpuFacts){0};
    if (status != 0) {
      snprintf(g->problem, sizeof g->problem, "%s", n->explain(status));
      continue;
    }
    n->name(device, g->name, sizeof g->name);
    if (n->memory(device, &memory) != 0) continue;
    g->memory = memory.total;
    g->memory_free = memory.free;
  }
}

static void probe_nccl(MachineFacts *m) {
  int version = 0;
  int (*get_version)(int *);
  void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return;
  void *found = dlsym(handle, "ncclGetVersion");
  memcpy(&get_version, &found, sizeof found);
  /* Version numbers of NCCL: 22005 is 2.20.5; before 2.9 the format was another, and 2804 is
   * 2.8.4. */
  if (found && get_version(&version) == 0)
    snprintf(m->nccl, sizeof m->nccl, "%d.%d.%d",
             version >= 10000 ? version / 10000 : version / 1000,
             version >= 10000 ? version / 100 % 100 : version / 100 % 10, version % 100);
  dlclose(handle);
}

void probe_gpus(MachineFacts *m) {
  static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"};
  Nvml n = {0};
  bool has_device = false;
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    if (file_exists(devices[i])) has_device = true;
  m->has_cuda_plugin = plugin_exists("libtrireme-cuda.so");
  if (!load_nvml(&n)) {
    if (has_device)
      snprintf(m->gpu_problem, sizeof m->gpu_problem,
               "there is an NVIDIA device file, but the driver's library libnvidia-ml.so.1 "
               "cannot be loaded");
  } else {
    NvmlReturn status = n.init();
    if (status == 0) {
      list_gpus(&n, m);
      n.shutdown();
    } else if (has_device || status == NVML_DRIVER_MISMATCH) {
      snprintf(m->gpu_problem, sizeof m->gpu_problem, "%s", n.explain(status));
    }
  }
  if (n.handle) dlclose(n.handle);
  if (m->gpus || m->has_cuda_plugin) probe_nccl(m);
}

void probe_try_gpus(MachineFacts *m) {
  for (size_t i = 0; i < m->gpus && m->has_cuda_plugin; i++) {
    Backend b;
    char device[32];
    GpuFacts *g = &m->gpu[i];
    snprintf(device, sizeof device, "cuda:%zu", i);
    if (!g->problem[0] && backend_open(&b, &(BackendSpec){device, "fp32", 1}))
      snprintf(g->problem, sizeof g->problem, "%s", err_message());
    else if (!g->problem[0])
      backend_close(&b);
  }
}
