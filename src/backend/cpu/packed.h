/* Weights that are packed once for many GEMMs (Backend.pack), found by their address. Depends on
 * gemm.h. */
#ifndef BACKEND_CPU_PACKED_H
#define BACKEND_CPU_PACKED_H

#include "backend/backend.h"

typedef struct Packed Packed;
/* Returns the packed copy of w, or NULL if w is not packed; `packed` may be NULL. */
const void *packed_find(const Packed *packed, const void *w);
/* Implement Backend.pack and Backend.unpack. */
NODISCARD Err packed_add(Backend *b, const void *w, size_t in, size_t out);
void packed_free(Backend *b);

#endif
