/* The head's side of the network test. Depends on network_proof.h, base. */
#include "launch/network_proof.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

#define TOKEN_HEX 33 /* size of a buffer for 16 bytes in hexadecimal */
/* Largest number of targets in one message, which is limited to 64 kB. */
#define TARGETS_AT_ONCE 100
/* Seconds that agents may need in addition to their own time limit. */
#define SLACK 10.0

enum { PAIR_UNKNOWN, PAIR_CONNECTED, PAIR_FAILED };

struct NetworkProof {
  const NetworkMachine *machines;
  size_t count;
  NetworkChoice choice;
  NetworkLink link;
  int64_t number;
  double deadline;
  char token[TOKEN_HEX];
  char (*answer)[TOKEN_HEX]; /* (machines) the answer that each machine sends */
  uint16_t *port;            /* (networks, machines) port; 0: not listening */
  bool *has_ports;           /* (machines) whether its ports have arrived */
  size_t missing_ports;      /* number of machines that have not answered MSG_NETWORK_LISTEN */
  uint8_t *pair;             /* (networks, from, to) result of each connection */
  size_t *connected;         /* (networks) number of connections that succeeded */
  size_t pending; /* number of connections that were requested and have no result yet */
  bool *is_out;   /* (networks) a connection failed, so the network is excluded */
  Str failures;   /* first failed connection of each network, for the error */
  const Network *result;
};

static Err draw_token(char hex[TOKEN_HEX]) {
  uint8_t bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return err_errno("cannot read random bytes from", "the kernel");
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
  return ERR_OK;
}

static size_t count_pairs(const NetworkProof *p) {
  return p->count * (p->count - 1);
}

/* Moves the network that an earlier test selected to the front. */
static void prefer_network(NetworkChoice *choice, const char *cidr) {
  for (size_t i = 1; cidr && i < choice->count; i++) {
    if (strcmp(choice->network[i].cidr, cidr) != 0) continue;
    Network preferred = choice->network[i];
    memmove(&choice->network[1], &choice->network[0], i * sizeof preferred);
    choice->network[0] = preferred;
    return;
  }
}

static Err allocate_tables(NetworkProof *p) {
  size_t networks = p->choice.count;
  TRY(mem_alloc(&p->answer, p->count, sizeof *p->answer));
  TRY(mem_alloc(&p->port, networks * p->count, sizeof *p->port));
  TRY(mem_alloc(&p->has_ports, p->count, sizeof *p->has_ports));
  TRY(mem_alloc(&p->pair, networks * p->count * p->count, 1));
  TRY(mem_alloc(&p->connected, networks, sizeof *p->connected));
  return mem_alloc(&p->is_out, networks, sizeof *p->is_out);
}

static Err send_message(NetworkProof *p, size_t machine, uint8_t type, json_t *body) {
  if (!body || json_object_set_new(body, "proof", json_integer(p->number)) != 0) {
    json_decref(body);
    return err_set(ERR_WORK, "out of memory");
  }
  return p->link.send(p->link.context, machine, type, body);
}

static Err ask_to_listen(NetworkProof *p, size_t machine) {
  json_t *addresses = json_array();
  for (size_t n = 0; n < p->choice.count; n++)
    json_array_append_new(addresses,
                          json_string(p->choice.network[n].member[machine]->address));
  return send_message(p, machine, MSG_NETWORK_LISTEN,
                      json_pack("{s:s, s:s, s:o}", "token", p->token, "answer",
                                p->answer[machine], "addresses", addresses));
}

static Err begin_proof(NetworkProof *p, const char *wish, const char *prefer) {
  static int64_t last_number;
  TRY(network_candidates(&p->choice, p->machines, p->count, wish));
  prefer_network(&p->choice, prefer);
  TRY(allocate_tables(p));
  TRY(draw_token(p->token));
  p->number = ++last_number;
  p->missing_ports = p->count;
  for (size_t m = 0; m < p->count; m++) {
    TRY(draw_token(p->answer[m]));
    TRY(ask_to_listen(p, m));
  }
  return ERR_OK;
}

/* Returns the deadline for the agents' answers: SLACK seconds plus the time that an agent needs
 * if all its connections time out (before the agents connect: the time of one connection). */
static double compute_deadline(const NetworkProof *p, double now) {
  size_t targets = p->missing_ports ? 1 : p->choice.count * (p->count - 1);
  size_t rounds = (targets + NETWORK_ACTIVE - 1) / NETWORK_ACTIVE;
  return now + (double)rounds * NETWORK_CONNECT_LIMIT + SLACK;
}

Err network_proof_begin(NetworkProof **proof, const NetworkMachine *machines, size_t count,
                        const char *wish, const char *prefer, NetworkLink link, double now) {
  *proof = NULL;
  TRY(mem_alloc(proof, 1, sizeof **proof));
  NetworkProof *p = *proof;
  *p = (NetworkProof){.machines = machines, .count = count, .link = link};
  if (count < 2) return ERR_OK;
  Err err = begin_proof(p, wish, prefer);
  p->deadline = compute_deadline(p, now);
  if (!err) return ERR_OK;
  ErrRecord record = err_copy();
  network_proof_end(p);
  *proof = NULL;
  return err_give(&record);
}

/* Records that a connection failed, which excludes its network. The first failure of each network
 * is kept for the error message. */
static void note_failure(NetworkProof *p, size_t network, size_t from, size_t to,
                         const char *why) {
  const Network *n = &p->choice.network[network];
  if (p->is_out[network]) return;
  p->is_out[network] = true;
  str_addf(&p->failures, "%s%s: %s at %s cannot connect to %s at %s (%.80s)",
           p->failures.len ? "; " : "", n->cidr, p->machines[from].name,
           n->member[from]->address, p->machines[to].name, n->member[to]->address, why);
}

static json_t *print_target(const NetworkProof *p, size_t network, size_t from, size_t to) {
  const Network *n = &p->choice.network[network];
  return json_pack("{s:I, s:I, s:s, s:s, s:i, s:s}", "network", (json_int_t)network, "machine",
                   (json_int_t)to, "source", n->member[from]->address, "address",
                   n->member[to]->address, "port", (int)p->port[network * p->count + to],
                   "answer", p->answer[to]);
}

static Err send_targets(NetworkProof *p, size_t machine, json_t **targets) {
  json_t *full = *targets;
  *targets = json_array();
  return send_message(p, machine, MSG_NETWORK_CONNECT, json_pack("{s:o}", "targets", full));
}

/* Asks a machine to connect to all others over all networks that are not excluded. Each machine
 * begins with its successor: otherwise all would connect to the first one at once. */
static Err ask_to_connect(NetworkProof *p, size_t from) {
  json_t *targets = json_array();
  Err err = ERR_OK;
  for (size_t i = 0; !err && i < p->choice.count * p->count; i++) {
    size_t network = i / p->count;
    size_t to = (from + i % p->count) % p->count;
    if (to == from || p->is_out[network]) continue;
    json_array_append_new(targets, print_target(p, network, from, to));
    p->pending++;
    if (json_array_size(targets) == TARGETS_AT_ONCE) err = send_targets(p, from, &targets);
  }
  if (!err && json_array_size(targets)) err = send_targets(p, from, &targets);
  json_decref(targets);
  return err;
}

static Err refuse_answer(const NetworkProof *p, size_t machine) {
  return err_set(
      ERR_WORK,
      "machine %s sent a wrong answer while the network was tested; install the same "
      "version of trireme on all machines",
      p->machines[machine].name);
}

static Err take_ports(NetworkProof *p, size_t machine, const json_t *body) {
  const json_t *ports = json_object_get(body, "ports");
  if (p->has_ports[machine] || json_array_size(ports) != p->choice.count)
    return refuse_answer(p, machine);
  for (size_t n = 0; n < p->choice.count; n++) {
    json_int_t port = json_integer_value(json_array_get(ports, n));
    if (port < 0 || port > UINT16_MAX) return refuse_answer(p, machine);
    p->port[n * p->count + machine] = (uint16_t)port;
    if (port) continue;
    note_failure(p, n, (machine + 1) % p->count, machine, "it cannot listen there");
    for (size_t from = 0; from < p->count; from++)
      p->pair[(n * p->count + from) * p->count + machine] = PAIR_FAILED;
  }
  p->has_ports[machine] = true;
  if (--p->missing_ports) return ERR_OK;
  for (size_t m = 0; m < p->count; m++) TRY(ask_to_connect(p, m));
  return ERR_OK;
}

static Err take_result(NetworkProof *p, size_t machine, const json_t *body) {
  json_int_t network = json_integer_value(json_object_get(body, "network"));
  json_int_t to = json_integer_value(json_object_get(body, "machine"));
  const char *why = json_string_value(json_object_get(body, "why"));
  if (network < 0 || (size_t)network >= p->choice.count || to < 0 || (size_t)to >= p->count ||
      (size_t)to == machine || !why)
    return refuse_answer(p, machine);
  uint8_t *pair = &p->pair[((size_t)network * p->count + machine) * p->count + (size_t)to];
  if (*pair != PAIR_UNKNOWN) return refuse_answer(p, machine);
  *pair = why[0] ? PAIR_FAILED : PAIR_CONNECTED;
  if (p->pending) p->pending--;
  if (why[0])
    note_failure(p, (size_t)network, machine, (size_t)to, why);
  else
    p->connected[network]++;
  return ERR_OK;
}

Err network_proof_handle(NetworkProof *p, size_t machine, uint8_t type, const json_t *body,
                         double now) {
  if (json_integer_value(json_object_get(body, "proof")) != p->number) return ERR_OK;
  if (machine >= p->count || p->count < 2) return ERR_OK;
  if (type == MSG_NETWORK_RESULT) return take_result(p, machine, body);
  if (type != MSG_NETWORK_PORTS) return refuse_answer(p, machine);
  TRY(take_ports(p, machine, body));
  p->deadline = compute_deadline(p, now);
  return ERR_OK;
}

/* At the deadline, counts connections without a result as failed. If an agent has not reported its
 * ports, no machine was asked to connect, so only the connections from and to that agent fail. */
static void fail_unknown_pairs(NetworkProof *p) {
  size_t all = p->choice.count * p->count * p->count;
  for (size_t i = 0; i < all; i++) {
    size_t from = i / p->count % p->count;
    size_t to = i % p->count;
    bool is_mute = !p->has_ports[from] || !p->has_ports[to];
    if (from == to || p->pair[i] != PAIR_UNKNOWN || (p->missing_ports && !is_mute)) continue;
    p->pair[i] = PAIR_FAILED;
    note_failure(p, i / p->count / p->count, from, to,
                 is_mute ? "its agent does not answer" : "no result in time");
  }
}

static Err refuse_networks(const NetworkProof *p) {
  TRY(str_check(&p->failures));
  return err_set(
      ERR_WORK,
      "no network connects all machines: %s; check cables and firewalls (all TCP ports "
      "must be open between the machines), or pass --network CIDR",
      str_text(&p->failures));
}

Err network_proof_advance(NetworkProof *p, double now, bool *is_done) {
  *is_done = p->count < 2 || p->result;
  if (*is_done) return ERR_OK;
  if (now > p->deadline) fail_unknown_pairs(p);
  for (size_t n = 0; n < p->choice.count; n++) {
    if (p->is_out[n]) continue;
    /* Wait for the connections of the best network that is not excluded. */
    if (p->connected[n] < count_pairs(p)) return ERR_OK;
    p->result = &p->choice.network[n];
    *is_done = true;
    return ERR_OK;
  }
  /* All networks are excluded. Wait for the other results, which show which machine cannot be
   * reached. */
  if (p->pending && now <= p->deadline) return ERR_OK;
  return refuse_networks(p);
}

size_t network_proof_candidates(const NetworkProof *p) {
  return p->choice.count;
}

bool network_proof_is_separated(const NetworkProof *p, size_t network, size_t a, size_t b) {
  const uint8_t *pair = p->pair + network * p->count * p->count;
  return pair[a * p->count + b] == PAIR_FAILED || pair[b * p->count + a] == PAIR_FAILED;
}

const Network *network_proof_result(const NetworkProof *p) {
  return p->result;
}

void network_proof_end(NetworkProof *p) {
  if (!p) return;
  /* Messages to a lost machine are skipped; its agent closes its sockets itself. */
  for (size_t m = 0; p->number && m < p->count; m++) {
    Err err = send_message(p, m, MSG_NETWORK_END, json_object());
    (void)err;
  }
  network_free(&p->choice);
  mem_free(p->answer);
  mem_free(p->port);
  mem_free(p->has_ports);
  mem_free(p->pair);
  mem_free(p->connected);
  mem_free(p->is_out);
  str_free(&p->failures);
  mem_free(p);
}
