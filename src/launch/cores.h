/* The cores and GPUs of this machine, and the share of each local rank. Depends on Linux (/sys). */
#ifndef LAUNCH_CORES_H
#define LAUNCH_CORES_H

#include <sched.h>
#include <stdbool.h>

#define CORES_MAX CPU_SETSIZE

/* Lists the CPUs that this process may use, those of a socket together and hardware threads of a
 * core side by side. Returns how many. */
int cores_list(int cpu[CORES_MAX]);
/* The CPUs of one of `ranks` local ranks: contiguous in the order of cores_list, so that a rank
 * stays on one socket where it fits. False, and nothing is stored, if there are more ranks than
 * CPUs: they then share all of them. */
bool cores_share(int local_rank, int ranks, cpu_set_t *share);
/* cores_share for a given list; for tests. */
bool cores_divide(const int *cpu, int cpus, int local_rank, int ranks, cpu_set_t *share);

/* NVIDIA GPUs that this process may use: those of CUDA_VISIBLE_DEVICES if it is set, else the
 * device files. */
int cores_count_gpus(void);

#endif
