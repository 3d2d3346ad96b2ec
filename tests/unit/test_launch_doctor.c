/* Findings about one machine: which facts are OK, a warning or a problem; each that is not OK
 * has a remedy. Also the table. */
#include "launch/doctor.h"

#include "support.h"

static const RunNeeds needs = {.about = "preset test",
                               .parameters = 250000000,
                               .gradient = 1000000000,
                               .checkpoint = 3000000000,
                               .disk = 22000000000,
                               .memory = 7000000000,
                               .memory_gpu = 4000000000};

/* Fills in facts of a machine without problems. */
static MachineFacts good_machine(void) {
  MachineFacts m = {.host = "node1",
                    .cpu = "Test CPU",
                    .cores = 8,
                    .memory = 64000000000,
                    .memory_free = 32000000000,
                    .version = "1.0",
                    .mpi = "Open MPI v4.1.4",
                    .mpirun = "mpirun (Open MPI) 4.1.4",
                    .open_files = 65536,
                    .locked_memory = FACTS_UNLIMITED,
                    .shm = 8000000000,
                    .shm_free = 8000000000,
                    .tmp = "/tmp",
                    .tmp_free = 8000000000};
  return m;
}

static MachineFacts gpu_machine(void) {
  MachineFacts m = good_machine();
  m.gpus = 2;
  m.has_cuda_plugin = true;
  strcpy(m.nccl, "2.20.5");
  for (int i = 0; i < 2; i++) {
    strcpy(m.gpu[i].name, "NVIDIA T4");
    m.gpu[i].memory = 16000000000;
    m.gpu[i].memory_free = 15800000000;
  }
  return m;
}

static DirectoryFacts good_directory(void) {
  DirectoryFacts d = {.path = "/runs",
                      .measured = "/runs",
                      .file_system = "ext4",
                      .exists = true,
                      .has_locks = true,
                      .free = 100000000000,
                      .write_rate = 500e6,
                      .sync_seconds = 0.004};
  return d;
}

/* Returns the finding of a check; fails if there is none. */
static const Finding *find_check(const Findings *f, const char *check) {
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->list[i].check, check) == 0) return &f->list[i];
  fail_msg("there is no finding '%s'", check);
  return NULL;
}

/* Judges the machine. Exactly this check must be not OK, have a remedy and contain `words`. */
static void expect_finding(const MachineFacts *m, const DirectoryFacts *d, const char *check,
                           FindingLevel level, const char *words) {
  Findings f = {0};
  if (m) doctor_judge_machine(&f, "node1", m, &needs);
  if (d) doctor_judge_directory(&f, "node1", d, &needs);
  const Finding *x = find_check(&f, check);
  assert_int_equal(x->level, level);
  if (!strstr(x->text, words)) fail_msg("\"%s\" lacks \"%s\"", x->text, words);
  assert_true(x->remedy[0] != '\0');
  assert_string_equal(x->host, "node1");
  assert_int_equal(findings_count(&f, FINDING_OK), f.count - 1);
  findings_free(&f);
}

static void test_judge_good_machine_is_ok_without_remedies(void **state) {
  (void)state;
  Findings f = {0};
  MachineFacts m = gpu_machine();
  DirectoryFacts d = good_directory();
  doctor_judge_machine(&f, "", &m, &needs);
  doctor_judge_directory(&f, "", &d, &needs);
  assert_true(f.count > 10);
  assert_int_equal(findings_count(&f, FINDING_OK), f.count);
  for (size_t i = 0; i < f.count; i++) assert_string_equal(f.list[i].remedy, "");
  findings_free(&f);
}

static void test_judge_machine_without_gpu_is_ok(void **state) {
  (void)state;
  Findings f = {0};
  MachineFacts m = good_machine();
  doctor_judge_machine(&f, "", &m, &needs);
  assert_int_equal(findings_count(&f, FINDING_OK), f.count);
  findings_free(&f);
}

static void test_judge_cpu_quota_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.core_quota = 2.5;
  expect_finding(&m, NULL, "cores", FINDING_WARNING, "8 cores");
}

static void test_judge_too_little_memory_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.memory_free = 6000000000;
  expect_finding(&m, NULL, "memory", FINDING_PROBLEM, "6.0 GB of 64.0 GB free");
}

static void test_judge_driver_that_fails_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  strcpy(m.gpu_problem, "Driver/library version mismatch");
  expect_finding(&m, NULL, "GPUs", FINDING_PROBLEM, "mismatch");
}

static void test_judge_gpu_without_plugin_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = gpu_machine();
  m.has_cuda_plugin = false;
  expect_finding(&m, NULL, "GPUs", FINDING_WARNING, "libtrireme-cuda.so is not installed");
}

static void test_judge_gpu_that_cannot_be_opened_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = gpu_machine();
  strcpy(m.gpu[1].problem, "has fallen off the bus");
  expect_finding(&m, NULL, "GPUs", FINDING_PROBLEM, "GPU 1 of 2 cannot be used: has fallen");
}

static void test_judge_gpu_in_use_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = gpu_machine();
  m.gpu[1].memory_free = 8000000000;
  expect_finding(&m, NULL, "GPUs", FINDING_WARNING, "GPU 1 has only 8.0 GB of 16.0 GB free");
}

static void test_judge_gpu_with_too_little_memory_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = gpu_machine();
  m.gpu[0].memory_free = 3000000000;
  expect_finding(&m, NULL, "GPUs", FINDING_PROBLEM, "GPU 0 has only 3.0 GB");
}

static void test_judge_gpus_without_nccl_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = gpu_machine();
  m.nccl[0] = '\0';
  expect_finding(&m, NULL, "NCCL", FINDING_WARNING, "libnccl.so.2");
}

static void test_judge_few_open_files_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.open_files = 256;
  expect_finding(&m, NULL, "open files", FINDING_PROBLEM, "256");
}

static void test_judge_locked_memory_with_rdma_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.has_rdma = true;
  m.locked_memory = 65536;
  expect_finding(&m, NULL, "locked memory", FINDING_WARNING, "RDMA");
}

static void test_judge_locked_memory_without_rdma_is_ok(void **state) {
  (void)state;
  Findings f = {0};
  MachineFacts m = good_machine();
  m.locked_memory = 65536;
  doctor_judge_machine(&f, "", &m, &needs);
  assert_int_equal(find_check(&f, "locked memory")->level, FINDING_OK);
  findings_free(&f);
}

static void test_judge_full_tmp_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.tmp_free = 0;
  expect_finding(&m, NULL, "/tmp", FINDING_PROBLEM, "0 B free in /tmp");
}

static void test_judge_small_shm_is_a_warning(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.shm = m.shm_free = 64 << 20;
  expect_finding(&m, NULL, "/dev/shm", FINDING_WARNING, "67.1 MB");
}

static void test_judge_missing_mpi_plugin_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  strcpy(m.mpi_problem, "libtrireme-mpi.so is not installed");
  expect_finding(&m, NULL, "MPI", FINDING_PROBLEM, "not installed");
}

static void test_judge_missing_mpirun_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  m.mpirun[0] = '\0';
  expect_finding(&m, NULL, "MPI", FINDING_PROBLEM, "mpirun is not in PATH");
}

static void test_judge_mpirun_of_another_version_is_a_problem(void **state) {
  (void)state;
  MachineFacts m = good_machine();
  strcpy(m.mpirun, "mpirun (Open MPI) 4.1.40");
  expect_finding(&m, NULL, "MPI", FINDING_PROBLEM, "4.1.40");
}

static void test_judge_directory_without_space_is_a_problem(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  d.free = 21000000000;
  expect_finding(NULL, &d, "free space", FINDING_PROBLEM, "21.0 GB free");
}

static void test_judge_directory_with_little_space_is_a_warning(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  d.free = 30000000000;
  expect_finding(NULL, &d, "free space", FINDING_WARNING, "30.0 GB free");
}

static void test_judge_directory_checkpoints_of_the_run_count_as_written(void **state) {
  (void)state;
  Findings f = {0};
  DirectoryFacts d = good_directory();
  RunNeeds resumed = needs;
  resumed.disk_used = 15000000000;
  d.free = 15000000000;
  doctor_judge_directory(&f, "", &d, &resumed);
  assert_int_equal(find_check(&f, "free space")->level, FINDING_OK);
  findings_free(&f);
}

static void test_judge_slow_directory_is_a_warning(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  d.write_rate = 20e6;
  expect_finding(NULL, &d, "write speed", FINDING_WARNING, "20.0 MB/s");
}

static void test_judge_slow_sync_is_a_warning(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  d.sync_seconds = 0.9;
  expect_finding(NULL, &d, "write speed", FINDING_WARNING, "900 ms");
}

static void test_judge_directory_without_locks_is_a_problem(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  d.has_locks = false;
  expect_finding(NULL, &d, "file locks", FINDING_PROBLEM, "flock");
}

static void test_judge_directory_not_writable_is_a_problem(void **state) {
  (void)state;
  DirectoryFacts d = good_directory();
  strcpy(d.problem, "cannot create a file: Permission denied");
  expect_finding(NULL, &d, "directory", FINDING_PROBLEM, "/runs: cannot create a file");
}

static void test_judge_allreduce_prints_time_and_rate(void **state) {
  (void)state;
  Findings f = {0};
  AllreduceFacts a = {
      .was_run = true, .ranks = 2, .bytes = 1000000000, .seconds = 0.5, .about = "2 ranks"};
  doctor_judge_allreduce(&f, &a, &needs);
  assert_int_equal(find_check(&f, "all-reduce")->level, FINDING_OK);
  assert_non_null(strstr(f.list[0].text, "(1.0 GB) takes 0.500 s (2.0 GB/s)"));
  findings_free(&f);
}

static void test_judge_allreduce_that_failed_is_a_problem(void **state) {
  (void)state;
  Findings f = {0};
  AllreduceFacts a = {.was_run = true, .ranks = 2, .problem = "exit status 1"};
  doctor_judge_allreduce(&f, &a, &needs);
  assert_int_equal(find_check(&f, "all-reduce")->level, FINDING_PROBLEM);
  assert_true(f.list[0].remedy[0] != '\0');
  findings_free(&f);
}

static void test_plan_preset_counts_gradient_and_checkpoints(void **state) {
  (void)state;
  RunNeeds n;
  OK(doctor_plan(&(DoctorSpec){.preset = "base", .vocab = 32768, .keep = 5}, &n));
  assert_int_equal(n.parameters, 60880896);
  assert_int_equal(n.gradient, 4 * 60880896);
  assert_int_equal(n.checkpoint, 12 * 60880896);
  assert_int_equal(n.disk, (7 * 12 + 4) * 60880896ull);
  assert_int_equal(n.disk_used, 0);
}

static void test_table_wraps_and_shows_the_remedy(void **state) {
  (void)state;
  Findings f = {0};
  Str out = {0};
  findings_add(&f, FINDING_OK, "", "cores", "8 cores");
  findings_add(&f, FINDING_PROBLEM, "", "memory", "one two three four five six seven eight");
  findings_remedy(&f, "free some");
  findings_print(&f, 1, 40, &out);
  assert_string_equal(str_text(&out),
                      "cores   OK       8 cores\n"
                      "memory  problem  one two three four five\n"
                      "                 six seven eight\n"
                      "        remedy:  free some\n");
  str_free(&out);
  findings_free(&f);
}

static void test_table_on_a_narrow_terminal_has_texts_below(void **state) {
  (void)state;
  Findings f = {0};
  Str out = {0};
  findings_add(&f, FINDING_OK, "", "locked memory", "limit");
  findings_add(&f, FINDING_PROBLEM, "", "memory", "one two three four five six seven");
  findings_remedy(&f, "free some");
  findings_print(&f, 1, 36, &out);
  assert_string_equal(str_text(&out),
                      "locked memory  OK\n"
                      "           limit\n"
                      "memory         problem\n"
                      "           one two three four five\n"
                      "           six seven\n"
                      "  remedy:  free some\n");
  str_free(&out);
  findings_free(&f);
}

static void test_table_of_hosts_joins_what_is_ok_everywhere(void **state) {
  (void)state;
  Findings f = {0};
  Str out = {0};
  findings_add(&f, FINDING_OK, "a", "cores", "8 cores");
  findings_add(&f, FINDING_PROBLEM, "a", "disk", "full");
  findings_add(&f, FINDING_OK, "b", "cores", "8 cores");
  findings_add(&f, FINDING_OK, "b", "disk", "1 GB");
  findings_add(&f, FINDING_OK, "a", "clock", "+0.1 s");
  findings_add(&f, FINDING_OK, "b", "clock", "-0.1 s");
  findings_print(&f, 2, 100, &out);
  assert_string_equal(str_text(&out),
                      "all  cores  OK       8 cores\n"
                      "a    disk   problem  full\n"
                      "b    disk   OK       1 GB\n"
                      "all  clock  OK       on 2 of 2 hosts\n");
  str_free(&out);
  findings_free(&f);
}

static void test_table_with_the_starting_machine_joins_what_is_ok_on_all_hosts(void **state) {
  (void)state;
  Findings f = {0};
  Str out = {0};
  findings_add(&f, FINDING_OK, "a", "ssh", "works");
  findings_add(&f, FINDING_OK, "laptop", "ssh", "not needed");
  findings_add(&f, FINDING_OK, "b", "ssh", "works");
  findings_add(&f, FINDING_OK, "a", "cores", "8 cores");
  findings_add(&f, FINDING_OK, "b", "cores", "8 cores");
  findings_print(&f, 2, 100, &out);
  assert_string_equal(str_text(&out),
                      "all     ssh    OK       on 3 of 3 hosts\n"
                      "all     cores  OK       8 cores\n");
  str_free(&out);
  findings_free(&f);
}

static void test_finding_control_characters_are_escaped(void **state) {
  (void)state;
  Findings f = {0};
  findings_add(&f, FINDING_OK, "a\x1b", "cores", "x\x1b[31m");
  assert_string_equal(f.list[0].host, "a\\x1b");
  assert_string_equal(f.list[0].text, "x\\x1b[31m");
  findings_free(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_good_machine_is_ok_without_remedies),
      cmocka_unit_test(test_judge_machine_without_gpu_is_ok),
      cmocka_unit_test(test_judge_cpu_quota_is_a_warning),
      cmocka_unit_test(test_judge_too_little_memory_is_a_problem),
      cmocka_unit_test(test_judge_driver_that_fails_is_a_problem),
      cmocka_unit_test(test_judge_gpu_without_plugin_is_a_warning),
      cmocka_unit_test(test_judge_gpu_that_cannot_be_opened_is_a_problem),
      cmocka_unit_test(test_judge_gpu_in_use_is_a_warning),
      cmocka_unit_test(test_judge_gpu_with_too_little_memory_is_a_problem),
      cmocka_unit_test(test_judge_gpus_without_nccl_is_a_warning),
      cmocka_unit_test(test_judge_few_open_files_is_a_problem),
      cmocka_unit_test(test_judge_locked_memory_with_rdma_is_a_warning),
      cmocka_unit_test(test_judge_locked_memory_without_rdma_is_ok),
      cmocka_unit_test(test_judge_full_tmp_is_a_problem),
      cmocka_unit_test(test_judge_small_shm_is_a_warning),
      cmocka_unit_test(test_judge_missing_mpi_plugin_is_a_problem),
      cmocka_unit_test(test_judge_missing_mpirun_is_a_problem),
      cmocka_unit_test(test_judge_mpirun_of_another_version_is_a_problem),
      cmocka_unit_test(test_judge_directory_without_space_is_a_problem),
      cmocka_unit_test(test_judge_directory_with_little_space_is_a_warning),
      cmocka_unit_test(test_judge_directory_checkpoints_of_the_run_count_as_written),
      cmocka_unit_test(test_judge_slow_directory_is_a_warning),
      cmocka_unit_test(test_judge_slow_sync_is_a_warning),
      cmocka_unit_test(test_judge_directory_without_locks_is_a_problem),
      cmocka_unit_test(test_judge_directory_not_writable_is_a_problem),
      cmocka_unit_test(test_judge_allreduce_prints_time_and_rate),
      cmocka_unit_test(test_judge_allreduce_that_failed_is_a_problem),
      cmocka_unit_test(test_plan_preset_counts_gradient_and_checkpoints),
      cmocka_unit_test(test_table_wraps_and_shows_the_remedy),
      cmocka_unit_test(test_table_on_a_narrow_terminal_has_texts_below),
      cmocka_unit_test(test_table_of_hosts_joins_what_is_ok_everywhere),
      cmocka_unit_test(test_table_with_the_starting_machine_joins_what_is_ok_on_all_hosts),
      cmocka_unit_test(test_finding_control_characters_are_escaped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
