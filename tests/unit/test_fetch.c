/* Downloads from a server that simulates faults: build/tests/httpd, found through TRIREME_TOOLS.
 * Depends on data/fetch, cmocka.
 * run-tests: needs httpd */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/url.h"
#include "data/fetch.h"

#define SIZE 300000

static char root[64], served[128], got[128], logged[128];
static char body[SIZE], hash[65];
static pid_t server;
static int port;

/* ---- the server ---- */

static void start(const char *flags) {
  const char *tools = getenv("TRIREME_TOOLS");
  char command[1024];
  int out[2];
  assert_non_null(tools);
  assert_int_equal(pipe(out), 0);
  unlink(logged);
  server = fork();
  assert_true(server >= 0);
  if (server == 0) {
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
    snprintf(command, sizeof command, "exec '%s/httpd' '%s' --seconds 300 --log '%s' %s", tools,
             served, logged, flags);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  close(out[1]);
  FILE *in = fdopen(out[0], "r");
  assert_non_null(in);
  assert_int_equal(fscanf(in, "%d", &port), 1);
  fclose(in);
}

static void stop_server(void) {
  if (server <= 0) return;
  kill(server, SIGTERM);
  waitpid(server, NULL, 0);
  server = 0;
}

static const char *url(const char *name) {
  static char text[512];
  snprintf(text, sizeof text, "http://127.0.0.1:%d/%s", port, name);
  return text;
}

/* Returns the requests that the server received, for example "/data all 200
 * ". */
static const char *asked(void) {
  static char text[4096];
  FILE *in = fopen(logged, "r");
  size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
  if (in) fclose(in);
  text[n] = '\0';
  return text;
}

/* ---- files ---- */

static void path_of(char *out, const char *name) {
  snprintf(out, 256, "%s/%s", root, name);
}

static void put_file(const char *path, const char *bytes, size_t len) {
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  assert_int_equal(fwrite(bytes, 1, len, out), len);
  assert_int_equal(fclose(out), 0);
}

static void assert_body(const char *path, const char *bytes, size_t len) {
  FILE *in = fopen(path, "r");
  static char text[SIZE + 1];
  assert_non_null(in);
  size_t n = fread(text, 1, sizeof text, in);
  fclose(in);
  assert_int_equal(n, len);
  assert_memory_equal(text, bytes, len);
}

static void assert_says(const char *words) {
  if (!strstr(err_message(), words)) fail_msg("\"%s\" lacks \"%s\"", err_message(), words);
}

static bool there(const char *suffix) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", got, suffix);
  return access(path, F_OK) == 0;
}

static FetchJob job_for(const char *name, FetchReport *report) {
  return (FetchJob){.url = url(name), .path = got, .delay = 0.01, .stall = 3, .report = report};
}

/* ---- set-up and tear-down ---- */

static int begin(void **state) {
  (void)state;
  char path[256];
  strcpy(root, "/tmp/trireme-fetch-XXXXXX");
  if (!mkdtemp(root)) return -1;
  snprintf(served, sizeof served, "%s/served", root);
  snprintf(got, sizeof got, "%s/got", root);
  snprintf(logged, sizeof logged, "%s/log", root);
  if (mkdir(served, 0777) != 0) return -1;
  uint32_t x = 1;
  for (size_t i = 0; i < SIZE; i++) body[i] = (char)((x = x * 1664525u + 1013904223u) >> 24);
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, body, SIZE);
  sha256_end(&sha, hash);
  snprintf(path, sizeof path, "%s/data", served);
  put_file(path, body, SIZE);
  return 0;
}

static int end(void **state) {
  (void)state;
  stop_server();
  return file_remove_all(root) == ERR_OK ? 0 : -1;
}

static void need_curl(void) {
  if (fetch_is_built()) return;
  printf("skip: built without libcurl\n");
  skip();
}

/* ---- tests ---- */

static void test_fetch_is_url_distinguishes_urls_from_paths(void **state) {
  (void)state;
  assert_true(fetch_is_url("http://a/b"));
  assert_true(fetch_is_url("https://a"));
  assert_true(fetch_is_url("ftp://a/b"));
  assert_true(fetch_is_url("file:///a"));
  assert_false(fetch_is_url("http://"));
  assert_false(fetch_is_url("gopher://a/b"));
  assert_false(fetch_is_url("http://a b"));
  assert_false(fetch_is_url("http://a\n"));
  assert_false(fetch_is_url("data/train.en"));
  assert_false(fetch_is_url(""));
}

static void test_fetch_check_compares_size_and_hash(void **state) {
  (void)state;
  char path[256];
  snprintf(path, sizeof path, "%s/data", served);
  assert_int_equal(fetch_check(path, hash, SIZE), ERR_OK);
  assert_int_equal(fetch_check(path, NULL, 0), ERR_OK);
  assert_int_equal(fetch_check(path, NULL, SIZE + 1), ERR_WORK);
  assert_says("300000");
  assert_says("300001");
  char other[65];
  memset(other, 'a', 64);
  other[64] = '\0';
  assert_int_equal(fetch_check(path, other, 0), ERR_WORK);
  assert_says(hash);
  assert_says(other);
}

static void test_fetch_http_file_is_written(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("");
  FetchJob job = job_for("data", &report);
  job.sha256 = hash;
  job.bytes = SIZE;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_int_equal(report.requests, 1);
  assert_int_equal(report.resumed, 0);
  assert_string_equal(asked(), "/data all 200\n");
  assert_false(there(".part"));
  assert_false(there(".part.meta"));
}

static void test_fetch_empty_file_is_written(void **state) {
  (void)state;
  need_curl();
  char path[256];
  snprintf(path, sizeof path, "%s/empty", served);
  put_file(path, "", 0);
  start("");
  FetchJob job = job_for("empty", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, "", 0);
}

static void test_fetch_file_url_is_copied(void **state) {
  (void)state;
  need_curl();
  char address[256];
  snprintf(address, sizeof address, "file://%s/data", served);
  FetchJob job = {.url = address, .path = got, .sha256 = hash};
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  snprintf(address, sizeof address, "file://%s/absent", served);
  assert_int_equal(fetch_file(&job), ERR_WORK);
}

static void test_fetch_redirect_is_followed_but_not_to_file_url(void **state) {
  (void)state;
  need_curl();
  char name[256];
  start("");
  FetchJob job = job_for("moved/data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/moved/data all 302\n/data all 200\n");
  unlink(got);
  snprintf(name, sizeof name, "file/%s/data", served + 1);
  job = job_for(name, NULL);
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_false(there(""));
}

/* Creates a .part file and its .meta file as a killed process would leave them, with the first
 * `n` bytes. */
static void leave_part(const char *flags, const char *n) {
  char all[256];
  FetchJob job;
  snprintf(all, sizeof all, "--cut %s %s", n, flags);
  start(all);
  job = job_for("data", NULL);
  job.tries = 1;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_true(there(".part"));
  assert_true(there(".part.meta"));
  assert_false(there(""));
  unlink(logged);
}

static void test_fetch_partial_file_resumes_with_range(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  leave_part("", "100000");
  FetchJob job = job_for("data", &report);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data 100000- 206\n");
  assert_int_equal(report.resumed, 100000);
  assert_false(there(".part.meta"));
}

/* Returns a URL of the server with a user name, a password and a signature. */
static const char *secret_url(const char *name, const char *password) {
  static char text[512];
  snprintf(text, sizeof text, "http://me:%s@127.0.0.1:%d/%s", password, port, name);
  return text;
}

static void test_fetch_password_is_not_in_message_and_meta_file(void **state) {
  (void)state;
  need_curl();
  char path[256];
  Str note = {0};
  start("--cut 5000");
  FetchJob job = job_for("data", NULL);
  job.url = secret_url("data", "sesame");
  job.tries = 1;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says("http://***@127.0.0.1:");
  assert_null(strstr(err_message(), "sesame"));
  snprintf(path, sizeof path, "%s.part.meta", got);
  assert_int_equal(file_read(path, 10000, &note), ERR_OK);
  assert_non_null(strstr(note.s, "url http://***@127.0.0.1:"));
  assert_null(strstr(note.s, "sesame"));
  str_free(&note);
  unlink(logged);
  /* Another password is the same file, so the download must be resumed. */
  job.url = secret_url("data", "another");
  job.tries = 0;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data 5000- 206\n");
}

static void test_fetch_signature_is_not_in_message(void **state) {
  (void)state;
  need_curl();
  start("");
  FetchJob job = job_for("absent?X-Sig=sesame&id=7", NULL);
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says("/absent?X-Sig=***&id=***: ");
  assert_null(strstr(err_message(), "sesame"));
}

static void check_mask(const char *address, const char *expected) {
  char shown[URL_SHOWN_MAX];
  assert_string_equal(url_mask(address, shown), expected);
}

static void test_url_mask_hides_logins_and_query_values(void **state) {
  (void)state;
  check_mask("https://host/a/b.gz", "https://host/a/b.gz");
  check_mask("https://host:8080/@team/b", "https://host:8080/@team/b");
  check_mask("https://[::1]:80/@x", "https://[::1]:80/@x");
  check_mask("https://me:pass@host/b", "https://***@host/b");
  check_mask("ftp://token@host", "ftp://***@host");
  check_mask("https://me:p@ss@host/b@c", "https://***@host/b@c");
  /* a password with a '/' that should have been written as %2F */
  check_mask("https://me:pa/ss@host/b", "https://***@host/b");
  check_mask("https://me:pa?ss#@host/b", "https://***@host/b");
  check_mask("https://host/b?sig=abc", "https://host/b?sig=***");
  check_mask("https://host/b?a=1&sig=x=y&c", "https://host/b?a=***&sig=***&***");
  check_mask("https://host/b?abc#part", "https://host/b?***");
  /* not a URL, but text that may be printed in an error */
  check_mask("me:pass@host", "***@host");
}

static void test_url_mask_path_changes_urls_only(void **state) {
  (void)state;
  char shown[URL_SHOWN_MAX];
  assert_string_equal(url_mask_path("https://me:pass@host/b", shown), "https://***@host/b");
  assert_string_equal(url_mask_path("data/me:x@host?a=b", shown), "data/me:x@host?a=b");
}

static void test_url_mask_long_url_is_cut(void **state) {
  (void)state;
  char address[3000], shown[URL_SHOWN_MAX];
  memset(address, 'a', sizeof address - 1);
  memcpy(address, "https://me:pass@", 16);
  address[sizeof address - 1] = '\0';
  url_mask(address, shown);
  assert_int_equal(strlen(shown), URL_SHOWN_MAX - 1);
  assert_non_null(strstr(shown, "https://***@aaa"));
  assert_non_null(strstr(shown, "a..."));
}

static void test_url_identify_sees_the_query_but_no_login(void **state) {
  (void)state;
  char hex[4][65];
  url_identify("https://host/get?id=1", hex[0]);
  url_identify("https://host/get?id=2", hex[1]);
  url_identify("https://me:pass@host/get?id=1", hex[2]);
  url_identify("http://host/get?id=1", hex[3]);
  assert_string_not_equal(hex[0], hex[1]);
  assert_string_equal(hex[0], hex[2]);
  assert_string_not_equal(hex[0], hex[3]);
}

static void test_fetch_partial_file_with_date_only_resumes(void **state) {
  (void)state;
  need_curl();
  leave_part("--no-etag", "1234");
  FetchJob job = job_for("data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data 1234- 206\n");
}

static void test_fetch_partial_file_without_validator_starts_over(void **state) {
  (void)state;
  need_curl();
  leave_part("--no-etag --no-date", "1234");
  FetchJob job = job_for("data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n");
}

static void test_fetch_partial_file_with_known_hash_resumes(void **state) {
  (void)state;
  need_curl();
  leave_part("--no-etag --no-date", "1234");
  FetchJob job = job_for("data", NULL);
  job.sha256 = hash;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data 1234- 206\n");
}

/* Changes the remote file between two calls. */
static void change_remote(char *other) {
  char path[256];
  for (size_t i = 0; i < SIZE; i++) other[i] = (char)~body[i];
  snprintf(path, sizeof path, "%s/data", served);
  put_file(path, other, SIZE);
  struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(utimensat(0, path, times, 0), 0);
}

static void test_fetch_changed_remote_file_starts_over(void **state) {
  (void)state;
  need_curl();
  static char other[SIZE];
  leave_part("", "100000");
  change_remote(other);
  FetchReport report;
  FetchJob job = job_for("data", &report);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, other, SIZE);
  assert_int_equal(report.resumed, 0);
}

static void test_fetch_server_ignores_if_range_starts_over(void **state) {
  (void)state;
  need_curl();
  static char other[SIZE];
  leave_part("--no-if-range", "100000");
  change_remote(other);
  FetchJob job = job_for("data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, other, SIZE);
  assert_string_equal(asked(), "/data 100000- 206\n/data all 200\n");
}

static void test_fetch_wrong_hash_after_resume_starts_over(void **state) {
  (void)state;
  need_curl();
  char part[256];
  leave_part("", "100000");
  snprintf(part, sizeof part, "%s.part", got);
  char *damaged = malloc(100000);
  assert_non_null(damaged);
  memcpy(damaged, body, 100000);
  damaged[5] ^= 1;
  put_file(part, damaged, 100000);
  free(damaged);
  FetchJob job = job_for("data", NULL);
  job.sha256 = hash;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data 100000- 206\n/data all 200\n");
}

static void test_fetch_partial_file_of_other_url_is_not_used(void **state) {
  (void)state;
  need_curl();
  char path[256];
  leave_part("", "100000");
  snprintf(path, sizeof path, "%s/other", served);
  put_file(path, "another", 7);
  FetchJob job = job_for("other", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, "another", 7);
}

static void test_fetch_partial_file_without_meta_file_is_not_used(void **state) {
  (void)state;
  need_curl();
  char path[256];
  snprintf(path, sizeof path, "%s.part", got);
  put_file(path, "garbage", 7);
  start("");
  FetchJob job = job_for("data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n");
}

static void test_fetch_damaged_meta_file_is_not_used(void **state) {
  (void)state;
  need_curl();
  static const char *const notes[] = {"", "\n\n\n", "size 99999999999999999999999\n", "url \n",
                                      "size -1\netag\nurl"};
  char path[256];
  start("");
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
    snprintf(path, sizeof path, "%s.part.meta", got);
    put_file(path, notes[i], strlen(notes[i]));
    snprintf(path, sizeof path, "%s.part", got);
    put_file(path, "garbage", 7);
    FetchJob job = job_for("data", NULL);
    assert_int_equal(fetch_file(&job), ERR_OK);
    assert_body(got, body, SIZE);
  }
}

static void test_fetch_complete_partial_file_needs_no_request(void **state) {
  (void)state;
  need_curl();
  char path[256];
  FetchReport report;
  leave_part("", "100000");
  snprintf(path, sizeof path, "%s.part", got);
  put_file(path, body, SIZE);
  FetchJob job = job_for("data", &report);
  job.sha256 = hash;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_int_equal(report.requests, 0);
}

static void test_fetch_status_503_is_retried(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("--fail 3");
  FetchJob job = job_for("data", &report);
  job.sha256 = hash;
  double before = progress_clock();
  assert_int_equal(fetch_file(&job), ERR_OK);
  /* delays of 10 + 20 + 40 ms */
  assert_true(progress_clock() - before > 0.07);
  assert_body(got, body, SIZE);
  assert_int_equal(report.requests, 4);
}

static void test_fetch_last_retry_failed_is_error(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("--fail 100");
  FetchJob job = job_for("data", &report);
  job.tries = 3;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_int_equal(report.requests, 3);
  assert_false(report.unreachable);
  assert_says("503");
  assert_says("3 tries");
  assert_false(there(".part"));
}

static void test_fetch_truncated_body_continues(void **state) {
  (void)state;
  need_curl();
  start("--cut 70000");
  FetchJob job = job_for("data", NULL);
  job.sha256 = hash;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n/data 70000- 206\n");
}

static void test_fetch_many_truncated_bodies_with_progress_continue(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("--cut-all 40000");
  FetchJob job = job_for("data", &report);
  job.tries = 2;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_int_equal(report.requests, 8);
}

static void test_fetch_truncated_bodies_without_progress_are_error(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("--cut-all 40000 --no-range");
  FetchJob job = job_for("data", &report);
  job.tries = 4;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_int_equal(report.requests, 4);
  assert_false(there(""));
}

static void test_fetch_server_without_ranges_starts_over(void **state) {
  (void)state;
  need_curl();
  start("--cut 70000 --no-range");
  FetchJob job = job_for("data", NULL);
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n/data 70000- 200\n");
}

static void test_fetch_stalled_transfer_is_error(void **state) {
  (void)state;
  need_curl();
  start("--stall 50000");
  FetchJob job = job_for("data", NULL);
  double before = progress_clock();
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_true(progress_clock() - before < 120);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n/data 50000- 206\n");
}

static void test_fetch_wrong_hash_is_error(void **state) {
  (void)state;
  need_curl();
  char other[65], bad[256];
  memset(other, 'b', 64);
  other[64] = '\0';
  put_file(got, "old", 3);
  start("");
  FetchJob job = job_for("data", NULL);
  job.sha256 = other;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says(hash);
  assert_says(other);
  assert_body(got, "old", 3);
  assert_false(there(".part"));
  snprintf(bad, sizeof bad, "%s.bad", got);
  assert_body(bad, body, SIZE);
  assert_says(bad);
}

static void test_fetch_wrong_size_is_error_before_download(void **state) {
  (void)state;
  need_curl();
  start("");
  FetchJob job = job_for("data", NULL);
  job.bytes = SIZE - 1;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says("300000");
  assert_says("299999");
  assert_false(there(""));
  assert_false(there(".part"));
}

static void test_fetch_status_404_is_not_retried(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("");
  FetchJob job = job_for("absent", &report);
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says("404");
  assert_says("/absent");
  assert_int_equal(report.requests, 1);
  assert_false(report.unreachable);
  assert_false(there(".part"));
}

static void test_fetch_closed_port_is_unreachable(void **state) {
  (void)state;
  need_curl();
  FetchReport report;
  start("");
  FetchJob job = job_for("data", &report);
  stop_server();
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_true(report.unreachable);
  assert_int_equal(report.requests, 3);
}

static void test_fetch_two_processes_download_once(void **state) {
  (void)state;
  need_curl();
  start("--stall 50000");
  FetchJob job = job_for("data", NULL);
  job.sha256 = hash;
  pid_t other = fork();
  assert_true(other >= 0);
  if (other == 0) _exit(fetch_file(&job) == ERR_OK ? 0 : 1);
  while (!there(".part.meta")) usleep(1000);
  assert_int_equal(fetch_file(&job), ERR_OK);
  int status;
  waitpid(other, &status, 0);
  assert_int_equal(status, 0);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n/data 50000- 206\n");
}

static void test_fetch_killed_process_leaves_partial_file_to_resume(void **state) {
  (void)state;
  need_curl();
  start("--stall 50000");
  FetchJob job = job_for("data", NULL);
  job.stall = 30;
  pid_t other = fork();
  assert_true(other >= 0);
  if (other == 0) {
    signal(SIGINT, SIG_DFL); /* A background job of a shell ignores SIGINT by default. */
    _exit(fetch_file(&job) == ERR_OK ? 0 : 1);
  }
  char part[256];
  uint64_t size = 0;
  snprintf(part, sizeof part, "%s.part", got);
  for (int i = 0; i < 60000 && size < 50000; i++) {
    if (there(".part")) assert_int_equal(file_size(part, &size), ERR_OK);
    usleep(1000);
  }
  assert_int_equal(size, 50000);
  kill(other, SIGINT);
  int status;
  waitpid(other, &status, 0);
  assert_true(WIFSIGNALED(status));
  job.sha256 = hash;
  assert_int_equal(fetch_file(&job), ERR_OK);
  assert_body(got, body, SIZE);
  assert_string_equal(asked(), "/data all 200\n/data 50000- 206\n");
}

static void test_fetch_unwritable_directory_is_error(void **state) {
  (void)state;
  need_curl();
  char path[256];
  path_of(path, "no/such/dir/file");
  start("");
  FetchJob job = job_for("data", NULL);
  job.path = path;
  assert_int_equal(fetch_file(&job), ERR_WORK);
  assert_says(path);
}

static void test_fetch_other_scheme_is_refused(void **state) {
  (void)state;
  need_curl();
  FetchJob job = {.url = "gopher://127.0.0.1/x", .path = got};
  assert_int_equal(fetch_file(&job), ERR_USAGE);
  assert_says("gopher://127.0.0.1/x");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(test_fetch_is_url_distinguishes_urls_from_paths),
      TEST(test_fetch_check_compares_size_and_hash),
      TEST(test_fetch_http_file_is_written),
      TEST(test_fetch_empty_file_is_written),
      TEST(test_fetch_file_url_is_copied),
      TEST(test_fetch_redirect_is_followed_but_not_to_file_url),
      TEST(test_fetch_partial_file_resumes_with_range),
      TEST(test_fetch_password_is_not_in_message_and_meta_file),
      TEST(test_fetch_signature_is_not_in_message),
      TEST(test_url_mask_hides_logins_and_query_values),
      TEST(test_url_mask_path_changes_urls_only),
      TEST(test_url_mask_long_url_is_cut),
      TEST(test_url_identify_sees_the_query_but_no_login),
      TEST(test_fetch_partial_file_with_date_only_resumes),
      TEST(test_fetch_partial_file_without_validator_starts_over),
      TEST(test_fetch_partial_file_with_known_hash_resumes),
      TEST(test_fetch_changed_remote_file_starts_over),
      TEST(test_fetch_server_ignores_if_range_starts_over),
      TEST(test_fetch_wrong_hash_after_resume_starts_over),
      TEST(test_fetch_partial_file_of_other_url_is_not_used),
      TEST(test_fetch_partial_file_without_meta_file_is_not_used),
      TEST(test_fetch_damaged_meta_file_is_not_used),
      TEST(test_fetch_complete_partial_file_needs_no_request),
      TEST(test_fetch_status_503_is_retried),
      TEST(test_fetch_last_retry_failed_is_error),
      TEST(test_fetch_truncated_body_continues),
      TEST(test_fetch_many_truncated_bodies_with_progress_continue),
      TEST(test_fetch_truncated_bodies_without_progress_are_error),
      TEST(test_fetch_server_without_ranges_starts_over),
      TEST(test_fetch_stalled_transfer_is_error),
      TEST(test_fetch_wrong_hash_is_error),
      TEST(test_fetch_wrong_size_is_error_before_download),
      TEST(test_fetch_status_404_is_not_retried),
      TEST(test_fetch_closed_port_is_unreachable),
      TEST(test_fetch_two_processes_download_once),
      TEST(test_fetch_killed_process_leaves_partial_file_to_resume),
      TEST(test_fetch_unwritable_directory_is_error),
      TEST(test_fetch_other_scheme_is_refused),
  };
  log_quiet(true);
  /* A proxy in the user's environment must not be used for the test server. */
  unsetenv("http_proxy");
  unsetenv("all_proxy");
  unsetenv("ALL_PROXY");
  return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
