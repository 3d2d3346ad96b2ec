/* Failing allocations in whole commands: each is repeated with the n-th allocation and all later ones
 * failing, for many n, until none fails: each of the first and last ones, and every STRIDE-th. Every failure must be an error that mentions memory, leave
 * nothing under the name of the output, and leak nothing (make asan checks for leaks). Allocations
 * inside libraries do not fail. */
#include "base/mem.h"
#include "faults_support.h"

#define NO_AVERAGE "--average-checkpoints 0 "

enum { DENSE = 16, STRIDE = 17 };

/* A command line; `output`, if not NULL, is removed before each run, and must not exist after an error,
 * except a run. `least`: smallest number of allocations that it must make. */
typedef struct {
  const char *line, *output;
  uint64_t least;
} Case;

static void remove_output(const char *output) {
  char partial[64];
  snprintf(partial, sizeof partial, "%s.partial", output);
  OK(file_remove_all(output));
  OK(file_remove_all(partial));
}

/* Runs the command with the n-th allocation failing; returns how many it made. */
static uint64_t run_failing(const Case *c, uint64_t n, Err *err) {
  if (c->output) remove_output(c->output);
  err_set(ERR_OK, "nothing was said");
  hide_output();
  uint64_t before = mem_count();
  mem_fail_after(n);
  *err = run_line(c->line);
  mem_fail_after(0);
  uint64_t made = mem_count() - before;
  show_output();
  return made;
}

static size_t count_lines(const char *path) {
  Str text = {0};
  size_t lines = 0;
  OK(file_read(path, (size_t)1 << 20, &text));
  for (size_t i = 0; i < text.len; i++) lines += text.s[i] == '\n';
  str_free(&text);
  return lines;
}

/* A run may succeed although memory is short: old checkpoints then stay, and the average is of fewer. But
 * it has the checkpoint and, without an average, all metrics. */
static void check_run(const Case *c, uint64_t n, size_t lines) {
  if (!file_exists("made/checkpoints/latest/training.json"))
    fail_msg("%s, allocation %d: no checkpoint", c->line, (int)n);
  if (strstr(c->line, NO_AVERAGE) && count_lines("made/metrics.jsonl") != lines)
    fail_msg("%s, allocation %d: metrics are lost", c->line, (int)n);
}

static void check_error(const Case *c, uint64_t n, Err err, bool is_run) {
  if (err != ERR_WORK || !strstr(err_message(), "out of memory"))
    fail_msg("%s, allocation %d: status %d, \"%s\"", c->line, (int)n, (int)err, err_message());
  if (c->output && !is_run && file_exists(c->output))
    fail_msg("%s, allocation %d: %s exists", c->line, (int)n, c->output);
}

static void walk(const Case *c) {
  Err err;
  uint64_t all = run_failing(c, 0, &err);
  OK(err);
  if (all < c->least) fail_msg("%s: only %d allocations", c->line, (int)all);
  bool is_run = c->output && file_exists("made/metrics.jsonl");
  size_t lines = is_run ? count_lines("made/metrics.jsonl") : 0;
  /* threads may add some, so the end is where none fails */
  for (uint64_t n = 1; n < 2 * all; n += n < DENSE || n + DENSE > all ? 1 : STRIDE) {
    uint64_t made = run_failing(c, n, &err);
    if (!err && made < n) return;
    if (!err && is_run)
      check_run(c, n, lines);
    else
      check_error(c, n, err, is_run);
  }
  fail_msg("%s never succeeds", c->line);
}

static void walk_all(const Case *list, size_t n) {
  for (size_t i = 0; i < n; i++) walk(&list[i]);
}
#define WALK_ALL(list) walk_all((list), sizeof(list) / sizeof *(list))

static void test_mem_failing_allocation_in_prepare_is_error(void **state) {
  static const Case list[] = {
      {"prepare --out made --train a b --valid va vb --vocab-size 40 --threads 1", "made", 400},
      {"prepare --out made --task classify --train table.csv --text-column text --label-column "
       "good --label-column loud --split 0.2 --vocab vocab.txt --threads 1",
       "made", 250},
      {"prepare --out made --task mlm --train lines --split 0.25 --vocab vocab.txt --threads 1",
       "made", 250},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_mem_failing_allocation_in_inspect_is_error(void **state) {
  static const Case list[] = {
      {"inspect set --verify --samples 2 --batch-tokens 64", NULL, 80},
      {"inspect set --json", NULL, 80},
      {"inspect classes --verify --samples 2 --batch-tokens 64", NULL, 80},
      {"inspect classes --json", NULL, 80},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_mem_failing_allocation_in_train_is_error(void **state) {
  static const Case list[] = {
      {"train --data set --run made --steps 2 --valid-every 1 --tensorboard yes "
       "--histogram-every 1 "
       "--wandb offline --trace 1 --trace-from 1 " TINY_TRANSLATOR,
       "made", 500},
      {"train --data classes --run made --steps 2 " NO_AVERAGE TINY_BERT, "made", 400},
      {"train --data texts --run made --steps 1 " NO_AVERAGE TINY_BERT, "made", 400},
      {"train --run run --resume --steps 2 --tensorboard no", NULL, 500},
      {"train --data classes --run made --steps 1 --init-from classifier " TINY, "made", 400},
  };
  (void)state;
  WALK_ALL(list);
}

/* The log is on a full disk, and then memory is short too. */
static void test_mem_failing_allocation_hides_no_lost_lines(void **state) {
  static const Case full = {"train --run full --resume --steps 1", NULL, 0};
  Err err;
  (void)state;
  run_quietly("train --data set --run full --steps 1 --tensorboard no " TINY_TRANSLATOR);
  OK(file_remove_all("full/log.txt"));
  assert_int_equal(symlink("/dev/full", "full/log.txt"), 0);
  uint64_t all = run_failing(&full, 0, &err);
  assert_int_equal(err, ERR_WORK);
  assert_says("lines of log.txt; the checkpoints are complete");
  for (uint64_t n = all > DENSE ? all - DENSE : 1; n <= all; n++) {
    run_failing(&full, n, &err);
    assert_int_equal(err, ERR_WORK);
  }
}

static void test_mem_failing_allocation_in_translate_and_classify_is_error(void **state) {
  static const Case list[] = {
      {"translate --model run --input va --output made --max-length 5 --nbest 2 " CPU, "made",
       150},
      {"classify --model classifier --input lines --output made " CPU, "made", 90},
      {"classify --model classifier --input table.csv --text-column text --json --output "
       "made " CPU,
       "made", 100},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_mem_failing_allocation_in_import_and_export_is_error(void **state) {
  static const Case list[] = {
      {"import --from marian --out made", "made", 120},
      {"import --from exported --out made", "made", 50},
      {"export imported --to hf --out made", "made", 50},
      {"export imported --to ctranslate2 --out made", "made", 50},
      {"export classifier --to hf --out made", "made", 40},
      {"export run --to ctranslate2 --out made", "made", 60},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_mem_failing_allocation_in_scores_and_reports_is_error(void **state) {
  static const Case list[] = {
      {"score --ref vb --hyp vb --metrics bleu,chrf,ter,wer --confidence --resamples 5", NULL,
       90},
      {"score --ref vb --hyp vb --paired-bs vb --resamples 5 --json", NULL, 50},
      {"score --task classify --ref table.csv --label-column class --hyp predictions.jsonl",
       NULL, 50},
      {"report run classifier --out made", "made", 400},
      {"report run --markdown", NULL, 150},
      {"report run classifier --json", NULL, 350},
      {"watch run --once", NULL, 80},
      {"plan --machine h200 --nodes 1..3 --gpus 1,8 --link 400Gbit,5us --svg made", NULL, 80},
      {"plan --machine h200 --nodes 1..3 --link 400Gbit,5us --json --data set", NULL, 100},
  };
  (void)state;
  WALK_ALL(list);
}

#define WALK(test) cmocka_unit_test_teardown(test, end_walk)

int main(void) {
  const struct CMUnitTest tests[] = {
      WALK(test_mem_failing_allocation_in_prepare_is_error),
      WALK(test_mem_failing_allocation_in_inspect_is_error),
      WALK(test_mem_failing_allocation_in_train_is_error),
      WALK(test_mem_failing_allocation_hides_no_lost_lines),
      WALK(test_mem_failing_allocation_in_translate_and_classify_is_error),
      WALK(test_mem_failing_allocation_in_import_and_export_is_error),
      WALK(test_mem_failing_allocation_in_scores_and_reports_is_error),
  };
  return cmocka_run_group_tests(tests, make_runs, leave_scratch);
}
