/* Element-wise kernels: activations, optimizer updates, sums of squares, clipping, type
 * conversions. All are limited by memory bandwidth. Depends on device.cuh, clip.h. */
#include <math.h>

#include "backend/clip.h"
#include "backend/cuda/device.cuh"

#define THREADS 256

/* ---- activations, eight elements per thread ---- */

#define SQRT_HALF        0.70710678118654752f
#define SQRT_TWO_OVER_PI 0.79788456080286536f

template <Activation ACT>
static __device__ __forceinline__ float apply_activation(float x) {
  if (ACT == ACT_RELU) return fmaxf(x, 0);
  if (ACT == ACT_GELU)
    return 0.5f * x * erfcf(-x * SQRT_HALF); /* erfcf computes 1 + erf without cancellation */
  if (ACT == ACT_TANH) return tanhf(x);
  if (ACT == ACT_NONE) return x;
  return x / (1 + expf(-x));
}

template <Activation ACT>
static __device__ __forceinline__ float activation_derivative(float x) {
  if (ACT == ACT_GELU)
    return 0.5f * erfcf(-x * SQRT_HALF) + 0.5f * x * SQRT_TWO_OVER_PI * expf(-0.5f * x * x);
  if (ACT == ACT_NONE) return 1;
  if (ACT == ACT_TANH) {
    float y = tanhf(x);
    return (1 - y) * (1 + y);
  }
  float s = 1 / (1 + expf(-x));
  return s * (1 + x * (1 - s));
}

/* Activates up to eight elements at any address. y may be x (and dx may be dy in the backward),
 * so the pointers are not __restrict__: each thread loads its elements before it stores them. A
 * byte of the mask serves eight elements. */
template <typename T, Activation ACT>
static __device__ __forceinline__ void activate_some(T *y, uint8_t *mask, const T *x,
                                                     const T *bias, size_t n, size_t width,
                                                     size_t group, const Drop &drop) {
  size_t at = group * 8;
  if (at >= n) return;
  int count = n - at < 8 ? (int)(n - at) : 8;
  float v[8];
  load_some(v, x + at, count);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (bias) v[i] += to_float(bias[(at + i) % width]);
    v[i] = apply_activation<ACT>(v[i]);
  }
  drop8(v, drop, group);
  if (mask) mask[group] = (uint8_t)(positive_mask(v) & (0xffu >> (8 - count)));
  store_some(y + at, v, count);
}

/* Activates a whole array. Each thread has GROUPS groups of eight elements, THREADS groups apart,
 * all loaded before the first is used. `vector`: arrays are aligned, a row is a multiple of eight
 * elements, and the number of groups fits into 32 bits. */
template <typename T, Activation ACT, int GROUPS>
static __global__ void __launch_bounds__(THREADS)
    activate(T *y, uint8_t *mask, const T *x, const T *bias, size_t n, size_t width, Drop drop,
             bool vector) {
  const size_t unit = THREADS * GROUPS;
  size_t group = blockIdx.x * unit + threadIdx.x;
  /* The condition is the same for all threads of the block. */
  if (!vector || (blockIdx.x + 1) * unit * 8 > n) {
#pragma unroll 1
    for (int k = 0; k < GROUPS; k++)
      activate_some<T, ACT>(y, mask, x, bias, n, width, group + k * THREADS, drop);
    return;
  }
  Eight<T> in[GROUPS], more[GROUPS];
  uint32_t word[GROUPS][2], eights = (uint32_t)width / 8;
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    size_t at = group + k * THREADS;
    in[k].load(x + at * 8);
    if (bias) more[k].load(bias + (uint32_t)at % eights * 8);
  }
  if (drop.threshold) drop_words<GROUPS, THREADS>(word, drop, group);
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    size_t at = group + k * THREADS;
    float v[8], b[8];
    in[k].get(v);
    if (bias) more[k].get(b);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (bias) v[i] += b[i];
      v[i] = apply_activation<ACT>(v[i]);
      if (drop.threshold) v[i] = is_kept(word[k], i, drop) ? v[i] * drop.scale : 0;
    }
    if (mask) mask[at] = (uint8_t)positive_mask(v);
    store8(y + at * 8, v);
  }
}

/* x is not read for ACT_NONE. */
template <typename T, Activation ACT>
static __global__ void __launch_bounds__(THREADS)
    activate_backward(T *dx, const T *dy, const T *x, size_t n, Drop drop, bool vector) {
  size_t group = blockIdx.x * (size_t)THREADS + threadIdx.x, at = group * 8;
  if (at >= n) return;
  int count = n - at < 8 ? (int)(n - at) : 8;
  float v[8] = {0}, g[8];
  if (vector && count == 8) {
    if (ACT != ACT_NONE) load8(v, x + at);
    load8(g, dy + at);
  } else {
    if (ACT != ACT_NONE) load_some(v, x + at, count);
    load_some(g, dy + at, count);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) g[i] *= activation_derivative<ACT>(v[i]);
  drop8(g, drop, group);
  if (vector && count == 8)
    store8(dx + at, g);
  else
    store_some(dx + at, g, count);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    relu_backward(T *dx, const T *dy, const uint8_t *mask, size_t n, float scale, bool vector) {
  size_t group = blockIdx.x * (size_t)THREADS + threadIdx.x, at = group * 8;
  if (at >= n) return;
  int count = n - at < 8 ? (int)(n - at) : 8;
  float g[8];
  uint32_t bits = mask[group];
  if (vector && count == 8)
    load8(g, dy + at);
  else
    load_some(g, dy + at, count);
#pragma unroll
  for (int i = 0; i < 8; i++) g[i] = bits >> i & 1 ? g[i] * scale : 0;
  if (vector && count == 8)
    store8(dx + at, g);
  else
    store_some(dx + at, g, count);
}

cudaError_t kernel_activate(Type type, void *y, uint8_t *mask, const void *x, const void *bias,
                            size_t rows, size_t width, Activation kind, Dropout dropout,
                            cudaStream_t stream) {
  size_t n = rows * width;
  if (n == 0) return cudaSuccess;
  Drop drop = drop_of(dropout);
  bool vector = is_aligned(y) && is_aligned(x) && is_aligned(bias) &&
                (!bias || (width % 8 == 0 && n / 8 <= UINT32_MAX));
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    /* number of groups of eight elements per thread: 32 bytes in total */
    const int groups = sizeof(T) == 4 ? 1 : 2;
    auto launch = [&](auto kernel) {
      kernel<<<blocks_for(n, THREADS * groups * 8), THREADS, 0, stream>>>(
          (T *)y, mask, (const T *)x, (const T *)bias, n, width, drop, vector);
    };
    if (kind == ACT_RELU)
      launch(activate<T, ACT_RELU, groups>);
    else if (kind == ACT_GELU)
      launch(activate<T, ACT_GELU, groups>);
    else if (kind == ACT_SILU)
      launch(activate<T, ACT_SILU, groups>);
    else if (kind == ACT_TANH)
      launch(activate<T, ACT_TANH, groups>);
    else
      launch(activate<T, ACT_NONE, groups>);
  });
}

cudaError_t kernel_activate_backward(Type type, void *dx, float *dbias, const void *dy,
                                     const void *kept, size_t rows, size_t width,
                                     Activation kind, Dropout dropout, bool add, void *work,
                                     cudaStream_t stream) {
  size_t n = rows * width;
  if (n == 0 && !dbias) return cudaSuccess;
  if (n == 0) return kernel_column_sums(type, dbias, dx, rows, width, add, work, stream);
  Drop drop = drop_of(dropout);
  const uint8_t *mask = (const uint8_t *)kept;
  bool vector = is_aligned(dx) && is_aligned(dy) && (kind == ACT_RELU || is_aligned(kept));
  unsigned blocks = blocks_for(n, THREADS * 8);
  if (dbias && kind == ACT_RELU && vector && width % 8 == 0)
    return kernel_relu_backward_sums(type, dx, dbias, dy, mask, rows, width, drop.scale, add,
                                     work, stream);
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    T *to = (T *)dx;
    const T *g = (const T *)dy, *x = (const T *)kept;
    auto launch = [&](auto kernel) {
      kernel<<<blocks, THREADS, 0, stream>>>(to, g, x, n, drop, vector);
    };
    switch (kind) {
      case ACT_RELU:
        relu_backward<T><<<blocks, THREADS, 0, stream>>>(to, g, mask, n, drop.scale, vector);
        break;
      case ACT_GELU:
        launch(activate_backward<T, ACT_GELU>);
        break;
      case ACT_SILU:
        launch(activate_backward<T, ACT_SILU>);
        break;
      case ACT_TANH:
        launch(activate_backward<T, ACT_TANH>);
        break;
      case ACT_NONE:
        launch(activate_backward<T, ACT_NONE>);
        break;
    }
  });
  if (err || !dbias) return err;
  return kernel_column_sums(type, dbias, dx, rows, width, add, work, stream);
}

/* ---- parameters, four floats per thread ---- */

#define UNIT NORM_UNIT

static __global__ void __launch_bounds__(THREADS)
    square_sums(double *sums, const float *x, size_t n) {
  size_t begin = blockIdx.x * (size_t)UNIT;
  const float *unit = x + begin;
  double sum = 0;
  if (n - begin >= UNIT && (uintptr_t)unit % 16 == 0) {
    float4 v[UNIT / THREADS / 4];
#pragma unroll
    for (int i = 0; i < UNIT / THREADS / 4; i++)
      v[i] = reinterpret_cast<const float4 *>(unit)[i * THREADS + threadIdx.x];
#pragma unroll
    for (int i = 0; i < UNIT / THREADS / 4; i++) {
      sum += (double)v[i].x * v[i].x + (double)v[i].y * v[i].y;
      sum += (double)v[i].z * v[i].z + (double)v[i].w * v[i].w;
    }
  } else {
    /* Unaligned or short unit: adds the elements in the order of the aligned case, so that the
     * bits do not depend on the address. */
    for (int i = 0; i < UNIT / THREADS / 4; i++) {
      double v[4];
      for (int j = 0; j < 4; j++) {
        size_t at = ((size_t)i * THREADS + threadIdx.x) * 4 + j;
        v[j] = at < n - begin && at < UNIT ? unit[at] : 0;
      }
      sum += v[0] * v[0] + v[1] * v[1];
      sum += v[2] * v[2] + v[3] * v[3];
    }
  }
  sum = block_sum<THREADS>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

cudaError_t kernel_square_sums(double *sums, const float *x, size_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  square_sums<<<blocks_for(n, UNIT), THREADS, 0, stream>>>(sums, x, n);
  return cudaGetLastError();
}

/* Implements clip_add, clip_total and clip_finish of clip.h with the same order of operations;
 * thread k is lane k. */
static __global__ void __launch_bounds__(CLIP_LANES)
    clip(StepNumbers *now, const double *sums, size_t n, double *loss) {
  __shared__ double lane[CLIP_LANES];
  int k = (int)threadIdx.x;
  double sum = 0;
  for (size_t i = (size_t)k; i < n; i += CLIP_LANES) sum += sums[i];
  lane[k] = sum;
  for (int half = CLIP_LANES / 2; half; half /= 2) {
    __syncthreads();
    if (k < half) lane[k] += lane[k + half];
  }
  /* Thread 0 did the last addition of the reduction itself, so no barrier is needed. */
  if (k) return;
  double predictions = now->count[COUNT_PREDICTIONS];
  if (now->loss_scale > 0)
    now->grad_divisor = (predictions > 0 ? predictions : 1) * now->loss_scale;
  double norm = sqrt(lane[0]) / now->grad_divisor, most = now->max_grad_norm;
  double by = most > 0 && norm > most ? most / norm : 1;
  for (int i = 0; i < 3 && loss; i++) {
    now->loss[i] = loss[i];
    loss[i] = 0;
  }
  now->grad_norm = norm;
  now->grad_scale =
      isfinite(norm) && isfinite(now->loss[0]) ? (float)(by / now->grad_divisor) : NAN;
}

cudaError_t kernel_clip(StepNumbers *now, const double *sums, size_t n, double loss[3],
                        cudaStream_t stream) {
  clip<<<1, CLIP_LANES, 0, stream>>>(now, sums, n, loss);
  return cudaGetLastError();
}

/* Load and store up to four floats at any address. */
static __device__ __forceinline__ void load4(float x[4], const float *p, int count,
                                             bool vector) {
  if (vector && count == 4) {
    float4 v = *reinterpret_cast<const float4 *>(p);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  } else {
    for (int i = 0; i < 4; i++) x[i] = i < count ? p[i] : 0;
  }
}

static __device__ __forceinline__ void store4(float *p, const float x[4], int count,
                                              bool vector) {
  if (vector && count == 4) {
    *reinterpret_cast<float4 *>(p) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    for (int i = 0; i < count; i++) p[i] = x[i];
  }
}

template <typename T>
static __device__ __forceinline__ void store4_low(T *p, const float x[4], int count,
                                                  bool vector) {
  if (vector && count == 4) {
    *reinterpret_cast<uint2 *>(p) = make_uint2(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]));
  } else {
    for (int i = 0; i < count; i++) set_float(p[i], x[i]);
  }
}
template <>
__device__ __forceinline__ void store4_low(float *p, const float x[4], int count, bool vector) {
  store4(p, x, count, vector);
}

struct Update {
  /* rest1 and rest2 are 1 - beta1 and 1 - beta2 */
  float beta1, beta2, rest1, rest2, epsilon, decay;
  const StepNumbers *now;
  float lr_factor; /* factor of now->lr */
  float lr, scale; /* learning rate and gradient scale, used if `now` is NULL */
  bool coupled, vector;
};

/* Updates up to four elements from `at` on. */
template <typename T>
static __device__ __forceinline__ void update_four(T *low, float *w_, float *m_, float *v_,
                                                   const float *g_, size_t at, size_t n,
                                                   const Update &u) {
  float lr = u.now->lr * u.lr_factor, correction1 = u.now->correction1,
        correction2 = u.now->correction2;
  float scale = u.now->grad_scale;
  if (at >= n || !isfinite(scale)) return;
  int count = n - at < 4 ? (int)(n - at) : 4;
  float w[4], m[4], v[4], g[4];
  load4(w, w_ + at, count, u.vector);
  load4(m, m_ + at, count, u.vector);
  load4(v, v_ + at, count, u.vector);
  load4(g, g_ + at, count, u.vector);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float grad = g[i] * scale;
    if (u.coupled) grad += u.decay * w[i];
    m[i] = u.beta1 * m[i] + u.rest1 * grad;
    v[i] = u.beta2 * v[i] + u.rest2 * grad * grad;
    float step = (m[i] / correction1) / (sqrtf(v[i] / correction2) + u.epsilon);
    if (!u.coupled) step += u.decay * w[i];
    w[i] -= lr * step;
  }
  store4(w_ + at, w, count, u.vector);
  store4(m_ + at, m, count, u.vector);
  store4(v_ + at, v, count, u.vector);
  if (low) store4_low(low + at, w, count, u.vector);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    adam(T *low, float *w, float *m, float *v, const float *g, size_t n, Update u) {
  size_t at = (blockIdx.x * (size_t)THREADS + threadIdx.x) * 4;
  update_four(low, w, m, v, g, at, n, u);
}

#define RANGES      128 /* ranges of one launch; a kernel has at most 4 kB of parameters */
#define LAUNCH_MOST ((size_t)1 << 31) /* elements of one launch; a multiple of ADAM_ALIGN */

/* Ranges of a launch: where each ends, counted from the launch's first element, and its settings. */
struct Ranges {
  unsigned count, end[RANGES];
  float decay[RANGES], lr_factor[RANGES];
  bool is_frozen[RANGES];
};

/* Like adam, with the settings of each element's range. A range begins at a multiple of four. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    adam_ranges(T *low, float *w, float *m, float *v, const float *g, size_t n, Update u,
                const __grid_constant__ Ranges r) {
  size_t at = (blockIdx.x * (size_t)THREADS + threadIdx.x) * 4;
  if (at >= n) return;
  unsigned first = 0, last = r.count - 1; /* binary search: the range is in first … last */
  while (first < last) {
    unsigned middle = (first + last) / 2;
    if (at < r.end[middle])
      last = middle;
    else
      first = middle + 1;
  }
  if (r.is_frozen[first]) return;
  u.decay = r.decay[first];
  u.lr_factor = r.lr_factor[first];
  update_four(low, w, m, v, g, at, n, u);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    momentum(T *low, float *w_, float *m_, const float *g_, size_t n, Update u) {
  size_t at = (blockIdx.x * (size_t)THREADS + threadIdx.x) * 4;
  float lr = u.now ? u.now->lr * u.lr_factor : u.lr;
  float scale = u.now ? u.now->grad_scale : u.scale;
  if (at >= n || !isfinite(scale)) return;
  int count = n - at < 4 ? (int)(n - at) : 4;
  float w[4], m[4], g[4];
  load4(w, w_ + at, count, u.vector);
  load4(m, m_ + at, count, u.vector);
  load4(g, g_ + at, count, u.vector);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    m[i] = u.beta1 * m[i] + (scale * g[i] + u.decay * w[i]);
    w[i] -= lr * m[i];
  }
  store4(w_ + at, w, count, u.vector);
  store4(m_ + at, m, count, u.vector);
  if (low) store4_low(low + at, w, count, u.vector);
}

/* Collects the ranges of the elements that follow the first `at` ones of the call, RANGES at most, and
 * returns the number of their elements. *next: the first range that may contain one of them. */
static size_t take_ranges(Ranges *r, const AdamStep *s, size_t at, size_t n, size_t *next) {
  size_t begin = s->begin + at, end = begin;
  r->count = 0;
  while (s->range[*next].end <= begin) ++*next;
  size_t last = n - at < LAUNCH_MOST ? s->begin + n : begin + LAUNCH_MOST;
  for (; r->count < RANGES && end < last; *next += end < last) {
    const AdamRange *x = &s->range[*next];
    end = x->end < last ? x->end : last;
    r->end[r->count] = (unsigned)(end - begin);
    r->decay[r->count] = x->decays ? s->decay : 0;
    r->lr_factor[r->count] = x->lr_factor;
    r->is_frozen[r->count++] = x->is_frozen;
  }
  return end - begin;
}

cudaError_t kernel_adam(Type type, float *w, float *m, float *v, const float *g, size_t n,
                        const AdamStep *s, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  Update u = {};
  u.beta1 = s->beta1;
  u.rest1 = (float)(1 - (double)s->beta1);
  u.beta2 = s->beta2;
  u.rest2 = (float)(1 - (double)s->beta2);
  u.epsilon = s->epsilon;
  u.decay = s->decay;
  u.coupled = s->coupled;
  u.lr_factor = s->lr_factor;
  u.now = s->now;
  u.vector =
      is_aligned(w) && is_aligned(m) && is_aligned(v) && is_aligned(g) && is_aligned(s->low);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    T *low = (T *)s->low;
    if (!s->range) {
      adam<T><<<blocks_for(n, THREADS * 4), THREADS, 0, stream>>>(low, w, m, v, g, n, u);
      return;
    }
    for (size_t at = 0, part, next = 0; at < n; at += part) {
      Ranges r;
      part = take_ranges(&r, s, at, n, &next);
      adam_ranges<T><<<blocks_for(part, THREADS * 4), THREADS, 0, stream>>>(
          low ? low + at : NULL, w + at, m + at, v + at, g + at, part, u, r);
    }
  });
}

cudaError_t kernel_momentum(Type type, float *w, float *m, const float *g, size_t n,
                            const MomentumStep *s, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  Update u = {};
  u.beta1 = s->beta;
  u.decay = s->decay;
  u.now = s->now;
  u.lr = s->lr;
  u.lr_factor = s->lr_factor;
  u.scale = s->scale;
  u.vector = is_aligned(w) && is_aligned(m) && is_aligned(g) && is_aligned(s->low);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    T *low = (T *)s->low;
    momentum<T><<<blocks_for(n, THREADS * 4), THREADS, 0, stream>>>(low, w, m, g, n, u);
  });
}

/* x += a * y; with TOWARDS x += a * (y - x). Skipped if now->grad_scale is not finite. */
template <bool TOWARDS>
static __global__ void __launch_bounds__(THREADS)
    add(float *x_, const float *y_, float a, size_t n, const StepNumbers *now, bool vector) {
  size_t at = (blockIdx.x * (size_t)THREADS + threadIdx.x) * 4;
  if (at >= n || (now && !isfinite(now->grad_scale))) return;
  int count = n - at < 4 ? (int)(n - at) : 4;
  float x[4], y[4];
  load4(x, x_ + at, count, vector);
  load4(y, y_ + at, count, vector);
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] += a * (TOWARDS ? y[i] - x[i] : y[i]);
  store4(x_ + at, x, count, vector);
}

cudaError_t kernel_ema(float *e, const float *w, size_t n, float keep, const StepNumbers *now,
                       cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  bool vector = is_aligned(e) && is_aligned(w);
  float share = (float)(1 - (double)keep);
  add<true><<<blocks_for(n, THREADS * 4), THREADS, 0, stream>>>(e, w, share, n, now, vector);
  return cudaGetLastError();
}

cudaError_t kernel_add(float *x, const float *y, float scale, size_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  bool vector = is_aligned(x) && is_aligned(y);
  add<false><<<blocks_for(n, THREADS * 4), THREADS, 0, stream>>>(x, y, scale, n, NULL, vector);
  return cudaGetLastError();
}

/* ---- type conversions ---- */

template <typename To, typename From>
static __global__ void __launch_bounds__(THREADS)
    cast(To *to, const From *from, size_t n, bool vector) {
  size_t at = (blockIdx.x * (size_t)THREADS + threadIdx.x) * 8;
  if (at >= n) return;
  int count = n - at < 8 ? (int)(n - at) : 8;
  float x[8];
  if (vector && count == 8) {
    load8(x, from + at);
    store8(to + at, x);
  } else {
    load_some(x, from + at, count);
    store_some(to + at, x, count);
  }
}

cudaError_t kernel_cast_to(Type type, void *low, const float *x, size_t n,
                           cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  bool vector = is_aligned(low) && is_aligned(x);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    cast<T, float><<<blocks_for(n, THREADS * 8), THREADS, 0, stream>>>((T *)low, x, n, vector);
  });
}

cudaError_t kernel_cast_from(Type type, float *x, const void *low, size_t n,
                             cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  bool vector = is_aligned(low) && is_aligned(x);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    cast<float, T>
        <<<blocks_for(n, THREADS * 8), THREADS, 0, stream>>>(x, (const T *)low, n, vector);
  });
}

cudaError_t kernel_present(void) {
  cudaFuncAttributes is;
  return cudaFuncGetAttributes(&is, square_sums);
}
