/* The board's HTTP server, as a plug-in: requests from browsers, which are not trusted.
 *   method   GET and HEAD; no body
 *   Host     must name this machine, so that a foreign page whose name resolves to 127.0.0.1 (DNS
 *            rebinding) gets nothing
 *   token    if asked for: in the first URL, then in a cookie; compared in constant time
 *   limits   connections in all and per address, bytes of a request's head, seconds to send it and
 *            to take the answer
 *   path     looked up in tables; it never becomes the path of a file
 * Threads: libmicrohttpd answers in one of its own; the caller's thread ends connections that take
 * too long. Depends on board, board_page, base, libmicrohttpd. */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/plugin.h"
#include "base/stop.h"
#include "monitor/board.h"
#include "monitor/board_page.h"

#define CONNECTIONS  64
#define PER_ADDRESS  32
#define HEAD_BYTES   ((size_t)32 << 10) /* of a connection: the head of its request */
#define ANSWER_BYTES ((size_t)64 << 20)
#define HEAD_SECONDS \
  10 /* to send the head of a request; also the time a connection may be idle */
#define TAKE_SECONDS  60 /* to take the answer */
#define TOKEN_DIGITS  32
#define COOKIE        "trireme_board_" /* and the port: cookies do not distinguish ports */
#define WATCH_SECONDS 0.25

extern const char trireme_plugin_version[];
const char trireme_plugin_version[] = PLUGIN_VERSION;
Err trireme_board_serve(const BoardServer *server);

/* A connection, from accept to close. */
typedef struct {
  bool is_used;
  bool is_answered; /* the head was read: the client takes the answer */
  int fd;
  double since; /* when the head was expected, or the answer began */
} Connection;

typedef struct {
  const BoardServer *spec;
  int port;
  char token[TOKEN_DIGITS + 1];
  char cookie[sizeof COOKIE + 8];
  char host[256]; /* name of this machine */
  double head_seconds;
  pthread_mutex_t lock; /* protects connection */
  Connection connection[CONNECTIONS];
} Server;

static double get_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* libmicrohttpd calls this when a connection begins, and before it closes its socket. */
static void note_connection(void *context, struct MHD_Connection *c, void **own,
                            enum MHD_ConnectionNotificationCode code) {
  Server *s = context;
  pthread_mutex_lock(&s->lock);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    for (size_t i = 0; i < CONNECTIONS && !*own; i++) {
      if (s->connection[i].is_used) continue;
      int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
      s->connection[i] = (Connection){.is_used = true, .fd = fd, .since = get_now()};
      *own = &s->connection[i];
    }
  } else if (*own) {
    ((Connection *)*own)->is_used = false;
    *own = NULL;
  }
  pthread_mutex_unlock(&s->lock);
}

static void note_phase(Server *s, struct MHD_Connection *c, bool is_answered) {
  Connection *own =
      MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  if (!own) return;
  pthread_mutex_lock(&s->lock);
  own->is_answered = is_answered;
  own->since = get_now();
  pthread_mutex_unlock(&s->lock);
}

static void note_completed(void *context, struct MHD_Connection *c, void **request,
                           enum MHD_RequestTerminationCode why) {
  (void)request;
  (void)why;
  note_phase(context, c, /*is_answered=*/false);
}

/* Ends connections that take too long in all; the time limit of libmicrohttpd restarts with every
 * byte. c->fd cannot belong to another connection by now: libmicrohttpd calls note_connection,
 * which takes the same lock, before it closes the socket. */
static void end_slow_connections(Server *s) {
  double now = get_now();
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < CONNECTIONS; i++) {
    Connection *c = &s->connection[i];
    double limit = c->is_answered ? TAKE_SECONDS : s->head_seconds;
    if (c->is_used && now - c->since > limit) shutdown(c->fd, SHUT_RDWR);
  }
  pthread_mutex_unlock(&s->lock);
}

/* Returns true if the texts are equal. The time depends on the length of `given` alone. */
static bool is_token(const char *token, const char *given) {
  unsigned char differs = given ? 0 : 1;
  size_t len = given ? strlen(given) : 0;
  if (len != TOKEN_DIGITS) differs = 1;
  for (size_t i = 0; i < TOKEN_DIGITS; i++)
    differs |= (unsigned char)(token[i] ^ (i < len ? given[i] : 0));
  return differs == 0;
}

/* Is the name in a Host header an address, such as 10.0.0.1 or [::1]? */
static bool is_address(const char *name, bool *is_loopback) {
  struct in_addr v4;
  struct in6_addr v6;
  char inner[64];
  size_t len = strlen(name);
  if (inet_pton(AF_INET, name, &v4) == 1) {
    *is_loopback = (ntohl(v4.s_addr) >> 24) == 127;
    return true;
  }
  if (len < 4 || len >= sizeof inner || name[0] != '[' || name[len - 1] != ']') return false;
  memcpy(inner, name + 1, len - 2);
  inner[len - 2] = '\0';
  if (inet_pton(AF_INET6, inner, &v6) != 1) return false;
  *is_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  return true;
}

/* Returns true if the name is that of this machine, with or without a domain: the machine may not know
 * the domain under which others reach it. */
static bool is_own_name(const Server *s, const char *name) {
  size_t len = strcspn(s->host, ".");
  return len && strncasecmp(name, s->host, len) == 0 && (name[len] == '\0' || name[len] == '.');
}

/* Returns true if the Host header names this machine. This prevents DNS rebinding: the name of an
 * attacker's domain is refused even if it resolves to this machine. Without a token only
 * localhost and loopback addresses pass; with one, a wrong name alone opens nothing. The port is not compared: a tunnel may use another. */
static bool is_host(const Server *s, const char *header) {
  char name[256];
  bool is_loopback = false;
  if (!header || strlen(header) >= sizeof name) return false;
  memcpy(name, header, strlen(header) + 1);
  char *colon = strrchr(name, ':');
  if (colon && !strchr(colon, ']')) {
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1)) return false;
    *colon = '\0';
  }
  if (strcasecmp(name, "localhost") == 0) return true;
  if (is_address(name, &is_loopback)) return is_loopback || s->spec->with_token;
  return s->spec->with_token && is_own_name(s, name);
}

static const char *get_query(void *connection, const char *name) {
  return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static void add_headers(struct MHD_Response *r, const char *type) {
  static const char *const headers[][2] = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
       "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    MHD_add_response_header(r, headers[i][0], headers[i][1]);
  MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
}

/* Sends a response and releases it; NULL: there was no memory for it. */
static enum MHD_Result send_response(struct MHD_Connection *c, unsigned status,
                                     const char *type, struct MHD_Response *r) {
  if (!r) return MHD_NO;
  add_headers(r, type);
  enum MHD_Result result = MHD_queue_response(c, status, r);
  MHD_destroy_response(r);
  return result;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *why) {
  struct MHD_Response *r = MHD_create_response_from_buffer(strlen(why), (void *)(uintptr_t)why,
                                                           MHD_RESPMEM_PERSISTENT);
  if (r && status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
  return send_response(c, status, "text/plain; charset=utf-8", r);
}

static enum MHD_Result send_page(const Server *s, struct MHD_Connection *c,
                                 const BoardPage *page, bool sets_cookie) {
  struct MHD_Response *r = MHD_create_response_from_buffer(
      page->len, (void *)(uintptr_t)page->bytes, MHD_RESPMEM_PERSISTENT);
  if (r && sets_cookie) {
    char cookie[160];
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", s->cookie,
             s->token);
    MHD_add_response_header(r, MHD_HTTP_HEADER_SET_COOKIE, cookie);
  }
  return send_response(c, MHD_HTTP_OK, page->type, r);
}

static enum MHD_Result send_answer(const Server *s, struct MHD_Connection *c,
                                   const char *path) {
  Str out = {0};
  BoardRequest request = {path, get_query, c};
  int status = board_answer(s->spec->board, &request, &out);
  if (out.failed || out.len > ANSWER_BYTES) {
    str_free(&out);
    return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "the answer is too large for the memory\n");
  }
  const char *type =
      status == MHD_HTTP_OK ? "application/json; charset=utf-8" : "text/plain; charset=utf-8";
  struct MHD_Response *r =
      MHD_create_response_from_buffer_with_free_callback(out.len, out.s, mem_free);
  if (!r) str_free(&out);
  return send_response(c, (unsigned)status, type, r);
}

/* State of a request, by address: see mark_request and handle_request. */
static char unread, unread_bad, accepted, answered;

/* Called with the URI before it is decoded; returns the first state of the request. A URI with
 * "%00" is refused: decoded, it would end the path early. */
static void *mark_request(void *context, const char *uri, struct MHD_Connection *c) {
  (void)context;
  (void)c;
  return strstr(uri, "%00") ? &unread_bad : &unread;
}

static bool has_body(struct MHD_Connection *c) {
  const char *len = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
  return (len && strcmp(len, "0") != 0) ||
         MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Transfer-Encoding");
}

static enum MHD_Result answer_request(Server *s, struct MHD_Connection *c, const char *path) {
  bool has_query_token = is_token(s->token, get_query(c, "token"));
  bool has_cookie =
      is_token(s->token, MHD_lookup_connection_value(c, MHD_COOKIE_KIND, s->cookie));
  if (s->spec->with_token && !has_query_token && !has_cookie)
    return refuse(c, MHD_HTTP_FORBIDDEN,
                  "The token is missing or wrong: open the address that 'trireme board' has "
                  "printed.\n");
  BoardPage page;
  if (board_page(path, &page))
    return send_page(s, c, &page, s->spec->with_token && has_query_token);
  return send_answer(s, c, path);
}

/* Checks the head of a request. Returns the status and reason of a refusal, or 0. */
static unsigned check_head(const Server *s, struct MHD_Connection *c, const char *method,
                           bool is_bad, const char **why) {
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
    *why = "only GET and HEAD are allowed\n";
    return MHD_HTTP_METHOD_NOT_ALLOWED;
  }
  if (is_bad || has_body(c)) {
    *why = "the request has a body, or a NUL in its path\n";
    return MHD_HTTP_BAD_REQUEST;
  }
  if (!is_host(s, MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST))) {
    *why =
        "The Host header does not name this machine: open the address that 'trireme board' "
        "has printed.\n";
    return MHD_HTTP_MISDIRECTED_REQUEST;
  }
  return 0;
}

/* libmicrohttpd calls this first when it has read the headers. An answer in that call also closes
 * the connection, so only refusals are sent there; other answers are sent in the second call. */
static enum MHD_Result handle_request(void *context, struct MHD_Connection *c, const char *path,
                                      const char *method, const char *version,
                                      const char *upload, size_t *upload_bytes, void **mark) {
  Server *s = context;
  (void)version;
  (void)upload;
  if (*mark == &unread || *mark == &unread_bad) {
    const char *why = "";
    unsigned status = check_head(s, c, method, *mark == &unread_bad, &why);
    note_phase(s, c, /*is_answered=*/true);
    *mark = status ? &answered : &accepted;
    return status ? refuse(c, status, why) : MHD_YES;
  }
  *upload_bytes = 0; /* the body of a request that was refused is not read */
  if (*mark == &answered) return MHD_YES;
  *mark = &answered;
  return answer_request(s, c, path);
}

static Err listen_on(const BoardServer *spec, int *fd, int *port) {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                           .ai_socktype = SOCK_STREAM};
  struct addrinfo *found;
  char service[16];
  const int on = 1;
  snprintf(service, sizeof service, "%d", spec->port);
  if (getaddrinfo(spec->address, service, &hints, &found) != 0)
    return err_set(ERR_USAGE,
                   "--bind %s: not an address; give one of this machine, or 0.0.0.0 for all",
                   spec->address);
  *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool is_bound = *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                  bind(*fd, found->ai_addr, found->ai_addrlen) == 0 && listen(*fd, 64) == 0;
  int why = errno;
  freeaddrinfo(found);
  struct sockaddr_storage bound;
  socklen_t len = sizeof bound;
  if (is_bound && getsockname(*fd, (struct sockaddr *)&bound, &len) == 0) {
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)&bound)->sin_port);
    return ERR_OK;
  }
  if (*fd >= 0) close(*fd);
  if (why == EADDRINUSE)
    return err_set(ERR_WORK,
                   "port %d is in use, perhaps by another board; pass another one with --port, "
                   "or 0 for any",
                   spec->port);
  return err_set(ERR_WORK,
                 "cannot listen on %s, port %d: %s; choose others with --bind, --port",
                 spec->address, spec->port, strerror(why));
}

static Err make_token(char token[TOKEN_DIGITS + 1]) {
  unsigned char bytes[TOKEN_DIGITS / 2];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return err_set(ERR_WORK, "cannot read random bytes for the token: %s", strerror(errno));
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(token + 2 * i, 3, "%02x", bytes[i]);
  return ERR_OK;
}

/* Prints the address of the page; the token appears here and nowhere else. */
static Err print_url(const Server *s) {
  char line[512];
  const char *address = s->spec->address;
  bool is_any = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
  bool is_v6 = !is_any && strchr(address, ':');
  snprintf(line, sizeof line, "http://%s%s%s:%d/%s%s\n", is_v6 ? "[" : "",
           is_any && s->host[0] ? s->host : address, is_v6 ? "]" : "", s->port,
           s->spec->with_token ? "?token=" : "", s->spec->with_token ? s->token : "");
  TRY(out_print(line));
  return out_flush();
}

static Err serve_until_stopped(Server *s, int fd) {
  struct MHD_Daemon *daemon = MHD_start_daemon(
      MHD_USE_POLL_INTERNAL_THREAD, 0, NULL, NULL, handle_request, s, MHD_OPTION_LISTEN_SOCKET,
      fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
      MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)PER_ADDRESS,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
      (unsigned)TAKE_SECONDS, MHD_OPTION_NOTIFY_CONNECTION, note_connection, s,
      MHD_OPTION_NOTIFY_COMPLETED, note_completed, s, MHD_OPTION_URI_LOG_CALLBACK, mark_request,
      s, MHD_OPTION_END);
  if (!daemon) {
    close(fd);
    return err_set(ERR_WORK, "cannot start the HTTP server (libmicrohttpd %s): %s",
                   MHD_get_version(), strerror(errno));
  }
  Err err = print_url(s);
  while (!err && !stop_asked()) {
    poll(NULL, 0, (int)(WATCH_SECONDS * 1000));
    end_slow_connections(s);
  }
  MHD_stop_daemon(daemon);
  return err;
}

Err trireme_board_serve(const BoardServer *spec) {
  Server s = {.spec = spec, .head_seconds = (double)fault_number("board-limit", HEAD_SECONDS)};
  int fd = -1;
  if (gethostname(s.host, sizeof s.host - 1) != 0) s.host[0] = '\0';
  TRY(make_token(s.token));
  TRY(listen_on(spec, &fd, &s.port));
  snprintf(s.cookie, sizeof s.cookie, COOKIE "%d", s.port);
  pthread_mutex_init(&s.lock, NULL);
  Err err = serve_until_stopped(&s, fd);
  pthread_mutex_destroy(&s.lock);
  return err;
}
