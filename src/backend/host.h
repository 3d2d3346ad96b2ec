/* What backends that work where the program does have in common: memory, and what is
 * no more than other operations one after the other. Relies on backend. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

void host_memory(Backend *backend); /* fills those parts of the table */

#endif
