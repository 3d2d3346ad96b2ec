/* Division of rows into partial sums, for norm_backward.cu and columns.cu. Depends on
 * device.cuh.
 *
 * Rows are assigned to `shares` round-robin, a few rows in each turn, from the last row to the
 * first. The turns of a share are divided into `each` sections. The sums of a share's sections
 * are added in their order, then the sums of the shares (add_parts). All this depends on the
 * shape alone, so that sums have the same bits on every GPU.
 *
 * The number of blocks depends on the GPU: as many as run at once. Block b processes sections
 * b, b + gridDim, b + 2 gridDim, and so on. There are more sections than blocks, so that no SM
 * has much more work than another. With as many blocks as shares (an H100 or H200 runs 2 * 132
 * = 264) a block has all sections of a share and adds them itself; otherwise add_parts does. */
#ifndef BACKEND_CUDA_SECTIONS_CUH
#define BACKEND_CUDA_SECTIONS_CUH

#include "backend/cuda/device.cuh"

#define MOST_SHARES   264
#define MOST_SECTIONS 3 /* of a share */
#define SECTIONS      (MOST_SHARES * MOST_SECTIONS)
#define SM_BLOCKS     2 /* blocks that an SM runs at once */

struct Sections {
  unsigned shares, turns, each;
  unsigned begin[MOST_SECTIONS + 1]; /* the first turn of each section, then `turns` */
};

static inline Sections divide_turns(size_t shares, size_t turns) {
  Sections s;
  s.shares = (unsigned)shares;
  s.turns = (unsigned)turns;
  s.each = turns < MOST_SECTIONS ? (unsigned)turns : MOST_SECTIONS;
  for (size_t i = 0; i <= MOST_SECTIONS; i++)
    s.begin[i] = (unsigned)(i < s.each ? i * turns / s.each : turns);
  return s;
}

/* Returns the blocks of a kernel that processes the sections on a GPU with `sms` SMs;
 * `columns`: blocks that share a row, each with some of its columns. */
static inline unsigned count_section_blocks(const Sections &s, size_t sms, size_t columns) {
  size_t fit = sms * SM_BLOCKS / columns, most = (size_t)s.shares * s.each;
  return (unsigned)(fit < 1 ? 1 : fit < most ? fit : most);
}

/* Returns how many rows of partial sums `blocks` blocks write for each share. */
static inline size_t count_share_parts(const Sections &s, unsigned blocks) {
  return blocks == s.shares ? 1 : s.each;
}

/* A section: its share and its turns begin … end - 1. */
struct Section {
  unsigned share, begin, end;
  size_t part; /* its row of the partial sums */
  /* The block has written the sums of the share's sections before it to that row; this
   * section's are added to them. */
  bool continues_part;
  bool completes_part; /* The block has no further section of that row. */
};

/* number: of the section, among those of all shares: first the first section of each. */
static __device__ __forceinline__ Section find_section(const Sections &s, unsigned number,
                                                       unsigned blocks) {
  bool has_whole_share = blocks == s.shares; /* The block has all sections of the share. */
  unsigned index = 0;
  Section x;
  x.share = number;
  x.begin = 0;
  x.end = s.begin[1];
#pragma unroll
  for (unsigned i = 1; i < MOST_SECTIONS; i++) {
    if (number < i * s.shares) continue;
    index = i;
    x.share = number - i * s.shares;
    x.begin = s.begin[i];
    x.end = s.begin[i + 1];
  }
  x.part = has_whole_share ? x.share : x.share * s.each + index;
  x.continues_part = has_whole_share && index;
  x.completes_part = !has_whole_share || index + 1 == s.each;
  return x;
}

#endif
