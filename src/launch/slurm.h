/* Slurm: the allocation in which this program runs, and the agents that one srun starts in it.
 *
 * The head makes a key, listens on a port and starts srun with one task on each node. The key, the
 * port and the head's addresses reach the agents through srun's standard input, which Slurm
 * protects; then each agent connects to the head by an encrypted channel (handshake.h) and says
 * which node it is on. Depends on base, channel, Slurm's srun. */
#ifndef LAUNCH_SLURM_H
#define LAUNCH_SLURM_H

#include <stdbool.h>

#include "base/err.h"
#include "launch/key.h"

#define SLURM_NODES_MAX 1024
#define SLURM_LINE_MAX  4096 /* bytes of the line that agents read from srun's standard input */
#define SLURM_ADDRESSES 32   /* of the head, in this line */

enum { MSG_SLURM_NODE = 140 }; /* agent to head, before MSG_HELLO: node, name */

typedef struct {
  int nodes;
  int tasks[SLURM_NODES_MAX]; /* ranks on each node, if the user gave them; 0: not */
} SlurmAllocation;

/* Is this a batch script or an interactive shell of an allocation, and not a task of srun? */
bool slurm_has_allocation(void);
/* Reads nodes and tasks from the environment. */
NODISCARD Err slurm_read_allocation(SlurmAllocation *allocation);
/* Reads SLURM_TASKS_PER_NODE, such as "2(x3),1". */
NODISCARD Err slurm_parse_tasks(SlurmAllocation *allocation, const char *text);

/* What the agents must know to reach the head. */
typedef struct {
  Key key;
  int port;
  char address[SLURM_ADDRESSES][52];
  int addresses;
} SlurmMeeting;

/* Prints the line for srun's standard input, and reads it. */
void slurm_print_meeting(const SlurmMeeting *meeting, char line[SLURM_LINE_MAX]);
NODISCARD Err slurm_parse_meeting(SlurmMeeting *meeting, const char *line);

/* Runs the agent of a node, as a task of srun (`launch --agent-slurm`), until the launch ends. */
NODISCARD Err slurm_run_agent(void);

#endif
