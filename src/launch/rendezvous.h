/* Machines without ssh meet at an endpoint, HOST:PORT, that every one of them is started with, as
 * under torchrun. The machine that has the address HOST is the head and listens there; the others
 * connect as agents, and try again until the head is there. All prove that they know the same key
 * (door.h); then an agent sends the id of the rendezvous, and the head accepts or refuses it with
 * a reason. A second process on the machine of the head becomes an agent.
 *
 * Threads: one. rendezvous_meet and rendezvous_join block; a Source does not. Depends on door,
 * protocol, source. */
#ifndef LAUNCH_RENDEZVOUS_H
#define LAUNCH_RENDEZVOUS_H

#include "base/err.h"
#include "launch/channel.h"
#include "launch/key.h"
#include "launch/source.h"

enum {
  RENDEZVOUS_PORT = 29400, /* torchrun's default */
  RENDEZVOUS_ID_MAX = 128, /* bytes of an id */
};

typedef struct {
  char host[256]; /* a name, or a numeric address without brackets */
  int port;
} Endpoint;

typedef struct {
  Endpoint endpoint;
  const char *id;
  Key key;
  double timeout; /* seconds to find the head */
} RendezvousSpec;

typedef struct Rendezvous Rendezvous; /* the head's side */

/* Reads "HOST", "HOST:PORT", "[IPV6]:PORT" or "IPV6". */
NODISCARD Err rendezvous_parse_endpoint(const char *text, Endpoint *endpoint);
/* Checks the id: 1 to RENDEZVOUS_ID_MAX bytes of UTF-8. */
NODISCARD Err rendezvous_check_id(const char *id);

/* Finds out what this machine is, and sets one of the two: *head if it has the endpoint's address
 * and now listens there, *agent if it has joined the head. */
NODISCARD Err rendezvous_meet(const RendezvousSpec *spec, Rendezvous **head, Channel **agent);
/* The two halves of it, for launchers that know which machine is which. The head listens on a
 * numeric address; port 0 lets the kernel choose. */
NODISCARD Err rendezvous_listen(Rendezvous **head, const char *address, int port,
                                const RendezvousSpec *spec);
NODISCARD Err rendezvous_join(Channel **agent, const RendezvousSpec *spec);

int rendezvous_port(const Rendezvous *r);
/* Makes a Source of agents that join; it owns the Rendezvous from now on. */
void rendezvous_to_source(Rendezvous *r, Source *source);
void rendezvous_close(Rendezvous *r); /* NULL is allowed */

#endif
