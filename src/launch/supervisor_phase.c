/* Messages to machines and changes of phase, for the other files of the supervisor. Depends on
 * protocol. */
#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

void supervisor_send(Machine *m, uint8_t type, json_t *body) {
  if (!m->channel) {
    json_decref(body);
    return;
  }
  if (protocol_send(m->channel, type, body)) log_warn("%s: %s", m->name, err_message());
}

void supervisor_enter(Supervisor *s, Phase phase, double now) {
  s->phase = phase;
  s->phase_start = now;
}

void supervisor_finish(Supervisor *s, Err result, bool is_reported) {
  s->phase = PHASE_FINISHED;
  s->result = result;
  s->is_reported = is_reported;
  if (result && !is_reported) s->error = err_copy();
}

void supervisor_tell_aside(Machine *m, const char *why) {
  supervisor_send(m, MSG_ASIDE, json_pack("{s:o}", "text", protocol_make_text(why)));
}

void supervisor_send_all(Supervisor *s, uint8_t type) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member)
      supervisor_send(&s->machine[i], type,
                      json_pack("{s:I}", "generation", (json_int_t)s->generation.number));
}

void supervisor_stop_workers(Supervisor *s, double now) {
  s->generation.is_stopping = true;
  supervisor_send_all(s, MSG_STOP);
  supervisor_enter(s, PHASE_STOP, now);
}

void supervisor_say_stopping(Supervisor *s) {
  if (s->phase != PHASE_RUN && s->phase != PHASE_STOP) return;
  console_say(s->console, "stopping: workers save and end; a second signal ends them at once");
}

void supervisor_regroup(Supervisor *s, const char *why, double now) {
  snprintf(s->reason, sizeof s->reason, "%s", why);
  console_say(s->console, "%s: saving, then continuing on the machines there are", why);
  s->is_regrouping = true;
  supervisor_stop_workers(s, now);
}

void supervisor_stop_launch(Supervisor *s, const char *why, double now) {
  console_say(s->console,
              "%s, and no other machine can take its place: stopping, workers save and end",
              why);
  s->is_regrouping = false;
  s->lacks_machines = true;
  if (s->phase == PHASE_RUN) supervisor_stop_workers(s, now);
}

/* Returns the number of machines that take part or may still come; INT_MAX: there is no limit. A
 * machine that is leaving does not come back, except this one, whose agent is started again. */
static int count_possible(const Supervisor *s) {
  int open = 0;
  for (int i = 0; i < s->sources; i++) {
    if (!s->source[i].count_open) return INT_MAX;
    open += s->source[i].count_open(s->source[i].self);
  }
  for (size_t i = 0; i < s->machines; i++)
    open -= s->machine[i].is_leaving && !s->machine[i].is_head;
  return open;
}

bool supervisor_can_gather(const Supervisor *s) {
  return count_possible(s) >= s->spec.min;
}

bool supervisor_can_replace(const Supervisor *s) {
  int possible = count_possible(s);
  for (size_t i = 0; i < s->machines; i++)
    possible -= s->machine[i].is_set_aside && !s->machine[i].is_leaving;
  return possible >= s->spec.min;
}

int supervisor_count_ready(const Supervisor *s) {
  int ready = 0;
  for (size_t i = 0; i < s->machines; i++) ready += machine_is_ready(&s->machine[i]);
  return ready;
}

Machine *supervisor_find_machine(Supervisor *s, int rank) {
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (m->is_member && rank >= (int)m->first_rank && rank < (int)m->first_rank + m->ranks)
      return m;
  }
  return NULL;
}

const char *supervisor_blame(const Supervisor *s, const Machine *m) {
  int others = supervisor_count_ready(s) - machine_is_ready(m);
  bool is_possible = !m->is_head && !m->is_leaving && others > 0 && others >= s->spec.min;
  return is_possible ? m->name : NULL;
}
