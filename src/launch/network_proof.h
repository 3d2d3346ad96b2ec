/* A "proof" tests which networks connect all machines: over each candidate network, each machine
 * connects to each other one and both show that they belong to this launch. Selects the best
 * candidate for which all connections succeed.
 *
 *   head                                      agent
 *   MSG_NETWORK_LISTEN  proof, token,     ->  listens on its address in each candidate
 *                       answer, addresses
 *                                         <-  MSG_NETWORK_PORTS   proof, ports (0: cannot listen)
 *   MSG_NETWORK_CONNECT proof, targets    ->  connects to each; several messages may follow
 *                                         <-  MSG_NETWORK_RESULT  proof, network, machine, why
 *                                             ("": connected), one for each target
 *   MSG_NETWORK_END     proof             ->  closes everything
 *
 * Whoever connects sends `token`; whoever listens checks it and sends `answer`, which only that
 * machine has. Another program, or another machine with the same address, therefore proves nothing.
 * Nothing blocks. Depends on network, Jansson. */
#ifndef LAUNCH_NETWORK_PROOF_H
#define LAUNCH_NETWORK_PROOF_H

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/network.h"

enum {
  MSG_NETWORK_LISTEN = 128,
  MSG_NETWORK_PORTS,
  MSG_NETWORK_CONNECT,
  MSG_NETWORK_RESULT,
  MSG_NETWORK_END,
};

#define NETWORK_CONNECT_LIMIT 5.0 /* seconds for one connection */

/* Sends a message to the machine with this index (the agent's side: to the head, 0). Takes `body`,
 * also on failure. */
typedef Err (*NetworkSend)(void *context, size_t machine, uint8_t type, json_t *body);

typedef struct {
  NetworkSend send;
  void *context;
} NetworkLink;

/* ---- the head's side ---- */

typedef struct NetworkProof NetworkProof;

/* Begins a proof. `machines` must outlive it. `wish` is the value of --network or NULL; `prefer`
 * the CIDR of an earlier proof, which is tried first, or NULL. With one machine it is done at once
 * and has no result. */
NODISCARD Err network_proof_begin(NetworkProof **proof, const NetworkMachine *machines,
                                  size_t count, const char *wish, const char *prefer,
                                  NetworkLink link, double now);
/* Handles MSG_NETWORK_PORTS and MSG_NETWORK_RESULT of a machine; answers to an earlier proof are
 * ignored. */
NODISCARD Err network_proof_handle(NetworkProof *proof, size_t machine, uint8_t type,
                                   const json_t *body, double now);
/* Sets *is_done when the result is known. An error: no candidate connects all machines; it names
 * the connections that failed. */
NODISCARD Err network_proof_advance(NetworkProof *proof, double now, bool *is_done);
/* The network that was chosen; NULL: one machine. Valid until network_proof_end. */
const Network *network_proof_result(const NetworkProof *proof);
/* Tells the agents to close their sockets, and frees the proof. NULL is allowed. */
void network_proof_end(NetworkProof *proof);

/* ---- the agent's side ---- */

#define NETWORK_PEER_FDS 144 /* descriptors that network_peer_poll_for adds at most */

typedef struct NetworkPeer NetworkPeer;

/* Handles a message of the head; *peer is NULL before the first and after MSG_NETWORK_END. An error
 * means that the head sent what it must not send. */
NODISCARD Err network_peer_handle(NetworkPeer **peer, uint8_t type, const json_t *body,
                                  NetworkLink link, double now);
int network_peer_poll_for(const NetworkPeer *peer, struct pollfd *fds, int room);
/* Accepts, connects and reports results. NULL is allowed. */
NODISCARD Err network_peer_advance(NetworkPeer *peer, NetworkLink link, double now);
void network_peer_close(NetworkPeer **peer);

#endif
