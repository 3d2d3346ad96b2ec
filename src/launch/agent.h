/* The agent: one process per machine that starts, watches and ends the workers on this machine
 * on behalf of the head. Nothing outlives it: it ends all processes it has started when the
 * head is lost. Depends on channel, protocol, process. */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include "launch/channel.h"

typedef enum {
  AGENT_OF_HEAD, /* started by the head, which reports what happens to the machine and the run */
  /* As AGENT_OF_HEAD, but nobody reads its standard error after srun was killed: warnings and the
   * reason of its end are sent to the head (MSG_WARNING). */
  AGENT_OF_SRUN,
  AGENT_OF_USER, /* joined at a rendezvous: reports that itself, and ends with the run's status */
} AgentOrigin;

/* Serves the head until the head ends the launch (ERR_OK, or the run's status), is lost
 * (ERR_WORK), or this process is asked to leave by SIGINT, SIGTERM or SIGHUP, unless SIGHUP is
 * ignored (ERR_STOPPED). Closes `head`. No process started here is left. May return in a parent and a child process
 * (process_separate): exit with the result in both. `name` is this machine's name in messages;
 * NULL: its host name. */
NODISCARD Err agent_run(Channel *head, const char *name, AgentOrigin origin);

#endif
