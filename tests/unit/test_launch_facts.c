/* Facts of a machine as JSON: written facts are read back unchanged; invalid values from
 * another machine are refused. */
#include "launch/facts.h"

#include "support.h"

/* Fills in facts with members of every type and both lists. */
static void fill_facts(MachineFacts *m) {
  *m = (MachineFacts){.host = "node1",
                      .cores = 8,
                      .core_quota = 2.5,
                      .memory = 1ull << 34,
                      .is_clock_synced = true,
                      .clock = 1.7e9,
                      .open_files = FACTS_UNLIMITED,
                      .gpus = 2,
                      .addresses = 1};
  strcpy(m->gpu[0].name, "NVIDIA H200");
  m->gpu[1].memory = 141ull << 30;
  strcpy(m->address[0].card, "eth0");
  strcpy(m->address[0].address, "10.0.0.1");
  m->address[0].prefix = 24;
  m->address[0].is_up = true;
}

/* Parses facts in which one member is replaced; takes ownership of `value`. */
static Err read_with(MachineFacts *m, const char *key, json_t *value) {
  static MachineFacts from;
  fill_facts(&from);
  json_t *json = facts_to_json(&from);
  assert_int_equal(json_object_set_new(json, key, value), 0);
  Err err = facts_from_json(m, json, "node1");
  json_decref(json);
  return err;
}

static void test_facts_written_and_read_are_equal(void **state) {
  (void)state;
  static MachineFacts from, to;
  fill_facts(&from);
  json_t *json = facts_to_json(&from);
  OK(facts_from_json(&to, json, "node1"));
  json_decref(json);
  assert_memory_equal(&from, &to, sizeof from);
}

static void test_facts_directory_written_and_read_are_equal(void **state) {
  (void)state;
  static DirectoryFacts from, to;
  from = (DirectoryFacts){
      .path = "/mnt/runs", .exists = true, .free = 1000, .write_rate = 1.5e8, .problem = "x"};
  json_t *json = facts_directory_to_json(&from);
  OK(facts_directory_from_json(&to, json, "node1"));
  json_decref(json);
  assert_memory_equal(&from, &to, sizeof from);
}

static void test_facts_host_name_not_utf8_is_escaped(void **state) {
  (void)state;
  static MachineFacts from, to;
  strcpy(from.host, "a\xff");
  json_t *json = facts_to_json(&from);
  OK(facts_from_json(&to, json, "node1"));
  json_decref(json);
  assert_string_equal(to.host, "a\\xff");
}

static void test_facts_missing_members_are_zero(void **state) {
  (void)state;
  static MachineFacts m;
  json_t *json = json_object();
  OK(facts_from_json(&m, json, "node1"));
  json_decref(json);
  assert_int_equal(m.cores, 0);
  assert_int_equal(m.gpus, 0);
}

static void test_facts_unknown_members_are_ignored(void **state) {
  (void)state;
  static MachineFacts m;
  OK(read_with(&m, "of a later version", json_integer(1)));
  assert_int_equal(m.cores, 8);
}

static void test_facts_text_as_number_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  assert_int_equal(read_with(&m, "cores", json_string("8")), ERR_WORK);
  assert_says("node1: the fact 'cores'");
}

static void test_facts_negative_count_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  assert_int_equal(read_with(&m, "memory", json_integer(-2)), ERR_WORK);
  assert_says("'memory'");
}

static void test_facts_negative_real_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  assert_int_equal(read_with(&m, "clock", json_real(-1)), ERR_WORK);
  assert_says("'clock'");
}

static void test_facts_long_text_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  char text[200];
  memset(text, 'a', sizeof text);
  assert_int_equal(read_with(&m, "host", json_stringn(text, 64)), ERR_OK);
  assert_int_equal(read_with(&m, "host", json_stringn(text, 65)), ERR_WORK);
  assert_says("'host'");
}

static void test_facts_text_with_nul_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  assert_int_equal(read_with(&m, "host", json_stringn("a\0b", 3)), ERR_WORK);
}

static void test_facts_too_many_gpus_are_refused(void **state) {
  (void)state;
  static MachineFacts m;
  json_t *list = json_array();
  for (int i = 0; i <= FACTS_GPUS; i++) json_array_append_new(list, json_object());
  assert_int_equal(read_with(&m, "gpus", list), ERR_WORK);
  assert_says("at most 32");
}

static void test_facts_list_of_numbers_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  assert_int_equal(read_with(&m, "addresses", json_pack("[i]", 1)), ERR_WORK);
  assert_says("not a JSON object");
}

static void test_facts_not_an_object_is_refused(void **state) {
  (void)state;
  static MachineFacts m;
  json_t *json = json_array();
  assert_int_equal(facts_from_json(&m, json, "node1"), ERR_WORK);
  json_decref(json);
  assert_int_equal(facts_from_json(&m, NULL, "node1"), ERR_WORK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_facts_written_and_read_are_equal),
      cmocka_unit_test(test_facts_directory_written_and_read_are_equal),
      cmocka_unit_test(test_facts_host_name_not_utf8_is_escaped),
      cmocka_unit_test(test_facts_missing_members_are_zero),
      cmocka_unit_test(test_facts_unknown_members_are_ignored),
      cmocka_unit_test(test_facts_text_as_number_is_refused),
      cmocka_unit_test(test_facts_negative_count_is_refused),
      cmocka_unit_test(test_facts_negative_real_is_refused),
      cmocka_unit_test(test_facts_long_text_is_refused),
      cmocka_unit_test(test_facts_text_with_nul_is_refused),
      cmocka_unit_test(test_facts_too_many_gpus_are_refused),
      cmocka_unit_test(test_facts_list_of_numbers_is_refused),
      cmocka_unit_test(test_facts_not_an_object_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
