/* Loads NVML and asks each GPU. Depends on base. */
#include "monitor/system_gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The part of NVML's stable binary interface that is used here. */
typedef int NvmlReturn; /* return code; 0 is success */
typedef void *NvmlDevice;
typedef struct {
  unsigned gpu, memory; /* percent */
} NvmlUtilization;
typedef struct {
  unsigned long long total, free, used; /* bytes */
} NvmlMemory;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum { NVML_TEMPERATURE_GPU = 0 };

struct SystemNvml {
  void *handle;
  unsigned count;
  NvmlDevice device[SYSTEM_GPUS]; /* NULL: the GPU does not answer */
  char name[SYSTEM_GPUS][SYSTEM_NAME];
  NvmlReturn (*init)(void);
  NvmlReturn (*shutdown)(void);
  NvmlReturn (*get_count)(unsigned *count);
  NvmlReturn (*get_device)(unsigned index, NvmlDevice *device);
  NvmlReturn (*get_name)(NvmlDevice, char *name, unsigned size);
  /* The functions below may be missing in the driver or fail on a kind of GPU. */
  NvmlReturn (*get_utilization)(NvmlDevice, NvmlUtilization *);
  NvmlReturn (*get_memory)(NvmlDevice, NvmlMemory *);
  NvmlReturn (*get_power)(NvmlDevice, unsigned *milliwatts);
  NvmlReturn (*get_power_limit)(NvmlDevice, unsigned *milliwatts);
  NvmlReturn (*get_clock)(NvmlDevice, int clock, unsigned *mhz);
  NvmlReturn (*get_temperature)(NvmlDevice, int sensor, unsigned *celsius);
  NvmlReturn (*get_throttle)(NvmlDevice, unsigned long long *reasons);
};

/* Looks up the functions. Returns false if one of the first five, which are needed, is missing. */
static bool find_functions(SystemNvml *n) {
  const struct {
    void *address;
    const char *name;
    bool is_needed;
  } symbols[] = {
      {&n->init, "nvmlInit_v2", true},
      {&n->shutdown, "nvmlShutdown", true},
      {&n->get_count, "nvmlDeviceGetCount_v2", true},
      {&n->get_device, "nvmlDeviceGetHandleByIndex_v2", true},
      {&n->get_name, "nvmlDeviceGetName", true},
      {&n->get_utilization, "nvmlDeviceGetUtilizationRates", false},
      {&n->get_memory, "nvmlDeviceGetMemoryInfo", false},
      {&n->get_power, "nvmlDeviceGetPowerUsage", false},
      {&n->get_power_limit, "nvmlDeviceGetEnforcedPowerLimit", false},
      {&n->get_clock, "nvmlDeviceGetClockInfo", false},
      {&n->get_temperature, "nvmlDeviceGetTemperature", false},
      {&n->get_throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", false},
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *found = dlsym(n->handle, symbols[i].name);
    if (!found && symbols[i].is_needed) return false;
    memcpy(symbols[i].address, &found, sizeof found);
  }
  return true;
}

static void list_devices(SystemNvml *n) {
  unsigned count = 0;
  if (n->get_count(&count) != 0) return;
  n->count = count < SYSTEM_GPUS ? count : SYSTEM_GPUS;
  for (unsigned i = 0; i < n->count; i++) {
    char name[96] = ""; /* NVML's limit */
    if (n->get_device(i, &n->device[i]) != 0) n->device[i] = NULL;
    if (n->device[i] && n->get_name(n->device[i], name, sizeof name) != 0) name[0] = '\0';
    name[sizeof name - 1] = '\0';
    snprintf(n->name[i], SYSTEM_NAME, "%.*s", SYSTEM_NAME - 1, name);
  }
}

SystemNvml *gpu_open(const char *library) {
  SystemNvml *n;
  bool is_begun = false;
  if (mem_alloc(&n, 1, sizeof *n)) return NULL;
  n->handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (n->handle && find_functions(n)) is_begun = n->init() == 0;
  if (is_begun) list_devices(n);
  if (is_begun && n->count) return n;
  if (is_begun) n->shutdown();
  if (n->handle) dlclose(n->handle);
  mem_free(n);
  return NULL;
}

void gpu_close(SystemNvml *n) {
  if (!n) return;
  n->shutdown();
  dlclose(n->handle);
  mem_free(n);
}

static double read_milliwatts(NvmlReturn (*get)(NvmlDevice, unsigned *), NvmlDevice device) {
  unsigned milliwatts;
  return get && get(device, &milliwatts) == 0 ? milliwatts / 1e3 : NAN;
}

static double read_clock(const SystemNvml *n, NvmlDevice device, int clock) {
  unsigned mhz;
  return n->get_clock && n->get_clock(device, clock, &mhz) == 0 ? (double)mhz : (double)NAN;
}

static void take_gpu(const SystemNvml *n, NvmlDevice device, SystemGpu *g) {
  NvmlUtilization utilization;
  NvmlMemory memory;
  unsigned celsius;
  unsigned long long throttle;
  if (n->get_utilization && n->get_utilization(device, &utilization) == 0)
    g->busy = utilization.gpu;
  if (n->get_memory && n->get_memory(device, &memory) == 0) {
    g->memory_used = (double)memory.used;
    g->memory_total = (double)memory.total;
  }
  g->watts = read_milliwatts(n->get_power, device);
  g->watts_limit = read_milliwatts(n->get_power_limit, device);
  g->sm_mhz = read_clock(n, device, NVML_CLOCK_SM);
  g->memory_mhz = read_clock(n, device, NVML_CLOCK_MEM);
  if (n->get_temperature && n->get_temperature(device, NVML_TEMPERATURE_GPU, &celsius) == 0)
    g->celsius = celsius;
  g->has_throttle = n->get_throttle && n->get_throttle(device, &throttle) == 0;
  if (g->has_throttle) g->throttle = throttle;
}

size_t gpu_take(SystemNvml *n, SystemGpu *gpu, size_t max) {
  size_t count = n->count < max ? n->count : max;
  for (size_t i = 0; i < count; i++) {
    gpu[i] = (SystemGpu){.index = (unsigned)i,
                         .busy = NAN,
                         .memory_used = NAN,
                         .memory_total = NAN,
                         .watts = NAN,
                         .watts_limit = NAN,
                         .sm_mhz = NAN,
                         .memory_mhz = NAN,
                         .celsius = NAN};
    memcpy(gpu[i].name, n->name[i], SYSTEM_NAME);
    if (n->device[i]) take_gpu(n, n->device[i], &gpu[i]);
  }
  return count;
}

/* nvmlClocksThrottleReasons (now called nvmlClocksEventReasons) of nvml.h. */
const char *gpu_throttle_name(int bit) {
  static const char *const names[] = {
      NULL, /* idle */
      "applications_clocks",
      "power_cap",
      "hw_slowdown",
      "sync_boost",
      "sw_thermal",
      "hw_thermal",
      "hw_power_brake",
      "display_clocks",
  };
  if (bit < 0 || bit >= 64) return NULL;
  return (size_t)bit < sizeof names / sizeof *names ? names[bit] : "other";
}
