/* The head's side of in-memory checkpoint copies (launch/peer.h): chooses the receiver of a copy
 * and forwards its parts. One copy is transferred at a time; of the copies that are completed
 * meanwhile, the newest is next. Depends on machine, peer. */
#include <stdio.h>
#include <string.h>

#include "launch/peer.h"
#include "launch/supervisor_internal.h"

#define ASKED_MAX 4 /* largest number of parts that are requested and have not arrived */
#define UNSENT_MAX \
  ((size_t)1 << 20) /* bytes queued for the receiver above which no part is requested */

static Machine *find_by_channel(Supervisor *s, const Channel *c) {
  for (size_t i = 0; c && i < s->machines; i++)
    if (s->machine[i].channel == c) return &s->machine[i];
  return NULL;
}

/* Returns the next member after the sender; NULL if there is no other. */
static Machine *choose_receiver(Supervisor *s, const Machine *holder) {
  size_t at = (size_t)(holder - s->machine);
  for (size_t k = 1; k < s->machines; k++) {
    Machine *m = &s->machine[(at + k) % s->machines];
    if (m->is_member && !m->is_leaving) return m;
  }
  return NULL;
}

/* Requests parts. A request that cannot be queued now is not counted, so that
 * supervisor_continue_copy repeats it. */
static void ask_for_parts(Supervisor *s) {
  PeerRelay *r = &s->peer;
  while (r->id && r->asked < ASKED_MAX && channel_unsent(r->to) < UNSENT_MAX) {
    if (protocol_send(r->from, PEER_READ, json_pack("{s:I}", "id", (json_int_t)r->id))) return;
    r->asked++;
  }
}

static void begin_copy(Supervisor *s) {
  PeerRelay *r = &s->peer;
  Machine *from = find_by_channel(s, r->next_from);
  Machine *to = from ? choose_receiver(s, from) : NULL;
  r->next_from = NULL;
  if (!to) return;
  uint32_t id = r->last_id + 1;
  if (protocol_send(from->channel, PEER_SEND,
                    json_pack("{s:I, s:s}", "id", (json_int_t)id, "dir", r->next_dir)))
    return; /* the sender's queue is full: this copy is not transferred */
  r->last_id = id;
  r->id = id;
  r->from = from->channel;
  r->to = to->channel;
  r->number = from->copy;
  r->asked = 0;
  ask_for_parts(s);
}

static void end_copy(Supervisor *s) {
  s->peer.id = 0;
  if (s->peer.next_from) begin_copy(s);
}

void supervisor_note_copy(Supervisor *s, Machine *m, const json_t *event) {
  PeerRelay *r = &s->peer;
  m->copy = ++r->copies;
  r->next_from = m->channel;
  snprintf(r->next_dir, sizeof r->next_dir, "%s", protocol_text(event, "dir"));
  if (!r->id) begin_copy(s);
}

void supervisor_pass_part(Supervisor *s, const Machine *from, const Frame *f) {
  PeerRelay *r = &s->peer;
  uint32_t id;
  uint8_t kind;
  const uint8_t *bytes;
  size_t len;
  if (!peer_parse(f, &id, &kind, &bytes, &len) || !id || id != r->id ||
      from->channel != r->from)
    return;              /* the part belongs to a transfer that was cancelled */
  if (!r->asked) return; /* the sender has sent more parts than were requested */
  r->asked--;
  if (channel_send(r->to, PEER_PART, f->data, f->len)) {
    end_copy(s); /* the channel of the receiver has failed */
    return;
  }
  if (kind != PART_END) ask_for_parts(s);
}

void supervisor_handle_peer(Supervisor *s, Machine *m, uint8_t type, const json_t *body) {
  PeerRelay *r = &s->peer;
  if (!r->id || protocol_int(body, "id", 0) != (int64_t)r->id) return;
  if (type == PEER_STORED && m->channel == r->to) {
    m->copy = r->number;
    end_copy(s);
  } else if (type == PEER_FAILED && (m->channel == r->to || m->channel == r->from)) {
    if (!r->is_warned)
      console_warn(s->console,
                   "%s: an in-memory copy was not stored on a second machine: %s; later ones "
                   "are tried without a message",
                   m->name, protocol_text(body, "text"));
    r->is_warned = true;
    end_copy(s);
  }
}

void supervisor_continue_copy(Supervisor *s) {
  if (s->peer.id) ask_for_parts(s);
}

void supervisor_forget_copy(Supervisor *s, const Channel *lost) {
  PeerRelay *r = &s->peer;
  if (r->next_from == lost) r->next_from = NULL;
  if (r->id && (r->from == lost || r->to == lost)) end_copy(s);
}

void supervisor_cancel_copy(Supervisor *s) {
  s->peer.id = 0;
  s->peer.next_from = NULL;
}
