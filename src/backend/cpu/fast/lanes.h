/* SIMD vectors of the instruction set's width, and the operations for which C has no operator.
 * Kernels use them instead of auto-vectorization, so that speed and the order of sums do not
 * depend on the compiler. No dependencies. */
#ifndef BACKEND_CPU_FAST_LANES_H
#define BACKEND_CPU_FAST_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t IntLanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

/* Loads LANES floats; any alignment. */
static inline Lanes lanes_at(const float *x) {
  return *(const Lanes *)x;
}

static inline void lanes_put(float *to, Lanes x) {
  *(Lanes *)to = x;
}

/* Broadcasts x to every lane. */
static inline Lanes lanes_of(float x) {
#if LANES == 16
  return (Lanes){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif LANES == 8
  return (Lanes){x, x, x, x, x, x, x, x};
#else
  return (Lanes){x, x, x, x};
#endif
}

/* Returns x if x > y, else y, per lane; y if either is NaN. */
static inline Lanes lanes_max(Lanes x, Lanes y) {
#if LANES == 16
  return (Lanes)_mm512_max_ps((__m512)x, (__m512)y);
#elif LANES == 8
  return (Lanes)_mm256_max_ps((__m256)x, (__m256)y);
#elif defined(__x86_64__)
  return (Lanes)_mm_max_ps((__m128)x, (__m128)y);
#else
  IntLanes larger = x > y;
  return (Lanes)((larger & (IntLanes)x) | (~larger & (IntLanes)y));
#endif
}

static inline Lanes lanes_sqrt(Lanes x) {
#if LANES == 16
  return (Lanes)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
  return (Lanes)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
  return (Lanes)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
  return (Lanes)vsqrtq_f32((float32x4_t)x);
#else
  for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
  return x;
#endif
}

/* Returns x * y + z, fused if the instruction set has FMA. madd and lanes_madd give the same
 * bits, so the result of an element does not depend on whether it is in the vector part or the
 * remainder of a loop, nor on whether the compiler contracts the expression. */
static inline float madd(float x, float y, float z) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(x, y, z);
#else
  return x * y + z;
#endif
}

static inline Lanes lanes_madd(Lanes x, Lanes y, Lanes z) {
#if LANES == 16
  return (Lanes)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__FMA__)
  return (Lanes)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__aarch64__)
  return (Lanes)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
  return x * y + z;
#endif
}

/* Returns the sum of all lanes, in a fixed order. */
static inline float lanes_sum(Lanes x) {
  Four part[LANES / 4], four;
  __builtin_memcpy(part, &x, sizeof part);
  four = part[0];
  for (int i = 1; i < LANES / 4; i++) four += part[i];
  four += __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return four[0] + four[1];
}

/* Returns exp(x) for x <= 88, within 2 ulp; 0 for x < -87. Range reduction by n = round(x / ln 2)
 * and a polynomial of degree 7 (the coefficients of Cephes expf). */
static inline float fast_exp(float x) {
  float n = x * 1.44269504f;
  n = n < -126 ? -126 : n;
  /* Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. */
  n = n + 12582912.0f;
  int32_t bits;
  __builtin_memcpy(&bits, &n, 4);
  n -= 12582912.0f;
  float r = madd(n, -0.693359375f, x);
  r = madd(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = madd(p, r, 1.3981999507e-3f);
  p = madd(p, r, 8.3334519073e-3f);
  p = madd(p, r, 4.1665795894e-2f);
  p = madd(p, r, 1.6666665459e-1f);
  p = madd(p, r, 5.0000001201e-1f);
  p = madd(p * r, r, r) + 1;
  int32_t power = (int32_t)((uint32_t)(bits + 127) << 23); /* bit pattern of the float 2^n */
  float two;
  __builtin_memcpy(&two, &power, 4);
  return x < -87 ? 0 : p * two;
}

/* fast_exp of each lane, with the same bits. */
static inline Lanes lanes_exp(Lanes x) {
  Lanes n = x * 1.44269504f;
  n = lanes_max(lanes_of(-126), n) + 12582912.0f;
  IntLanes power = ((IntLanes)n + 127) << 23;
  n -= 12582912.0f;
  Lanes r = lanes_madd(n, lanes_of(-0.693359375f), x);
  r = lanes_madd(n, lanes_of(2.12194440e-4f), r);
  Lanes p = lanes_of(1.9875691500e-4f);
  p = lanes_madd(p, r, lanes_of(1.3981999507e-3f));
  p = lanes_madd(p, r, lanes_of(8.3334519073e-3f));
  p = lanes_madd(p, r, lanes_of(4.1665795894e-2f));
  p = lanes_madd(p, r, lanes_of(1.6666665459e-1f));
  p = lanes_madd(p, r, lanes_of(5.0000001201e-1f));
  p = lanes_madd(p * r, r, r) + 1;
  return (Lanes)((IntLanes)(p * (Lanes)power) & ~(x < -87));
}

/* Returns the largest of n numbers; NaN is ignored. */
static inline float find_max(const float *x, size_t n) {
  Lanes most = lanes_of(-INFINITY), other = most; /* two accumulators, to hide the latency */
  float top = -INFINITY;
  size_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    most = lanes_max(lanes_at(x + c), most);
    other = lanes_max(lanes_at(x + c + LANES), other);
  }
  for (; c + LANES <= n; c += LANES) most = lanes_max(lanes_at(x + c), most);
  most = lanes_max(other, most);
  for (int i = 0; i < LANES; i++) top = most[i] > top ? most[i] : top;
  for (; c < n; c++) top = x[c] > top ? x[c] : top;
  return top;
}

static inline float dot_product(const float *x, const float *y, size_t n) {
  Lanes sum = {0}, other = {0};
  size_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    sum = lanes_madd(lanes_at(x + c), lanes_at(y + c), sum);
    other = lanes_madd(lanes_at(x + c + LANES), lanes_at(y + c + LANES), other);
  }
  for (; c + LANES <= n; c += LANES) sum = lanes_madd(lanes_at(x + c), lanes_at(y + c), sum);
  float total = lanes_sum(sum + other);
  for (; c < n; c++) total = madd(x[c], y[c], total);
  return total;
}

/* Returns the sum of n numbers. */
static inline float sum_row(const float *x, size_t n) {
  Lanes sum = {0}, other = {0};
  size_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    sum += lanes_at(x + i);
    other += lanes_at(x + i + LANES);
  }
  for (; i + LANES <= n; i += LANES) sum += lanes_at(x + i);
  float total = lanes_sum(sum + other);
  for (; i < n; i++) total += x[i];
  return total;
}

/* Returns the sum of (x[i] - mean)². */
static inline float sum_squares(const float *x, float mean, size_t n) {
  Lanes sum = {0}, other = {0};
  size_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    Lanes a = lanes_at(x + i) - mean, b = lanes_at(x + i + LANES) - mean;
    sum = lanes_madd(a, a, sum);
    other = lanes_madd(b, b, other);
  }
  for (; i + LANES <= n; i += LANES) {
    Lanes a = lanes_at(x + i) - mean;
    sum = lanes_madd(a, a, sum);
  }
  float total = lanes_sum(sum + other);
  for (; i < n; i++) total = madd(x[i] - mean, x[i] - mean, total);
  return total;
}

/* Returns the sum of exp(x[i] - less) over n numbers. */
static inline float sum_exp(const float *x, float less, size_t n) {
  Lanes sum = {0}, other = {0};
  size_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    sum += lanes_exp(lanes_at(x + c) - less);
    other += lanes_exp(lanes_at(x + c + LANES) - less);
  }
  float total = lanes_sum(sum + other);
  for (; c < n; c++) total += fast_exp(x[c] - less);
  return total;
}

/* x[i] = exp(x[i] - less) for n numbers; returns their sum. */
static inline float replace_by_exp(float *x, float less, size_t n) {
  Lanes sum = {0}, other = {0};
  size_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    Lanes e = lanes_exp(lanes_at(x + c) - less), f = lanes_exp(lanes_at(x + c + LANES) - less);
    sum += e;
    other += f;
    lanes_put(x + c, e);
    lanes_put(x + c + LANES, f);
  }
  for (; c + LANES <= n; c += LANES) {
    Lanes e = lanes_exp(lanes_at(x + c) - less);
    sum += e;
    lanes_put(x + c, e);
  }
  float total = lanes_sum(sum + other);
  for (; c < n; c++) {
    x[c] = fast_exp(x[c] - less);
    total += x[c];
  }
  return total;
}

/* x[i] *= by for n numbers. */
static inline void scale_array(float *x, float by, size_t n) {
  size_t c = 0;
  for (; c + LANES <= n; c += LANES) lanes_put(x + c, lanes_at(x + c) * by);
  for (; c < n; c++) x[c] *= by;
}

/* Transposes (rows, cols): to[j * to_ld + i] = from[i * from_ld + j]. */
static inline void transpose_array(float *to, size_t to_ld, const float *from, size_t from_ld,
                                   size_t rows, size_t cols) {
  size_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float *line = from + i * from_ld;
    size_t j = 0;
    for (; j + 4 <= cols; j += 4) {
      Four a = *(const Four *)(line + j), b = *(const Four *)(line + from_ld + j);
      Four c = *(const Four *)(line + 2 * from_ld + j),
           d = *(const Four *)(line + 3 * from_ld + j);
      Four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5),
           bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
      float *at = to + j * to_ld + i;
      *(Four *)at = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
      *(Four *)(at + to_ld) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
      ac = __builtin_shufflevector(a, c, 2, 6, 3, 7);
      bd = __builtin_shufflevector(b, d, 2, 6, 3, 7);
      *(Four *)(at + 2 * to_ld) = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
      *(Four *)(at + 3 * to_ld) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    }
    for (; j < cols; j++) {
      for (size_t k = 0; k < 4; k++) to[j * to_ld + i + k] = line[k * from_ld + j];
    }
  }
  for (; i < rows; i++) {
    for (size_t j = 0; j < cols; j++) to[j * to_ld + i] = from[i * from_ld + j];
  }
}

#endif
