/* What started this process: mpirun, srun or nobody, by the variables they set. Relies on the
 * environment alone; no MPI is needed to ask. */
#ifndef COMM_LAUNCHER_H
#define COMM_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

/* Was this process started as one of several ranks? *started: how many, where that is known, or
 * 0. What an allocation alone sets (a batch script's SLURM_NTASKS) starts nobody. */
bool launcher_has_ranks(long *started);
/* Ranks that were started, at least: PMIx alone gives a rank's own number. 1: one process. */
long launcher_count_ranks(void);
/* The number of this rank, where the launcher gives one; else 0. */
long launcher_rank(void);
/* Can the ranks find each other? srun starts processes; that they meet needs its PMIx. */
NODISCARD Err launcher_check(void);
/* Does MPI see as many ranks as were started? If the launcher belongs to another MPI, each
 * process is a run of its own, and all would write the same files. `mpi` is MPI's name. */
NODISCARD Err launcher_check_size(int size, const char *mpi);

#endif
