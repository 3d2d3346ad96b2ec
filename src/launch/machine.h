/* A machine of the launch, as recorded by the head. Depends on channel, protocol. */
#ifndef LAUNCH_MACHINE_H
#define LAUNCH_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "launch/channel.h"
#include "launch/network.h"
#include "launch/source.h"

#define MACHINE_RANKS_MAX 4096 /* largest number of GPUs that an agent may report */

typedef struct {
  char name[SOURCE_NAME_MAX]; /* name in messages */
  Channel *channel;
  Source *source;
  uint64_t arrival; /* number of its connection, which orders machines by their arrival */
  int slots;        /* number of ranks given by the user; 0: not given */
  int max_slots;    /* upper bound of ranks; 0: none */
  bool is_head;

  /* What the machine's agent has sent in MSG_HELLO: */
  bool has_hello;
  char directory[FILE_PATH_MAX];
  int cores, gpus;
  NetworkList networks;

  /* State in the current generation: */
  bool is_member;
  bool is_clear; /* no process of the generation is left on the machine */
  uint32_t first_rank;
  int ranks;
  char address[64]; /* address on the selected network; "localhost" if it is the only machine */
  char card[NETWORK_CARD_MAX]; /* network card of this address; "" if it is the only machine */
  int proof; /* index of the machine in the network test; -1: not part of it */

  /* Number (PeerRelay) of the newest in-memory checkpoint copy on the machine; 0: none. */
  uint64_t copy;

  bool is_leaving;   /* its agent has sent MSG_LEAVE */
  bool is_set_aside; /* excluded from the launch */
} Machine;

/* Special values of --nproc-per-node, which is otherwise a number. */
enum { NPROC_AUTO = -1, NPROC_CPU = -2, NPROC_GPU = -3 };

/* Parses an agent's MSG_HELLO. Fails if the agent has another version. */
NODISCARD Err machine_read_hello(Machine *m, const json_t *body);
/* Computes the number of ranks to start on the machine. `nproc`: value of --nproc-per-node. */
NODISCARD Err machine_count_ranks(const Machine *m, int nproc, int *ranks);
bool machine_is_ready(const Machine *m);
void machine_close(Machine *m);

#endif
