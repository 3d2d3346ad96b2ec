/* For attend_group*.cu: the layout of rows of 64 elements in shared memory, and the
 * distribution of long sentences over blocks. Depends on mma.cuh.
 *
 * A staged row has 128 bytes, eight chunks of 16. Chunk c of row r is stored at position c ^ r
 * % 8, so that the same chunk of eight rows is in different banks. A tile is 16 rows. */
#ifndef BACKEND_CUDA_STAGED_CUH
#define BACKEND_CUDA_STAGED_CUH

#include "backend/cuda/mma.cuh"

#define D       64  /* elements of a head */
#define ROW     128 /* bytes of a staged row */
#define TILE    (16 * ROW)
#define HELPERS 64 /* number of blocks that process pieces of long sentences; a power of 2 */
#define LISTED  64 /* maximum number of pieces that share_out lists at a time */
#define EACH    8  /* sentences that a thread examines at a time */

struct Piece {
  int sentence, part;
};

#if HAS_MMA
/* Return offsets for ldmatrix: lane l receives the offset of row l % 16, chunk l / 16 (by_16)
 * or of row l % 8, chunk l / 8 (by_8), relative to an address that is a multiple of eight rows.
 * XOR with c << 4 adds c to the chunk. */
static __device__ __forceinline__ uint32_t by_16(int lane) {
  return (uint32_t)(lane % 16 * ROW + ((lane / 16 ^ lane % 8) << 4));
}
static __device__ __forceinline__ uint32_t by_8(int lane) {
  return (uint32_t)(lane % 8 * ROW + ((lane / 8 ^ lane % 8) << 4));
}

/* Loads a tile (16 rows, all columns) as the left operands of four mma instructions. */
static __device__ __forceinline__ void load_left(uint32_t (&x)[4][4], uint32_t tile, int lane) {
  uint32_t at = tile + by_16(lane);
#pragma unroll
  for (int c = 0; c < 4; c++) load_tiles(x[c], at ^ (uint32_t)(2 * c) << 4);
}

static __device__ __forceinline__ void clear(float (&sum)[D / 8][4]) {
#pragma unroll
  for (int j = 0; j < D / 8; j++) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
}

/* Lists the pieces of this helper block after the first `skip`, at most MOST. Pieces are
 * numbered over all sentences, and a helper has every HELPERSth piece. Returns the total number
 * of pieces of this helper. pieces_of(s): the number of pieces of sentence s, 0 if it is
 * short. part: shared memory, one element per warp. */
template <int THREADS, int MOST, typename F>
static __device__ __forceinline__ int list_pieces(Piece *list, int *part, int helper,
                                                  int sentences, int skip, F pieces_of) {
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, total = 0;
  for (int s0 = 0; s0 < sentences; s0 += THREADS * EACH) {
    int first = s0 + (int)threadIdx.x * EACH, count[EACH], mine = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      count[e] = first + e < sentences ? pieces_of(first + e) : 0;
      mine += count[e];
    }
    int upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      int before = __shfl_up_sync(0xffffffffu, upto, step);
      if (lane >= step) upto += before;
    }
    __syncthreads(); /* All threads must have read `part`, which the previous round wrote. */
    if (lane == 31) part[warp] = upto;
    __syncthreads();
    int at = total + upto - mine;
    for (int w = 0; w < THREADS / 32; w++) {
      if (w < warp) at += part[w];
      total += part[w];
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
#pragma unroll 1
      for (int p = (helper - at) & (HELPERS - 1); p < count[e]; p += HELPERS) {
        int slot = (at + p) / HELPERS - skip;
        if (slot >= 0 && slot < MOST) list[slot] = {first + e, p};
      }
      at += count[e];
    }
  }
  __syncthreads();
  return total > helper ? (total - helper + HELPERS - 1) / HELPERS : 0;
}

/* Calls run(sentence, part) for each piece of long sentences that this block has (a helper
 * block), or run(sentence, -1) for its one short sentence. */
template <int THREADS, typename P, typename R>
static __device__ __forceinline__ void share_out(int sentences, int number, P pieces_of,
                                                 R run) {
  __shared__ int part[THREADS / 32];
  __shared__ Piece list[LISTED];
  bool helps = number < HELPERS;
  if (!helps && pieces_of(number - HELPERS)) return;
  for (int skip = 0, all = 1; skip < all; skip += LISTED) {
    if (helps)
      all = list_pieces<THREADS, LISTED>(list, part, number, sentences, skip, pieces_of);
    for (int i = skip; i < all && i < skip + LISTED; i++) {
      Piece piece = {number - HELPERS, -1};
      if (helps) piece = list[i - skip];
      run(piece.sentence, piece.part);
      /* Synchronizes before the next piece or list overwrites shared memory. */
      __syncthreads();
    }
  }
}

/* Like share_out, without shared memory of its own: the list is made in `room`, memory that
 * `run` overwrites, and kept in a register pair of each lane. */
template <int THREADS, typename P, typename R>
static __device__ __forceinline__ void share_out_tight(void *room, int sentences, int number,
                                                       P pieces_of, R run) {
  Piece *list = (Piece *)room;
  int lane = (int)threadIdx.x % 32;
  bool helps = number < HELPERS;
  if (!helps && pieces_of(number - HELPERS)) return;
  for (int skip = 0, all = 1; skip < all; skip += 32) {
    Piece mine = {number - HELPERS, -1};
    if (helps) {
      all = list_pieces<THREADS, 32>(list, (int *)(list + 32), number, sentences, skip,
                                     pieces_of);
      mine = list[lane];
      __syncthreads(); /* All threads must have read the list before `run` overwrites it. */
    }
#pragma unroll 1
    for (int i = skip; i < all && i < skip + 32; i++) {
      run(__shfl_sync(0xffffffffu, mine.sentence, i - skip),
          __shfl_sync(0xffffffffu, mine.part, i - skip));
      /* Synchronizes before the next piece or list overwrites shared memory. */
      __syncthreads();
    }
  }
}
#endif

#endif
