/* The nodes of a Slurm allocation as a source of agents. Depends on source, slurm. */
#ifndef LAUNCH_SOURCE_SLURM_H
#define LAUNCH_SOURCE_SLURM_H

#include "launch/slurm.h"
#include "launch/source.h"

/* Starts an agent on each node of the allocation, which must outlive the source. `has_nproc`:
 * the user gave --nproc-per-node, which overrides the tasks of the allocation. The agent of a
 * lost node is started again. Close it with source->close. */
NODISCARD Err source_slurm_open(Source *source, const SlurmAllocation *allocation,
                                bool has_nproc);

#endif
