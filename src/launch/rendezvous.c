/* The head's side of the rendezvous: agents that are authenticated and are joining. Depends
 * on door, protocol. */
#include "launch/rendezvous.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/str.h"
#include "base/utf8.h"
#include "launch/door.h"
#include "launch/protocol.h"
#include "launch/rendezvous_internal.h"

#define JOIN_LIMIT 10.0 /* time limit in seconds for an authenticated agent to join */
/* Largest number of authenticated agents that are joining at the same time. */
#define JOINING_MAX   256
#define COMMAND_SHORT 200 /* size of the buffer for a shortened command */

typedef enum {
  JOIN_WAITS,   /* waiting for its MSG_JOIN */
  JOIN_DONE,    /* accepted; it is the next arrival */
  JOIN_REFUSED, /* refused; the reason is being sent */
} JoinState;

typedef struct {
  Channel *channel;
  JoinState state;
  double since;
  char address[DOOR_TEXT_MAX];
  char name[SOURCE_NAME_MAX];
} Joiner;

struct Rendezvous {
  Door *door;
  char id[RENDEZVOUS_ID_MAX + 1];
  Str command;
  Joiner *joiner;
  size_t joiners, capacity;
};

Err rendezvous_check_id(const char *id) {
  size_t len = strlen(id);
  if (len < 1 || len > RENDEZVOUS_ID_MAX || utf8_valid(id, len) != len)
    return err_set(ERR_USAGE, "--rdzv-id '%s': pass 1 to %d bytes of UTF-8 text", id,
                   RENDEZVOUS_ID_MAX);
  return ERR_OK;
}

Err rendezvous_open_at(Rendezvous **rendezvous, const char *address, int port,
                       const RendezvousSpec *spec, int *cause) {
  Rendezvous *r;
  *rendezvous = NULL;
  *cause = 0;
  TRY(rendezvous_check_id(spec->id));
  TRY(mem_alloc(&r, 1, sizeof *r));
  snprintf(r->id, sizeof r->id, "%s", spec->id);
  str_add(&r->command, spec->command);
  Err err = str_check(&r->command);
  if (!err) err = door_open(&r->door, address, port, &spec->key, cause);
  if (err)
    rendezvous_close(r);
  else
    *rendezvous = r;
  return err;
}

Err rendezvous_listen(Rendezvous **r, const char *address, int port,
                      const RendezvousSpec *spec) {
  int cause;
  return rendezvous_open_at(r, address, port, spec, &cause);
}

int rendezvous_port(const Rendezvous *r) {
  return door_port(r->door);
}

void rendezvous_close(Rendezvous *r) {
  if (!r) return;
  for (size_t i = 0; i < r->joiners; i++) channel_close(r->joiner[i].channel);
  mem_free(r->joiner);
  str_free(&r->command);
  door_close(r->door);
  mem_free(r);
}

static void remove_joiner(Rendezvous *r, size_t i) {
  r->joiners--;
  memmove(&r->joiner[i], &r->joiner[i + 1], (r->joiners - i) * sizeof *r->joiner);
}

/* Returns the offset of the first word in which two commands differ. */
static size_t find_difference(const char *a, const char *b) {
  size_t at = 0;
  while (a[at] && a[at] == b[at]) at++;
  while (at && a[at - 1] != ' ') at--;
  return at;
}

/* Copies a command for a message. A long one is reduced to its first word and the words from
 * offset `from`. */
static void shorten_command(const char *command, size_t from, char out[COMMAND_SHORT]) {
  size_t first = strcspn(command, " ");
  char start[24], name[COMMAND_SHORT / 4], words[COMMAND_SHORT / 2];
  bool is_long = strlen(command) >= sizeof words && from > first + 1;
  const char *rest = is_long ? command + from : command;
  size_t copied = utf8_visible(rest, words, sizeof words);
  const char *end = rest[copied] ? " …" : "";
  snprintf(start, sizeof start, "%.*s", (int)first, command);
  utf8_visible(start, name, sizeof name);
  snprintf(out, COMMAND_SHORT, "%s%s%s%s", is_long ? name : "", is_long ? " … " : "", words,
           end);
}

static void explain_command(const char *head, const char *agent, char *why, size_t room) {
  char ours[COMMAND_SHORT], theirs[COMMAND_SHORT];
  size_t from = find_difference(head, agent);
  shorten_command(head, from, ours);
  shorten_command(agent, from, theirs);
  snprintf(why, room,
           "the head's command is '%s', the joining machine's '%s'; start both with the same "
           "command "
           "after --",
           ours, theirs);
}

/* Writes the reason why the head refuses this agent to `why`; "" if it accepts it. */
static void judge_joiner(const Rendezvous *r, const json_t *body, char *why, size_t room) {
  const char *id = protocol_text(body, "id"), *version = protocol_text(body, "version");
  const char *command = protocol_text(body, "command");
  why[0] = '\0';
  if (strcmp(version, TRIREME_VERSION) != 0)
    snprintf(why, room,
             "the head runs Trireme %s, the joining machine %s; install the same version",
             TRIREME_VERSION, version);
  else if (strcmp(id, r->id) != 0)
    snprintf(
        why, room,
        "the head's rendezvous is '%s', the joining machine's '%s'; start both with the same "
        "--rdzv-id",
        r->id, id);
  else if (strcmp(command, str_text(&r->command)) != 0)
    explain_command(str_text(&r->command), command, why, room);
}

static Err answer_joiner(Rendezvous *r, Joiner *j, const Frame *f) {
  char why[2 * COMMAND_SHORT + 2 * RENDEZVOUS_ID_MAX + 200];
  json_t *body;
  if (f->type != MSG_JOIN)
    return err_set(ERR_WORK,
                   "%s sent a message of type %d instead of the id of the rendezvous; install "
                   "the same version of trireme on all machines",
                   j->address, f->type);
  TRY(protocol_parse(f, j->address, &body));
  judge_joiner(r, body, why, sizeof why);
  const char *host = protocol_text(body, "host");
  if (host[0])
    snprintf(j->name, sizeof j->name, "%.150s (%s)", host, j->address);
  else
    snprintf(j->name, sizeof j->name, "%s", j->address);
  json_decref(body);
  if (!why[0]) {
    j->state = JOIN_DONE;
    return protocol_send(j->channel, MSG_JOINED, json_object());
  }
  log_warn("%s may not join: %s", j->name, why);
  j->state = JOIN_REFUSED;
  TRY(protocol_send(j->channel, MSG_NOT_JOINED, json_pack("{s:s}", "text", why)));
  return channel_end(j->channel);
}

/* Continues the joining of one agent. After an error the caller must close its connection. */
static Err advance_joiner(Rendezvous *r, Joiner *j, double now) {
  Frame f;
  if (j->state == JOIN_DONE) return ERR_OK;
  Err err = channel_advance(j->channel);
  if (j->state == JOIN_WAITS && channel_next(j->channel, &f)) {
    TRY(answer_joiner(r, j, &f));
    if (!err) err = channel_advance(j->channel);
  }
  if (!err && now - j->since > JOIN_LIMIT)
    err = err_set(ERR_WORK,
                  "%s has the right key but did not join within %.0f s; start 'trireme launch' "
                  "there again",
                  j->address, JOIN_LIMIT);
  return err;
}

static Err take_visitors(Rendezvous *r, double now) {
  Joiner j = {.state = JOIN_WAITS, .since = now};
  while (r->joiners < JOINING_MAX && door_next(r->door, &j.channel, j.address)) {
    Err err = mem_grow(&r->joiner, &r->capacity, r->joiners + 1, sizeof *r->joiner);
    if (err) {
      channel_close(j.channel);
      return err;
    }
    r->joiner[r->joiners++] = j;
  }
  return ERR_OK;
}

static Err advance_source(void *self, double now) {
  Rendezvous *r = self;
  door_advance(r->door, now);
  TRY(take_visitors(r, now));
  for (size_t i = 0; i < r->joiners;) {
    Joiner *j = &r->joiner[i];
    if (!advance_joiner(r, j, now)) {
      i++;
      continue;
    }
    /* A refused agent closes the connection after it has read the reason, so its error is not
     * reported. */
    if (j->state != JOIN_REFUSED) log_warn("rendezvous: %s", err_message());
    channel_close(j->channel);
    remove_joiner(r, i);
  }
  return ERR_OK;
}

static int poll_source(void *self, struct pollfd *fds, int room) {
  const Rendezvous *r = self;
  int count = door_poll_for(r->door, fds, room);
  for (size_t i = 0; i < r->joiners; i++) {
    struct pollfd two[2];
    int events;
    channel_events(r->joiner[i].channel, two, &events);
    for (int k = 0; k < events && count < room; k++) fds[count++] = two[k];
  }
  return count;
}

static bool take_arrival(void *self, Arrival *arrival) {
  Rendezvous *r = self;
  for (size_t i = 0; i < r->joiners; i++) {
    Joiner *j = &r->joiner[i];
    if (j->state != JOIN_DONE) continue;
    *arrival = (Arrival){.channel = j->channel};
    memcpy(arrival->name, j->name, sizeof arrival->name);
    remove_joiner(r, i);
    return true;
  }
  return false;
}

/* Nothing to do: if its agent is started again, a lost machine joins again by itself. */
static void ignore_loss(void *self, const char *name, Loss loss, double now) {
  (void)self;
  (void)name;
  (void)loss;
  (void)now;
}

static void close_source(void *self) {
  rendezvous_close(self);
}

void rendezvous_to_source(Rendezvous *r, Source *source) {
  *source = (Source){.self = r,
                     .expected = 0, /* unknown; --nnodes is required */
                     .poll_for = poll_source,
                     .advance = advance_source,
                     .next = take_arrival,
                     .lost = ignore_loss,
                     .close = close_source};
}
