/* What the backends that compute in host memory (cpu, reference) share: allocation, copies and
 * gradient clipping. Depends on backend.h. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

/* Fills in those operations; sets type to float and `host`. */
void host_fill_table(Backend *backend);

#endif
