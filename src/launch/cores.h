/* The cores and GPUs of this machine, and the cores of each local rank. Depends on Linux
 * (/sys). */
#ifndef LAUNCH_CORES_H
#define LAUNCH_CORES_H

#include <sched.h>
#include <stdbool.h>

#define CORES_MAX CPU_SETSIZE

/* Lists the CPUs that this process may use, sorted by socket and core, so that hardware threads
 * of a core are adjacent. Returns their number. */
int cores_list(int cpu[CORES_MAX]);
/* Sets `share` to the CPUs of one of `ranks` local ranks: contiguous in the order of
 * cores_list, so that a rank stays on one socket if possible. Returns false if there are more
 * ranks than CPUs, or no such rank; the ranks then share all CPUs. */
bool cores_share(int local_rank, int ranks, cpu_set_t *share);
/* cores_share for a given list of CPUs; for tests. */
bool cores_divide(const int *cpu, int cpus, int local_rank, int ranks, cpu_set_t *share);

/* Counts the NVIDIA GPUs that this process may use: the entries of CUDA_VISIBLE_DEVICES if it
 * is set, otherwise the device files. */
int cores_count_gpus(void);

#endif
