/* Functions for both sides of a measured connection: addresses, and blocking reads and writes
 * with time limits. Depends on link.h, POSIX. */
#ifndef LAUNCH_LINK_WIRE_H
#define LAUNCH_LINK_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "launch/link.h"

#define LINK_BLOCK    65536 /* bytes of data in one message */
#define LINK_SEND_MAX 5000  /* largest number of milliseconds for which a server sends data */
#define LINK_SILENCE  10    /* seconds without a byte after which a connection fails */
/* Size of the socket buffers in bytes; larger ones would take long to drain on a slow link. */
#define LINK_BUFFER (1 << 20)

typedef struct {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  };
  socklen_t len;
} LinkAddress;

bool link_parse_address(LinkAddress *a, const char *address, uint16_t port);
void link_set_limits(int fd); /* sets timeouts, TCP_NODELAY and the buffer size */
/* Send or receive n bytes; return false if the connection failed or timed out. */
bool link_send(int fd, const void *bytes, size_t n);
bool link_receive(int fd, void *bytes, size_t n);

#endif
