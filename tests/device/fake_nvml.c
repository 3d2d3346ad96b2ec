/* A fake libnvidia-ml.so.1 that reports two GPUs, for tests of `doctor` and of the sampler. The
 * second GPU has no measurements except its memory. -DFAKE_MISMATCH: the driver does not answer.
 * -DFAKE_HANG: a measurement does not return. */
#include <stdio.h>
#include <unistd.h>

typedef struct {
  unsigned long long total, free, used;
} Memory;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *utilization);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);

#define NOT_SUPPORTED 3

static char devices[2];

int nvmlInit_v2(void) {
#ifdef FAKE_MISMATCH
  return 18;
#else
  return 0;
#endif
}

int nvmlShutdown(void) {
  return 0;
}

const char *nvmlErrorString(int code) {
  return code == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  snprintf(text, size, "550.54.15");
  return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 12040;
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &devices[index];
  return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
  (void)device;
  snprintf(text, size, "Test GPU");
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
  (void)device;
  *memory = (Memory){16000000000, 15800000000, 200000000};
  return 0;
}

static int measure(void *device, unsigned *to, unsigned value) {
#ifdef FAKE_HANG
  for (;;) sleep(60);
#endif
  if (device != &devices[0]) return NOT_SUPPORTED;
  *to = value;
  return 0;
}

/* utilization[0]: percent of the time in which a kernel ran; utilization[1]: of memory accesses */
int nvmlDeviceGetUtilizationRates(void *device, unsigned *utilization) {
  utilization[1] = 40;
  return measure(device, utilization, 97);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  return measure(device, milliwatts, 612345);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
  return measure(device, milliwatts, 700000);
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) {
  return measure(device, mhz, clock == 1 ? 1980 : 3201);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  (void)sensor;
  return measure(device, celsius, 61);
}

/* idle, power cap, hardware thermal slowdown, and two reasons of a newer driver */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
  if (device != &devices[0]) return NOT_SUPPORTED;
  *reasons = 0x1 | 0x4 | 0x40 | 0x10000 | 0x20000;
  return 0;
}
