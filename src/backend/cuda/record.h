/* The part of the table that records and replays. Depends on backend. */
#ifndef BACKEND_CUDA_RECORD_H
#define BACKEND_CUDA_RECORD_H

#include "backend/backend.h"

void cuda_records(Backend *b); /* fills it, unless it is not wanted */

#endif
