/* This machine as a source of agents: starts `trireme launch --agent-fd N`, and again after it was
 * lost. Depends on source, process. */
#ifndef LAUNCH_SOURCE_LOCAL_H
#define LAUNCH_SOURCE_LOCAL_H

#include "launch/source.h"

/* `slots`: ranks on this machine; 0: as --nproc-per-node says. Close it with source->close. */
NODISCARD Err source_local_open(Source *source, int slots);

#endif
