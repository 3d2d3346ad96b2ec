/* Measures latency and bandwidth of a TCP connection between two machines. One side listens
 * (LinkServer, a thread), the other measures. The client must send a token first, so that other
 * programs are not served. Addresses are numeric. Depends on base, POSIX. */
#ifndef LAUNCH_LINK_H
#define LAUNCH_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define LINK_TOKEN     16 /* size of a token in bytes */
#define LINK_PORTS     4  /* largest number of ports of one server */
#define LINK_WHY       160
#define LINK_CONNECT_S 5.0 /* time limit in seconds for a connection */

typedef struct LinkServer LinkServer;

/* Listens on `ports` ports of the address and serves one connection after another until
 * link_close. wanted[i] is 0 (the kernel chooses) or the first of 100 ports that are tried in
 * turn. Stores the ports in port[i]. */
NODISCARD Err link_listen(LinkServer **server, const char *address, const uint16_t *wanted,
                          size_t ports, const uint8_t token[LINK_TOKEN], uint16_t *port);
void link_close(LinkServer *server); /* stops the server's thread; accepts NULL */

typedef struct {
  char why[LINK_WHY];       /* reason of a failure; "": none */
  double latency;           /* median of half the round-trip time, in seconds */
  double rate_out, rate_in; /* bytes/s sent and received */
} LinkResult;

/* Measures a connection to a server, for about 2 * `seconds` and at most 15 s longer on a very
 * slow link. Blocks. */
void link_measure(LinkResult *result, const char *address, uint16_t port,
                  const uint8_t token[LINK_TOKEN], double seconds);

/* A port of another machine; link_try tests whether TCP connections to it work. */
typedef struct {
  char address[46];
  uint16_t port;
  char why[LINK_WHY]; /* reason of a failure; "": connected */
} LinkTarget;
/* Connects to all targets in parallel and closes the connections. Blocks for at most
 * LINK_CONNECT_S per 256 targets. */
void link_try(LinkTarget *targets, size_t count);

#endif
