/* Sources of agents: what happens when an agent fails at its start, is lost or leaves. The test
 * controls the clock. The sources start scripts, or this test program, as agents.
 * run-tests: own program */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "launch/protocol.h"
#include "launch/slurm.h"
#include "launch/source_local.h"
#include "launch/source_slurm.h"
#include "launch/source_ssh.h"
#include "support.h"

#define LIMIT 120.0 /* time limit in seconds that suffices on a loaded machine */

static void rest(void) {
  nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Advances the source until a machine arrives, without advancing the test's clock. */
static void await_arrival(Source *source, Arrival *arrival, double now) {
  for (double start = progress_clock(); progress_clock() - start < LIMIT; rest()) {
    OK(source->advance(source->self, now));
    if (source->next(source->self, arrival)) return;
  }
  fail_msg("no machine has arrived");
}

/* Asserts that no machine arrives, however often the source is advanced. */
static void expect_no_arrival(Source *source, double now) {
  Arrival arrival;
  for (int turn = 0; turn < 20; turn++) {
    OK(source->advance(source->self, now));
    assert_false(source->next(source->self, &arrival));
    rest();
  }
}

/* Waits until the other end of the channel is closed. */
static void await_end(Channel *c) {
  for (double start = progress_clock(); progress_clock() - start < LIMIT; rest())
    if (channel_advance(c)) return;
  fail_msg("the agent has not ended");
}

static void lose(Source *source, Arrival *arrival, Loss loss, double now) {
  channel_close(arrival->channel);
  source->lost(source->self, arrival->name, loss, now);
}

static bool has_file(const char *name) {
  for (double start = progress_clock(); progress_clock() - start < LIMIT; rest())
    if (file_exists(at(name))) return true;
  return false;
}

/* The agent of this machine is this test program (see main), which reads its task from the
 * environment. */
static int play_agent(void) {
  const char *act = getenv("TEST_AGENT");
  char byte;
  if (act && strcmp(act, "fail") == 0) {
    fprintf(stderr, "trireme: cannot make a directory: no space\n");
    return 1;
  }
  while (read(3, &byte, 1) > 0) {} /* blocks until the head has closed the connection */
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  return file_write(getenv("TEST_FILE"), "x", 1) == ERR_OK ? 0 : 1;
}

static void test_local_agent_that_fails_is_tried_with_growing_pauses(void **state) {
  (void)state;
  skip_if_emulated(); /* the agent is this program, which the kernel cannot start */
  static const double pauses[] = {0.5, 1, 2, 4};
  Source source;
  Arrival arrival;
  double now = 100;
  Err err = ERR_OK;
  setenv("TEST_AGENT", "fail", 1);
  OK(source_local_open(&source, 0));
  for (int i = 0; i < 5; i++) {
    await_arrival(&source, &arrival, now);
    await_end(arrival.channel);
    lose(&source, &arrival, LOSS_EARLY, now);
    if (i == 4) break;
    expect_no_arrival(&source, now + pauses[i] - 0.01);
    now += pauses[i];
  }
  for (double start = progress_clock(); !err && progress_clock() - start < LIMIT; rest())
    err = source.advance(source.self, now);
  assert_int_equal(err, ERR_WORK);
  assert_says(
      "the agent of this machine ended 5 times soon after its start: cannot make a directory: "
      "no space");
  source.close(source.self);
}

static void test_local_agent_that_is_lost_later_is_started_at_once(void **state) {
  (void)state;
  skip_if_emulated(); /* the agent is this program, which the kernel cannot start */
  Source source;
  Arrival arrival;
  double now = 100;
  setenv("TEST_AGENT", "serve", 1);
  setenv("TEST_FILE", at("served"), 1);
  OK(source_local_open(&source, 0));
  for (int i = 0; i < 8; i++) {
    await_arrival(&source, &arrival, now);
    now += 60;
    lose(&source, &arrival, LOSS_FAILURE, now);
  }
  source.close(source.self);
}

static void test_local_agent_that_is_lost_has_time_to_end_in_order(void **state) {
  (void)state;
  skip_if_emulated(); /* the agent is this program, which the kernel cannot start */
  Source source;
  Arrival arrival;
  setenv("TEST_AGENT", "serve", 1);
  setenv("TEST_FILE", at("ended"), 1);
  OK(source_local_open(&source, 0));
  await_arrival(&source, &arrival, 100);
  lose(&source, &arrival, LOSS_FAILURE, 160); /* does not block until the agent has exited */
  assert_false(file_exists(at("ended")));
  await_arrival(&source, &arrival, 161);
  /* The first agent has exited before the next one was started. */
  assert_true(file_exists(at("ended")));
  channel_close(arrival.channel);
  source.close(source.self);
}

static char old_path[4096];

static int keep_path(void **state) {
  (void)state;
  snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
  return 0;
}

static int restore_path(void **state) {
  (void)state;
  return setenv("PATH", old_path, 1);
}

/* Creates a script with the name of a program, first in PATH. */
static void install(const char *name, const char *body) {
  char text[1024];
  char path[FILE_PATH_MAX];
  int len = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
  OK(file_write(at(name), text, (size_t)len));
  assert_int_equal(chmod(at(name), 0755), 0);
  snprintf(path, sizeof path, "%s:%.2000s", scratch, old_path);
  setenv("PATH", path, 1);
}

static void open_ssh(Source *source) {
  static Host host = {.address = "192.0.2.1", .name = "b"};
  static const HostList hosts = {.host = &host, .count = 1};
  static const SshOptions options = {.program = "/opt/trireme"};
  install("ssh", "[ \"$1\" = -G ] && exit 0\necho \"trireme-agent " TRIREME_VERSION
                 "\"\nexec cat > /dev/null");
  OK(source_ssh_open(source, &hosts, &options, 1));
}

static void test_ssh_host_that_is_lost_is_tried_again(void **state) {
  (void)state;
  Source source;
  Arrival arrival;
  open_ssh(&source);
  await_arrival(&source, &arrival, 100);
  lose(&source, &arrival, LOSS_FAILURE, 200);
  await_arrival(&source, &arrival, 202);
  channel_close(arrival.channel);
  source.close(source.self);
}

static void test_ssh_host_that_has_left_is_not_taken_back(void **state) {
  (void)state;
  Source source;
  Arrival arrival;
  open_ssh(&source);
  await_arrival(&source, &arrival, 100);
  lose(&source, &arrival, LOSS_LEFT, 200);
  expect_no_arrival(&source, 10000);
  source.close(source.self);
}

static void test_ssh_host_whose_agent_does_not_start_is_tried_less_and_less(void **state) {
  (void)state;
  Source source;
  Arrival arrival;
  double now = 100;
  open_ssh(&source);
  for (double delay = 2; delay < 20; delay *= 2) {
    await_arrival(&source, &arrival, now);
    lose(&source, &arrival, LOSS_EARLY, now);
    expect_no_arrival(&source, now + delay - 0.1);
    now += delay;
  }
  source.close(source.self);
}

#ifdef HAVE_SODIUM
/* Connects as the agent of node n0, with the line that the fake srun has received. */
static Channel *connect_node(Source *source, double now) {
  SlurmMeeting meeting;
  Str line = {0};
  Channel *c;
  assert_true(has_file("line"));
  OK(file_read(at("line"), SLURM_LINE_MAX, &line));
  line.s[strcspn(line.s, "\n")] = '\0';
  OK(slurm_parse_meeting(&meeting, line.s));
  str_free(&line);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)meeting.port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  OK(channel_open_secure(&c, fd, &meeting.key, HANDSHAKE_CLIENT, "the head"));
  for (double start = progress_clock();
       !channel_is_proven(c) && progress_clock() - start < LIMIT; rest()) {
    OK(channel_advance(c));
    OK(source->advance(source->self, now));
  }
  OK(protocol_send(c, MSG_SLURM_NODE, json_pack("{s:i, s:s}", "node", 0, "name", "n0")));
  OK(channel_advance(c));
  return c;
}

static Channel *open_slurm(Source *source, Arrival *arrival) {
  static const SlurmAllocation allocation = {.nodes = 1};
  char body[4 * FILE_PATH_MAX];
  snprintf(body, sizeof body,
           "read -r x\necho x >> '%s'\necho \"$x\" > '%s'\nmv '%s' '%s'\nexec cat", at("steps"),
           at("line.part"), at("line.part"), at("line"));
  unlink(at("line"));
  unlink(at("steps"));
  install("srun", body);
  OK(source_slurm_open(source, &allocation, false));
  Channel *node = connect_node(source, 100);
  await_arrival(source, arrival, 100);
  assert_string_equal(arrival->name, "n0");
  return node;
}

static size_t count_steps(void) {
  uint64_t bytes;
  OK(file_size(at("steps"), &bytes));
  return (size_t)bytes / 2;
}

static void test_slurm_node_that_is_lost_is_started_again(void **state) {
  (void)state;
  Source source;
  Arrival arrival;
  Channel *node = open_slurm(&source, &arrival);
  lose(&source, &arrival, LOSS_FAILURE, 200);
  OK(source.advance(source.self, 204.9));
  for (double start = progress_clock(); count_steps() < 2 && progress_clock() - start < LIMIT;
       rest())
    OK(source.advance(source.self, 205));
  assert_int_equal(count_steps(), 2);
  channel_close(node);
  source.close(source.self);
}

static void test_slurm_node_that_has_left_is_not_taken_back(void **state) {
  (void)state;
  Source source;
  Arrival arrival;
  Channel *node = open_slurm(&source, &arrival);
  lose(&source, &arrival, LOSS_LEFT, 200);
  expect_no_arrival(&source, 10000);
  assert_int_equal(count_steps(), 1);
  channel_close(node);
  source.close(source.self);
}
#endif

#define PATH_TEST(name) cmocka_unit_test_setup_teardown(name, keep_path, restore_path)

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_local_agent_that_fails_is_tried_with_growing_pauses),
      cmocka_unit_test(test_local_agent_that_is_lost_later_is_started_at_once),
      cmocka_unit_test(test_local_agent_that_is_lost_has_time_to_end_in_order),
      PATH_TEST(test_ssh_host_that_is_lost_is_tried_again),
      PATH_TEST(test_ssh_host_that_has_left_is_not_taken_back),
      PATH_TEST(test_ssh_host_whose_agent_does_not_start_is_tried_less_and_less),
#ifdef HAVE_SODIUM
      PATH_TEST(test_slurm_node_that_is_lost_is_started_again),
      PATH_TEST(test_slurm_node_that_has_left_is_not_taken_back),
#endif
  };
  /* Without the leak check of the sanitizer, which takes seconds for each of these processes on ARM. */
  if (argc > 1 && strcmp(argv[1], "launch") == 0) _exit(play_agent());
  log_mute();
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
