/* Label-smoothed cross entropy and its gradient: one block per row of logits, which stays in
 * registers, so that memory is read once and written once. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

struct Smooth {
  /* smoothed target probabilities: `even` of each wrong word, `hit` of the right one */
  double smoothing, even, hit;
  float scale; /* factor of the gradient; 0: no gradient */
};

/* Writes the row's contribution to the three sums; parts (rows, 3). */
static __device__ void write_row_loss(double *parts, const Smooth &is, float most, float total,
                                      float all, float wanted, bool right) {
  double lse = (double)most + log((double)total);
  double *part = parts + blockIdx.x * (size_t)3;
  part[0] = lse - (1 - is.smoothing) * (double)wanted - is.even * (double)all;
  part[1] = lse - (double)wanted;
  part[2] = right;
}

/* Handles a row without a target (negative id): no loss, gradient 0. */
template <int THREADS, typename T>
static __device__ void skip_row(T *row, double *parts, size_t vocab, const Smooth &is) {
  double *part = parts + blockIdx.x * (size_t)3;
  if (threadIdx.x == 0) part[0] = part[1] = part[2] = 0;
  if (is.scale == 0) return;
  for (size_t c = threadIdx.x; c < vocab; c += THREADS) set_float(row[c], 0);
}

/* Computes a row of up to THREADS * VECS * 8 logits in registers. */
template <typename T, int THREADS, int VECS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    compute_loss(T *logits, double *parts, const int32_t *target_, size_t vocab, Smooth is) {
  T *row = logits + blockIdx.x * vocab;
  int target = target_[blockIdx.x], n = (int)vocab;
  if (target < 0) { /* The condition is the same for all threads of the block. */
    skip_row<THREADS>(row, parts, vocab, is);
    return;
  }
  float wanted = to_float(row[target]), most = -INFINITY;
  Eight<T> in[VECS];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    int c = (i * THREADS + (int)threadIdx.x) * 8;
    if (c < n) in[i].load(row + c);
  }
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    if ((i * THREADS + (int)threadIdx.x) * 8 >= n) continue;
    float x[8];
    in[i].get(x);
#pragma unroll
    for (int j = 0; j < 8; j++) most = fmaxf(most, x[j]);
  }
  most = block_max<THREADS>(most);
  float total = 0, all = 0, base = most * LOG2_E;
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    if ((i * THREADS + (int)threadIdx.x) * 8 >= n) continue;
    float x[8];
    in[i].get(x);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      total += exp2_fast(x[j] * LOG2_E - base);
      all += x[j];
    }
  }
  total = block_sum<THREADS>(total);
  all = block_sum<THREADS>(all);
  /* The prediction is the first of equal maxima. */
  bool right = wanted == most;
  if (right) { /* The condition is the same for all threads of the block. */
    bool earlier = false;
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      int c = (i * THREADS + (int)threadIdx.x) * 8;
      if (c >= n || c >= target) continue;
      float x[8];
      in[i].get(x);
#pragma unroll
      for (int j = 0; j < 8; j++) earlier |= x[j] == most && c + j < target;
    }
    right = !__syncthreads_or(earlier);
  }
  if (threadIdx.x == 0) write_row_loss(parts, is, most, total, all, wanted, right);
  if (is.scale == 0) return;
  float by = is.scale / total, even = (float)(is.scale * is.even),
        hit = (float)(is.scale * is.hit);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    int c = (i * THREADS + (int)threadIdx.x) * 8;
    if (c >= n) continue;
    float x[8];
    in[i].get(x);
#pragma unroll
    for (int j = 0; j < 8; j++)
      x[j] = exp2_fast(x[j] * LOG2_E - base) * by - (c + j == target ? hit : even);
    store8(row + c, x);
  }
}

/* For any vocabulary size and alignment: makes three passes over the row. */
template <typename T>
static __global__ void __launch_bounds__(512)
    compute_loss_plain(T *logits, double *parts, const int32_t *target_, size_t vocab,
                       Smooth is) {
  T *row = logits + blockIdx.x * vocab;
  size_t target = (size_t)target_[blockIdx.x];
  if (target_[blockIdx.x] < 0) {
    skip_row<512>(row, parts, vocab, is);
    return;
  }
  float wanted = to_float(row[target]), most = -INFINITY, total = 0, all = 0;
  for (size_t c = threadIdx.x; c < vocab; c += 512) most = fmaxf(most, to_float(row[c]));
  most = block_max<512>(most);
  float base = most * LOG2_E;
  bool earlier = false;
  for (size_t c = threadIdx.x; c < vocab; c += 512) {
    float x = to_float(row[c]);
    total += exp2_fast(x * LOG2_E - base);
    all += x;
    earlier |= x == most && c < target;
  }
  total = block_sum<512>(total);
  all = block_sum<512>(all);
  bool right = !__syncthreads_or(earlier) && wanted == most;
  if (threadIdx.x == 0) write_row_loss(parts, is, most, total, all, wanted, right);
  if (is.scale == 0) return;
  float by = is.scale / total, even = (float)(is.scale * is.even),
        hit = (float)(is.scale * is.hit);
  for (size_t c = threadIdx.x; c < vocab; c += 512)
    set_float(row[c],
              exp2_fast(to_float(row[c]) * LOG2_E - base) * by - (c == target ? hit : even));
}

static __global__ void __launch_bounds__(1024)
    sum_losses(double *loss, const double *parts, size_t rows) {
  double sum[3] = {0, 0, 0};
#pragma unroll 4
  for (size_t r = threadIdx.x; r < rows; r += 1024) {
    for (int i = 0; i < 3; i++) sum[i] += parts[3 * r + i];
  }
  for (int i = 0; i < 3; i++) {
    double total = block_sum<1024>(sum[i]);
    if (threadIdx.x == 0) loss[i] += total;
  }
}

cudaError_t kernel_sum_losses(double *loss, const double *parts, size_t rows,
                              cudaStream_t stream) {
  sum_losses<<<1, 1024, 0, stream>>>(loss, parts, rows);
  return cudaGetLastError();
}

size_t kernel_loss_work(size_t rows) {
  return rows * 3 * sizeof(double);
}

cudaError_t kernel_loss(Type type, void *logits, double loss[3], const int32_t *target,
                        size_t rows, size_t vocab, float smoothing, float scale, void *work,
                        cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  double *parts = (double *)work;
  Smooth is = {smoothing, smoothing / (double)vocab, 0, scale};
  is.hit = 1 - is.smoothing + is.even;
  bool vector = vocab % 8 == 0 && is_aligned(logits);
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto launch = [&](auto kernel, unsigned threads) {
      kernel<<<(unsigned)rows, threads, 0, stream>>>((T *)logits, parts, target, vocab, is);
    };
    if (vector && vocab <= 512 * 8)
      launch(compute_loss<T, 512, 1>, 512);
    else if (vector && vocab <= 512 * 8 * 2)
      launch(compute_loss<T, 512, 2>, 512);
    else if (vector && vocab <= 512 * 8 * 4)
      launch(compute_loss<T, 512, 4>, 512);
    else if constexpr (sizeof(T) == 4) {
      if (vector && vocab <= 1024 * 8 * 4)
        launch(compute_loss<T, 1024, 4>, 1024);
      else
        launch(compute_loss_plain<T>, 512);
    } else {
      if (vector && vocab <= 512 * 8 * 8)
        launch(compute_loss<T, 512, 8>, 512);
      else if (vector && vocab <= 1024 * 8 * 8)
        launch(compute_loss<T, 1024, 8>, 1024);
      else
        launch(compute_loss_plain<T>, 512);
    }
  });
  return err ? err : kernel_sum_losses(loss, parts, rows, stream);
}
