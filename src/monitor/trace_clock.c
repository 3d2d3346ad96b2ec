/* Measures the offsets of the ranks' clocks with messages. Depends on comm, base/progress. */
#include "monitor/trace_clock.h"

#include <math.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"

#define ROUND_TRIPS 100 /* per rank and measurement; about 10 us each on a fast network */

double trace_clock_shift(void) {
  return 1e-6 * (double)fault_number("trace-clock", 0);
}

static double read_clock(void) {
  return progress_clock() + trace_clock_shift();
}

/* Arguments of comm_exchange, one entry per rank. */
typedef struct {
  const void **send;
  void **recv;
  size_t *send_n, *recv_n;
  double sent, received; /* the message */
} Ping;

static Err open_ping(Ping *p, size_t ranks) {
  TRY(mem_alloc(&p->send, ranks, sizeof *p->send));
  TRY(mem_alloc(&p->recv, ranks, sizeof *p->recv));
  TRY(mem_alloc(&p->send_n, ranks, sizeof *p->send_n));
  return mem_alloc(&p->recv_n, ranks, sizeof *p->recv_n);
}

static void close_ping(Ping *p) {
  mem_free(p->send);
  mem_free(p->recv);
  mem_free(p->send_n);
  mem_free(p->recv_n);
}

/* Sends p->sent of rank `from` to rank `to`, which receives it in p->received. */
static void send_time(Comm *comm, Ping *p, int from, int to) {
  int rank = comm_rank(comm);
  for (int r = 0; r < comm_size(comm); r++) {
    p->send[r] = &p->sent;
    p->recv[r] = &p->received;
    p->send_n[r] = rank == from && r == to ? sizeof p->sent : 0;
    p->recv_n[r] = rank == to && r == from ? sizeof p->received : 0;
  }
  comm_exchange(comm, "clocks", p->send, p->send_n, p->recv, p->recv_n);
}

/* Measures the clock of rank r. The result is valid on rank 0. */
static ClockPoint measure_rank(Comm *comm, Ping *p, int r) {
  ClockPoint best = {.error = -1};
  for (int i = 0; i < ROUND_TRIPS; i++) {
    double before = read_clock();
    send_time(comm, p, 0, r);
    p->sent = read_clock();
    send_time(comm, p, r, 0);
    double after = read_clock(), error = (after - before) / 2;
    if (best.error >= 0 && error >= best.error) continue;
    best = (ClockPoint){
        .at = p->received, .offset = (before + after) / 2 - p->received, .error = error};
  }
  return best;
}

Err trace_clock_measure(Comm *comm, ClockPoint *points) {
  int ranks = comm_size(comm);
  Ping p = {0};
  Err err = open_ping(&p, (size_t)ranks);
  for (int r = 0; r < ranks && !err; r++) {
    if (comm_is_shared_host(comm, 0, r))
      points[r] = (ClockPoint){.at = read_clock()};
    else
      points[r] = measure_rank(comm, &p, r);
  }
  close_ping(&p);
  return err;
}

void trace_clock_settle(ClockPoint *before, ClockPoint *after) {
  if (fabs(after->offset - before->offset) > before->error + after->error) return;
  ClockPoint *better = before->error <= after->error ? before : after;
  ClockPoint *other = better == before ? after : before;
  other->offset = better->offset;
  other->error = better->error;
}

double trace_clock_align(const ClockPoint *before, const ClockPoint *after, double time) {
  double span = after->at - before->at;
  if (span <= 0) return time + before->offset;
  double share = (time - before->at) / span;
  return time + before->offset + share * (after->offset - before->offset);
}
