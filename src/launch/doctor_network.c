/* Selects the network that all hosts share and tests the ports that MPI uses. Over the best
 * candidate, every host listens on three ports and all others connect to them:
 *   from 1024 up      Open MPI's data connections (btl_tcp binds to the first free port)
 *   kernel's choice   Open MPI's daemons (oob_tcp); also used for measurements between pairs
 *   end of the range  the highest local ports of the kernel, which a firewall rule may omit
 * Depends on doctor_hosts.h. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "launch/doctor_hosts.h"

#define LISTEN_SECONDS 30.0
#define TRY_SECONDS    60.0
#define FIRST_PORT     1024
/* Distance of the third port from the end of the kernel's port range. */
#define END_PORTS        200
#define CANDIDATES_TRIED 4

/* A connection that failed. */
typedef struct {
  size_t from, to;
  uint16_t port;
  char why[LINK_WHY];
} Failure;

typedef struct {
  Failure *list;
  size_t count, cap;
} Failures;

static Err draw_token(char hex[2 * LINK_TOKEN + 1]) {
  uint8_t bytes[LINK_TOKEN];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return err_errno("cannot read random bytes from", "the kernel");
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
  return ERR_OK;
}

static Err add_failure(Failures *f, size_t from, size_t to, uint16_t port, const char *why) {
  TRY(mem_grow(&f->list, &f->cap, f->count + 1, sizeof *f->list));
  Failure *x = &f->list[f->count++];
  *x = (Failure){.from = from, .to = to, .port = port};
  snprintf(x->why, sizeof x->why, "%.*s", LINK_WHY - 1, why);
  return ERR_OK;
}

/* Lets every host of the network listen on its ports. */
static Err listen_everywhere(DoctorHosts *d, Failures *failures) {
  Sessions *s = &d->sessions;
  for (size_t i = 0; i < s->count; i++) {
    uint64_t last = d->host[i].facts.port_last;
    memset(d->host[i].port, 0, sizeof d->host[i].port);
    if (d->host[i].address[0])
      session_ask(&s->list[i],
                  json_pack("{s:s, s:s, s:s, s:[i,i,i]}", "ask", "listen", "address",
                            d->host[i].address, "token", d->token, "ports", FIRST_PORT, 0,
                            last > END_PORTS ? (int)(last - END_PORTS) : 0));
  }
  sessions_wait(s, LISTEN_SECONDS);
  for (size_t i = 0; i < s->count; i++) {
    const json_t *ports = json_object_get(s->list[i].answer, "ports");
    if (!d->host[i].address[0] || !s->list[i].is_ready) continue;
    for (size_t k = 0; k < DOCTOR_PORTS; k++)
      d->host[i].port[k] = (uint16_t)json_integer_value(json_array_get(ports, k));
    if (json_array_size(ports) != DOCTOR_PORTS)
      TRY(add_failure(failures, i, i, 0, protocol_text(s->list[i].answer, "why")));
  }
  return ERR_OK;
}

/* Returns true if host `from` must connect to target t, the number of a host and port. */
static bool is_target(const DoctorHosts *d, size_t from, size_t t) {
  size_t to = t / DOCTOR_PORTS;
  return to != from && d->host[to].address[0] && d->host[to].port[t % DOCTOR_PORTS] &&
         d->sessions.list[to].is_ready;
}

static json_t *make_targets(const DoctorHosts *d, size_t from, size_t begin, size_t end) {
  json_t *list = json_array();
  for (size_t t = begin; t < end; t++) {
    const HostFacts *to = &d->host[t / DOCTOR_PORTS];
    if (is_target(d, from, t))
      json_array_append_new(list, json_pack("{s:s, s:i}", "address", to->address, "port",
                                            (int)to->port[t % DOCTOR_PORTS]));
  }
  return list;
}

static Err read_tries(const DoctorHosts *d, size_t from, size_t begin, size_t end,
                      Failures *failures) {
  const json_t *list = json_object_get(d->sessions.list[from].answer, "why");
  size_t n = 0;
  for (size_t t = begin; t < end && json_is_array(list); t++) {
    if (!is_target(d, from, t)) continue;
    const char *why = json_string_value(json_array_get(list, n++));
    size_t to = t / DOCTOR_PORTS;
    if (!why || why[0])
      TRY(add_failure(failures, from, to, d->host[to].port[t % DOCTOR_PORTS],
                      why ? why : "no answer"));
  }
  return ERR_OK;
}

/* Lets every host connect to every port of all others. */
static Err try_everywhere(DoctorHosts *d, Failures *failures) {
  Sessions *s = &d->sessions;
  size_t targets = s->count * DOCTOR_PORTS;
  for (size_t begin = 0; begin < targets; begin += PROBE_TARGETS) {
    size_t end = begin + PROBE_TARGETS < targets ? begin + PROBE_TARGETS : targets;
    for (size_t i = 0; i < s->count; i++)
      if (d->host[i].address[0])
        session_ask(&s->list[i], json_pack("{s:s, s:o}", "ask", "try", "targets",
                                           make_targets(d, i, begin, end)));
    sessions_wait(s, TRY_SECONDS);
    for (size_t i = 0; i < s->count; i++)
      if (d->host[i].address[0] && s->list[i].is_ready)
        TRY(read_tries(d, i, begin, end, failures));
  }
  return ERR_OK;
}

/* Lists the hosts of the run that have facts; index[] are their numbers. A machine that only starts
 * the run needs ssh to the hosts and nothing else, because mpirun runs on the first host. */
static size_t list_machines(const DoctorHosts *d, NetworkMachine *machine, size_t *index) {
  size_t n = 0;
  for (size_t i = 0; i < d->sessions.count; i++) {
    if (!d->host[i].has_facts || !doctor_is_member(d, i)) continue;
    machine[n] = (NetworkMachine){doctor_name(d, i), &d->host[i].networks};
    index[n++] = i;
  }
  return n;
}

static void use_network(DoctorHosts *d, const Network *network, const size_t *index, size_t n) {
  for (size_t i = 0; i < d->sessions.count; i++) d->host[i].address[0] = '\0';
  snprintf(d->cidr, sizeof d->cidr, "%s", network->cidr);
  d->speed = network->speed;
  for (size_t k = 0; k < n; k++) {
    HostFacts *h = &d->host[index[k]];
    memcpy(h->address, network->member[k]->address, sizeof h->address);
    memcpy(h->card, network->member[k]->card, sizeof h->card);
  }
}

static void judge_target(DoctorHosts *d, const Failures *failures, size_t to) {
  const Failure *first = NULL;
  size_t count = 0;
  Str from = {0};
  for (size_t i = 0; i < failures->count; i++) {
    const Failure *x = &failures->list[i];
    if (x->to != to) continue;
    if (!first) first = x;
    if (count++ < 6)
      str_addf(&from, "%s%s to port %u", from.len ? ", " : "", doctor_name(d, x->from),
               x->port);
  }
  if (!first) {
    findings_add(&d->findings, FINDING_OK, doctor_name(d, to), "ports",
                 "TCP connections from all other hosts work");
  } else if (first->from == to) {
    findings_add(&d->findings, FINDING_PROBLEM, doctor_name(d, to), "ports",
                 "cannot listen on %s: %s", d->host[to].address, first->why);
    findings_remedy(&d->findings, "end the programs that use the ports ('ss -tlnp')");
  } else {
    findings_add(&d->findings, FINDING_PROBLEM, doctor_name(d, to), "ports",
                 "TCP connections to %s fail (%s): from %s%s", d->host[to].address, first->why,
                 str_text(&from), count > 6 ? ", ..." : "");
    findings_remedy(
        &d->findings,
        "MPI uses all ports from 1024 up: let the hosts connect to each other on TCP "
        "1024-65535 (security group: all TCP from the group itself; on %s see 'nft "
        "list ruleset', 'ufw status' or 'firewall-cmd --list-all')",
        doctor_name(d, to));
  }
  str_free(&from);
}

static void judge_network(DoctorHosts *d, const Failures *failures, const char *skipped) {
  Str list = {0};
  for (size_t i = 0; i < d->sessions.count; i++)
    if (d->host[i].address[0])
      str_addf(&list, "%s%s %s (%s)", list.len ? ", " : "", doctor_name(d, i),
               d->host[i].address, d->host[i].card);
  char speed[32] = "";
  if (d->speed) snprintf(speed, sizeof speed, " at %d Mbit/s", d->speed);
  findings_add(&d->findings, FINDING_OK, "", "network used", "%s%s: %.300s%s%s", d->cidr, speed,
               str_text(&list), skipped[0] ? "; not all hosts can connect over " : "", skipped);
  str_free(&list);
  for (size_t i = 0; i < d->sessions.count; i++)
    if (d->host[i].address[0] && d->sessions.list[i].is_ready) judge_target(d, failures, i);
}

/* Tries the candidates until one connects all hosts. *chosen is the index of the candidate with the
 * fewest failed connections, and `best` lists these connections. */
static Err try_candidates(DoctorHosts *d, const NetworkChoice *choice, const size_t *index,
                          size_t n, Failures *best, size_t *chosen) {
  Err err = ERR_OK;
  for (size_t c = 0; c < choice->count && c < CANDIDATES_TRIED && !err; c++) {
    Failures failures = {0};
    use_network(d, &choice->network[c], index, n);
    err = listen_everywhere(d, &failures);
    if (!err) err = try_everywhere(d, &failures);
    if (c == 0 || failures.count < best->count) {
      mem_free(best->list);
      *best = failures;
      *chosen = c;
    } else {
      mem_free(failures.list);
    }
    if (best->count == 0) break;
  }
  return err;
}

static Err choose_network(DoctorHosts *d, const char *wish, NetworkMachine *machine,
                          size_t *index) {
  NetworkChoice choice = {0};
  Failures best = {0};
  size_t chosen = 0, n = list_machines(d, machine, index);
  Err err = ERR_OK;
  if (n < 2) return ERR_OK;
  if (network_candidates(&choice, machine, n, wish)) {
    findings_add(&d->findings, FINDING_PROBLEM, "", "network used", "%s", err_message());
    findings_remedy(&d->findings,
                    "connect all hosts to one network, or name it with --network "
                    "CIDR or CARD");
  } else {
    err = try_candidates(d, &choice, index, n, &best, &chosen);
    /* Restore the best candidate, which may not be the last one tried. */
    if (!err && best.count) {
      Failures again = {0};
      use_network(d, &choice.network[chosen], index, n);
      err = listen_everywhere(d, &again);
      mem_free(again.list);
    }
    if (!err) judge_network(d, &best, chosen ? choice.network[0].cidr : "");
  }
  mem_free(best.list);
  network_free(&choice);
  return err;
}

Err doctor_check_network(DoctorHosts *d, const char *wish) {
  NetworkMachine *machine = NULL;
  size_t *index = NULL;
  TRY(draw_token(d->token));
  Err err = mem_alloc(&machine, d->sessions.count, sizeof *machine);
  if (!err) err = mem_alloc(&index, d->sessions.count, sizeof *index);
  if (!err) err = choose_network(d, wish, machine, index);
  mem_free(index);
  mem_free(machine);
  return err;
}
