/* A source of agents. The supervisor has one Source for each way to reach machines: this
 * machine (source_local.c), ssh, the rendezvous port, Slurm. A Source returns connected
 * channels at any time: at the start, when a machine joins later, and again after a machine was
 * lost.
 *
 * All functions are called by the supervisor's thread and do not block. `self` is the state of
 * the Source. Depends on channel. */
#ifndef LAUNCH_SOURCE_H
#define LAUNCH_SOURCE_H

#include <poll.h>
#include <stdbool.h>

#include "launch/channel.h"

#define SOURCE_NAME_MAX 256

/* A machine whose agent is connected. The agent's MSG_HELLO has not been read yet. */
typedef struct {
  /* Name in messages: as given by the user, or the peer's address. */
  char name[SOURCE_NAME_MAX];
  Channel *channel; /* owned by the supervisor */
  int slots;        /* number of ranks to start there; 0: see --nproc-per-node */
  int max_slots;    /* largest number of ranks on the machine; 0: no limit */
  bool is_head;     /* this machine, on which mpirun runs */
} Arrival;

/* How a machine was lost. */
typedef enum {
  LOSS_LEFT,    /* its agent asked to leave (MSG_LEAVE) */
  LOSS_EARLY,   /* its agent ended before it had sent MSG_HELLO */
  LOSS_FAILURE, /* its agent, or the connection to it, ended later */
} Loss;

typedef struct Source Source;
struct Source {
  void *self;
  /* Number of machines that are expected at the start. Without --nnodes it is both MIN and
   * MAX. */
  int expected;
  /* Adds at most `room` pollfds and returns their number. */
  int (*poll_for)(void *self, struct pollfd *fds, int room);
  /* Starts agents, accepts connections and continues handshakes, without blocking. An error
   * ends the launch. A machine that cannot be reached is a warning, or an error if fewer than
   * `expected` machines remain. */
  Err (*advance)(void *self, double now);
  /* Returns the next machine that has arrived; false: none. */
  bool (*next)(void *self, Arrival *arrival);
  /* Called when the agent of the machine `name` has set itself up (MSG_HELLO). NULL: not needed. */
  void (*ready)(void *self, const char *name);
  /* Called when the machine `name` is lost, after its channel was closed. The Source may start
   * its agent again; after LOSS_LEFT only if it is the agent of this machine. */
  void (*lost)(void *self, const char *name, Loss loss, double now);
  /* Returns the number of machines that are connected or may still connect. NULL: no limit. */
  int (*count_open)(void *self);
  void (*close)(void *self);
};

#endif
