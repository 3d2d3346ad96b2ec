/* Element types of activations and of the weights that GEMMs read; included by C and CUDA. No
 * dependencies. */
#ifndef BACKEND_TYPE_H
#define BACKEND_TYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum { TYPE_F32, TYPE_BF16, TYPE_F16 } Type;

static inline size_t type_size(Type type) {
  return type == TYPE_F32 ? 4 : 2;
}

/* Converts n elements to float; x need not be aligned. */
static inline void type_to_f32(Type type, float *to, const void *x, size_t n) {
  if (type == TYPE_F32) {
    memcpy(to, x, n * sizeof *to);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    uint16_t half;
    memcpy(&half, (const char *)x + 2 * i, 2);
    uint32_t bits = (uint32_t)half << 16;
    /* Moves fraction and exponent to their float bits; the factor 2^112 corrects the exponent
     * bias. */
    if (type == TYPE_F16) {
      uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
      float value;
      memcpy(&value, &rest, 4);
      value *= 0x1p112f;
      memcpy(&rest, &value, 4);
      if ((half & 0x7c00) == 0x7c00) rest |= 0x7f800000; /* infinity or NaN */
      bits = rest | (uint32_t)(half & 0x8000) << 16;
    }
    memcpy(&to[i], &bits, 4);
  }
}

#endif
