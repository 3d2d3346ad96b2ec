/* Slurm's variables, the line that names the head, and the start of agents with a script
 * instead of srun. tests/cluster/slurm.bats uses a real Slurm. Depends on launch/slurm,
 * source_slurm.
 * run-tests: waits */
#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "launch/protocol.h"
#include "launch/source_slurm.h"

static void clear_variables(void) {
  static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_NUM_NODES",
                                      "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static int begin(void **state) {
  (void)state;
  clear_variables();
  return 0;
}

static void test_slurm_batch_script_has_an_allocation(void **state) {
  (void)state;
  assert_false(slurm_has_allocation());
  setenv("SLURM_JOB_ID", "7", 1);
  assert_true(slurm_has_allocation());
}

static void test_slurm_interactive_step_has_an_allocation(void **state) {
  (void)state;
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_STEP_ID", "4294967290", 1);
  assert_true(slurm_has_allocation());
}

static void test_slurm_task_of_srun_has_no_allocation(void **state) {
  (void)state;
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_STEP_ID", "0", 1);
  assert_false(slurm_has_allocation());
}

static void test_slurm_tasks_are_read_for_each_node(void **state) {
  (void)state;
  SlurmAllocation a;
  setenv("SLURM_JOB_NUM_NODES", "5", 1);
  setenv("SLURM_NTASKS", "12", 1);
  setenv("SLURM_TASKS_PER_NODE", "4,2(x3),16", 1);
  OK(slurm_read_allocation(&a));
  assert_int_equal(a.nodes, 5);
  static const int expected[] = {4, 2, 2, 2, 16};
  for (int i = 0; i < 5; i++) assert_int_equal(a.tasks[i], expected[i]);
}

static void test_slurm_tasks_nobody_asked_for_are_not_used(void **state) {
  (void)state;
  SlurmAllocation a;
  setenv("SLURM_JOB_NUM_NODES", "2", 1);
  setenv("SLURM_TASKS_PER_NODE", "64(x2)", 1);
  OK(slurm_read_allocation(&a));
  assert_int_equal(a.tasks[0], 0);
  assert_int_equal(a.tasks[1], 0);
}

static void test_slurm_wrong_variables_are_refused(void **state) {
  (void)state;
  static const char *const texts[] = {"",          "x",         "2",      "2(x3)",  "2(x",
                                      "2(x2",      "2(x0)",     "0(x2)",  "-1(x2)", "2,",
                                      "2,2,",      ",2,2",      "2(x2)2", "2 2",    " 2(x2)",
                                      "99999(x2)", "2(x99999)", "2(y2)",  "1,1,1"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    SlurmAllocation a = {.nodes = 2};
    if (slurm_parse_tasks(&a, texts[i]) == ERR_OK) fail_msg("accepted: '%s'", texts[i]);
    assert_says("SLURM_TASKS_PER_NODE");
  }
  SlurmAllocation a;
  assert_int_equal(slurm_read_allocation(&a), ERR_WORK);
  assert_says("SLURM_JOB_NUM_NODES");
  setenv("SLURM_JOB_NUM_NODES", "99999", 1);
  assert_int_equal(slurm_read_allocation(&a), ERR_WORK);
}

static void test_slurm_meeting_survives_its_line(void **state) {
  (void)state;
  SlurmMeeting m = {.port = 4711, .addresses = 2, .address = {"10.0.0.1", "2001:db8::1"}};
  SlurmMeeting copy;
  char line[SLURM_LINE_MAX];
  OK(key_make(&m.key));
  slurm_print_meeting(&m, line);
  OK(slurm_parse_meeting(&copy, line));
  assert_memory_equal(&copy.key, &m.key, sizeof m.key);
  assert_int_equal(copy.port, 4711);
  assert_int_equal(copy.addresses, 2);
  assert_string_equal(copy.address[1], "2001:db8::1");
}

static void test_slurm_meeting_longest_line_fits(void **state) {
  (void)state;
  SlurmMeeting m = {.port = 65535, .addresses = SLURM_ADDRESSES};
  SlurmMeeting copy;
  char line[SLURM_LINE_MAX];
  for (int i = 0; i < SLURM_ADDRESSES; i++)
    strcpy(m.address[i], "2001:db8:1111:2222:3333:4444:5555:6666");
  slurm_print_meeting(&m, line);
  assert_true(str_ends(line, "\n"));
  OK(slurm_parse_meeting(&copy, line));
  assert_int_equal(copy.addresses, SLURM_ADDRESSES);
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_slurm_wrong_line_is_refused(void **state) {
  (void)state;
  static const char *const lines[] = {"",
                                      "hello",
                                      "trireme-slurm-1 " HEX " 80",
                                      "trireme-slurm-2 " HEX " 80 10.0.0.1",
                                      "trireme-slurm-1 0123 80 10.0.0.1",
                                      "trireme-slurm-1 " HEX "00 80 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 0 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 99999 10.0.0.1",
                                      "trireme-slurm-1 " HEX " -1 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 80 example.org"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    SlurmMeeting m;
    if (slurm_parse_meeting(&m, lines[i]) == ERR_OK) fail_msg("accepted: '%s'", lines[i]);
    assert_says("standard input does not name the head");
  }
}

/* Tests with a script named srun. */

static char old_path[4096];

static int keep_path(void **state) {
  snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
  return begin(state);
}

static int restore_path(void **state) {
  (void)state;
  return setenv("PATH", old_path, 1);
}

static void install_srun(const char *body) {
  char text[1024];
  int len = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
  OK(file_write(at("srun"), text, (size_t)len));
  assert_int_equal(chmod(at("srun"), 0755), 0);
  setenv("PATH", scratch, 1);
}

static void drop_warning(void *context, const char *label, const char *line) {
  (void)context;
  (void)label;
  (void)line;
}

static void test_slurm_srun_that_fails_ends_the_launch(void **state) {
  (void)state;
  SlurmAllocation a = {.nodes = 2};
  Source source;
  Arrival arrival;
  install_srun("echo 'srun: error: Unable to create step' >&2; exit 3");
  OK(source_slurm_open(&source, &a, false));
  assert_int_equal(source.expected, 2);
  Err err = ERR_OK;
  log_divert(drop_warning, NULL);
  for (double limit = progress_clock() + 60; !err && progress_clock() < limit;) {
    struct pollfd fds[64];
    poll(fds, (nfds_t)source.poll_for(source.self, fds, 64), 20);
    err = source.advance(source.self, progress_clock());
    assert_false(source.next(source.self, &arrival));
  }
  assert_int_equal(err, ERR_WORK);
  assert_says(
      "srun ended (exit status 3) before all agents had connected: srun: error: Unable to "
      "create step");
  source.close(source.self);
  log_divert(NULL, NULL);
}

static void test_slurm_missing_srun_is_an_error(void **state) {
  (void)state;
  SlurmAllocation a = {.nodes = 1};
  Source source;
  setenv("PATH", "/nonexistent", 1);
  assert_int_equal(source_slurm_open(&source, &a, false), ERR_WORK);
  assert_says("cannot start srun");
}

/* Tests with agents that the test plays, and a script that is killed as srun is. The test controls
 * the clock of the source. */

#define NODES 2

typedef struct {
  SlurmAllocation allocation;
  Source source;
  Channel *agent[NODES]; /* the agents' ends of the channels */
  int socket[NODES];     /* descriptors of these channels */
  Channel *head[NODES];  /* the ends that the source has handed over */
  double now;
  char printed[2048]; /* warnings of the source */
} Cluster;

static void take_warning(void *context, const char *label, const char *line) {
  Cluster *c = context;
  size_t used = strlen(c->printed);
  snprintf(c->printed + used, sizeof c->printed - used, "%s%s\n", label, line);
}

/* Each srun writes its process id and stores the line for the agents. */
static Cluster *open_cluster(void) {
  char body[1000];
  Cluster *c = calloc(1, sizeof *c);
  assert_non_null(c);
  c->allocation.nodes = NODES;
  c->now = progress_clock();
  snprintf(body, sizeof body,
           "PATH=/usr/bin:/bin; cd %s\n"
           "read -r line; echo \"$line\" > line.new; mv line.new line\n"
           "echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done",
           scratch);
  unlink(at("line"));
  unlink(at("pid"));
  install_srun(body);
  log_divert(take_warning, c);
  OK(source_slurm_open(&c->source, &c->allocation, false));
  return c;
}

static void close_cluster(Cluster *c) {
  for (int i = 0; i < NODES; i++) {
    channel_close(c->agent[i]);
    channel_close(c->head[i]);
  }
  c->source.close(c->source.self);
  log_divert(NULL, NULL);
  free(c);
}

static void advance_cluster(Cluster *c) {
  Arrival arrival;
  OK(c->source.advance(c->source.self, c->now));
  while (c->source.next(c->source.self, &arrival))
    c->head[arrival.name[1] - '0'] = arrival.channel;
  for (int i = 0; i < NODES; i++)
    if (c->agent[i]) assert_int_equal(channel_advance(c->agent[i]), ERR_OK);
  poll(NULL, 0, 1);
}

/* Returns the process id of the srun that was started last. */
static pid_t await_srun(Cluster *c) {
  Str text = {0};
  while (!file_exists(at("pid"))) advance_cluster(c);
  OK(file_read(at("pid"), 64, &text));
  pid_t pid = (pid_t)atoi(str_text(&text));
  str_free(&text);
  unlink(at("pid"));
  return pid;
}

static bool is_running(pid_t pid) {
  return kill(pid, 0) == 0;
}

/* Connects the agent of node i, as far as its MSG_SLURM_NODE. */
static void connect_node(Cluster *c, int i) {
  SlurmMeeting meeting;
  Str line = {0};
  char name[] = {'n', (char)('0' + i), '\0'};
  OK(file_read(at("line"), SLURM_LINE_MAX, &line));
  OK(slurm_parse_meeting(&meeting, str_text(&line)));
  str_free(&line);
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)meeting.port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  c->socket[i] = fd;
  OK(channel_open_secure(&c->agent[i], fd, &meeting.key, HANDSHAKE_CLIENT, "head"));
  OK(protocol_send(c->agent[i], MSG_SLURM_NODE,
                   json_pack("{s:i, s:s}", "node", i, "name", name)));
}

static void await_arrivals(Cluster *c, int nodes) {
  int arrived = 0;
  while (arrived < nodes) {
    advance_cluster(c);
    arrived = 0;
    for (int i = 0; i < NODES; i++) arrived += c->head[i] != NULL;
  }
}

/* Starts both agents; srun is killed after they are ready. Returns its process id. */
static pid_t start_nodes(Cluster *c) {
  pid_t srun = await_srun(c);
  for (int i = 0; i < NODES; i++) connect_node(c, i);
  await_arrivals(c, NODES);
  return srun;
}

static void lose_node(Cluster *c, int i, Loss loss) {
  char name[] = {'n', (char)('0' + i), '\0'};
  channel_close(c->agent[i]);
  channel_close(c->head[i]);
  c->agent[i] = NULL;
  c->head[i] = NULL;
  c->source.lost(c->source.self, name, loss, c->now);
}

static void test_slurm_srun_runs_until_every_agent_is_ready(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  pid_t srun = start_nodes(c);
  c->source.ready(c->source.self, "n0");
  for (int turn = 0; turn < 5; turn++) advance_cluster(c);
  assert_true(is_running(srun));
  c->source.ready(c->source.self, "n1");
  while (is_running(srun)) advance_cluster(c);
  assert_string_equal(c->printed, "");
  close_cluster(c);
}

/* Starts node 1 again after it was lost `seconds` after srun was killed. Returns its srun, after
 * its agent is ready. */
static pid_t restart_node(Cluster *c, double seconds, Loss loss) {
  pid_t first = start_nodes(c);
  c->source.ready(c->source.self, "n0");
  c->source.ready(c->source.self, "n1");
  while (is_running(first)) advance_cluster(c);
  c->now += seconds;
  lose_node(c, 1, loss);
  c->now += 6; /* RETRY_FIRST */
  pid_t srun = await_srun(c);
  connect_node(c, 1);
  await_arrivals(c, NODES);
  c->source.ready(c->source.self, "n1");
  for (int turn = 0; turn < 5; turn++) advance_cluster(c);
  return srun;
}

static void test_slurm_srun_is_kept_for_a_node_whose_agent_ended_with_it(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  pid_t kept = restart_node(c, 1, LOSS_FAILURE);
  assert_true(is_running(kept));
  assert_ptr_equal(strstr(c->printed, "warning: n1: its agent ended within 5 s after srun"),
                   c->printed);
  /* Node 0 is not concerned. */
  c->now += 100;
  lose_node(c, 0, LOSS_FAILURE);
  c->now += 6;
  pid_t srun = await_srun(c);
  connect_node(c, 0);
  await_arrivals(c, NODES);
  c->source.ready(c->source.self, "n0");
  while (is_running(srun)) advance_cluster(c);
  assert_true(is_running(kept));
  kill(-kept, SIGKILL); /* as it ends with its agent */
  close_cluster(c);
}

static void test_slurm_srun_is_killed_again_for_a_node_that_was_lost_later(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  pid_t srun = restart_node(c, 6, LOSS_FAILURE);
  while (is_running(srun)) advance_cluster(c);
  assert_string_equal(c->printed, "");
  close_cluster(c);
}

/* Starts both nodes and waits until their srun was ended, as their agents are ready. */
static void start_and_release_nodes(Cluster *c) {
  pid_t srun = start_nodes(c);
  c->source.ready(c->source.self, "n0");
  c->source.ready(c->source.self, "n1");
  while (is_running(srun)) advance_cluster(c);
}

static void test_slurm_node_that_leaves_does_not_keep_srun(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  start_and_release_nodes(c);
  lose_node(c, 1, LOSS_LEFT);
  c->now += 100;
  for (int turn = 0; turn < 5; turn++) advance_cluster(c);
  assert_false(file_exists(at("pid")));
  assert_string_equal(c->printed, "");
  close_cluster(c);
}

static void test_slurm_allocation_that_has_ended_brings_no_node(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  start_and_release_nodes(c);
  install_srun(
      "echo 'srun: error: Unable to confirm allocation for job 7: Invalid job id specified' "
      ">&2; "
      "exit 1");
  assert_int_equal(c->source.count_open(c->source.self), 2);
  lose_node(c, 1, LOSS_FAILURE);
  assert_int_equal(c->source.count_open(c->source.self), 2);
  c->now += 6;
  while (c->source.count_open(c->source.self) == 2) advance_cluster(c);
  assert_int_equal(c->source.count_open(c->source.self), 1); /* node 0 is still connected */
  lose_node(c, 0, LOSS_LEFT);
  assert_int_equal(c->source.count_open(c->source.self), 0);
  close_cluster(c);
}

/* A kept srun may print it when its job step is cancelled. */
static void test_slurm_refusal_of_a_srun_whose_agents_run_is_not_the_end(void **state) {
  (void)state;
  char body[1000];
  Cluster *c = open_cluster();
  pid_t srun = start_nodes(c);
  snprintf(body, sizeof body,
           "PATH=/usr/bin:/bin; cd %s\n"
           "echo 'srun: error: Job/step already completing or completed' >&2\n"
           "echo $$ > pid.new; mv pid.new pid; while :; do sleep 1; done",
           scratch);
  c->source.ready(c->source.self, "n0");
  c->source.ready(c->source.self, "n1");
  while (is_running(srun)) advance_cluster(c);
  install_srun(body);
  lose_node(c, 1, LOSS_FAILURE);
  c->now += 6;
  srun = await_srun(c);
  connect_node(c, 1);
  await_arrivals(c, NODES);
  while (!strstr(c->printed, "already completing")) advance_cluster(c);
  kill(-srun, SIGKILL);
  while (is_running(srun)) advance_cluster(c);
  lose_node(c, 1, LOSS_FAILURE);
  assert_int_equal(c->source.count_open(c->source.self), 2);
  close_cluster(c);
}

/* srun prints why an agent has crashed. */
static void test_slurm_srun_runs_for_a_while_after_a_crash(void **state) {
  (void)state;
  Cluster *c = open_cluster();
  pid_t srun = start_nodes(c);
  c->source.ready(c->source.self, "n0");
  lose_node(c, 1, LOSS_EARLY);
  for (int turn = 0; turn < 5; turn++) advance_cluster(c);
  assert_true(is_running(srun));
  c->now += 2;
  while (is_running(srun)) advance_cluster(c);
  close_cluster(c);
}

/* Node 1 arrives first, and node 0 takes long. */
static void test_slurm_agent_that_waits_for_another_gets_heartbeats(void **state) {
  (void)state;
  char byte;
  ssize_t n = 0;
  Cluster *c = open_cluster();
  await_srun(c);
  connect_node(c, 1);
  while (!channel_is_proven(c->agent[1]) || channel_unsent(c->agent[1])) advance_cluster(c);
  for (double end = progress_clock() + 60; n <= 0 && progress_clock() < end;) {
    OK(c->source.advance(c->source.self, c->now));
    n = recv(c->socket[1], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    poll(NULL, 0, 1);
  }
  assert_int_equal(n, 1);
  close_cluster(c);
}

#define TEST(name)      cmocka_unit_test_setup(name, begin)
#define SRUN_TEST(name) cmocka_unit_test_setup_teardown(name, keep_path, restore_path)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_slurm_batch_script_has_an_allocation),
      TEST(test_slurm_interactive_step_has_an_allocation),
      TEST(test_slurm_task_of_srun_has_no_allocation),
      TEST(test_slurm_tasks_are_read_for_each_node),
      TEST(test_slurm_tasks_nobody_asked_for_are_not_used),
      TEST(test_slurm_wrong_variables_are_refused),
      TEST(test_slurm_meeting_survives_its_line),
      TEST(test_slurm_meeting_longest_line_fits),
      TEST(test_slurm_wrong_line_is_refused),
      SRUN_TEST(test_slurm_srun_that_fails_ends_the_launch),
      SRUN_TEST(test_slurm_missing_srun_is_an_error),
      SRUN_TEST(test_slurm_srun_runs_until_every_agent_is_ready),
      SRUN_TEST(test_slurm_srun_is_kept_for_a_node_whose_agent_ended_with_it),
      SRUN_TEST(test_slurm_srun_is_killed_again_for_a_node_that_was_lost_later),
      SRUN_TEST(test_slurm_node_that_leaves_does_not_keep_srun),
      SRUN_TEST(test_slurm_allocation_that_has_ended_brings_no_node),
      SRUN_TEST(test_slurm_refusal_of_a_srun_whose_agents_run_is_not_the_end),
      SRUN_TEST(test_slurm_srun_runs_for_a_while_after_a_crash),
      SRUN_TEST(test_slurm_agent_that_waits_for_another_gets_heartbeats),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
