/* All heap allocations of the program are made here. Checks the size for overflow, counts
 * allocations, and can make the n-th one fail, so that tests can cover every out-of-memory path.
 * Depends on err. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Allocates a zeroed array of `count` elements; `pointer` is the address of the pointer. */
NODISCARD Err mem_alloc(void *pointer, size_t count, size_t size);
/* Allocates zeroed bytes at an address that is a multiple of 64 (vector loads, cache lines). */
NODISCARD Err mem_alloc_aligned(void *pointer, size_t bytes);
/* Grows the array to at least `need` elements, by half or more; the new part is not zeroed. */
NODISCARD Err mem_grow(void *pointer, size_t *capacity, size_t need, size_t size);
/* Allocates a copy of `len` bytes with a NUL after them. */
NODISCARD Err mem_dup(char **pointer, const char *bytes, size_t len);
void mem_free(void *block);

/* For tests: makes the n-th allocation from now fail (0: none). */
void mem_fail_after(uint64_t n);
/* Allocations made since the program began. */
uint64_t mem_count(void);

#endif
