/* Peak FLOP/s of a device, for the share of it that training uses (MFU). Depends on backend. */
#ifndef BACKEND_PEAK_H
#define BACKEND_PEAK_H

#include "backend/backend.h"

/* Returns the peak of dense GEMMs in FLOP/s; 0: unknown. `precision`: as --precision. On a CPU the
 * multiply-adds of this process's threads are measured, in a few milliseconds; bf16 units of a CPU are
 * unknown. */
double backend_peak(const Backend *b, const char *precision);
/* Returns the peak of a GPU of this name, such as "NVIDIA H200", from its data sheet: dense GEMMs with
 * sums in fp32; 0: unknown. fp32 is without tensor cores. */
double peak_of_gpu(const char *name, const char *precision);

#endif
