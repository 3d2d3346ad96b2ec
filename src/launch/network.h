/* The network that all machines of a launch share. Each machine lists its addresses
 * (network_list), the head finds the networks to which every machine belongs (network_candidates),
 * and has the machines connect to each other over them (network_proof.h), because two cards in
 * networks of the same number need not be connected. Depends on base, Jansson, Linux. */
#ifndef LAUNCH_NETWORK_H
#define LAUNCH_NETWORK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define NETWORK_ADDRESSES  64 /* of one machine */
#define NETWORK_CANDIDATES 16 /* networks that are tried */
#define NETWORK_CARD_MAX   16 /* bytes of a card's name with its NUL (IFNAMSIZ) */
#define NETWORK_TEXT_MAX   52 /* bytes of an address or a CIDR */

/* One address of a card. Cards that are down, have no link, or are loopbacks are not listed, nor
 * are link-local addresses. */
typedef struct {
  char card[NETWORK_CARD_MAX];
  char address[NETWORK_TEXT_MAX]; /* IPv4 or IPv6, as inet_ntop writes it */
  int prefix;                     /* bits of the network's number */
  int speed;                      /* Mbit/s; 0: not reported */
  bool is_virtual;                /* a bridge or a card of containers or virtual machines */
  bool is_default;                /* the default route uses this card */
} NetworkAddress;

typedef struct {
  NetworkAddress address[NETWORK_ADDRESSES];
  size_t count;
} NetworkList;

/* Lists the addresses of this machine. */
NODISCARD Err network_list(NetworkList *list);
json_t *network_to_json(const NetworkList *list); /* a new array; NULL: out of memory */
/* Reads what another machine sent, which is not trusted; `where` begins the error. */
NODISCARD Err network_from_json(NetworkList *list, const json_t *json, const char *where);
/* Does this machine have the address (numeric)? Loopback addresses count. */
bool network_is_own(const NetworkList *list, const char *address);

typedef struct {
  const char *name; /* of the machine, for messages */
  const NetworkList *list;
} NetworkMachine;

/* A network to which every machine belongs. */
typedef struct {
  char cidr[NETWORK_TEXT_MAX]; /* "10.1.0.0/24" */
  int speed;                   /* of its slowest card, Mbit/s; 0: unknown */
  bool is_virtual;
  /* The machines are in different networks, of which each is part of `cidr`, so that routers
   * connect them, as between availability zones or Kubernetes nodes. */
  bool is_routed;
  const NetworkAddress **member; /* one address for each machine */
} Network;

typedef struct {
  Network *network;
  size_t count;
} NetworkChoice;

/* Finds the networks that all machines share, the best first: real before virtual, one network
 * before routed, IPv4 before IPv6, fast before slow. `wish` is the value of --network, a CIDR or the
 * name of a card: only networks inside it, or over cards of this name, are candidates; NULL: any.
 * No network is an error that names every machine's addresses. The result points into `machines`;
 * network_free also after an error. */
NODISCARD Err network_candidates(NetworkChoice *choice, const NetworkMachine *machines,
                                 size_t count, const char *wish);
void network_free(NetworkChoice *choice);
/* Appends "NAME has 10.1.0.5/24 (eth0), …". */
void network_add_addresses(Str *text, const NetworkMachine *machine);

/* Writes the value of btl_tcp_if_include and oob_tcp_if_include: the CIDR; for IPv6, which Open MPI
 * cannot parse there, the names of the cards with commas between. */
NODISCARD Err network_mpi_include(const Network *network, size_t machines, char *out,
                                  size_t room);

#endif
