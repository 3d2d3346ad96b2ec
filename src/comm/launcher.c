/* Finds out from environment variables whether mpirun or srun started this process:
 *   MPI     OMPI_COMM_WORLD_SIZE (Open MPI), PMI_SIZE (MPICH, Intel MPI, srun --mpi=pmi2),
 *           MV2_COMM_WORLD_SIZE (MVAPICH). Launchers can be nested, and the environment does
 *           not show which one is the inner one, so the number of ranks that MPI reports
 *           must equal one of these.
 *   Slurm   SLURM_STEP_NUM_TASKS. It is read only if none of the MPI variables is set,
 *           because mpirun uses srun to start its daemons. A heterogeneous job step has more
 *           ranks than this number.
 * PMIX_RANK shows that there are ranks, but not how many. SLURM_NTASKS is ignored: it is
 * also set in a batch script, which is not a rank. Depends on the environment. */
#include "comm/launcher.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const of_mpi[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
#define OF_MPI   (sizeof of_mpi / sizeof *of_mpi)
#define OF_SLURM "SLURM_STEP_NUM_TASKS"

/* Returns the number in an environment variable; 0 if it is not set or not a number of ranks. */
static long read_count(const char *name) {
  const char *text = getenv(name);
  if (!text || !*text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  return *end || n < 0 || n >= INT_MAX ? 0 : n;
}

static bool is_set(const char *name) {
  const char *text = getenv(name);
  return text && *text;
}

/* Returns the largest number of ranks in the launchers' variables and sets *name to that
 * variable; returns 0 if none is set. */
static long count_started(const char **name) {
  long most = 0;
  for (size_t i = 0; i < OF_MPI; i++) {
    long n = read_count(of_mpi[i]);
    if (n <= most) continue;
    most = n;
    *name = of_mpi[i];
  }
  if (most) return most;
  most = read_count(OF_SLURM);
  if (most) *name = OF_SLURM;
  return most;
}

bool launcher_has_ranks(long *started) {
  const char *name;
  *started = count_started(&name);
  return *started ? *started > 1 : is_set("PMIX_RANK");
}

long launcher_count_ranks(void) {
  long started;
  if (!launcher_has_ranks(&started)) return 1;
  return started ? started : read_count("PMIX_RANK") + 1;
}

long launcher_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                                      "PMIX_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (is_set(names[i])) return read_count(names[i]);
  return 0;
}

Err launcher_check(void) {
  static const char *const joining[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK",
                                        "PMIX_RANK", "MV2_COMM_WORLD_SIZE"};
  for (size_t i = 0; i < sizeof joining / sizeof *joining; i++)
    if (is_set(joining[i])) return ERR_OK;
  return err_set(ERR_WORK,
                 "srun started %ld processes that cannot find each other; use 'srun "
                 "--mpi=pmix', or mpirun",
                 read_count(OF_SLURM));
}

Err launcher_check_size(int size, const char *mpi) {
  const char *name = "PMIX_RANK";
  long started = count_started(&name);
  bool is_slurm = strcmp(name, OF_SLURM) == 0;
  for (size_t i = 0; i < OF_MPI; i++)
    if (read_count(of_mpi[i]) == size) return ERR_OK;
  if (started ? is_slurm && size >= started : size > 1) return ERR_OK;
  /* Only PMIX_RANK is set, which does not show the number of ranks: rank 0 may be the only
   * one. */
  if (!started)
    return read_count("PMIX_RANK") == 0
               ? ERR_OK
               : err_set(
                     ERR_WORK,
                     "PMIX_RANK is %ld, but %s sees one rank: it was built for another PMIx "
                     "than the launcher's; start the ranks with the mpirun of %s",
                     read_count("PMIX_RANK"), mpi, mpi);
  return err_set(ERR_WORK,
                 "%ld ranks were started (%s), but %s sees %d: the launcher belongs to another "
                 "MPI; start them with the mpirun of %s or with 'srun --mpi=pmix', or build "
                 "libtrireme-mpi.so with the launcher's MPI",
                 started, name, mpi, size, mpi);
}
