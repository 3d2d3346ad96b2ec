/* Gathers and records the times of the ranks. Depends on comm, metrics. */
#include "train/rank_times.h"

#include <math.h>

#include "base/mem.h"

/* Milliseconds per step. TOTAL includes the others. */
enum { TOTAL, WAIT, DATA, TIMES };

static double get_milliseconds(double seconds, double steps) {
  return round(1e6 * seconds / steps) /
         1e3; /* whole microseconds, so that a record stays short */
}

static void fill_own(const StepSum *s, double own[TIMES]) {
  double n = (double)s->steps;
  own[TOTAL] = get_milliseconds(s->data + s->forward + s->backward + s->wait + s->update, n);
  own[WAIT] = get_milliseconds(s->wait, n);
  own[DATA] = get_milliseconds(s->data, n);
}

/* `column` (TIMES, ranks) is working memory. */
static void write_record(Trainer *t, const double *all, double *column, const char **host) {
  static const char *const names[TIMES] = {"rank_ms", "rank_wait_ms", "rank_data_ms"};
  Metrics *m = &t->run.metrics;
  size_t ranks = (size_t)comm_size(t->world.comm);
  metrics_begin(m, t->run.at.step, run_elapsed(&t->run));
  metrics_set_event(m, "ranks");
  for (size_t i = 0; i < TIMES; i++) {
    for (size_t r = 0; r < ranks; r++) column[i * ranks + r] = all[r * TIMES + i];
    metrics_add_list(m, names[i], column + i * ranks, ranks);
  }
  for (size_t r = 0; r < ranks; r++) host[r] = comm_host(t->world.comm, (int)r);
  metrics_add_texts(m, "hosts", host, ranks);
  metrics_end(m);
}

Err rank_times_record(Trainer *t) {
  size_t ranks = (size_t)comm_size(t->world.comm), rank = (size_t)comm_rank(t->world.comm);
  double *all, *column = NULL;
  size_t *off = NULL;
  const char **host = NULL;
  if (!world_has_others(&t->world)) return ERR_OK;
  TRY(mem_alloc(&all, ranks * TIMES, sizeof *all));
  Err err;
  TRY_DONE(mem_alloc(&column, ranks * TIMES, sizeof *column));
  TRY_DONE(mem_alloc(&off, ranks + 1, sizeof *off));
  TRY_DONE(mem_alloc(&host, ranks, sizeof *host));
  for (size_t r = 0; r <= ranks; r++) off[r] = r * TIMES * sizeof *all;
  fill_own(&t->since, all + rank * TIMES);
  comm_allgather(t->world.comm, "times of the ranks", all, off);
  if (world_is_writer(&t->world)) write_record(t, all, column, host);
done:
  mem_free(all);
  mem_free(column);
  mem_free(off);
  mem_free(host);
  return err;
}
