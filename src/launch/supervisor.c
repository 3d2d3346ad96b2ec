/* The supervisor's loop: events of agents, phases of a generation, restarts. Depends on
 * supervisor_start, generation, policy, console. */
#include "launch/supervisor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/peer.h"
#include "launch/process.h"
#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

#define HEARTBEAT_EVERY 2.0   /* seconds */
#define HEARTBEAT_LIMIT 6.0   /* seconds without a message after which a machine is lost */
#define REGROUP_LIMIT   120.0 /* seconds for workers to save and stop when machines join */
#define LEAVE_LIMIT     20.0  /* the same when a machine leaves, which will not wait long */
#define CLEAR_LIMIT     15.0  /* seconds for an agent to end its processes */
#define TICK            200   /* ms: the longest wait of the loop */

static void enter_phase(Supervisor *s, Phase phase, double now) {
  s->phase = phase;
  s->phase_start = now;
}

static void finish(Supervisor *s, Err result, bool is_reported) {
  s->phase = PHASE_FINISHED;
  s->result = result;
  s->is_reported = is_reported;
  if (result && !is_reported) s->error = err_copy();
}

static void send_to_members(Supervisor *s, uint8_t type) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member)
      supervisor_send(&s->machine[i], type,
                      json_pack("{s:I}", "generation", (json_int_t)s->generation.number));
}

/* Kills what is left of the generation. */
static void clear(Supervisor *s, double now) {
  send_to_members(s, MSG_KILL);
  enter_phase(s, PHASE_CLEAR, now);
}

static void stop_workers(Supervisor *s, double now) {
  s->generation.is_stopping = true;
  send_to_members(s, MSG_STOP);
  enter_phase(s, PHASE_STOP, now);
}

/* Stops the workers in order because machines join or leave. */
static void regroup(Supervisor *s, const char *why, double now) {
  snprintf(s->reason, sizeof s->reason, "%s", why);
  if (s->phase != PHASE_RUN) return;
  console_say(s->console, "%s: saving, then continuing on the machines there are", why);
  s->is_regrouping = true;
  stop_workers(s, now);
}

static int count_ready(const Supervisor *s) {
  int ready = 0;
  for (size_t i = 0; i < s->machines; i++) ready += machine_is_ready(&s->machine[i]);
  return ready;
}

static Machine *find_machine_of(Supervisor *s, int rank) {
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (m->is_member && rank >= (int)m->first_rank && rank < (int)m->first_rank + m->ranks)
      return m;
  }
  return NULL;
}

/* ---- the network ---- */

static void abandon_proof(Supervisor *s, double now) {
  supervisor_end_proof(s);
  for (size_t i = 0; i < s->machines; i++) s->machine[i].is_member = false;
  enter_phase(s, PHASE_GATHER, now);
}

/* The machines that are ready begin a generation: at once if it is one, else after a test of the
 * network between them. */
static Err begin_generation(Supervisor *s, double now) {
  int members;
  TRY(supervisor_choose_members(s, &members));
  if (members > 1) {
    TRY(supervisor_begin_proof(s, (size_t)members, now));
    enter_phase(s, PHASE_CONNECT, now);
    return ERR_OK;
  }
  for (size_t i = 0; i < s->machines; i++) {
    snprintf(s->machine[i].address, sizeof s->machine[i].address, "localhost");
    s->machine[i].card[0] = '\0';
  }
  return supervisor_start_generation(s, NULL, now);
}

/* Members that trained together before may be separated for a while only: tried again until
 * --join-timeout. At the first start it is an error at once. */
static void connect_members(Supervisor *s, double now) {
  bool is_done;
  char include[256];
  Err err = supervisor_continue_proof(s, now, &is_done, include, sizeof include);
  if (!err && !is_done) return;
  if (!err) {
    s->unconnected_since = 0;
    supervisor_end_proof(s);
    if (supervisor_start_generation(s, include, now)) finish(s, ERR_WORK, false);
    return;
  }
  if (s->unconnected_since <= 0) {
    s->unconnected_since = now;
    if (s->generation.number) console_warn(s->console, "%s; trying again", err_message());
  }
  if (!s->generation.number || now - s->unconnected_since > s->spec.join_timeout)
    finish(s, ERR_WORK, false);
  else
    abandon_proof(s, now);
}

/* ---- messages ---- */

static void handle_hello(Supervisor *s, Machine *m, const json_t *body, double now) {
  char why[400];
  if (machine_read_hello(m, body)) {
    console_warn(s->console, "%s", err_message());
    supervisor_send(m, MSG_END, json_object());
    m->is_set_aside = true;
    return;
  }
  s->last_arrival = now;
  snprintf(why, sizeof why, "%s joined", m->name);
  int members = 0;
  for (size_t i = 0; i < s->machines; i++) members += s->machine[i].is_member;
  if (s->phase == PHASE_RUN && members < s->spec.max && machine_is_ready(m))
    regroup(s, why, now);
}

static void note_step(Supervisor *s, uint64_t step, double now) {
  s->generation.has_step = true;
  policy_note_step(&s->policy, step);
  if (!s->policy.failures) standing_forgive(&s->standing);
  if (s->fault_time > 0)
    console_say(s->console, "training again at step %llu, %.1f s after the fault was detected",
                (unsigned long long)step, now - s->fault_time);
  s->fault_time = 0;
}

static void handle_event(Supervisor *s, Machine *m, const json_t *body, double now) {
  const json_t *event = json_object_get(body, "event");
  const char *kind = protocol_text(event, "event");
  int64_t step = protocol_int(event, "step", 0);
  if (strcmp(kind, "step") == 0 && step > 0 && !s->generation.has_step)
    note_step(s, (uint64_t)step, now);
  if (strcmp(kind, "copy") == 0) supervisor_note_copy(s, m, event);
  if (strcmp(kind, "lost") == 0)
    generation_note_loss(&s->generation, protocol_int(body, "rank", -1),
                         protocol_int(event, "rank", -1), protocol_text(event, "text"), now);
}

static void handle_process_end(Supervisor *s, const json_t *body, double now) {
  int64_t id = protocol_int(body, "id", 0);
  int status = (int)protocol_int(body, "status", -1);
  if (id == ID_MPIRUN) {
    generation_note_mpirun(&s->generation, status, (int)protocol_int(body, "signal", 0), now);
    return;
  }
  Machine *first = find_machine_of(s, 0);
  if (first)
    supervisor_send(
        first, MSG_RSH_ENDED,
        json_pack("{s:I, s:I, s:i}", "generation", (json_int_t)s->generation.number, "id",
                  (json_int_t)(id - ID_FIRST_RSH), "status", status < 0 ? 255 : status));
}

static void handle_current(Supervisor *s, Machine *m, uint8_t type, const json_t *body,
                           double now) {
  int64_t rank = protocol_int(body, "rank", -1);
  switch (type) {
    case MSG_WORKER_BEGAN:
      generation_note_begin(&s->generation, rank);
      return;
    case MSG_WORKER_ENDED:
      generation_note_end(&s->generation, rank, (int)protocol_int(body, "status", -1),
                          (int)protocol_int(body, "signal", 0), m->name, now);
      return;
    case MSG_EVENT:
      handle_event(s, m, body, now);
      return;
    case MSG_PROCESS_ENDED:
      handle_process_end(s, body, now);
      return;
    case MSG_RSH:
      supervisor_pass_rsh(s, m, body);
      return;
    case MSG_FAILED:
      generation_note_fault(&s->generation, now, "%s: %s", m->name,
                            protocol_text(body, "text"));
      return;
    case MSG_CLEAR:
      m->is_clear = true;
      return;
    default:
      return;
  }
}

static void handle_leave(Supervisor *s, Machine *m, const json_t *body, double now) {
  char why[400];
  m->is_leaving = true;
  snprintf(why, sizeof why, "%s leaves (%s)", m->name, protocol_text(body, "reason"));
  if (m->is_member) regroup(s, why, now);
}

static Err handle_frame(Supervisor *s, Machine *m, const Frame *f, double now) {
  OutputHeader header;
  const uint8_t *bytes;
  size_t len;
  json_t *body;
  Err err = ERR_OK;
  if (f->type == MSG_OUTPUT) {
    if (output_parse(f, &header, &bytes, &len) && header.generation == s->generation.number &&
        (header.rank < (uint32_t)s->generation.world || header.rank == OUTPUT_OF_MPIRUN))
      console_add(s->console, header.rank, header.stream, bytes, len);
    return ERR_OK;
  }
  if (f->type == PEER_PART) {
    supervisor_pass_part(s, m, f);
    return ERR_OK;
  }
  TRY(protocol_parse(f, m->name, &body));
  bool is_current =
      m->is_member && protocol_int(body, "generation", -1) == (int64_t)s->generation.number;
  if (f->type == MSG_HELLO && !m->has_hello)
    handle_hello(s, m, body, now);
  else if (f->type == MSG_LEAVE)
    handle_leave(s, m, body, now);
  else if (f->type >= PEER_SEND && f->type <= PEER_LAST)
    supervisor_handle_peer(s, m, f->type, body);
  else if (f->type == MSG_NETWORK_PORTS || f->type == MSG_NETWORK_RESULT)
    err = supervisor_handle_proof(s, m, f->type, body, now);
  else if (is_current)
    handle_current(s, m, f->type, body, now);
  json_decref(body);
  return err;
}

/* ---- machines ---- */

static void remove_machine(Supervisor *s, size_t i, double now) {
  Machine m = s->machine[i];
  s->machines--;
  memmove(&s->machine[i], &s->machine[i + 1], (s->machines - i) * sizeof *s->machine);
  supervisor_forget_copy(s, m.channel);
  machine_close(&m);
  m.source->lost(m.source->self, m.name, now);
}

/* The Channel of a machine has failed, with the recorded error. */
static void lose_machine(Supervisor *s, size_t i, double now) {
  Machine *m = &s->machine[i];
  if (m->is_leaving && !m->is_member) {
    console_say(s->console, "%s has left", m->name);
  } else if (m->is_member && (s->phase == PHASE_RUN || s->phase == PHASE_STOP)) {
    if (!s->generation.has_fault && !m->is_head) memcpy(s->faulty, m->name, sizeof s->faulty);
    generation_note_fault(&s->generation, now, "%s is lost: %s", m->name, err_message());
  } else if (m->has_hello && !m->is_set_aside) {
    console_warn(s->console, "%s is lost: %s", m->name, err_message());
  }
  bool is_in_proof = s->proof && m->proof >= 0;
  remove_machine(s, i, now);
  if (is_in_proof) abandon_proof(s, now);
}

static void serve_machines(Supervisor *s, double now) {
  for (size_t i = 0; i < s->machines;) {
    Machine *m = &s->machine[i];
    Err err = channel_advance(m->channel);
    ErrRecord lost = err_copy();
    for (Frame f; channel_next(m->channel, &f);) {
      if (handle_frame(s, m, &f, now)) {
        err = ERR_WORK;
        lost = err_copy();
        break;
      }
    }
    if (err) {
      err_give(&lost);
      lose_machine(s, i, now);
    } else {
      i++;
    }
  }
}

static Err add_machine(Supervisor *s, const Arrival *a, Source *source) {
  TRY(mem_grow(&s->machine, &s->machine_capacity, s->machines + 1, sizeof *s->machine));
  Machine *m = &s->machine[s->machines++];
  *m = (Machine){.channel = a->channel,
                 .source = source,
                 .slots = a->slots,
                 .is_head = a->is_head,
                 .is_clear = true,
                 .proof = -1};
  memcpy(m->name, a->name, sizeof m->name);
  m->is_set_aside = standing_is_aside(&s->standing, m->name);
  channel_set_heartbeat(m->channel, HEARTBEAT_EVERY, HEARTBEAT_LIMIT);
  return ERR_OK;
}

static Err serve_sources(Supervisor *s, double now) {
  Arrival arrival;
  for (int i = 0; i < s->sources; i++) {
    Source *source = &s->source[i];
    TRY(source->advance(source->self, now));
    while (source->next(source->self, &arrival)) TRY(add_machine(s, &arrival, source));
  }
  return ERR_OK;
}

/* ---- phases ---- */

static void gather(Supervisor *s, double now) {
  Gathering g = {.min = s->spec.min,
                 .max = s->spec.max,
                 .ready = count_ready(s),
                 .is_first = s->generation.number == 0,
                 .waited = now - s->phase_start,
                 .since_change = now - s->last_arrival,
                 .join_timeout = s->spec.join_timeout};
  switch (policy_gather(&g)) {
    case GATHER_WAIT:
      return;
    case GATHER_GIVE_UP:
      err_set(
          ERR_WORK,
          "%d of the %d machines that are needed came within %.0f s (--join-timeout); start "
          "the others, or lower --nnodes",
          g.ready, g.min, s->spec.join_timeout);
      finish(s, ERR_WORK, false);
      return;
    case GATHER_BEGIN:
      supervisor_cancel_copy(s);
      if (begin_generation(s, now)) finish(s, ERR_WORK, false);
      return;
  }
}

/* The last lines of a rank that the console has not shown. */
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
  if (g->begun == 0 && g->mpirun_ended > 0) show_tail(s, OUTPUT_OF_MPIRUN);
  if (g->reporter > 0) show_tail(s, (uint32_t)g->reporter);
}

static void watch_workers(Supervisor *s, double now) {
  Generation *g = &s->generation;
  if (!generation_must_kill(g, now)) return;
  s->outcome = generation_outcome(g, s->restarts == 0);
  if (g->has_fault && s->outcome != OUTCOME_DONE) report_fault(s);
  /* A wrong option is an error of every rank, and rank 0 has printed it. */
  bool is_printed = g->worker[0].has_ended && g->worker[0].status == ERR_USAGE;
  if (s->outcome == OUTCOME_STATUS && g->passed_status == ERR_USAGE && !is_printed)
    show_tail(s, (uint32_t)g->reporter);
  clear(s, now);
}

static void watch_stop(Supervisor *s, double now) {
  Generation *g = &s->generation;
  double limit = s->is_regrouping ? REGROUP_LIMIT : 1e9; /* the user may send a second signal */
  for (size_t i = 0; i < s->machines; i++)
    if (s->is_regrouping && s->machine[i].is_leaving) limit = LEAVE_LIMIT;
  if (!generation_is_over(g) && !g->has_fault && now - s->phase_start < limit) return;
  bool is_done = g->ended_well == g->world;
  s->outcome = is_done             ? OUTCOME_DONE
               : !s->is_regrouping ? OUTCOME_USER
               : g->has_fault      ? OUTCOME_FAILED
                                   : OUTCOME_MEMBERS;
  if (g->has_fault && s->outcome == OUTCOME_FAILED) report_fault(s);
  clear(s, now);
}

static bool is_all_clear(const Supervisor *s) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member && !s->machine[i].is_clear) return false;
  return true;
}

/* Counts the failure for the machine that caused it, and sets it aside if it fails repeatedly. Never
 * this machine: the run directory may be on its disk. */
static Err judge_machine(Supervisor *s) {
  Machine *m = find_machine_of(s, s->generation.fault_rank);
  const char *name = m ? m->name : s->faulty;
  bool is_aside = false;
  if (s->outcome != OUTCOME_FAILED || !*name || (m && m->is_head)) return ERR_OK;
  int others = count_ready(s) - (m != NULL);
  TRY(standing_note_failure(&s->standing, name, others, s->spec.min, &is_aside));
  if (m) m->is_set_aside = is_aside;
  if (is_aside)
    console_warn(
        s->console,
        "%s failed twice in a row and is set aside; repair it and start the launch again "
        "to use it",
        name);
  return ERR_OK;
}

static Err fail(Supervisor *s) {
  const Generation *g = &s->generation;
  if (s->outcome == OUTCOME_NOT_BEGUN)
    return err_set(ERR_WORK, "%s; not restarted, as no step was completed", g->fault);
  return err_set(
      ERR_WORK,
      "%s; failed %d times without progress, --max-restarts is %d; log files in %s; the "
      "same command continues the run",
      g->fault, s->policy.failures, s->spec.max_restarts, s->spec.log_dir);
}

static void end_launch(Supervisor *s) {
  Err result = s->outcome == OUTCOME_DONE   ? ERR_OK
               : s->outcome == OUTCOME_USER ? ERR_STOPPED
                                            : (Err)s->generation.passed_status;
  finish(s, result, true);
}

static void restart(Supervisor *s, double now) {
  if (s->outcome == OUTCOME_FAILED) {
    snprintf(s->reason, sizeof s->reason, "%s", s->generation.fault);
    s->fault_time = s->generation.fault_time;
  }
  if (judge_machine(s)) {
    finish(s, ERR_WORK, false);
    return;
  }
  s->faulty[0] = '\0';
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    m->is_member = false;
    if (m->is_leaving) supervisor_send(m, MSG_END, json_object());
  }
  s->restarts++;
  s->is_regrouping = false;
  enter_phase(s, PHASE_GATHER, now);
}

static void await_clear(Supervisor *s, double now) {
  for (size_t i = 0; i < s->machines && now - s->phase_start > CLEAR_LIMIT;) {
    Machine *m = &s->machine[i];
    if (m->is_member && !m->is_clear) {
      console_warn(s->console,
                   "%s does not confirm that its processes have ended; it is left out",
                   m->name);
      remove_machine(s, i, now);
    } else {
      i++;
    }
  }
  if (!is_all_clear(s)) return;
  console_finish_lines(s->console);
  switch (s->signals ? POLICY_END : policy_judge(&s->policy, s->outcome)) {
    case POLICY_END:
      if (s->signals && s->outcome != OUTCOME_DONE) s->outcome = OUTCOME_USER;
      end_launch(s);
      return;
    case POLICY_FAIL:
      finish(s, fail(s), false);
      return;
    case POLICY_RESTART:
      restart(s, now);
      return;
  }
}

/* The first signal stops the workers in order, the second kills them. */
static void handle_signals(Supervisor *s, int signals, double now) {
  if (signals <= s->signals) return;
  s->signals = signals;
  s->is_regrouping = false;
  if (s->phase == PHASE_GATHER || s->phase == PHASE_CONNECT) finish(s, ERR_STOPPED, true);
  if (s->phase == PHASE_RUN && signals == 1) {
    console_say(s->console,
                "stopping: workers save and end; a second signal ends them at once");
    stop_workers(s, now);
  } else if (s->phase == PHASE_RUN || s->phase == PHASE_STOP) {
    s->outcome = OUTCOME_USER;
    if (signals > 1) clear(s, now);
  }
}

bool supervisor_advance(Supervisor *s, double now, int signals) {
  if (serve_sources(s, now)) finish(s, ERR_WORK, false);
  serve_machines(s, now);
  supervisor_continue_copy(s);
  handle_signals(s, signals, now);
  switch (s->phase) {
    case PHASE_GATHER:
      gather(s, now);
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

/* ---- loop ---- */

static Err wait_for_events(Supervisor *s, int signal_fd) {
  size_t count = 0;
  int wait = TICK;
  TRY(mem_grow(&s->fds, &s->fd_capacity, 2 * s->machines + (size_t)s->sources * 64 + 1,
               sizeof *s->fds));
  s->fds[count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
  for (int i = 0; i < s->sources; i++)
    count += (size_t)s->source[i].poll_for(s->source[i].self, s->fds + count, 64);
  for (size_t i = 0; i < s->machines; i++) {
    struct pollfd two[2];
    int n, ms = channel_wait_ms(s->machine[i].channel);
    channel_events(s->machine[i].channel, two, &n);
    for (int k = 0; k < n; k++) s->fds[count++] = two[k];
    if (ms >= 0 && ms < wait) wait = ms;
  }
  if (poll(s->fds, count, wait) < 0 && errno != EINTR)
    return err_set(ERR_WORK, "poll: %s", strerror(errno));
  return ERR_OK;
}

/* SIGUSR1 is a batch system's announcement of the end. SIGHUP, the end of the terminal, does not
 * count if it is ignored, as under nohup. */
static int watch_signals(void) {
  sigset_t set;
  struct sigaction hangup;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  sigaction(SIGHUP, NULL, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Err supervisor_run(Supervisor *s, bool *is_reported) {
  struct signalfd_siginfo info;
  int signals = 0, fd = watch_signals();
  if (fd < 0) return err_set(ERR_WORK, "signalfd: %s", strerror(errno));
  Err err = ERR_OK;
  while (!err && !supervisor_advance(s, progress_clock(), signals)) {
    err = wait_for_events(s, fd);
    /* Batch systems repeat SIGUSR1: only the first one counts. */
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info)
      if (info.ssi_signo != SIGUSR1 || !signals) signals++;
  }
  close(fd);
  *is_reported = false;
  return err ? err : supervisor_result(s, is_reported);
}

Err supervisor_result(Supervisor *s, bool *is_reported) {
  *is_reported = s->is_reported;
  if (s->result && !s->is_reported) err_give(&s->error);
  return s->result;
}

Err supervisor_open(Supervisor **out, const LaunchSpec *spec, Console *console, Source *source,
                    int sources) {
  Supervisor *s;
  int expected = 0;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->spec = *spec;
  s->console = console;
  s->source = source;
  s->sources = sources;
  for (int i = 0; i < sources; i++) expected += source[i].expected;
  if (!s->spec.min) s->spec.min = expected;
  if (!s->spec.max) s->spec.max = expected;
  s->policy.max_restarts = spec->max_restarts;
  enter_phase(s, PHASE_GATHER, progress_clock());
  *out = s;
  return ERR_OK;
}

/* Lets the agents end themselves, which they also do when the Channel closes. */
void supervisor_close(Supervisor *s) {
  if (!s) return;
  supervisor_end_proof(s);
  for (size_t i = 0; i < s->machines; i++) {
    supervisor_send(&s->machine[i], MSG_END, json_object());
    Err ignored = channel_advance(s->machine[i].channel);
    (void)ignored; /* a lost agent ends by itself */
  }
  for (size_t i = 0; i < s->machines; i++) machine_close(&s->machine[i]);
  for (int i = 0; i < s->sources; i++) s->source[i].close(s->source[i].self);
  generation_free(&s->generation);
  standing_free(&s->standing);
  mem_free(s->machine);
  mem_free(s->fds);
  mem_free(s);
}
