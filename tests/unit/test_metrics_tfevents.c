/* The TensorBoard sink of the metrics: tags, continuation after a kill, roll-back, full disk. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "format/tfevents.h"
#include "support.h"
#include "train/metrics.h"

static Err open_metrics(Metrics *m, uint64_t step) {
  MetricsSpec spec = {.run_dir = scratch,
                      .step = step,
                      .options = "lr = 2\npreset = tiny\n",
                      .with_tensorboard = true};
  return metrics_open(m, &spec);
}

static void write_value(Metrics *m, uint64_t step, const char *name, double value) {
  metrics_begin(m, step, 0.5);
  metrics_add(m, name, value);
  metrics_end(m);
}

/* Calls `visit` with the names of the event files in the scratch directory, sorted. */
static int list_events(char name[8][256]) {
  struct dirent **entry;
  int kept = 0, n = scandir(scratch, &entry, NULL, alphasort);
  assert_true(n >= 0);
  for (int i = 0; i < n; i++) {
    if (str_starts(entry[i]->d_name, "events.out.tfevents.")) {
      assert_between(kept, 0, 7);
      snprintf(name[kept++], 256, "%s", entry[i]->d_name);
    }
    free(entry[i]);
  }
  free(entry);
  return kept;
}

static int empty_scratch(void **state) {
  (void)state;
  char name[8][256];
  int files = list_events(name);
  for (int i = 0; i < files; i++) unlink(at(name[i]));
  unlink(at("metrics.jsonl"));
  return 0;
}

static Err note_event(void *context, const TfEvent *e) {
  Str *out = context;
  TfValue v;
  str_addf(out, "%" PRId64 "%s", e->step, e->is_start ? " start" : "");
  for (size_t i = 0; tfevents_next_value(e, &i, &v);) {
    str_addf(out, " %.*s", (int)v.tag_len, v.tag);
    if (v.kind == TF_SCALAR) str_addf(out, "=%g", (double)v.scalar);
  }
  str_addc(out, '\n');
  return str_check(out);
}

/* Compares the events of file number `i` after the first one, which has the version. */
static void assert_events(int i, const char *want) {
  char name[8][256];
  Str text = {0};
  assert_between(i, 0, list_events(name) - 1);
  OK(tfevents_read(at(name[i]), note_event, &text));
  assert_true(str_starts(str_text(&text), "0\n"));
  assert_string_equal(str_text(&text) + 2, want);
  str_free(&text);
}

#define BEGIN "1 start\n0 _hparams_/session_start_info\n"

static void test_tfevents_sink_new_run_begins_with_start_and_hparams(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  assert_events(0, BEGIN);
}

static void test_tfevents_sink_values_have_grouped_tags_and_aliases(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  metrics_begin(&m, 5, 0.5);
  metrics_add(&m, "loss", 2.5);
  metrics_add(&m, "nll", 2.25);
  metrics_add(&m, "forward_ms", 8);
  metrics_add_count(&m, "skipped", 3);
  metrics_end(&m);
  metrics_begin(&m, 6, 0.5);
  metrics_add(&m, "valid_bleu", 30);
  metrics_add(&m, "average_nll", 1);
  metrics_end(&m);
  metrics_close(&m);
  assert_events(
      0, BEGIN
      "5 train/loss=2.5 train_loss=2.5 train/nll=2.25 time/forward_ms=8 train/skipped=3\n"
      "6 valid/bleu=30 Eval_BLEU_Score=30 average/nll=1\n");
}

static void test_tfevents_sink_switched_off_writes_no_file(void **state) {
  (void)state;
  char name[8][256];
  Metrics m;
  OK(metrics_open(&m, &(MetricsSpec){.run_dir = scratch, .options = ""}));
  write_value(&m, 1, "nll", 1);
  metrics_close(&m);
  assert_int_equal(list_events(name), 0);
  assert_int_equal(metrics_lost(&m, METRICS_TFEVENTS), 0);
}

static void test_tfevents_sink_resume_writes_a_later_file_that_undoes_steps(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 100, "nll", 1);
  write_value(&m, 130, "nll", 2);
  metrics_close(&m);
  OK(open_metrics(&m, 100));
  write_value(&m, 130, "nll", 3);
  metrics_close(&m);
  assert_events(0, BEGIN "100 train/nll=1\n130 train/nll=2\n");
  assert_events(1, "101 start\n130 train/nll=3\n");
}

/* The clock of the host that resumes may be behind that of the host that began. */
static void test_tfevents_sink_resume_name_is_later_than_one_of_the_future(void **state) {
  (void)state;
  const char *future = "events.out.tfevents.9999999998.host.1.0";
  char name[8][256];
  Metrics m;
  OK(file_write(at(future), "", 0));
  OK(open_metrics(&m, 0));
  metrics_close(&m);
  assert_int_equal(list_events(name), 2);
  assert_string_equal(name[0], future);
  assert_true(str_starts(name[1], "events.out.tfevents.9999999999."));
}

static void test_tfevents_sink_repeated_validation_is_not_written_twice(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 100, "valid_nll", 1);
  metrics_close(&m);
  OK(open_metrics(&m, 100));
  write_value(&m, 100, "valid_nll", 1);
  write_value(&m, 100, "valid_seconds", 1);
  write_value(&m, 101, "valid_nll", 2);
  metrics_close(&m);
  assert_events(1, "101 start\n100 valid/seconds=1\n101 valid/nll=2 eval_loss=2\n");
}

static void test_tfevents_sink_validation_that_was_undone_is_written_again(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 100, "valid_seconds", 1);
  metrics_close(&m);
  OK(open_metrics(&m, 50));
  metrics_close(&m);
  OK(open_metrics(&m, 100));
  write_value(&m, 100, "valid_seconds", 1);
  metrics_close(&m);
  assert_events(2, "101 start\n100 valid/seconds=1\n");
}

static void test_tfevents_sink_rollback_undoes_later_steps_in_the_same_file(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 30, "nll", 1);
  metrics_begin(&m, 20, 0.5);
  metrics_set_event(&m, "rollback");
  metrics_add_count(&m, "rollbacks", 1);
  metrics_undo_later(&m);
  metrics_end(&m);
  write_value(&m, 30, "nll", 2);
  metrics_close(&m);
  assert_events(0, BEGIN "30 train/nll=1\n21 start\n30 train/nll=2\n");
}

/* A process that began with an in-memory copy rolls back to a checkpoint before it. */
static void test_tfevents_sink_rollback_before_the_resumed_step_writes_it_again(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0));
  write_value(&m, 30, "nll", 1);
  metrics_close(&m);
  OK(open_metrics(&m, 30));
  metrics_begin(&m, 20, 0.5);
  metrics_undo_later(&m);
  metrics_end(&m);
  write_value(&m, 30, "nll", 2);
  metrics_close(&m);
  assert_events(1, "31 start\n21 start\n30 train/nll=2\n");
}

static void test_tfevents_sink_damaged_earlier_file_does_not_stop_the_run(void **state) {
  (void)state;
  Metrics m;
  OK(file_write(at("events.out.tfevents.0000000001.host.1.0"), "not a record, but long", 22));
  OK(open_metrics(&m, 7));
  assert_says("events.out.tfevents.0000000001.host.1.0 is damaged");
  write_value(&m, 8, "nll", 1);
  metrics_close(&m);
  assert_events(1, "8 start\n0 _hparams_/session_start_info\n8 train/nll=1\n");
}

static void limit_file_size(rlim_t bytes) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The file size limit stands for a full disk. */
static void test_tfevents_sink_full_disk_loses_whole_records_and_keeps_the_header(
    void **state) {
  (void)state;
  Metrics m;
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  limit_file_size(10);
  OK(open_metrics(&m, 0));
  write_value(&m, 1, "nll", 1);
  limit_file_size(before.rlim_cur);
  write_value(&m, 2, "nll", 2);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_TFEVENTS), 1);
  assert_events(0, BEGIN "2 train/nll=2\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_tfevents_sink_new_run_begins_with_start_and_hparams,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_values_have_grouped_tags_and_aliases,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_switched_off_writes_no_file, empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_resume_writes_a_later_file_that_undoes_steps,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_resume_name_is_later_than_one_of_the_future,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_repeated_validation_is_not_written_twice,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_validation_that_was_undone_is_written_again,
                                empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_rollback_undoes_later_steps_in_the_same_file,
                                empty_scratch),
      cmocka_unit_test_teardown(
          test_tfevents_sink_rollback_before_the_resumed_step_writes_it_again, empty_scratch),
      cmocka_unit_test_teardown(test_tfevents_sink_damaged_earlier_file_does_not_stop_the_run,
                                empty_scratch),
      cmocka_unit_test_teardown(
          test_tfevents_sink_full_disk_loses_whole_records_and_keeps_the_header, empty_scratch),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
