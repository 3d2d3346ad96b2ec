/* The network that all machines share: tables of machines with misleading networks, invalid
 * lists, and network tests with real connections between loopback addresses. Depends on
 * launch/network, network_proof. */
#include "support.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/progress.h"
#include "launch/network_proof.h"

/* Parses "eth0 10.0.0.1/24 1000 dv, …": card, address, speed, flags (d: default route, v:
 * virtual). */
static void read_list(NetworkList *list, const char *text) {
  *list = (NetworkList){0};
  char copy[1024];
  char *save;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
    NetworkAddress *a = &list->address[list->count++];
    char address[NETWORK_TEXT_MAX];
    char flags[8] = "";
    assert_true(sscanf(item, " %15s %51[^/]/%d %d %7s", a->card, address, &a->prefix, &a->speed,
                       flags) >= 3);
    snprintf(a->address, sizeof a->address, "%s", address);
    a->is_default = strchr(flags, 'd') != NULL;
    a->is_virtual = strchr(flags, 'v') != NULL;
  }
}

#define MACHINES 4

typedef struct {
  const char *what;
  const char *machine[MACHINES]; /* ends with NULL */
  const char *wish;
  const char *networks; /* expected CIDRs in order; NULL: an error is expected */
  /* expected: a part of the error, or each machine's interface in the first network */
  const char *says;
} Case;

static const Case cases[] = {
    {"one network",
     {"eth0 10.0.0.1/24 1000", "eth0 10.0.0.2/24 1000"},
     NULL,
     "10.0.0.0/24",
     "eth0 eth0"},
    {"the faster network is first",
     {"eth0 10.0.0.1/24 1000, ib0 10.9.0.1/16 100000",
      "ens5 10.0.0.2/24 1000, ib1 10.9.8.2/16 100000"},
     NULL,
     "10.9.0.0/16 10.0.0.0/24",
     "ib0 ib1"},
    {"first addresses of cards are before others, which MPI does not use",
     {"a 10.0.0.1/24 10000, a 10.1.0.1/24 10000, b 10.2.0.1/24 1000",
      "a 10.1.0.2/24 10000, a 10.0.0.2/24 10000, b 10.2.0.2/24 1000"},
     NULL,
     "10.2.0.0/24 10.0.0.0/24 10.1.0.0/24",
     "b b"},
    {"a network is as fast as its slowest card",
     {"a 10.0.0.1/24 1000, b 10.1.0.1/24 40000", "a 10.0.0.2/24 1000, b 10.1.0.2/24 100"},
     NULL,
     "10.0.0.0/24 10.1.0.0/24",
     "a a"},
    {"a network that only some share is not chosen",
     {"e 10.0.0.1/24 1000, f 10.1.0.1/24 9000", "e 10.0.0.2/24 1000, f 10.1.0.2/24 9000",
      "e 10.0.0.3/24 1000, f 10.2.0.3/24 9000"},
     NULL,
     "10.0.0.0/24",
     "e e e"},
    {"bridges with equal addresses connect nothing",
     {"docker0 172.17.0.1/16 0 v, e 10.0.0.1/24 0",
      "docker0 172.17.0.1/16 0 v, e 10.0.0.2/24 0"},
     NULL,
     "10.0.0.0/24",
     "e e"},
    {"virtual cards are last, however fast",
     {"veth1 10.1.0.1/24 40000 v, e 10.0.0.1/24 10",
      "veth1 10.1.0.2/24 40000 v, e 10.0.0.2/24 10"},
     NULL,
     "10.0.0.0/24 10.1.0.0/24",
     "e e"},
    {"a virtual card is used where nothing else is shared",
     {"veth1 10.1.0.1/24 0 v, e 10.7.0.1/24 0", "veth1 10.1.0.2/24 0 v, e 192.168.8.2/24 0"},
     NULL,
     "10.1.0.0/24",
     "veth1 veth1"},
    {"IPv4 before IPv6, however fast",
     {"e 10.0.0.1/24 10, f 2001:db8::1/64 1000", "e 10.0.0.2/24 10, f 2001:db8::2/64 1000"},
     NULL,
     "10.0.0.0/24 2001:db8::/64",
     "e e"},
    {"IPv6 alone",
     {"e 2001:db8::1/64 10", "f 2001:db8::2/64 10"},
     NULL,
     "2001:db8::/64",
     "e f"},
    {"of two cards in one network the faster is taken",
     {"e 10.0.0.1/24 10, f 10.0.0.7/24 1000", "e 10.0.0.2/24 1000"},
     NULL,
     "10.0.0.0/24",
     "f e"},
    {"different subnets with default routes are tried through routers",
     {"e 172.31.0.4/20 0 d", "e 172.31.16.9/20 0 d", "f 172.31.40.1/20 0 d"},
     NULL,
     "172.31.0.0/18",
     "e e f"},
    {"a shared network is before a routed one",
     {"e 172.31.0.4/20 9000 d, f 10.0.0.1/24 10", "e 172.31.16.9/20 9000 d, f 10.0.0.2/24 10"},
     NULL,
     "10.0.0.0/24 172.31.0.0/19",
     "f f"},
    {"addresses of hosts in /32 are tried through routers",
     {"e 10.128.0.2/32 0 d", "e 10.128.0.3/32 0 d"},
     NULL,
     "10.128.0.2/31",
     "e e"},
    {"a routed network must not contain another card",
     {"e 172.31.0.4/20 0 d, docker0 172.31.9.1/24 0 v", "e 172.31.16.9/20 0 d"},
     NULL,
     NULL,
     "no network in common"},
    {"unrelated addresses are not a routed network",
     {"e 192.168.1.4/24 0 d", "e 10.31.16.9/20 0 d"},
     NULL,
     NULL,
     "a has 192.168.1.4/24 (e); b has 10.31.16.9/20 (e); connect them"},
    {"a machine without network", {"e 10.0.0.1/24 0", ""}, NULL, NULL, "b has no address"},
    {"--network CIDR",
     {"e 10.0.0.1/24 10, f 10.1.0.1/24 1000", "e 10.0.0.2/24 10, f 10.1.0.2/24 1000"},
     "10.0.0.0/24",
     "10.0.0.0/24",
     "e e"},
    {"--network CIDR of several networks",
     {"e 10.0.0.1/24 10, f 10.1.0.1/24 1000, g 192.168.0.1/24 9000",
      "e 10.0.0.2/24 10, f 10.1.0.2/24 1000, g 192.168.0.2/24 9000"},
     "10.0.0.0/8",
     "10.1.0.0/24 10.0.0.0/24",
     "f f"},
    {"--network CARD",
     {"e 10.0.0.1/24 10, f 10.1.0.1/24 1000", "e 10.0.0.2/24 10, f 10.1.0.2/24 1000"},
     "e",
     "10.0.0.0/24",
     "e e"},
    {"--network of a card that one machine lacks",
     {"e 10.0.0.1/24 10, f 10.1.0.1/24 1000", "e 10.0.0.2/24 10"},
     "f",
     NULL,
     "do not share a network that fits --network f: a has"},
    {"--network with a wrong prefix",
     {"e 10.0.0.1/24 10", "e 10.0.0.2/24 10"},
     "10.0.0.0/33",
     NULL,
     "--network '10.0.0.0/33' is neither"},
    {"--network with a list", {"e 10.0.0.1/24", "e 10.0.0.2/24"}, "e,f", NULL, "is neither"},
    {"--network without a value", {"e 10.0.0.1/24", "e 10.0.0.2/24"}, "", NULL, "is neither"},
};

static void check_networks(const Case *c, const NetworkChoice *choice, size_t count) {
  Str cidrs = {0};
  Str cards = {0};
  for (size_t i = 0; i < choice->count; i++)
    str_addf(&cidrs, "%s%s", i ? " " : "", choice->network[i].cidr);
  for (size_t m = 0; m < count; m++)
    str_addf(&cards, "%s%s", m ? " " : "", choice->network[0].member[m]->card);
  if (strcmp(str_text(&cidrs), c->networks) != 0)
    fail_msg("%s: got %s", c->what, str_text(&cidrs));
  if (strcmp(str_text(&cards), c->says) != 0)
    fail_msg("%s: cards %s", c->what, str_text(&cards));
  str_free(&cidrs);
  str_free(&cards);
}

static size_t read_machines(const Case *c, NetworkList *lists, NetworkMachine *machines) {
  static const char *const names[MACHINES] = {"a", "b", "c", "d"};
  size_t count = 0;
  for (; count < MACHINES && c->machine[count]; count++) {
    read_list(&lists[count], c->machine[count]);
    machines[count] = (NetworkMachine){names[count], &lists[count]};
  }
  return count;
}

static void test_network_candidates_table(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    NetworkList lists[MACHINES];
    NetworkMachine machines[MACHINES];
    NetworkChoice choice;
    size_t count = read_machines(c, lists, machines);
    Err err = network_candidates(&choice, machines, count, c->wish);
    if (!err != (c->networks != NULL))
      fail_msg("%s: %s", c->what, err ? err_message() : "accepted");
    if (err)
      assert_says(c->says);
    else
      check_networks(c, &choice, count);
    network_free(&choice);
  }
}

static void test_network_candidates_are_bounded(void **state) {
  (void)state;
  static NetworkList lists[2];
  NetworkMachine machines[2] = {{"a", &lists[0]}, {"b", &lists[1]}};
  for (size_t m = 0; m < 2; m++) {
    lists[m].count = NETWORK_ADDRESSES;
    for (size_t i = 0; i < NETWORK_ADDRESSES; i++) {
      NetworkAddress *a = &lists[m].address[i];
      snprintf(a->card, sizeof a->card, "e%zu", i);
      snprintf(a->address, sizeof a->address, "10.%zu.0.%zu", i, m + 1);
      a->prefix = 24;
    }
  }
  NetworkChoice choice;
  OK(network_candidates(&choice, machines, 2, NULL));
  assert_int_equal(choice.count, NETWORK_CANDIDATES);
  network_free(&choice);
}

static void test_network_candidates_failing_allocations_are_errors(void **state) {
  (void)state;
  NetworkList lists[MACHINES];
  NetworkMachine machines[MACHINES];
  size_t count = read_machines(&cases[1], lists, machines);
  Err err = ERR_WORK;
  for (uint64_t n = 1; err; n++) {
    NetworkChoice choice;
    mem_fail_after(n);
    err = network_candidates(&choice, machines, count, NULL);
    mem_fail_after(0);
    network_free(&choice);
    assert_true(n < 100);
  }
}

static void test_network_mpi_include_ipv6_has_card_names(void **state) {
  (void)state;
  NetworkList lists[MACHINES];
  NetworkMachine machines[MACHINES];
  NetworkChoice choice;
  char include[64];
  Case c = {.machine = {"e 2001:db8::1/64", "f 2001:db8::2/64", "e 2001:db8::3/64"}};
  size_t count = read_machines(&c, lists, machines);
  OK(network_candidates(&choice, machines, count, NULL));
  OK(network_mpi_include(&choice.network[0], count, include, sizeof include));
  assert_string_equal(include, "e,f");
  network_free(&choice);
}

/* Tests of the address lists that machines send. */

static void test_network_list_survives_json(void **state) {
  (void)state;
  NetworkList list;
  NetworkList copy;
  read_list(&list,
            "eth0 10.0.0.1/24 1000 d, docker0 172.17.0.1/16 0 v, eth0 2001:db8::1/64 1000");
  json_t *json = network_to_json(&list);
  assert_non_null(json);
  OK(network_from_json(&copy, json, "host b"));
  json_decref(json);
  assert_int_equal(copy.count, 3);
  assert_memory_equal(&copy.address[0], &list.address[0], sizeof list.address[0]);
  assert_true(copy.address[1].is_virtual);
  assert_string_equal(copy.address[2].address, "2001:db8::1");
}

static void test_network_list_of_this_machine_has_no_loopback(void **state) {
  (void)state;
  NetworkList list;
  OK(network_list(&list));
  for (size_t i = 0; i < list.count; i++) {
    assert_string_not_equal(list.address[i].card, "lo");
    assert_true(list.address[i].prefix > 0);
  }
  assert_true(network_is_own(&list, "127.0.0.1"));
  assert_true(network_is_own(&list, "::1"));
  assert_false(network_is_own(&list, "192.0.2.7"));
  if (list.count) assert_true(network_is_own(&list, list.address[0].address));
}

static void test_network_list_hostile_json_is_refused(void **state) {
  (void)state;
  static const char *const texts[] = {
      "{}",
      "[7]",
      "[{}]",
      "[{\"name\":\"e\",\"address\":\"10.0.0.1\"}]",
      "[{\"name\":\"e\",\"address\":\"10.0.0.1\",\"prefix\":33}]",
      "[{\"name\":\"e\",\"address\":\"10.0.0.1\",\"prefix\":-1}]",
      "[{\"name\":\"e\",\"address\":\"10.0.0.1;x\",\"prefix\":24}]",
      "[{\"name\":\"e,f\",\"address\":\"10.0.0.1\",\"prefix\":24}]",
      "[{\"name\":\"-e\",\"address\":\"10.0.0.1\",\"prefix\":24}]",
      "[{\"name\":\"a-name-of-17-bytes\",\"address\":\"10.0.0.1\",\"prefix\":24}]",
      "[{\"name\":\"e\\u0000\",\"address\":\"10.0.0.1\",\"prefix\":24}]",
      "[{\"name\":\"e\",\"address\":\"10.0.0.1\",\"prefix\":24,\"speed\":99999999999}]",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    NetworkList list;
    json_t *json = json_loads(texts[i], JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    if (network_from_json(&list, json, "host b") == ERR_OK) fail_msg("accepted: %s", texts[i]);
    assert_says("host b sent an invalid list of network addresses");
    json_decref(json);
  }
}

/* Tests of connections between machines. */

typedef struct {
  uint8_t type;
  json_t *body;
} Message;

/* Head and agents in one process, with queues instead of channels. */
typedef struct Lab Lab;
typedef struct {
  Lab *lab;
  size_t number;
} Place;
struct Lab {
  size_t count;
  NetworkList lists[MACHINES];
  NetworkMachine machines[MACHINES];
  NetworkPeer *peer[MACHINES];
  Place place[MACHINES];
  Message to_agent[MACHINES][64], to_head[MACHINES][64];
  size_t agent_queue[MACHINES], head_queue[MACHINES];
  bool is_mute[MACHINES]; /* messages to this agent are dropped */
  NetworkProof *proof;
};

static Err send_to_agent(void *context, size_t machine, uint8_t type, json_t *body) {
  Lab *lab = context;
  assert_true(lab->agent_queue[machine] < 64);
  lab->to_agent[machine][lab->agent_queue[machine]++] = (Message){type, body};
  return ERR_OK;
}

static Err send_to_head(void *context, size_t machine, uint8_t type, json_t *body) {
  Place *place = context;
  (void)machine;
  Lab *lab = place->lab;
  assert_true(lab->head_queue[place->number] < 64);
  lab->to_head[place->number][lab->head_queue[place->number]++] = (Message){type, body};
  return ERR_OK;
}

static NetworkLink agent_link(Lab *lab, size_t m) {
  lab->place[m] = (Place){lab, m};
  return (NetworkLink){send_to_head, &lab->place[m]};
}

static void deliver_to_agents(Lab *lab, double now) {
  for (size_t m = 0; m < lab->count; m++) {
    for (size_t i = 0; i < lab->agent_queue[m]; i++) {
      Message message = lab->to_agent[m][i];
      if (!lab->is_mute[m])
        OK(network_peer_handle(&lab->peer[m], message.type, message.body, agent_link(lab, m),
                               now));
      json_decref(message.body);
    }
    lab->agent_queue[m] = 0;
    OK(network_peer_advance(lab->peer[m], agent_link(lab, m), now));
  }
}

static Err deliver_to_head(Lab *lab, double now) {
  Err err = ERR_OK;
  for (size_t m = 0; m < lab->count; m++) {
    for (size_t i = 0; i < lab->head_queue[m]; i++) {
      Message message = lab->to_head[m][i];
      if (!err) err = network_proof_handle(lab->proof, m, message.type, message.body, now);
      json_decref(message.body);
    }
    lab->head_queue[m] = 0;
  }
  return err;
}

static void wait_for_sockets(Lab *lab) {
  static struct pollfd fds[MACHINES * NETWORK_PEER_FDS];
  int count = 0;
  for (size_t m = 0; m < lab->count; m++)
    count += network_peer_poll_for(lab->peer[m], fds + count, NETWORK_PEER_FDS);
  poll(fds, (nfds_t)count, 10);
}

/* Runs the network test to its end. `step` seconds are added to the clock in each round; 0:
 * real time. */
static Err run_proof(Lab *lab, const Case *c, const char *prefer, double step) {
  double ahead = 0;
  lab->count = read_machines(c, lab->lists, lab->machines);
  TRY(network_proof_begin(&lab->proof, lab->machines, lab->count, c->wish, prefer,
                          (NetworkLink){send_to_agent, lab}, progress_clock()));
  for (bool is_done = false; !is_done; ahead += step) {
    double now = progress_clock() + ahead;
    deliver_to_agents(lab, now);
    TRY(deliver_to_head(lab, now));
    TRY(network_proof_advance(lab->proof, now, &is_done));
    if (!is_done) wait_for_sockets(lab);
  }
  return ERR_OK;
}

/* Ends the test and asserts that no agent has an open socket. */
static void end_proof(Lab *lab) {
  network_proof_end(lab->proof);
  deliver_to_agents(lab, progress_clock());
  for (size_t m = 0; m < lab->count; m++) {
    if (!lab->is_mute[m]) assert_null(lab->peer[m]);
    network_peer_close(&lab->peer[m]);
    for (size_t i = 0; i < lab->head_queue[m]; i++) json_decref(lab->to_head[m][i].body);
  }
}

static void test_network_proof_connected_network_is_chosen(void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {"e 127.1.0.1/24 10", "e 127.1.0.2/24 10", "f 127.1.0.3/24 10"}};
  OK(run_proof(&lab, &c, NULL, 0));
  const Network *n = network_proof_result(lab.proof);
  assert_string_equal(n->cidr, "127.1.0.0/24");
  assert_string_equal(n->member[2]->card, "f");
  end_proof(&lab);
}

static void test_network_proof_decoy_that_cannot_listen_is_skipped(void **state) {
  (void)state;
  Lab lab = {0};
  /* No machine has an address of 192.0.2.0/24. */
  Case c = {.machine = {"d 192.0.2.1/24 99, e 127.1.0.1/24 10",
                        "d 192.0.2.2/24 99, e 127.1.0.2/24 10"}};
  OK(run_proof(&lab, &c, NULL, 0));
  assert_string_equal(network_proof_result(lab.proof)->cidr, "127.1.0.0/24");
  end_proof(&lab);
}

/* Listens on 127.2.0.2 in place of machine b, and never answers. */
static int open_stranger(uint16_t *port) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t len = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  inet_pton(AF_INET, "127.2.0.2", &address.sin_addr);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
  assert_int_equal(listen(fd, 8), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
  *port = ntohs(address.sin_port);
  return fd;
}

/* Runs a network test in which the agent of b reports `port` for its address in the first
 * network. */
static Err run_proof_with_port(Lab *lab, const Case *c, uint16_t port, double step) {
  double ahead = 0;
  lab->count = read_machines(c, lab->lists, lab->machines);
  TRY(network_proof_begin(&lab->proof, lab->machines, lab->count, NULL, NULL,
                          (NetworkLink){send_to_agent, lab}, progress_clock()));
  for (bool is_done = false; !is_done; ahead += step) {
    double now = progress_clock() + ahead;
    deliver_to_agents(lab, now);
    if (lab->head_queue[1] && lab->to_head[1][0].type == MSG_NETWORK_PORTS)
      json_array_set_new(json_object_get(lab->to_head[1][0].body, "ports"), 0,
                         json_integer(port));
    TRY(deliver_to_head(lab, now));
    TRY(network_proof_advance(lab->proof, now, &is_done));
    if (!is_done) wait_for_sockets(lab);
  }
  return ERR_OK;
}

static const Case decoy = {.machine = {"d 127.2.0.1/24 99, e 127.1.0.1/24 10",
                                       "d 127.2.0.2/24 99, e 127.1.0.2/24 10"}};

static void test_network_proof_decoy_without_answer_is_skipped(void **state) {
  (void)state;
  Lab lab = {0};
  uint16_t port;
  int stranger = open_stranger(&port);
  OK(run_proof_with_port(&lab, &decoy, port, 0.5));
  assert_string_equal(network_proof_result(lab.proof)->cidr, "127.1.0.0/24");
  end_proof(&lab);
  close(stranger);
}

static void test_network_proof_decoy_that_refuses_is_skipped(void **state) {
  (void)state;
  Lab lab = {0};
  uint16_t port;
  close(open_stranger(&port));
  OK(run_proof_with_port(&lab, &decoy, port, 0));
  assert_string_equal(network_proof_result(lab.proof)->cidr, "127.1.0.0/24");
  end_proof(&lab);
}

static void test_network_proof_no_connected_network_names_the_pair(void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {"d 127.2.0.1/24 99", "d 127.2.0.2/24 99"}};
  uint16_t port;
  close(open_stranger(&port));
  assert_int_equal(run_proof_with_port(&lab, &c, port, 0), ERR_WORK);
  assert_says(
      "no network connects all machines: 127.2.0.0/24: a at 127.2.0.1 cannot connect to b "
      "at 127.2.0.2 (Connection refused)");
  end_proof(&lab);
}

static void test_network_proof_machine_that_cannot_be_reached_is_separated_from_all(
    void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {"d 127.2.0.1/24 99", "d 127.2.0.2/24 99", "d 127.2.0.3/24 99"}};
  uint16_t port;
  close(open_stranger(&port));
  assert_int_equal(run_proof_with_port(&lab, &c, port, 0), ERR_WORK);
  assert_int_equal(network_proof_candidates(lab.proof), 1);
  assert_true(network_proof_is_separated(lab.proof, 0, 0, 1));
  assert_true(network_proof_is_separated(lab.proof, 0, 2, 1));
  assert_false(network_proof_is_separated(lab.proof, 0, 0, 2));
  end_proof(&lab);
}

static void test_network_proof_machine_that_cannot_listen_is_separated_from_all(void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {"d 127.2.0.1/24 99", "d 127.2.0.2/24 99", "d 127.2.0.3/24 99"}};
  assert_int_equal(run_proof_with_port(&lab, &c, 0, 0), ERR_WORK);
  assert_true(network_proof_is_separated(lab.proof, 0, 0, 1));
  assert_true(network_proof_is_separated(lab.proof, 0, 2, 1));
  assert_false(network_proof_is_separated(lab.proof, 0, 0, 2));
  end_proof(&lab);
}

static void test_network_proof_mute_agent_is_separated_from_all(void **state) {
  (void)state;
  Lab lab = {.is_mute = {false, true}};
  Case c = {.machine = {"e 127.1.0.1/24", "e 127.1.0.2/24", "e 127.1.0.3/24"}};
  assert_int_equal(run_proof(&lab, &c, NULL, 1), ERR_WORK);
  assert_true(network_proof_is_separated(lab.proof, 0, 0, 1));
  assert_true(network_proof_is_separated(lab.proof, 0, 2, 1));
  assert_false(network_proof_is_separated(lab.proof, 0, 0, 2));
  end_proof(&lab);
}

static void test_network_proof_mute_agent_ends_at_the_deadline(void **state) {
  (void)state;
  Lab lab = {.is_mute = {false, true}};
  Case c = {.machine = {"e 127.1.0.1/24", "e 127.1.0.2/24"}};
  assert_int_equal(run_proof(&lab, &c, NULL, 1), ERR_WORK);
  assert_says("no network connects all machines");
  end_proof(&lab);
}

/* Opens connections to machine b that send nothing, before machine a connects. */
static void open_strangers(int fd[], int count, int port, bool have_one_address) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, "127.1.0.2", &to.sin_addr);
  for (int i = 0; i < count; i++) {
    struct sockaddr_in own = {.sin_family = AF_INET};
    own.sin_addr.s_addr = htonl(0x7f030001 + (have_one_address ? 0 : (uint32_t)i));
    fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd[i], (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(connect(fd[i], (struct sockaddr *)&to, sizeof to), 0);
  }
}

/* There are more such connections than an agent serves at the same time. */
static void check_strangers(bool have_one_address) {
  enum { STRANGERS = 100 };
  Lab lab = {0};
  Case c = {.machine = {"e 127.1.0.1/24 10", "e 127.1.0.2/24 10"}};
  int fd[STRANGERS];
  bool is_done = false, are_there = false;
  lab.count = read_machines(&c, lab.lists, lab.machines);
  OK(network_proof_begin(&lab.proof, lab.machines, lab.count, NULL, NULL,
                         (NetworkLink){send_to_agent, &lab}, progress_clock()));
  while (!is_done) {
    double now = progress_clock();
    deliver_to_agents(&lab, now);
    if (!are_there && lab.head_queue[1]) {
      const json_t *ports = json_object_get(lab.to_head[1][0].body, "ports");
      open_strangers(fd, STRANGERS, (int)json_integer_value(json_array_get(ports, 0)),
                     have_one_address);
      are_there = true;
    }
    OK(deliver_to_head(&lab, now));
    OK(network_proof_advance(lab.proof, now, &is_done));
    if (!is_done) wait_for_sockets(&lab);
  }
  assert_string_equal(network_proof_result(lab.proof)->cidr, "127.1.0.0/24");
  end_proof(&lab);
  for (int i = 0; i < STRANGERS; i++) close(fd[i]);
}

static void test_network_peer_serves_machines_among_silent_strangers(void **state) {
  (void)state;
  check_strangers(false);
}

static void test_network_peer_serves_machines_beside_one_silent_stranger(void **state) {
  (void)state;
  check_strangers(true);
}

enum { CROWD = 200 }; /* a machine connects to 199 others, 64 at a time, 5 s each: 20 s */

static Err drop_message(void *context, size_t machine, uint8_t type, json_t *body) {
  int64_t *number = context;
  (void)machine;
  (void)type;
  *number = json_integer_value(json_object_get(body, "proof"));
  json_decref(body);
  return ERR_OK;
}

/* The time for all connections grows with the number of machines. */
static void test_network_proof_deadline_grows_with_the_machines(void **state) {
  (void)state;
  static NetworkList lists[CROWD];
  static NetworkMachine machines[CROWD];
  int64_t number = 0;
  NetworkProof *proof;
  bool is_done;
  for (int i = 0; i < CROWD; i++) {
    char text[64];
    snprintf(text, sizeof text, "e 127.1.%d.%d/16 10", i / 100, i % 100 + 1);
    read_list(&lists[i], text);
    machines[i] = (NetworkMachine){.name = "machine", .list = &lists[i]};
  }
  OK(network_proof_begin(&proof, machines, CROWD, NULL, NULL,
                         (NetworkLink){drop_message, &number}, 0));
  for (size_t i = 0; i < CROWD; i++) {
    json_t *ports = json_pack("{s:I, s:[i]}", "proof", (json_int_t)number, "ports", 1234);
    OK(network_proof_handle(proof, i, MSG_NETWORK_PORTS, ports, 0));
    json_decref(ports);
  }
  OK(network_proof_advance(proof, 25, &is_done));
  assert_false(is_done);
  assert_int_equal(network_proof_advance(proof, 60, &is_done), ERR_WORK);
  network_proof_end(proof);
}

static void test_network_proof_preferred_network_is_taken_at_once(void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {"d 127.2.0.1/24 99, e 127.1.0.1/24 10",
                        "d 127.2.0.2/24 99, e 127.1.0.2/24 10"}};
  OK(run_proof(&lab, &c, "127.1.0.0/24", 0));
  assert_string_equal(network_proof_result(lab.proof)->cidr, "127.1.0.0/24");
  end_proof(&lab);
}

static void test_network_proof_one_machine_needs_none(void **state) {
  (void)state;
  Lab lab = {0};
  Case c = {.machine = {""}};
  OK(run_proof(&lab, &c, NULL, 0));
  assert_null(network_proof_result(lab.proof));
  end_proof(&lab);
}

static void assert_answer_refused(const char *text, uint8_t type) {
  Lab lab = {0};
  Case c = {.machine = {"e 127.1.0.1/24", "e 127.1.0.2/24"}};
  lab.count = read_machines(&c, lab.lists, lab.machines);
  OK(network_proof_begin(&lab.proof, lab.machines, lab.count, NULL, NULL,
                         (NetworkLink){send_to_agent, &lab}, 0));
  json_t *body = json_loads(text, 0, NULL);
  assert_non_null(body);
  json_object_set(body, "proof", json_object_get(lab.to_agent[0][0].body, "proof"));
  if (network_proof_handle(lab.proof, 0, type, body, 0) == ERR_OK)
    fail_msg("accepted: %s", text);
  assert_says("machine a sent a wrong answer");
  json_decref(body);
  end_proof(&lab);
}

static void test_network_proof_hostile_answers_are_refused(void **state) {
  (void)state;
  assert_answer_refused("{}", MSG_NETWORK_PORTS);
  assert_answer_refused("{\"ports\":[1,2]}", MSG_NETWORK_PORTS);
  assert_answer_refused("{\"ports\":[65536]}", MSG_NETWORK_PORTS);
  assert_answer_refused("{\"ports\":[-1]}", MSG_NETWORK_PORTS);
  assert_answer_refused("{}", MSG_NETWORK_RESULT);
  assert_answer_refused("{\"network\":1,\"machine\":1,\"why\":\"\"}", MSG_NETWORK_RESULT);
  assert_answer_refused("{\"network\":0,\"machine\":0,\"why\":\"\"}", MSG_NETWORK_RESULT);
  assert_answer_refused("{\"network\":0,\"machine\":2,\"why\":\"\"}", MSG_NETWORK_RESULT);
  assert_answer_refused("{\"network\":0,\"machine\":-1,\"why\":\"\"}", MSG_NETWORK_RESULT);
  assert_answer_refused("{}", MSG_NETWORK_END);
}

static void test_network_peer_hostile_messages_are_refused(void **state) {
  (void)state;
  static const char *const listens[] = {
      "{}", "{\"addresses\":[]}", "{\"addresses\":[\"127.0.0.1\"]}",
      "{\"addresses\":[\"127.0.0.1\"],\"token\":\"00\",\"answer\":\"00\"}"};
  Lab lab = {.count = 1};
  for (size_t i = 0; i < sizeof listens / sizeof *listens; i++) {
    json_t *body = json_loads(listens[i], 0, NULL);
    assert_int_equal(
        network_peer_handle(&lab.peer[0], MSG_NETWORK_LISTEN, body, agent_link(&lab, 0), 0),
        ERR_WORK);
    assert_says("the head sent a wrong message");
    json_decref(body);
  }
  network_peer_close(&lab.peer[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_network_candidates_table),
      cmocka_unit_test(test_network_candidates_are_bounded),
      cmocka_unit_test(test_network_candidates_failing_allocations_are_errors),
      cmocka_unit_test(test_network_mpi_include_ipv6_has_card_names),
      cmocka_unit_test(test_network_list_survives_json),
      cmocka_unit_test(test_network_list_of_this_machine_has_no_loopback),
      cmocka_unit_test(test_network_list_hostile_json_is_refused),
      cmocka_unit_test(test_network_proof_connected_network_is_chosen),
      cmocka_unit_test(test_network_proof_decoy_that_cannot_listen_is_skipped),
      cmocka_unit_test(test_network_proof_decoy_without_answer_is_skipped),
      cmocka_unit_test(test_network_proof_decoy_that_refuses_is_skipped),
      cmocka_unit_test(test_network_proof_no_connected_network_names_the_pair),
      cmocka_unit_test(test_network_proof_machine_that_cannot_be_reached_is_separated_from_all),
      cmocka_unit_test(test_network_proof_machine_that_cannot_listen_is_separated_from_all),
      cmocka_unit_test(test_network_proof_mute_agent_is_separated_from_all),
      cmocka_unit_test(test_network_proof_mute_agent_ends_at_the_deadline),
      cmocka_unit_test(test_network_peer_serves_machines_among_silent_strangers),
      cmocka_unit_test(test_network_peer_serves_machines_beside_one_silent_stranger),
      cmocka_unit_test(test_network_proof_deadline_grows_with_the_machines),
      cmocka_unit_test(test_network_proof_preferred_network_is_taken_at_once),
      cmocka_unit_test(test_network_proof_one_machine_needs_none),
      cmocka_unit_test(test_network_proof_hostile_answers_are_refused),
      cmocka_unit_test(test_network_peer_hostile_messages_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
