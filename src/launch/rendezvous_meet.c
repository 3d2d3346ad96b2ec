/* Resolves the endpoint, decides whether this machine is the head, and joins the head as an
 * agent. Depends on rendezvous, door, the resolver. */
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/str.h"
#include "launch/door.h"
#include "launch/rendezvous_internal.h"

#define ADDRESSES    16   /* largest number of addresses of a host name */
#define JOIN_ANSWER  10.0 /* time limit in seconds for the head's answer */
#define RETRY_FIRST  0.2  /* seconds before the second attempt; the waits grow */
#define RETRY_MAX    2.0  /* longest wait in seconds between two attempts */
#define REPORT_AFTER 5.0  /* seconds without a head after which a message is printed */
#define REPORT_EVERY 30.0
/* If the head closes the connection after our proof in so many attempts in a row, it has another
 * key. */
#define DOUBTS_MAX 3

static Err refuse_endpoint(const char *text) {
  return err_set(
      ERR_USAGE,
      "--rdzv-endpoint %s: pass HOST:PORT, an address of the head; IPv6 as [ADDRESS]:PORT",
      text);
}

/* Returns true for 0.0.0.0 and ::, in any notation: all addresses of a machine. */
static bool is_unspecified(const char *host) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
  if (getaddrinfo(host, NULL, &hints, &found) != 0) return false;
  const struct sockaddr *a = found->ai_addr;
  bool is_any = a->sa_family == AF_INET
                    ? ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY)
                    : IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
  freeaddrinfo(found);
  return is_any;
}

Err rendezvous_parse_endpoint(const char *text, Endpoint *e) {
  const char *host = text, *colon = strrchr(text, ':'), *port = NULL;
  size_t len = strlen(text);
  if (text[0] == '[') {
    const char *end = strchr(text, ']');
    if (!end || (end[1] && end[1] != ':')) return refuse_endpoint(text);
    host = text + 1;
    len = (size_t)(end - host);
    port = end[1] ? end + 2 : NULL;
    /* More than one colon: IPv6 address without a port. */
  } else if (colon && strchr(text, ':') == colon) {
    len = (size_t)(colon - text);
    port = colon + 1;
  }
  e->port = RENDEZVOUS_PORT;
  if (port) {
    char *end;
    errno = 0;
    long n = strtol(port, &end, 10);
    if (port[0] < '0' || port[0] > '9' || *end || errno || n < 1 || n > 65535)
      return refuse_endpoint(text);
    e->port = (int)n;
  }
  bool is_plain = len > 0 && len < sizeof e->host && !memchr(host, '/', len);
  for (size_t i = 0; i < len; i++) is_plain = is_plain && host[i] > ' ' && host[i] < 127;
  if (!is_plain) return refuse_endpoint(text);
  memcpy(e->host, host, len);
  e->host[len] = '\0';
  if (is_unspecified(e->host))
    return err_set(ERR_USAGE,
                   "--rdzv-endpoint %s: %s stands for all addresses of a machine, and no other "
                   "machine can connect to it; pass the address of the head's network card",
                   text, e->host);
  return ERR_OK;
}

typedef struct {
  char text[DOOR_TEXT_MAX]; /* the address as numeric text */
  bool is_own;              /* the address belongs to this machine */
  bool is_loopback;
} Address;

typedef struct {
  Address address[ADDRESSES];
  int count;
} AddressList;

static bool is_same_address(const struct sockaddr *a, const struct sockaddr *b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static bool is_loopback(const struct sockaddr *a) {
  if (a->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
  return a->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static bool is_own_address(const struct ifaddrs *cards, const struct sockaddr *a) {
  for (const struct ifaddrs *c = cards; c; c = c->ifa_next)
    if (c->ifa_addr && is_same_address(c->ifa_addr, a)) return true;
  return a->sa_family == AF_INET && is_loopback(a); /* any address of 127.0.0.0/8 */
}

/* Resolves the host name. */
static Err resolve_host(const char *host, AddressList *list) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  struct ifaddrs *cards;
  list->count = 0;
  int code = getaddrinfo(host, NULL, &hints, &found);
  if (code)
    return err_set(
        ERR_WORK,
        "cannot resolve the host name %s: %s; check DNS or /etc/hosts, or pass an address",
        host, gai_strerror(code));
  if (getifaddrs(&cards) != 0) {
    freeaddrinfo(found);
    return err_errno("cannot list", "this machine's addresses");
  }
  for (const struct addrinfo *a = found; a && list->count < ADDRESSES; a = a->ai_next) {
    Address *to = &list->address[list->count];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, to->text, sizeof to->text, NULL, 0,
                    NI_NUMERICHOST) != 0)
      continue;
    to->is_own = is_own_address(cards, a->ai_addr);
    to->is_loopback = is_loopback(a->ai_addr);
    list->count++;
  }
  freeifaddrs(cards);
  freeaddrinfo(found);
  return ERR_OK;
}

/* Fails if the endpoint is a loopback address, which other machines cannot reach. Debian and Ubuntu
 * map the machine's own name to 127.0.1.1 in /etc/hosts. An address that is written as such is
 * accepted if there are no other machines. */
static Err check_loopback(const RendezvousSpec *spec, const Address *a) {
  const char *host = spec->endpoint.host;
  bool is_plain = strcmp(host, "localhost") == 0 || strcmp(host, a->text) == 0;
  if (!a->is_loopback || (is_plain && !spec->has_others)) return ERR_OK;
  if (is_plain)
    return err_set(
        ERR_USAGE,
        "--rdzv-endpoint %s: other machines cannot reach this loopback address; pass "
        "an address of the head's network card, the same on every machine",
        host);
  return err_set(
      ERR_USAGE,
      "--rdzv-endpoint %s: on this machine the name means %s (see /etc/hosts), where "
      "other machines cannot reach it; pass an address of its network card instead",
      host, a->text);
}

/* Listens on the first of the addresses that belongs to this machine. *head stays NULL if none
 * does, or if another process (the head) already listens there. */
static Err try_to_listen(const RendezvousSpec *spec, const AddressList *list,
                         Rendezvous **head) {
  for (int i = 0; i < list->count; i++) {
    const Address *a = &list->address[i];
    int cause;
    if (!a->is_own) continue;
    TRY(check_loopback(spec, a));
    Err err = rendezvous_open_at(head, a->text, spec->endpoint.port, spec, &cause);
    return err && cause == EADDRINUSE ? ERR_OK : err;
  }
  return ERR_OK;
}

typedef enum {
  ATTEMPT_JOINED,
  ATTEMPT_AGAIN,   /* the head is not there yet: try again */
  ATTEMPT_DOUBTED, /* the head closed the connection after our proof of the key */
  ATTEMPT_REFUSED, /* the head has refused this agent */
} Attempt;

static json_t *pack_join(const RendezvousSpec *spec) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return json_pack("{s:s, s:s, s:s, s:s}", "id", spec->id, "command", spec->command, "version",
                   TRIREME_VERSION, "host", host);
}

/* Fails if the command does not fit into MSG_JOIN, which would otherwise fail at every attempt
 * until the timeout. */
static Err check_command(const RendezvousSpec *spec) {
  json_t *body = pack_join(spec);
  Err err = protocol_check_size(body);
  json_decref(body);
  return err;
}

static Attempt read_answer(Channel *c, const Frame *f) {
  json_t *body;
  if (f->type == MSG_JOINED) return ATTEMPT_JOINED;
  if (f->type != MSG_NOT_JOINED) {
    err_set(ERR_WORK,
            "%s answered with an unexpected message of type %d; install the same version of "
            "trireme on all machines",
            channel_name(c), f->type);
    return ATTEMPT_REFUSED;
  }
  if (protocol_parse(f, channel_name(c), &body)) return ATTEMPT_REFUSED;
  err_set(ERR_WORK, "%s: %s", channel_name(c), protocol_text(body, "text"));
  json_decref(body);
  return ATTEMPT_REFUSED;
}

static Attempt judge_failure(const Channel *c) {
  if (channel_is_key_refused(c)) return ATTEMPT_REFUSED;
  return channel_is_key_doubted(c) ? ATTEMPT_DOUBTED : ATTEMPT_AGAIN;
}

/* Runs the handshake and sends MSG_JOIN on a new connection. */
static Attempt join_on_connection(Channel *c) {
  double until = progress_clock() + JOIN_ANSWER;
  for (;;) {
    struct pollfd fds[2];
    int count, wait = channel_wait_ms(c);
    Frame f;
    Err err = channel_advance(c);
    if (channel_next(c, &f)) return read_answer(c, &f);
    if (err) return judge_failure(c);
    if (progress_clock() > until) {
      err_set(ERR_WORK, "%s does not answer", channel_name(c));
      return ATTEMPT_AGAIN;
    }
    channel_events(c, fds, &count);
    poll(fds, (nfds_t)count, wait < 0 || wait > 1000 ? 1000 : wait);
  }
}

static Attempt try_address(const RendezvousSpec *spec, const Address *a, Channel **agent) {
  char name[sizeof spec->endpoint.host + 100];
  Channel *c;
  snprintf(name, sizeof name, "the head at %s port %d", a->text, spec->endpoint.port);
  if (door_connect(&c, a->text, spec->endpoint.port, &spec->key, name)) return ATTEMPT_AGAIN;
  Attempt attempt =
      protocol_send(c, MSG_JOIN, pack_join(spec)) ? ATTEMPT_AGAIN : join_on_connection(c);
  if (attempt == ATTEMPT_JOINED)
    *agent = c;
  else
    channel_close(c);
  return attempt;
}

static Attempt try_to_join(const RendezvousSpec *spec, const AddressList *list,
                           Channel **agent) {
  Attempt attempt = ATTEMPT_AGAIN;
  for (int i = 0; i < list->count && attempt == ATTEMPT_AGAIN; i++)
    attempt = try_address(spec, &list->address[i], agent);
  return attempt;
}

static void sleep_for(double seconds) {
  poll(NULL, 0, (int)(seconds * 1000));
}

static Err give_up(const RendezvousSpec *spec) {
  return err_set(ERR_WORK,
                 "cannot join the launch at %s port %d (--rdzv-endpoint) within %.0f s: %s; "
                 "check that the same command runs on the machine with this address, that the "
                 "address is its own (not a public one behind NAT), and that the port is open",
                 spec->endpoint.host, spec->endpoint.port, spec->timeout, err_message());
}

static Err refuse_key(const RendezvousSpec *spec) {
  return err_set(
      ERR_WORK,
      "the head at %s port %d refused our key: its key file, or its version of Trireme, is "
      "another one, or it is not Trireme; copy the head's key file to this machine",
      spec->endpoint.host, spec->endpoint.port);
}

/* Tries once to listen or to join. Returns true if this succeeded or failed finally (*err);
 * false: try again.
 * *doubts: number of attempts in a row in which the head closed the connection after our proof of
 * the key. A head that exits does this once, a head with another key every time. */
static bool attempt_once(const RendezvousSpec *spec, Rendezvous **head, Channel **agent,
                         int *doubts, Err *err) {
  AddressList list;
  if (resolve_host(spec->endpoint.host, &list)) return false;
  if (head) {
    *err = try_to_listen(spec, &list, head);
    if (*err || *head) return true;
  }
  Attempt attempt = try_to_join(spec, &list, agent);
  *doubts = attempt == ATTEMPT_DOUBTED ? *doubts + 1 : 0;
  if (*doubts == DOUBTS_MAX) {
    *err = refuse_key(spec);
    return true;
  }
  *err = attempt == ATTEMPT_REFUSED ? ERR_WORK : ERR_OK;
  return attempt == ATTEMPT_JOINED || attempt == ATTEMPT_REFUSED;
}

/* Repeats the attempt until the timeout. `head` is NULL if this machine cannot be the head. */
static Err meet_until_timeout(const RendezvousSpec *spec, Rendezvous **head, Channel **agent) {
  double start = progress_clock(), report = start + REPORT_AFTER, wait = RETRY_FIRST;
  int doubts = 0;
  TRY(handshake_check_available());
  TRY(rendezvous_check_id(spec->id));
  TRY(check_command(spec));
  for (;;) {
    Err err = ERR_OK;
    if (attempt_once(spec, head, agent, &doubts, &err)) return err;
    double now = progress_clock();
    if (now - start > spec->timeout) return give_up(spec);
    if (now >= report) {
      log_info("waiting for the head at %s port %d: %s", spec->endpoint.host,
               spec->endpoint.port, err_message());
      report = now + REPORT_EVERY;
    }
    sleep_for(wait);
    wait = wait * 1.5 < RETRY_MAX ? wait * 1.5 : RETRY_MAX;
  }
}

Err rendezvous_meet(const RendezvousSpec *spec, Rendezvous **head, Channel **agent) {
  *head = NULL;
  *agent = NULL;
  return meet_until_timeout(spec, head, agent);
}

Err rendezvous_join(Channel **agent, const RendezvousSpec *spec) {
  *agent = NULL;
  return meet_until_timeout(spec, NULL, agent);
}
