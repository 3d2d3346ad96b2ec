/* Measurements of a host: the parsers of /proc (monitor/system_counters.h) with good and damaged
 * text, a host made of files (monitor/system.h), and the lines of system.jsonl. */
#include "monitor/system.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "monitor/system_counters.h"
#include "monitor/system_gpu.h"
#include "support.h"

/* /proc/stat */

static void test_cores_busy_and_total_are_sums_of_fields(void **state) {
  (void)state;
  CoreTime core[4];
  size_t n = counters_parse_cores(
      "cpu  9 9 9 9 9 9 9 9 9 9\n"
      "cpu0 10 20 30 400 50 6 7 8 9 10\n"
      "cpu3 1 0 0 5\n"
      "intr 12 13\n",
      core, 4);
  assert_int_equal(n, 2);
  assert_int_equal(core[0].number, 0);
  assert_int_equal(core[0].busy, 10 + 20 + 30 + 6 + 7);
  assert_int_equal(core[0].total, 10 + 20 + 30 + 400 + 50 + 6 + 7 + 8);
  assert_int_equal(core[1].number, 3);
  assert_int_equal(core[1].busy, 1);
  assert_int_equal(core[1].total, 6);
}

static void test_cores_beyond_the_limit_are_left_out(void **state) {
  (void)state;
  CoreTime core[2];
  assert_int_equal(counters_parse_cores("cpu0 1 1 1 1\ncpu1 1 1 1 1\ncpu2 1 1 1 1\n", core, 2),
                   2);
}

static void test_cores_damaged_lines_are_skipped(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "cpu0",
      "cpu0 1 2 3 4",   /* no line break: the text was cut */
      "cpu0 1 2 3\n",   /* too few fields */
      "cpu0 a b c d\n", /* no numbers */
      "cpu0 -1 2 3 4\n",
      "cpux 1 2 3 4\n",
      "cpu 1 2 3 4\n",
      "cpu99999999999999999999999 1 2 3 4\n",
      "cpu4294967296 1 2 3 4\n",
      "cpu0 99999999999999999999999 2 3 4\n",
      "\n\n\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    CoreTime core[2];
    assert_int_equal(counters_parse_cores(texts[i], core, 2), 0);
  }
}

/* /proc/meminfo */

static void test_memory_values_are_bytes(void **state) {
  (void)state;
  uint64_t total, available;
  assert_true(counters_parse_memory(
      "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n", &total, &available));
  assert_int_equal(total, 1000 * 1024);
  assert_int_equal(available, 400 * 1024);
}

static void test_memory_damaged_text_is_refused(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "MemTotal: 1000 kB\n",
      "MemTotal: 1000 kB\nMemAvailable: 2000 kB\n", /* more than there is */
      "MemTotal: 1000 kB\nMemAvailable: x kB\n",
      "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n", /* overflows in bytes */
      "MemTotal: 1000 kB\nMemAvailable: 400",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    uint64_t total, available;
    assert_false(counters_parse_memory(texts[i], &total, &available));
  }
}

/* /proc/diskstats */

static bool is_vda(const char *name, void *context) {
  ++*(int *)context;
  return strcmp(name, "vda") == 0;
}

static void test_disks_sectors_of_disks_become_bytes(void **state) {
  (void)state;
  DiskBytes sum;
  int asked = 0;
  assert_true(
      counters_parse_disks("   7       0 loop0 1 0 8 0 1 0 8 0\n"
                           " 254       0 vda 10 1 20 5 30 1 40 6 0 0 0\n"
                           " 254       1 vda1 10 1 20 5 30 1 40 6 0 0 0\n",
                           is_vda, &asked, &sum));
  assert_int_equal(asked, 3);
  assert_int_equal(sum.read, 20 * 512);
  assert_int_equal(sum.written, 40 * 512);
}

static void test_disks_damaged_lines_are_skipped(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "254 0 vda 1 2 3\n",
      "254 0 vda\n",
      "254 0\n",
      "vda 1 2 3 4 5 6 7 8\n",
      "254 0 vda 1 2 3 4 5 6 7", /* cut */
      "254 0 "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      " 1 2 3 4 5 6 7 8\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    DiskBytes sum;
    int asked = 0;
    assert_false(counters_parse_disks(texts[i], is_vda, &asked, &sum));
    assert_int_equal(asked, 0);
  }
}

/* /proc/net/dev */

#define NET_HEAD                                               \
  "Inter-|   Receive                            |  Transmit\n" \
  " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n"

static void test_cards_loopback_and_unused_cards_are_left_out(void **state) {
  (void)state;
  CardBytes card[4];
  size_t n = counters_parse_cards(NET_HEAD
                                  "    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"
                                  "  ifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
                                  "eth0:4526914092 123794 0 0 0 0 0 0 6233874 8 0 0 0 0 0 0\n",
                                  card, 4);
  assert_int_equal(n, 1);
  assert_string_equal(card[0].name, "eth0");
  assert_int_equal(card[0].received, 4526914092);
  assert_int_equal(card[0].sent, 6233874);
}

static void test_cards_damaged_lines_are_skipped(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      NET_HEAD,
      "eth0: 1 2 3\n",
      "eth0 1 2 3 4 5 6 7 8 9 10\n", /* no colon */
      ": 1 2 3 4 5 6 7 8 9 10\n",
      "eth0: 1 2 3 4 5 6 7 8 9", /* cut */
      "eth0: 1 2 3 4 5 6 7 8 99999999999999999999999\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    CardBytes card[2];
    assert_int_equal(counters_parse_cards(texts[i], card, 2), 0);
  }
}

static void test_rate_of_port_is_megabits(void **state) {
  (void)state;
  assert_true(counters_parse_rate("400 Gb/sec (4X NDR)\n") == 400e3);
  assert_true(counters_parse_rate("2.5 Gb/sec (1X SDR)\n") == 2500);
  assert_true(isnan(counters_parse_rate("")));
  assert_true(isnan(counters_parse_rate("fast")));
  assert_true(isnan(counters_parse_rate("-1 Gb/sec")));
  assert_true(isnan(counters_parse_rate("inf Gb/sec")));
}

/* A host made of files. */

static void put(const char *path, const char *text) {
  char full[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  OK(file_join(full, scratch, path));
  snprintf(dir, sizeof dir, "%s", full);
  *strrchr(dir, '/') = '\0';
  OK(file_mkdirs(dir));
  FILE *f = fopen(full, "w");
  assert_non_null(f);
  assert_int_equal(fputs(text, f) >= 0, 1);
  assert_int_equal(fclose(f), 0);
}

#define PORT   "sys/class/infiniband/mlx5_0/ports/1/"
#define ENERGY "sys/class/powercap/intel-rapl:0/"

static void put_first_reading(void) {
  put("proc/stat", "cpu  0 0 0 0\ncpu0 100 0 0 100 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n");
  put("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 500 kB\n");
  put("proc/diskstats", "8 0 sda 0 0 100 0 0 0 200 0\n8 1 sda1 0 0 900 0 0 0 900 0\n");
  put("proc/net/dev", "test0: 1000 0 0 0 0 0 0 0 2000 0\n");
  put("proc/77/statm", "500 20 5 1 0 3 0\n");
  put("sys/block/sda/device/model", "Disk\n");
  put(PORT "counters/port_rcv_data", "1000\n");
  put(PORT "counters/port_xmit_data", "500\n");
  put(PORT "rate", "100 Gb/sec (4X EDR)\n");
  put(ENERGY "name", "package-0\n");
  put(ENERGY "max_energy_range_uj", "1000000000\n");
  put(ENERGY "energy_uj", "999000000\n");
}

static void put_second_reading(void) {
  put("proc/stat", "cpu  0 0 0 0\ncpu0 125 0 0 175 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0\n");
  put("proc/diskstats", "8 0 sda 0 0 300 0 0 0 600 0\n8 1 sda1 0 0 990 0 0 0 990 0\n");
  put("proc/net/dev", "test0: 5000 0 0 0 0 0 0 0 2000 0\n");
  put(PORT "counters/port_rcv_data", "3000\n");
  put(PORT "counters/port_xmit_data", "500\n");
  put(ENERGY "energy_uj", "1000000\n"); /* restarted at 1e9: 2 joules */
}

static void test_system_rates_come_from_two_readings(void **state) {
  (void)state;
  System *s;
  SystemSample a;
  int pid = 77;
  put_first_reading();
  OK(system_open(
      &s,
      &(SystemSpec){.root = scratch, .host = "h1", .dir = scratch, .pid = &pid, .pids = 1}));
  put_second_reading();
  system_take(s, &a);
  assert_string_equal(a.host, "h1");
  assert_int_equal(a.cores, 2);
  assert_true(fabs((double)a.core[0] - 25) < 0.01);
  assert_true(fabs((double)a.core[1] - 100) < 0.01);
  assert_true(a.memory_total == 2000 * 1024 && a.memory_used == 1500 * 1024);
  assert_true(a.process_memory == 20.0 * (double)sysconf(_SC_PAGESIZE));
  assert_true(a.disk_free > 0);
  /* The interval is not known here, but all rates have the same. */
  assert_true(a.disk_read > 0);
  assert_true(fabs(a.disk_written / a.disk_read - 2) < 1e-9);
  assert_int_equal(a.cards, 2);
  assert_string_equal(a.card[0].name, "test0");
  assert_true(fabs(a.card[0].received / a.disk_read - 4000.0 / (200 * 512)) < 1e-9);
  assert_true(a.card[0].sent == 0 && isnan(a.card[0].speed));
  assert_string_equal(a.card[1].name, "mlx5_0:1");
  assert_true(fabs(a.card[1].received / a.card[0].received - 2) < 1e-9);
  assert_true(a.card[1].speed == 100e3);
  assert_true(fabs(a.watts_cpu / a.card[0].received - 2.0 / 4000) < 1e-9);
  assert_int_equal(a.gpus, 0);
  system_close(s);
}

static void test_system_without_files_measures_nothing(void **state) {
  (void)state;
  System *s;
  SystemSample a;
  char line[SYSTEM_LINE];
  OK(system_open(&s, &(SystemSpec){.root = at("no-such-directory"), .host = "h"}));
  system_take(s, &a);
  assert_int_equal(a.cores + a.cards + a.gpus, 0);
  size_t n = system_write(&a, line, sizeof line);
  assert_true(n > 0);
  assert_null(strstr(line, "memory"));
  assert_null(strstr(line, "disk"));
  assert_null(strstr(line, "cpu"));
  system_close(s);
}

static void test_system_counters_set_back_have_no_rate(void **state) {
  (void)state;
  System *s;
  SystemSample a;
  put_second_reading();
  OK(system_open(&s, &(SystemSpec){.root = scratch, .host = "h1"}));
  put_first_reading();
  put(ENERGY "energy_uj", "nothing\n");
  system_take(s, &a);
  assert_true(isnan(a.disk_read) && isnan(a.card[0].received) && isnan(a.watts_cpu));
  assert_true((double)a.core[0] >= 0 && (double)a.core[0] <= 100);
  system_close(s);
}

static void test_system_take_allocates_nothing(void **state) {
  (void)state;
  System *s;
  SystemSample a;
  char line[SYSTEM_LINE];
  OK(system_open(&s, &(SystemSpec){.root = "", .host = "h1"}));
  uint64_t before = mem_count();
  system_take(s, &a);
  assert_true(system_write(&a, line, sizeof line) > 0);
  assert_int_equal(mem_count(), before);
  system_close(s);
}

static void test_system_open_out_of_memory_fails(void **state) {
  (void)state;
  System *s;
  for (uint64_t n = 1; n <= 2; n++) {
    mem_fail_after(n);
    assert_int_equal(system_open(&s, &(SystemSpec){.root = scratch, .host = "h"}), ERR_WORK);
    assert_null(s);
    mem_fail_after(0);
  }
}

/* Lines. */

static void fill_sample(SystemSample *a) {
  *a = (SystemSample){.time = 4102444800.123,
                      .memory_used = 1e15,
                      .memory_total = 1e15,
                      .process_memory = 1e15,
                      .disk_read = 1e12,
                      .disk_written = 1e12,
                      .disk_free = 1e18,
                      .watts_cpu = 1234.56,
                      .step = 1e12,
                      .dropped = 1e9,
                      .cores = SYSTEM_CORES,
                      .cards = SYSTEM_CARDS,
                      .gpus = SYSTEM_GPUS};
  memset(a->host, 'h', SYSTEM_NAME - 1);
  for (int i = 0; i < SYSTEM_CORES; i++) a->core[i] = 100;
  for (int i = 0; i < SYSTEM_CARDS; i++) {
    a->card[i] = (SystemCard){.received = 1e12, .sent = 1e12, .speed = 800000};
    memset(a->card[i].name, 'n', SYSTEM_NAME - 1);
    a->card[i].name[0] = (char)('a' + i);
  }
  for (int i = 0; i < SYSTEM_GPUS; i++) {
    a->gpu[i] = (SystemGpu){.index = (unsigned)i,
                            .busy = 100,
                            .memory_used = 288e9,
                            .memory_total = 288e9,
                            .watts = 1234.5,
                            .watts_limit = 1234.5,
                            .sm_mhz = 1980,
                            .memory_mhz = 3201,
                            .celsius = 100,
                            .has_throttle = true,
                            .throttle = UINT64_MAX};
    memset(a->gpu[i].name, 'g', SYSTEM_NAME - 1);
  }
}

static void test_line_of_largest_sample_fits(void **state) {
  (void)state;
  static SystemSample a;
  char line[SYSTEM_LINE];
  fill_sample(&a);
  size_t n = system_write(&a, line, sizeof line);
  assert_true(n > 0 && line[n - 1] == '\n');
  json_t *doc = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(doc);
  assert_int_equal(json_array_size(json_object_get(doc, "cpu")), SYSTEM_CORES);
  assert_int_equal(json_object_size(json_object_get(doc, "net")), SYSTEM_CARDS);
  assert_int_equal(json_array_size(json_object_get(doc, "gpu")), SYSTEM_GPUS);
  json_decref(doc);
}

static void test_line_without_room_is_refused_at_every_size(void **state) {
  (void)state;
  static SystemSample a;
  char line[SYSTEM_LINE];
  fill_sample(&a);
  a.cores = 3;
  a.gpus = 1;
  a.cards = 2;
  size_t n = system_write(&a, line, sizeof line);
  for (size_t size = 1; size <= n; size++) assert_int_equal(system_write(&a, line, size), 0);
  assert_int_equal(system_write(&a, line, n + 1), n);
}

static void test_line_unknown_values_are_left_out(void **state) {
  (void)state;
  SystemSample a = {.time = 12.3456,
                    .host = "h\"1\\\n\x80",
                    .memory_used = NAN,
                    .memory_total = INFINITY,
                    .process_memory = NAN,
                    .disk_read = 1.6,
                    .disk_written = NAN,
                    .disk_free = NAN,
                    .watts_cpu = 20.04,
                    .step = NAN,
                    .dropped = NAN,
                    .cores = 2,
                    .core = {0, 33.333f}};
  char line[SYSTEM_LINE];
  size_t n = system_write(&a, line, sizeof line);
  assert_true(n > 0);
  assert_string_equal(line,
                      "{\"time\":12.346,\"host\":\"h_1___\",\"cpu\":[0.0,33.3],"
                      "\"disk_read\":2,\"watts_cpu\":20}\n");
}

static void test_throttle_reasons_have_names(void **state) {
  (void)state;
  assert_null(gpu_throttle_name(0)); /* idle is no reason */
  assert_string_equal(gpu_throttle_name(2), "power_cap");
  assert_string_equal(gpu_throttle_name(6), "hw_thermal");
  assert_string_equal(gpu_throttle_name(63), "other");
  assert_null(gpu_throttle_name(-1));
  assert_null(gpu_throttle_name(64));
}

static void test_gpu_without_library_is_none(void **state) {
  (void)state;
  assert_null(gpu_open("libno-such-library.so.1"));
  assert_null(gpu_open("libm.so.6")); /* a library without the functions */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cores_busy_and_total_are_sums_of_fields),
      cmocka_unit_test(test_cores_beyond_the_limit_are_left_out),
      cmocka_unit_test(test_cores_damaged_lines_are_skipped),
      cmocka_unit_test(test_memory_values_are_bytes),
      cmocka_unit_test(test_memory_damaged_text_is_refused),
      cmocka_unit_test(test_disks_sectors_of_disks_become_bytes),
      cmocka_unit_test(test_disks_damaged_lines_are_skipped),
      cmocka_unit_test(test_cards_loopback_and_unused_cards_are_left_out),
      cmocka_unit_test(test_cards_damaged_lines_are_skipped),
      cmocka_unit_test(test_rate_of_port_is_megabits),
      cmocka_unit_test(test_system_rates_come_from_two_readings),
      cmocka_unit_test(test_system_without_files_measures_nothing),
      cmocka_unit_test(test_system_counters_set_back_have_no_rate),
      cmocka_unit_test(test_system_take_allocates_nothing),
      cmocka_unit_test(test_system_open_out_of_memory_fails),
      cmocka_unit_test(test_line_of_largest_sample_fits),
      cmocka_unit_test(test_line_without_room_is_refused_at_every_size),
      cmocka_unit_test(test_line_unknown_values_are_left_out),
      cmocka_unit_test(test_throttle_reasons_have_names),
      cmocka_unit_test(test_gpu_without_library_is_none),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
