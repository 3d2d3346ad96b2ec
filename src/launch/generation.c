/* The state of one generation of workers. Depends on process (texts). */
#include "launch/generation.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/process.h"

/* Seconds for other workers to report their errors after one has exited with an error. */
#define EXIT_GRACE 1.0
/* Seconds for other workers to exit after one has exited with status 2 or 3. */
#define STATUS_GRACE 10.0
/* Seconds after the exit of mpirun in which the agents may report the exits of the workers. If
 * mpirun exited with status 0, the workers did too, and only the reports are late, for example
 * because they follow a long output over a slow link. */
#define MPIRUN_GRACE      1.0
#define MPIRUN_WELL_GRACE 30.0

Err generation_begin(Generation *g, uint32_t number, int world) {
  generation_free(g);
  *g = (Generation){.number = number, .world = world, .fault_rank = -1, .reporter = -1};
  return mem_alloc(&g->worker, (size_t)world, sizeof *g->worker);
}

void generation_free(Generation *g) {
  mem_free(g->worker);
  g->worker = NULL;
}

static WorkerState *find_worker(Generation *g, int64_t rank) {
  return rank >= 0 && rank < g->world ? &g->worker[rank] : NULL;
}

void generation_note_begin(Generation *g, int64_t rank) {
  WorkerState *w = find_worker(g, rank);
  if (!w || w->has_begun) return;
  w->has_begun = true;
  g->begun++;
}

void generation_note_joined(Generation *g, int64_t rank) {
  WorkerState *w = find_worker(g, rank);
  if (!w || w->has_joined) return;
  w->has_joined = true;
  g->joined++;
}

void generation_note_fault(Generation *g, double now, const char *fmt, ...) {
  va_list args;
  if (g->has_fault) return;
  va_start(args, fmt);
  vsnprintf(g->fault, sizeof g->fault, fmt, args);
  va_end(args);
  g->has_fault = true;
  g->fault_time = now;
}

void generation_blame_machine(Generation *g, const char *blamed) {
  if (g->has_fault) return;
  snprintf(g->culprit, sizeof g->culprit, "%s", blamed ? blamed : "");
}

void generation_note_daemon(Generation *g, int status, int signal_number, const char *where,
                            const char *blamed) {
  char how[64];
  if (g->daemon_fault[0] || g->mpirun_ended > 0) return;
  process_describe_end(how, sizeof how, status, signal_number);
  snprintf(g->daemon_fault, sizeof g->daemon_fault,
           "%s: the daemon of mpirun (orted) ended before its ranks began: %s; check that the "
           "same Open MPI is installed there",
           where, how);
  snprintf(g->daemon_machine, sizeof g->daemon_machine, "%s", blamed ? blamed : "");
}

/* Makes the failure of a daemon of mpirun the fault of the generation; returns false if none
 * has failed. */
static bool blame_daemon(Generation *g, double now) {
  if (!g->daemon_fault[0]) return false;
  generation_blame_machine(g, g->daemon_machine);
  generation_note_fault(g, now, "%s", g->daemon_fault);
  return true;
}

void generation_note_late_start(Generation *g, double limit, int64_t rank, const char *where,
                                const char *blamed, double now) {
  if (blame_daemon(g, now)) return;
  generation_blame_machine(g, blamed);
  generation_note_fault(
      g, now, "rank %lld on %s has not begun within %.0f s (--start-timeout); %s",
      (long long)rank, where, limit,
      g->world > 1 ? "mpirun or its daemon hangs" : "the agent there has not started it");
}

void generation_note_late_mpi(Generation *g, double limit, int64_t rank, const char *where,
                              double now) {
  generation_note_fault(
      g, now,
      "MPI_Init has not returned in rank %lld on %s within %.0f s, three times "
      "--start-timeout; see mpirun.log, and 'trireme doctor'",
      (long long)rank, where, limit);
}

/* Records that mpirun has ended before its workers, which is the cause of their end. If a
 * daemon failed before that, the daemon is the cause, unless mpirun was killed by a signal. */
static void blame_mpirun(Generation *g, double now) {
  char how[64];
  if (!g->mpirun_signal && blame_daemon(g, now)) return;
  process_describe_end(how, sizeof how, g->mpirun_status, g->mpirun_signal);
  generation_note_fault(g, now, "mpirun ended before its ranks: %s", how);
}

/* Records that a worker failed after it was asked to stop. This is not a fault, because the other
 * workers may still save and exit. SIGTERM and SIGUSR1 are not failures: they end commands that do
 * not handle them. */
static void note_failed_stop(Generation *g, int64_t rank, int status, int signal_number,
                             const char *where) {
  char how[64];
  if (g->has_failed_stop || g->has_fault) return;
  if (signal_number == SIGTERM || signal_number == SIGUSR1) return;
  g->has_failed_stop = true;
  g->reporter = status >= 0 ? (int)rank : -1;
  process_describe_end(how, sizeof how, status, signal_number);
  snprintf(g->fault, sizeof g->fault, "rank %lld on %s: %s", (long long)rank, where, how);
}

/* Returns true if a rank has exited with status 2 before any fault. The others then fail because
 * mpirun kills them or that rank is missing: their failures are not the cause. */
static bool is_refused(const Generation *g) {
  return g->passed_status == ERR_USAGE && !g->has_fault;
}

void generation_note_end(Generation *g, int64_t rank, int status, int signal_number,
                         const char *where, double now) {
  char how[64];
  WorkerState *w = find_worker(g, rank);
  if (!w || w->has_ended) return;
  generation_note_begin(g, rank);
  w->has_ended = true;
  w->status = status;
  g->ended++;
  if (status == 0) {
    g->ended_well++;
    return;
  }
  if ((status == ERR_USAGE || status == ERR_STOPPED) && !g->has_fault) {
    if (!g->passed_status || status == ERR_USAGE) g->passed_status = status;
    if (g->fault_time <= 0) g->fault_time = now;
    if (g->reporter < 0) g->reporter = (int)rank;
    return;
  }
  if (g->is_stopping) {
    note_failed_stop(g, rank, status, signal_number, where);
    return;
  }
  if (is_refused(g)) return;
  if (status < 0 && g->mpirun_ended > 0) {
    blame_mpirun(g, now);
    return;
  }
  if (!g->has_fault) {
    g->fault_rank = (int)rank;
    g->reporter = status >= 0 ? (int)rank : -1;
    g->is_fault_exit = status >= 0;
  }
  process_describe_end(how, sizeof how, status, signal_number);
  generation_note_fault(g, now, "rank %lld on %s: %s", (long long)rank, where, how);
}

void generation_note_loss(Generation *g, int64_t reporter, int64_t rank, const char *text,
                          double now) {
  if (!find_worker(g, rank) || !find_worker(g, reporter) || g->has_fault) return;
  g->reporter = (int)reporter;
  g->fault_rank = (int)rank;
  g->is_fault_exit = true;
  g->is_loss = true;
  generation_note_fault(g, now, "%s", text);
}

void generation_note_final(Generation *g, const char *text) {
  snprintf(g->final, sizeof g->final, "%s", text);
}

void generation_note_mpirun(Generation *g, int status, int signal_number, double now) {
  g->mpirun_ended = now;
  g->mpirun_status = status;
  g->mpirun_signal = signal_number;
}

bool generation_has_failed_stop(const Generation *g) {
  const WorkerState *first = &g->worker[0];
  bool is_in_order = first->has_ended && (first->status == 0 || first->status == ERR_STOPPED);
  return g->is_stopping && (g->has_failed_stop || g->has_fault) && !is_in_order;
}

bool generation_has_lost_mpirun(const Generation *g, double now) {
  bool is_well = g->mpirun_status == 0 && !g->mpirun_signal;
  return g->mpirun_ended > 0 &&
         now - g->mpirun_ended > (is_well ? MPIRUN_WELL_GRACE : MPIRUN_GRACE);
}

bool generation_is_over(const Generation *g) {
  return g->ended == g->world;
}

bool generation_must_kill(Generation *g, double now) {
  if (generation_is_over(g)) return true;
  if (generation_has_lost_mpirun(g, now) && !g->is_stopping) {
    if (is_refused(g)) return true;
    blame_mpirun(g, now);
  }
  if (g->has_fault) return !g->is_fault_exit || now - g->fault_time > EXIT_GRACE;
  return g->passed_status && !g->is_stopping && now - g->fault_time > STATUS_GRACE;
}

Outcome generation_outcome(const Generation *g, bool is_first) {
  if (g->ended_well == g->world) return OUTCOME_DONE;
  if (!g->has_fault && g->passed_status) return OUTCOME_STATUS;
  if (g->final[0] && g->is_fault_exit) return OUTCOME_FINAL;
  bool is_own_error = g->is_fault_exit && !g->is_loss && !g->has_step;
  bool is_of_machine = g->is_lost || g->culprit[0];
  if (g->begun == 0 && is_of_machine) return OUTCOME_NO_RANK;
  bool is_hopeless = is_first && (g->begun == 0 || is_own_error);
  return is_hopeless ? OUTCOME_NOT_BEGUN : OUTCOME_FAILED;
}
