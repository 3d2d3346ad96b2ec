/* What the report says of ranks, hosts and the network, in runs whose truth is planted. */
#include "report_run.h"

static void add_card(const char *host, double sent, double mbit) {
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"%s\",\"net\":{\"eth0\":{\"sent\":%g,\"received\":%g,"
           "\"speed\":%g}}}\n",
           host, sent, sent, mbit);
}

static void test_report_slow_link_is_the_bottleneck(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 70);
    add_ranks(100 * i, "100,100", "70,69", "0,0");
  }
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"net\":{\"eth0\":{\"sent\":10000000,"
           "\"received\":9000000,\"speed\":1000}}}\n");
  const RunReport *run = make_report(NAN);
  assert_headline(run, "network", "Yes: 69 % of a step waits for it");
  assert_headline(run, "devices", "all-reduce wait");
  assert_true(run->straggler == SIZE_MAX);
  const Answer *a = find_answer(run, "traffic");
  assert_float_equal(get_figure(a, "ring_bytes"), 4e6, 1);
  assert_float_equal(get_figure(a, "ratio_to_ring"), 0.25, 1e-6);
  assert_float_equal(get_figure(a, "ms_at_card_speed"), 8, 1e-6);
  assert_non_null(strstr(find_answer(run, "network")->sentence, "8.0 % of its"));
  assert_non_null(strstr(find_answer(run, "network")->sentence, "the card is not the limit"));
  assert_non_null(strstr(run->changes[0].what, "bf16"));
  assert_float_equal(run->changes[0].share, 0.345, 0.001);
}

/* A card that is busy for 30 % of the time at full speed explains a wait of 30 %. */
static void test_report_busy_card_may_be_the_limit(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 30);
    add_ranks(100 * i, "100,100", "30,30", "0,0");
  }
  add_card("h1", 0.3 * 125e6, 1000);
  const Answer *a = find_answer(make_report(NAN), "network");
  assert_non_null(strstr(a->headline, "Yes: 30 % of a step"));
  assert_null(strstr(a->sentence, "is not the limit"));
}

/* Two of four ranks share a card: 2 x 2/3 of what rank 0 counts leaves the host. */
static void test_report_traffic_of_a_host_is_that_of_its_ranks(void **state) {
  (void)state;
  add_process(4, "\"h1\",\"h1\",\"h2\",\"h2\"");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 30);
  add_card("h1", 20e6, 1000);
  const Answer *a = find_answer(make_report(NAN), "traffic");
  assert_true(fabs(get_figure(a, "host_bytes") - 4e6 / 3) < 1);
  assert_true(fabs(get_figure(a, "ms_at_card_speed") - 32.0 / 3) < 1e-6);
}

/* Rank 0 sends 10 MB/s, but the card only 1 kB/s. */
static void test_report_card_that_was_not_used_is_not_compared(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 70);
    add_ranks(100 * i, "100,100", "70,69", "0,0");
  }
  add_card("h1", 1000, 1000);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "network", "Possibly: 69 % of a step waits for gradients");
  assert_non_null(strstr(find_answer(run, "network")->sentence, "No card that was measured"));
  assert_true(isnan(get_figure(find_answer(run, "traffic"), "ms_at_card_speed")));
}

static void test_report_bytes_of_nccl_are_not_counted(void **state) {
  (void)state;
  add_line("processes.jsonl",
           "{\"ranks\":2,\"hosts\":[\"h1\",\"h2\"],\"gradient_bytes\":4000000,"
           "\"allreduce\":\"gradient all-reduce from GPU to GPU by NCCL 2.21\"}\n");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 70);
  const Answer *a = find_answer(make_report(NAN), "traffic");
  assert_true(isnan(get_figure(a, "sent_bytes")));
  assert_non_null(strstr(a->sentence, "the bytes that NCCL sends are not counted"));
}

static void test_report_network_of_unknown_hosts_is_unknown(void **state) {
  (void)state;
  add_line("processes.jsonl", "{\"ranks\":2,\"gradient_bytes\":4000000}\n");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 1);
  const RunReport *run = make_report(NAN);
  assert_int_equal(find_answer(run, "network")->verdict, VERDICT_UNKNOWN);
  assert_null(strstr(find_answer(run, "traffic")->sentence, "NCCL"));
}

static void test_report_ranks_without_their_waits_are_unknown(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 70);
    add_line("metrics.jsonl",
             "{\"event\":\"ranks\",\"rank_ms\":[100,100],\"step\":%d,\"seconds\":1}\n",
             100 * i);
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->facts.rank_count, 0);
  assert_headline(run, "network", "Possibly");
}

/* Both ranks of h2 are slow: making one of them faster saves nothing, both 45 ms. */
static void test_report_slow_host_is_named(void **state) {
  (void)state;
  add_process(4, "\"h1\",\"h1\",\"h2\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_line("metrics.jsonl",
             "{\"event\":\"ranks\",\"rank_ms\":[100,100,100,100],\"rank_wait_ms\":[50,46,1,2],"
             "\"rank_data_ms\":[0,0,0,0],\"hosts\":[\"h1\",\"h1\",\"h2\",\"h2\"],\"step\":%d,"
             "\"seconds\":1}\n",
             100 * i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "devices", "No: 24 % of the ranks' time waits for rank 2");
  assert_non_null(strstr(run->changes[0].what, "Make the ranks on h2 as fast as the others"));
  assert_float_equal(run->changes[0].share, 0.45, 0.001);
}

/* One of four ranks is slower than the next one by 5 ms: that is what a faster one would save. */
static void test_report_straggler_saves_up_to_the_next_rank(void **state) {
  (void)state;
  add_process(4, "\"h1\",\"h2\",\"h3\",\"h4\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_line("metrics.jsonl",
             "{\"event\":\"ranks\",\"rank_ms\":[100,100,100,100],\"rank_wait_ms\":[50,50,6,1],"
             "\"rank_data_ms\":[0,0,0,0],\"step\":%d,\"seconds\":1}\n",
             100 * i);
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->straggler, 3);
  for (size_t i = 0; i < run->change_count; i++)
    if (strstr(run->changes[i].what, "Make rank 3"))
      assert_float_equal(run->changes[i].share, 0.05, 0.001);
}

/* The run continued with four ranks at step 600: what is said of steps is of these. */
static void test_report_means_are_of_the_present_ranks(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 40, 0);
    add_ranks(100 * i, "100,100", "1,1", "40,40");
  }
  add_line("processes.jsonl",
           "{\"step\":600,\"ranks\":4,\"hosts\":[\"a\",\"b\",\"c\",\"d\"],"
           "\"device\":\"cpu: test\",\"gradient_bytes\":4000000}\n");
  assert_int_equal(make_report(NAN)->facts.rank_count, 0);
  assert_true(isnan(report.runs[0]->facts.parts.total));
  report_free(&report);
  for (int i = 7; i <= 12; i++) add_step(100 * i, 3, 20, 0);
  const RunReport *run = make_report(NAN);
  assert_float_equal(get_figure(find_answer(run, "step"), "data_wait_ms"), 20, 1e-9);
  assert_float_equal(get_figure(find_answer(run, "duration"), "step_seconds"), 120, 1e-9);
}

static void test_report_slow_rank_is_named(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_ranks(100 * i, "100,100", "51,1", "0,0");
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->straggler, 1);
  assert_headline(run, "network", "No: 1.0 % of a step");
  assert_headline(run, "devices", "waits for rank 1");
  assert_non_null(strstr(run->changes[0].what, "Make rank 1 on h2 as fast as the others"));
  assert_float_equal(run->changes[0].share, 0.5, 0.01);
}

static void test_report_slow_disk_of_one_rank_is_named(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_ranks(100 * i, "100,100", "51,1", "0,50");
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->straggler, 1);
  assert_non_null(strstr(run->changes[0].how, "waits for data"));
}

static void test_report_without_times_of_ranks_does_not_guess(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 50);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "network", "Possibly: 50 % of a step waits");
  assert_non_null(strstr(find_answer(run, "network")->sentence, "is unknown"));
  assert_true(run->straggler == SIZE_MAX);
}

/* Numbers of ranks that cannot be: unknown, and no index. */
static void test_report_impossible_numbers_of_ranks_are_unknown(void **state) {
  (void)state;
  add_line("config", "preset = tiny\n");
  static const char *const ranks[] = {"-5", "0", "0.5", "1e300", "\"2\"", "null"};
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"gpu\":[{\"busy\":90},{\"memory_used\":1}]}\n");
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    add_line("processes.jsonl", "{\"ranks\":%s,\"parameters\":-1}\n", ranks[i]);
    const RunReport *run = make_report(NAN);
    assert_true(isnan(run->facts.ranks));
    assert_true(isnan(run->facts.parameters));
    assert_float_equal(run->facts.gpus_used, 2, 0);
    report_free(&report);
  }
}

static void test_report_counts_each_host_once(void **state) {
  (void)state;
  add_line("config", "preset = tiny\n");
  add_process(5, "\"b\",\"a\",\"b\",\"c\",\"a\"");
  assert_float_equal(make_report(NAN)->facts.hosts, 3, 0);
}

static void test_report_card_without_a_speed_is_unknown(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 70);
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"net\":{\"eth0\":{\"sent\":10,\"received\":9}}}\n");
  const Answer *a = find_answer(make_report(NAN), "network");
  const Figure *speed = &a->figures[a->figure_count - 1];
  assert_string_equal(speed->key, "card_speed_bytes_per_s");
  assert_string_equal(speed->shown, "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_report_slow_link_is_the_bottleneck),
      CASE(test_report_busy_card_may_be_the_limit),
      CASE(test_report_traffic_of_a_host_is_that_of_its_ranks),
      CASE(test_report_card_that_was_not_used_is_not_compared),
      CASE(test_report_bytes_of_nccl_are_not_counted),
      CASE(test_report_network_of_unknown_hosts_is_unknown),
      CASE(test_report_ranks_without_their_waits_are_unknown),
      CASE(test_report_slow_host_is_named),
      CASE(test_report_straggler_saves_up_to_the_next_rank),
      CASE(test_report_means_are_of_the_present_ranks),
      CASE(test_report_slow_rank_is_named),
      CASE(test_report_slow_disk_of_one_rank_is_named),
      CASE(test_report_without_times_of_ranks_does_not_guess),
      CASE(test_report_impossible_numbers_of_ranks_are_unknown),
      CASE(test_report_counts_each_host_once),
      CASE(test_report_card_without_a_speed_is_unknown),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
