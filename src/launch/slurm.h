/* Slurm: the allocation in which this program runs, and the agents that srun starts in it.
 *
 * The head creates a key, listens on a port and starts srun with one task per node. The agents
 * receive the key, the port and the head's addresses on srun's standard input, which Slurm
 * protects. Each agent then connects to the head over an encrypted channel (handshake.h) and
 * reports its node. Depends on base, channel, Slurm's srun. */
#ifndef LAUNCH_SLURM_H
#define LAUNCH_SLURM_H

#include <stdbool.h>

#include "base/err.h"
#include "launch/key.h"

#define SLURM_NODES_MAX 1024
#define SLURM_LINE_MAX  4096 /* size of a buffer for the line on srun's standard input */
#define SLURM_ADDRESSES 32   /* largest number of the head's addresses in this line */

enum { MSG_SLURM_NODE = 140 }; /* from agent to head, before MSG_HELLO: node, name */

typedef struct {
  int nodes;
  /* Ranks on each node if the user requested tasks; 0: not requested. */
  int tasks[SLURM_NODES_MAX];
} SlurmAllocation;

/* Returns true in a batch script or an interactive shell of an allocation; false in a task of
 * srun. */
bool slurm_has_allocation(void);
/* Reads nodes and tasks from the environment. */
NODISCARD Err slurm_read_allocation(SlurmAllocation *allocation);
/* Reads SLURM_TASKS_PER_NODE, such as "2(x3),1". */
NODISCARD Err slurm_parse_tasks(SlurmAllocation *allocation, const char *text);

/* What the agents need to reach the head. */
typedef struct {
  Key key;
  int port;
  char address[SLURM_ADDRESSES][52];
  int addresses;
} SlurmMeeting;

/* Encode and decode the line for srun's standard input. */
void slurm_print_meeting(const SlurmMeeting *meeting, char line[SLURM_LINE_MAX]);
NODISCARD Err slurm_parse_meeting(SlurmMeeting *meeting, const char *line);

/* Runs the agent of a node, as a task of srun (`launch --agent-slurm`), until the launch
 * ends. */
NODISCARD Err slurm_run_agent(void);

#endif
