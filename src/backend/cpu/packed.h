/* Weights packed once for many GEMMs (Backend.pack), looked up by their address. Depends on
 * gemm.h. */
#ifndef BACKEND_CPU_PACKED_H
#define BACKEND_CPU_PACKED_H

#include "backend/backend.h"

typedef struct Packed Packed;
/* Returns the packed copy of w, or NULL if there is none; `packed` may be NULL. */
const void *packed_find(const Packed *packed, const void *w);
/* Backend.pack and Backend.unpack. */
NODISCARD Err packed_add(Backend *b, const void *w, size_t in, size_t out);
void packed_free(Backend *b);

#endif
