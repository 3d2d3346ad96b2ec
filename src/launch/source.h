/* Where agents come from. The supervisor has one Source per way of reaching machines: this machine
 * (source_local.c), ssh, the rendezvous port, Slurm. A Source yields connected Channels at any
 * time: at the start, when a machine joins later, and again after a machine was lost.
 *
 * All functions are called by the supervisor's thread and return at once. `self` is the Source's
 * own state. Depends on channel. */
#ifndef LAUNCH_SOURCE_H
#define LAUNCH_SOURCE_H

#include <poll.h>
#include <stdbool.h>

#include "launch/channel.h"

#define SOURCE_NAME_MAX 256

/* A machine whose agent is connected. The agent's MSG_HELLO is still unread. */
typedef struct {
  char name[SOURCE_NAME_MAX]; /* as the user wrote it, or the peer's address; for messages */
  Channel *channel;           /* the supervisor closes it */
  int slots;                  /* ranks to start there; 0: as --nproc-per-node says */
  bool is_head;               /* this machine: mpirun runs here */
} Arrival;

typedef struct Source Source;
struct Source {
  void *self;
  /* How many machines are expected at the start: without --nnodes, both MIN and MAX. */
  int expected;
  /* Adds at most `room` descriptors to poll and returns how many. */
  int (*poll_for)(void *self, struct pollfd *fds, int room);
  /* Does what is possible now: starts agents, accepts connections, continues handshakes. An error
   * ends the launch; a machine that cannot be reached is reported by a warning, or by an error
   * if `expected` machines can no longer come. */
  Err (*advance)(void *self, double now);
  /* The next machine that has arrived; false: none. */
  bool (*next)(void *self, Arrival *arrival);
  /* The machine `name` is lost (its Channel is closed already); the Source may try it again. */
  void (*lost)(void *self, const char *name, double now);
  void (*close)(void *self);
};

#endif
