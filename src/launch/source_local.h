/* This machine as a source of agents: starts `trireme launch --agent-fd N`, and restarts it if
 * it is lost. Depends on source, process. */
#ifndef LAUNCH_SOURCE_LOCAL_H
#define LAUNCH_SOURCE_LOCAL_H

#include "launch/source.h"

/* `slots`: number of ranks on this machine; 0: see --nproc-per-node. Close it with
 * source->close. */
NODISCARD Err source_local_open(Source *source, int slots);

#endif
