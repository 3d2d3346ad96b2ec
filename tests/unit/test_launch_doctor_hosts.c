/* Findings about several hosts: clocks, programs, libraries, links. Also the agent that answers
 * questions, through a socket pair. */
#include "launch/doctor_hosts.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"
#include "support.h"

#define HOSTS 4

static Session sessions[HOSTS];
static HostFacts facts[HOSTS];
static PairFacts pairs[HOSTS * HOSTS];

/* Makes four equal hosts, h1 to h4. */
static DoctorHosts make_hosts(size_t count) {
  DoctorHosts d = {.sessions = {.list = sessions, .count = count},
                   .host = facts,
                   .pair = pairs,
                   .needs = {.gradient = 1000000000}};
  for (size_t i = 0; i < count; i++) {
    sessions[i] = (Session){.is_ready = true, .is_member = true};
    snprintf(sessions[i].host.name, sizeof sessions[i].host.name, "h%zu", i + 1);
    facts[i] = (HostFacts){.has_facts = true, .has_clock = true, .card = "eth0"};
    facts[i].facts = (MachineFacts){.cores = 8,
                                    .cpu = "Test CPU",
                                    .sha256 = "aaa",
                                    .mpi = "Open MPI v4.1.4",
                                    .mpirun = "mpirun (Open MPI) 4.1.4"};
  }
  return d;
}

/* Adds all pairs of the hosts, with links of 1 GB/s. */
static void connect_pairs(DoctorHosts *d) {
  for (size_t a = 0; a < d->sessions.count; a++)
    for (size_t b = a + 1; b < d->sessions.count; b++)
      d->pair[d->pairs++] = (PairFacts){.a = a,
                                        .b = b,
                                        .was_measured = true,
                                        .latency = 1e-4,
                                        .rate_ab = 1e9,
                                        .rate_ba = 1e9};
}

static void slow_down(DoctorHosts *d, size_t host, double rate) {
  for (size_t i = 0; i < d->pairs; i++)
    if (d->pair[i].a == host || d->pair[i].b == host) d->pair[i].rate_ab = rate;
}

/* Returns the only finding of a host that is not OK; NULL if all are OK. */
static const Finding *find_wrong(const Findings *f, const char *host) {
  const Finding *found = NULL;
  for (size_t i = 0; i < f->count; i++) {
    const Finding *x = &f->list[i];
    if (x->level == FINDING_OK || strcmp(x->host, host) != 0) continue;
    assert_null(found);
    assert_true(x->remedy[0] != '\0');
    found = x;
  }
  return found;
}

static void expect_wrong(const Findings *f, const char *host, FindingLevel level,
                         const char *words) {
  const Finding *x = find_wrong(f, host);
  assert_non_null(x);
  assert_int_equal(x->level, level);
  if (!strstr(x->text, words)) fail_msg("\"%s\" lacks \"%s\"", x->text, words);
}

static size_t count_wrong(const Findings *f) {
  return f->count - findings_count(f, FINDING_OK);
}

static void test_clocks_within_a_second_are_ok(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  facts[1].clock_offset = 0.9;
  doctor_judge_clocks(&f, &d);
  assert_int_equal(findings_count(&f, FINDING_OK), 3);
  findings_free(&f);
}

static void test_clocks_one_host_behind_is_named(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  facts[2].clock_offset = -30;
  doctor_judge_clocks(&f, &d);
  expect_wrong(&f, "h3", FINDING_PROBLEM, "30.0 s behind the other hosts");
  assert_int_equal(count_wrong(&f), 1);
  findings_free(&f);
}

/* This machine is h1; all others are ahead of it by the same time. */
static void test_clocks_this_machine_wrong_is_named_itself(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(4);
  for (int i = 1; i < 4; i++) facts[i].clock_offset = 60;
  doctor_judge_clocks(&f, &d);
  expect_wrong(&f, "h1", FINDING_PROBLEM, "60.0 s behind");
  assert_int_equal(count_wrong(&f), 1);
  findings_free(&f);
}

static void test_clocks_of_two_hosts_name_the_other_one(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(2);
  facts[1].clock_offset = -60;
  doctor_judge_clocks(&f, &d);
  expect_wrong(&f, "h2", FINDING_PROBLEM, "60.0 s behind");
  assert_int_equal(count_wrong(&f), 1);
  findings_free(&f);
}

static void test_clocks_slow_round_trip_proves_nothing(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  facts[1].clock_offset = 1.4;
  facts[1].clock_error = 0.5;
  doctor_judge_clocks(&f, &d);
  assert_int_equal(count_wrong(&f), 0);
  findings_free(&f);
}

static void test_compare_equal_hosts_is_ok(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  doctor_compare_hosts(&f, &d, "aaa");
  assert_int_equal(count_wrong(&f), 0);
  findings_free(&f);
}

static void test_compare_other_program_is_a_problem(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  strcpy(facts[1].facts.sha256, "bbb");
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "h2", FINDING_PROBLEM, "another program");
  assert_int_equal(count_wrong(&f), 1);
  findings_free(&f);
}

static void test_compare_other_mpi_is_a_problem(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  strcpy(facts[2].facts.mpi, "Open MPI v5.0.2");
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "h3", FINDING_PROBLEM, "'Open MPI v5.0.2', but 'Open MPI v4.1.4' on h1");
  findings_free(&f);
}

static void test_compare_other_nccl_is_a_problem(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(2);
  strcpy(facts[0].facts.nccl, "2.20.5");
  strcpy(facts[1].facts.nccl, "2.19.3");
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "h2", FINDING_PROBLEM, "NCCL");
  findings_free(&f);
}

static void test_compare_other_processor_is_a_warning(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(2);
  strcpy(facts[1].facts.cpu, "Slow CPU");
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "h2", FINDING_WARNING, "Slow CPU");
  findings_free(&f);
}

static void test_compare_uneven_cores_is_a_warning(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  facts[1].facts.cores = 16;
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "", FINDING_WARNING, "h2 has 16 cores, h1 has 8");
  findings_free(&f);
}

static void test_compare_uneven_gpus_is_a_warning(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(3);
  facts[2].facts.gpus = 2;
  doctor_compare_hosts(&f, &d, "aaa");
  expect_wrong(&f, "", FINDING_WARNING, "h3 has 2 GPUs, h1 has 0");
  findings_free(&f);
}

static void test_compare_no_facts_at_all_finds_nothing(void **state) {
  (void)state;
  Findings f = {0};
  DoctorHosts d = make_hosts(2);
  facts[0].has_facts = facts[1].has_facts = false;
  doctor_compare_hosts(&f, &d, "aaa");
  assert_int_equal(f.count, 0);
  findings_free(&f);
}

static void test_pairs_equal_links_are_ok(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(4);
  connect_pairs(&d);
  doctor_judge_pairs(&d);
  assert_int_equal(d.findings.count, 1);
  assert_int_equal(d.findings.list[0].level, FINDING_OK);
  /* 2 * 3 / 4 of 1 GB at 1 GB/s is 1.5 s */
  assert_non_null(strstr(d.findings.list[0].text, "6 pairs: 8.00 Gbit/s"));
  assert_non_null(strstr(d.findings.list[0].text, "at least 1.500 s"));
  findings_free(&d.findings);
}

static void test_pairs_host_with_slow_links_is_named_once(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(3);
  connect_pairs(&d);
  slow_down(&d, 2, 1e6);
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "h3", FINDING_PROBLEM, "all its links are slow: at most 8 Mbit/s");
  assert_int_equal(count_wrong(&d.findings), 1);
  findings_free(&d.findings);
}

static void test_pairs_half_slow_host_is_a_warning(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(4);
  connect_pairs(&d);
  slow_down(&d, 0, 0.2e9);
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "h1", FINDING_WARNING, "all its links are slow");
  assert_int_equal(count_wrong(&d.findings), 1);
  findings_free(&d.findings);
}

static void test_pairs_one_slow_link_is_named(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(4);
  connect_pairs(&d);
  d.pair[0].rate_ba = 1e6; /* pair 0 is h1 and h2 */
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "h2", FINDING_PROBLEM, "8.00 Gbit/s from h1, 8 Mbit/s to h1");
  assert_int_equal(count_wrong(&d.findings), 1);
  findings_free(&d.findings);
}

static void test_pairs_failed_link_is_a_problem(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(3);
  connect_pairs(&d);
  strcpy(d.pair[1].why, "Connection refused"); /* pair 1 is h1 and h3 */
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "h3", FINDING_PROBLEM, "the link from h1 could not be measured");
  findings_free(&d.findings);
}

static void test_pairs_of_two_hosts_are_compared_with_the_card(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(2);
  connect_pairs(&d);
  d.speed = 100000; /* Mbit/s, which is 12.5 GB/s */
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "h2", FINDING_PROBLEM, "100.00 Gbit/s is the speed of the card");
  findings_free(&d.findings);
}

static void test_pairs_of_two_hosts_without_a_known_speed_are_ok(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(2);
  connect_pairs(&d);
  doctor_judge_pairs(&d);
  assert_int_equal(count_wrong(&d.findings), 0);
  findings_free(&d.findings);
}

static void test_pairs_high_latency_is_a_warning(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(3);
  connect_pairs(&d);
  d.pair[2].latency = 0.02;
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "", FINDING_WARNING, "latency at most 20.00 ms");
  findings_free(&d.findings);
}

static void test_pairs_not_measured_are_counted(void **state) {
  (void)state;
  DoctorHosts d = make_hosts(3);
  connect_pairs(&d);
  d.pair[2].was_measured = false;
  doctor_judge_pairs(&d);
  expect_wrong(&d.findings, "", FINDING_WARNING, "1 of 3 pairs were not measured");
  findings_free(&d.findings);
}

/* Tests of the doctor's agent. */

static pid_t agent;

/* A session with an agent in a child process. */
static int start_agent(void **state) {
  (void)state;
  int fd[2];
  Channel *head;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) return -1;
  agent = fork();
  if (agent == 0) {
    close(fd[0]);
    _exit(channel_open(&head, fd[1], fd[1], "test") ? 9 : (int)doctor_agent_run(head));
  }
  close(fd[1]);
  sessions[0] = (Session){.is_ready = true};
  return agent < 0 ? -1 : (int)channel_open(&sessions[0].channel, fd[0], fd[0], "agent");
}

static int stop_agent(void **state) {
  (void)state;
  int status;
  json_decref(sessions[0].answer);
  sessions[0].answer = NULL;
  channel_close(sessions[0].channel);
  return waitpid(agent, &status, 0) == agent ? 0 : -1;
}

static const json_t *ask(json_t *question) {
  Sessions s = {.list = sessions, .count = 1};
  session_ask(&sessions[0], question);
  sessions_wait(&s, 60);
  return sessions[0].answer;
}

static void test_agent_answers_clock(void **state) {
  (void)state;
  const json_t *answer = ask(json_pack("{s:s}", "ask", "clock"));
  assert_true(json_number_value(json_object_get(answer, "clock")) > 1.7e9);
}

static void test_agent_answers_facts(void **state) {
  (void)state;
  static MachineFacts m;
  static NetworkList networks;
  const json_t *answer = ask(json_pack("{s:s}", "ask", "facts"));
  OK(facts_from_json(&m, json_object_get(answer, "facts"), "agent"));
  OK(network_from_json(&networks, json_object_get(answer, "networks"), "agent"));
  assert_true(m.cores > 0);
}

static void test_agent_writes_reads_and_removes_a_file(void **state) {
  (void)state;
  const json_t *answer =
      ask(json_pack("{s:s, s:s, s:s}", "ask", "write", "path", at("file"), "text", "token"));
  assert_string_equal(protocol_text(answer, "why"), "");
  answer = ask(json_pack("{s:s, s:s}", "ask", "read", "path", at("file")));
  assert_string_equal(protocol_text(answer, "text"), "token");
  answer = ask(json_pack("{s:s, s:s, s:s}", "ask", "write", "path", at("file"), "text", "x"));
  assert_string_equal(protocol_text(answer, "why"), "File exists");
  answer = ask(json_pack("{s:s, s:s}", "ask", "remove", "path", at("file")));
  assert_string_equal(protocol_text(answer, "why"), "");
  answer = ask(json_pack("{s:s, s:s}", "ask", "read", "path", at("file")));
  assert_string_equal(protocol_text(answer, "why"), "No such file or directory");
}

static void test_agent_hash_of_a_missing_file_is_empty(void **state) {
  (void)state;
  const json_t *answer = ask(json_pack("{s:s, s:s}", "ask", "hash", "path", at("missing")));
  assert_string_equal(protocol_text(answer, "sha256"), "");
}

#define TOKEN "00112233445566778899aabbccddeeff"

static void test_agent_listens_and_measures(void **state) {
  (void)state;
  const json_t *answer = ask(json_pack("{s:s, s:s, s:s, s:[i, i]}", "ask", "listen", "address",
                                       "127.0.0.1", "token", TOKEN, "ports", 0, 0));
  int port = (int)json_integer_value(json_array_get(json_object_get(answer, "ports"), 1));
  assert_true(port > 0);
  answer = ask(json_pack("{s:s, s:[{s:s, s:i}]}", "ask", "try", "targets", "address",
                         "127.0.0.1", "port", port));
  assert_string_equal(json_string_value(json_array_get(json_object_get(answer, "why"), 0)), "");
  answer = ask(json_pack("{s:s, s:s, s:i, s:s, s:f}", "ask", "measure", "address", "127.0.0.1",
                         "port", port, "token", TOKEN, "seconds", 0.02));
  assert_string_equal(protocol_text(answer, "why"), "");
  assert_true(json_number_value(json_object_get(answer, "rate_in")) > 0);
}

static void test_agent_unknown_question_ends_it(void **state) {
  (void)state;
  assert_null(ask(json_pack("{s:s}", "ask", "nonsense")));
  assert_false(sessions[0].is_ready);
  assert_non_null(strstr(sessions[0].problem, "closed the connection"));
}

static void test_agent_wrong_token_ends_it(void **state) {
  (void)state;
  assert_null(ask(json_pack("{s:s, s:s, s:s, s:[i]}", "ask", "listen", "address", "127.0.0.1",
                            "token", "xyz", "ports", 0)));
  assert_false(sessions[0].is_ready);
}

static void test_session_without_an_answer_in_time_is_lost(void **state) {
  (void)state;
  Sessions s = {.list = sessions, .count = 1};
  kill(agent, SIGSTOP);
  session_ask(&sessions[0], json_pack("{s:s}", "ask", "clock"));
  sessions_wait(&s, 0.3);
  kill(agent, SIGCONT);
  assert_false(sessions[0].is_ready);
  assert_string_equal(sessions[0].problem, "no answer within 0.3 s");
}

#define AGENT_TEST(name) cmocka_unit_test_setup_teardown(name, start_agent, stop_agent)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_clocks_within_a_second_are_ok),
      cmocka_unit_test(test_clocks_one_host_behind_is_named),
      cmocka_unit_test(test_clocks_this_machine_wrong_is_named_itself),
      cmocka_unit_test(test_clocks_of_two_hosts_name_the_other_one),
      cmocka_unit_test(test_clocks_slow_round_trip_proves_nothing),
      cmocka_unit_test(test_compare_equal_hosts_is_ok),
      cmocka_unit_test(test_compare_other_program_is_a_problem),
      cmocka_unit_test(test_compare_other_mpi_is_a_problem),
      cmocka_unit_test(test_compare_other_nccl_is_a_problem),
      cmocka_unit_test(test_compare_other_processor_is_a_warning),
      cmocka_unit_test(test_compare_uneven_cores_is_a_warning),
      cmocka_unit_test(test_compare_uneven_gpus_is_a_warning),
      cmocka_unit_test(test_compare_no_facts_at_all_finds_nothing),
      cmocka_unit_test(test_pairs_equal_links_are_ok),
      cmocka_unit_test(test_pairs_host_with_slow_links_is_named_once),
      cmocka_unit_test(test_pairs_half_slow_host_is_a_warning),
      cmocka_unit_test(test_pairs_one_slow_link_is_named),
      cmocka_unit_test(test_pairs_failed_link_is_a_problem),
      cmocka_unit_test(test_pairs_of_two_hosts_are_compared_with_the_card),
      cmocka_unit_test(test_pairs_of_two_hosts_without_a_known_speed_are_ok),
      cmocka_unit_test(test_pairs_high_latency_is_a_warning),
      cmocka_unit_test(test_pairs_not_measured_are_counted),
      AGENT_TEST(test_agent_answers_clock),
      AGENT_TEST(test_agent_answers_facts),
      AGENT_TEST(test_agent_writes_reads_and_removes_a_file),
      AGENT_TEST(test_agent_hash_of_a_missing_file_is_empty),
      AGENT_TEST(test_agent_listens_and_measures),
      AGENT_TEST(test_agent_unknown_question_ends_it),
      AGENT_TEST(test_agent_wrong_token_ends_it),
      AGENT_TEST(test_session_without_an_answer_in_time_is_lost),
  };
  signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
