/* Conversion of bf16 to fp8 with a scale, of a row or of a tensor, that maps the largest element
 * to the largest fp8 number. e4m3 has 4 bits of exponent and 3 of mantissa, e5m2 5 and 2.
 * Depends on device.cuh. */
#ifndef BACKEND_CUDA_FP8_CUH
#define BACKEND_CUDA_FP8_CUH

#include <cuda_fp8.h>

#include "backend/cuda/device.cuh"

#define FP8_LARGEST 448.0f /* largest e4m3 number */

/* Returns the factor of elements whose largest absolute value is `most`; 0 if it would be above
 * 4.4e37, near the largest float. limit: the largest fp8 number. */
static __device__ __forceinline__ float fp8_factor(float most, float limit = FP8_LARGEST) {
  return most < limit * 2.3e-38f ? 0 : limit / most;
}

/* Returns the maximum of `most` and eight absolute values. NaN is ignored. */
static __device__ __forceinline__ float fp8_max(float most, const float x[8]) {
#pragma unroll
  for (int j = 0; j < 8; j++) most = fmaxf(most, fabsf(x[j]));
  return most;
}

template <__nv_fp8_interpretation_t KIND = __NV_E4M3>
static __device__ __forceinline__ uint32_t fp8_convert2(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, KIND);
}

/* Converts eight elements; `by` is their factor. */
template <__nv_fp8_interpretation_t KIND = __NV_E4M3>
static __device__ __forceinline__ void fp8_store8(uint8_t *to, const Eight<__nv_bfloat16> &e,
                                                  float by) {
  float x[8];
  e.get(x);
#pragma unroll
  for (int j = 0; j < 8; j++) x[j] *= by;
  uint32_t low = fp8_convert2<KIND>(x[0], x[1]) | fp8_convert2<KIND>(x[2], x[3]) << 16;
  uint32_t high = fp8_convert2<KIND>(x[4], x[5]) | fp8_convert2<KIND>(x[6], x[7]) << 16;
  *(uint2 *)(void *)to = make_uint2(low, high);
}

/* Rounds up the size of a part of the work memory, see kernel_fp8_work. */
static inline size_t fp8_round_up(size_t n) {
  return (n + 255) / 256 * 256;
}

#endif
