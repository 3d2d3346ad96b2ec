/* Backward of residual, dropout and layer norm in one pass over memory: a row stays in
 * registers. Depends on sections.cuh, columns.cu. */
#include <type_traits>

#include "backend/cuda/sections.cuh"

#define MAX_PARTS 512 /* maximum number of blocks of norm_parameters_plain for a column */

/* ---- eight columns per thread ---- */

/* True: sums of sections have memory of their own, so that rows of the next section are copied
 * meanwhile. Compute capability 7.5 has neither the memory nor asynchronous copies. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SUMS_APART false
#else
#define SUMS_APART true
#endif

/* Starts an asynchronous copy of 16 bytes to shared memory; before compute capability 8.0
 * copies synchronously. */
static __device__ __forceinline__ void copy_ahead(uint4 *to, const uint4 *from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
  *to = *from;
#endif
}

/* Synchronizes the ROW threads of a team, which is one of COUNT teams beginning at FIRST. If
 * the number of a barrier is computed, ptxas reserves all 16 for a block. Compute capability
 * 12.0 has 24 for an SM, so two blocks need constant numbers. */
template <int ROW, int FIRST, int COUNT>
static __device__ __forceinline__ void team_barrier(int team) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  if constexpr (COUNT == 1) {
    asm volatile("bar.sync %0, %1;" ::"n"(FIRST + 1), "n"(ROW) : "memory");
  } else {
    if (team < FIRST + COUNT / 2)
      team_barrier<ROW, FIRST, COUNT / 2>(team);
    else
      team_barrier<ROW, FIRST + COUNT / 2, COUNT / 2>(team);
  }
#else
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(ROW) : "memory");
#endif
}

/* Returns the sums of a and b over a team to all its threads. The lower half of a warp reduces
 * a, the upper half b. part: one element per warp of the block; the caller alternates between
 * two arrays, so that one barrier per row is sufficient. */
template <int ROW, int TEAMS>
static __device__ __forceinline__ float2 team_sums(float a, float b, float2 *part, int team) {
  bool upper = threadIdx.x & 16;
  float sum = upper ? b : a, other = upper ? a : b;
  sum += __shfl_xor_sync(0xffffffffu, other, 16);
#pragma unroll
  for (int step = 8; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if constexpr (ROW == 32) {
    other = __shfl_xor_sync(0xffffffffu, sum, 16);
    return upper ? make_float2(other, sum) : make_float2(sum, other);
  } else {
    float *mine = (float *)(part + threadIdx.x / 32);
    if (threadIdx.x % 16 == 0) mine[upper] = sum;
    team_barrier<ROW, 0, TEAMS>(team);
    float2 all = part[team * (ROW / 32)];
#pragma unroll
    for (int w = 1; w < ROW / 32; w++) {
      float2 more = part[team * (ROW / 32) + w];
      all.x += more.x;
      all.y += more.y;
    }
    return all;
  }
}

/* Eight floats of each thread in shared memory, in two halves without bank conflicts: neither
 * when a thread accesses four of its own nor when a warp reads adjacent columns. */
template <int THREADS>
struct ThreadSums {
  float4 low[THREADS], gap[4], high[THREADS];
  __device__ __forceinline__ void put(const float x[8]) {
    low[threadIdx.x] = make_float4(x[0], x[1], x[2], x[3]);
    high[threadIdx.x] = make_float4(x[4], x[5], x[6], x[7]);
  }
  __device__ __forceinline__ void get(float x[8]) const {
    float4 a = low[threadIdx.x], b = high[threadIdx.x];
    x[0] = a.x;
    x[1] = a.y;
    x[2] = a.z;
    x[3] = a.w;
    x[4] = b.x;
    x[5] = b.y;
    x[6] = b.z;
    x[7] = b.w;
  }
  /* Returns the sum over the teams of column k; a team has ROW threads, eight columns each. */
  template <int ROW>
  __device__ __forceinline__ float sum_column(unsigned k) const {
    const float *at = (const float *)(k / 4 % 2 ? high : low) + k / 8 * 4 + k % 4;
    float total = 0;
#pragma unroll
    for (int i = 0; i < THREADS / ROW; i++) total += at[i * ROW * 4];
    return total;
  }
};

/* Computes dx and dbranch, and in parts (rows of 2d or 3d) the partial sums of dgain, dbias
 * and, if SHIFTS, dshift of each section (see sections.cuh). Teams of ROW threads alternate
 * over the rows, eight columns per thread, so that column sums need few registers and many rows
 * are in flight. While a row is computed, the team's next row is copied to shared memory
 * (cp.async), each thread's part to a slot of its own. dx may be `through` and dbranch may be
 * dy: a thread stores only elements that it alone has loaded. */
template <typename T, int THREADS, int ROW, bool SHIFTS>
static __global__ void __launch_bounds__(THREADS, SM_BLOCKS)
    norm_backward(T *dx, T *dbranch, float *parts, const T *dy, const T *through, const T *sum,
                  const float *stat, const float *gain, unsigned rows, unsigned d, float share,
                  Drop drop, Sections s) {
  /* WORDS: number of 16-byte words in eight elements */
  constexpr int TEAMS = THREADS / ROW, WORDS = sizeof(T) / 2;
  constexpr unsigned SUMS = SHIFTS ? 3 : 2;
  /* The sums of dshift are in shared memory: registers do not suffice. */
  constexpr bool SHARES_SHIFT = SHIFTS && SUMS_APART;
  typedef ThreadSums<THREADS> Columns;
  __shared__ uint4 ahead[3][WORDS][THREADS];
  __shared__ float2 part[2][THREADS / 32];
  __shared__ __align__(16) char apart[SUMS_APART ? sizeof(Columns) : 16];
  static_assert(sizeof ahead >= sizeof(Columns), "");
  Columns &columns = *(Columns *)(SUMS_APART ? (void *)apart : (void *)ahead);
  int team = threadIdx.x / ROW;
  unsigned me = threadIdx.x, c = me % ROW * 8, step = s.shares * TEAMS;
  bool has_columns = c < d;
  float dgain[8] = {0}, dbias[8] = {0}, dshift[8] = {0}, in_mean = 0, in_inverse = 0;
  auto prefetch_part = [&](int i, const T *from) {
#pragma unroll
    for (int w = 0; w < WORDS; w++) copy_ahead(&ahead[i][w][me], (const uint4 *)from + w);
  };
  auto prefetch_row = [&](unsigned r) {
    size_t at = (size_t)r * d + c;
    in_mean = stat[2 * (size_t)r];
    in_inverse = stat[2 * (size_t)r + 1];
    if (!has_columns) return;
    prefetch_part(0, dy + at);
    prefetch_part(1, sum + at);
    if (through) prefetch_part(2, through + at);
  };
  auto take = [&](Eight<T> &e, int i) {
    uint4 word[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) word[w] = ahead[i][w][me];
    memcpy(&e, word, sizeof e);
  };
  auto clear_slots = [&]() {
#pragma unroll
    for (int i = 0; i < 3 * WORDS && !has_columns; i++)
      ahead[i / WORDS][i % WORDS][me] = make_uint4(0, 0, 0, 0);
  };
  unsigned number = blockIdx.x, r, left; /* left: number of the team's rows, from r down */
  auto begin_section = [&]() {
    Section now = find_section(s, number, gridDim.x);
    unsigned behind = now.begin * step + team * s.shares + now.share;
    left = now.end - now.begin;
    if (behind + (left - 1) * step >= rows) left--; /* the last turn may be incomplete */
    r = rows - 1 - behind;
    if (left) prefetch_row(r);
  };
  clear_slots();
  if (SHARES_SHIFT) columns.put(dshift);
  begin_section();
  for (;;) {
    for (; left; r -= step, left--) {
      Eight<T> in_dy, in_sum, in_through;
      float mean = in_mean, inverse = in_inverse, a = 0, b = 0, grad[8], normal[8];
      float g[8] = {0};
      if (has_columns) load8(g, gain + c);
      copies_wait();
      take(in_dy, 0);
      take(in_sum, 1);
      if (through) take(in_through, 2);
      if (left > 1) prefetch_row(r - step);
      in_dy.get(grad);
      in_sum.get(normal);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        normal[j] = (normal[j] - mean) * inverse;
        dgain[j] += grad[j] * normal[j];
        dbias[j] += grad[j];
        grad[j] *= g[j];
        a += grad[j];
        b += grad[j] * normal[j];
      }
      float2 sums = team_sums<ROW, TEAMS>(a, b, part[left % 2], team);
      a = sums.x * share * -inverse;
      b = sums.y * share * -inverse;
      if (!has_columns) continue;
      size_t at = (size_t)r * d + c;
      float residual[8] = {0};
      if (through) in_through.get(residual);
#pragma unroll
      for (int j = 0; j < 8; j++)
        grad[j] = grad[j] * inverse + (normal[j] * b + (a + residual[j]));
      store8(dx + at, grad);
      if (!dbranch) continue;
      drop8(grad, drop, at / 8);
      store8(dbranch + at, grad);
      if (!SHIFTS) continue;
      if (SHARES_SHIFT) columns.get(dshift);
#pragma unroll
      for (int j = 0; j < 8; j++) dshift[j] += grad[j];
      if (SHARES_SHIFT) columns.put(dshift);
    }

    /* Adds the sums of the teams, and to those of the share's sections before this one. */
    constexpr int EACH = ROW * 8 > THREADS ? ROW * 8 / THREADS : 1; /* columns of a thread */
    Section now = find_section(s, number, gridDim.x);
    float *out = parts + now.part * (SUMS * d), before[SUMS][EACH];
    /* Loads without a condition, which would keep the registers occupied in the loop; without
     * sums before, of values that are not used. */
    const float *from = now.continues_part ? out : gain;
    unsigned stride = now.continues_part ? d : 0;
#pragma unroll
    for (int i = 0; i < (int)SUMS * EACH; i++)
      before[i / EACH][i % EACH] =
          from[i / EACH * stride + min(me + i % EACH * THREADS, d - 1)];
    number += gridDim.x;
    bool ended = number >= s.shares * s.each;
    if (SUMS_APART && !ended) begin_section();
    if (SHARES_SHIFT) columns.get(dshift);
#pragma unroll
    for (int i = 0; i < (int)SUMS; i++) {
      /* dshift first, so that its registers are free again */
      int which = SHARES_SHIFT ? (i + 2) % 3 : i;
      __syncthreads(); /* All threads must have read what is overwritten. */
      columns.put(which == 0 ? dgain : which == 1 ? dbias : dshift);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < EACH; j++) {
        unsigned k = me + j * THREADS;
        if (k >= d) continue;
        float total = columns.template sum_column<ROW>(k);
        out[which * d + k] = now.continues_part ? before[which][j] + total : total;
      }
    }
    if (ended) return;
#pragma unroll
    for (int j = 0; j < 8; j++) dgain[j] = dbias[j] = dshift[j] = 0;
    if (!SUMS_APART || SHARES_SHIFT) __syncthreads();
    if (SHARES_SHIFT) columns.put(dshift);
    if (!SUMS_APART) clear_slots();
    if (!SUMS_APART) begin_section();
  }
}

/* For any d and alignment: one block per row. dx may be `through` and dbranch may be dy: a
 * thread stores only elements that it has loaded, after the sums over the row. */
template <typename T>
static __global__ void __launch_bounds__(256)
    norm_backward_plain(T *dx, T *dbranch, const T *dy, const T *through, const T *sum,
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

/* Sums dgain and dbias. Must run before norm_backward_plain, which may overwrite dy. */
template <typename T>
static __global__ void __launch_bounds__(128)
    norm_parameters_plain(float *parts, const T *dy, const T *sum, const float *stat,
                          size_t rows, size_t d) {
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

static size_t count_parts(size_t rows) {
  size_t blocks = (rows + 3) / 4;
  return blocks < MAX_PARTS ? blocks : MAX_PARTS;
}

/* Returns the shares of norm_backward. */
static size_t count_back_shares(size_t rows) {
  size_t want = (rows + 3) / 4;
  return want < MOST_SHARES ? want : MOST_SHARES;
}

size_t kernel_add_norm_backward_work(size_t rows, size_t d) {
  size_t count = count_parts(rows), fast = count_back_shares(rows) * MOST_SECTIONS;
  size_t parts = (fast > count ? fast : count) * 3 * d * sizeof(float);
  size_t sums = kernel_column_sums_work(rows, d);
  return parts > sums ? parts : sums;
}

cudaError_t kernel_add_norm_backward(Type type, void *dx, void *dbranch, float *dgain,
                                     float *dbias, float *dshift, const void *dy,
                                     const void *through, const void *sum, const float *stat,
                                     const float *gain, const AddNorm *n, bool add, void *work,
                                     cudaStream_t stream) {
  float *to[3] = {dgain, dbias, dshift};
  if (n->rows == 0) return kernel_add_parts(to, dshift ? 3 : 2, n->d, NULL, 0, 1, add, stream);
  Drop drop = drop_of(n->drop);
  float *parts = (float *)work;
  size_t rows = n->rows, d = n->d, count = count_parts(rows), each = 1, sms;
  bool fast = d % 8 == 0 && d * type_size(type) <= 8192 && rows <= INT32_MAX &&
              is_aligned(dx) && is_aligned(dbranch) && is_aligned(dy) && is_aligned(through) &&
              is_aligned(sum) && is_aligned(gain);
  if (fast) count = count_back_shares(rows);
  cudaError_t err = kernel_count_sms(&sms);
  if (err) return err;
  err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    /* threads per block, chosen so that a block has 24 KiB of loads in flight */
    constexpr int THREADS = sizeof(T) == 4 ? 256 : 512;
    auto launch = [&](auto kernel, size_t teams) {
      Sections s = divide_turns(count, (rows + count * teams - 1) / (count * teams));
      unsigned blocks = count_section_blocks(s, sms, 1);
      each = count_share_parts(s, blocks);
      kernel<<<blocks, THREADS, 0, stream>>>(
          (T *)dx, (T *)dbranch, parts, (const T *)dy, (const T *)through, (const T *)sum, stat,
          gain, (unsigned)rows, (unsigned)d, 1 / (float)d, drop, s);
    };
    if (!fast) {
      norm_parameters_plain<T><<<dim3((unsigned)count, blocks_for(d, 128)), 128, 0, stream>>>(
          parts, (const T *)dy, (const T *)sum, stat, rows, d);
      norm_backward_plain<T><<<(unsigned)rows, 256, 0, stream>>>(
          (T *)dx, (T *)dbranch, (const T *)dy, (const T *)through, (const T *)sum, stat, gain,
          d, drop);
    } else {
      auto pick = [&](auto shifts) {
        constexpr bool SHIFTS = decltype(shifts)::value;
        if (d <= 256)
          launch(norm_backward<T, THREADS, 32, SHIFTS>, THREADS / 32);
        else if (d <= 512)
          launch(norm_backward<T, THREADS, 64, SHIFTS>, THREADS / 64);
        else if (d <= 1024)
          launch(norm_backward<T, THREADS, 128, SHIFTS>, THREADS / 128);
        else if (d <= 2048)
          launch(norm_backward<T, THREADS, 256, SHIFTS>, THREADS / 256);
        else
          launch(norm_backward<T, THREADS, THREADS, SHIFTS>, 1);
      };
      if (dshift)
        pick(std::true_type());
      else
        pick(std::false_type());
    }
  });
  bool done = fast && dshift; /* norm_backward has already summed dbranch */
  if (!err) err = kernel_add_parts(to, done ? 3 : 2, d, parts, count, each, add, stream);
  if (err || done || !dshift) return err;
  return kernel_column_sums(type, dshift, dbranch, rows, d, add, work, stream);
}
