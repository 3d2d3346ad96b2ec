/* A machine of the launch as the head sees it. Depends on channel, protocol. */
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

typedef struct {
  char name[SOURCE_NAME_MAX]; /* for messages */
  Channel *channel;
  Source *source;
  int slots; /* ranks, if the user gave them; 0: not */
  bool is_head;

  /* From its MSG_HELLO */
  bool has_hello;
  char directory[FILE_PATH_MAX];
  int cores, gpus;
  NetworkList networks;

  /* In the present generation */
  bool is_member;
  bool is_clear; /* no process is left on it */
  uint32_t first_rank;
  int ranks;
  char address[64]; /* on the chosen network; "localhost" if it is the only machine */
  char card[NETWORK_CARD_MAX]; /* of this address; "" if it is the only machine */
  int proof;                   /* its index in the proof of the network; -1: not in it */

  uint64_t copy; /* number of the newest in-memory copy that it holds (PeerRelay); 0: none */

  bool is_leaving;   /* its agent asked to leave */
  bool is_set_aside; /* failed too often, or of another version; not used any more */
} Machine;

/* --nproc-per-node: a number, or one of these */
enum { NPROC_AUTO = -1, NPROC_CPU = -2, NPROC_GPU = -3 };

/* Reads an agent's MSG_HELLO. An error if it runs another version. */
NODISCARD Err machine_read_hello(Machine *m, const json_t *body);
/* Ranks to start on the machine: `nproc` is the value of --nproc-per-node. */
NODISCARD Err machine_count_ranks(const Machine *m, int nproc, int *ranks);
bool machine_is_ready(const Machine *m);
void machine_close(Machine *m);

#endif
