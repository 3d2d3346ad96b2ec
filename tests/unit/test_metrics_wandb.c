/* The Weights & Biases sink of the metrics: one file per run, each step once, continuation after a kill,
 * roll-back, measurements of hosts, full disk. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/wandb.h"
#include "support.h"
#include "train/metrics.h"

#define ID "0123abcd"

static Err open_metrics(Metrics *m, uint64_t step) {
  MetricsSpec spec = {
      .run_dir = scratch, .step = step, .options = "lr = 2\n", .wandb_project = "p"};
  return metrics_open(m, &spec);
}

static void write_value(Metrics *m, uint64_t step, const char *name, double value) {
  metrics_begin(m, step, 0.5);
  metrics_add(m, name, value);
  metrics_end(m);
}

static void write_text(const char *name, const char *text) {
  OK(file_write(at(name), text, strlen(text)));
}

static int make_run(void **state) {
  (void)state;
  write_text("id", ID "456789abcdef0123456789ab\n");
  return 0;
}

static int empty_run(void **state) {
  (void)state;
  OK(file_remove_all(at("wandb")));
  unlink(at("metrics.jsonl"));
  unlink(at("system.jsonl"));
  return 0;
}

/* Returns the path of a file in the directory of the run, of which there must be exactly one. */
static const char *get_path(const char *name) {
  static char path[FILE_PATH_MAX];
  struct dirent **entry;
  int n = scandir(at("wandb"), &entry, NULL, alphasort);
  assert_int_equal(n, 3); /* with . and .. */
  assert_true(str_starts(entry[2]->d_name, "offline-run-20"));
  assert_true(str_ends(entry[2]->d_name, "-" ID));
  char dir[FILE_PATH_MAX];
  OK(file_join(dir, at("wandb"), entry[2]->d_name));
  OK(file_join(path, dir, name));
  for (int i = 0; i < n; i++) free(entry[i]);
  free(entry);
  return path;
}

static const char *get_log(void) {
  return get_path("run-" ID ".wandb");
}

/* Adds a line for each record, without the keys that have a time. */
static Err note_record(void *context, const WandbRecord *r) {
  Str *out = context;
  ProtoBytes at = r->body;
  WandbItem item;
  str_addf(out, "%d", (int)r->type);
  if (r->type == WANDB_HISTORY) str_addf(out, " %" PRIu64, r->step);
  while (wandb_next_item(r, &at, &item))
    if (item.key_len && item.key[0] != '_')
      str_addf(out, " %.*s=%.*s", (int)item.key_len, item.key, (int)item.json_len, item.json);
  str_addc(out, '\n');
  return str_check(out);
}

static void assert_records(const char *want) {
  Str text = {0};
  uint64_t end, size;
  OK(wandb_read(get_log(), note_record, &text, &end));
  assert_string_equal(str_text(&text), want);
  OK(file_size(get_log(), &size));
  assert_int_equal(end, size);
  str_free(&text);
}

#define BEGIN  "21\n17\n26\n"
#define CONFIG "5 lr=2\n"
#define EXIT   "18\n"

static void test_wandb_sink_switched_off_writes_no_directory(void **state) {
  (void)state;
  Metrics m;
  OK(metrics_open(&m, &(MetricsSpec){.run_dir = scratch, .options = ""}));
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  assert_false(file_exists(at("wandb")));
}

static void test_wandb_sink_finished_run_has_history_summary_and_exit(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  metrics_begin(&m, 5, 0.5);
  metrics_add(&m, "loss", 2.5);
  metrics_add(&m, "forward_ms", 8);
  metrics_add_count(&m, "skipped", 3);
  metrics_end(&m);
  write_value(&m, 6, "nll", (double)NAN);
  metrics_finish(&m, 9);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_WANDB), 0);
  assert_records(BEGIN
                 "2 5 train/loss=2.5 time/forward_ms=8 train/skipped=3\n"
                 "3 runtime=0 train/loss=2.5 time/forward_ms=8 train/skipped=3\n"
                 "2 6 train/nll=NaN\n"
                 "3 runtime=0 train/nll=NaN\n" EXIT);
}

static void test_wandb_sink_records_of_one_step_become_one(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 4);
  write_value(&m, 2, "nll", 3);
  write_value(&m, 2, "valid_bleu", 30);
  write_value(&m, 2, "valid_bleu", 31);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=4\n3 runtime=0 train/nll=4\n"
                 "2 2 train/nll=3 valid/bleu=31\n"
                 "3 runtime=0 train/nll=3 valid/bleu=31\n");
}

static void test_wandb_sink_resume_removes_later_steps_and_exit(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  for (uint64_t step = 1; step <= 4; step++) write_value(&m, step, "nll", (double)step);
  metrics_finish(&m, 9);
  metrics_close(&m);
  OK(open_metrics(&m, 2));
  write_value(&m, 3, "nll", 30);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=1\n3 runtime=0 train/nll=1\n"
                 "2 2 train/nll=2\n3 runtime=0 train/nll=2\n" CONFIG
                 "2 3 train/nll=30\n3 runtime=0 train/nll=30\n");
}

static void test_wandb_sink_value_of_the_resumed_step_joins_its_record(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  OK(open_metrics(&m, 1));
  write_value(&m, 1, "valid_bleu", 30);
  write_value(&m, 2, "nll", 2);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=1 valid/bleu=30\n"
                 "3 runtime=0 train/nll=1 valid/bleu=30\n" CONFIG
                 "2 2 train/nll=2\n3 runtime=0 train/nll=2\n");
}

static size_t count_values(const char *text) {
  size_t n = 0;
  while ((text = strchr(text, '='))) {
    n++;
    text++;
  }
  return n;
}

static Err note_history(void *context, const WandbRecord *r) {
  return r->type == WANDB_HISTORY ? note_record(context, r) : ERR_OK;
}

static void test_wandb_sink_step_with_very_many_values_is_bounded(void **state) {
  (void)state;
  enum { VALUES = 20000 };
  Metrics m;
  WandbLog log = {0};
  Str text = {0};
  uint64_t end;
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  OK(file_size(get_log(), &log.offset));
  wandb_begin_history(&log, 1);
  for (int i = 0; i < VALUES; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    wandb_add_number(&log, key, i);
  }
  wandb_end(&log);
  OK(wandb_check(&log));
  FILE *f = fopen(get_log(), "a");
  assert_non_null(f);
  assert_int_equal(fwrite(log.out.s, 1, log.out.len, f), log.out.len);
  assert_int_equal(fclose(f), 0);
  OK(open_metrics(&m, 1));
  write_value(&m, 1, "valid_bleu", 30);
  metrics_close(&m);
  OK(wandb_read(get_log(), note_history, &text, &end));
  assert_non_null(strstr(str_text(&text), " k0=0 "));
  assert_non_null(strstr(str_text(&text), " valid/bleu=30\n"));
  assert_true(count_values(str_text(&text)) < 1000);
  wandb_free(&log);
  str_free(&text);
}

static void test_wandb_sink_roll_back_removes_undone_steps(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  for (uint64_t step = 1; step <= 3; step++) write_value(&m, step, "nll", (double)step);
  metrics_begin(&m, 1, 0.5);
  metrics_set_event(&m, "rollback");
  metrics_add_count(&m, "rolled_back_from", 3);
  metrics_undo_later(&m);
  metrics_end(&m);
  write_value(&m, 2, "nll", 20);
  metrics_close(&m);
  assert_records(BEGIN "2 1 train/nll=1\n3 runtime=0 train/nll=1\n" CONFIG
                       "2 2 train/nll=20\n3 runtime=0 train/nll=20\n");
}

/* Otherwise the log would have the steps twice. */
static void test_wandb_sink_roll_back_that_fails_is_repeated(void **state) {
  (void)state;
  char moved[FILE_PATH_MAX], path[FILE_PATH_MAX];
  Metrics m;
  OK(open_metrics(&m, 0));
  for (uint64_t step = 1; step <= 3; step++) write_value(&m, step, "nll", (double)step);
  snprintf(path, sizeof path, "%s", get_log());
  snprintf(moved, sizeof moved, "%s", get_path("moved"));
  assert_int_equal(rename(path, moved), 0);
  metrics_begin(&m, 1, 0.5);
  metrics_set_event(&m, "rollback");
  metrics_undo_later(&m);
  metrics_end(&m);
  write_value(&m, 2, "nll", 20);
  assert_int_equal(metrics_lost(&m, METRICS_WANDB), 2);
  assert_int_equal(rename(moved, path), 0);
  write_value(&m, 3, "nll", 30);
  metrics_close(&m);
  assert_records(BEGIN "2 1 train/nll=1\n3 runtime=0 train/nll=1\n" CONFIG
                       "2 3 train/nll=30\n3 runtime=0 train/nll=30\n");
}

static void test_wandb_sink_step_before_the_last_one_is_lost(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 5, "nll", 1);
  write_value(&m, 4, "nll", 1);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_WANDB), 1);
  assert_records(BEGIN "2 5 train/nll=1\n3 runtime=0 train/nll=1\n");
}

/* A killed process leaves any part of what it wrote last; also of the first records. */
static void test_wandb_sink_continues_after_half_a_record(void **state) {
  (void)state;
  for (off_t cut = 1; cut < 900; cut += 7) {
    Metrics m;
    struct stat st;
    OK(open_metrics(&m, 0));
    write_value(&m, 1, "nll", 1);
    write_value(&m, 2, "nll", 2);
    metrics_close(&m);
    assert_int_equal(stat(get_log(), &st), 0);
    assert_int_equal(truncate(get_log(), st.st_size > cut ? st.st_size - cut : 0), 0);
    OK(open_metrics(&m, 2));
    write_value(&m, 3, "nll", 3);
    metrics_close(&m);
    Str text = {0};
    uint64_t end;
    OK(wandb_read(get_log(), note_record, &text, &end));
    assert_true(str_starts(str_text(&text), "21\n17\n"));
    assert_true(str_ends(str_text(&text), "2 3 train/nll=3\n3 runtime=0 train/nll=3\n"));
    str_free(&text);
    empty_run(state);
  }
}

static void test_wandb_sink_resume_removes_the_mark_of_an_upload(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  OK(file_write(get_path("run-" ID ".wandb.synced"), "", 0));
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  assert_false(file_exists(get_path("run-" ID ".wandb.synced")));
}

static void test_wandb_sink_refuses_a_file_of_another_kind(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  OK(file_write(get_log(), "not a log", 9));
  assert_int_equal(open_metrics(&m, 0), ERR_WORK);
  assert_says("is not the log of a Weights & Biases run; move it away");
}

/* What is damaged cannot be read by wandb either, nor anything after it. */
static void test_wandb_sink_continues_before_a_damaged_record(void **state) {
  (void)state;
  Metrics m;
  Str file = {0};
  OK(open_metrics(&m, 0));
  uint64_t begin;
  OK(file_size(get_log(), &begin));
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  OK(file_read(get_log(), 1 << 20, &file));
  file.s[begin + 20] ^= 1;
  OK(file_write(get_log(), file.s, file.len));
  OK(open_metrics(&m, 1));
  write_value(&m, 2, "nll", 2);
  metrics_close(&m);
  assert_records(BEGIN CONFIG "2 2 train/nll=2\n3 runtime=0 train/nll=2\n");
  str_free(&file);
}

static void test_wandb_sink_needs_the_id_of_the_run(void **state) {
  (void)state;
  Metrics m;
  unlink(at("id"));
  assert_int_equal(open_metrics(&m, 0), ERR_WORK);
  assert_says("/id, from which --wandb takes the id of the run");
  make_run(state);
}

static void test_wandb_sink_secrets_in_urls_are_masked(void **state) {
  (void)state;
  Metrics m;
  Str file = {0};
  MetricsSpec spec = {.run_dir = scratch, .wandb_project = "p"};
  spec.options = "lr = 2\ndata = s3://me:password@bucket/set?token=secret\n";
  OK(metrics_open(&m, &spec));
  metrics_close(&m);
  OK(file_read(get_log(), 1 << 20, &file));
  assert_non_null(memmem(file.s, file.len, "s3://***@bucket/set?token=***", 29));
  assert_null(memmem(file.s, file.len, "password", 8));
  assert_null(memmem(file.s, file.len, "secret", 6));
  str_free(&file);
}

/* Measurements of hosts. */

#define FAR 4e9 /* a time after the start of the run, in seconds since 1970 */

static void add_sample(Str *out, double time, const char *host, const char *rest) {
  str_addf(out, "{\"time\":%.1f,\"host\":\"%s\",%s}\n", time, host, rest);
}

static void write_samples(const Str *lines) {
  OK(file_write(at("system.jsonl"), lines->s, lines->len));
}

static void test_wandb_sink_samples_have_the_names_of_wandb(void **state) {
  (void)state;
  char host[256] = "";
  Metrics m;
  Str lines = {0};
  gethostname(host, sizeof host - 1);
  add_sample(&lines, FAR, host,
             "\"cpu\":[10,30],\"memory_used\":1048576,\"memory_total\":4194304,"
             "\"process_memory\":2097152,\"disk_read\":5,\"disk_written\":5,"
             "\"net\":{\"eth0\":{\"received\":7,\"sent\":8,\"speed\":1000}},\"step\":1,"
             "\"gpu\":[{\"index\":1,\"name\":\"x\",\"busy\":97,\"memory_used\":5,"
             "\"memory_total\":10,\"watts\":350,\"watts_limit\":700,\"sm_mhz\":1980,"
             "\"memory_mhz\":3201,\"celsius\":61,\"throttle\":[\"power_cap\"]}]");
  write_samples(&lines);
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  assert_records(
      BEGIN
      "7 cpu.0.cpu_percent=10 cpu.1.cpu_percent=30 cpu=20 memory_percent=25 "
      "proc.memory.availableMB=3 proc.memory.rssMB=2 proc.memory.percent=50 network.sent=0 "
      "network.recv=0 disk.in=0 disk.out=0 gpu.1.gpu=97 gpu.1.memoryAllocatedBytes=5 "
      "gpu.1.temp=61 gpu.1.powerWatts=350 gpu.1.enforcedPowerLimitWatts=700 "
      "gpu.1.smClock=1980 gpu.1.memoryClock=3201 gpu.1.memoryAllocated=50 "
      "gpu.1.powerPercent=50\n"
      "2 1 train/nll=1\n3 runtime=0 train/nll=1\n");
  str_free(&lines);
}

static void test_wandb_sink_samples_are_thinned_per_host_and_rates_summed(void **state) {
  (void)state;
  Metrics m;
  Str lines = {0};
  for (int i = 0; i <= 20; i++) {
    add_sample(&lines, FAR + i, "a", "\"net\":{\"e\":{\"sent\":10,\"received\":1}}");
    add_sample(&lines, FAR + i, "b", "\"disk_read\":1048576");
  }
  write_samples(&lines);
  OK(open_metrics(&m, 0));
  metrics_finish(&m, 1);
  metrics_close(&m);
  assert_records(BEGIN
                 "7 network.sent/l:a=0 network.recv/l:a=0\n7 disk.in/l:b=0\n"
                 "7 network.sent/l:a=150 network.recv/l:a=15\n7 disk.in/l:b=15\n" EXIT);
  str_free(&lines);
}

static void test_wandb_sink_samples_of_a_host_with_a_long_name_are_thinned(void **state) {
  (void)state;
  char host[101];
  Metrics m;
  Str lines = {0};
  memset(host, 'h', 100);
  host[100] = '\0';
  add_sample(&lines, FAR, host, "\"disk_read\":1");
  add_sample(&lines, FAR + 1, host, "\"disk_read\":1");
  write_samples(&lines);
  OK(open_metrics(&m, 0));
  metrics_finish(&m, 1);
  metrics_close(&m);
  host[64] = '\0';
  str_clear(&lines);
  str_addf(&lines, BEGIN "7 disk.in/l:%s=0\n" EXIT, host);
  assert_records(str_text(&lines));
  str_free(&lines);
}

static void test_wandb_sink_samples_before_the_run_are_left_out(void **state) {
  (void)state;
  Metrics m;
  Str lines = {0};
  add_sample(&lines, 1000, "a", "\"cpu\":[1]");
  write_samples(&lines);
  OK(open_metrics(&m, 0));
  metrics_finish(&m, 1);
  metrics_close(&m);
  assert_records(BEGIN EXIT);
  str_free(&lines);
}

/* A roll-back cuts off measurements too, which were made nevertheless. */
static void test_wandb_sink_samples_that_were_cut_off_are_written_again_once(void **state) {
  (void)state;
  Metrics m;
  Str lines = {0};
  add_sample(&lines, FAR, "a", "\"cpu\":[1]");
  write_samples(&lines);
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  add_sample(&lines, FAR + 20, "a", "\"cpu\":[2]");
  write_samples(&lines);
  write_value(&m, 2, "nll", 2);
  add_sample(&lines, FAR + 40, "a", "\"cpu\":[3]");
  write_samples(&lines);
  write_value(&m, 3, "nll", 3);
  metrics_close(&m);
  OK(open_metrics(&m, 1));
  write_value(&m, 2, "nll", 20);
  metrics_close(&m);
#define CPU(n) "7 cpu.0.cpu_percent/l:a=" n " cpu/l:a=" n "\n"
  assert_records(BEGIN CPU("1") "2 1 train/nll=1\n3 runtime=0 train/nll=1\n" CONFIG CPU("2")
                     CPU("3") "2 2 train/nll=20\n3 runtime=0 train/nll=20\n");
  str_free(&lines);
}

/* The validation that a killed process has not completed is repeated: its step is replaced, what came
 * after it is not lost. */
static void test_wandb_sink_samples_after_a_step_survive_its_replacement(void **state) {
  (void)state;
  Metrics m;
  Str lines = {0};
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  add_sample(&lines, FAR, "a", "\"cpu\":[1]");
  write_samples(&lines);
  write_value(&m, 2, "nll", 2);
  metrics_close(&m);
  OK(open_metrics(&m, 1));
  write_value(&m, 1, "valid_bleu", 30);
  metrics_finish(&m, 1);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=1 valid/bleu=30\n"
                 "3 runtime=0 train/nll=1 valid/bleu=30\n" CONFIG CPU("1") EXIT);
  str_free(&lines);
}

static void test_wandb_sink_half_a_line_of_samples_waits(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_text("system.jsonl", "{\"time\":4e9,\"host\":\"a\",\"cpu\":[1");
  write_value(&m, 1, "nll", 1);
  write_text("system.jsonl", "{\"time\":4e9,\"host\":\"a\",\"cpu\":[1]}\nnot a sample\n[]\n");
  write_value(&m, 2, "nll", 2);
  metrics_close(&m);
  assert_records(BEGIN "2 1 train/nll=1\n3 runtime=0 train/nll=1\n" CPU(
      "1") "2 2 train/nll=2\n3 runtime=0 train/nll=2\n");
}

/* Full disk: the limit of a file's size has the same effect. */

static void set_file_limit(rlim_t bytes) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_wandb_sink_full_disk_keeps_the_values_that_were_written(void **state) {
  (void)state;
  Metrics m;
  uint64_t size;
  signal(SIGXFSZ, SIG_IGN);
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  OK(file_size(get_log(), &size));
  set_file_limit(size);
  write_value(&m, 1, "valid_bleu", 30);
  write_value(&m, 2, "nll", 2);
  set_file_limit(RLIM_INFINITY);
  assert_int_equal(metrics_lost(&m, METRICS_WANDB), 2);
  assert_records(BEGIN "2 1 train/nll=1\n3 runtime=0 train/nll=1\n");
  write_value(&m, 3, "nll", 3);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=1\n3 runtime=0 train/nll=1\n"
                 "2 3 train/nll=3\n3 runtime=0 train/nll=3\n");
}

static void test_wandb_sink_full_disk_in_a_step_with_samples_leaves_no_gap(void **state) {
  (void)state;
  Metrics m;
  Str lines = {0};
  uint64_t size;
  signal(SIGXFSZ, SIG_IGN);
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  add_sample(&lines, FAR, "a", "\"cpu\":[1]");
  write_samples(&lines);
  OK(file_size(get_log(), &size));
  set_file_limit(size);
  write_value(&m, 2, "nll", 2);
  set_file_limit(RLIM_INFINITY);
  write_value(&m, 2, "valid_bleu", 30);
  metrics_close(&m);
  assert_records(BEGIN
                 "2 1 train/nll=1\n3 runtime=0 train/nll=1\n"
                 "2 2 valid/bleu=30\n3 runtime=0 valid/bleu=30\n");
  str_free(&lines);
}

static void test_wandb_sink_full_disk_at_the_start_begins_the_file_later(void **state) {
  (void)state;
  Metrics m;
  signal(SIGXFSZ, SIG_IGN);
  set_file_limit(10);
  OK(open_metrics(&m, 0));
  set_file_limit(RLIM_INFINITY);
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  assert_records(BEGIN "2 1 train/nll=1\n3 runtime=0 train/nll=1\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_run, empty_run)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_wandb_sink_switched_off_writes_no_directory),
      TEST(test_wandb_sink_finished_run_has_history_summary_and_exit),
      TEST(test_wandb_sink_records_of_one_step_become_one),
      TEST(test_wandb_sink_resume_removes_later_steps_and_exit),
      TEST(test_wandb_sink_value_of_the_resumed_step_joins_its_record),
      TEST(test_wandb_sink_step_with_very_many_values_is_bounded),
      TEST(test_wandb_sink_roll_back_removes_undone_steps),
      TEST(test_wandb_sink_roll_back_that_fails_is_repeated),
      TEST(test_wandb_sink_step_before_the_last_one_is_lost),
      TEST(test_wandb_sink_continues_after_half_a_record),
      TEST(test_wandb_sink_resume_removes_the_mark_of_an_upload),
      TEST(test_wandb_sink_refuses_a_file_of_another_kind),
      TEST(test_wandb_sink_continues_before_a_damaged_record),
      TEST(test_wandb_sink_needs_the_id_of_the_run),
      TEST(test_wandb_sink_secrets_in_urls_are_masked),
      TEST(test_wandb_sink_samples_have_the_names_of_wandb),
      TEST(test_wandb_sink_samples_are_thinned_per_host_and_rates_summed),
      TEST(test_wandb_sink_samples_of_a_host_with_a_long_name_are_thinned),
      TEST(test_wandb_sink_samples_before_the_run_are_left_out),
      TEST(test_wandb_sink_samples_that_were_cut_off_are_written_again_once),
      TEST(test_wandb_sink_samples_after_a_step_survive_its_replacement),
      TEST(test_wandb_sink_half_a_line_of_samples_waits),
      TEST(test_wandb_sink_full_disk_keeps_the_values_that_were_written),
      TEST(test_wandb_sink_full_disk_in_a_step_with_samples_leaves_no_gap),
      TEST(test_wandb_sink_full_disk_at_the_start_begins_the_file_later),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
