/* Free memory under cgroup limits: simulated /proc and /sys trees, and one real cgroup if the
 * machine allows it. */
#include "base/sysmem.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define MB ((uint64_t)1 << 20)

static const char v2_mount[] =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char v1_mount[] =
    "33 25 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "35 33 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "37 33 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "43 33 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

/* Writes a file of the tree "root", and creates its directories. */
static void put(const char *path, const char *text) {
  char full[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  snprintf(full, sizeof full, "%s/root%s", scratch, path);
  snprintf(dir, sizeof dir, "%s", full);
  *strrchr(dir, '/') = '\0';
  OK(file_mkdirs(dir));
  OK(file_write(full, text, strlen(text)));
}

/* Creates a tree whose meminfo has 1,000 MB, of which 800 are available. */
static void begin_tree(const char *cgroup, const char *mounts) {
  char full[FILE_PATH_MAX];
  snprintf(full, sizeof full, "%s/root", scratch);
  if (file_exists(full)) OK(file_remove_all(full));
  put("/proc/meminfo", "MemTotal:     1024000 kB\nMemFree: 1 kB\nMemAvailable:  819200 kB\n");
  put("/proc/self/cgroup", cgroup);
  put("/proc/self/mountinfo", mounts);
}

static void expect(uint64_t left_mb, uint64_t all_mb) {
  uint64_t left, all;
  char root[FILE_PATH_MAX];
  snprintf(root, sizeof root, "%s/root", scratch);
  OK(sysmem_read(root, &left, &all));
  assert_int_equal(left / MB, left_mb);
  assert_int_equal(all / MB, all_mb);
}

static void test_sysmem_without_cgroups_is_meminfo(void **state) {
  (void)state;
  begin_tree("", "");
  expect(800, 1000);
}

static void test_sysmem_v2_own_cgroup_limits(void **state) {
  (void)state;
  begin_tree("0::/user/job\n", v2_mount);
  put("/sys/fs/cgroup/user/job/memory.max", "209715200\n");    /* 200 MB */
  put("/sys/fs/cgroup/user/job/memory.current", "52428800\n"); /* 50 MB */
  expect(150, 200);
}

static void test_sysmem_v2_parent_with_less_left_limits(void **state) {
  (void)state;
  begin_tree("0::/user/job\n", v2_mount);
  put("/sys/fs/cgroup/user/job/memory.max", "209715200\n");
  put("/sys/fs/cgroup/user/job/memory.current", "52428800\n");
  put("/sys/fs/cgroup/user/memory.max", "314572800\n"); /* 300 MB */
  /* 280 MB, of which siblings use 230 MB */
  put("/sys/fs/cgroup/user/memory.current", "293601280\n");
  expect(20, 200);
}

static void test_sysmem_v2_max_is_no_limit(void **state) {
  (void)state;
  begin_tree("0::/user\n", v2_mount);
  put("/sys/fs/cgroup/user/memory.max", "max\n");
  put("/sys/fs/cgroup/user/memory.high", "max\n");
  put("/sys/fs/cgroup/user/memory.current", "52428800\n");
  expect(800, 1000);
}

static void test_sysmem_v2_high_limits_as_max_does(void **state) {
  (void)state;
  begin_tree("0::/user\n", v2_mount);
  put("/sys/fs/cgroup/user/memory.max", "209715200\n");
  put("/sys/fs/cgroup/user/memory.high",
      "104857600\n"); /* 100 MB; the kernel throttles above memory.high */
  put("/sys/fs/cgroup/user/memory.current", "52428800\n");
  expect(50, 100);
}

static void test_sysmem_v2_page_cache_counts_as_free(void **state) {
  (void)state;
  begin_tree("0::/user\n", v2_mount);
  put("/sys/fs/cgroup/user/memory.max", "209715200\n");
  /* the limit is reached, but part of the usage is page cache */
  put("/sys/fs/cgroup/user/memory.current", "209715200\n");
  put("/sys/fs/cgroup/user/memory.stat",
      "anon 52428800\nfile 157286400\ninactive_anon 1\nactive_anon 52428799\n"
      "inactive_file 104857600\nactive_file 52428800\nunevictable 0\n");
  expect(150, 200);
}

static void test_sysmem_v2_usage_above_limit_leaves_nothing(void **state) {
  (void)state;
  begin_tree("0::/user\n", v2_mount);
  put("/sys/fs/cgroup/user/memory.max", "104857600\n");
  put("/sys/fs/cgroup/user/memory.current", "209715200\n");
  expect(0, 100);
}

/* The mount of a container has only its own cgroup, under the name that it has outside. */
static void test_sysmem_v2_mount_of_part_is_followed(void **state) {
  (void)state;
  begin_tree("0::/docker/abc/job\n",
             "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  put("/sys/fs/cgroup/memory.max", "209715200\n");
  put("/sys/fs/cgroup/memory.current", "52428800\n");
  put("/sys/fs/cgroup/job/memory.max", "104857600\n");
  put("/sys/fs/cgroup/job/memory.current", "10485760\n");
  expect(90, 100);
}

static void test_sysmem_v2_cgroup_outside_mount_takes_its_top(void **state) {
  (void)state;
  begin_tree("0::/../other\n", v2_mount);
  put("/sys/fs/cgroup/memory.max", "209715200\n");
  put("/sys/fs/cgroup/memory.current", "52428800\n");
  expect(150, 200);
}

static void test_sysmem_mount_point_with_space_is_found(void **state) {
  (void)state;
  begin_tree("0::/job\n", "30 24 0:26 / /sys/c\\040g rw - cgroup2 cgroup2 rw\n");
  put("/sys/c g/job/memory.max", "209715200\n");
  put("/sys/c g/job/memory.current", "52428800\n");
  expect(150, 200);
}

static void test_sysmem_v1_nested_cgroup_limits(void **state) {
  (void)state;
  begin_tree("9:name=systemd:/\n4:cpu,memory:/slurm/job\n0::/\n", v1_mount);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
  put("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "419430400\n"); /* 400 MB */
  put("/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "367001600\n"); /* 350 MB */
  put("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "209715200\n");
  put("/sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "52428800\n");
  put("/sys/fs/cgroup/memory/slurm/job/memory.stat", "total_inactive_file 10485760\n");
  expect(50, 200);
}

static void test_sysmem_v1_page_cache_counts_as_free(void **state) {
  (void)state;
  begin_tree("4:memory:/job\n", v1_mount);
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
  put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "209715200\n");
  put("/sys/fs/cgroup/memory/job/memory.stat",
      "inactive_file 1\ntotal_inactive_file 104857600\ntotal_active_file 52428800\n");
  expect(150, 200);
}

static void test_sysmem_damaged_files_are_no_limit(void **state) {
  (void)state;
  begin_tree("0\n:\n0::\n4:memory\n", "- \n30 - cgroup2\n30 24 0:26 - cgroup2 x y\n");
  put("/sys/fs/cgroup/memory.max", "209715200\n");
  expect(800, 1000);
}

/* The child moves itself into a new cgroup and writes the result to a file. */
static void test_sysmem_real_cgroup_limits(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX], line[64];
  const char *const tops[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
  const char *const limits[] = {"memory.max", "memory.limit_in_bytes"};
  int made = -1;
  for (int i = 0; i < 2 && made < 0; i++) {
    char path[FILE_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", tops[i], i ? "memory.limit_in_bytes" : "memory.stat");
    if (access(path, R_OK)) continue;
    snprintf(dir, sizeof dir, "%s/trireme-test-%d", tops[i], (int)getpid());
    if (mkdir(dir, 0755) == 0) made = i;
  }
  if (made < 0) {
    print_message("no cgroup can be made here\n");
    skip();
  }
  uint64_t answer[2] = {0};
  int channel[2];
  assert_int_equal(pipe(channel), 0);
  pid_t child = fork();
  if (child == 0) {
    char path[FILE_PATH_MAX + 32];
    bool moved = true;
    const char *names[] = {limits[made], "cgroup.procs"};
    for (int i = 0; i < 2; i++) {
      snprintf(path, sizeof path, "%s/%s", dir, names[i]);
      FILE *f = fopen(path, "w");
      snprintf(line, sizeof line, "%llu\n", i ? (unsigned long long)getpid() : 100ull << 20);
      moved = f && fputs(line, f) >= 0 && fclose(f) == 0 && moved;
    }
    if (moved && sysmem_read("", &answer[0], &answer[1])) answer[0] = UINT64_MAX;
    ssize_t n = write(channel[1], answer, sizeof answer);
    _exit(n == (ssize_t)sizeof answer ? 0 : 1);
  }
  assert_int_equal(read(channel[0], answer, sizeof answer), sizeof answer);
  assert_int_equal(waitpid(child, NULL, 0), child);
  close(channel[0]);
  close(channel[1]);
  assert_int_equal(rmdir(dir), 0);
  if (!answer[1]) {
    print_message("no process may be moved into a cgroup here\n");
    skip();
  }
  assert_int_equal(answer[1], 100 * MB);
  assert_between(answer[0], 1, 100 * MB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sysmem_without_cgroups_is_meminfo),
      cmocka_unit_test(test_sysmem_v2_own_cgroup_limits),
      cmocka_unit_test(test_sysmem_v2_parent_with_less_left_limits),
      cmocka_unit_test(test_sysmem_v2_max_is_no_limit),
      cmocka_unit_test(test_sysmem_v2_high_limits_as_max_does),
      cmocka_unit_test(test_sysmem_v2_page_cache_counts_as_free),
      cmocka_unit_test(test_sysmem_v2_usage_above_limit_leaves_nothing),
      cmocka_unit_test(test_sysmem_v2_mount_of_part_is_followed),
      cmocka_unit_test(test_sysmem_v2_cgroup_outside_mount_takes_its_top),
      cmocka_unit_test(test_sysmem_mount_point_with_space_is_found),
      cmocka_unit_test(test_sysmem_v1_nested_cgroup_limits),
      cmocka_unit_test(test_sysmem_v1_page_cache_counts_as_free),
      cmocka_unit_test(test_sysmem_damaged_files_are_no_limit),
      cmocka_unit_test(test_sysmem_real_cgroup_limits),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
