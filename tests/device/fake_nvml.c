/* A fake libnvidia-ml.so.1 that reports two GPUs, for tests of `doctor`. -DFAKE_MISMATCH:
 * the driver does not answer. */
#include <stdio.h>

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
  static char devices[2];
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
