/* One block of the backend's memory for all activations of a model. A model lays its arrays out
 * twice: without a block, to count the bytes, and with it. Depends on backend/type. */
#ifndef MODEL_ARENA_H
#define MODEL_ARENA_H

#include <stddef.h>

#include "backend/type.h"

#define ARENA_ALIGN ((size_t)256) /* bytes: a multiple of a cache line and of a warp's access */

typedef struct {
  char *at; /* the block, or NULL while bytes are counted */
  size_t bytes;
  Type type; /* of activations */
} Arena;

/* The next n elements of `size` bytes; NULL while bytes are counted. */
static inline void *arena_take(Arena *a, size_t n, size_t size) {
  void *here = a->at ? a->at + a->bytes : NULL;
  a->bytes += (n * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
  return here;
}

/* n elements of the backend's activation type. */
static inline void *arena_activations(Arena *a, size_t n) {
  return arena_take(a, n, type_size(a->type));
}

static inline float *arena_floats(Arena *a, size_t n) {
  return arena_take(a, n, sizeof(float));
}

#endif
