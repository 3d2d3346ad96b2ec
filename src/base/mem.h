/* All heap allocations of the program use these functions. They check the size for overflow,
 * count allocations, and can make the n-th allocation fail, so that tests can cover every
 * out-of-memory path. Depends on err. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Allocates a zeroed array of `count` elements of `size` bytes and stores its address in the
 * variable that `pointer` points to. */
NODISCARD Err mem_alloc(void *pointer, size_t count, size_t size);
/* Allocates zeroed bytes at an address that is a multiple of 64 (vector loads, cache lines). */
NODISCARD Err mem_alloc_aligned(void *pointer, size_t bytes);
/* Grows the array to at least `need` elements, at least by half of its capacity. The added
 * elements are not zeroed. */
NODISCARD Err mem_grow(void *pointer, size_t *capacity, size_t need, size_t size);
/* Allocates a copy of `len` bytes with a NUL after them. */
NODISCARD Err mem_dup(char **pointer, const char *bytes, size_t len);
void mem_free(void *block);

/* For tests: makes the n-th allocation after this call and all later ones fail; 0: none. */
void mem_fail_after(uint64_t n);
/* The same, but only the n-th fails, so that an error that is not returned is not hidden by the
 * next. */
void mem_fail_once(uint64_t n);
/* Returns the number of allocations since the program started. */
uint64_t mem_count(void);

#endif
