/* The server of a measured connection. Its thread serves one connection at a time:
 *   token            16 bytes, checked first
 *   'p'              answered with 'p': a round trip
 *   'd' + BLOCK      data, not answered
 *   'e'              answered with 'e' after all earlier data have been received
 *   'g' + 4 bytes    answered with 'd' + BLOCK, repeated for that many milliseconds
 *                    (little-endian, at most LINK_SEND_MAX), then 'e'
 * Depends on link.h, link_wire.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/thread.h"
#include "launch/link_wire.h"

#define PORTS_TRIED 100
#define NAP_MS      100  /* milliseconds between two checks of `is_over` */
#define VISIT_LIMIT 60.0 /* time limit in seconds of one connection */

struct LinkServer {
  int fd[LINK_PORTS];
  size_t ports;
  uint8_t token[LINK_TOKEN];
  pthread_t thread;
  bool has_thread;
  atomic_bool is_over;
};

static void send_blocks(int fd, uint32_t milliseconds) {
  static const uint8_t block[1 + LINK_BLOCK] = {'d'};
  double until = progress_clock() + milliseconds / 1e3;
  while (progress_clock() < until)
    if (!link_send(fd, block, sizeof block)) return;
  link_send(fd, "e", 1);
}

/* Serves one request; returns false when the connection has ended. */
static bool serve_request(int fd) {
  static uint8_t block[LINK_BLOCK]; /* static is safe: there is one server thread */
  uint8_t request, number[4];
  if (!link_receive(fd, &request, 1)) return false;
  switch (request) {
    case 'p':
    case 'e':
      return link_send(fd, &request, 1);
    case 'd':
      return link_receive(fd, block, sizeof block);
    case 'g':
      if (!link_receive(fd, number, sizeof number)) return false;
      uint32_t milliseconds = (uint32_t)number[0] | (uint32_t)number[1] << 8 |
                              (uint32_t)number[2] << 16 | (uint32_t)number[3] << 24;
      send_blocks(fd, milliseconds < LINK_SEND_MAX ? milliseconds : LINK_SEND_MAX);
      return true;
    default:
      return false;
  }
}

static void serve_visitor(LinkServer *s, int fd) {
  uint8_t token[LINK_TOKEN];
  double until = progress_clock() + VISIT_LIMIT;
  link_set_limits(fd);
  if (!link_receive(fd, token, sizeof token)) return;
  if (memcmp(token, s->token, sizeof token) != 0) return;
  while (progress_clock() < until && !atomic_load(&s->is_over))
    if (!serve_request(fd)) return;
}

static void *run_server(void *argument) {
  LinkServer *s = argument;
  while (!atomic_load(&s->is_over)) {
    struct pollfd polls[LINK_PORTS];
    for (size_t i = 0; i < s->ports; i++) polls[i] = (struct pollfd){s->fd[i], POLLIN, 0};
    if (poll(polls, s->ports, NAP_MS) <= 0) continue;
    for (size_t i = 0; i < s->ports; i++) {
      int fd = polls[i].revents ? accept4(s->fd[i], NULL, NULL, SOCK_CLOEXEC) : -1;
      if (fd < 0) continue;
      serve_visitor(s, fd);
      close(fd);
    }
  }
  return NULL;
}

/* Binds to the first free port from `wanted` on; returns -1 with errno on failure. */
static int open_port(const char *address, uint16_t wanted, uint16_t *port) {
  LinkAddress a;
  int error = EADDRNOTAVAIL;
  for (uint32_t p = wanted; p < (uint32_t)wanted + PORTS_TRIED && p < 65536; p++) {
    if (!link_parse_address(&a, address, (uint16_t)p)) break;
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, &a.any, a.len) == 0 && listen(fd, SOMAXCONN) == 0) {
      getsockname(fd, &a.any, &a.len);
      *port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
      return fd;
    }
    error = errno;
    if (fd >= 0) close(fd);
    if (error != EADDRINUSE || wanted == 0) break;
  }
  errno = error;
  return -1;
}

Err link_listen(LinkServer **server, const char *address, const uint16_t *wanted, size_t ports,
                const uint8_t token[LINK_TOKEN], uint16_t *port) {
  *server = NULL;
  if (ports > LINK_PORTS)
    return err_set(
        ERR_WORK,
        "a test of the network with %zu ports on one machine; at most %d are possible", ports,
        LINK_PORTS);
  TRY(mem_alloc(server, 1, sizeof **server));
  LinkServer *s = *server;
  memcpy(s->token, token, LINK_TOKEN);
  Err err = ERR_OK;
  while (s->ports < ports && !err) {
    int fd = open_port(address, wanted[s->ports], &port[s->ports]);
    if (fd < 0)
      err = err_errno("cannot listen on", address);
    else
      s->fd[s->ports++] = fd;
  }
  if (!err) s->has_thread = thread_start(&s->thread, run_server, s);
  if (!err && !s->has_thread)
    err = err_set(ERR_WORK,
                  "cannot start a thread to measure connections; raise the limit of processes "
                  "and threads (ulimit -u)");
  if (!err) return ERR_OK;
  link_close(s);
  *server = NULL;
  return err;
}

void link_close(LinkServer *s) {
  if (!s) return;
  atomic_store(&s->is_over, true);
  if (s->has_thread) pthread_join(s->thread, NULL);
  for (size_t i = 0; i < s->ports; i++) close(s->fd[i]);
  mem_free(s);
}
