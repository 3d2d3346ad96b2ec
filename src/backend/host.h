/* Operations shared by the backends that compute in host memory (cpu, reference): allocation,
 * copies and gradient clipping. Depends on backend.h. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

/* Sets the operations for allocation, copies and clipping in the table; sets `type` to float and
 * `host` to true. */
void host_fill_table(Backend *backend);

#endif
