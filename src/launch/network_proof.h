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
 * Whoever connects sends `token`; whoever listens checks it and sends its `answer`, which
 * differs for each machine, so another program or a machine with the same address fails the test.
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

#define NETWORK_CONNECT_LIMIT 5.0 /* time limit in seconds of one connection */
/* Largest number of connections that an agent makes at the same time. */
#define NETWORK_ACTIVE 64

/* Sends a message to the machine with this index; in an agent the index is 0, the head. Frees
 * `body`, also on failure. */
typedef Err (*NetworkSend)(void *context, size_t machine, uint8_t type, json_t *body);

typedef struct {
  NetworkSend send;
  void *context;
} NetworkLink;

/* Functions of the head: */

typedef struct NetworkProof NetworkProof;

/* Starts a test of all candidate networks. `machines` must outlive it. `wish`: value of
 * --network, or NULL. `prefer`: CIDR that an earlier test selected and that is tried first, or
 * NULL. With one machine the test is complete immediately, without a result. */
NODISCARD Err network_proof_begin(NetworkProof **proof, const NetworkMachine *machines,
                                  size_t count, const char *wish, const char *prefer,
                                  NetworkLink link, double now);
/* Handles a machine's MSG_NETWORK_PORTS or MSG_NETWORK_RESULT. Answers to an earlier test are
 * ignored. */
NODISCARD Err network_proof_handle(NetworkProof *proof, size_t machine, uint8_t type,
                                   const json_t *body, double now);
/* Sets *is_done when the result is known. Fails if no candidate connects all machines; the
 * error names the failed connections. */
NODISCARD Err network_proof_advance(NetworkProof *proof, double now, bool *is_done);
/* Returns the selected network; NULL if there is one machine. Valid until network_proof_end. */
const Network *network_proof_result(const NetworkProof *proof);
/* After network_proof_advance has failed: the number of networks that were tested, and whether a
 * connection between the machines `a` and `b` failed over one of them. */
size_t network_proof_candidates(const NetworkProof *proof);
bool network_proof_is_separated(const NetworkProof *proof, size_t network, size_t a, size_t b);
/* Asks the agents to close their sockets, and frees the test. Accepts NULL. */
void network_proof_end(NetworkProof *proof);

/* Functions of the agents: */

#define NETWORK_PEER_FDS 144 /* largest number of pollfds that network_peer_poll_for adds */

typedef struct NetworkPeer NetworkPeer;

/* Handles a message of the head. *peer is NULL before the first message and after
 * MSG_NETWORK_END. Fails if the message is invalid. */
NODISCARD Err network_peer_handle(NetworkPeer **peer, uint8_t type, const json_t *body,
                                  NetworkLink link, double now);
int network_peer_poll_for(const NetworkPeer *peer, struct pollfd *fds, int room);
/* Accepts connections, connects and reports results. Accepts NULL. */
NODISCARD Err network_peer_advance(NetworkPeer *peer, NetworkLink link, double now);
void network_peer_close(NetworkPeer **peer);

#endif
