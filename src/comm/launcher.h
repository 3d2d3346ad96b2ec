/* Recognizes from environment variables that mpirun or srun started this process. Does not
 * need MPI. Depends on base/err. */
#ifndef COMM_LAUNCHER_H
#define COMM_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

/* Returns true if a launcher started this process as one of several ranks. *started: the
 * number of ranks, or 0 if the variables do not show it. SLURM_NTASKS alone, as in a batch
 * script, does not count. */
bool launcher_has_ranks(long *started);
/* Returns the number of ranks; 1 if no launcher started this process. If only PMIX_RANK is
 * set, returns that rank + 1, a lower bound. */
long launcher_count_ranks(void);
/* Returns the number of this rank; 0 if no launcher has set it. */
long launcher_rank(void);
/* Fails if srun was used without PMIx or PMI: the processes then cannot find each other. */
NODISCARD Err launcher_check(void);
/* Fails unless MPI reports as many ranks as the launcher started. If the launcher belongs to
 * another MPI, each process is a run of one rank, and all of them would write the same
 * files. `mpi`: name of the MPI library for the message. */
NODISCARD Err launcher_check_size(int size, const char *mpi);

#endif
