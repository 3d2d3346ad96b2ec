/* An agent's private directory in memory (/dev/shm, otherwise TMPDIR or /tmp): the socket for
 * stubs, MPI's session files and shared memory, in-memory checkpoints. Only the user can access
 * it. The agent removes it when it ends; if the agent was killed, the user's next agent on this
 * machine does. Depends on base/file. */
#ifndef LAUNCH_AGENT_DIR_H
#define LAUNCH_AGENT_DIR_H

#include "base/err.h"
#include "base/file.h"

typedef struct {
  char path[FILE_PATH_MAX]; /* path of the directory; "" before agent_dir_make */
  int lock;                 /* descriptor of the lock file, held as long as the agent lives */
} AgentDir;

/* Creates the directory, and removes those that killed agents of this user have left. */
NODISCARD Err agent_dir_make(AgentDir *d);
/* Creates an empty subdirectory; an existing one is removed first. */
NODISCARD Err agent_dir_renew(const AgentDir *d, const char *name);
void agent_dir_remove(AgentDir *d);

#endif
