/* Operations of classification heads on the CPU. Depends on backend.h. */
#ifndef BACKEND_CPU_HEAD_H
#define BACKEND_CPU_HEAD_H

#include "backend/backend.h"

/* Sets gather_rows, scatter_rows and head_loss. */
void cpu_fill_head(Backend *backend);

#endif
