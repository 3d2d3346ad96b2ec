/* Classification heads: rows copied by index, and the losses of heads with few labels, one warp per
 * row. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

/* ---- rows by index, eight elements per thread ---- */

#define THREADS 256

/* Copies y[r] = x[index[r]] (GATHER; zeros if the index is negative), or y[index[r]] = x[r] (rows
 * with a negative index are skipped). */
template <typename T, bool GATHER>
static __global__ void __launch_bounds__(THREADS)
    copy_indexed(T *y, const T *__restrict__ x, const int32_t *__restrict__ index, size_t rows,
                 size_t d, bool vector) {
  size_t eights = (d + 7) / 8, at = blockIdx.x * (size_t)THREADS + threadIdx.x;
  size_t r = at / eights, c = at % eights * 8;
  if (r >= rows) return;
  int32_t other = index[r];
  if (other < 0 && !GATHER) return;
  T *to = y + (GATHER ? r : (size_t)other) * d + c;
  const T *from = other < 0 ? NULL : x + (GATHER ? (size_t)other : r) * d + c;
  if (vector) {
    const float zeros[8] = {0};
    Eight<T> e;
    if (from)
      e.load(from);
    else
      e.set(zeros);
    e.store(to);
    return;
  }
  for (size_t i = 0; i < 8 && c + i < d; i++) {
    if (from)
      to[i] = from[i];
    else
      set_float(to[i], 0);
  }
}

template <bool GATHER>
static cudaError_t launch_copy(Type type, void *y, const void *x, const int32_t *index,
                               size_t rows, size_t d, cudaStream_t stream) {
  if (rows == 0 || d == 0) return cudaSuccess;
  bool vector = d % 8 == 0 && is_aligned(x) && is_aligned(y);
  unsigned blocks = blocks_for(rows * ((d + 7) / 8), THREADS);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    copy_indexed<T, GATHER>
        <<<blocks, THREADS, 0, stream>>>((T *)y, (const T *)x, index, rows, d, vector);
  });
}

cudaError_t kernel_gather_rows(Type type, void *y, const void *x, const int32_t *index,
                               size_t rows, size_t d, cudaStream_t stream) {
  return launch_copy<true>(type, y, x, index, rows, d, stream);
}

cudaError_t kernel_scatter_rows(Type type, void *dx, const void *dy, const int32_t *index,
                                size_t rows, size_t tokens, size_t d, cudaStream_t stream) {
  size_t bytes = tokens * d * type_size(type);
  cudaError_t err = bytes ? cudaMemsetAsync(dx, 0, bytes, stream) : cudaSuccess;
  return err ? err : launch_copy<false>(type, dx, dy, index, rows, d, stream);
}

/* ---- losses ---- */

#define ROWS 4 /* rows of a block, one warp each */

static __device__ __forceinline__ float get_weight(const HeadLoss &h, size_t label) {
  return h.weight ? h.weight[label] : 1;
}

/* Writes the row's contribution to the three sums; parts (rows, 3). */
static __device__ void write_parts(double *parts, size_t r, double loss, double plain,
                                   bool right) {
  if (threadIdx.x % 32) return;
  parts[3 * r] = loss;
  parts[3 * r + 1] = plain;
  parts[3 * r + 2] = right;
}

template <typename T>
static __device__ void clear_row(T *row, const HeadLoss &h) {
  for (size_t c = threadIdx.x % 32; c < h.labels && h.scale != 0; c += 32) set_float(row[c], 0);
}

template <typename T>
static __device__ void compute_softmax(T *row, double *parts, size_t r, float class_number,
                                       const HeadLoss &h) {
  if (!(class_number >= 0)) { /* The condition is the same for all threads of the warp. */
    write_parts(parts, r, 0, 0, false);
    clear_row(row, h);
    return;
  }
  size_t target = (size_t)class_number;
  float wanted = to_float(row[target]), most = -INFINITY;
  for (size_t c = threadIdx.x % 32; c < h.labels; c += 32) most = fmaxf(most, to_float(row[c]));
  most = warp_max(most);
  /* Sums of exponentials, of the weights, and of weight * logit. */
  double total = 0, weights = 0, weighted = 0;
  bool earlier = false;
  for (size_t c = threadIdx.x % 32; c < h.labels; c += 32) {
    float x = to_float(row[c]), w = get_weight(h, c);
    total += (double)expf(x - most);
    weights += (double)w;
    weighted += (double)w * (double)x;
    earlier |= x == most && c < target;
  }
  total = warp_sum(total);
  weights = warp_sum(weights);
  weighted = warp_sum(weighted);
  bool right = !__any_sync(0xffffffffu, earlier) && wanted == most;
  double even = (double)h.smoothing / (double)h.labels;
  double hit = (1 - (double)h.smoothing) * (double)get_weight(h, target);
  double lse = (double)most + log(total), plain = lse - (double)wanted;
  write_parts(parts, r, hit * plain + even * (weights * lse - weighted), plain, right);
  if (h.scale == 0) return;
  float by = (float)((double)h.scale * (hit + even * weights) / total);
  float less = (float)((double)h.scale * even), less_hit = (float)((double)h.scale * hit);
  __syncwarp(); /* All threads must have read row[target]. */
  for (size_t c = threadIdx.x % 32; c < h.labels; c += 32)
    set_float(row[c], expf(to_float(row[c]) - most) * by - less * get_weight(h, c) -
                          (c == target ? less_hit : 0));
}

/* Adds the loss of one label and returns its gradient. log(1 + exp(x)) = max(x, 0) + rest and
 * log(1 + exp(-x)) = max(-x, 0) + rest, with rest = log(1 + exp(-|x|)). */
static __device__ float compute_label(float x, double *loss, double *plain, float target,
                                      float weight, float smoothing) {
  float small = expf(-fabsf(x)), rest = log1pf(small), t = target + smoothing * (0.5f - target);
  float no = (x > 0 ? x : 0) + rest, yes = (x < 0 ? -x : 0) + rest;
  float p = (x >= 0 ? 1 : small) / (1 + small), not_p = (x >= 0 ? small : 1) / (1 + small);
  *loss += (double)weight * t * yes + (1 - (double)t) * no;
  *plain += (double)target * yes + (1 - (double)target) * no;
  return (1 - t) * p - weight * t * not_p;
}

template <typename T>
static __device__ void compute_sigmoid(T *row, double *parts, size_t r, const float *target,
                                       const HeadLoss &h) {
  double loss = 0, plain = 0;
  bool wrong = false, known = false;
  for (size_t c = threadIdx.x % 32; c < h.labels; c += 32) {
    float x = to_float(row[c]), t = target[c], grad = 0;
    if (!isnan(t)) {
      known = true;
      wrong |= (x >= 0) != (t >= 0.5f);
      grad = compute_label(x, &loss, &plain, t, get_weight(h, c), h.smoothing);
    }
    if (h.scale != 0) set_float(row[c], h.scale * grad);
  }
  wrong = __any_sync(0xffffffffu, wrong);
  known = __any_sync(0xffffffffu, known);
  write_parts(parts, r, warp_sum(loss), warp_sum(plain), known && !wrong);
}

template <typename T>
static __device__ void compute_square(T *row, double *parts, size_t r, const float *target,
                                      const HeadLoss &h) {
  double loss = 0, plain = 0;
  for (size_t c = threadIdx.x % 32; c < h.labels; c += 32) {
    float off = isnan(target[c]) ? 0 : to_float(row[c]) - target[c], w = get_weight(h, c);
    loss += (double)w * off * off;
    plain += (double)off * off;
    if (h.scale != 0) set_float(row[c], 2 * h.scale * w * off);
  }
  write_parts(parts, r, warp_sum(loss), warp_sum(plain), false);
}

template <typename T, HeadKind KIND>
static __global__ void __launch_bounds__(ROWS * 32)
    compute_head_loss(T *logits, double *parts, const float *target, HeadLoss h) {
  size_t r = blockIdx.x * (size_t)ROWS + threadIdx.x / 32;
  if (r >= h.rows) return; /* whole warps */
  T *row = logits + r * h.labels;
  if (KIND == HEAD_SOFTMAX)
    compute_softmax(row, parts, r, target[r], h);
  else if (KIND == HEAD_SIGMOID)
    compute_sigmoid(row, parts, r, target + r * h.labels, h);
  else
    compute_square(row, parts, r, target + r * h.labels, h);
}

cudaError_t kernel_head_loss(Type type, void *logits, double loss[3], const float *target,
                             const HeadLoss *h, void *work, cudaStream_t stream) {
  if (h->rows == 0) return cudaSuccess;
  double *parts = (double *)work;
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto launch = [&](auto kernel) {
      kernel<<<blocks_for(h->rows, ROWS), ROWS * 32, 0, stream>>>((T *)logits, parts, target,
                                                                  *h);
    };
    if (h->kind == HEAD_SOFTMAX)
      launch(compute_head_loss<T, HEAD_SOFTMAX>);
    else if (h->kind == HEAD_SIGMOID)
      launch(compute_head_loss<T, HEAD_SIGMOID>);
    else
      launch(compute_head_loss<T, HEAD_SQUARE>);
  });
  return err ? err : kernel_sum_losses(loss, parts, h->rows, stream);
}
