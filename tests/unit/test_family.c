/* The model family and the task of rating_task.h, which exist only there and in two tables. They
 * have options, defaults, files and metrics of their own, and are trained, validated, averaged and
 * resumed by the command `train`, like translation.
 * run-tests: own program */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "format/safetensors.h"
#include "model/store.h"
#include "rating_task.h"
#include "support.h"

static const OptCommand commands[] = {
    {.name = "train", .summary = "s", .usage = "u", .about = "a", .run = cmd_train}, {0}};

#define WORDS 24

/* Calls `train --quiet` with words that are separated by blanks; RUN is the path of `run`. */
static Err train(const char *run, const char *words) {
  static char text[1024];
  char *word[WORDS] = {"--quiet", "--device", "cpu", "--threads", "1", "--run"};
  int n = 6;
  OptSet *opts;
  opt_tables(cmd_options(), commands, cmd_aliases);
  snprintf(text, sizeof text, "%s %s", at(run), words);
  for (char *one = strtok(text, " "); one; one = strtok(NULL, " ")) {
    assert_true(n < WORDS);
    word[n++] = one;
  }
  TRY(opt_parse(&opts, &commands[0], n, word));
  Err err = cmd_train(opts);
  opt_free(opts);
  return err;
}

static Str read_text(const char *path) {
  Str text = {0};
  OK(file_read(path, 1 << 20, &text));
  return text;
}

static void assert_file_has(const char *path, const char *words, bool expected) {
  Str text = read_text(at(path));
  if ((strstr(str_text(&text), words) != NULL) != expected)
    fail_msg("%s %s '%s': %s", path, expected ? "lacks" : "has", words, str_text(&text));
  str_free(&text);
}

/* Returns the first or last value of a key in metrics.jsonl. */
static double find_metric(const Str *text, const char *key, bool last) {
  char quoted[64];
  double value = NAN;
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  for (const char *at_key = strstr(str_text(text), quoted); at_key;
       at_key = strstr(at_key + 1, quoted)) {
    value = strtod(at_key + strlen(quoted), NULL);
    if (!last) break;
  }
  return value;
}

#define RATING "--task rating --data ratings "

static void test_task_of_a_test_trains_until_loss_falls(void **state) {
  (void)state;
  closed = 0;
  OK(train("run", RATING "--steps 200"));
  assert_int_equal(closed, 1);
  Str text = read_text(at("run/metrics.jsonl"));
  assert_true(find_metric(&text, "squared_error", true) <
              0.1 * find_metric(&text, "squared_error", false));
  assert_true(find_metric(&text, "absolute_error", true) <
              find_metric(&text, "absolute_error", false));
  assert_true(find_metric(&text, "ratings_per_s", true) > 0);
  assert_true(isnan(find_metric(&text, "valid_bleu", true)));
  assert_true(find_metric(&text, "valid_mse", true) <
              0.1 * find_metric(&text, "valid_mse", false));
  assert_true(find_metric(&text, "average_mse", true) > 0);
  str_free(&text);
}

static void test_training_json_has_task_and_its_names_of_totals(void **state) {
  (void)state;
  char total[32];
  OK(train("totals", RATING "--steps 40"));
  assert_file_has("totals/checkpoints/latest/training.json", "\"task\": \"rating\"", true);
  snprintf(total, sizeof total, "\"ratings\": %d,", 40 * 2 * BATCH_TEXTS);
  assert_file_has("totals/checkpoints/latest/training.json", total, true);
  assert_file_has("totals/checkpoints/latest/training.json", "\"texts\": ", true);
  assert_file_has("totals/checkpoints/latest/training.json", "target_tokens", false);
}

/* Returns the target of the link `best` of a run. */
static const char *best_of(const char *run) {
  static char to[64];
  char path[64];
  snprintf(path, sizeof path, "%s/checkpoints/best", run);
  ssize_t n = readlink(at(path), to, sizeof to - 1);
  to[n > 0 ? n : 0] = '\0';
  return to;
}

/* The best step is another one for each metric, and for each with its direction reversed. */
static void test_best_checkpoint_is_that_of_decisive_metric_and_its_direction(void **state) {
  (void)state;
  static const double scores[][3] = {
      {1, 8, 0.5}, {3, 7, 0.2}, {2, 9, 0.9}, {1, 7, 0.9} /* not better than the best */};
  static const struct {
    const char *step;
    double number, score, worse;
  } best[] = {
      {"step-00000002", 2, 1, 3}, {"step-00000004", 4, 7, 2}, {"step-00000006", 6, 0.9, 1}};
  for (int i = 0; i < 3; i++) {
    char run[16], path[64];
    snprintf(run, sizeof run, "best%d", i);
    snprintf(path, sizeof path, "%s/checkpoints/latest/training.json", run);
    decisive = i;
    scripted = scores;
    Err err =
        train(run, RATING "--steps 8 --valid-every 2 --save-every 2 --average-checkpoints 0");
    decisive = 0;
    scripted = NULL;
    OK(err);
    assert_string_equal(best_of(run), best[i].step);
    Str record = read_text(at(path));
    assert_true(find_metric(&record, "best_step", true) == best[i].number);
    assert_true(find_metric(&record, "best_score", true) == best[i].score);
    assert_true(find_metric(&record, "worse", true) == best[i].worse);
    str_free(&record);
  }
}

static void assert_same_weights(const char *a, const char *b) {
  Str first = read_text(at(a)), second = read_text(at(b));
  assert_int_equal(first.len, second.len);
  assert_memory_equal(first.s, second.s, first.len);
  str_free(&first);
  str_free(&second);
}

/* Reads a tensor of the last checkpoint. */
static void read_weights(const char *run, const char *name, float *to, size_t n) {
  SafeFile f;
  char path[128];
  snprintf(path, sizeof path, "%s/checkpoints/latest/weights.safetensors", run);
  OK(safetensors_open(&f, at(path)));
  const SafeTensor *t = safetensors_find(&f, name);
  assert_non_null(t);
  OK(safetensors_read(&f, t, to, n));
  safetensors_close(&f);
}

/* --freeze-layers: the layer keeps its initial weights, the bias after it is trained, and the
 * gradients of the layer do not count in the norm. */
static void test_frozen_layer_keeps_its_weights(void **state) {
  (void)state;
  float first[VOCAB], last[VOCAB], bias[2];
  OK(train("free", RATING "--steps 1 --log-every 1 --seed 3"));
  OK(train("frozen1", RATING "--steps 1 --log-every 1 --seed 3 --freeze-layers 1"));
  OK(train("frozen", RATING "--steps 40 --seed 3 --freeze-layers 1"));
  read_weights("frozen1", "word.weight", first, VOCAB);
  read_weights("frozen", "word.weight", last, VOCAB);
  assert_memory_equal(first, last, sizeof first);
  read_weights("frozen1", "bias", &bias[0], 1);
  read_weights("frozen", "bias", &bias[1], 1);
  assert_true(bias[0] != bias[1]);
  read_weights("free", "word.weight", last, VOCAB);
  assert_memory_not_equal(first, last, sizeof first);
  Str all = read_text(at("free/metrics.jsonl")), some = read_text(at("frozen1/metrics.jsonl"));
  double norm = find_metric(&some, "grad_norm", false);
  assert_true(norm > 0 && norm < find_metric(&all, "grad_norm", false));
  str_free(&all);
  str_free(&some);
}

static void test_freezing_more_layers_than_model_is_refused(void **state) {
  (void)state;
  assert_int_equal(train("toomany", RATING "--steps 1 --freeze-layers 2"), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--freeze-layers 2"));
}

/* The task, the data and the options come from RUN/config. */
static void test_resumed_run_has_bits_of_one_never_stopped(void **state) {
  (void)state;
  OK(train("whole", RATING "--steps 60 --shift 2"));
  OK(train("parts", RATING "--steps 40 --shift 2"));
  OK(train("parts", "--steps 60 --resume"));
  assert_same_weights("whole/checkpoints/latest/weights.safetensors",
                      "parts/checkpoints/latest/weights.safetensors");
}

static const char *damaged; /* file that damage_file truncates */

static void damage_file(void) {
  assert_int_equal(truncate(at(damaged), 100), 0);
}

/* Resumes a run; the file is damaged after the checkpoint was chosen. */
static Err resume_damaged(const char *run, const char *file) {
  damaged = file;
  between_reads = damage_file;
  Err err = train(run, "--steps 60 --resume");
  between_reads = NULL;
  return err;
}

static void test_resume_checkpoint_damaged_after_it_was_chosen_takes_the_one_before(
    void **state) {
  (void)state;
  OK(train("steady", RATING "--steps 60 --shift 1"));
  OK(train("disturbed", RATING "--steps 40 --shift 1"));
  OK(resume_damaged("disturbed", "disturbed/checkpoints/step-00000040/weights.safetensors"));
  assert_same_weights("steady/checkpoints/latest/weights.safetensors",
                      "disturbed/checkpoints/latest/weights.safetensors");
  assert_file_has("disturbed/checkpoints/step-00000060/training.json", "\"step\": 60,", true);
  /* Steps 21 to 40 are trained again. */
  Str text = read_text(at("disturbed/metrics.jsonl"));
  int records = 0;
  for (const char *line = str_text(&text); (line = strstr(line, "\"step\":40,")); line++)
    records++;
  str_free(&text);
  text = read_text(at("steady/metrics.jsonl"));
  for (const char *line = str_text(&text); (line = strstr(line, "\"step\":40,")); line++)
    records--;
  str_free(&text);
  assert_true(records > 0);
}

static void test_resume_only_checkpoint_damaged_after_it_was_chosen_is_an_error(void **state) {
  (void)state;
  OK(train("alone", RATING "--steps 20"));
  assert_int_equal(
      resume_damaged("alone", "alone/checkpoints/step-00000020/moment1.safetensors"), ERR_WORK);
  assert_says("no checkpoint of");
  assert_says("step-00000020/moment1.safetensors");
}

static void test_resume_with_another_task_is_refused(void **state) {
  (void)state;
  OK(train("of-rating", RATING "--steps 20"));
  assert_int_equal(train("of-rating", "--resume --task guess"), ERR_USAGE);
  assert_says("with --task rating, which cannot continue with --task guess");
}

static void test_resume_with_another_vocabulary_is_refused(void **state) {
  (void)state;
  OK(train("of-words", RATING "--steps 20"));
  words_changed = true;
  Err err = train("of-words", "--resume --steps 40");
  words_changed = false;
  assert_int_equal(err, ERR_USAGE);
  assert_says("was trained with another vocabulary than");
}

static void test_option_of_another_task_is_refused(void **state) {
  (void)state;
  assert_int_equal(train("luck", RATING "--luck 0.7"), ERR_USAGE);
  assert_says("--luck is an option of --task guess, not of rating");
}

static void test_preset_of_no_family_is_refused(void **state) {
  (void)state;
  assert_int_equal(train("base", RATING "--preset base"), ERR_USAGE);
  assert_says("'base' is not one of loose, strict");
}

/* 0.997 is the default of the option table, and not that of the task. */
static void test_option_given_with_default_of_table_is_in_config_of_run(void **state) {
  (void)state;
  OK(train("given", RATING "--steps 20 --beta2 0.997"));
  assert_file_has("given/config", "beta2 = 0.997\n", true);
  assert_file_has("given/config", "lr =", false);
  assert_file_has("given/config", "task = rating\n", true);
}

static void test_dry_run_of_task_of_a_test_writes_nothing(void **state) {
  (void)state;
  OK(train("dry", RATING "--dry-run"));
  assert_false(file_exists(at("dry")));
}

static void assert_l2(const char *dir, float l2) {
  ModelConfig back;
  OK(store_load_config(&back, NULL, at(dir)));
  assert_ptr_equal(back.family, &bag_family);
  assert_int_equal(own_config(&back).vocab, VOCAB);
  assert_true(own_config(&back).l2 == l2);
}

static void test_model_json_has_fields_of_the_family(void **state) {
  (void)state;
  OK(train("loose", RATING "--steps 20"));
  assert_l2("loose/checkpoints/latest", 0.125f);
  OK(train("strict", RATING "--steps 20 --preset strict"));
  assert_l2("strict/checkpoints/latest", 0.5f);
  OK(train("own", RATING "--steps 20 --preset strict --l2 0.75"));
  assert_l2("own/checkpoints/latest", 0.75f);
}

static void test_checkpoint_and_average_have_all_files_of_the_task(void **state) {
  (void)state;
  static const char *const dirs[] = {"files/checkpoints/latest", "files/average"};
  static const char *const contents[] = {"vocabulary", "list of ratings"};
  OK(train("files", RATING "--steps 40"));
  for (size_t i = 0; i < 2; i++) {
    ModelConfig config;
    StoreSums sums;
    OK(store_load_config(&config, &sums, at(dirs[i])));
    assert_int_equal(sums.files, 2);
    for (size_t k = 0; k < 2; k++) {
      char path[FILE_PATH_MAX];
      OK(store_check_file(&sums, at(dirs[i]), sums.file[k].name));
      OK(file_join(path, at(dirs[i]), k ? "ratings.txt" : "words.txt"));
      Str text = read_text(path);
      assert_string_equal(str_text(&text), contents[k]);
      str_free(&text);
    }
  }
}

static void test_model_json_without_a_file_that_is_needed_is_refused(void **state) {
  (void)state;
  StoreSums sums = {.known = true};
  store_add_file(&sums, "words.txt", (FileSum){0});
  assert_int_equal(store_check_file(&sums, scratch, "ratings.txt"), ERR_WORK);
  assert_says("model.json is damaged: 'files' has no 'ratings.txt'");
}

static void test_config_difference_ignores_fields_that_may_change(void **state) {
  (void)state;
  ModelConfig a = bag_config((BagConfig){.vocab = 4, .l2 = 0.1f});
  ModelConfig b = bag_config((BagConfig){.vocab = 4, .l2 = 0.2f});
  ModelConfig c = bag_config((BagConfig){.vocab = 6, .l2 = 0.1f});
  assert_null(config_difference(&a, &b));
  assert_string_equal(config_difference(&a, &c)->key, "vocab");
}

static void test_model_of_unknown_format_is_refused(void **state) {
  (void)state;
  static const char text[] = "{\"format\": \"trireme-transformer\", \"version\": 1}";
  ModelConfig config;
  OK(file_mkdirs(at("other")));
  OK(file_write(at("other/model.json"), text, sizeof text - 1));
  assert_int_equal(store_load_config(&config, NULL, at("other")), ERR_WORK);
  assert_says("trireme-transformer");
}

/* Writes a model of the family, with `value` as its bias. */
static void write_model(const char *dir, int vocab, float value) {
  Params p = {0};
  float *w;
  StoreSums sums = {.known = true};
  ModelConfig c = bag_config((BagConfig){.vocab = vocab});
  char path[FILE_PATH_MAX];
  OK(bag_params(&p, &c));
  OK(mem_alloc_aligned(&w, p.padded * sizeof *w));
  w[p.param[1].offset] = value;
  OK(file_mkdirs(dir));
  OK(file_join(path, dir, "weights.safetensors"));
  OK(store_save_summed(&p, w, path, &sums.weights));
  OK(store_save_config(&c, &sums, dir));
  mem_free(w);
  params_free(&p);
}

static void test_init_from_weight_that_is_not_finite_is_refused(void **state) {
  (void)state;
  char words[FILE_PATH_MAX + 64];
  write_model(at("donor"), VOCAB, NAN);
  snprintf(words, sizeof words, RATING "--steps 1 --init-from %s", at("donor"));
  assert_int_equal(train("from-nan", words), ERR_WORK);
  assert_says("donor/weights.safetensors is damaged: number 0 of 'bias' is not finite");
  write_model(at("donor"), VOCAB, INFINITY);
  assert_int_equal(train("from-inf", words), ERR_WORK);
  write_model(at("donor"), VOCAB + 2, 0.25f); /* its words are others */
  OK(train("from-donor", words));
}

static Err inspect(const char *task) {
  static const OptCommand command = {.name = "inspect", .min_operands = 1, .max_operands = 1};
  char name[16];
  char *word[] = {"--task", name, "ratings"};
  OptSet *opts;
  opt_tables(cmd_options(), commands, cmd_aliases);
  snprintf(name, sizeof name, "%s", task);
  TRY(opt_parse(&opts, &command, 3, word));
  Err err = cmd_inspect(opts);
  opt_free(opts);
  return err;
}

static void test_inspect_calls_function_of_the_task(void **state) {
  (void)state;
  inspected = 0;
  OK(inspect("rating"));
  assert_int_equal(inspected, 1);
}

static void test_inspect_of_task_without_function_is_refused(void **state) {
  (void)state;
  assert_int_equal(inspect("guess"), ERR_USAGE);
  assert_says("inspect has nothing to show for --task guess");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_task_of_a_test_trains_until_loss_falls),
      cmocka_unit_test(test_training_json_has_task_and_its_names_of_totals),
      cmocka_unit_test(test_best_checkpoint_is_that_of_decisive_metric_and_its_direction),
      cmocka_unit_test(test_frozen_layer_keeps_its_weights),
      cmocka_unit_test(test_freezing_more_layers_than_model_is_refused),
      cmocka_unit_test(test_resumed_run_has_bits_of_one_never_stopped),
      cmocka_unit_test(test_resume_checkpoint_damaged_after_it_was_chosen_takes_the_one_before),
      cmocka_unit_test(test_resume_only_checkpoint_damaged_after_it_was_chosen_is_an_error),
      cmocka_unit_test(test_resume_with_another_task_is_refused),
      cmocka_unit_test(test_resume_with_another_vocabulary_is_refused),
      cmocka_unit_test(test_option_of_another_task_is_refused),
      cmocka_unit_test(test_preset_of_no_family_is_refused),
      cmocka_unit_test(test_option_given_with_default_of_table_is_in_config_of_run),
      cmocka_unit_test(test_dry_run_of_task_of_a_test_writes_nothing),
      cmocka_unit_test(test_model_json_has_fields_of_the_family),
      cmocka_unit_test(test_checkpoint_and_average_have_all_files_of_the_task),
      cmocka_unit_test(test_model_json_without_a_file_that_is_needed_is_refused),
      cmocka_unit_test(test_config_difference_ignores_fields_that_may_change),
      cmocka_unit_test(test_model_of_unknown_format_is_refused),
      cmocka_unit_test(test_init_from_weight_that_is_not_finite_is_refused),
      cmocka_unit_test(test_inspect_calls_function_of_the_task),
      cmocka_unit_test(test_inspect_of_task_without_function_is_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
