/* The operations of Backend that capture and launch CUDA graphs. Depends on backend.h. */
#ifndef BACKEND_CUDA_GRAPH_H
#define BACKEND_CUDA_GRAPH_H

#include "backend/backend.h"

/* Sets the graph operations of `b`, unless TRIREME_GRAPH=0. */
void cuda_fill_graphs(Backend *b);

#endif
