/* Heap allocation. Depends on the C library's allocator. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)

static atomic_ullong allocations, fail_at;
static atomic_bool fail_later; /* the allocations after fail_at fail, too */

/* Counts the allocation; returns true if a test requested that this allocation fail. */
static bool must_fail(void) {
  unsigned long long now = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
  unsigned long long at = atomic_load_explicit(&fail_at, memory_order_relaxed);
  return at != 0 && (now == at || (now > at && atomic_load(&fail_later)));
}

static Err out_of_memory(size_t count, size_t size) {
  return err_set(ERR_WORK, "out of memory: cannot allocate %zu x %zu bytes", count, size);
}

Err mem_alloc(void *pointer, size_t count, size_t size) {
  bool overflows = size && count > SIZE_MAX / size;
  void *block = must_fail() || overflows ? NULL : calloc(count ? count : 1, size);
  memcpy(pointer, &block, sizeof block);
  return block ? ERR_OK : out_of_memory(count, size);
}

Err mem_alloc_aligned(void *pointer, size_t bytes) {
  size_t whole = bytes > SIZE_MAX - HUGE_PAGE ? 0 : (bytes + 63) / 64 * 64;
  if (bytes && !whole) return out_of_memory(bytes, 1);
  size_t unit = whole < 2 * HUGE_PAGE ? 64 : HUGE_PAGE;
  void *block =
      must_fail() ? NULL : aligned_alloc(unit, whole ? (whole + unit - 1) / unit * unit : 64);
  memcpy(pointer, &block, sizeof block);
  if (!block) return out_of_memory(bytes, 1);
/* Requests transparent huge pages, which reduce TLB misses when the weights are read. */
#ifdef __linux__
  if (unit == HUGE_PAGE) madvise(block, whole / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
  memset(block, 0, whole);
  return ERR_OK;
}

Err mem_grow(void *pointer, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return ERR_OK;
  size_t want = *capacity + *capacity / 2;
  if (want < need) want = need;
  if (want < 16) want = 16;
  if (want > SIZE_MAX / size) return out_of_memory(want, size);
  void *block;
  memcpy(&block, pointer, sizeof block);
  block = must_fail() ? NULL : realloc(block, want * size);
  if (!block) return out_of_memory(want, size);
  memcpy(pointer, &block, sizeof block);
  *capacity = want;
  return ERR_OK;
}

Err mem_dup(char **pointer, const char *bytes, size_t len) {
  TRY(mem_alloc(pointer, len + 1, 1));
  if (len) memcpy(*pointer, bytes, len);
  return ERR_OK;
}

void mem_free(void *block) {
  free(block);
}

void mem_fail_after(uint64_t n) {
  atomic_store(&fail_later, true);
  atomic_store(&fail_at, n ? atomic_load(&allocations) + n : 0);
}

void mem_fail_once(uint64_t n) {
  atomic_store(&fail_later, false);
  atomic_store(&fail_at, n ? atomic_load(&allocations) + n : 0);
}

uint64_t mem_count(void) {
  return atomic_load(&allocations);
}
