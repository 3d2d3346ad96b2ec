/* Agents started through ssh. Depends on source_ssh.h, ssh, network, source_local. */
#include "launch/source_ssh.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/network.h"
#include "launch/protocol.h"
#include "launch/source_local.h"

#define STARTING_MAX 64   /* largest number of hosts to which ssh connects at the same time */
#define RETRY_FIRST  2.0  /* seconds before a lost host is tried again; doubled each time */
#define RETRY_MAX    60.0 /* longest of these waits in seconds */
#define END_TIME     5.0  /* seconds in which the agents must exit after the launch */

/* LEFT: the host has left on purpose and is not tried again. */
typedef enum { WAITING, STARTING, ARRIVED, CONNECTED, LEFT } Step;

typedef struct {
  const Host *host;
  bool is_local; /* this machine: Ssh.local starts its agent without ssh */
  Step step;
  SshAgent *agent;
  Channel *ready;
  bool was_tried; /* the first attempt has ended */
  bool is_failed; /* the last attempt has failed */
  SshFailure failure;
  double retry_at, delay;
} Entry;

typedef struct {
  const SshOptions *options;
  Entry *entry;
  size_t count;
  size_t min;
  bool is_begun; /* enough hosts have been reached */
  bool has_local;
  int local_max_slots; /* max_slots of the listed host that is this machine */
  Source local;
  char local_name[SOURCE_NAME_MAX]; /* name of this machine's Arrival */
} Ssh;

static bool resolves_to_own(const char *name, const NetworkList *own) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct addrinfo *all;
  bool found = false;
  if (getaddrinfo(name, NULL, &hints, &all) != 0) return false;
  for (const struct addrinfo *i = all; i; i = i->ai_next) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *bytes =
        i->ai_family == AF_INET6
            ? (const void *)&((struct sockaddr_in6 *)(void *)i->ai_addr)->sin6_addr
            : (const void *)&((struct sockaddr_in *)(void *)i->ai_addr)->sin_addr;
    if (inet_ntop(i->ai_family, bytes, text, sizeof text)) found |= network_is_own(own, text);
  }
  freeaddrinfo(all);
  return found;
}

/* Returns true if the host is this machine and the user is this process's. For another user ssh
 * is needed, because the agent must have that user's rights. */
static bool is_this_machine(const Host *host, const NetworkList *own) {
  if (!hosts_is_own_user(host)) return false;
  return hosts_is_local(host) || resolves_to_own(host->address, own);
}

static void schedule_retry(Entry *e, double now) {
  e->step = WAITING;
  e->retry_at = now + e->delay;
  e->delay = e->delay * 2 < RETRY_MAX ? e->delay * 2 : RETRY_MAX;
}

/* Ends a failed attempt and reports the error (err_message), unless the previous attempt failed
 * in the same way. */
static void end_attempt(Ssh *s, Entry *e, double now) {
  SshFailure failure = e->agent ? ssh_agent_failure(e->agent) : SSH_OTHER;
  bool is_news = !e->is_failed || failure != e->failure;
  if (!s->is_begun)
    log_error("%s", err_message());
  else if (is_news)
    log_warn("%s", err_message());
  e->is_failed = true;
  e->was_tried = true;
  e->failure = failure;
  ssh_agent_close(e->agent);
  e->agent = NULL;
  schedule_retry(e, now);
}

static void begin_attempt(Ssh *s, Entry *e, double now) {
  e->step = STARTING;
  if (ssh_agent_start(&e->agent, e->host, s->options, now)) end_attempt(s, e, now);
}

static void continue_attempt(Ssh *s, Entry *e, double now) {
  int from;
  int to;
  char name[SOURCE_NAME_MAX + 8];
  SshState state = ssh_agent_advance(e->agent, now);
  if (state == SSH_STARTING) return;
  snprintf(name, sizeof name, "host %s", e->host->name);
  if (state == SSH_READY) {
    ssh_agent_take(e->agent, &from, &to);
    if (channel_open(&e->ready, from, to, name) == ERR_OK) {
      channel_set_heartbeat(e->ready, HEARTBEAT_EVERY, 0);
      e->step = ARRIVED;
      e->was_tried = true;
      e->is_failed = false;
      return;
    }
  }
  end_attempt(s, e, now);
}

/* Sends heartbeats to an agent that waits until the hosts before it were tried. */
static void serve_arrived(Entry *e) {
  Err lost = channel_advance(e->ready);
  (void)lost; /* the supervisor reports it when it has taken the channel */
}

/* Prints what ssh and the agent wrote to standard error. */
static void print_lines(Entry *e, double now) {
  Str lines = {0};
  char *save;
  ssh_agent_advance(e->agent, now);
  ssh_agent_take_lines(e->agent, &lines);
  for (char *line = lines.len ? strtok_r(lines.s, "\r\n", &save) : NULL; line;
       line = strtok_r(NULL, "\r\n", &save))
    log_warn("%s: %s", e->host->name, line);
  str_free(&lines);
}

/* Once every host was reached or has failed: fails if too few were reached. */
static Err judge_start(Ssh *s) {
  size_t failed = 0;
  Str names = {0};
  for (size_t i = 0; i < s->count; i++) {
    const Entry *e = &s->entry[i];
    if (!e->is_local && !e->was_tried) return ERR_OK;
    if (!e->is_failed) continue;
    str_addf(&names, "%s%s", failed++ ? ", " : "", e->host->name);
  }
  s->is_begun = true;
  Err err = str_check(&names);
  if (!err && s->count - failed < s->min)
    err = err_set(ERR_WORK, "%zu of %zu hosts cannot be used: %s; see the messages above",
                  failed, s->count, str_text(&names));
  str_free(&names);
  return err;
}

static int poll_for(void *self, struct pollfd *fds, int room) {
  Ssh *s = self;
  int count = s->has_local ? s->local.poll_for(s->local.self, fds, room) : 0;
  for (size_t i = 0; i < s->count && count + 2 <= room; i++)
    if (s->entry[i].agent) count += ssh_agent_poll_for(s->entry[i].agent, fds + count);
  return count;
}

/* If the agent of this machine cannot be started, the launch continues without it, unless too
 * few hosts remain. */
static Err advance_local(Ssh *s, double now) {
  if (!s->has_local || s->local.advance(s->local.self, now) == ERR_OK) return ERR_OK;
  if (s->count - 1 < s->min) return ERR_WORK;
  log_warn("%s; this machine is left out", err_message());
  for (size_t i = 0; i < s->count; i++) s->entry[i].is_failed |= s->entry[i].is_local;
  s->local.close(s->local.self);
  s->has_local = false;
  return ERR_OK;
}

static Err advance_agents(void *self, double now) {
  Ssh *s = self;
  size_t starting = 0;
  TRY(advance_local(s, now));
  for (size_t i = 0; i < s->count; i++) starting += s->entry[i].step == STARTING;
  for (size_t i = 0; i < s->count; i++) {
    Entry *e = &s->entry[i];
    if (e->is_local) continue;
    if (e->step == STARTING) continue_attempt(s, e, now);
    if (e->step == ARRIVED) serve_arrived(e);
    if (e->step == CONNECTED) print_lines(e, now);
    bool is_due = e->step == WAITING && now >= e->retry_at && (!e->was_tried || s->is_begun);
    if (!is_due || starting >= STARTING_MAX) continue;
    begin_attempt(s, e, now);
    starting++;
  }
  return s->is_begun ? ERR_OK : judge_start(s);
}

/* At the start, returns hosts in their order, so that ranks are numbered in this order. */
static bool take_arrival(void *self, Arrival *arrival) {
  Ssh *s = self;
  if (s->has_local && s->local.next(s->local.self, arrival)) {
    memcpy(s->local_name, arrival->name, sizeof s->local_name);
    arrival->max_slots = s->local_max_slots;
    return true;
  }
  for (size_t i = 0; i < s->count; i++) {
    Entry *e = &s->entry[i];
    if (!s->is_begun && !e->is_local && !e->was_tried) return false;
    if (e->step != ARRIVED) continue;
    *arrival = (Arrival){
        .channel = e->ready, .slots = e->host->slots, .max_slots = e->host->max_slots};
    snprintf(arrival->name, sizeof arrival->name, "%s", e->host->name);
    e->ready = NULL;
    e->step = CONNECTED;
    return true;
  }
  return false;
}

static void note_lost(void *self, const char *name, Loss loss, double now) {
  Ssh *s = self;
  if (s->has_local && strcmp(name, s->local_name) == 0) {
    s->local.lost(s->local.self, name, loss, now);
    return;
  }
  for (size_t i = 0; i < s->count; i++) {
    Entry *e = &s->entry[i];
    if (e->step != CONNECTED || strcmp(e->host->name, name) != 0) continue;
    print_lines(e, now);
    ssh_agent_close(e->agent);
    e->agent = NULL;
    /* The agent had started, so the delay before the next attempt is reset. */
    if (loss == LOSS_FAILURE) e->delay = RETRY_FIRST;
    schedule_retry(e, now);
    if (loss == LOSS_LEFT) e->step = LEFT;
  }
}

static int count_open(void *self) {
  const Ssh *s = self;
  int open = 0;
  for (size_t i = 0; i < s->count; i++) {
    const Entry *e = &s->entry[i];
    open += e->is_local ? s->has_local : e->step != LEFT;
  }
  return open;
}

/* Waits until the agents have exited, so that no process is left when this program ends. */
static void await_agents(Ssh *s) {
  struct timespec pause = {.tv_nsec = 10000000};
  double limit = progress_clock() + END_TIME;
  for (size_t i = 0; i < s->count; i++) {
    const Entry *e = &s->entry[i];
    while (e->agent && e->step == CONNECTED && !ssh_agent_has_ended(e->agent) &&
           progress_clock() < limit)
      nanosleep(&pause, NULL);
  }
}

static void close_source(void *self) {
  Ssh *s = self;
  await_agents(s);
  for (size_t i = 0; i < s->count; i++) {
    channel_close(s->entry[i].ready);
    ssh_agent_close(s->entry[i].agent);
  }
  if (s->has_local) s->local.close(s->local.self);
  mem_free(s->entry);
  mem_free(s);
}

static Err set_entries(Ssh *s, const HostList *hosts) {
  NetworkList own;
  TRY(network_list(&own));
  TRY(mem_alloc(&s->entry, hosts->count, sizeof *s->entry));
  s->count = hosts->count;
  for (size_t i = 0; i < s->count; i++) {
    Entry *e = &s->entry[i];
    e->host = &hosts->host[i];
    e->delay = RETRY_FIRST;
    if (!is_this_machine(e->host, &own)) continue;
    if (s->has_local)
      return err_set(ERR_USAGE,
                     "host %s is this machine, which is listed already; list it once",
                     e->host->name);
    TRY(source_local_open(&s->local, e->host->slots));
    e->is_local = true;
    s->has_local = true;
    s->local_max_slots = e->host->max_slots;
  }
  return ERR_OK;
}

Err source_ssh_open(Source *source, const HostList *hosts, const SshOptions *options, int min) {
  Ssh *s;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->options = options;
  s->min = (size_t)min;
  Err err = set_entries(s, hosts);
  if (err) {
    ErrRecord why = err_copy();
    close_source(s);
    return err_give(&why);
  }
  *source = (Source){.self = s,
                     .expected = (int)hosts->count,
                     .poll_for = poll_for,
                     .advance = advance_agents,
                     .next = take_arrival,
                     .lost = note_lost,
                     .count_open = count_open,
                     .close = close_source};
  return ERR_OK;
}
