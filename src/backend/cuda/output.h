/* The operations of Backend for output layers with their loss. Depends on backend.h. */
#ifndef BACKEND_CUDA_OUTPUT_H
#define BACKEND_CUDA_OUTPUT_H

#include "backend/backend.h"

/* Sets fuses_loss and the operations of linear_loss of `b`. */
void cuda_fill_output(Backend *b);

#endif
