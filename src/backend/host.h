/* The memory of backends that work where the program does. Relies on backend. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

void host_memory(Backend *backend); /* fills that part of the table */

#endif
