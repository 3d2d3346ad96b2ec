/* A model allocates all its activations as one block of the backend's memory. It lays its
 * arrays out twice: first without a block, to count the bytes, then in the allocated block.
 * Depends on backend/type. */
#ifndef MODEL_ARENA_H
#define MODEL_ARENA_H

#include <stddef.h>

#include "backend/type.h"

/* Alignment of each array in bytes: a multiple of a CPU cache line and of the 128 bytes that a
 * warp accesses. */
#define ARENA_ALIGN ((size_t)256)

typedef struct {
  char *at; /* the block; NULL while bytes are counted */
  size_t bytes;
  Type type; /* element type of activations */
} Arena;

/* Returns the next n elements of `size` bytes each; NULL while bytes are counted. */
static inline void *arena_take(Arena *a, size_t n, size_t size) {
  void *here = a->at ? a->at + a->bytes : NULL;
  a->bytes += (n * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
  return here;
}

/* Returns the next n elements of the backend's activation type. */
static inline void *arena_activations(Arena *a, size_t n) {
  return arena_take(a, n, type_size(a->type));
}

static inline float *arena_floats(Arena *a, size_t n) {
  return arena_take(a, n, sizeof(float));
}

#endif
