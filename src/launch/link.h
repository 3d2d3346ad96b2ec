/* Latency and bandwidth of a TCP connection between two machines. One side listens (LinkServer, a
 * thread), the other measures. Whoever connects shows a token first, so that strangers get
 * nothing. Addresses are numeric. Depends on base, POSIX. */
#ifndef LAUNCH_LINK_H
#define LAUNCH_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define LINK_TOKEN     16 /* bytes */
#define LINK_PORTS     4  /* at most, of one server */
#define LINK_WHY       160
#define LINK_CONNECT_S 5.0 /* seconds for a connection */

typedef struct LinkServer LinkServer;

/* Listens on `ports` ports of the address and serves one connection after the other until
 * link_close. wanted[i]: 0 lets the kernel choose; else the first free one from there, of 100. The
 * ports are stored in port[i]. */
NODISCARD Err link_listen(LinkServer **server, const char *address, const uint16_t *wanted,
                          size_t ports, const uint8_t token[LINK_TOKEN], uint16_t *port);
void link_close(LinkServer *server); /* NULL is allowed */

typedef struct {
  char why[LINK_WHY];       /* what failed; "": nothing */
  double latency;           /* seconds of half a round trip, the median */
  double rate_out, rate_in; /* bytes/s sent and received */
} LinkResult;

/* Measures a connection to a server for about twice `seconds`, and at most 15 s longer on a link
 * that is too slow. Blocks. */
void link_measure(LinkResult *result, const char *address, uint16_t port,
                  const uint8_t token[LINK_TOKEN], double seconds);

/* A port of another machine, and whether TCP connections to it work. */
typedef struct {
  char address[46];
  uint16_t port;
  char why[LINK_WHY]; /* "": connected */
} LinkTarget;
/* Connects to all targets at the same time and closes the connections. Blocks for at most
 * LINK_CONNECT_S for each 256 targets. */
void link_try(LinkTarget *targets, size_t count);

#endif
