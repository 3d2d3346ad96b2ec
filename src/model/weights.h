/* Weights where a backend reads them: a device has a copy of its own, also in its type.
 * Depends on backend. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "backend/backend.h"

/* From the n weights w, which must stay where the backend is the program's own memory,
 * and need not where it is a device. */
NODISCARD Err weights_new(Weights *out, const Backend *b, const float *w, size_t n);
void weights_free(Weights *w, const Backend *b); /* harmless when not made */

#endif
