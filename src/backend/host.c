/* Allocation, copies and gradient clipping in host memory. Depends on clip.h, base/mem,
 * base/sysmem. */
#include "backend/host.h"

#include <string.h>

#include "backend/clip.h"
#include "base/mem.h"
#include "base/sysmem.h"

static Err alloc(const Backend *b, void *pointer, size_t bytes) {
  (void)b;
  return mem_alloc_aligned(pointer, bytes);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  return sysmem_read("", left, all);
}

static void release(const Backend *b, void *block) {
  (void)b;
  mem_free(block);
}

static void copy(const Backend *b, void *to, const void *from, size_t bytes) {
  (void)b;
  if (to != from) memcpy(to, from, bytes);
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  copy(b, to, from, bytes);
  return ERR_OK;
}

static void zero(const Backend *b, void *block, size_t bytes) {
  (void)b;
  memset(block, 0, bytes);
}

static void extend(const Backend *b, int32_t *at, const int32_t *list, const int32_t *parent,
                   const int32_t *len, const int32_t *slot, size_t rows, size_t ld) {
  (void)b;
  for (size_t r = 0; r < rows; r++) {
    int32_t *to = at + (size_t)list[r] * ld;
    size_t n = (size_t)len[r];
    if (n == 0) continue;
    if (n > 1) memcpy(to, at + (size_t)parent[r] * ld, (n - 1) * sizeof *to);
    to[n - 1] = slot[r];
  }
}

static Err pin(const Backend *b, void *block, size_t bytes) {
  (void)b;
  (void)block;
  (void)bytes;
  return ERR_OK;
}

static void unpin(const Backend *b, void *block) {
  (void)b;
  (void)block;
}

static Err sync_all(const Backend *b) {
  (void)b;
  return ERR_OK;
}

static void lower(const Backend *b, void *low, const float *full, size_t n) {
  copy(b, low, full, n * sizeof *full);
}

static void clip(const Backend *b, StepNumbers *now, const double *sums, size_t units,
                 double loss[3]) {
  double lane[CLIP_LANES] = {0};
  (void)b;
  if (loss) {
    memcpy(now->loss, loss, sizeof now->loss);
    memset(loss, 0, sizeof now->loss);
  }
  clip_add(lane, sums, units);
  clip_finish(now, clip_total(lane));
}

void host_fill_table(Backend *b) {
  b->type = TYPE_F32;
  b->host = true;
  b->alloc = alloc;
  b->release = release;
  b->memory = memory;
  b->put = copy;
  b->get = get;
  b->copy = copy;
  b->zero = zero;
  b->extend = extend;
  b->pin = pin;
  b->unpin = unpin;
  b->sync = sync_all;
  b->lower = lower;
  b->clip = clip;
}
