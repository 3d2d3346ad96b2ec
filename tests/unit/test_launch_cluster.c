/* Drives, credentials and program directories of `trireme cluster`, and the sessions in which
 * it runs commands. tests/cluster/cluster.bats tests the work on hosts.
 * run-tests: waits */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"
#include "launch/cluster.h"
#include "launch/session.h"
#include "support.h"

static void check_refused(const char *text, const char *more, const char *reason) {
  ClusterMount m;
  assert_int_equal(cluster_parse_mount(&m, text, more), ERR_USAGE);
  if (!strstr(err_message(), reason))
    fail_msg("'%s' does not have '%s'", err_message(), reason);
}

static void test_mount_nfs_becomes_source_and_point(void **state) {
  (void)state;
  ClusterMount m;
  OK(cluster_parse_mount(&m, "nfs://nas.local/a/b/:/mnt/x/", NULL));
  assert_string_equal(m.type, "nfs");
  assert_string_equal(m.source, "nas.local:/a/b");
  assert_string_equal(m.point, "/mnt/x");
  assert_string_equal(m.options, "nofail,_netdev,hard");
}

static void test_mount_efs_has_the_options_of_amazon(void **state) {
  (void)state;
  ClusterMount m;
  assert_int_equal(
      cluster_parse_mount(&m, "nfs://fs-1.efs.eu-west-1.amazonaws.com/:/mnt/efs", NULL),
      ERR_OK);
  assert_string_equal(m.source, "fs-1.efs.eu-west-1.amazonaws.com:/");
  assert_non_null(strstr(m.options, "nofail,_netdev,nfsvers=4.1,"));
  assert_non_null(strstr(m.options, ",noresvport"));
}

static void test_mount_ipv6_server_keeps_its_brackets(void **state) {
  (void)state;
  ClusterMount m;
  OK(cluster_parse_mount(&m, "nfs://[fd00::1]/x:/mnt/x", NULL));
  assert_string_equal(m.source, "[fd00::1]:/x");
}

static void test_mount_cifs_with_more_options(void **state) {
  (void)state;
  ClusterMount m;
  OK(cluster_parse_mount(&m, "cifs://nas/share:/mnt/x", "uid=1000,ro"));
  assert_string_equal(m.source, "//nas/share");
  assert_string_equal(m.options, "nofail,_netdev,vers=3.0,mfsymlinks,uid=1000,ro");
}

static void test_mount_password_is_refused_and_not_shown(void **state) {
  (void)state;
  check_refused("cifs://ann:S3cr3t@nas/share:/mnt/x", NULL, "--credentials FILE");
  assert_null(strstr(err_message(), "S3cr3t"));
  check_refused("cifs://nas/share:/mnt/x", "password=S3cr3t", "--credentials FILE");
  assert_null(strstr(err_message(), "S3cr3t"));
}

static void test_mount_unknown_kind_is_refused(void **state) {
  (void)state;
  check_refused("s3://bucket/x:/mnt/x", NULL, "unknown kind");
}

static void test_mount_without_path_or_point_is_refused(void **state) {
  (void)state;
  check_refused("nfs://nas", NULL, "no path");
  check_refused("nfs://nas/export", NULL, "no mount point");
  check_refused("cifs://nas/:/mnt/x", NULL, "no share");
  check_refused("nfs:///export:/mnt/x", NULL, "no host name");
}

static void test_mount_root_or_relative_point_is_refused(void **state) {
  (void)state;
  check_refused("nfs://nas/export:/", NULL, "mount point must be");
  check_refused("nfs://nas/export:/mnt/../etc", NULL, "mount point must be");
}

static void test_mount_characters_of_shells_and_fstab_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"nfs://nas/a b:/mnt/x", "nfs://nas/a:/mnt/$(x)",
                                    "nfs://nas/a\n:/mnt/x", "nfs://nas/a:/mnt/x#",
                                    "nfs://nas/a;b:/mnt/x", "nfs://nas/'a:/mnt/x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_refused(bad[i], NULL, "special characters");
  check_refused("nfs://n;s/a:/mnt/x", NULL, "no host name");
  check_refused("nfs://-oX/a:/mnt/x", NULL, "no host name");
  check_refused("nfs://nas/a:/mnt/x", "ro sync", "commas");
}

static void test_mount_port_in_server_is_refused(void **state) {
  (void)state;
  check_refused("nfs://nas:2049/a:/mnt/x", NULL, "port=N");
}

static void test_mount_too_long_is_refused(void **state) {
  (void)state;
  char text[1200] = "nfs://nas/";
  memset(text + 10, 'a', 600);
  strcpy(text + 610, ":/mnt/x");
  check_refused(text, NULL, "too long");
}

static void test_dir_of_the_system_is_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"/",      "/usr",     "/opt/",   "/etc//", "../x",
                                    "a/../b", "/opt/a b", "/opt/$x", "",       "-x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(cluster_check_dir(bad[i]), ERR_USAGE);
  assert_int_equal(cluster_check_dir("/opt/trireme"), ERR_OK);
  assert_int_equal(cluster_check_dir("trireme"), ERR_OK);
  assert_int_equal(cluster_check_dir("/usr/local/trireme"), ERR_OK);
}

static void test_credentials_without_password_are_refused_and_not_shown(void **state) {
  (void)state;
  char path[] = "/tmp/trireme-credentials-XXXXXX";
  Str text = {0};
  int fd = mkstemp(path);
  assert_int_equal(write(fd, "username=hidden\n", 16), 16);
  close(fd);
  assert_int_equal(cluster_read_credentials(&text, path), ERR_USAGE);
  assert_null(strstr(err_message(), "hidden"));
  str_free(&text);
  unlink(path);
}

static void test_session_passes_input_and_keeps_both_outputs(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "cat; echo no >&2; exit 7", NULL};
  SessionEnd end;
  Session s = {.argv = argv, .input = "one\ntwo\n", .input_len = 8};
  OK(session_run(&s, &end));
  assert_int_equal(end.status, 7);
  assert_string_equal(str_text(&end.out), "one\ntwo\n");
  assert_string_equal(str_text(&end.err), "no\n");
  session_free(&end);
}

static void test_session_command_that_reads_nothing_is_no_error(void **state) {
  (void)state;
  static char input[1 << 20];
  const char *argv[] = {"true", NULL};
  SessionEnd end;
  Session s = {.argv = argv, .input = input, .input_len = sizeof input};
  signal(SIGPIPE, SIG_IGN);
  OK(session_run(&s, &end));
  assert_int_equal(end.status, 0);
  session_free(&end);
}

static void test_session_output_is_bounded(void **state) {
  (void)state;
  const char *argv[] = {"head", "-c", "3000000", "/dev/zero", NULL};
  SessionEnd end;
  OK(session_run(&(Session){.argv = argv}, &end));
  assert_int_equal(end.out.len, SESSION_OUTPUT_MAX);
  session_free(&end);
}

static void test_session_signal_is_reported_as_status(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "kill -9 $$", NULL};
  SessionEnd end;
  OK(session_run(&(Session){.argv = argv}, &end));
  assert_int_equal(end.status, 128 + 9);
  session_free(&end);
}

static void test_session_missing_command_is_an_error(void **state) {
  (void)state;
  const char *argv[] = {"trireme-no-such-command", NULL};
  SessionEnd end;
  assert_int_equal(session_run(&(Session){.argv = argv}, &end), ERR_WORK);
  assert_says("cannot start trireme-no-such-command: No such file or directory");
  session_free(&end);
}

static void add_line(void *argument, int stream, const char *line) {
  str_addf(argument, "%d[%s]", stream, line);
}

static void test_session_lines_arrive_whole_with_the_last_unfinished(void **state) {
  (void)state;
  const char *argv[] = {"printf", "a\\r\\n\\nb", NULL};
  Str lines = {0};
  SessionEnd end;
  Session s = {.argv = argv, .on_line = add_line, .argument = &lines};
  OK(session_run(&s, &end));
  assert_string_equal(str_text(&lines), "1[a]1[]1[b]");
  str_free(&lines);
  session_free(&end);
}

static void ignore_line(void *argument, int stream, const char *line) {
  (void)argument;
  (void)stream;
  (void)line;
}

static void test_session_without_the_first_line_ends_at_the_limit(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "while :; do echo noise; sleep 0.1; done", NULL};
  SessionEnd end;
  Session s = {.argv = argv, .limit = 1, .begin = "go", .on_line = ignore_line};
  OK(session_run(&s, &end));
  assert_true(end.is_timed_out);
  assert_false(end.has_begun);
  session_free(&end);
}

static void test_session_pause_ends_at_the_limit(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "printf 'noise go\\n'; exec sleep 1000", NULL};
  SessionEnd end;
  Session s = {.argv = argv, .limit = 5, .begin = "go", .on_line = ignore_line};
  OK(session_run(&s, &end));
  assert_true(end.is_timed_out);
  assert_true(end.has_begun);
  session_free(&end);
}

static void test_session_that_may_pause_has_no_limit_after_its_first_line(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "echo go; sleep 6; echo a", NULL};
  Str lines = {0};
  SessionEnd end;
  Session s = {.argv = argv,
               .limit = 5,
               .begin = "go",
               .may_pause = true,
               .on_line = add_line,
               .argument = &lines};
  OK(session_run(&s, &end));
  assert_false(end.is_timed_out);
  assert_string_equal(str_text(&lines), "1[a]");
  str_free(&lines);
  session_free(&end);
}

static void test_session_that_ignores_sigterm_is_killed_at_the_limit(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "trap '' TERM; sleep 30 & while :; do sleep 1; done", NULL};
  SessionEnd end;
  double start = progress_clock();
  OK(session_run(&(Session){.argv = argv, .limit = 1}, &end));
  assert_true(end.is_timed_out);
  assert_int_equal(end.status, 128 + 9);
  /* The process left behind has the output open for 30 s. */
  assert_true(progress_clock() - start < 29);
  session_free(&end);
}

static void test_session_that_closes_its_output_and_stays_ends_at_the_limit(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "exec >&- 2>&-; exec sleep 1000", NULL};
  SessionEnd end;
  OK(session_run(&(Session){.argv = argv, .limit = 1}, &end));
  assert_true(end.is_timed_out);
  assert_int_equal(end.status, 128 + 15);
  session_free(&end);
}

static void test_session_that_prints_without_end_ends_at_the_output_limit(void **state) {
  (void)state;
  const char *argv[] = {"sh", "-c", "echo go; exec yes", NULL};
  SessionEnd end;
  Session s = {.argv = argv, .begin = "go", .output_limit = 1 << 20, .on_line = ignore_line};
  OK(session_run(&s, &end));
  assert_true(end.is_too_long);
  assert_true(end.has_begun);
  assert_int_equal(end.status, 128 + 15);
  session_free(&end);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mount_nfs_becomes_source_and_point),
      cmocka_unit_test(test_mount_efs_has_the_options_of_amazon),
      cmocka_unit_test(test_mount_ipv6_server_keeps_its_brackets),
      cmocka_unit_test(test_mount_cifs_with_more_options),
      cmocka_unit_test(test_mount_password_is_refused_and_not_shown),
      cmocka_unit_test(test_mount_unknown_kind_is_refused),
      cmocka_unit_test(test_mount_without_path_or_point_is_refused),
      cmocka_unit_test(test_mount_root_or_relative_point_is_refused),
      cmocka_unit_test(test_mount_characters_of_shells_and_fstab_are_refused),
      cmocka_unit_test(test_mount_port_in_server_is_refused),
      cmocka_unit_test(test_mount_too_long_is_refused),
      cmocka_unit_test(test_dir_of_the_system_is_refused),
      cmocka_unit_test(test_credentials_without_password_are_refused_and_not_shown),
      cmocka_unit_test(test_session_passes_input_and_keeps_both_outputs),
      cmocka_unit_test(test_session_command_that_reads_nothing_is_no_error),
      cmocka_unit_test(test_session_output_is_bounded),
      cmocka_unit_test(test_session_signal_is_reported_as_status),
      cmocka_unit_test(test_session_missing_command_is_an_error),
      cmocka_unit_test(test_session_lines_arrive_whole_with_the_last_unfinished),
      cmocka_unit_test(test_session_without_the_first_line_ends_at_the_limit),
      cmocka_unit_test(test_session_pause_ends_at_the_limit),
      cmocka_unit_test(test_session_that_may_pause_has_no_limit_after_its_first_line),
      cmocka_unit_test(test_session_that_ignores_sigterm_is_killed_at_the_limit),
      cmocka_unit_test(test_session_that_closes_its_output_and_stays_ends_at_the_limit),
      cmocka_unit_test(test_session_that_prints_without_end_ends_at_the_output_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
