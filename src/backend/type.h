/* Types of the elements of activations and of the copy of the weights that products
 * read; C and CUDA both see them. Relies on nothing. */
#ifndef BACKEND_TYPE_H
#define BACKEND_TYPE_H

#include <stddef.h>

typedef enum { TYPE_F32, TYPE_BF16, TYPE_F16 } Type;

static inline size_t type_size(Type type) {
  return type == TYPE_F32 ? 4 : 2;
}

#endif
