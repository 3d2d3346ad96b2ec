/* Backend.linear_loss: the output layer and its label-smoothed cross entropy without a pass over
 * the logits. Hopper only, bf16. Depends on tile_matmul.cuh.
 *
 * With logits z = x · wᵀ, target y_i and t_i = z[i, y_i], the GEMM writes in place of z
 *   e_ij = exp(z_ij - t_i) / 2^MARGIN
 * and the sums of e over the columns of each tile. Subtracting t_i instead of the maximum is safe,
 * because then e_iy is 2^-MARGIN: the sum is above 0, and an e_ij overflows only if the loss of
 * its row is above RESCALE bits. Such rows, if any, are rescaled (rescale_row). With total_i, the
 * sum of e_i, s_i = scale / total_i and even = smoothing / vocab, the gradient of the logits is
 *   dz_ij = s_i e_ij - scale even   for every j, once e_iy is replaced by
 *   e_iy = 2^-MARGIN - (1 - smoothing) total_i.
 * A row without a target has e = 0 and s = 0. So
 *   dx_i = s_i (e · w)_i - scale even (sum over j of w_j)
 *   dw_j = (eᵀ · h)_j - scale even (sum over i of x_i),  h_i = s_i x_i,
 * where i goes over the rows with a target. The last term of dw is one more row of both operands
 * of the GEMM, 1 in e and -scale even (sum of x_i) in h. It is two rows, because one number of
 * bf16 does not represent it well, and LOSS_EXTRA_ROWS with rows of 0.
 *
 * A prediction is correct if no logit exceeds that of the target by MARGIN ln(2) = 0.0054 or
 * more: all elements of e are then below 1. MARGIN covers the different order of additions in t_i
 * and in the GEMM, and is finer than the spacing of bf16 logits from 1 on. */
#include <math.h>

#include "backend/cuda/tile_matmul.cuh"

#define MARGIN  0x1p-7f /* in bits: a difference of logits times log2(e); exact in bf16 */
#define RESCALE 100     /* binary logarithm of the largest sum that is not rescaled */

#define ROW_THREADS 256 /* a warp for each of eight rows */
#define ROW_WARPS   (ROW_THREADS / 32)
#define SUM_ROWS    16 /* rows whose elements sum_targeted adds in a block */

#define SHIFT_BYTES  (TILE_M * 4)
#define LOADED_BYTES (2 * SHIFT_BYTES)
#define SHARED       (PIPE_BYTES + LOADED_BYTES)

typedef __nv_bfloat16 Bf16;

#if HAS_TENSOR_MAPS
#if HAS_WGMMA

/* y (m, n) = exp2(a (m, k) · bᵀ * log2(e) + shift of the row), b (n, k); the exponent is
 * rounded to bf16. sums (n / TILE_N, rows of whole tiles): the sums of each row over the columns
 * of a tile; negative if one of the exponents is not. Loads the shifts. */
struct Exponential {
  typedef Bf16 Element;
  static constexpr bool B_ALONG = true, HAS_MASK = false, DYNAMIC = false;
  static constexpr int BAND = 8;
  static constexpr uint32_t LOADED = LOADED_BYTES, OWN = 0;
  /* of rows g and g + 8 */
  struct Shift {
    float of[2];
  };

  static __device__ __forceinline__ void load(const Job &j, uint32_t to, int row, int,
                                              uint32_t barrier) {
    bulk_load(to, j.shift + row, SHIFT_BYTES, barrier);
  }
  static __device__ __forceinline__ void place_lane(Lane &l, const Shared &s, uint32_t warp,
                                                    uint32_t g, uint32_t) {
    l.loaded = s.loaded + (warp * 16 + g) * 4;
  }
  static __device__ __forceinline__ Shift get_shift(const Shared &s, const Lane &l,
                                                    const Tile &t) {
    uint32_t at = l.loaded + t.bits.at * SHIFT_BYTES;
    barrier_wait(s.bits_full + t.bits.at * 8, t.bits.parity);
    return {{__uint_as_float(get4(at)), __uint_as_float(get4(at + 8 * 4))}};
  }
  static __device__ __forceinline__ uint32_t pack(float a, float b, Shift shift, int half) {
    return pack2<Bf16>(fmaf(a, LOG2_E, shift.of[half]), fmaf(b, LOG2_E, shift.of[half]));
  }

  template <int P>
  static __device__ __forceinline__ void stage_part(const Lane &l, Tile &t) {
    uint32_t x[8];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint32_t all = 0xffffffffu;
      uint32_t signs = P ? t.signs[half] : all;
      float sum[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t word = t.word[2 * (P * 4 + i) + half];
        float2 y = unpack2<Bf16>(word);
        y.x = exp2_fast(y.x);
        y.y = exp2_fast(y.y);
        sum[i] = y.x + y.y;
        signs &= word;
        x[2 * i + half] = pack2<Bf16>(y.x, y.y);
      }
      float four = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      t.sum[half] = P ? t.sum[half] + four : four;
      t.signs[half] = signs;
    }
    stage_words(l, x);
  }

  template <int P>
  static __device__ __forceinline__ void write_part(const Lane &l, const Tile &t) {
    write_eight<P>(l, t, 0);
    write_eight<P>(l, t, 1);
  }

  /* The four lanes of a row add their sums; the first writes. */
  static __device__ __forceinline__ void finish_tile(const Job &j, const Shared &,
                                                     const Tile &t) {
    const uint32_t both = 0x80008000u, lane = threadIdx.x % 32;
    size_t rows =
        (size_t)((j.m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER)) * TILE_M * CLUSTER;
    float *to = j.sums + (size_t)(t.column / TILE_N) * rows + t.row * TILE_M +
                (threadIdx.x / 32 - 4) * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = quad_sum(t.sum[half]);
      uint32_t below = __ballot_sync(0xffffffffu, (t.signs[half] & both) == both);
      bool exceeds = (~below >> (lane & 28) & 15) != 0;
      if (lane % 4 == 0) to[half * 8] = exceeds ? -sum : sum;
    }
  }
};

#endif

template <int SPREAD>
static __global__ void BOUNDS loss_matmul(const __grid_constant__ Job j) {
#if HAS_WGMMA
  run_block<Exponential, SPREAD>(j);
#else
  (void)j;
#endif
}

/* ---- kernels of rows: a warp for each ---- */

static __device__ __forceinline__ size_t row_of_warp(void) {
  return blockIdx.x * (size_t)ROW_WARPS + threadIdx.x / 32;
}

/* shift (rows of whole tiles): -(t_i log2(e) + MARGIN), or -inf without a target. */
static __global__ void __launch_bounds__(ROW_THREADS)
    find_shifts(float *shift, const Bf16 *x, const Bf16 *w, const int32_t *target, size_t rows,
                size_t d) {
  size_t r = row_of_warp(), lane = threadIdx.x % 32;
  int y = r < rows ? target[r] : -1;
  float sum = 0;
  for (size_t c = lane * 8; y >= 0 && c < d; c += 256) {
    float a[8], b[8];
    load8(a, x + r * d + c);
    load8(b, w + (size_t)y * d + c);
#pragma unroll
    for (int i = 0; i < 8; i++) sum += a[i] * b[i];
  }
  sum = warp_sum(sum);
  if (lane == 0) shift[r] = y < 0 ? -INFINITY : -(sum * LOG2_E + MARGIN);
}

/* Divides a row of e by 2^RESCALE; an infinite element becomes the largest finite power of two
 * first. Returns the new sum. */
static __device__ float rescale_row(Bf16 *e, size_t vocab) {
  float sum = 0;
  for (size_t c = threadIdx.x % 32 * 8; c < vocab; c += 256) {
    float x[8];
    load8(x, e + c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      x[i] = fminf(x[i], 0x1p127f) * (1 / 0x1p100f);
      sum += x[i];
    }
    store8(e + c, x);
  }
  static_assert(RESCALE == 100, "the factor above");
  return warp_sum(sum);
}

struct RowLoss {
  Bf16 *e, *h;        /* (rows, vocab); (rows, d) */
  float *s;           /* (rows) */
  double *parts;      /* (rows, 3) the three losses of each row */
  const float *shift; /* (padded) */
  const float *sums;  /* (tiles, padded) */
  const float *w_sum; /* (d) sum of the rows of w; NULL without smoothing */
  const Bf16 *x;      /* (rows, d) */
  const int32_t *target;
  size_t rows, padded, tiles, vocab, d;
  double smoothing, even;
  float scale;
};

/* Adds the sums of the tiles of the block's eight rows: returns that of the warp's row, and
 * whether none of them is negative. */
static __device__ __forceinline__ float sum_tiles(const RowLoss &j, bool *right) {
  __shared__ float part[32][ROW_WARPS + 1];
  size_t r = threadIdx.x % ROW_WARPS, first = threadIdx.x / ROW_WARPS;
  float sum = 0;
  uint32_t sign = 0;
#pragma unroll 8
  for (size_t i = first; i < j.tiles; i += 32) {
    float x = j.sums[i * j.padded + blockIdx.x * (size_t)ROW_WARPS + r];
    sum += fabsf(x);
    sign |= __float_as_uint(x) & 0x80000000u;
  }
  part[first][r] = __uint_as_float(__float_as_uint(sum) | sign);
  __syncthreads();
  float mine = part[threadIdx.x % 32][threadIdx.x / 32];
  *right = !__any_sync(0xffffffffu, __float_as_uint(mine) >> 31);
  return warp_sum(fabsf(mine));
}

/* Writes h, s, the target's element of e, and the losses of each row. */
static __global__ void __launch_bounds__(ROW_THREADS)
    finish_rows(const __grid_constant__ RowLoss j) {
  size_t r = row_of_warp(), lane = threadIdx.x % 32;
  bool right;
  float total = sum_tiles(j, &right), all = 0, s = 0;
  if (r >= j.rows) return;
  int y = j.target[r];
  double bits = -(double)j.shift[r]; /* log2 of the factor by which e is too small */
  float hit = exp2f(-MARGIN);
  if (y >= 0) {
    /* False for NaN, which must stay NaN. The condition is the same for all lanes. */
    if (total >= 0x1p100f) {
      total = rescale_row(j.e + r * j.vocab, j.vocab);
      bits += RESCALE;
      hit = 0;
    }
    s = j.scale / total;
  }
  for (size_t c = lane * 8; c < j.d; c += 256) {
    float x[8], w[8] = {0};
    load8(x, j.x + r * j.d + c);
    if (j.w_sum) load8(w, j.w_sum + c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      all += x[i] * w[i];
      x[i] = y < 0 ? 0 : x[i] * s;
    }
    store8(j.h + r * j.d + c, x);
  }
  all = warp_sum(all);
  __syncwarp(); /* Another lane may have written the target's element in rescale_row. */
  if (lane) return;
  double *part = j.parts + r * 3, ln2 = 0.69314718055994531;
  j.s[r] = s;
  part[0] = part[1] = part[2] = 0;
  if (y < 0) return;
  set_float(j.e[r * j.vocab + (size_t)y], hit - (float)(1 - j.smoothing) * total);
  double wanted = (-(double)j.shift[r] - (double)MARGIN) * ln2;
  double lse = bits * ln2 + log((double)total);
  part[0] = lse - (1 - j.smoothing) * wanted - j.even * (double)all;
  part[1] = lse - wanted;
  part[2] = right;
}

/* parts (blocks, d): the sums of SUM_ROWS rows of x, of those with a target. */
static __global__ void __launch_bounds__(1024)
    sum_targeted(float *parts, const Bf16 *x, const int32_t *target, size_t rows, size_t d) {
  size_t begin = blockIdx.x * (size_t)SUM_ROWS, c = threadIdx.x * (size_t)8;
  int count = rows - begin < SUM_ROWS ? (int)(rows - begin) : SUM_ROWS;
  float sum[8] = {0};
#pragma unroll 8
  for (int i = 0; i < count; i++) {
    float a[8];
    load8(a, x + (begin + i) * d + c);
    bool counts = target[begin + i] >= 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] += counts ? a[k] : 0;
  }
#pragma unroll
  for (int k = 0; k < 8; k++) parts[blockIdx.x * d + c + k] = sum[k];
}

/* Fills the LOSS_EXTRA_ROWS rows at the ends of e and h: h has by * sum in two rows, whose sum is
 * nearer to it than one, and 0 in the others. */
static __global__ void __launch_bounds__(ROW_THREADS)
    fill_extra_rows(Bf16 *e, Bf16 *h, const float *sum, size_t vocab, size_t d, float by) {
  size_t c = blockIdx.x * (size_t)ROW_THREADS + threadIdx.x;
  for (size_t r = 0; r < LOSS_EXTRA_ROWS && c < vocab; r++)
    set_float(e[r * vocab + c], r < 2 ? 1 : 0);
  if (c >= d) return;
  float value = by * sum[c];
  set_float(h[c], value);
  set_float(h[d + c], value - to_float(h[c]));
  for (size_t r = 2; r < LOSS_EXTRA_ROWS; r++) set_float(h[r * d + c], 0);
}

/* dx_i = s_i dx_i - even w_sum; 0 in rows without a target. */
static __global__ void __launch_bounds__(ROW_THREADS)
    finish_dx(Bf16 *dx, const float *s, const float *w_sum, const int32_t *target, size_t rows,
              size_t d, float even) {
  size_t r = row_of_warp();
  if (r >= rows) return;
  bool has_target = target[r] >= 0;
  float by = s[r];
  for (size_t c = threadIdx.x % 32 * 8; c < d; c += 256) {
    float x[8], w[8] = {0};
    load8(x, dx + r * d + c);
    if (w_sum) load8(w, w_sum + c);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = has_target ? x[i] * by - even * w[i] : 0;
    store8(dx + r * d + c, x);
  }
}

/* ---- launchers ---- */

bool kernel_fuses_loss(Type type, size_t rows, size_t d, size_t vocab) {
  const size_t most = INT32_MAX / 2;
  cudaFuncAttributes is;
  if (type != TYPE_BF16 || rows == 0 || rows > most || vocab == 0 || vocab % TILE_N ||
      vocab > most || d % TILE_K || d < PARTS * TILE_K || d > 1024 * 8)
    return false;
  if (cudaFuncGetAttributes(&is, loss_matmul<1>)) {
    (void)cudaGetLastError();
    return false;
  }
  return is.maxThreadsPerBlock == THREADS;
}

/* The parts of the scratch memory. */
struct LossWork {
  double *parts;
  float *shift, *sums, *x_sum;
  void *rest; /* of the column sums */
  size_t padded, bytes;
};

static LossWork divide_work(const LinearLoss *j, void *work) {
  LossWork w;
  char *at = (char *)work;
  auto take = [&at](size_t bytes) {
    char *begin = at;
    at += (bytes + 255) / 256 * 256;
    return begin;
  };
  w.padded = count_tile_rows(j->rows) * TILE_M;
  w.parts = (double *)take(kernel_loss_work(j->rows));
  w.shift = (float *)take(w.padded * 4);
  w.sums = (float *)take(j->vocab / TILE_N * w.padded * 4);
  w.x_sum = (float *)take(j->in * 4);
  size_t columns = kernel_column_sums_work(j->vocab, j->in);
  size_t blocks = (j->rows + SUM_ROWS - 1) / SUM_ROWS * j->in * 4;
  w.rest = take(columns > blocks ? columns : blocks);
  w.bytes = (size_t)(at - (char *)work);
  return w;
}

size_t kernel_linear_loss_work(const LinearLoss *j) {
  return divide_work(j, NULL).bytes;
}

size_t kernel_linear_loss_kept(const LinearLoss *j) {
  return (j->in + j->rows) * sizeof(float);
}

static cudaError_t launch_loss_matmul(const LinearLoss *l, const LossWork *w,
                                      cudaStream_t stream) {
  const CUtensorMapDataType kind = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Job j = {};
  j.m = (int)l->rows;
  j.n = (int)l->vocab;
  j.k = (int)l->in;
  j.y = l->logits;
  j.sums = w->sums;
  j.shift = w->shift;
  j.scale = 1;
  cudaError_t e = make_tensor_map(&j.a, kind, l->x, l->rows, l->in, TILE_M);
  if (!e) e = make_tensor_map(&j.b, kind, l->w, l->vocab, l->in, TILE_N / CLUSTER);
  if (e) return e;
  bool spread = l->in >= 2 * PARTS * TILE_K;
  return launch_kernel(spread ? loss_matmul<2> : loss_matmul<1>, SHARED, j, stream);
}

/* Writes the extra rows of e and h. */
static cudaError_t add_extra_rows(const LinearLoss *j, const LossWork *w, float by,
                                  cudaStream_t stream) {
  unsigned blocks = blocks_for(j->rows, SUM_ROWS);
  float *parts = (float *)w->rest;
  sum_targeted<<<blocks, (unsigned)(j->in / 8), 0, stream>>>(parts, (const Bf16 *)j->x,
                                                             j->target, j->rows, j->in);
  float *to = w->x_sum;
  cudaError_t e = cudaGetLastError();
  if (!e) e = kernel_add_parts(&to, 1, j->in, parts, blocks, 1, /*add=*/false, stream);
  if (e) return e;
  size_t widest = j->vocab > j->in ? j->vocab : j->in;
  fill_extra_rows<<<blocks_for(widest, ROW_THREADS), ROW_THREADS, 0, stream>>>(
      (Bf16 *)j->logits + j->rows * j->vocab, (Bf16 *)j->scaled + j->rows * j->in, w->x_sum,
      j->vocab, j->in, by);
  return cudaGetLastError();
}

cudaError_t kernel_linear_loss(const LinearLoss *j, float *kept, void *work,
                               cudaStream_t stream) {
  LossWork w = divide_work(j, work);
  double even = j->smoothing / (double)j->vocab;
  cudaError_t e = cudaSuccess;
  if (j->smoothing != 0)
    e = kernel_column_sums(TYPE_BF16, kept, j->w, j->vocab, j->in, /*add=*/false, w.rest,
                           stream);
  if (e) return e;
  find_shifts<<<blocks_for(w.padded, ROW_WARPS), ROW_THREADS, 0, stream>>>(
      w.shift, (const Bf16 *)j->x, (const Bf16 *)j->w, j->target, j->rows, j->in);
  e = cudaGetLastError();
  if (!e) e = launch_loss_matmul(j, &w, stream);
  if (e) return e;
  RowLoss row = {(Bf16 *)j->logits,
                 (Bf16 *)j->scaled,
                 kept + j->in,
                 w.parts,
                 w.shift,
                 w.sums,
                 j->smoothing != 0 ? kept : NULL,
                 (const Bf16 *)j->x,
                 j->target,
                 j->rows,
                 w.padded,
                 j->vocab / TILE_N,
                 j->vocab,
                 j->in,
                 j->smoothing,
                 even,
                 j->scale};
  finish_rows<<<blocks_for(j->rows, ROW_WARPS), ROW_THREADS, 0, stream>>>(row);
  e = cudaGetLastError();
  if (!e && j->smoothing != 0)
    e = add_extra_rows(j, &w, (float)(-(double)j->scale * even), stream);
  return e ? e : kernel_sum_losses(j->loss, w.parts, j->rows, stream);
}

cudaError_t kernel_linear_loss_dx(const LinearLoss *j, const float *kept, cudaStream_t stream) {
  double even = j->smoothing / (double)j->vocab;
  finish_dx<<<blocks_for(j->rows, ROW_WARPS), ROW_THREADS, 0, stream>>>(
      (Bf16 *)j->dx, kept + j->in, j->smoothing != 0 ? kept : NULL, j->target, j->rows, j->in,
      (float)((double)j->scale * even));
  return cudaGetLastError();
}

#else

bool kernel_fuses_loss(Type, size_t, size_t, size_t) {
  return false;
}
size_t kernel_linear_loss_work(const LinearLoss *) {
  return 0;
}
size_t kernel_linear_loss_kept(const LinearLoss *) {
  return 0;
}
cudaError_t kernel_linear_loss(const LinearLoss *, float *, void *, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t kernel_linear_loss_dx(const LinearLoss *, const float *, cudaStream_t) {
  return cudaErrorNotSupported;
}

#endif
