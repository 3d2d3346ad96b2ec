/* Finds the network that all machines of a launch share. Each machine lists its addresses
 * (network_list). The head finds the networks to which every machine belongs
 * (network_candidates), and lets the machines connect to each other over them
 * (network_proof.h), because two cards with addresses of the same network need not be
 * connected. Depends on base, Jansson, Linux. */
#ifndef LAUNCH_NETWORK_H
#define LAUNCH_NETWORK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define NETWORK_ADDRESSES  64 /* largest number of addresses of a machine */
#define NETWORK_CANDIDATES 16 /* largest number of candidate networks */
#define NETWORK_CARD_MAX   16 /* size of a buffer for a card's name (IFNAMSIZ) */
#define NETWORK_TEXT_MAX   52 /* size of a buffer for an address or a CIDR */

/* One address of a network card. Cards that are down, without link or loopback are not listed,
 * and neither are link-local addresses. */
typedef struct {
  char card[NETWORK_CARD_MAX];
  char address[NETWORK_TEXT_MAX]; /* IPv4 or IPv6 in the form of inet_ntop */
  int prefix;                     /* length of the network prefix in bits */
  int speed;                      /* Mbit/s; 0: not reported by the driver */
  bool is_virtual;                /* a bridge or card of containers or virtual machines */
  bool is_default;                /* the default route uses this card */
} NetworkAddress;

typedef struct {
  NetworkAddress address[NETWORK_ADDRESSES];
  size_t count;
} NetworkList;

/* Lists the addresses of this machine. */
NODISCARD Err network_list(NetworkList *list);
json_t *network_to_json(const NetworkList *list); /* returns a new array; NULL: out of memory */
/* Parses what another machine has sent, which is not trusted. Errors begin with `where`. */
NODISCARD Err network_from_json(NetworkList *list, const json_t *json, const char *where);
/* Returns true if the numeric address is one of this machine's, or a loopback address. */
bool network_is_own(const NetworkList *list, const char *address);

typedef struct {
  const char *name; /* name of the machine in messages */
  const NetworkList *list;
} NetworkMachine;

/* A network to which every machine belongs. */
typedef struct {
  char cidr[NETWORK_TEXT_MAX]; /* CIDR such as "10.1.0.0/24" */
  int speed;                   /* speed of the slowest card in Mbit/s; 0: unknown */
  bool is_virtual;
  /* The machines are in different subnets of `cidr`, connected by routers, as between
   * availability zones or Kubernetes nodes. */
  bool is_routed;
  /* A machine's address is not the first IPv4 address of its card. Open MPI uses the first one,
   * which may be of another network than the others'. */
  bool is_secondary;
  const NetworkAddress **member; /* (machines) the address of each machine */
} Network;

typedef struct {
  Network *network;
  size_t count;
} NetworkChoice;

/* Finds the networks that all machines share, best first: physical before virtual, one network
 * before routed, IPv4 before IPv6, first addresses of cards before others, fast before slow. `wish`: value of --network, a CIDR or a
 * card; only networks inside it, or of cards with this name, are candidates; NULL: any. Fails,
 * listing the addresses of all machines, if there is none. The result points into `machines`.
 * Call network_free also after an error. */
NODISCARD Err network_candidates(NetworkChoice *choice, const NetworkMachine *machines,
                                 size_t count, const char *wish);
void network_free(NetworkChoice *choice);
/* Appends a text such as "NAME has 10.1.0.5/24 (eth0), …". */
void network_add_addresses(Str *text, const NetworkMachine *machine);

/* Writes the value of btl_tcp_if_include and oob_tcp_if_include: the CIDR or, for IPv6, which
 * Open MPI cannot parse there, the names of the cards separated by commas. */
NODISCARD Err network_mpi_include(const Network *network, size_t machines, char *out,
                                  size_t room);

#endif
