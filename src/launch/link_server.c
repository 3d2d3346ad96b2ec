/* The server of a measured connection. Connections that have not sent the token wait side by side,
 * at most VISITORS, so that one that sends nothing delays no other. With the token, the thread
 * serves one connection at a time:
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
#define VISITORS    32   /* largest number of connections without a token */
/* Largest number of these from one address; a machine measures one connection at a time, and
 * tests LINK_PORTS at once. */
#define ADDRESS_MAX 8
#define TOKEN_LIMIT 5.0 /* time limit in seconds for the token */
/* Seconds after which a connection without a token may be closed for a new one; machines send it
 * immediately. */
#define TOKEN_GRACE 0.5

/* A connection that has not sent the whole token. */
typedef struct {
  int fd;
  double since;
  LinkAddress from;
  size_t received;
  uint8_t token[LINK_TOKEN];
} Visitor;

struct LinkServer {
  int fd[LINK_PORTS];
  size_t ports;
  Visitor visitor[VISITORS]; /* oldest first */
  size_t visitors;
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
  double until = progress_clock() + VISIT_LIMIT;
  link_set_limits(fd);
  while (progress_clock() < until && !atomic_load(&s->is_over))
    if (!serve_request(fd)) return;
}

static bool is_same_address(const LinkAddress *a, const LinkAddress *b) {
  if (a->any.sa_family != b->any.sa_family) return false;
  if (a->any.sa_family == AF_INET) return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
  return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0;
}

static bool is_crowding(const LinkServer *s, const LinkAddress *from) {
  size_t same = 0;
  for (size_t i = 0; i < s->visitors; i++) same += is_same_address(&s->visitor[i].from, from);
  return same >= ADDRESS_MAX;
}

/* Returns true if one more connection can be accepted, if necessary by closing the oldest. */
static bool has_room(const LinkServer *s) {
  return s->visitors < VISITORS || progress_clock() - s->visitor[0].since > TOKEN_GRACE;
}

/* Removes an entry without closing its connection. */
static void remove_visitor(LinkServer *s, size_t i) {
  s->visitors--;
  memmove(&s->visitor[i], &s->visitor[i + 1], (s->visitors - i) * sizeof *s->visitor);
}

static void accept_visitor(LinkServer *s, int listener) {
  Visitor v = {.from.len = sizeof v.from.v6, .since = progress_clock()};
  v.fd = accept4(listener, &v.from.any, &v.from.len, SOCK_CLOEXEC);
  if (v.fd < 0) return;
  if (is_crowding(s, &v.from)) {
    close(v.fd);
    return;
  }
  if (s->visitors == VISITORS) {
    close(s->visitor[0].fd);
    remove_visitor(s, 0);
  }
  s->visitor[s->visitors++] = v;
}

/* Reads bytes of the token that have arrived. Returns false if the connection must be closed: it has
 * failed, its token is wrong, or it was served. */
static bool read_token(LinkServer *s, Visitor *v) {
  ssize_t n = recv(v->fd, v->token + v->received, LINK_TOKEN - v->received, MSG_DONTWAIT);
  bool is_waiting = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  if (is_waiting) return progress_clock() - v->since <= TOKEN_LIMIT;
  if (n <= 0) return false;
  v->received += (size_t)n;
  if (v->received < LINK_TOKEN) return true;
  if (memcmp(v->token, s->token, LINK_TOKEN) == 0) serve_visitor(s, v->fd);
  return false;
}

static void read_tokens(LinkServer *s) {
  for (size_t i = 0; i < s->visitors;) {
    Visitor v = s->visitor[i];
    if (read_token(s, &v)) {
      s->visitor[i++] = v;
    } else {
      close(v.fd);
      remove_visitor(s, i);
    }
  }
}

static void *run_server(void *argument) {
  LinkServer *s = argument;
  while (!atomic_load(&s->is_over)) {
    struct pollfd polls[LINK_PORTS + VISITORS];
    bool may_accept = has_room(s);
    nfds_t count = 0;
    for (size_t i = 0; i < s->ports; i++)
      polls[count++] = (struct pollfd){may_accept ? s->fd[i] : -1, POLLIN, 0};
    for (size_t i = 0; i < s->visitors; i++)
      polls[count++] = (struct pollfd){s->visitor[i].fd, POLLIN, 0};
    int ready = poll(polls, count, NAP_MS);
    for (size_t i = 0; ready > 0 && i < s->ports; i++)
      if (polls[i].revents && has_room(s)) accept_visitor(s, s->fd[i]);
    read_tokens(s);
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
  for (size_t i = 0; i < s->visitors; i++) close(s->visitor[i].fd);
  for (size_t i = 0; i < s->ports; i++) close(s->fd[i]);
  mem_free(s);
}
