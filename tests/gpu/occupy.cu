/* A kernel that occupies SMs and does nothing else. Depends on the CUDA runtime. */
#include "occupy.h"

#define THREADS 1024
#define CLUSTER 4 /* blocks of a cluster, as NCCL has on Hopper */

static __device__ unsigned long long read_clock(void) {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

static __global__ void __launch_bounds__(THREADS) occupy(unsigned long long ns) {
  unsigned long long begin = read_clock();
  while (read_clock() - begin < ns) __nanosleep(100);
}

/* A block has all shared memory that one can have, so that no block with shared memory fits beside
 * it. */
cudaError_t occupy_sms(int sms, double us, cudaStream_t stream) {
  int device = 0, bytes = 0, major = 0;
  cudaLaunchAttribute how = {};
  cudaLaunchConfig_t config = {};
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (!e) e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!e) e = cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e) return e;
  how.id = cudaLaunchAttributeClusterDimension;
  how.val.clusterDim.x = sms % CLUSTER ? 1 : CLUSTER;
  how.val.clusterDim.y = how.val.clusterDim.z = 1;
  config.gridDim = dim3((unsigned)sms);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = (size_t)bytes;
  config.stream = stream;
  config.attrs = &how;
  config.numAttrs = major >= 9;
  return cudaLaunchKernelEx(&config, occupy, (unsigned long long)(us * 1000));
}
