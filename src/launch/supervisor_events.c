/* Events that the supervisor handles: machines that arrive or are lost, and messages of the
 * agents. Depends on supervisor_phase, supervisor_start, supervisor_network, supervisor_peer. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/network_proof.h"
#include "launch/peer.h"
#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

static void handle_hello(Supervisor *s, Machine *m, const json_t *body, double now) {
  if (m->source->ready) m->source->ready(m->source->self, m->name);
  if (machine_read_hello(m, body)) {
    console_warn(s->console, "%s", err_message());
    supervisor_send(
        m, MSG_END,
        json_pack("{s:i, s:o}", "status", ERR_WORK, "text", protocol_make_text(err_message())));
    m->is_set_aside = true;
    return;
  }
  s->last_arrival = now;
}

static void note_step(Supervisor *s, uint64_t step, double now) {
  s->generation.has_step = true;
  s->last_good = s->generation.number;
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member)
      standing_note_step(&s->standing, s->machine[i].name, s->last_good);
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
  if (strcmp(kind, "run") == 0) {
    console_own_run(s->console);
    s->run_time = now;
  }
  if (strcmp(kind, "copy") == 0) supervisor_note_copy(s, m, event);
  if (strcmp(kind, "joined") == 0)
    generation_note_joined(&s->generation, protocol_int(body, "rank", -1));
  if (strcmp(kind, "final") == 0)
    generation_note_final(&s->generation, protocol_text(event, "text"));
  if (strcmp(kind, "lost") == 0)
    generation_note_loss(&s->generation, protocol_int(body, "rank", -1),
                         protocol_int(event, "rank", -1), protocol_text(event, "text"), now);
}

static int read_status(const json_t *body) {
  return (int)protocol_between(body, "status", -1, UINT8_MAX, -1);
}

static int read_signal(const json_t *body) {
  return (int)protocol_between(body, "signal", 0, SIGRTMAX, 0);
}

static void handle_process_end(Supervisor *s, const Machine *m, const json_t *body,
                               double now) {
  int64_t id = protocol_between(body, "id", 0, ID_LAST_RSH, 0);
  int status = read_status(body);
  Machine *first = supervisor_find_machine(s, 0);
  if (id == ID_MPIRUN && m == first)
    generation_note_mpirun(&s->generation, status, read_signal(body), now);
  bool has_ranks = s->generation.worker[m->first_rank].has_begun;
  if (id >= ID_FIRST_RSH && status != 0 && !has_ranks)
    generation_note_daemon(&s->generation, status, read_signal(body), m->name,
                           supervisor_blame(s, m));
  if (id >= ID_FIRST_RSH && first)
    supervisor_send(
        first, MSG_RSH_ENDED,
        json_pack("{s:I, s:I, s:i}", "generation", (json_int_t)s->generation.number, "id",
                  (json_int_t)(id - ID_FIRST_RSH), "status", status < 0 ? 255 : status));
}

static void handle_current(Supervisor *s, Machine *m, uint8_t type, const json_t *body,
                           double now) {
  int rank = (int)protocol_between(body, "rank", 0, INT_MAX, -1);
  bool is_own_rank = supervisor_find_machine(s, rank) == m;
  switch (type) {
    case MSG_WORKER_BEGAN:
      if (is_own_rank) generation_note_begin(&s->generation, rank);
      if (is_own_rank) s->last_output = now;
      if (is_own_rank) s->begun_time = now;
      return;
    case MSG_WORKER_ENDED:
      if (is_own_rank)
        generation_note_end(&s->generation, rank, read_status(body), read_signal(body), m->name,
                            now);
      return;
    case MSG_EVENT:
      if (is_own_rank) s->last_output = now;
      if (is_own_rank) handle_event(s, m, body, now);
      return;
    case MSG_PROCESS_ENDED:
      handle_process_end(s, m, body, now);
      return;
    case MSG_RSH: /* mpirun runs on the first machine */
      if (supervisor_find_machine(s, 0) == m) supervisor_pass_rsh(s, m, body);
      return;
    case MSG_FAILED:
      generation_blame_machine(&s->generation, supervisor_blame(s, m));
      generation_note_fault(&s->generation, now, "%s: %s", m->name,
                            protocol_text(body, "text"));
      return;
    case MSG_CLEAR:
      if (s->phase == PHASE_CLEAR) m->is_clear = true;
      return;
    default:
      return;
  }
}

/* Returns true if the generation ends for another reason than a machine that leaves. Status 3 is
 * no such reason: a batch system that stops an agent also stops its workers, which save and exit
 * with status 3. */
static bool is_ending(const Generation *g) {
  return g->has_fault || g->passed_status == ERR_USAGE ||
         (g->mpirun_ended > 0 && !g->passed_status);
}

static void handle_leave(Supervisor *s, Machine *m, const json_t *body, double now) {
  char why[400];
  bool has_workers = m->is_member && s->phase != PHASE_CONNECT;
  if (m->is_leaving) return;
  m->is_leaving = true;
  s->has_departed = true;
  snprintf(why, sizeof why, "%s leaves (%s)", m->name, protocol_text(body, "reason"));
  if (has_workers) {
    bool is_run = s->phase == PHASE_RUN;
    bool is_regrouping = s->phase == PHASE_STOP && s->is_regrouping;
    s->leave_time = now;
    if (((is_run && !is_ending(&s->generation)) || is_regrouping) && !supervisor_can_replace(s))
      supervisor_stop_launch(s, why, now);
    else if (is_run && !is_ending(&s->generation))
      supervisor_regroup(s, why, now);
    else if (is_run)
      console_say(s->console, "%s", why);
    return;
  }
  console_say(s->console, "%s", why);
  supervisor_send(m, MSG_END, json_object());
  if (m->is_member) supervisor_abandon_proof(s, now);
}

/* Returns true if the output belongs to a rank of this machine, or to mpirun or its daemons. */
static bool is_own_output(Supervisor *s, const Machine *m, const OutputHeader *header) {
  if (!m->is_member || header->generation != s->generation.number) return false;
  /* It is printed as it is; only rank 0 has a terminal. */
  if (header->stream == OUTPUT_TERMINAL && header->rank != 0) return false;
  return header->rank == OUTPUT_OF_MPIRUN ||
         (header->rank < (uint32_t)s->generation.world &&
          supervisor_find_machine(s, (int)header->rank) == m);
}

static Err handle_frame(Supervisor *s, Machine *m, const Frame *f, double now) {
  OutputHeader header;
  const uint8_t *bytes;
  size_t len;
  json_t *body;
  Err err = ERR_OK;
  if (f->type == MSG_OUTPUT) {
    if (!output_parse(f, &header, &bytes, &len) || !is_own_output(s, m, &header)) return ERR_OK;
    if (header.rank != OUTPUT_OF_MPIRUN) s->last_output = now;
    console_add(s->console, header.rank, header.stream, bytes, len);
    return ERR_OK;
  }
  if (f->type == PEER_PART) {
    supervisor_pass_part(s, m, f);
    return ERR_OK;
  }
  TRY(protocol_parse(f, m->name, &body));
  bool has_generation =
      s->phase == PHASE_RUN || s->phase == PHASE_STOP || s->phase == PHASE_CLEAR;
  bool is_current = has_generation && m->is_member &&
                    protocol_int(body, "generation", -1) == (int64_t)s->generation.number;
  if (f->type == MSG_HELLO && !m->has_hello)
    handle_hello(s, m, body, now);
  else if (f->type == MSG_LEAVE)
    handle_leave(s, m, body, now);
  else if (f->type == MSG_WARNING)
    console_warn(s->console, "%s: %s", m->name, protocol_text(body, "text"));
  else if (f->type >= PEER_SEND && f->type <= PEER_LAST)
    supervisor_handle_peer(s, m, f->type, body);
  else if (f->type == MSG_NETWORK_PORTS || f->type == MSG_NETWORK_RESULT)
    err = supervisor_handle_proof(s, m, f->type, body, now);
  else if (is_current)
    handle_current(s, m, f->type, body, now);
  json_decref(body);
  return err;
}

void supervisor_remove_machine(Supervisor *s, size_t i, double now) {
  Machine m = s->machine[i];
  s->machines--;
  memmove(&s->machine[i], &s->machine[i + 1], (s->machines - i) * sizeof *s->machine);
  supervisor_forget_copy(s, m.channel);
  machine_close(&m);
  Loss loss = m.is_leaving ? LOSS_LEFT : m.has_hello ? LOSS_FAILURE : LOSS_EARLY;
  m.source->lost(m.source->self, m.name, loss, now);
}

/* Handles the loss of a machine, whose channel has failed with the current error. */
static void lose_machine(Supervisor *s, size_t i, double now) {
  Machine *m = &s->machine[i];
  if (m->is_leaving && !m->is_member) {
    console_say(s->console, "%s has left", m->name);
  } else if (m->is_member && (s->phase == PHASE_RUN || s->phase == PHASE_STOP)) {
    if (!s->generation.has_fault) s->generation.is_lost = true;
    generation_blame_machine(&s->generation, supervisor_blame(s, m));
    generation_note_fault(&s->generation, now, "%s is lost: %s", m->name, err_message());
  } else if ((m->has_hello || !m->is_head) && !m->is_set_aside) {
    /* The source of this machine reports why its agent ended at once. */
    console_warn(s->console, "%s is lost: %s", m->name, err_message());
  }
  bool is_in_proof = s->proof && m->proof >= 0;
  supervisor_remove_machine(s, i, now);
  if (is_in_proof) supervisor_abandon_proof(s, now);
}

void supervisor_serve_machines(Supervisor *s, double now) {
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
    /* The agent has sent its last message and waits until this end is closed. */
    if (!err && channel_is_ended(m->channel)) {
      err = err_set(ERR_WORK, "its agent has ended");
      lost = err_copy();
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
  Err err = mem_grow(&s->machine, &s->machine_capacity, s->machines + 1, sizeof *s->machine);
  if (err) channel_close(a->channel);
  TRY(err);
  Machine *m = &s->machine[s->machines++];
  *m = (Machine){.channel = a->channel,
                 .source = source,
                 .slots = a->slots,
                 .max_slots = a->max_slots,
                 .is_head = a->is_head,
                 .is_clear = true,
                 .arrival = ++s->arrivals,
                 .proof = -1};
  memcpy(m->name, a->name, sizeof m->name);
  m->is_set_aside = standing_is_aside(&s->standing, m->name);
  if (m->is_set_aside)
    supervisor_tell_aside(m,
                          "it failed, or could not be used, repeatedly; repair it and start "
                          "the launch again to use it");
  channel_set_heartbeat(m->channel, HEARTBEAT_EVERY, HEARTBEAT_LIMIT);
  return ERR_OK;
}

Err supervisor_serve_sources(Supervisor *s, double now) {
  Arrival arrival;
  for (int i = 0; i < s->sources; i++) {
    Source *source = &s->source[i];
    TRY(source->advance(source->self, now));
    while (source->next(source->self, &arrival)) TRY(add_machine(s, &arrival, source));
  }
  return ERR_OK;
}
