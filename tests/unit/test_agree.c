/* Which options may change when a run is resumed, and the text of the error or warning.
 * Agreement between ranks is tested in tests/cli/ranks.bats. */
#include "base/log.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "support.h"
#include "train/agree.h"

static Err resume(const char *saved, const char *now) {
  OK(file_write(at("config"), saved, strlen(saved)));
  static const char *const of_task[] = {"beam-size", NULL};
  return agree_resume(at("config"), now, of_task);
}

static void test_agree_resume_same_options_is_accepted(void **state) {
  (void)state;
  OK(resume("seed = 1\nlr = 2\nreproducible\n", "seed = 1\nlr = 2\nreproducible\n"));
  /* The order of the lines does not matter. */
  OK(resume("seed = 1\nlr = 2\n", "lr = 2\nseed = 1"));
  OK(resume("", ""));
}

static void test_agree_resume_other_steps_threads_or_paths_is_accepted(void **state) {
  (void)state;
  OK(resume("seed = 1\nsteps = 10\nthreads = 2\nrun = a\nkeep-checkpoints = 3\n",
            "seed = 1\nsteps = 20\nrun = b\nresume\nshard-optimizer\n"));
  /* Another learning rate is a warning, not an error. */
  OK(resume("seed = 1\nlr = 2\n", "seed = 1\nlr = 1\n"));
}

static void test_agree_resume_other_seed_batch_or_optimizer_is_refused(void **state) {
  (void)state;
  static const char *const fixed[] = {"seed", "batch-tokens", "optimizer", "ema-decay"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    char was[64], is[64], want[96];
    snprintf(was, sizeof was, "lr = 1\n%s = 11\n", fixed[i]);
    snprintf(is, sizeof is, "%s = 12\nlr = 1\n", fixed[i]);
    assert_int_equal(resume(was, is), ERR_USAGE);
    snprintf(want, sizeof want, "--%s is 12 and was 11", fixed[i]);
    assert_says(want);
    assert_int_equal(resume("lr = 1\n", is), ERR_USAGE);
    snprintf(want, sizeof want, "--%s is 12 and was not set", fixed[i]);
    assert_says(want);
    assert_int_equal(resume(was, "lr = 1\n"), ERR_USAGE);
    snprintf(want, sizeof want, "--%s is not set and was 11", fixed[i]);
    assert_says(want);
  }
  /* One error lists all differences. */
  assert_int_equal(resume("seed = 1\nbatch-tokens = 5\n", "seed = 2\nbatch-tokens = 6\n"),
                   ERR_USAGE);
  assert_says("--seed is 2 and was 1; --batch-tokens is 6 and was 5");
  /* A name that is a prefix of another is a different option. */
  OK(resume("seed = 1\nseeds = 2\n", "seeds = 3\nseed = 1\n"));
}

static void test_agree_resume_repeated_option_is_compared_in_order(void **state) {
  (void)state;
  OK(resume("seed = 1\nseed = 2\n", "seed = 1\nseed = 2\n"));
  assert_int_equal(resume("seed = 1\nseed = 2\n", "seed = 2\nseed = 1\n"), ERR_USAGE);
  assert_says("--seed is 2 and was 1; --seed is 1 and was 2");
  assert_int_equal(resume("seed = 1\nseed = 2\n", "seed = 1\n"), ERR_USAGE);
  assert_says("--seed is not set and was 2");
}

static void test_agree_saved_reads_number_of_config(void **state) {
  (void)state;
  uint64_t value = 7;
  static const char text[] = "batch-tokens-2 = 5\nseed = 3\nbatch-tokens = 25k\nlr = x\n";
  OK(file_write(at("config"), text, sizeof text - 1));
  OK(agree_saved(at("config"), "batch-tokens", &value));
  assert_int_equal(value, 25000);
  OK(agree_saved(at("config"), "steps", &value));
  assert_int_equal(value, 0);
  assert_int_not_equal(agree_saved(at("config"), "lr", &value), ERR_OK);
  assert_says("config: lr");
  assert_int_not_equal(agree_saved(at("nowhere"), "lr", &value), ERR_OK);
}

static void test_agree_saved_number_that_cannot_be_used_is_refused(void **state) {
  (void)state;
  static const char *const values[] = {"x", "", "1.5", "12345678901234567890123456789012",
                                       "7 8"};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    uint64_t value = 7;
    char text[64];
    snprintf(text, sizeof text, "lr = 1\nbatch-tokens = %s\n", values[i]);
    OK(file_write(at("config"), text, strlen(text)));
    if (!agree_saved(at("config"), "batch-tokens", &value)) fail_msg("%s", values[i]);
    assert_says("config: batch-tokens: ");
    assert_int_equal(value, 0);
  }
  uint64_t value = 7;
  OK(file_write(at("config"), "batch-tokens = -5\n", 18));
  OK(agree_saved(at("config"), "batch-tokens", &value));
  assert_int_equal(value, 0);
}

static void test_agree_config_that_cannot_be_read_is_error(void **state) {
  (void)state;
  static const char *const none[] = {NULL};
  uint64_t value;
  Str large = {0};
  str_addf(&large, "seed = 1\n");
  for (size_t i = 0; i <= ((size_t)1 << 20) / 16; i++) str_addf(&large, "# 3456789012345\n");
  OK(file_write(at("large"), large.s, large.len));
  str_free(&large);
  OK(file_mkdirs(at("folder")));
  static const char *const names[] = {"large", "nowhere", "folder"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_int_equal(agree_resume(at(names[i]), "seed = 1\n", none), ERR_WORK);
    assert_says(names[i]);
    assert_int_equal(agree_saved(at(names[i]), "seed", &value), ERR_WORK);
    assert_says(names[i]);
  }
}

static void count_lines(void *context, const char *label, const char *line) {
  (void)label;
  (void)line;
  ++*(int *)context;
}

static void test_agree_resume_out_of_memory_is_error(void **state) {
  (void)state;
  static const char *const none[] = {NULL};
  static const struct {
    const char *now;
    Err err;
    int warnings;
  } rows[] = {{"seed = 1\nlr = 1\nbeta2 = 4\n", ERR_OK, 1},
              {"seed = 2\nlr = 2\nbeta1 = 3\n", ERR_USAGE, 0}};
  static const char saved[] = "seed = 1\nlr = 2\nbeta1 = 3\n";
  const char *path = at("config");
  OK(file_write(path, saved, sizeof saved - 1));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int warnings = 0;
    uint64_t n = 0;
    Err err;
    log_divert(count_lines, &warnings);
    do {
      mem_fail_after(++n);
      err = agree_resume(path, rows[i].now, none);
      mem_fail_after(0);
    } while (err == ERR_WORK && strstr(err_message(), "out of memory"));
    log_divert(NULL, NULL);
    assert_int_equal(err, rows[i].err);
    assert_int_equal(warnings, rows[i].warnings);
    assert_true(n > 3);
  }
}

static void test_agree_ranks_one_rank_agrees(void **state) {
  (void)state;
  Comm *comm;
  OK(comm_open(&comm, 5));
  OK(agree_ranks(comm, "seed = 1\n", "data-set-hash", NULL));
  comm_close(comm, ERR_OK);
}

/* Commands for opt_rename, which agree_resume calls. */
static const OptCommand commands[] = {{.name = "train"}, {0}};

static void test_agree_resume_former_names_are_the_same_options(void **state) {
  (void)state;
  opt_tables(cmd_options(), commands, cmd_aliases);
  OK(resume("ema = 0.9\nlr-policy = fixed\nwidth = 32\n",
            "ema-decay = 0.9\nlr-scheduler = constant\nd-model = 32\n"));
}

static void test_agree_resume_former_name_with_another_value_is_refused(void **state) {
  (void)state;
  opt_tables(cmd_options(), commands, cmd_aliases);
  assert_int_equal(resume("ema = 0.9\n", "ema-decay = 0.8\n"), ERR_USAGE);
  assert_says("--ema-decay is 0.8 and was 0.9");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_agree_resume_same_options_is_accepted),
      cmocka_unit_test(test_agree_resume_other_steps_threads_or_paths_is_accepted),
      cmocka_unit_test(test_agree_resume_other_seed_batch_or_optimizer_is_refused),
      cmocka_unit_test(test_agree_resume_repeated_option_is_compared_in_order),
      cmocka_unit_test(test_agree_saved_reads_number_of_config),
      cmocka_unit_test(test_agree_saved_number_that_cannot_be_used_is_refused),
      cmocka_unit_test(test_agree_config_that_cannot_be_read_is_error),
      cmocka_unit_test(test_agree_resume_out_of_memory_is_error),
      cmocka_unit_test(test_agree_ranks_one_rank_agrees),
      cmocka_unit_test(test_agree_resume_former_names_are_the_same_options),
      cmocka_unit_test(test_agree_resume_former_name_with_another_value_is_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
