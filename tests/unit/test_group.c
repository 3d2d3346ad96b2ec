/* Hosts, local ranks and cores, computed from the identities of the ranks (comm/group.h). */
#include "comm/group.h"

#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"
#include "support.h"

enum { RANKS = 4 };

/* Ranks 0 and 2 are on host a, 1 and 3 on host b; each has its own cores. */
static Group make_group(Identity *identity, int rank) {
  for (int r = 0; r < RANKS; r++) {
    identity[r] =
        (Identity){.machine = 1, .pid_space = 1, .core_set = (uint64_t)r + 1, .cores = 1};
    snprintf(identity[r].host, HOST_MAX, "%s", r % 2 ? "b" : "a");
  }
  return (Group){.rank = rank, .size = RANKS, .identity = identity};
}

static void test_group_two_hosts_count_local_ranks(void **state) {
  (void)state;
  Identity identity[RANKS];
  Group g = make_group(identity, 3);
  group_count(&g);
  assert_int_equal(g.hosts, 2);
  assert_int_equal(g.local_size, 2);
  assert_int_equal(g.local_rank, 1);
  assert_false(g.is_oversubscribed);
}

static void test_group_machines_of_one_name_are_two_hosts(void **state) {
  (void)state;
  Identity identity[RANKS];
  Group g = make_group(identity, 0);
  identity[2].machine = 2;
  group_count(&g);
  assert_int_equal(g.hosts, 3);
  assert_int_equal(g.local_size, 1);
  assert_false(group_is_same_host(&g, 0, 2));
}

static void test_group_lowest_rank_of_each_host_is_first(void **state) {
  (void)state;
  Identity identity[RANKS];
  Group g = make_group(identity, 3);
  assert_true(group_is_first_of_host(&g, 0));
  assert_true(group_is_first_of_host(&g, 1));
  assert_false(group_is_first_of_host(&g, 2));
  assert_false(group_is_first_of_host(&g, 3));
}

static void test_group_pid_is_known_on_the_same_host_and_namespace(void **state) {
  (void)state;
  Identity identity[RANKS];
  Group g = make_group(identity, 0);
  for (int r = 0; r < RANKS; r++) identity[r].pid = 100 + r;
  assert_int_equal(group_pid(&g, 2), 102);
  assert_int_equal(group_pid(&g, 1), 0); /* another host */
  identity[2].pid_space = 7;
  assert_int_equal(group_pid(&g, 2), 0);
  identity[0].pid_space = 0;
  identity[2].pid_space = 0;
  assert_int_equal(group_pid(&g, 2), 0); /* unknown namespaces */
}

static void test_group_core_sharers_are_those_of_the_same_host(void **state) {
  (void)state;
  Identity identity[RANKS];
  Group g = make_group(identity, 0);
  for (int r = 0; r < RANKS; r++) identity[r].core_set = 9;
  assert_int_equal(group_count_core_sharers(&g), 2);
}

static void test_group_more_ranks_than_cores_is_oversubscribed(void **state) {
  (void)state;
  int ranks = thread_cores() + 1;
  Identity *identity = test_calloc((size_t)ranks, sizeof *identity);
  Group g = {.size = ranks, .identity = identity}; /* all identities are equal */
  group_count(&g);
  assert_true(g.is_oversubscribed);
  g.size--;
  group_count(&g);
  assert_false(g.is_oversubscribed);
  test_free(identity);
}

static void test_group_host_before_the_ranks_have_met_is_unknown(void **state) {
  (void)state;
  Identity identity[1] = {0};
  Group g = {.size = 1, .identity = identity};
  assert_string_equal(group_host(&g, 0), "an unknown host");
}

static void test_group_own_process_is_not_dead(void **state) {
  (void)state;
  Identity identity[2] = {0};
  Group g = {.size = 2, .identity = identity};
  identity_read(&identity[0]);
  identity_read(&identity[1]);
  assert_int_equal(identity[0].pid, getpid());
  assert_false(group_is_dead(&g, 1));
}

static void test_group_process_of_other_namespace_is_never_dead(void **state) {
  (void)state;
  Identity identity[2] = {0};
  Group g = {.size = 2, .identity = identity};
  identity_read(&identity[0]);
  identity[1] = identity[0];
  identity[1].pid = 0x3fffffff; /* above any pid_max, so no process has it */
  identity[1].pid_space++;
  assert_false(group_is_dead(&g, 1));
  identity[1].pid_space = identity[0].pid_space;
  assert_int_equal(group_is_dead(&g, 1), identity[0].pid_space != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_group_two_hosts_count_local_ranks),
      cmocka_unit_test(test_group_machines_of_one_name_are_two_hosts),
      cmocka_unit_test(test_group_lowest_rank_of_each_host_is_first),
      cmocka_unit_test(test_group_pid_is_known_on_the_same_host_and_namespace),
      cmocka_unit_test(test_group_core_sharers_are_those_of_the_same_host),
      cmocka_unit_test(test_group_more_ranks_than_cores_is_oversubscribed),
      cmocka_unit_test(test_group_host_before_the_ranks_have_met_is_unknown),
      cmocka_unit_test(test_group_own_process_is_not_dead),
      cmocka_unit_test(test_group_process_of_other_namespace_is_never_dead),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
