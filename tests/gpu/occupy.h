/* Stands in for a collective of NCCL that occupies SMs beside other kernels. Depends on the CUDA
 * runtime. */
#ifndef TESTS_GPU_OCCUPY_H
#define TESTS_GPU_OCCUPY_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues a kernel that occupies `sms` SMs for `us` microseconds. */
cudaError_t occupy_sms(int sms, double us, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
