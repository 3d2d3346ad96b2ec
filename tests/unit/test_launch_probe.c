/* Facts read from files of the kernel, directories that can and cannot be written, and programs
 * that run with a time limit. */
#include "launch/probe.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"
#include "launch/command.h"
#include "support.h"

/* Writes a file below the scratch directory, which stands for the root directory. */
static void write_root(const char *path, const char *text) {
  char full[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  snprintf(full, sizeof full, "%s/root%s", scratch, path);
  snprintf(dir, sizeof dir, "%s", full);
  *strrchr(dir, '/') = '\0';
  OK(file_mkdirs(dir));
  OK(file_write(full, text, strlen(text)));
}

static int clear_root(void **state) {
  (void)state;
  return file_exists(at("root")) ? (int)file_remove_all(at("root")) : 0;
}

static void test_probe_cpu_name_x86_is_the_model_name(void **state) {
  (void)state;
  char name[96];
  write_root("/proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) 8375C\nflags\t: x\n");
  probe_cpu_name(at("root"), name, sizeof name);
  assert_string_equal(name, "Intel(R) Xeon(R) 8375C");
}

static void test_probe_cpu_name_arm_is_looked_up(void **state) {
  (void)state;
  char name[96];
  write_root("/proc/cpuinfo",
             "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n");
  probe_cpu_name(at("root"), name, sizeof name);
  assert_string_equal(name, "Neoverse-N1");
}

static void test_probe_cpu_name_unknown_arm_shows_the_numbers(void **state) {
  (void)state;
  char name[96];
  write_root("/proc/cpuinfo", "CPU implementer\t: 0x61\nCPU part\t: 0x023\n");
  probe_cpu_name(at("root"), name, sizeof name);
  assert_string_equal(name, "ARM core, implementer 0x61, part 0x023");
}

static void test_probe_cpu_name_no_file_is_empty(void **state) {
  (void)state;
  char name[96] = "x";
  probe_cpu_name(at("root"), name, sizeof name);
  assert_string_equal(name, "");
}

static void test_probe_core_quota_v2_is_the_lowest_of_the_parents(void **state) {
  (void)state;
  write_root("/proc/self/cgroup", "0::/a/b\n");
  write_root("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write_root("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  assert_true(probe_core_quota(at("root")) == 1.5);
}

static void test_probe_core_quota_v2_max_is_no_limit(void **state) {
  (void)state;
  write_root("/proc/self/cgroup", "0::/\n");
  write_root("/sys/fs/cgroup/cpu.max", "max 100000\n");
  assert_true(probe_core_quota(at("root")) == 0);
}

static void test_probe_core_quota_v1_is_quota_by_period(void **state) {
  (void)state;
  write_root("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n");
  write_root("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n");
  write_root("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  assert_true(probe_core_quota(at("root")) == 0.5);
}

static void test_probe_core_quota_v1_minus_1_is_no_limit(void **state) {
  (void)state;
  write_root("/proc/self/cgroup", "3:cpu,cpuacct:/\n");
  write_root("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write_root("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  assert_true(probe_core_quota(at("root")) == 0);
}

static void test_probe_machine_finds_the_basic_facts(void **state) {
  (void)state;
  static MachineFacts m;
  probe_machine(&m);
  assert_true(m.host[0]);
  assert_true(m.cores >= 1);
  assert_true(m.memory > 0);
  assert_int_equal(strlen(m.sha256), 64);
  assert_true(m.open_files > 0);
  assert_true(m.port_last > m.port_first);
  assert_true(m.clock > 1.7e9);
}

static void test_probe_clock_fault_adds_seconds(void **state) {
  (void)state;
  double before = probe_clock();
  setenv("TRIREME_FAULT", "clock-ahead:5000", 1);
  double ahead = probe_clock();
  unsetenv("TRIREME_FAULT");
  assert_true(ahead - before >= 5000);
}

static void test_probe_hash_file_is_sha256(void **state) {
  (void)state;
  char hex[65];
  OK(file_write(at("abc"), "abc", 3));
  probe_hash_file(at("abc"), hex);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_probe_hash_file_missing_is_empty(void **state) {
  (void)state;
  char hex[65] = "x";
  probe_hash_file(at("missing"), hex);
  assert_string_equal(hex, "");
}

static size_t count_entries(const char *dir) {
  const char *const argv[] = {"ls", "-A", dir, NULL};
  CommandResult r;
  OK(command_run(argv, 60, &r));
  size_t lines = 0;
  for (size_t i = 0; i < r.out.len; i++) lines += r.out.s[i] == '\n';
  command_free(&r);
  return lines;
}

static void test_probe_directory_measures_and_leaves_nothing(void **state) {
  (void)state;
  DirectoryFacts d;
  OK(file_mkdirs(at("runs")));
  probe_directory(&d, at("runs"), 3 << 20, 60);
  assert_string_equal(d.problem, "");
  assert_true(d.exists);
  assert_int_equal(d.written, 3 << 20);
  assert_true(d.write_rate > 0);
  assert_true(d.sync_seconds > 0);
  assert_true(d.free > 0);
  assert_true(d.has_locks);
  assert_int_equal(count_entries(at("runs")), 0);
}

static void test_probe_directory_missing_measures_the_parent(void **state) {
  (void)state;
  DirectoryFacts d;
  OK(file_mkdirs(at("here")));
  probe_directory(&d, at("here/not/there"), 1000, 60);
  assert_false(d.exists);
  assert_string_equal(d.measured, at("here"));
  assert_int_equal(d.written, 1000);
  assert_false(file_exists(at("here/not")));
}

static void test_probe_directory_relative_missing_measures_the_current(void **state) {
  (void)state;
  DirectoryFacts d;
  assert_int_equal(chdir(scratch), 0);
  probe_directory(&d, "not-there", 1000, 60);
  assert_int_equal(chdir("/"), 0);
  assert_string_equal(d.measured, ".");
  assert_string_equal(d.problem, "");
}

/* Not even root can create files in /proc. */
static void test_probe_directory_not_writable_is_a_problem(void **state) {
  (void)state;
  DirectoryFacts d;
  probe_directory(&d, "/proc/self", 1000, 60);
  assert_non_null(strstr(d.problem, "cannot create a file"));
}

static void test_command_output_and_status_are_returned(void **state) {
  (void)state;
  const char *const argv[] = {"sh", "-c", "echo out; echo one >&2; echo two >&2; exit 5", NULL};
  CommandResult r;
  char line[16];
  OK(command_run(argv, 60, &r));
  assert_string_equal(str_text(&r.out), "out\n");
  assert_string_equal(str_text(&r.err), "one\ntwo\n");
  assert_int_equal(r.status, 5);
  command_last_line(&r, line, sizeof line);
  assert_string_equal(line, "two");
  command_free(&r);
}

static void test_command_starts_with_no_signal_blocked(void **state) {
  (void)state;
  const char *const argv[] = {"grep", "SigBlk", "/proc/self/status", NULL};
  CommandResult r;
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  OK(command_run(argv, 60, &r));
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  assert_string_equal(str_text(&r.out), "SigBlk:\t0000000000000000\n");
  command_free(&r);
}

static void test_command_not_found_is_127(void **state) {
  (void)state;
  const char *const argv[] = {"there-is-no-such-program", NULL};
  CommandResult r;
  OK(command_run(argv, 60, &r));
  assert_int_equal(r.status, 127);
  command_free(&r);
}

/* The limit kills the program and its child, which holds the pipe open. */
static void test_command_over_its_time_is_killed_with_its_children(void **state) {
  (void)state;
  const char *const argv[] = {"sh", "-c", "echo $$; sleep 1000 & sleep 1000", NULL};
  CommandResult r;
  double start = progress_clock();
  OK(command_run(argv, 0.5, &r));
  assert_true(r.is_timed_out);
  assert_true(progress_clock() - start < 60);
  assert_int_equal(r.status, 128 + SIGKILL);
  command_free(&r);
}

static void test_command_much_output_is_cut(void **state) {
  (void)state;
  const char *const argv[] = {"sh", "-c", "yes | head -c 3000000", NULL};
  CommandResult r;
  OK(command_run(argv, 60, &r));
  assert_int_equal(r.out.len, COMMAND_OUTPUT_MAX);
  assert_int_equal(r.status, 0);
  command_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_probe_cpu_name_x86_is_the_model_name, clear_root),
      cmocka_unit_test_setup(test_probe_cpu_name_arm_is_looked_up, clear_root),
      cmocka_unit_test_setup(test_probe_cpu_name_unknown_arm_shows_the_numbers, clear_root),
      cmocka_unit_test_setup(test_probe_cpu_name_no_file_is_empty, clear_root),
      cmocka_unit_test_setup(test_probe_core_quota_v2_is_the_lowest_of_the_parents, clear_root),
      cmocka_unit_test_setup(test_probe_core_quota_v2_max_is_no_limit, clear_root),
      cmocka_unit_test_setup(test_probe_core_quota_v1_is_quota_by_period, clear_root),
      cmocka_unit_test_setup(test_probe_core_quota_v1_minus_1_is_no_limit, clear_root),
      cmocka_unit_test(test_probe_machine_finds_the_basic_facts),
      cmocka_unit_test(test_probe_clock_fault_adds_seconds),
      cmocka_unit_test(test_probe_hash_file_is_sha256),
      cmocka_unit_test(test_probe_hash_file_missing_is_empty),
      cmocka_unit_test(test_probe_directory_measures_and_leaves_nothing),
      cmocka_unit_test(test_probe_directory_missing_measures_the_parent),
      cmocka_unit_test(test_probe_directory_relative_missing_measures_the_current),
      cmocka_unit_test(test_probe_directory_not_writable_is_a_problem),
      cmocka_unit_test(test_command_output_and_status_are_returned),
      cmocka_unit_test(test_command_starts_with_no_signal_blocked),
      cmocka_unit_test(test_command_not_found_is_127),
      cmocka_unit_test(test_command_over_its_time_is_killed_with_its_children),
      cmocka_unit_test(test_command_much_output_is_cut),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
