/* An agent's private directory in memory (/dev/shm, else TMPDIR or /tmp): the socket for stubs,
 * MPI's session files and shared memory, in-memory checkpoints. Nobody but the user can enter it.
 * It is removed when the agent ends; if the agent was killed, by the user's next agent on this
 * machine. Depends on base/file. */
#ifndef LAUNCH_AGENT_DIR_H
#define LAUNCH_AGENT_DIR_H

#include "base/err.h"
#include "base/file.h"

typedef struct {
  char path[FILE_PATH_MAX]; /* "" before agent_dir_make */
  int lock;                 /* held as long as the agent lives */
} AgentDir;

/* Makes the directory, and removes those that killed agents of this user have left. */
NODISCARD Err agent_dir_make(AgentDir *d);
/* Makes an empty subdirectory; an existing one is removed with its contents first. */
NODISCARD Err agent_dir_renew(const AgentDir *d, const char *name);
void agent_dir_remove(AgentDir *d);

#endif
