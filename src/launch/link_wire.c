/* Blocking reads and writes with time limits. Depends on link_wire.h. */
#include "launch/link_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>

bool link_parse_address(LinkAddress *a, const char *address, uint16_t port) {
  *a = (LinkAddress){.len = sizeof a->v4};
  if (inet_pton(AF_INET, address, &a->v4.sin_addr) == 1) {
    a->v4.sin_family = AF_INET;
    a->v4.sin_port = htons(port);
    return true;
  }
  *a = (LinkAddress){.len = sizeof a->v6};
  a->v6.sin6_family = AF_INET6;
  a->v6.sin6_port = htons(port);
  return inet_pton(AF_INET6, address, &a->v6.sin6_addr) == 1;
}

void link_set_limits(int fd) {
  struct timeval limit = {.tv_sec = LINK_SILENCE};
  int one = 1, buffer = LINK_BUFFER;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

bool link_send(int fd, const void *bytes, size_t n) {
  for (const char *at = bytes; n > 0;) {
    ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    n -= (size_t)sent;
  }
  return true;
}

bool link_receive(int fd, void *bytes, size_t n) {
  for (char *at = bytes; n > 0;) {
    ssize_t got = recv(fd, at, n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    n -= (size_t)got;
  }
  return true;
}
