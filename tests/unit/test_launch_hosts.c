/* --hosts, host files and AWS inventories, valid and malicious. Depends on launch/hosts. */
#include "support.h"

#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "launch/hosts.h"

typedef Err (*Parser)(HostList *list, const char *text, size_t len);

static Err parse_file(HostList *list, const char *text, size_t len) {
  return hosts_parse_file(list, text, len, "hosts.txt");
}

static Err parse_aws(HostList *list, const char *text, size_t len) {
  return hosts_parse_aws(list, text, len, "inst.json");
}

static void assert_host(const Host *h, const char *user, const char *address, int slots,
                        int max_slots) {
  assert_string_equal(h->user, user);
  assert_string_equal(h->address, address);
  assert_int_equal(h->slots, slots);
  assert_int_equal(h->max_slots, max_slots);
}

typedef struct {
  const char *text, *says;
} Refusal;

static void assert_refused(Parser parse, const Refusal *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    HostList list = {0};
    Err err = parse(&list, cases[i].text, strlen(cases[i].text));
    if (err != ERR_USAGE) fail_msg("case %zu, \"%s\", is not refused", i, cases[i].text);
    assert_says(cases[i].says);
    hosts_free(&list);
  }
}
#define REFUSED(parse, cases) assert_refused(parse, cases, sizeof cases / sizeof *cases)

/* Tests of --hosts. */

static void test_hosts_list_every_form_is_read(void **state) {
  (void)state;
  static const char text[] =
      " a:2, user@b.example.org:16,10.0.0.7 ,[fe80::1%eth0]:3,::1,ann.b@[2001:db8::2],n_1-x";
  HostList list = {0};
  OK(hosts_parse_list(&list, text, strlen(text)));
  assert_int_equal(list.count, 7);
  assert_host(&list.host[0], "", "a", 2, 0);
  assert_host(&list.host[1], "user", "b.example.org", 16, 0);
  assert_host(&list.host[2], "", "10.0.0.7", 0, 0);
  assert_host(&list.host[3], "", "fe80::1%eth0", 3, 0);
  assert_host(&list.host[4], "", "::1", 0, 0);
  assert_host(&list.host[5], "ann.b", "2001:db8::2", 0, 0);
  assert_host(&list.host[6], "", "n_1-x", 0, 0);
  assert_string_equal(list.host[1].name, "b.example.org");
  hosts_free(&list);
}

static void test_hosts_list_wrong_entry_is_refused(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"", "--hosts is empty"},
      {"  ", "--hosts is empty"},
      {"a,,b", "a host is missing"},
      {"a:2,", "a host is missing"},
      {"a:", "number of ranks ''"},
      {"a:x", "number of ranks 'x'"},
      {"a:0", "'0' is not a whole number from 1 to 4096"},
      {"a:-1", "'-1'"},
      {"a:4097", "'4097'"},
      {"a:99999999999999999999", "not a whole number"},
      {"-oProxyCommand=x", "'-oProxyCommand=x' is not a host name"},
      {"-a@b", "'-a' is not a user name"},
      {"@b", "'' is not a user name"},
      {"a@", "'' is not a host name"},
      {"a b", "'a b' is not a host name"},
      {"a;reboot", "'a;reboot'"},
      {"$(x)", "'$(x)'"},
      {"10.1", "'10.1' is not a host name"},
      {"10.0.0.256", "'10.0.0.256'"},
      {"[fe80::1", "has no ']'"},
      {"[fe80::1]2", "has no ']'"},
      {"[a]:2", "is not an IPv6 address"},
      {"[]:2", "is not an IPv6 address"},
      {"fe80::1::2", "'fe80::1::2'"},
      {"[fe80::1%-o]", "'fe80::1%-o'"},
      {"\xC3\xA4", "is not a host name"},
      {".a", "'.a'"},
  };
  REFUSED(hosts_parse_list, cases);
}

static void test_hosts_list_nul_byte_is_refused(void **state) {
  (void)state;
  HostList list = {0};
  assert_int_equal(hosts_parse_list(&list, "a\0b", 3), ERR_USAGE);
  hosts_free(&list);
}

static void test_hosts_list_duplicate_is_refused(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"a:1,b,a:2", "--hosts: host a is listed twice"},
      {"x@a,y@A", "host A is listed twice"},
      {"::1,[::1]", "host ::1 is listed twice"},
  };
  REFUSED(hosts_parse_list, cases);
}

static void test_hosts_list_too_many_hosts_are_refused(void **state) {
  (void)state;
  Str text = {0};
  for (int i = 0; i <= HOSTS_MAX; i++) str_addf(&text, "%sh%d", i ? "," : "", i);
  HostList list = {0};
  assert_int_equal(hosts_parse_list(&list, text.s, text.len), ERR_USAGE);
  assert_says("more than 1024 hosts");
  assert_int_equal(list.count, HOSTS_MAX);
  hosts_free(&list);
  str_free(&text);
}

static void test_hosts_list_long_name_is_refused(void **state) {
  (void)state;
  char name[HOSTS_NAME_MAX + 1];
  memset(name, 'a', sizeof name);
  HostList list = {0};
  OK(hosts_parse_list(&list, name, HOSTS_NAME_MAX - 1));
  assert_int_equal(hosts_parse_list(&list, name, HOSTS_NAME_MAX), ERR_USAGE);
  assert_says("is not a host name");
  hosts_free(&list);
}

/* Tests of host files. */

static void test_hosts_file_every_form_is_read(void **state) {
  (void)state;
  static const char text[] =
      "# my machines\n"
      "\n"
      "a slots=2 max_slots=4   # the first\n"
      "\tann@b\tslots=3\r\n"
      "10.0.0.3 max-slots=8\n"
      "[2001:db8::2] slots=1\n"
      "2001:db8::3 count=5 user=bob\n"
      "c";
  HostList list = {0};
  OK(parse_file(&list, text, strlen(text)));
  assert_int_equal(list.count, 6);
  assert_host(&list.host[0], "", "a", 2, 4);
  assert_host(&list.host[1], "ann", "b", 3, 0);
  assert_host(&list.host[2], "", "10.0.0.3", 0, 8);
  assert_host(&list.host[3], "", "2001:db8::2", 1, 0);
  assert_host(&list.host[4], "bob", "2001:db8::3", 5, 0);
  assert_host(&list.host[5], "", "c", 0, 0);
  hosts_free(&list);
}

static void test_hosts_file_wrong_line_is_refused_by_number(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"", "hosts.txt lists no host"},
      {"# nothing\n\n", "hosts.txt lists no host"},
      {"a\n\nb slots=x\n", "hosts.txt:3: slots 'x'"},
      {"a slots=0", "hosts.txt:1: slots '0'"},
      {"a slots", "hosts.txt:1: slots ''"},
      {"a slots = 2", "hosts.txt:1: slots ''"},
      {"a max_slots=5000", "max_slots '5000'"},
      {"a slots=4 max_slots=2", "slots=4 above max_slots=2"},
      {"a rack=7", "'rack=7' is not understood"},
      {"a b", "'b' is not understood"},
      {"a user=-x", "'user=-x' is not understood"},
      {"a:2", "hosts.txt:1: 'a:2': a host file gives the ranks as 'HOST slots=N'"},
      {"^a", "'^a' is not a host name"},
      {"a\nb\nA slots=2", "hosts.txt:3: host A is listed twice"},
  };
  REFUSED(parse_file, cases);
}

/* Tests of AWS inventories. */

#define INSTANCE(fields)   "{\"State\":{\"Code\":16,\"Name\":\"running\"}," fields "}"
#define INVENTORY(content) "{\"Reservations\":[{\"Instances\":[" content "]}]}"

static void test_hosts_aws_running_instances_are_read(void **state) {
  (void)state;
  static const char text[] =
      "{\"Reservations\": [{\"Groups\": [], \"Instances\": ["
      "{\"InstanceId\": \"i-1\", \"InstanceType\": \"g4dn.xlarge\", \"State\": {\"Name\": "
      "\"running\"},"
      " \"PrivateIpAddress\": \"172.31.0.4\", \"PublicIpAddress\": \"3.4.5.6\","
      " \"Tags\": [{\"Key\": \"owner\", \"Value\": \"x\"}, {\"Key\": \"Name\", \"Value\": "
      "\"train one\"}]},"
      "{\"InstanceId\": \"i-2\", \"State\": {\"Name\": \"stopped\"}, \"PrivateIpAddress\": "
      "\"172.31.0.5\"}]},"
      "{\"Instances\": ["
      "{\"InstanceId\": \"i-3\", \"State\": {\"Name\": \"running\"}, \"PrivateIpAddress\": "
      "null,"
      " \"PublicIpAddress\": \"3.4.5.7\", \"Tags\": [{\"Key\": \"Name\", \"Value\": \"train "
      "one\"}]},"
      "{\"InstanceId\": \"i-4\", \"State\": {\"Name\": \"running\"}, \"Ipv6Address\": "
      "\"2001:db8::9\"}]}]}";
  HostList list = {0};
  OK(parse_aws(&list, text, strlen(text)));
  assert_int_equal(list.count, 3);
  assert_host(&list.host[0], "", "172.31.0.4", 0, 0);
  assert_host(&list.host[1], "", "3.4.5.7", 0, 0);
  assert_host(&list.host[2], "", "2001:db8::9", 0, 0);
  assert_string_equal(list.host[0].name, "train-one");
  assert_string_equal(list.host[1].name, "train-one-i-3");
  assert_string_equal(list.host[2].name, "2001:db8::9");
  hosts_free(&list);
}

static void test_hosts_aws_wrong_document_is_refused_by_path(void **state) {
  (void)state;
  static const Refusal cases[] = {
      {"", "inst.json:1: not JSON"},
      {"{\n\"Reservations\": [\n}", "inst.json:3: not JSON"},
      {"[]", "inst.json: the document is not an object"},
      {"[[\"172.31.0.4\"]]", "describe-instances"},
      {"{}", "inst.json: Reservations is not there"},
      {"{\"Reservations\": 7}", "Reservations is not a list"},
      {"{\"Reservations\": []}", "no running instance (0 in other states)"},
      {"{\"Reservations\": [7]}", "Reservations[0].Instances is not there"},
      {INVENTORY("7"), "Reservations[0].Instances[0] is not an object"},
      {INVENTORY("{}"), "Reservations[0].Instances[0].State is not an object"},
      {INVENTORY("{\"State\":{}}"), "Instances[0].State.Name is not a text"},
      {INVENTORY("{\"State\":{\"Name\":\"stopped\"}}"),
       "no running instance (1 in other states)"},
      {INVENTORY(INSTANCE("\"a\":1")), "Instances[0] is running but has no address"},
      {INVENTORY(INSTANCE("\"PrivateIpAddress\":7")),
       "Instances[0].PrivateIpAddress is not a text"},
      {INVENTORY(INSTANCE("\"PrivateIpAddress\":\"-oX=y\"")),
       "PrivateIpAddress '-oX=y' is not"},
      {INVENTORY(INSTANCE("\"PrivateIpAddress\":\"1.2.3.4\",\"Tags\":7")),
       "Tags is not a list"},
      {INVENTORY(INSTANCE("\"PrivateIpAddress\":\"1.2.3.4\",\"Tags\":[{\"Key\":1}]")),
       "Instances[0].Tags[0].Key is not a text"},
      {INVENTORY(INSTANCE("\"PrivateIpAddress\":\"1.2.3.4\"") "," INSTANCE(
           "\"PrivateIpAddress\":\"1.2.3.4\"")),
       "inst.json: Reservations[0].Instances[1]: host 1.2.3.4 is listed twice"},
  };
  REFUSED(parse_aws, cases);
}

static void test_hosts_aws_name_tag_cannot_command_a_terminal(void **state) {
  (void)state;
  static const char text[] =
      INVENTORY(INSTANCE("\"PrivateIpAddress\":\"1.2.3.4\",\"Tags\":[{\"Key\":\"Name\","
                         "\"Value\":\"a/\\u001b[2J\"}]"));
  HostList list = {0};
  OK(parse_aws(&list, text, strlen(text)));
  assert_string_equal(list.host[0].name, "a---2J");
  hosts_free(&list);
}

/* Tests of the choice between the three formats. */

static void test_hosts_read_takes_the_source_that_is_set(void **state) {
  (void)state;
  HostList list;
  OK(file_write(at("hosts"), "a\nb slots=2\n", 12));
  OK(hosts_read(&list, &(HostSource){.hostfile = at("hosts")}));
  assert_int_equal(list.count, 2);
  hosts_free(&list);
  OK(hosts_read(&list, &(HostSource){.hosts = "c:1"}));
  assert_host(&list.host[0], "", "c", 1, 0);
  hosts_free(&list);
  OK(hosts_read(&list, &(HostSource){0}));
  assert_int_equal(list.count, 0);
  hosts_free(&list);
}

static void test_hosts_read_two_sources_are_refused(void **state) {
  (void)state;
  HostList list;
  HostSource both = {.hosts = "a", .inventory = "x.json"};
  assert_int_equal(hosts_read(&list, &both), ERR_USAGE);
  assert_says("exclude each other");
}

static void test_hosts_read_missing_file_is_named(void **state) {
  (void)state;
  HostList list;
  assert_int_not_equal(hosts_read(&list, &(HostSource){.hostfile = at("none")}), ERR_OK);
  assert_says("/none");
}

static void test_hosts_parse_every_failing_allocation_is_an_error(void **state) {
  (void)state;
  for (uint64_t n = 1;; n++) {
    HostList list = {0};
    mem_fail_after(n);
    Err err = hosts_parse_list(&list, "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", 31);
    mem_fail_after(0);
    hosts_free(&list);
    if (!err) {
      assert_true(n > 1);
      return;
    }
    assert_int_equal(err, ERR_WORK);
  }
}

static void test_hosts_local_names_are_recognized(void **state) {
  (void)state;
  char own[HOSTS_NAME_MAX] = "";
  assert_int_equal(gethostname(own, sizeof own - 1), 0);
  Host host = {0};
  static const char *const local[] = {"localhost", "127.0.0.1", "127.5.0.1", "::1"};
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
    snprintf(host.address, sizeof host.address, "%s", local[i]);
    assert_true(hosts_is_local(&host));
  }
  memcpy(host.address, own, sizeof own);
  assert_true(hosts_is_local(&host));
  static const char *const other[] = {"10.0.0.1", "fe80::1", "no-such-host-x", "1.2.3.127"};
  for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
    snprintf(host.address, sizeof host.address, "%s", other[i]);
    assert_false(hosts_is_local(&host));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hosts_list_every_form_is_read),
      cmocka_unit_test(test_hosts_list_wrong_entry_is_refused),
      cmocka_unit_test(test_hosts_list_nul_byte_is_refused),
      cmocka_unit_test(test_hosts_list_duplicate_is_refused),
      cmocka_unit_test(test_hosts_list_too_many_hosts_are_refused),
      cmocka_unit_test(test_hosts_list_long_name_is_refused),
      cmocka_unit_test(test_hosts_file_every_form_is_read),
      cmocka_unit_test(test_hosts_file_wrong_line_is_refused_by_number),
      cmocka_unit_test(test_hosts_aws_running_instances_are_read),
      cmocka_unit_test(test_hosts_aws_wrong_document_is_refused_by_path),
      cmocka_unit_test(test_hosts_aws_name_tag_cannot_command_a_terminal),
      cmocka_unit_test(test_hosts_read_takes_the_source_that_is_set),
      cmocka_unit_test(test_hosts_read_two_sources_are_refused),
      cmocka_unit_test(test_hosts_read_missing_file_is_named),
      cmocka_unit_test(test_hosts_parse_every_failing_allocation_is_an_error),
      cmocka_unit_test(test_hosts_local_names_are_recognized),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
