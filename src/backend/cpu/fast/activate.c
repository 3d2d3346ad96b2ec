/* Activations on the CPU, forward and backward, with bias and dropout. The threads divide the
 * elements; column sums divide the columns. Depends on fast.h, dropout.h. */
#include <math.h>
#include <string.h>

#include "backend/cpu/fast/fast.h"
#include "backend/dropout.h"

#define CHUNK 1024 /* floats processed at once, with their dropout factors: they fit into L1 */

/* Returns Phi(x), the normal distribution function, with a relative error below 5e-7 for every x;
 * *bell receives exp(-x² / 2). Phi(-|x|) = bell * s * p(s) with s = 1 / (1 + 0.3 |x|). The polynomial p
 * of degree 9 was fitted to erfc for 0 <= |x| <= 14 by least squares of the relative error, which is
 * 4e-9 before rounding. */
static inline Lanes lanes_phi(Lanes x, Lanes *bell) {
  static const float p[] = {0.113806516f,   -0.231400281f, 0.195974186f,
                            -0.0828475505f, 0.0979556963f, 0.0777838603f,
                            0.110361189f,   0.119557239f,  0.119687408f};
  IntLanes is_negative = x < 0;
  Lanes s = 1 / lanes_madd(lanes_max(x, -x), lanes_of(0.3f), lanes_of(1));
  Lanes sum = lanes_of(-0.020878261f);
#pragma GCC unroll 9
  for (size_t i = 0; i < sizeof p / sizeof *p; i++) sum = lanes_madd(sum, s, lanes_of(p[i]));
  *bell = lanes_exp(-0.5f * x * x);
  Lanes tail = *bell * s * sum;
  return (Lanes)((is_negative & (IntLanes)tail) | (~is_negative & (IntLanes)(1 - tail)));
}

/* Exact GELU, x * Phi(x). */
static inline Lanes lanes_gelu(Lanes x) {
  Lanes bell;
  return x * lanes_phi(x, &bell);
}

static inline Lanes lanes_gelu_derivative(Lanes x) {
  Lanes bell, phi = lanes_phi(x, &bell);
  return lanes_madd(x * 0.39894228f, bell, phi);
}

/* The last n < LANES elements are computed as a vector too, so that their bits do not depend on
 * where they are. */
static void apply_gelu(float *y, const float *x, size_t n) {
  float rest[LANES] = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) lanes_put(y + i, lanes_gelu(lanes_at(x + i)));
  if (i == n) return;
  memcpy(rest, x + i, (n - i) * sizeof *x);
  lanes_put(rest, lanes_gelu(lanes_at(rest)));
  memcpy(y + i, rest, (n - i) * sizeof *y);
}

static void derive_gelu(float *slope, const float *x, size_t n) {
  float rest[LANES] = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    lanes_put(slope + i, lanes_gelu_derivative(lanes_at(x + i)));
  if (i == n) return;
  memcpy(rest, x + i, (n - i) * sizeof *x);
  lanes_put(rest, lanes_gelu_derivative(lanes_at(rest)));
  memcpy(slope + i, rest, (n - i) * sizeof *slope);
}

static inline float tanh_derivative(float x) {
  float y = tanhf(x);
  return (1 - y) * (1 + y);
}

/* Smallest argument of the sigmoid; smaller ones are replaced by it, because fast_exp(-x) is
 * valid only up to 88. compute_sigmoid(-88) is 6e-39, so the error is smaller than that. */
#define SIGMOID_MIN (-88.0f)

static inline float compute_sigmoid(float x) {
  x = x < SIGMOID_MIN ? SIGMOID_MIN : x;
  return 1 / (1 + fast_exp(-x));
}

static inline Lanes lanes_sigmoid(Lanes x) {
  x = lanes_max(lanes_of(SIGMOID_MIN), x);
  return 1 / (1 + lanes_exp(-x));
}

/* ReLU with explicit vectors, because y may be x: clang would not vectorize a plain loop. */
static void apply_relu(float *y, const float *x, size_t n) {
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + LANES <= n; i += LANES) lanes_put(y + i, lanes_max(lanes_at(x + i), lanes_of(0)));
  for (; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}

static void apply_silu(float *y, const float *x, size_t n) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    Lanes v = lanes_at(x + i);
    lanes_put(y + i, v * lanes_sigmoid(v));
  }
  for (; i < n; i++) y[i] = x[i] * compute_sigmoid(x[i]);
}

static void derive_silu(float *slope, const float *x, size_t n) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    Lanes v = lanes_at(x + i), s = lanes_sigmoid(v);
    lanes_put(slope + i, s * (1 + v * (1 - s)));
  }
  for (; i < n; i++) {
    float s = compute_sigmoid(x[i]);
    slope[i] = s * (1 + x[i] * (1 - s));
  }
}

/* y = act(x), for n elements. */
static void apply_activation(float *y, const float *x, size_t n, Activation kind) {
  switch (kind) {
    case ACT_RELU:
      apply_relu(y, x, n);
      break;
    case ACT_GELU:
      apply_gelu(y, x, n);
      break;
    case ACT_SILU:
      apply_silu(y, x, n);
      break;
    case ACT_TANH:
      for (size_t i = 0; i < n; i++) y[i] = tanhf(x[i]);
      break;
    case ACT_NONE:
      if (y != x) memcpy(y, x, n * sizeof *y);
      break;
  }
}

/* slope = act'(x), for n elements. */
static void derive_activation(float *slope, const float *x, size_t n, Activation kind) {
  switch (kind) {
    case ACT_RELU:
      break; /* The backward of ReLU reads the mask instead of this derivative. */
    case ACT_GELU:
      derive_gelu(slope, x, n);
      break;
    case ACT_SILU:
      derive_silu(slope, x, n);
      break;
    case ACT_TANH:
      for (size_t i = 0; i < n; i++) slope[i] = tanh_derivative(x[i]);
      break;
    case ACT_NONE:
      for (size_t i = 0; i < n; i++) slope[i] = 1;
      break;
  }
}

/* Returns a mask whose bit i is y[i] > 0, for n <= 8 floats. */
static inline uint8_t positive_mask(const float *y, uint32_t n) {
  uint32_t bits = 0;
#ifdef __aarch64__
  if (n == 8) {
    const uint32_t bit[4] = {1, 2, 4, 8};
    uint32x4_t low = vandq_u32(vcgtzq_f32(vld1q_f32(y)), vld1q_u32(bit));
    uint32x4_t high = vandq_u32(vcgtzq_f32(vld1q_f32(y + 4)), vld1q_u32(bit));
    return (uint8_t)vaddvq_u32(vorrq_u32(low, vshlq_n_u32(high, 4)));
  }
#endif
#pragma omp simd reduction(| : bits)
  for (uint32_t i = 0; i < n; i++) bits |= y[i] > 0 ? 1u << i : 0;
  return (uint8_t)bits;
}

/* y = x + bias for n elements, beginning with element `at` of (rows, width). */
static void add_bias(float *y, const float *x, const float *bias, size_t at, size_t n,
                     size_t width) {
  for (size_t i = 0, part; i < n; i += part) {
    size_t c = (at + i) % width;
    part = n - i < width - c ? n - i : width - c;
    size_t k = 0;
#pragma GCC unroll 4
    for (; k + LANES <= part; k += LANES)
      lanes_put(y + i + k, lanes_at(x + i + k) + lanes_at(bias + c + k));
    for (; k < part; k++) y[i + k] = x[i + k] + bias[c + k];
  }
}

static void activate(const Backend *b, void *y_, uint8_t *mask, const void *x_,
                     const void *bias, size_t rows, size_t width, Activation kind,
                     Dropout drop) {
  size_t n = rows * width;
  float *y = y_;
  const float *x = x_;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t at = 0; at < n; at += CHUNK) {
    size_t part = n - at < CHUNK ? n - at : CHUNK, i = 0;
    float factor[CHUNK + 16];
    if (bias) add_bias(y + at, x + at, bias, at, part, width);
    apply_activation(y + at, bias ? y + at : x + at, part, kind);
    if (drop.rate != 0) {
      FAST(fast_drop)(factor, drop, at, part);
      for (size_t k = 0; k < part; k++) y[at + k] *= factor[k];
    }
    if (!mask) continue;
    for (; i + 8 <= part; i += 8) mask[(at + i) / 8] = positive_mask(y + at + i, 8);
    if (i < part) mask[(at + i) / 8] = positive_mask(y + at + i, (uint32_t)(part - i));
  }
}

/* factor[i] = scale if bit i is set, else 0; `factor` must have room for n + 7 floats. */
static void expand_mask(float *factor, const uint8_t *mask, size_t n, float scale) {
  for (size_t i = 0; i < n; i += 8) {
    uint32_t bits = mask[i / 8];
#ifdef __aarch64__
    const uint32_t low[4] = {1, 2, 4, 8}, high[4] = {16, 32, 64, 128};
    uint32x4_t all = vdupq_n_u32(bits), kept = vreinterpretq_u32_f32(vdupq_n_f32(scale));
    uint32x4_t first = vandq_u32(vtstq_u32(all, vld1q_u32(low)), kept);
    uint32x4_t second = vandq_u32(vtstq_u32(all, vld1q_u32(high)), kept);
    vst1q_f32(factor + i, vreinterpretq_f32_u32(first));
    vst1q_f32(factor + i + 4, vreinterpretq_f32_u32(second));
#else
#pragma omp simd
    for (uint32_t k = 0; k < 8; k++) factor[i + k] = bits & 1u << k ? scale : 0;
#endif
  }
}

static void activate_backward(const Backend *b, void *dx_, float *dbias, const void *dy_,
                              const void *kept, size_t rows, size_t width, Activation kind,
                              Dropout drop, bool accumulate) {
  size_t n = rows * width;
  float *dx = dx_;
  const float *dy = dy_, *x = kept;
  const uint8_t *mask = kept;
  float scale = drop.rate == 0 ? 1 : dropout_scale(drop.rate);
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t at = 0; at < n; at += CHUNK) {
    size_t part = n - at < CHUNK ? n - at : CHUNK;
    float factor[CHUNK + 16], slope[CHUNK];
    if (kind == ACT_RELU) {
      expand_mask(factor, mask + at / 8, part, scale);
      for (size_t i = 0; i < part; i++) dx[at + i] = dy[at + i] * factor[i];
      continue;
    }
    derive_activation(slope, kind == ACT_NONE ? NULL : x + at, part, kind);
    FAST(fast_drop)(factor, drop, at, part);
    for (size_t i = 0; i < part; i++) dx[at + i] = dy[at + i] * slope[i] * factor[i];
  }
  if (dbias) cpu_column_sums(b, dbias, dx, rows, width, accumulate);
}

void FAST(fast_activations)(Backend *b) {
  b->activate = activate;
  b->activate_backward = activate_backward;
}
