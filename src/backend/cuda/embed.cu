/* Embeddings and their gradient. For the gradient the tokens are sorted by id, divided into
 * chunks of equal length, and summed per id, first within chunks and then across chunks. This
 * balances the load between frequent and rare ids and fixes the order of the additions. Depends
 * on device.cuh. */
#include "backend/cuda/device.cuh"

/* ---- forward: eight elements per thread ---- */

template <typename T>
static __global__ void __launch_bounds__(256)
    embed(T *x, const T *__restrict__ table, const float *__restrict__ place,
          const int32_t *__restrict__ id, const int32_t *__restrict__ position, size_t rows,
          size_t d, float scale, Drop drop, bool vector) {
  size_t group = blockIdx.x * (size_t)256 + threadIdx.x, at = group * 8, n = rows * d;
  if (at >= n) return;
  float v[8], p[8];
  if (vector) {
    size_t r = at / d, c = at % d;
    load8(v, table + (size_t)id[r] * d + c);
    load8(p, place + (size_t)position[r] * d + c);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = v[i] * scale + p[i];
    drop8(v, drop, group);
    store8(x + at, v);
    return;
  }
  int count = n - at < 8 ? (int)(n - at) : 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    size_t r = (at + i) / d, c = (at + i) % d;
    v[i] = i < count ? to_float(table[(size_t)id[r] * d + c]) * scale +
                           place[(size_t)position[r] * d + c]
                     : 0;
  }
  drop8(v, drop, group);
  store_some(x + at, v, count);
}

cudaError_t kernel_embed(Type type, void *x, const void *table, const float *place,
                         const int32_t *id, const int32_t *position, size_t rows, size_t d,
                         float scale, Dropout dropout, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  Drop drop = drop_of(dropout);
  bool vector = d % 8 == 0 && is_aligned(x) && is_aligned(table) && is_aligned(place);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    embed<T><<<blocks_for(rows * d, 256 * 8), 256, 0, stream>>>(
        (T *)x, (const T *)table, place, id, position, rows, d, scale, drop, vector);
  });
}

/* ---- a stable radix sort, eight bits at a time ---- */

#define SORT_THREADS 256 /* threads of a block; also the number of digits */
#define SORT_ROUNDS  2
#define SORT_TILE    (SORT_THREADS * SORT_ROUNDS)
#define SORT_WARPS   (SORT_THREADS / 32)

/* Counts how often each digit occurs in each tile: count (256, tiles). */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_count(int32_t *count, const int32_t *key, size_t n, int shift) {
  __shared__ int32_t shared[256];
  shared[threadIdx.x] = 0;
  __syncthreads();
  for (int i = 0; i < SORT_ROUNDS; i++) {
    size_t at = blockIdx.x * (size_t)SORT_TILE + i * SORT_THREADS + threadIdx.x;
    if (at < n) atomicAdd(&shared[(uint32_t)key[at] >> shift & 255], 1);
  }
  __syncthreads();
  count[threadIdx.x * gridDim.x + blockIdx.x] = shared[threadIdx.x];
}

/* Moves the elements of a tile to their sorted positions. If `row` is NULL (first pass), the row
 * of an element is its index. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_scatter(int32_t *to_key, int32_t *to_row, const int32_t *key, const int32_t *row,
                 const int32_t *count, size_t n, int shift) {
  __shared__ int32_t of_warp[SORT_WARPS][256], warp_total[SORT_WARPS];
  int digit = (int)threadIdx.x, lane = digit % 32, warp = digit / 32;
  /* First position of this tile's elements of each digit: after all smaller digits and after the
   * same digit in earlier tiles. */
  int32_t before = 0, total = 0;
  for (unsigned tile = 0; tile < gridDim.x; tile++) {
    int32_t c = count[(size_t)digit * gridDim.x + tile];
    if (tile < blockIdx.x) before += c;
    total += c;
  }
  int32_t inclusive = total;
  for (int step = 1; step < 32; step *= 2) {
    int32_t left = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step) inclusive += left;
  }
  if (lane == 31) warp_total[warp] = inclusive;
  for (int w = 0; w < SORT_WARPS; w++) of_warp[w][digit] = 0;
  __syncthreads();
  for (int w = 0; w < warp; w++) inclusive += warp_total[w];
  int32_t begin = inclusive - total + before;

  /* Rank within the warp: the number of preceding elements with the same digit among the 32 *
   * SORT_ROUNDS consecutive elements of the warp. */
  int32_t rank[SORT_ROUNDS];
  uint32_t mine[SORT_ROUNDS];
  size_t first = blockIdx.x * (size_t)SORT_TILE + (size_t)warp * 32 * SORT_ROUNDS + lane;
#pragma unroll
  for (int i = 0; i < SORT_ROUNDS; i++) {
    bool there = first + i * 32 < n;
    mine[i] = there ? (uint32_t)key[first + i * 32] : 0;
    /* digit of the element; 256: there is no element */
    uint32_t d = there ? mine[i] >> shift & 255 : 256;
    uint32_t same = __match_any_sync(0xffffffffu, d);
    int32_t sofar = there ? of_warp[warp][d] : 0;
    rank[i] = sofar + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (there && (same >> lane) == 1) of_warp[warp][d] = sofar + __popc(same);
    __syncwarp();
  }
  __syncthreads();
  for (int w = 0; w < SORT_WARPS; w++) {
    int32_t c = of_warp[w][digit];
    of_warp[w][digit] = begin;
    begin += c;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SORT_ROUNDS; i++) {
    size_t at = first + i * 32;
    if (at >= n) continue;
    int32_t to = of_warp[warp][mine[i] >> shift & 255] + rank[i];
    to_key[to] = (int32_t)mine[i];
    to_row[to] = row ? row[at] : (int32_t)at;
  }
}

size_t kernel_sort_ids_work(size_t rows) {
  return (2 * rows + 256 * (size_t)blocks_for(rows, SORT_TILE)) * sizeof(int32_t);
}

cudaError_t kernel_sort_ids(int32_t *sorted, const int32_t *id, size_t rows, size_t limit,
                            void *work, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  int passes = 1;
  while (passes < 4 && limit > (size_t)1 << (8 * passes)) passes++;
  int32_t *other = (int32_t *)work, *count = other + 2 * rows;
  const int32_t *key = id, *row = NULL;
  unsigned tiles = blocks_for(rows, SORT_TILE);
  for (int p = 0; p < passes; p++) {
    /* The buffers alternate so that the last pass writes to `sorted`. */
    int32_t *to = (passes - p) % 2 ? sorted : other;
    sort_count<<<tiles, SORT_THREADS, 0, stream>>>(count, key, rows, 8 * p);
    sort_scatter<<<tiles, SORT_THREADS, 0, stream>>>(to, to + rows, key, row, count, rows,
                                                     8 * p);
    key = to;
    row = to + rows;
  }
  return cudaGetLastError();
}

/* ---- backward ---- */

#define CHUNK 32 /* tokens of a chunk */
#define AHEAD 8  /* rows loaded before the first is used */

/* Sums one chunk, W columns per thread. An id whose tokens are all in this chunk is added to
 * dtable. The sum of an id that continues in the next chunk is stored in parts[chunk][1], that of
 * an id that began in an earlier chunk in parts[chunk][0]. parts (chunks, 2, d). */
template <typename T, int W>
static __global__ void __launch_bounds__(128)
    sum_chunk(float *dtable, float *parts, const T *__restrict__ dx,
              const int32_t *__restrict__ sorted, size_t rows, size_t d, float scale,
              Drop drop) {
  /* `id` also has the neighbours before and after the chunk */
  __shared__ int32_t id[CHUNK + 2], row[CHUNK];
  size_t begin = blockIdx.x * (size_t)CHUNK;
  int count = rows - begin < CHUNK ? (int)(rows - begin) : CHUNK;
  for (int i = (int)threadIdx.x; i < count + 2; i += (int)blockDim.x) {
    size_t at = begin + i; /* index + 1, because id[0] is the element before the chunk */
    id[i] = at == 0 || at > rows ? -1 : sorted[at - 1];
    if (i < count) row[i] = sorted[rows + begin + i];
  }
  __syncthreads();
  for (size_t c = (blockIdx.y * (size_t)blockDim.x + threadIdx.x) * W; c < d;
       c += gridDim.y * (size_t)blockDim.x * W) {
    float sum[8] = {0};
    for (int e = 0; e < count; e += AHEAD) {
      Eight<T> ahead[W == 8 ? AHEAD : 1];
      if (W == 8) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
          if (e + i < count) ahead[W == 8 ? i : 0].load(dx + (size_t)row[e + i] * d + c);
        }
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (e + i >= count) break;
        size_t at = (size_t)row[e + i] * d + c;
        int32_t now = id[e + i + 1];
        float x[8];
        if (W == 8) {
          ahead[W == 8 ? i : 0].get(x);
          drop8(x, drop, at / 8);
        } else {
          x[0] = to_float(dx[at]) * drop1(drop, at);
        }
#pragma unroll
        for (int j = 0; j < W; j++) sum[j] += x[j];
        bool last = e + i == count - 1, ends = id[e + i + 2] != now;
        if (!ends && !last) continue;
        /* The ids are sorted: if the id began earlier, it fills the chunk up to this element. */
        bool begins = id[0] != now;
        bool whole = ends && begins;
        float *to = whole ? dtable + (size_t)now * d + c
                          : parts + (2 * (size_t)blockIdx.x + begins) * d + c;
        float old[8] = {0};
        if (whole && W == 8) load8(old, to);
        if (whole && W == 1) old[0] = *to;
#pragma unroll
        for (int j = 0; j < W; j++) {
          old[j] += sum[j] * scale;
          sum[j] = 0;
        }
        if (W == 8)
          store8(to, old);
        else
          *to = old[0];
      }
    }
  }
}

/* Adds the partial sums of the id that begins in this block's chunk and continues in the next
 * chunks. */
static __global__ void __launch_bounds__(128)
    sum_parts(float *dtable, const float *__restrict__ parts,
              const int32_t *__restrict__ sorted, size_t rows, size_t d) {
  size_t chunk = blockIdx.x, next = (chunk + 1) * CHUNK;
  if (next >= rows) return;
  int32_t id = sorted[next];
  if (sorted[next - 1] != id) return; /* no id of this chunk continues in the next */
  /* the id began in an earlier chunk */
  if (chunk > 0 && sorted[chunk * CHUNK - 1] == id) return;
  size_t chunks = (rows + CHUNK - 1) / CHUNK, end = chunk + 1, lane = threadIdx.x % 32;
  for (;;) {
    size_t x = end + lane;
    unsigned goes_on = __ballot_sync(0xffffffffu, x < chunks && sorted[x * CHUNK] == id);
    if (goes_on == 0xffffffffu) {
      end += 32;
      continue;
    }
    end += __ffs((int)~goes_on) - 1;
    break;
  }
  for (size_t c = threadIdx.x; c < d; c += blockDim.x) {
    float sum = parts[(2 * chunk + 1) * d + c];
#pragma unroll 8
    for (size_t x = chunk + 1; x < end; x++) sum += parts[2 * x * d + c];
    dtable[(size_t)id * d + c] += sum;
  }
}

size_t kernel_embed_backward_work(size_t rows, size_t d) {
  return blocks_for(rows, CHUNK) * 2 * d * sizeof(float);
}

cudaError_t kernel_embed_backward(Type type, float *dtable, const void *dx,
                                  const int32_t *sorted, size_t rows, size_t d, float scale,
                                  Dropout dropout, void *work, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  Drop drop = drop_of(dropout);
  float *parts = (float *)work;
  unsigned chunks = blocks_for(rows, CHUNK);
  bool vector = d % 8 == 0 && is_aligned(dx) && is_aligned(dtable);
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    if (vector) {
      unsigned threads = d >= 1024 ? 128 : d >= 512 ? 64 : 32;
      dim3 grid(chunks, blocks_for(d, threads * 8));
      sum_chunk<T, 8><<<grid, threads, 0, stream>>>(dtable, parts, (const T *)dx, sorted, rows,
                                                    d, scale, drop);
    } else {
      dim3 grid(chunks, blocks_for(d, 128));
      sum_chunk<T, 1><<<grid, 128, 0, stream>>>(dtable, parts, (const T *)dx, sorted, rows, d,
                                                scale, drop);
    }
  });
  if (err) return err;
  sum_parts<<<chunks, 128, 0, stream>>>(dtable, parts, sorted, rows, d);
  return cudaGetLastError();
}
