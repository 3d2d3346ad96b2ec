/* The agent's side of the network test: listens for the other machines and connects to them.
 * Makes at most NETWORK_ACTIVE connections and serves at most VISITORS at a time. Other programs
 * that connect and send nothing cannot block the test: one address may have at most ADDRESS_MAX
 * connections, and if VISITORS are connected, the oldest may be closed after VISITOR_GRACE.
 * Depends on network_proof.h, base. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "launch/network_proof.h"

#define TOKEN_BYTES 16
#define VISITORS    64
/* Largest number of connections from one address; a machine connects once to each listener. */
#define ADDRESS_MAX 8
/* Seconds after which a connection without a token may be closed; machines send it
 * immediately. */
#define VISITOR_GRACE 0.5
#define TARGETS_MAX   (NETWORK_CANDIDATES * 1024)

/* A machine to connect to. */
typedef struct {
  int64_t network, machine;
  char source[NETWORK_TEXT_MAX], address[NETWORK_TEXT_MAX];
  uint16_t port;
  uint8_t answer[TOKEN_BYTES];
} Target;

/* A connection in either direction. */
typedef struct {
  int fd; /* socket of the connection; -1: the entry is unused */
  double deadline;
  struct in6_addr origin; /* address of the peer, for an incoming connection */
  size_t target;          /* index of the target, for a connection made by this machine */
  bool is_open;           /* the connection is established and the token has been sent */
  size_t received;
  uint8_t got[TOKEN_BYTES];
} Talk;

struct NetworkPeer {
  int64_t proof;
  uint8_t token[TOKEN_BYTES], answer[TOKEN_BYTES];
  int listener[NETWORK_CANDIDATES];
  size_t listeners;
  Talk visitor[VISITORS], active[NETWORK_ACTIVE];
  Target *target;
  /* `next` is the first target to which no connection has been started. */
  size_t targets, capacity, next;
};

static bool parse_token(const json_t *value, uint8_t token[TOKEN_BYTES]) {
  const char *hex = json_string_value(value);
  if (!hex || strlen(hex) != 2 * TOKEN_BYTES || hex[strspn(hex, "0123456789abcdef")])
    return false;
  for (size_t i = 0; i < TOKEN_BYTES; i++) {
    unsigned byte;
    sscanf(hex + 2 * i, "%2x", &byte);
    token[i] = (uint8_t)byte;
  }
  return true;
}

static bool make_address(const char *text, uint16_t port, struct sockaddr_storage *out,
                         socklen_t *len) {
  struct sockaddr_in *v4 = (void *)out;
  struct sockaddr_in6 *v6 = (void *)out;
  memset(out, 0, sizeof *out);
  if (strchr(text, ':')) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *len = sizeof *v6;
    return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
  }
  v4->sin_family = AF_INET;
  v4->sin_port = htons(port);
  *len = sizeof *v4;
  return inet_pton(AF_INET, text, &v4->sin_addr) == 1;
}

/* Opens a non-blocking TCP socket bound to the address, any port; returns -1 with errno on
 * failure. */
static int open_socket(const char *address) {
  struct sockaddr_storage own;
  socklen_t len;
  errno = EINVAL;
  if (!make_address(address, 0, &own, &len)) return -1;
  int fd = socket(own.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, (struct sockaddr *)&own, len) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* Returns the port; 0 if listening on this address fails. */
static uint16_t begin_listening(NetworkPeer *p, const char *address) {
  struct sockaddr_storage bound;
  socklen_t len = sizeof bound;
  int fd = open_socket(address);
  if (fd < 0) return 0;
  if (listen(fd, 128) != 0 || getsockname(fd, (struct sockaddr *)&bound, &len) != 0) {
    close(fd);
    return 0;
  }
  p->listener[p->listeners++] = fd;
  return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                           : ((struct sockaddr_in *)&bound)->sin_port);
}

static Err refuse_order(void) {
  return err_set(ERR_WORK,
                 "the head sent a wrong message about networks; install the same version of "
                 "trireme on all machines");
}

static Err listen_on_all(NetworkPeer **peer, const json_t *body, NetworkLink link) {
  const json_t *addresses = json_object_get(body, "addresses");
  size_t count = json_array_size(addresses);
  network_peer_close(peer);
  if (count < 1 || count > NETWORK_CANDIDATES) return refuse_order();
  TRY(mem_alloc(peer, 1, sizeof **peer));
  NetworkPeer *p = *peer;
  p->proof = json_integer_value(json_object_get(body, "proof"));
  for (size_t i = 0; i < VISITORS; i++) p->visitor[i].fd = -1;
  for (size_t i = 0; i < NETWORK_ACTIVE; i++) p->active[i].fd = -1;
  if (!parse_token(json_object_get(body, "token"), p->token) ||
      !parse_token(json_object_get(body, "answer"), p->answer))
    return refuse_order();
  json_t *ports = json_array();
  for (size_t i = 0; i < count; i++) {
    const char *address = json_string_value(json_array_get(addresses, i));
    json_array_append_new(ports, json_integer(address ? begin_listening(p, address) : 0));
  }
  json_t *reply = json_pack("{s:I, s:o}", "proof", (json_int_t)p->proof, "ports", ports);
  return reply ? link.send(link.context, 0, MSG_NETWORK_PORTS, reply)
               : err_set(ERR_WORK, "out of memory");
}

static bool copy_address(char out[NETWORK_TEXT_MAX], const json_t *value) {
  const char *text = json_string_value(value);
  if (!text || strlen(text) >= NETWORK_TEXT_MAX) return false;
  snprintf(out, NETWORK_TEXT_MAX, "%s", text);
  return true;
}

static bool read_target(Target *t, const json_t *item) {
  json_int_t port = json_integer_value(json_object_get(item, "port"));
  t->network = json_integer_value(json_object_get(item, "network"));
  t->machine = json_integer_value(json_object_get(item, "machine"));
  t->port = (uint16_t)port;
  return port > 0 && port <= UINT16_MAX &&
         copy_address(t->source, json_object_get(item, "source")) &&
         copy_address(t->address, json_object_get(item, "address")) &&
         parse_token(json_object_get(item, "answer"), t->answer);
}

static Err add_targets(NetworkPeer *p, const json_t *body) {
  const json_t *targets = json_object_get(body, "targets");
  size_t count = json_array_size(targets);
  if (p->targets + count > TARGETS_MAX) return refuse_order();
  TRY(mem_grow(&p->target, &p->capacity, p->targets + count, sizeof *p->target));
  for (size_t i = 0; i < count; i++) {
    if (!read_target(&p->target[p->targets], json_array_get(targets, i))) return refuse_order();
    p->targets++;
  }
  return ERR_OK;
}

Err network_peer_handle(NetworkPeer **peer, uint8_t type, const json_t *body, NetworkLink link,
                        double now) {
  if (type == MSG_NETWORK_LISTEN) return listen_on_all(peer, body, link);
  bool is_current =
      *peer && (*peer)->proof == json_integer_value(json_object_get(body, "proof"));
  if (!is_current) return ERR_OK; /* the message belongs to an earlier test */
  if (type == MSG_NETWORK_END) {
    network_peer_close(peer);
    return ERR_OK;
  }
  if (type != MSG_NETWORK_CONNECT) return refuse_order();
  TRY(add_targets(*peer, body));
  return network_peer_advance(*peer, link, now);
}

static void close_talk(Talk *t) {
  if (t->fd >= 0) close(t->fd);
  t->fd = -1;
}

static Talk *find_free(Talk *talks, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (talks[i].fd < 0) return &talks[i];
  return NULL;
}

/* Reads up to TOKEN_BYTES; returns true when all have arrived. *error: an errno; EPROTO if the
 * peer closed the connection. */
static bool read_token(Talk *t, int *error) {
  while (t->received < TOKEN_BYTES) {
    ssize_t n = read(t->fd, t->got + t->received, TOKEN_BYTES - t->received);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      *error = n == 0 ? EPROTO : errno;
      return false;
    }
    t->received += (size_t)n;
  }
  return true;
}

static bool is_waiting(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

/* Returns a free entry for an incoming connection, or that of the oldest connection if its grace
 * time is over; NULL: neither exists. */
static Talk *find_place(NetworkPeer *p, double now) {
  Talk *free = find_free(p->visitor, VISITORS), *oldest = &p->visitor[0];
  if (free) return free;
  for (size_t i = 1; i < VISITORS; i++)
    if (p->visitor[i].deadline < oldest->deadline) oldest = &p->visitor[i];
  double age = now + NETWORK_CONNECT_LIMIT - oldest->deadline;
  return age > VISITOR_GRACE ? oldest : NULL;
}

/* Returns the peer's address; IPv4 addresses are stored in an IPv6 address, for comparison. */
static struct in6_addr find_origin(const struct sockaddr_storage *from) {
  struct in6_addr origin = {0};
  if (from->ss_family == AF_INET)
    memcpy(&origin, &((const struct sockaddr_in *)from)->sin_addr, sizeof(struct in_addr));
  else
    origin = ((const struct sockaddr_in6 *)from)->sin6_addr;
  return origin;
}

static size_t count_visitors(const NetworkPeer *p, const struct in6_addr *origin) {
  size_t count = 0;
  for (size_t i = 0; i < VISITORS; i++)
    count +=
        p->visitor[i].fd >= 0 && memcmp(&p->visitor[i].origin, origin, sizeof *origin) == 0;
  return count;
}

/* Accepts a connection and stores it in the free entry, or closes it; returns false if no
 * connection is waiting. */
static bool accept_visitor(NetworkPeer *p, int listener, Talk *place, double now) {
  struct sockaddr_storage from = {0};
  socklen_t len = sizeof from;
  int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return false;
  struct in6_addr origin = find_origin(&from);
  if (count_visitors(p, &origin) >= ADDRESS_MAX) {
    close(fd);
    return true;
  }
  close_talk(place);
  *place = (Talk){.fd = fd, .deadline = now + NETWORK_CONNECT_LIMIT, .origin = origin};
  return true;
}

static void accept_visitors(NetworkPeer *p, double now) {
  for (size_t i = 0; i < p->listeners; i++)
    for (Talk *t; (t = find_place(p, now));)
      if (!accept_visitor(p, p->listener[i], t, now)) break;
}

/* Sends the answer to peers that have sent the right token; closes other connections without an
 * answer. */
static void serve_visitors(NetworkPeer *p, double now) {
  for (size_t i = 0; i < VISITORS; i++) {
    Talk *t = &p->visitor[i];
    int error = 0;
    if (t->fd < 0) continue;
    bool is_whole = read_token(t, &error);
    if (!is_whole && is_waiting(error) && now < t->deadline) continue;
    bool is_friend = is_whole && memcmp(t->got, p->token, TOKEN_BYTES) == 0;
    /* The empty send buffer of a new connection always has room for 16 bytes. */
    if (is_friend && write(t->fd, p->answer, TOKEN_BYTES) < 0) is_friend = false;
    close_talk(t);
  }
}

static Err report_result(const NetworkPeer *p, const Target *target, const char *why,
                         NetworkLink link) {
  json_t *body = json_pack("{s:I, s:I, s:I, s:s}", "proof", (json_int_t)p->proof, "network",
                           (json_int_t)target->network, "machine", (json_int_t)target->machine,
                           "why", why);
  return body ? link.send(link.context, 0, MSG_NETWORK_RESULT, body)
              : err_set(ERR_WORK, "out of memory");
}

/* Starts a connection; returns 0 if it is being established, otherwise an errno. */
static int begin_connection(Talk *t, const Target *target) {
  struct sockaddr_storage to;
  socklen_t len;
  if (!make_address(target->address, target->port, &to, &len)) return EINVAL;
  t->fd = open_socket(target->source);
  if (t->fd < 0) return errno;
  if (connect(t->fd, (struct sockaddr *)&to, len) == 0 || errno == EINPROGRESS) return 0;
  int error = errno;
  close_talk(t);
  return error;
}

static Err begin_connections(NetworkPeer *p, NetworkLink link, double now) {
  for (Talk *t; p->next < p->targets && (t = find_free(p->active, NETWORK_ACTIVE));) {
    const Target *target = &p->target[p->next];
    *t = (Talk){.fd = -1, .target = p->next++, .deadline = now + NETWORK_CONNECT_LIMIT};
    int error = begin_connection(t, target);
    if (error) TRY(report_result(p, target, strerror(error), link));
  }
  return ERR_OK;
}

/* Continues one connection. Returns NULL while it is in progress, "" after the other machine
 * has sent the right answer, otherwise the reason of the failure. */
static const char *continue_connection(const NetworkPeer *p, Talk *t) {
  int error = 0;
  socklen_t len = sizeof error;
  if (!t->is_open) {
    struct pollfd fd = {t->fd, POLLOUT, 0};
    if (poll(&fd, 1, 0) != 1) return NULL;
    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
    if (error) return strerror(error);
    if (write(t->fd, p->token, TOKEN_BYTES) != TOKEN_BYTES) return strerror(errno);
    t->is_open = true;
  }
  if (!read_token(t, &error))
    return is_waiting(error) ? NULL
           : error == EPROTO ? "another program answers"
                             : strerror(error);
  bool is_right = memcmp(t->got, p->target[t->target].answer, TOKEN_BYTES) == 0;
  return is_right ? "" : "another machine answers";
}

Err network_peer_advance(NetworkPeer *p, NetworkLink link, double now) {
  if (!p) return ERR_OK;
  accept_visitors(p, now);
  serve_visitors(p, now);
  for (size_t i = 0; i < NETWORK_ACTIVE; i++) {
    Talk *t = &p->active[i];
    if (t->fd < 0) continue;
    const char *why = continue_connection(p, t);
    if (!why && now > t->deadline) why = "no answer within 5 s";
    if (!why) continue;
    close_talk(t);
    TRY(report_result(p, &p->target[t->target], why, link));
  }
  return begin_connections(p, link, now);
}

int network_peer_poll_for(const NetworkPeer *p, struct pollfd *fds, int room) {
  int count = 0;
  if (!p) return 0;
  /* While no entry is free, do not poll for new connections. */
  bool has_place = false;
  for (size_t i = 0; i < VISITORS; i++) has_place = has_place || p->visitor[i].fd < 0;
  for (size_t i = 0; has_place && i < p->listeners && count < room; i++)
    fds[count++] = (struct pollfd){p->listener[i], POLLIN, 0};
  for (size_t i = 0; i < VISITORS && count < room; i++)
    if (p->visitor[i].fd >= 0) fds[count++] = (struct pollfd){p->visitor[i].fd, POLLIN, 0};
  for (size_t i = 0; i < NETWORK_ACTIVE && count < room; i++) {
    const Talk *t = &p->active[i];
    if (t->fd >= 0) fds[count++] = (struct pollfd){t->fd, t->is_open ? POLLIN : POLLOUT, 0};
  }
  return count;
}

void network_peer_close(NetworkPeer **peer) {
  NetworkPeer *p = *peer;
  if (!p) return;
  for (size_t i = 0; i < p->listeners; i++) close(p->listener[i]);
  for (size_t i = 0; i < VISITORS; i++) close_talk(&p->visitor[i]);
  for (size_t i = 0; i < NETWORK_ACTIVE; i++) close_talk(&p->active[i]);
  mem_free(p->target);
  mem_free(p);
  *peer = NULL;
}
