/* The one door to the heap. It counts, checks for overflow, and can be told to
 * fail, so tests can walk every out-of-memory path. Relies on err. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Zeroed array of `count` elements; `pointer` is the address of the pointer. */
NODISCARD Err mem_alloc(void *pointer, size_t count, size_t size);
/* Zeroed bytes at a multiple of 64, for vectors and cache lines. */
NODISCARD Err mem_alloc_aligned(void *pointer, size_t bytes);
/* Makes room for at least `need` elements, growing by half; new part unset. */
NODISCARD Err mem_grow(void *pointer, size_t *capacity, size_t need, size_t size);
/* A copy of `len` bytes with a NUL after them. */
NODISCARD Err mem_dup(char **pointer, const char *bytes, size_t len);
void mem_free(void *block);

/* For tests: the n-th allocation from now fails (0 = never). */
void mem_fail_after(uint64_t n);
/* Allocations made since the program began. */
uint64_t mem_count(void);

#endif
