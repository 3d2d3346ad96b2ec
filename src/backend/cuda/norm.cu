/* Residual, dropout and layer norm in one pass each way: a row stays in registers.
 * Relies on device.cuh, columns.cu. */
#include <type_traits>

#include "backend/cuda/device.cuh"

/* A block is four warps: one row for each (WARPS 1), or one row for all (WARPS 4).
 * A thread holds VECS times eight columns of its row, WARPS * 256 apart. */
#define BLOCK_WARPS 4
#define MOST_PARTS  512

template <int WARPS>
static __device__ __forceinline__ float row_sum(float x) {
  return WARPS == 1 ? warp_sum(x) : block_sum<BLOCK_WARPS * 32>(x);
}

/* sum may be x: a thread reads what it writes before it writes it. */
template <typename T, int WARPS, int VECS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32)
    add_norm(T *sum, T *y, float *stat, const T *x, const T *branch, const float *gain,
             const float *bias, size_t rows, size_t d, float epsilon, Drop drop) {
  const size_t per_block = BLOCK_WARPS / WARPS;
  size_t lane = WARPS == 1 ? threadIdx.x % 32 : threadIdx.x;
  size_t r = blockIdx.x * per_block + (WARPS == 1 ? threadIdx.x / 32 : 0);
  if (r >= rows) return; /* whole warps, or the whole block */
  /* All loads first: sum may be x, so none could pass a store. */
  Eight<T> in_x[VECS], in_branch[VECS];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
    if (c >= d) continue;
    in_x[i].load(x + at);
    if (branch) in_branch[i].load(branch + at);
  }
  float v[VECS][8], total = 0;
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
    if (c >= d) continue;
    in_x[i].get(v[i]);
    if (branch) {
      float b[8];
      in_branch[i].get(b);
      drop8(b, drop, at / 8);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += b[j];
      in_x[i].set(v[i]);
      in_x[i].store(sum + at);
      in_x[i].get(v[i]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) total += v[i][j];
  }
  float mean = row_sum<WARPS>(total) / (float)d, square = 0;
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    bool there = (i * WARPS * 32 + lane) * 8 < d;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float off = there ? v[i][j] - mean : 0;
      square += off * off;
    }
  }
  float inverse = 1 / sqrtf(row_sum<WARPS>(square) / (float)d + epsilon);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8;
    if (c >= d) continue;
    float g[8], b[8];
    load8(g, gain + c);
    load8(b, bias + c);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = (v[i][j] - mean) * inverse * g[j] + b[j];
    store8(y + r * d + c, v[i]);
  }
  if (lane == 0) stat[2 * r] = mean, stat[2 * r + 1] = inverse;
}

/* Any d and any address: a block for each row, three times over it. */
template <typename T>
static __global__ void __launch_bounds__(256)
    add_norm_plain(T *sum, T *y, float *stat, const T *x, const T *branch, const float *gain,
                   const float *bias, size_t d, float epsilon, Drop drop) {
  size_t r = blockIdx.x;
  const T *row = branch ? sum + r * d : x + r * d;
  float total = 0, square = 0;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    size_t at = r * d + c;
    if (branch) set_float(sum[at], to_float(x[at]) + to_float(branch[at]) * drop1(drop, at));
    total += to_float(row[c]);
  }
  float mean = block_sum<256>(total) / (float)d;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    float off = to_float(row[c]) - mean;
    square += off * off;
  }
  float inverse = 1 / sqrtf(block_sum<256>(square) / (float)d + epsilon);
  for (size_t c = threadIdx.x; c < d; c += 256)
    set_float(y[r * d + c], (to_float(row[c]) - mean) * inverse * gain[c] + bias[c]);
  if (threadIdx.x == 0) stat[2 * r] = mean, stat[2 * r + 1] = inverse;
}

/* Both sums of a row at once. Blocks take turns with two places in shared memory, so
 * that one barrier a row is enough. */
template <int WARPS>
static __device__ __forceinline__ void row_sums(float &a, float &b, int &turn) {
  a = warp_sum(a), b = warp_sum(b);
  if constexpr (WARPS > 1) {
    __shared__ float2 part[2][BLOCK_WARPS];
    if (threadIdx.x % 32 == 0) part[turn][threadIdx.x / 32] = make_float2(a, b);
    __syncthreads();
    a = part[turn][0].x, b = part[turn][0].y;
#pragma unroll
    for (int w = 1; w < BLOCK_WARPS; w++) a += part[turn][w].x, b += part[turn][w].y;
    turn ^= 1;
  }
}

/* parts (gridDim.x, 2d): this block's share of dgain, then of dbias. AHEAD: the next
 * row is asked for as soon as this one's registers are free, half a row before it is
 * needed: by itself the compiler would not, as dx may be `through`, and dbranch dy. A
 * thread writes only what it has read. */
template <typename T, int WARPS, int VECS, bool AHEAD>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, VECS > 2 ? 2 : 4)
    add_norm_back(T *dx, T *dbranch, float *parts, const T *dy, const T *through, const T *sum,
                  const float *stat, const float *gain, size_t rows, size_t d, Drop drop) {
  const size_t per_block = BLOCK_WARPS / WARPS;
  size_t lane = WARPS == 1 ? threadIdx.x % 32 : threadIdx.x;
  int warp = threadIdx.x / 32, turn = 0;
  float dgain[VECS][8], dbias[VECS][8];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
#pragma unroll
    for (int j = 0; j < 8; j++) dgain[i][j] = dbias[i][j] = 0;
  }
  Eight<T> in_dy[VECS], in_sum[VECS], in_through[VECS];
  float in_mean, in_inverse;
  auto read = [&](size_t r) {
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
      if (c >= d) continue;
      in_dy[i].load(dy + at);
      in_sum[i].load(sum + at);
    }
    in_mean = stat[2 * r], in_inverse = stat[2 * r + 1];
  };
  auto read_through = [&](size_t r) {
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      size_t c = (i * WARPS * 32 + lane) * 8;
      if (through && c < d) in_through[i].load(through + r * d + c);
    }
  };
  size_t first = blockIdx.x * per_block + (WARPS == 1 ? warp : 0), step = gridDim.x * per_block;
  float share = 1 / (float)d;
  if (AHEAD && first < rows) read(first), read_through(first);
  for (size_t r = first; r < rows; r += step) {
    if (!AHEAD) read(r), read_through(r);
    float mean = in_mean, inverse = in_inverse, g_sum = 0, gx_sum = 0;
    float grad[VECS][8], normal[VECS][8];
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      size_t c = (i * WARPS * 32 + lane) * 8;
      if (c >= d) continue;
      float g[8];
      load8(g, gain + c);
      in_dy[i].get(grad[i]);
      in_sum[i].get(normal[i]);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        normal[i][j] = (normal[i][j] - mean) * inverse;
        dgain[i][j] += grad[i][j] * normal[i][j];
        dbias[i][j] += grad[i][j];
        grad[i][j] *= g[j];
        g_sum += grad[i][j];
        gx_sum += grad[i][j] * normal[i][j];
      }
    }
    if (AHEAD && r + step < rows) read(r + step);
    row_sums<WARPS>(g_sum, gx_sum, turn);
    g_sum *= share, gx_sum *= share;
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
      if (c >= d) continue;
      float along[8];
      if (through) in_through[i].get(along);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        grad[i][j] = inverse * (grad[i][j] - (g_sum + normal[i][j] * gx_sum));
        if (through) grad[i][j] += along[j];
      }
      store8(dx + at, grad[i]);
      if (dbranch) {
        drop8(grad[i], drop, at / 8);
        store8(dbranch + at, grad[i]);
      }
    }
    if (AHEAD && r + step < rows) read_through(r + step);
  }

  float *part = parts + blockIdx.x * 2 * d;
  if constexpr (WARPS > 1) {
#pragma unroll
    for (int i = 0; i < VECS; i++) {
      size_t c = (i * WARPS * 32 + lane) * 8;
      if (c >= d) continue;
      store8(part + c, dgain[i]);
      store8(part + d + c, dbias[i]);
    }
  } else {
    __shared__ float4 shared[BLOCK_WARPS][VECS * 64];
#pragma unroll
    for (int which = 0; which < 2; which++) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < VECS; i++)
        store8((float *)shared[warp] + (i * 32 + lane) * 8, which ? dbias[i] : dgain[i]);
      __syncthreads();
      for (size_t c = threadIdx.x; c < d; c += BLOCK_WARPS * 32) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < BLOCK_WARPS; w++) total += ((float *)shared[w])[c];
        part[which * d + c] = total;
      }
    }
  }
}

/* Any d: a block for each row. dx may be `through`, dbranch may be dy: what a
 * thread writes it has read, and the sums are done before anyone writes. */
template <typename T>
static __global__ void __launch_bounds__(256)
    add_norm_back_plain(T *dx, T *dbranch, const T *dy, const T *through, const T *sum,
                        const float *stat, const float *gain, size_t d, Drop drop) {
  size_t r = blockIdx.x;
  float mean = stat[2 * r], inverse = stat[2 * r + 1], g_sum = 0, gx_sum = 0;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    float g = to_float(dy[r * d + c]) * gain[c];
    g_sum += g;
    gx_sum += g * ((to_float(sum[r * d + c]) - mean) * inverse);
  }
  g_sum = block_sum<256>(g_sum) / (float)d;
  gx_sum = block_sum<256>(gx_sum) / (float)d;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    size_t at = r * d + c;
    float normal = (to_float(sum[at]) - mean) * inverse;
    float grad = inverse * (to_float(dy[at]) * gain[c] - (g_sum + normal * gx_sum));
    if (through) grad += to_float(through[at]);
    set_float(dx[at], grad);
    if (dbranch) set_float(dbranch[at], grad * drop1(drop, at));
  }
}

/* Runs before add_norm_back_plain, which may overwrite dy. */
template <typename T>
static __global__ void __launch_bounds__(128)
    norm_columns_plain(float *parts, const T *dy, const T *sum, const float *stat, size_t rows,
                       size_t d) {
  size_t c = blockIdx.y * (size_t)128 + threadIdx.x;
  if (c >= d) return;
  float dgain = 0, dbias = 0;
  for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    float g = to_float(dy[r * d + c]);
    dgain += g * ((to_float(sum[r * d + c]) - stat[2 * r]) * stat[2 * r + 1]);
    dbias += g;
  }
  parts[blockIdx.x * 2 * d + c] = dgain;
  parts[blockIdx.x * 2 * d + d + c] = dbias;
}

#define WIDEST 4096

cudaError_t kernel_add_norm(Type type, void *sum, void *y, float *stat, const void *x,
                            const void *branch, const float *gain, const float *bias,
                            const AddNorm *n, cudaStream_t stream) {
  if (n->rows == 0) return cudaSuccess;
  Drop drop = drop_of(n->drop);
  size_t rows = n->rows, d = n->d;
  bool fast = d % 8 == 0 && d <= WIDEST && is_aligned(y) && is_aligned(x) && is_aligned(gain) &&
              is_aligned(bias) && (!branch || (is_aligned(sum) && is_aligned(branch)));
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto launch = [&](auto kernel, size_t per_block) {
      kernel<<<blocks_for(rows, per_block), BLOCK_WARPS * 32, 0, stream>>>(
          (T *)sum, (T *)y, stat, (const T *)x, (const T *)branch, gain, bias, rows, d,
          n->epsilon, drop);
    };
    if (!fast)
      add_norm_plain<T><<<(unsigned)rows, 256, 0, stream>>>((T *)sum, (T *)y, stat,
                                                            (const T *)x, (const T *)branch,
                                                            gain, bias, d, n->epsilon, drop);
    else if (d <= 256)
      launch(add_norm<T, 1, 1>, 4);
    else if (d <= 512)
      launch(add_norm<T, 1, 2>, 4);
    else if (d <= 1024)
      launch(add_norm<T, 4, 1>, 1);
    else if (d <= 2048)
      launch(add_norm<T, 4, 2>, 1);
    else
      launch(add_norm<T, 4, 4>, 1);
  });
}

static size_t norm_parts(size_t rows) {
  size_t blocks = (rows + 3) / 4;
  return blocks < MOST_PARTS ? blocks : MOST_PARTS;
}

size_t kernel_add_norm_back_work(size_t rows, size_t d) {
  size_t parts = norm_parts(rows) * 2 * d * sizeof(float),
         sums = kernel_column_sums_work(rows, d);
  return parts > sums ? parts : sums;
}

static int way;

const char *kernel_norm_way(int chosen) {
  static const char *const name[] = {"ahead", "in turn"};
  way = chosen;
  return chosen < 2 ? name[chosen] : NULL;
}

cudaError_t kernel_add_norm_back(Type type, void *dx, void *dbranch, float *dgain, float *dbias,
                                 float *dshift, const void *dy, const void *through,
                                 const void *sum, const float *stat, const float *gain,
                                 const AddNorm *n, bool add, void *work, cudaStream_t stream) {
  if (n->rows == 0) {
    cudaError_t e = kernel_add_parts(dgain, dbias, n->d, NULL, 0, 2 * n->d, add, stream);
    if (!e && dshift) e = kernel_add_parts(dshift, NULL, n->d, NULL, 0, n->d, add, stream);
    return e;
  }
  Drop drop = drop_of(n->drop);
  float *parts = (float *)work;
  size_t rows = n->rows, d = n->d, count = norm_parts(rows);
  bool fast = d % 8 == 0 && d <= WIDEST && is_aligned(dx) && is_aligned(dbranch) &&
              is_aligned(dy) && is_aligned(through) && is_aligned(sum) && is_aligned(gain);
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto launch = [&](auto kernel) {
      kernel<<<(unsigned)count, BLOCK_WARPS * 32, 0, stream>>>(
          (T *)dx, (T *)dbranch, parts, (const T *)dy, (const T *)through, (const T *)sum, stat,
          gain, rows, d, drop);
    };
    auto pick = [&](auto ahead) {
      constexpr bool AHEAD = decltype(ahead)::value;
      if (d <= 256)
        launch(add_norm_back<T, 1, 1, AHEAD>);
      else if (d <= 512)
        launch(add_norm_back<T, 1, 2, AHEAD>);
      else if (d <= 1024)
        launch(add_norm_back<T, 4, 1, AHEAD>);
      else if (d <= 2048)
        launch(add_norm_back<T, 4, 2, AHEAD>);
      else
        launch(add_norm_back<T, 4, 4, false>); /* no registers to spare */
    };
    if (!fast) {
      norm_columns_plain<T><<<dim3((unsigned)count, blocks_for(d, 128)), 128, 0, stream>>>(
          parts, (const T *)dy, (const T *)sum, stat, rows, d);
      add_norm_back_plain<T><<<(unsigned)rows, 256, 0, stream>>>(
          (T *)dx, (T *)dbranch, (const T *)dy, (const T *)through, (const T *)sum, stat, gain,
          d, drop);
    } else if (way == 0) {
      pick(std::true_type());
    } else {
      pick(std::false_type());
    }
  });
  if (err) return err;
  err = kernel_add_parts(dgain, dbias, d, parts, count, 2 * d, add, stream);
  if (err || !dshift) return err;
  return kernel_column_sums(type, dshift, dbranch, rows, d, add, work, stream);
}
