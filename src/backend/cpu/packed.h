/* Weights packed once for many products, found again by their address. Relies on
 * gemm. */
#ifndef BACKEND_CPU_PACKED_H
#define BACKEND_CPU_PACKED_H

#include "backend/backend.h"

typedef struct Packed Packed;
/* The copy of w, or NULL; `packed` may be NULL. */
const void *packed_find(const Packed *packed, const void *w);
NODISCARD Err packed_add(Backend *b, const void *w, size_t in, size_t out);
void packed_free(Backend *b);

#endif
