/* Weights in the memory of a backend. A device gets a copy in fp32 and, if its type is another
 * one, a copy in that type. Depends on backend. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "backend/backend.h"

/* Makes the n weights at `w` available to the backend. On a host *out points to `w`, which must
 * outlive it; on a device they are copied. */
NODISCARD Err weights_new(Weights *out, const Backend *b, const float *w, size_t n);
void weights_free(Weights *w, const Backend *b); /* does nothing for a zeroed struct */

#endif
