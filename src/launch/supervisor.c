/* The phases of a generation, from the choice of its members to its end and restart. What each
 * event does in each phase:
 *
 *                 GATHER     CONNECT      RUN            STOP            CLEAR
 *   machine joins counted    tested with  STOP, if       used in the     used in the
 *   (MSG_HELLO)              the others   fewer than     next GATHER     next GATHER
 *                                         MAX take part
 *   machine       released   released;    member: STOP   member: 20 s to released after
 *   leaves                   member:      unless a fault save and stop,  CLEAR
 *                            GATHER       or status 2 is if the run can
 *                                         known; other:  continue; other:
 *                                         released       released
 *   machine lost  removed    member:      member: fault  member: fault   its MSG_CLEAR is
 *                            GATHER                                      not awaited
 *   cannot be     set aside  set aside,   -              -               -
 *   used                     GATHER
 *   rank exits    -          -            all with 0:    all: CLEAR      -
 *                                         CLEAR; 2 or 3:
 *                                         CLEAR, and the
 *                                         launch returns
 *                                         it (2 after a
 *                                         join: see
 *                                         below); else
 *                                         fault
 *   fault         -          -            CLEAR          CLEAR           -
 *   mpirun ends   -          -            fault          ignored; CLEAR  -
 *   before ranks                                         if ranks have
 *                                                        not begun
 *   time limit    --join-    of the test: --start-       120 s (20 s if  15 s: machines without
 *                 timeout:   as "cannot   timeout,       a member        MSG_CLEAR are removed
 *                 error; at  be used"     --stall-       leaves): CLEAR;
 *                 once if no              timeout: fault after a signal
 *                 machine                                --start-timeout
 *                 can come                               only
 *   first signal  the end    the end      STOP           the end after   the end after CLEAR
 *                                                        CLEAR
 *   second signal the end    the end      CLEAR          CLEAR           -
 *
 * If a machine leaves and fewer than MIN remain, counting those that may still connect, the launch
 * ends after STOP and CLEAR, as after a signal.
 *
 * A phase in a cell is the phase that follows. Released: its agent gets MSG_END. The end: of the
 * launch. After CLEAR the policy decides: the end, or GATHER for the next generation.
 *
 * If ranks end with status 2 before their first step, and an earlier generation completed steps,
 * machines that have joined since then are set aside (excluded), and the others continue. Machines
 * that are set aside or wait in reserve are released when they leave, and otherwise at the end.
 *
 * Depends on the other files of the supervisor, generation, policy, console. */
#include "launch/supervisor.h"

#include <stdio.h>
#include <string.h>

#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

#define WAIT_QUIETLY  3.0   /* seconds of waiting for machines before it is announced */
#define REGROUP_LIMIT 120.0 /* seconds for workers to save and stop when machines join */
/* Seconds for workers to save and stop when a machine leaves, which will be gone soon. */
#define LEAVE_LIMIT 20.0
#define CLEAR_LIMIT 15.0 /* seconds for an agent to kill its processes */

/* Kills all processes of the generation. */
static void kill_generation(Supervisor *s, double now) {
  supervisor_send_all(s, MSG_KILL);
  supervisor_enter(s, PHASE_CLEAR, now);
}

/* Begins a generation with the machines that are ready. If there are several, the network
 * between them is tested first. */
static Err begin_generation(Supervisor *s, double now) {
  int members;
  TRY(supervisor_choose_members(s, &members));
  if (!members) return ERR_OK;
  if (members > 1) {
    TRY(supervisor_begin_proof(s, (size_t)members, now));
    supervisor_enter(s, PHASE_CONNECT, now);
    return ERR_OK;
  }
  for (size_t i = 0; i < s->machines; i++) {
    snprintf(s->machine[i].address, sizeof s->machine[i].address, "localhost");
    s->machine[i].card[0] = '\0';
  }
  return supervisor_start_generation(s, NULL, now);
}

/* Continues the network test. If a machine arrives meanwhile, the test is repeated with it, but
 * only once, so that machines that come and go do not delay the ranks for ever. */
static void connect_members(Supervisor *s, double now) {
  bool is_done;
  char include[256];
  Err err = supervisor_continue_proof(s, now, &is_done, include, sizeof include);
  if (!err && !is_done) return;
  if (err) {
    if (supervisor_exclude_unconnected(s, now))
      supervisor_finish(s, ERR_WORK, false);
    else
      supervisor_abandon_proof(s, now);
    return;
  }
  s->unconnected_since = 0;
  if (supervisor_find_waiting(s) && !s->is_extended) {
    s->is_extended = true;
    supervisor_abandon_proof(s, now);
    return;
  }
  supervisor_end_proof(s);
  if (supervisor_start_generation(s, include, now)) supervisor_finish(s, ERR_WORK, false);
}

/* Prints once in each gathering for how many machines the launch waits. */
static void announce_wait(Supervisor *s, const Gathering *g) {
  int missing = g->min - g->ready;
  if (missing <= 0 || g->waited < WAIT_QUIETLY || s->announced_wait >= s->gather_start) return;
  s->announced_wait = s->gather_start;
  console_say(s->console, "waiting up to %.0f s for %d more machine%s (--join-timeout)",
              g->join_timeout - g->waited, missing, missing == 1 ? "" : "s");
}

static bool has_failed(const Supervisor *s) {
  return s->outcome == OUTCOME_FAILED || s->outcome == OUTCOME_NO_RANK;
}

/* Ends the launch, because too few machines are there and no other can come. If they left, and no
 * fault kept the ranks from saving, the status is that of a stop. */
static void give_up_gathering(Supervisor *s, const Gathering *g) {
  bool is_stop = s->has_departed && !has_failed(s);
  err_set(
      ERR_WORK,
      "%d of %d required machines are connected, and no other can join (the Slurm allocation "
      "has ended, or machines have left); start the launch again with at least %d machines%s%s",
      g->ready, g->min, g->min, s->refusal[0] ? "; " : "", s->refusal);
  if (is_stop) console_say(s->console, "%s", err_message());
  supervisor_finish(s, is_stop ? ERR_STOPPED : ERR_WORK, is_stop);
}

static void gather_machines(Supervisor *s, double now) {
  Gathering g = {.min = s->spec.min,
                 .max = s->spec.max,
                 .ready = supervisor_count_ready(s),
                 .is_first = s->generation.number == 0,
                 .waited = now - s->gather_start,
                 .since_change = now - s->last_arrival,
                 .join_timeout = s->spec.join_timeout};
  switch (policy_gather(&g)) {
    case GATHER_WAIT:
      if (supervisor_can_gather(s))
        announce_wait(s, &g);
      else
        give_up_gathering(s, &g);
      return;
    case GATHER_GIVE_UP:
      err_set(ERR_WORK,
              "%d of the %d machines that are needed arrived within %.0f s (--join-timeout); "
              "start the others, or lower --nnodes%s%s",
              g.ready, g.min, s->spec.join_timeout, s->refusal[0] ? "; " : "", s->refusal);
      supervisor_finish(s, ERR_WORK, false);
      return;
    case GATHER_BEGIN:
      if (now < s->next_test) return;
      supervisor_cancel_copy(s);
      if (begin_generation(s, now)) supervisor_finish(s, ERR_WORK, false);
      return;
  }
}

/* Prints the last lines of a rank, which the console has not shown. */
static void show_tail(Supervisor *s, uint32_t rank) {
  Str tail = {0};
  console_finish_lines(s->console);
  console_tail(s->console, rank, &tail);
  for (char *at = tail.s; at && *at;) {
    size_t n = strcspn(at, "\n");
    bool is_last = at[n] == '\0';
    at[n] = '\0';
    if (n) console_warn(s->console, "| %s", at);
    at += is_last ? n : n + 1;
  }
  str_free(&tail);
}

static void report_fault(Supervisor *s) {
  const Generation *g = &s->generation;
  console_say(s->console, "%s", g->fault);
  if (g->begun == 0 && !g->is_lost) show_tail(s, OUTPUT_OF_MPIRUN);
  if (g->reporter > 0) show_tail(s, (uint32_t)g->reporter);
}

/* Returns true if ranks have not begun in time, or can no longer begin. mpirun may wait for
 * ever for a daemon that hangs. */
static bool is_start_late(const Supervisor *s, double now) {
  const Generation *g = &s->generation;
  return g->begun < g->world &&
         (generation_has_lost_mpirun(g, now) || now - s->start_time > s->spec.start_timeout);
}

static void limit_start(Supervisor *s, double now) {
  Generation *g = &s->generation;
  int rank = 0;
  if (!is_start_late(s, now) || g->passed_status || g->has_fault || g->mpirun_ended > 0) return;
  while (g->worker[rank].has_begun) rank++;
  const Machine *m = supervisor_find_machine(s, rank);
  /* If no rank has begun, it is not known which machine mpirun waits for. */
  const char *blamed = m && g->begun > 0 ? supervisor_blame(s, m) : NULL;
  generation_note_late_start(g, s->spec.start_timeout, rank, m ? m->name : "?", blamed, now);
}

/* MPI_Init waits for ever if its daemons cannot exchange messages. */
static void limit_mpi(Supervisor *s, double now) {
  Generation *g = &s->generation;
  double limit = s->spec.mpi_timeout;
  bool is_waiting = g->world > 1 && g->begun == g->world && g->joined < g->world;
  if (!is_waiting || limit <= 0 || now - s->begun_time <= limit) return;
  if (g->passed_status || g->has_fault || g->mpirun_ended > 0) return;
  int rank = 0;
  while (g->worker[rank].has_joined) rank++;
  const Machine *m = supervisor_find_machine(s, rank);
  generation_note_late_mpi(g, limit, rank, m ? m->name : "?", now);
}

/* Lets the workers save and stop if a machine has arrived that can take part. */
static void take_waiting(Supervisor *s, double now) {
  char why[400];
  const Generation *g = &s->generation;
  const Machine *waiting = supervisor_find_waiting(s);
  if (!waiting || g->has_fault || g->passed_status || g->mpirun_ended > 0) return;
  snprintf(why, sizeof why, "%s joined", waiting->name);
  supervisor_regroup(s, why, now);
}

/* Applies --stall-timeout to output and reports of all ranks. Several ranks of train also watch each
 * other; nothing else watches a single rank or another command. */
static void limit_stall(Supervisor *s, double now) {
  Generation *g = &s->generation;
  double silence = now - s->last_output;
  if (s->spec.stall_timeout <= 0 || silence <= s->spec.stall_timeout) return;
  if (g->begun < g->world || g->passed_status) return;
  generation_note_fault(
      g, now, "no rank has printed or reported anything for %.0f s (--stall-timeout)", silence);
}

/* Excludes machines that have joined since the last generation that completed a step, if this one
 * ended with status 2 before its first step: they are the cause and must not end the run. */
static Err release_newcomers(Supervisor *s) {
  const Generation *g = &s->generation;
  int excluded;
  if (s->outcome != OUTCOME_STATUS || g->passed_status != ERR_USAGE || g->has_step)
    return ERR_OK;
  TRY(supervisor_exclude_newcomers(s, &excluded));
  if (excluded) s->outcome = OUTCOME_MEMBERS;
  return ERR_OK;
}

static void watch_workers(Supervisor *s, double now) {
  Generation *g = &s->generation;
  limit_start(s, now);
  limit_mpi(s, now);
  limit_stall(s, now);
  if (!generation_must_kill(g, now)) {
    take_waiting(s, now);
    return;
  }
  s->outcome = generation_outcome(g, !s->has_run);
  if (g->has_fault && s->outcome != OUTCOME_DONE) report_fault(s);
  /* A wrong option is an error on every rank; show it only if rank 0 has not printed it. */
  bool is_printed = g->worker[0].has_ended && g->worker[0].status == ERR_USAGE;
  if (s->outcome == OUTCOME_STATUS && g->passed_status == ERR_USAGE && !is_printed)
    show_tail(s, (uint32_t)g->reporter);
  if (release_newcomers(s))
    supervisor_finish(s, ERR_WORK, false);
  else
    kill_generation(s, now);
}

/* Prints why workers that were stopped because machines join or leave may not have saved. */
static void report_regroup(Supervisor *s, bool is_expired, double now) {
  const Generation *g = &s->generation;
  if (generation_has_failed_stop(g)) {
    console_warn(s->console,
                 "%s, while the ranks were stopping; continuing from the last checkpoint",
                 g->fault);
    if (g->reporter > 0) show_tail(s, (uint32_t)g->reporter);
  } else if (is_expired) {
    console_warn(s->console,
                 "%d of %d ranks have not saved and ended within %.0f s and are killed; "
                 "continuing from the last checkpoint",
                 g->world - g->ended, g->world, now - s->phase_start);
  }
}

static void watch_stop(Supervisor *s, double now) {
  Generation *g = &s->generation;
  bool is_expired = s->is_regrouping && /* after a signal only --start-timeout applies */
                    (now - s->phase_start > REGROUP_LIMIT ||
                     (s->leave_time > 0 && now - s->leave_time > LEAVE_LIMIT));
  bool is_over = generation_is_over(g);
  if (!is_over && !g->has_fault && !is_expired && !is_start_late(s, now)) return;
  bool is_done = g->ended_well == g->world;
  s->outcome = is_done             ? OUTCOME_DONE
               : !s->is_regrouping ? OUTCOME_USER
               : g->has_fault      ? OUTCOME_FAILED
                                   : OUTCOME_MEMBERS;
  if (s->outcome == OUTCOME_FAILED) report_fault(s);
  if (s->outcome == OUTCOME_MEMBERS) report_regroup(s, is_expired && !is_over, now);
  kill_generation(s, now);
}

static bool is_all_clear(const Supervisor *s) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member && !s->machine[i].is_clear) return false;
  return true;
}

/* Returns the member with this name; NULL if the machine was lost. */
static Machine *find_named_member(Supervisor *s, const char *name) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member && strcmp(s->machine[i].name, name) == 0) return &s->machine[i];
  return NULL;
}

/* Counts the failure for the machine that caused it, and excludes the machine if it fails
 * repeatedly. This machine is never excluded, because the run directory may be on its disk. */
static Err judge_machine(Supervisor *s, bool *is_aside) {
  const Generation *g = &s->generation;
  Machine *m = g->culprit[0] ? find_named_member(s, g->culprit)
                             : supervisor_find_machine(s, g->fault_rank);
  const char *name = m ? m->name : g->culprit;
  *is_aside = false;
  if (!*name || (m && m->is_head)) return ERR_OK;
  int others = supervisor_count_ready(s) - (m && machine_is_ready(m));
  TRY(standing_note_failure(&s->standing, name, others, s->spec.min, is_aside));
  if (m) m->is_set_aside = *is_aside;
  if (!*is_aside) return ERR_OK;
  console_warn(
      s->console,
      "%s failed twice in a row and is set aside; repair it and start the launch again "
      "to use it",
      name);
  if (m)
    supervisor_tell_aside(m,
                          "it failed twice in a row; repair it and start the launch again to "
                          "use it");
  return ERR_OK;
}

static Err make_final_error(Supervisor *s) {
  const Generation *g = &s->generation;
  char logs[FILE_PATH_MAX + 32] = "";
  if (console_has_logs(s->console))
    snprintf(logs, sizeof logs, "; log files in %s", s->spec.log_dir);
  if (s->outcome == OUTCOME_NOT_BEGUN)
    return err_set(ERR_WORK, "%s; not restarted, as no step was completed", g->fault);
  if (s->outcome == OUTCOME_FINAL)
    return err_set(
        ERR_WORK,
        "%s; not restarted, as the ranks would repeat their steps and fail again; the "
        "same command then continues the run",
        g->final);
  if (s->outcome == OUTCOME_NO_RANK)
    return err_set(ERR_WORK, "%s; tried %d times, and no rank has begun%s", g->fault,
                   s->policy.failures, logs);
  return err_set(
      ERR_WORK,
      "%s; failed %d time%s without progress, --max-restarts is %d%s; the same command "
      "continues the run",
      g->fault, s->policy.failures, s->policy.failures == 1 ? "" : "s", s->spec.max_restarts,
      logs);
}

/* Ends the launch with an error, because a worker failed after the first signal instead of
 * saving. Shows the last lines of that worker, except of rank 0, whose output is on the console
 * already. */
static void fail_stop(Supervisor *s) {
  const Generation *g = &s->generation;
  if (g->reporter > 0) show_tail(s, (uint32_t)g->reporter);
  supervisor_finish(
      s,
      err_set(ERR_WORK,
              "%s, while the ranks were stopping; the same command continues the run from its "
              "last checkpoint",
              g->fault),
      g->worker[0].has_ended && g->worker[0].status == ERR_WORK);
}

static void end_launch(Supervisor *s) {
  if (s->outcome == OUTCOME_USER && s->signals <= 1 &&
      generation_has_failed_stop(&s->generation)) {
    fail_stop(s);
    return;
  }
  Err result = s->outcome == OUTCOME_DONE   ? ERR_OK
               : s->outcome == OUTCOME_USER ? ERR_STOPPED
                                            : (Err)s->generation.passed_status;
  supervisor_finish(s, result, true);
}

/* Returns true if the launch ends after this generation. */
static bool is_stopped(const Supervisor *s) {
  return s->signals || s->lacks_machines;
}

static void restart_workers(Supervisor *s, double now) {
  if (has_failed(s)) {
    snprintf(s->reason, sizeof s->reason, "%s", s->generation.fault);
    s->fault_time = s->generation.fault_time;
  }
  s->has_run = s->has_run || s->generation.begun > 0;
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    m->is_member = false;
    if (m->is_leaving) supervisor_send(m, MSG_END, json_object());
  }
  s->restarts++;
  s->is_regrouping = false;
  s->leave_time = 0;
  s->gather_start = now;
  supervisor_enter(s, PHASE_GATHER, now);
}

/* Decides what follows a generation. Failures of a machine that is then excluded do not count
 * for --max-restarts, because their cause is removed. Failures of its ranks do count, because
 * the command may be their cause. */
static Err choose_decision(Supervisor *s, Decision *decision) {
  bool is_of_machine = s->generation.culprit[0] != '\0', is_aside;
  *decision = is_stopped(s) ? POLICY_END : policy_judge(&s->policy, s->outcome);
  if (!has_failed(s) || *decision == POLICY_END) return ERR_OK;
  if (*decision == POLICY_FAIL && !is_of_machine) return ERR_OK;
  TRY(judge_machine(s, &is_aside));
  if (!is_aside || !is_of_machine) return ERR_OK;
  s->policy.failures = 0;
  *decision = POLICY_RESTART;
  return ERR_OK;
}

static void await_clear(Supervisor *s, double now) {
  for (size_t i = 0; i < s->machines && now - s->phase_start > CLEAR_LIMIT;) {
    Machine *m = &s->machine[i];
    if (m->is_member && !m->is_clear) {
      console_warn(s->console,
                   "%s does not confirm that its processes have ended; it is left out",
                   m->name);
      supervisor_remove_machine(s, i, now);
    } else {
      i++;
    }
  }
  if (!is_all_clear(s)) return;
  console_finish_lines(s->console);
  Decision decision;
  if (choose_decision(s, &decision)) {
    supervisor_finish(s, ERR_WORK, false);
    return;
  }
  switch (decision) {
    case POLICY_END:
      if (is_stopped(s) && s->outcome != OUTCOME_DONE) s->outcome = OUTCOME_USER;
      end_launch(s);
      return;
    case POLICY_FAIL:
      supervisor_finish(s, make_final_error(s), false);
      return;
    case POLICY_RESTART:
      restart_workers(s, now);
      return;
  }
}

/* The first signal lets the workers save and stop, the second kills them. */
static void handle_signals(Supervisor *s, int signals, double now) {
  if (signals <= s->signals) return;
  s->signals = signals;
  s->is_regrouping = false;
  if (s->phase == PHASE_GATHER || s->phase == PHASE_CONNECT)
    supervisor_finish(s, ERR_STOPPED, true);
  bool has_workers = s->phase == PHASE_RUN || s->phase == PHASE_STOP;
  if (signals == 1) supervisor_say_stopping(s);
  if (s->phase == PHASE_RUN && signals == 1) {
    supervisor_stop_workers(s, now);
  } else if (has_workers) {
    s->outcome = OUTCOME_USER;
    if (signals > 1) kill_generation(s, now);
  }
}

bool supervisor_advance(Supervisor *s, double now, int signals) {
  if (supervisor_serve_sources(s, now)) {
    supervisor_finish(s, ERR_WORK, false);
    return true;
  }
  /* A batch system signals the head and the agents: the head's signal explains that they leave. */
  handle_signals(s, signals, now);
  if (s->phase == PHASE_FINISHED) return true;
  supervisor_serve_machines(s, now);
  supervisor_continue_copy(s);
  console_report_losses(s->console);
  if (s->generation.number) supervisor_name_logs(s, now);
  switch (s->phase) {
    case PHASE_GATHER:
      gather_machines(s, now);
      break;
    case PHASE_CONNECT:
      connect_members(s, now);
      break;
    case PHASE_RUN:
      watch_workers(s, now);
      break;
    case PHASE_STOP:
      watch_stop(s, now);
      break;
    case PHASE_CLEAR:
      await_clear(s, now);
      break;
    case PHASE_FINISHED:
      break;
  }
  return s->phase == PHASE_FINISHED;
}
