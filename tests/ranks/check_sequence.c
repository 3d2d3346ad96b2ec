/* Ranks that run different collectives or wait for each other, started by mpirun with the name
 * of a case. The run must end with an error; status 3 means that no rank detected the
 * difference. Depends on comm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "comm/reduce.h"

static Comm *comm;
static int rank;

/* Rank 1 passes twice the bytes of the others. */
static void differ_in_size(void) {
  static char bytes[2000];
  comm_broadcast(comm, "weights", bytes, rank == 1 ? 2000 : 1000);
}

static void differ_in_name(void) {
  double x = 1;
  comm_sum(comm, rank == 1 ? "norms" : "losses", &x, 1);
}

static void differ_in_kind(void) {
  char bytes[64] = "";
  double x = 1;
  if (rank == 1)
    comm_broadcast(comm, "losses", bytes, sizeof x);
  else
    comm_sum(comm, "losses", &x, 1);
}

static void differ_in_order(void) {
  char bytes[64] = "";
  double x = 1;
  if (rank == 1) comm_sum(comm, "losses", &x, 1);
  comm_broadcast(comm, "counters", bytes, sizeof bytes);
  if (rank != 1) comm_sum(comm, "losses", &x, 1);
}

/* Rank 0 only sends, so with messages it is three collectives ahead when rank 1 runs another
 * one. */
static void differ_behind(void) {
  char bytes[64] = "";
  double x = 1;
  comm_broadcast(comm, rank == 1 ? "other" : "first", bytes, 8);
  comm_broadcast(comm, "second", bytes, 8);
  comm_broadcast(comm, "third", bytes, 8);
  comm_sum(comm, "end of the test", &x, 1);
}

/* Rank 0 sends 24 bytes to rank 1, which expects 32. */
static void differ_in_pair(void) {
  size_t n = (size_t)comm_size(comm), send_n[8] = {0}, recv_n[8] = {0};
  static char out[8][64], in[8][64];
  const void *send[8];
  void *recv[8];
  for (size_t r = 0; r < n; r++) {
    send[r] = out[r];
    recv[r] = in[r];
    send_n[r] = 32;
    recv_n[r] = 32;
  }
  if (rank == 0) send_n[1] = 24;
  comm_exchange(comm, "pieces", send, send_n, recv, recv_n);
}

static void differ_in_bucket(void) {
  static float g[128000];
  Reducer *q;
  size_t n = rank == 1 ? 128000 : 64000;
  if (reducer_new(&q, comm, g, n, &(ReduceSpec){.unit = 64, .bucket = n}) != ERR_OK) exit(4);
  reducer_begin_round(
      q, (ReduceRound){.active = comm_size(comm), .is_first = true, .is_last = true});
  reducer_finish(q);
  reducer_free(q);
}

/* Rank 1 waits in another transport, as in NCCL, for data that the others never send. */
static void wait_for_each_other(void) {
  double x = 1;
  comm_report(comm, 0, "the test");
  if (rank == 1) {
    comm_begin_wait(comm);
    for (;;) pause();
  }
  comm_sum(comm, "losses", &x, 1);
}

/* Submits no job for three times the rank timeout; heartbeats continue. */
static void stay_idle(void) {
  double end = progress_clock() + 6, x = 1;
  while (progress_clock() < end) {
    comm_report(comm, 0, "the test");
    usleep(100000);
  }
  comm_sum(comm, "end of the test", &x, 1);
  if (rank == 0) puts("idle and alive");
  comm_close(comm, ERR_OK);
  exit(0);
}

/* Runs sums until the test kills the ranks; prints a line after the first sum. */
static void sum_forever(void) {
  static float g[1 << 20];
  Reducer *q;
  if (reducer_new(&q, comm, g, 1 << 20, &(ReduceSpec){.unit = 64, .bucket = 1 << 18}) != ERR_OK)
    exit(4);
  for (int i = 0;; i++) {
    reducer_begin_round(
        q, (ReduceRound){.active = comm_size(comm), .is_first = true, .is_last = true});
    reducer_mark_ready(q, 0, 1 << 20);
    reducer_finish(q);
    if (i == 0 && rank == 0) puts(comm_about(comm));
    if (i == 0) fflush(stdout);
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"size", differ_in_size},     {"name", differ_in_name},
               {"kind", differ_in_kind},     {"order", differ_in_order},
               {"behind", differ_behind},    {"pair", differ_in_pair},
               {"bucket", differ_in_bucket}, {"deadlock", wait_for_each_other},
               {"idle", stay_idle},          {"sums", sum_forever}};
  if (comm_open(&comm, 2) != ERR_OK) {
    log_error("%s", err_message());
    return 1;
  }
  rank = comm_rank(comm);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) cases[i].run();
  /* A rank that only sends can return from its case; it waits for the others here. */
  double x = 1;
  comm_sum(comm, "nothing was wrong", &x, 1);
  return 3;
}
