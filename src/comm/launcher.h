/* Whether mpirun or srun started this process, from the environment variables they set. Does not
 * need MPI. Depends on base/err. */
#ifndef COMM_LAUNCHER_H
#define COMM_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

/* Was this process started as one of several ranks? *started: how many; 0 if that is unknown.
 * Variables of an allocation alone (SLURM_NTASKS in a batch script) do not count. */
bool launcher_has_ranks(long *started);
/* Ranks that were started; a lower bound where only PMIX_RANK is set, this rank's number. 1: one
 * process. */
long launcher_count_ranks(void);
/* The number of this rank; 0 if the launcher sets none. */
long launcher_rank(void);
/* An error if the ranks cannot find each other: srun without PMIx only starts processes. */
NODISCARD Err launcher_check(void);
/* An error unless MPI, named `mpi`, reports as many ranks as were started. If the launcher
 * belongs to another MPI, each process would be a run of its own, and all would write the same
 * files. */
NODISCARD Err launcher_check_size(int size, const char *mpi);

#endif
