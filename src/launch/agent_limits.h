/* Limits of this machine without which mpirun fails with a message that does not name them, or
 * hangs. Depends on base, Linux. */
#ifndef LAUNCH_AGENT_LIMITS_H
#define LAUNCH_AGENT_LIMITS_H

#include "base/err.h"

/* Checks that mpirun can start `ranks` ranks on this machine, with its files in `dir`: open files,
 * processes, memory of the file system. Raises the soft limit of open files if it is too low and the
 * hard limit allows it; children inherit it. The error names the limit to raise. */
NODISCARD Err agent_check_limits(const char *dir, int ranks);

#endif
