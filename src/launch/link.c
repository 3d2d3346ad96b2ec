/* The client of a measured connection. link_server.c describes the messages. Depends on
 * link_wire.h. */
#include "launch/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/progress.h"
#include "launch/link_wire.h"

#define PINGS       50
#define PING_LIMIT  0.3 /* time limit in seconds for the latency measurement */
#define TRY_AT_ONCE 256

static void explain_errno(char why[LINK_WHY], int error) {
  if (error == ETIMEDOUT || error == EINPROGRESS)
    snprintf(why, LINK_WHY, "no answer within %.0f s", LINK_CONNECT_S);
  else
    snprintf(why, LINK_WHY, "%s", strerror(error));
}

/* Starts a non-blocking connection; returns -1 and sets `why` on failure. */
static int begin_connection(const char *address, uint16_t port, char why[LINK_WHY]) {
  LinkAddress a;
  if (!link_parse_address(&a, address, port)) {
    snprintf(why, LINK_WHY, "'%.60s' is no address", address);
    return -1;
  }
  int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && (connect(fd, &a.any, a.len) == 0 || errno == EINPROGRESS)) return fd;
  explain_errno(why, errno);
  if (fd >= 0) close(fd);
  return -1;
}

/* Gets the result of a connection after poll has reported an event; false: it failed. */
static bool finish_connection(int fd, char why[LINK_WHY]) {
  int error = 0;
  socklen_t len = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
  if (error == 0) return true;
  explain_errno(why, error);
  return false;
}

static int open_connection(const char *address, uint16_t port, char why[LINK_WHY]) {
  int fd = begin_connection(address, port, why);
  if (fd < 0) return -1;
  struct pollfd p = {fd, POLLOUT, 0};
  int ready = poll(&p, 1, (int)(LINK_CONNECT_S * 1000));
  if (ready <= 0) explain_errno(why, ETIMEDOUT);
  if (ready > 0 && finish_connection(fd, why)) {
    fcntl(fd, F_SETFL, 0);
    return fd;
  }
  close(fd);
  return -1;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static bool measure_latency(int fd, double *latency) {
  double took[PINGS], until = progress_clock() + PING_LIMIT;
  int n = 0;
  while (n < PINGS && (n == 0 || progress_clock() < until)) {
    char byte = 'p';
    double start = progress_clock();
    if (!link_send(fd, &byte, 1) || !link_receive(fd, &byte, 1)) return false;
    took[n++] = (progress_clock() - start) / 2;
  }
  qsort(took, (size_t)n, sizeof *took, compare_doubles);
  *latency = took[n / 2];
  return true;
}

/* Sends data for `seconds` and waits until the server has received all of it. */
static bool measure_sending(int fd, double seconds, double *rate) {
  static const uint8_t block[1 + LINK_BLOCK] = {'d'};
  double start = progress_clock(), bytes = 0;
  char byte = 'e';
  while (progress_clock() - start < seconds) {
    if (!link_send(fd, block, sizeof block)) return false;
    bytes += sizeof block;
  }
  if (!link_send(fd, &byte, 1) || !link_receive(fd, &byte, 1)) return false;
  *rate = bytes / (progress_clock() - start);
  return true;
}

/* Lets the server send data for `seconds`. */
static bool measure_receiving(int fd, double seconds, double *rate) {
  static uint8_t block[LINK_BLOCK];
  uint32_t milliseconds = (uint32_t)(seconds * 1000);
  uint8_t request[5] = {'g', (uint8_t)milliseconds, (uint8_t)(milliseconds >> 8),
                        (uint8_t)(milliseconds >> 16), (uint8_t)(milliseconds >> 24)};
  double start = progress_clock(), bytes = 0;
  char mark = 0;
  if (!link_send(fd, request, sizeof request)) return false;
  while (link_receive(fd, &mark, 1) && mark == 'd') {
    if (!link_receive(fd, block, sizeof block)) return false;
    bytes += 1 + sizeof block;
  }
  *rate = bytes / (progress_clock() - start);
  return mark == 'e';
}

void link_measure(LinkResult *r, const char *address, uint16_t port,
                  const uint8_t token[LINK_TOKEN], double seconds) {
  *r = (LinkResult){0};
  int fd = open_connection(address, port, r->why);
  if (fd < 0) return;
  link_set_limits(fd);
  bool is_good = link_send(fd, token, LINK_TOKEN) && measure_latency(fd, &r->latency) &&
                 measure_sending(fd, seconds, &r->rate_out) &&
                 measure_receiving(fd, seconds, &r->rate_in);
  if (!is_good)
    snprintf(r->why, sizeof r->why, "the connection broke or was silent for %d s",
             LINK_SILENCE);
  close(fd);
}

static void try_some(LinkTarget *t, size_t count) {
  struct pollfd polls[TRY_AT_ONCE];
  size_t open = 0;
  double until = progress_clock() + LINK_CONNECT_S;
  for (size_t i = 0; i < count; i++) {
    t[i].why[0] = '\0';
    polls[i] = (struct pollfd){begin_connection(t[i].address, t[i].port, t[i].why), POLLOUT, 0};
    open += polls[i].fd >= 0;
  }
  while (open > 0) {
    double left = until - progress_clock();
    if (left <= 0) break;
    if (poll(polls, count, (int)(left * 1000) + 1) < 0) continue; /* interrupted by a signal */
    for (size_t i = 0; i < count; i++) {
      if (polls[i].fd < 0 || !polls[i].revents) continue;
      finish_connection(polls[i].fd, t[i].why);
      close(polls[i].fd);
      polls[i].fd = -1;
      open--;
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (polls[i].fd < 0) continue;
    explain_errno(t[i].why, ETIMEDOUT);
    close(polls[i].fd);
  }
}

void link_try(LinkTarget *targets, size_t count) {
  for (size_t i = 0; i < count; i += TRY_AT_ONCE)
    try_some(targets + i, count - i < TRY_AT_ONCE ? count - i : TRY_AT_ONCE);
}
