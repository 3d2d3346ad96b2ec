/* Begins a generation: members, ranks, environment, mpirun. Depends on mpirun, machine,
 * protocol. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "launch/mpirun.h"
#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

extern char **environ;

static void count_members(const Supervisor *s, int *members, int *world) {
  *members = 0;
  *world = 0;
  for (size_t i = 0; i < s->machines; i++) {
    if (!s->machine[i].is_member) continue;
    (*members)++;
    *world += s->machine[i].ranks;
  }
}

/* Returns a port that is currently free on this machine. The first member, whose address is
 * MASTER_ADDR, may be another machine, so a program that listens there must still check it. */
static int find_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t len = sizeof address;
  /* Default port of torchrun. */
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 29500;
  if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
      getsockname(fd, (struct sockaddr *)&address, &len) == 0)
    port = ntohs(address.sin_port);
  if (fd >= 0) close(fd);
  return port;
}

/* Returns true for variables of this process that workers on other machines need too. */
static bool is_passed_on(const char *variable) {
  static const char *const own[] = {"TRIREME_AGENT", "TRIREME_PROGRAM", "TRIREME_EVENT_FD",
                                    "TRIREME_RESTART", "TRIREME_PEER_DIR"};
  static const char *const passed[] = {"TRIREME_",  "NCCL_",     "OMP_",
                                       "OMPI_MCA_", "NO_COLOR=", "TERM="};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (str_starts(variable, own[i])) return false;
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
    if (str_starts(variable, passed[i])) return true;
  return false;
}

static json_t *pack_environment(void) {
  json_t *env = json_object();
  char name[256];
  for (char **at = environ; *at; at++) {
    size_t n = strcspn(*at, "=");
    if (!is_passed_on(*at) || n >= sizeof name || !(*at)[n]) continue;
    memcpy(name, *at, n);
    name[n] = '\0';
    if (json_object_set_new(env, name, json_string((*at) + n + 1)))
      log_warn("the environment variable %s is not UTF-8 and is not set on the other machines",
               name);
  }
  return env;
}

static json_t *pack_command(const LaunchSpec *spec) {
  json_t *argv = json_array();
  for (int i = 0; i < spec->args; i++) json_array_append_new(argv, json_string(spec->argv[i]));
  return argv;
}

/* Returns the number of ranks if --nnodes MAX machines take part and each machine that joins has as
 * many ranks as the largest member. A new run uses at least this many micro-batches per step, so
 * that it can continue on this many ranks. */
static int count_max_ranks(const Supervisor *s, int members, int world) {
  int most = 1;
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member && s->machine[i].ranks > most) most = s->machine[i].ranks;
  return s->spec.max > members ? world + (s->spec.max - members) * most : world;
}

/* Makes the part of MSG_BEGIN that is the same for every member; begin_members adds the ranks
 * of each. */
static json_t *pack_begin(const Supervisor *s, int members, int world) {
  char dir[FILE_PATH_MAX];
  struct winsize size = {0};
  if (!getcwd(dir, sizeof dir)) snprintf(dir, sizeof dir, "/");
  if (s->spec.has_terminal) ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  if (s->spec.has_terminal && !size.ws_col) size.ws_col = 80;
  return json_pack(
      "{s:I, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:s, s:o, s:o, s:i, s:i, s:b, s:b}",
      "generation", (json_int_t)s->generation.number, "world_size", world, "max_ranks",
      count_max_ranks(s, members, world), "groups", members, "restart_count", s->restarts,
      "max_restarts", s->spec.max_restarts, "reason", protocol_make_text(s->reason),
      "master_port", find_port(), "dir", dir, "argv", pack_command(&s->spec), "env",
      pack_environment(), "rows", (int)size.ws_row, "columns", (int)size.ws_col, "alone",
      world == 1, "has_trained", s->last_good > 0);
}

static Machine *find_first(Supervisor *s) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member) return &s->machine[i];
  return NULL;
}

/* Returns the environment variables for one member: those of this process (the agent of this
 * machine has them already), and NCCL_SOCKET_IFNAME with the network card unless the user has
 * set it. The '=' before the card's name makes NCCL match it exactly. */
static json_t *pack_member_environment(const Machine *m, const json_t *env) {
  char card[NETWORK_CARD_MAX + 1];
  json_t *own = m->is_head ? json_object() : json_copy((json_t *)(uintptr_t)env);
  snprintf(card, sizeof card, "=%s", m->card);
  if (m->card[0] && !getenv("NCCL_SOCKET_IFNAME"))
    json_object_set_new(own, "NCCL_SOCKET_IFNAME", json_string(card));
  return own;
}

static void begin_members(Supervisor *s, const json_t *begin) {
  int group = 0;
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (!m->is_member) continue;
    json_t *body = json_copy((json_t *)(uintptr_t)begin);
    json_object_set_new(body, "first_rank", json_integer(m->first_rank));
    json_object_set_new(body, "local_size", json_integer(m->ranks));
    json_object_set_new(body, "group_rank", json_integer(group++));
    json_object_set_new(body, "master_addr", json_string(find_first(s)->address));
    json_object_set_new(body, "env", pack_member_environment(m, json_object_get(begin, "env")));
    supervisor_send(m, MSG_BEGIN, body);
  }
}

static Err start_mpirun(Supervisor *s, int members, const char *include) {
  MpirunHost *host;
  size_t hosts = 0;
  Machine *first = find_first(s);
  TRY(mem_alloc(&host, (size_t)members, sizeof *host));
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member)
      host[hosts++] = (MpirunHost){s->machine[i].address, s->machine[i].ranks};
  json_t *argv = mpirun_command(&(MpirunSpec){
      .host = host, .hosts = hosts, .include = include, .is_root = geteuid() == 0});
  supervisor_send(first, MSG_START,
                  json_pack("{s:I, s:i, s:o}", "generation", (json_int_t)s->generation.number,
                            "id", ID_MPIRUN, "argv", argv));
  mem_free(host);
  return ERR_OK;
}

/* Seconds after which a run that rank 0 has created should be visible here, also by NFS. */
#define VISIBLE_LIMIT 60.0

void supervisor_name_logs(Supervisor *s, double now) {
  if (s->has_named_logs) return;
  if (console_has_logs(s->console)) {
    s->has_named_logs = true;
    console_say(s->console, "log files in %s", s->spec.log_dir);
  } else if (console_has_lost_logs(s->console)) {
    s->has_named_logs = true; /* a warning has given the reason */
  } else if (s->run_time > 0 && now - s->run_time > VISIBLE_LIMIT) {
    s->has_named_logs = true;
    console_warn(
        s->console,
        "there are no log files: the run that rank 0 has created is not visible on this "
        "machine; pass --log-dir with a directory of this machine");
  }
}

static void announce_generation(Supervisor *s, int members, int world, double now) {
  char text[700];
  Machine *first = find_first(s);
  int n = snprintf(text, sizeof text, "%d rank%s on %d machine%s", world, world == 1 ? "" : "s",
                   members, members == 1 ? "" : "s");
  if (members == 1)
    snprintf(text + n, sizeof text - (size_t)n, " (%s)", first->name);
  else
    snprintf(text + n, sizeof text - (size_t)n, " over %s", s->network);
  if (s->restarts)
    console_say(s->console, "restart %d: %s", s->restarts, text);
  else
    console_say(s->console, "%s", text);
  supervisor_name_logs(s, now);
  snprintf(text, sizeof text, "generation %u: %d rank%s%s%s", s->generation.number, world,
           world == 1 ? "" : "s", *s->reason ? "; " : "", s->reason);
  console_mark(s->console, (uint32_t)world, text);
}

Err supervisor_start_generation(Supervisor *s, const char *include, double now) {
  int members, world;
  count_members(s, &members, &world);
  TRY(generation_begin(&s->generation, s->generation.number + 1, world));
  announce_generation(s, members, world, now);
  json_t *begin = pack_begin(s, members, world);
  if (!begin) return err_set(ERR_WORK, "out of memory for a launch message");
  Err err = protocol_check_size(begin);
  if (!err) begin_members(s, begin);
  json_decref(begin);
  TRY(err);
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].is_member) TRY(standing_note_proven(&s->standing, s->machine[i].name));
  supervisor_enter(s, PHASE_RUN, now);
  s->start_time = now;
  s->last_output = now;
  s->is_extended = false;
  s->has_departed = false;
  s->unconnected_since = 0;
  s->next_test = 0;
  return world == 1 ? ERR_OK : start_mpirun(s, members, include);
}

static Machine *find_member(Supervisor *s, const char *host) {
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (m->is_member && (strcmp(m->address, host) == 0 || strcmp(m->name, host) == 0)) return m;
  }
  return NULL;
}

void supervisor_pass_rsh(Supervisor *s, Machine *from, const json_t *body) {
  json_int_t generation = (json_int_t)s->generation.number;
  int64_t id = protocol_between(body, "id", 0, ID_LAST_RSH - ID_FIRST_RSH, 0);
  const char *host = protocol_text(body, "host");
  Machine *to = find_member(s, host);
  if (!to) {
    console_warn(s->console, "mpirun asked for a daemon on %s, which is no member of this run",
                 host);
    supervisor_send(from, MSG_RSH_ENDED,
                    json_pack("{s:I, s:I, s:i}", "generation", generation, "id", (json_int_t)id,
                              "status", 1));
    return;
  }
  supervisor_send(to, MSG_START,
                  json_pack("{s:I, s:I, s:[s, s, s]}", "generation", generation, "id",
                            (json_int_t)(ID_FIRST_RSH + id), "argv", "/bin/sh", "-c",
                            protocol_text(body, "command")));
}
