/* A table of GPUs, and the measurement of CPUs. Depends on str. */
#include "backend/peak.h"

#include <string.h>

#include "base/str.h"

typedef struct {
  const char *name; /* part of the name that the driver reports; the first match counts */
  double fp32, tf32, bf16, fp16, fp8; /* TFLOP/s; 0: the GPU does not have it */
} GpuPeak;

/* From NVIDIA's data sheets, without sparsity. GPUs of one name with different power limits have the
 * values of the largest. */
static const GpuPeak gpus[] = {
    {"B200", 75, 1100, 2250, 2250, 4500},
    {"H200 NVL", 60, 417.5, 835.5, 835.5, 1671},
    {"H200", 66.9, 494.7, 989.4, 989.4, 1978.9},
    {"GH200", 66.9, 494.7, 989.4, 989.4, 1978.9},
    {"H100 NVL", 60, 417.5, 835.5, 835.5, 1671},
    {"H100 PCIe", 51.2, 378, 756, 756, 1513},
    {"H100", 66.9, 494.7, 989.4, 989.4, 1978.9},
    {"A100", 19.5, 156, 312, 312, 0},
    {"A800", 19.5, 156, 312, 312, 0},
    {"A30", 10.3, 82, 165, 165, 0},
    {"A40", 37.4, 74.8, 149.7, 149.7, 0},
    {"A10G", 35, 35, 70, 70, 0},
    {"A10", 31.2, 62.5, 125, 125, 0},
    {"L40S", 91.6, 183, 362, 362, 733},
    {"L40", 90.5, 90.5, 181, 181, 362},
    {"L4", 30.3, 60, 121, 121, 242.5},
    {"V100S", 16.4, 0, 0, 130, 0},
    {"V100-PCIE", 14, 0, 0, 112, 0},
    {"V100", 15.7, 0, 0, 125, 0},
    {"RTX 6000 Ada", 91.1, 182.1, 364.2, 364.2, 728.5},
    {"RTX A6000", 38.7, 77.4, 154.8, 154.8, 0},
    {"RTX 4090", 82.6, 82.6, 165.2, 165.2, 330.3},
    {"RTX 3090", 35.6, 35.6, 71, 71, 0},
    {"T4", 8.1, 0, 0, 65, 0},
};

/* Returns true if `part` occurs in the name as whole words: "A10" is not part of "A100". */
static bool has_words(const char *name, const char *part) {
  size_t n = strlen(part);
  for (const char *at = strstr(name, part); at; at = strstr(at + 1, part)) {
    bool begins = at == name || at[-1] == ' ';
    if (begins && (!at[n] || at[n] == ' ' || at[n] == '-')) return true;
  }
  return false;
}

double peak_of_gpu(const char *name, const char *precision) {
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
    const GpuPeak *g = &gpus[i];
    if (!has_words(name, g->name)) continue;
    const struct {
      const char *precision;
      double tflops;
    } values[] = {{"fp32", g->fp32},
                  {"tf32", g->tf32},
                  {"bf16", g->bf16},
                  {"fp16", g->fp16},
                  {"fp8", g->fp8}};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
      if (strcmp(values[k].precision, precision) == 0) return values[k].tflops * 1e12;
  }
  return 0;
}

/* The description of a GPU is "cuda:0: NVIDIA H200, 143 GB, …". */
double backend_peak(const Backend *b, const char *precision) {
  char name[sizeof b->about];
  if (b->host) return b->bf16 || strcmp(b->name, "cpu") != 0 ? 0 : backend_cpu_peak(b->threads);
  const char *at = strstr(b->about, ": ");
  if (!at) return 0;
  size_t n = strcspn(at + 2, ",");
  memcpy(name, at + 2, n);
  name[n] = '\0';
  return peak_of_gpu(name, precision);
}
