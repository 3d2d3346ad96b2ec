/* Compares the blocks per SM of a table of scripts/occupancy (standard input) with those that
 * NVIDIA's cuda_occupancy.h computes. Prints each line that differs; exits with 1 if there is one.
 * tests/cli/occupancy.bats compiles and runs it; it needs no GPU. */
#include <cuda_occupancy.h>
#include <stdio.h>
#include <string.h>

/* Attributes of the architectures that cudaGetDeviceProperties would return: CUDA C++ Programming
 * Guide, "Compute Capabilities". */
typedef struct {
  const char *name;
  int major, minor, threads, shared_kib, reserved;
} Arch;

static const Arch archs[] = {
    {"sm_75", 7, 5, 1024, 64, 0},       {"sm_80", 8, 0, 2048, 164, 1024},
    {"sm_86", 8, 6, 1536, 100, 1024},   {"sm_87", 8, 7, 1536, 164, 1024},
    {"sm_89", 8, 9, 1536, 100, 1024},   {"sm_90a", 9, 0, 2048, 228, 1024},
    {"sm_100", 10, 0, 2048, 228, 1024}, {"sm_120", 12, 0, 1536, 100, 1024},
};

typedef struct {
  char arch[16], kernel[200];
  int threads, registers, shared, barriers, spill, blocks;
} Row;

static const Arch *find_arch(const char *name) {
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
    if (strcmp(archs[i].name, name) == 0) return &archs[i];
  }
  return NULL;
}

/* Returns NVIDIA's blocks per SM, or -1 if it reports an error. */
static int compute_blocks(const Arch *a, const Row *row) {
  cudaOccDeviceProp device = {0};
  cudaOccFuncAttributes kernel = {0};
  cudaOccDeviceState state = {0};
  cudaOccResult result;
  device.computeMajor = a->major;
  device.computeMinor = a->minor;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = a->threads;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerMultiprocessor = (size_t)a->shared_kib << 10;
  device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - (size_t)a->reserved;
  device.reservedSharedMemPerBlock = (size_t)a->reserved;
  device.numSms = 1;
  kernel.maxThreadsPerBlock = row->threads;
  kernel.numRegs = row->registers;
  kernel.maxDynamicSharedSizeBytes = (size_t)row->shared;
  kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  kernel.numBlockBarriers = row->barriers;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, row->threads,
                                              (size_t)row->shared))
    return -1;
  return result.activeBlocksPerMultiprocessor;
}

int main(void) {
  char line[1000];
  int compared = 0, different = 0;
  while (fgets(line, sizeof line, stdin)) {
    Row row;
    if (sscanf(line, "%15[^\t]\t%199[^\t]\t%d\t%d\t%d\t%d\t%d\t%d", row.arch, row.kernel,
               &row.threads, &row.registers, &row.shared, &row.barriers, &row.spill,
               &row.blocks) != 8)
      continue; /* a comment or the names of the columns */
    const Arch *a = find_arch(row.arch);
    int blocks = a ? compute_blocks(a, &row) : -1;
    compared++;
    if (blocks == row.blocks) continue;
    different++;
    printf("%s %s: %d blocks per SM, but %d by cuda_occupancy.h\n", row.arch, row.kernel,
           row.blocks, blocks);
  }
  printf("%d lines compared\n", compared);
  return different || !compared;
}
