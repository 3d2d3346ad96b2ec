/* Attention on the tensor cores for heads of 64 columns, through shared memory: all
 * rows of a sentence are asked for at once, read once, and stay on the chip until its
 * results are written. Relies on attend.cuh, mma.cuh, staged.cuh.
 *
 * A block has WARPS warps and room for ROWS rows of each array. A sentence of up to
 * ROWS rows is the work of one block for each head. Longer ones are cut into pieces
 * that need nothing of each other and are shared out evenly among the first HELPERS
 * blocks of each head; as blocks begin in order, the long work begins first. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/staged.cuh"

template <int ROWS>
static constexpr size_t forward_bytes(void) {
  return (size_t)3 * ROWS * D * 2;
}

/* A warp has 16 queries and goes over the keys, 32 at a time. A piece is 16 queries
 * for each warp. */
template <typename T, int ROWS, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, (WARPS == 2 ? 20 : 16) / WARPS)
    attend_staged(T *o, float *lse, const T *__restrict__ q, const T *__restrict__ k,
                  const T *__restrict__ v, Attend a, int sentences) {
#if HAS_MMA
  constexpr int THREADS = WARPS * 32, PIECE = WARPS * 16;
  extern __shared__ __align__(128) uint4 staged[];
  uint32_t in_q = shared_at(staged), in_k = in_q + ROWS * ROW, in_v = in_k + ROWS * ROW;
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int head = (int)blockIdx.x % a.heads;
  float to_log2 = a.scale * LOG2_E;

  auto pieces_of = [&](int s) {
    int rows = a.q_off[s + 1] - a.q_off[s];
    return rows > ROWS ? (rows + PIECE - 1) / PIECE : 0;
  };
  auto run = [&](int s, int part) {
    Sentence is = sentence_of(a, (unsigned)s);
    int begin = part < 0 ? 0 : part * PIECE;
    int rows = part < 0 ? is.rows : min(PIECE, is.rows - begin);
    int keys = a.causal ? min(is.keys, begin + rows) : is.keys; /* that any row sees */
    if (rows == 0) return;
    const T *at_q = q + (is.q0 + begin) * a.q_ld + (size_t)head * D;
    const T *at_k = k + is.k0 * a.kv_ld + (size_t)head * D;
    const T *at_v = v + is.k0 * a.kv_ld + (size_t)head * D;
    stage<THREADS>(in_q, TILE, at_q, a.q_ld, rows);

    for (int first = 0; first < rows; first += PIECE) {
      int local = first + warp * 16, i0 = begin + local;
      bool mine = local < rows;
      int end = a.causal ? min(keys, i0 + 16) : keys;
      int seen[2] = {keys, keys}; /* of the rows g and g + 8 */
      if (a.causal) seen[0] = min(keys, i0 + g + 1), seen[1] = min(keys, i0 + g + 9);
      uint32_t left[4][4];
      float sum[D / 8][4], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
      clear(sum);

      for (int c0 = 0; c0 < keys; c0 += ROWS) {
        if (first == 0 || keys > ROWS) {
          if (first || c0) __syncthreads(); /* what lay there was read */
          stage<THREADS>(in_k, TILE, at_k + c0 * a.kv_ld, a.kv_ld, min(ROWS, keys - c0));
          stage<THREADS>(in_v, TILE, at_v + c0 * a.kv_ld, a.kv_ld, min(ROWS, keys - c0));
          copies_wait();
          __syncthreads();
        }
        if (!mine) continue;
        if (c0 == 0) load_left(left, in_q + local * ROW, lane);
#pragma unroll 1
        for (int j0 = c0; j0 < min(end, c0 + ROWS); j0 += 32) {
          float s[4][4], now[2] = {most[0], most[1]};
#pragma unroll
          for (int n = 0; n < 4; n++) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
            if (j0 + n * 8 < end) mma_rows<T>(s[n], left, in_k + (j0 - c0 + n * 8) * ROW, lane);
#pragma unroll
            for (int e = 0; e < 4; e++) {
              if (j0 + n * 8 + 2 * t + e % 2 >= seen[e / 2]) s[n][e] = -INFINITY;
              now[e / 2] = fmaxf(now[e / 2], s[n][e]);
            }
          }
          /* Where there is a key every row sees the first, so from here on `now` is finite. */
          float from[2];
#pragma unroll
          for (int r = 0; r < 2; r++) {
            now[r] = quad_max(now[r]);
            from[r] = now[r] * to_log2;
            float shrink = exp2_fast(most[r] * to_log2 - from[r]);
            most[r] = now[r];
            total[r] *= shrink;
#pragma unroll
            for (int j = 0; j < D / 8; j++)
              sum[j][2 * r] *= shrink, sum[j][2 * r + 1] *= shrink;
          }
#pragma unroll
          for (int n = 0; n < 4; n++) {
            if (j0 + n * 8 >= end) break;
#pragma unroll
            for (int e = 0; e < 4; e++) {
              s[n][e] = exp2_fast(s[n][e] * to_log2 - from[e / 2]);
              total[e / 2] += s[n][e];
            }
          }
#pragma unroll
          for (int n = 0; n < 4; n += 2) {
            if (j0 + n * 8 >= end) break;
            if (j0 + n * 8 + 8 >= end)
              s[n + 1][0] = s[n + 1][1] = s[n + 1][2] = s[n + 1][3] = 0;
            if (a.drop.threshold) {
              uint32_t keep = keep_tile(a, is.q0 + i0, head, j0 + n * 8, lane);
              uint32_t bits[2] = {__shfl_sync(0xffffffffu, keep, g) >> (2 * t),
                                  __shfl_sync(0xffffffffu, keep, g + 8) >> (2 * t)};
#pragma unroll
              for (int e = 0; e < 8; e++) {
                if (!(bits[e / 2 % 2] >> (e / 4 * 8 + e % 2) & 1)) s[n + e / 4][e % 4] = 0;
              }
            }
            uint32_t p[4] = {pack2<T>(s[n][0], s[n][1]), pack2<T>(s[n][2], s[n][3]),
                             pack2<T>(s[n + 1][0], s[n + 1][1]),
                             pack2<T>(s[n + 1][2], s[n + 1][3])};
            mma_tile<T>(sum, p, in_v + (j0 - c0 + n * 8) * ROW, lane);
          }
        }
      }
      if (!mine) continue;
      float by[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        total[r] = quad_sum(total[r]);
        by[r] = total[r] > 0 ? a.drop.scale / total[r] : 0;
        int row = i0 + g + r * 8;
        if (t == 0 && row < is.rows)
          lse[(is.q0 + row) * a.heads + head] = (most[r] * to_log2 + log2f(total[r])) * LN_2;
      }
      store_tile(o + is.q0 * a.o_ld + (size_t)head * D, a.o_ld, i0, is.rows, sum, by[0], by[1],
                 lane);
    }
    copies_wait(); /* without keys nobody has */
  };
  share_out<THREADS>(sentences, (int)blockIdx.x / a.heads, pieces_of, run);
#else
  __trap();
#endif
}

/* ---- launchers ---- */

/* May this kernel be launched with so much shared memory? */
template <typename K>
static bool may_stage(K kernel, size_t bytes) {
  if (!is_built(kernel)) return false;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
          cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

static unsigned blocks_of(const Attention *a) {
  return (unsigned)(a->heads * (a->sentences + HELPERS));
}

template <typename T, int ROWS, int WARPS>
static bool forward(T *o, float *lse, const T *q, const T *k, const T *v, const Attention *a,
                    cudaStream_t stream) {
  constexpr size_t bytes = forward_bytes<ROWS>();
  if (!may_stage(attend_staged<T, ROWS, WARPS>, bytes)) return false;
  attend_staged<T, ROWS, WARPS><<<blocks_of(a), WARPS * 32, bytes, stream>>>(
      o, lse, q, k, v, attend_of(a), (int)a->sentences);
  return true;
}

template <typename T>
static bool launch(T *o, float *lse, const T *q, const T *k, const T *v, const Attention *a,
                   cudaStream_t stream, AttendWay way) {
  switch (way) {
    case ATTEND_64_4:
      return forward<T, 64, 4>(o, lse, q, k, v, a, stream);
    default:
      return false;
  }
}

bool attend_by_stage(Type type, void *o, float *lse, const void *q, const void *k,
                     const void *v, const Attention *a, cudaStream_t stream, AttendWay way) {
  if (a->d != D) return false;
  if (way == ATTEND_GROUP) return attend_by_group(type, o, lse, q, k, v, a, stream);
  if (type == TYPE_BF16) {
    typedef __nv_bfloat16 T;
    return launch((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, stream, way);
  }
  typedef __half T;
  return launch((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, stream, way);
}
