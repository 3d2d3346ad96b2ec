/* A listening socket and the connections that are not authenticated yet. Depends on channel,
 * sockets. */
#include "launch/door.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

/* Length of the kernel's queue of connections; many nodes may start at the same time. */
#define BACKLOG 1024
#define ACCEPT_PAUSE \
  1.0 /* seconds for which nothing is accepted after the process ran out of file descriptors */
#define REPORT_PAUSE 10.0 /* seconds between two warnings about refused peers */

/* The unit to which DOOR_ADDRESS_MAX applies: an IPv4 address, or the /64 network of an IPv6
 * address, because one machine usually has the whole network. */
typedef struct {
  uint8_t bytes[16];
} Origin;

typedef struct {
  Channel *channel;
  Origin origin;
  char address[DOOR_TEXT_MAX];
  double since;
} Visitor;

struct Door {
  int listener, port;
  Key key;
  Visitor visitor[DOOR_UNPROVEN_MAX]; /* connections that are not authenticated, oldest first */
  int visitors;
  double now; /* time of the last door_advance */
  double accept_after, report_after;
  uint64_t unreported; /* number of refused peers since the last warning */
};

static Origin find_origin(const struct sockaddr_storage *from) {
  Origin origin = {{0}};
  if (from->ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    memcpy(origin.bytes, &v4->sin_addr, sizeof v4->sin_addr);
    return origin;
  }
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
  const uint8_t *bytes = v6->sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
    memcpy(origin.bytes, bytes + 12, 4);
  else
    memcpy(origin.bytes, bytes, 8);
  return origin;
}

/* Parses a numeric address. */
static Err parse_address(const char *address, int port, struct sockaddr_storage *out,
                         socklen_t *len) {
  char service[16];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                           .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
  struct addrinfo *found;
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(address, service, &hints, &found);
  if (code) return err_set(ERR_WORK, "%s is not an address: %s", address, gai_strerror(code));
  memcpy(out, found->ai_addr, found->ai_addrlen);
  *len = found->ai_addrlen;
  freeaddrinfo(found);
  return ERR_OK;
}

/* Binds the socket and listens. On failure, errno is set. */
static bool bind_listener(Door *d, const struct sockaddr_storage *at, socklen_t len,
                          int v6_only) {
  struct sockaddr_storage bound;
  socklen_t room = sizeof bound;
  int on = 1;
  d->listener = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (d->listener < 0) return false;
  /* SO_REUSEADDR: the port can be used although connections of an earlier process are still
   * closing. */
  setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at->ss_family == AF_INET6)
    setsockopt(d->listener, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (bind(d->listener, (const struct sockaddr *)at, len) != 0 ||
      listen(d->listener, BACKLOG) != 0 ||
      getsockname(d->listener, (struct sockaddr *)&bound, &room) != 0) {
    int cause = errno;
    close(d->listener);
    d->listener = -1;
    errno = cause;
    return false;
  }
  d->port = ntohs(bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
                                             : ((struct sockaddr_in6 *)&bound)->sin6_port);
  return true;
}

static bool listen_everywhere(Door *d, int port) {
  struct sockaddr_storage at;
  socklen_t len = 0;
  if (parse_address("::", port, &at, &len) == ERR_OK && bind_listener(d, &at, len, 0))
    return true;
  return parse_address("0.0.0.0", port, &at, &len) == ERR_OK && bind_listener(d, &at, len, 0);
}

static Err listen_at(Door *d, const char *address, int port, int *cause) {
  struct sockaddr_storage at;
  socklen_t len = 0;
  if (address) TRY(parse_address(address, port, &at, &len));
  if (address ? bind_listener(d, &at, len, 1) : listen_everywhere(d, port)) return ERR_OK;
  *cause = errno;
  return err_set(
      ERR_WORK,
      "cannot listen on %s port %d: %s; choose another port, or end the program that uses it",
      address ? address : "any address", port, strerror(*cause));
}

Err door_open(Door **door, const char *address, int port, const Key *key, int *cause) {
  Door *d;
  *door = NULL;
  *cause = 0;
  TRY(handshake_check_available());
  TRY(mem_alloc(&d, 1, sizeof *d));
  d->listener = -1;
  d->key = *key;
  Err err = listen_at(d, address, port, cause);
  if (err)
    door_close(d);
  else
    *door = d;
  return err;
}

int door_port(const Door *d) {
  return d->port;
}

static void remove_visitor(Door *d, int i) {
  d->visitors--;
  memmove(&d->visitor[i], &d->visitor[i + 1], (size_t)(d->visitors - i) * sizeof *d->visitor);
}

void door_close(Door *d) {
  if (!d) return;
  for (int i = 0; i < d->visitors; i++) channel_close(d->visitor[i].channel);
  if (d->listener >= 0) close(d->listener);
  key_wipe(&d->key);
  mem_free(d);
}

/* Returns true if one more connection can be accepted, if necessary by closing the oldest. */
static bool has_room(const Door *d) {
  if (d->now < d->accept_after) return false;
  return d->visitors < DOOR_UNPROVEN_MAX || d->now - d->visitor[0].since > DOOR_GRACE_S;
}

int door_poll_for(const Door *d, struct pollfd *fds, int room) {
  int count = 0;
  if (room > 0 && has_room(d))
    fds[count++] = (struct pollfd){.fd = d->listener, .events = POLLIN};
  for (int i = 0; i < d->visitors; i++) {
    struct pollfd two[2];
    int events;
    channel_events(d->visitor[i].channel, two, &events);
    for (int k = 0; k < events && count < room; k++) fds[count++] = two[k];
  }
  return count;
}

/* Warns of refused peers, at most every REPORT_PAUSE seconds, so that they cannot fill a log.
 * `why` begins with the peer's address. */
static void report_refusal(Door *d, const char *why) {
  d->unreported++;
  if (d->now < d->report_after) return;
  d->report_after = d->now + REPORT_PAUSE;
  if (d->unreported > 1)
    log_warn("port %d: refused %s (%llu connections were refused since the last warning)",
             d->port, why, (unsigned long long)d->unreported);
  else
    log_warn("port %d: refused %s", d->port, why);
  d->unreported = 0;
}

static void report_crowd(Door *d, const char *address) {
  char why[DOOR_TEXT_MAX + 64];
  snprintf(why, sizeof why, "%s: too many unauthenticated connections", address);
  report_refusal(d, why);
}

static bool is_crowding(const Door *d, const Origin *origin) {
  int same = 0;
  for (int i = 0; i < d->visitors; i++)
    same += memcmp(&d->visitor[i].origin, origin, sizeof *origin) == 0;
  return same >= DOOR_ADDRESS_MAX;
}

static void drop_oldest(Door *d) {
  report_crowd(d, d->visitor[0].address);
  channel_close(d->visitor[0].channel);
  remove_visitor(d, 0);
}

static void admit_visitor(Door *d, int fd, const struct sockaddr_storage *from, socklen_t len) {
  Visitor v = {.origin = find_origin(from), .since = d->now};
  if (getnameinfo((const struct sockaddr *)from, len, v.address, sizeof v.address, NULL, 0,
                  NI_NUMERICHOST) != 0)
    snprintf(v.address, sizeof v.address, "an unknown address");
  if (is_crowding(d, &v.origin)) {
    close(fd);
    report_crowd(d, v.address);
    return;
  }
  if (d->visitors == DOOR_UNPROVEN_MAX) drop_oldest(d);
  if (channel_open_secure(&v.channel, fd, &d->key, HANDSHAKE_SERVER, v.address)) {
    report_refusal(d, err_message());
    return;
  }
  d->visitor[d->visitors++] = v;
}

/* Accepts at most DOOR_UNPROVEN_MAX connections per call, so that the caller's loop continues
 * even if connections arrive all the time. */
static void accept_visitors(Door *d) {
  for (int i = 0; i < DOOR_UNPROVEN_MAX && has_room(d); i++) {
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = accept4(d->listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      admit_visitor(d, fd, &from, len);
      continue;
    }
    bool is_limited = errno == EMFILE || errno == ENFILE;
    bool is_short = is_limited || errno == ENOMEM || errno == ENOBUFS;
    if (is_short) {
      log_warn("port %d: cannot accept connections for now: %s; trying again%s", d->port,
               strerror(errno),
               is_limited ? " (raise the limit of open files with ulimit -n)" : "");
      d->accept_after = d->now + ACCEPT_PAUSE;
    }
    if (is_short || errno == EAGAIN || errno == EWOULDBLOCK) return;
  }
}

void door_advance(Door *d, double now) {
  d->now = now;
  accept_visitors(d);
  for (int i = 0; i < d->visitors;) {
    Visitor *v = &d->visitor[i];
    if (!channel_is_proven(v->channel) && channel_advance(v->channel)) {
      report_refusal(d, err_message());
      channel_close(v->channel);
      remove_visitor(d, i);
    } else {
      i++;
    }
  }
}

bool door_next(Door *d, Channel **channel, char address[DOOR_TEXT_MAX]) {
  for (int i = 0; i < d->visitors; i++) {
    if (!channel_is_proven(d->visitor[i].channel)) continue;
    *channel = d->visitor[i].channel;
    memcpy(address, d->visitor[i].address, DOOR_TEXT_MAX);
    remove_visitor(d, i);
    return true;
  }
  return false;
}

Err door_connect(Channel **channel, const char *address, int port, const Key *key,
                 const char *name) {
  struct sockaddr_storage to;
  socklen_t len = 0;
  *channel = NULL;
  TRY(parse_address(address, port, &to, &len));
  int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return err_errno("cannot create a socket for", name);
  if (connect(fd, (struct sockaddr *)&to, len) != 0 && errno != EINPROGRESS) {
    Err err = err_errno("cannot connect to", name);
    close(fd);
    return err;
  }
  return channel_open_secure(channel, fd, key, HANDSHAKE_CLIENT, name);
}
