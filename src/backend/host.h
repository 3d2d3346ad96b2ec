/* What backends that work where the program does have in common: memory, copies, and
 * clipping. Relies on backend. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

void host_memory(Backend *backend); /* fills those parts of the table */

#endif
