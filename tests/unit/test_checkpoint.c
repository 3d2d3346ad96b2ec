/* Checkpoints on disk: every combination of arrays is restored exactly, damage is detected
 * and named, the newest undamaged checkpoint is loaded, and pruning removes only old
 * checkpoints. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/jsondoc.h"
#include "checkpoint_support.h"
#include "train/record.h"
#include "train/saver.h"

static const char *const files[] = {
    "model.json",          "tokenizer.model",     "weights.safetensors", "training.safetensors",
    "moment1.safetensors", "moment2.safetensors", "training.json"};
#define FILES 7

static const char *join(const char *dir, const char *name) {
  static char path[4][FILE_PATH_MAX];
  static int turn;
  turn = (turn + 1) % 4;
  OK(file_join(path[turn], dir, name));
  return path[turn];
}

static void test_checkpoint_saved_arrays_are_read_back(void **state) {
  (void)state;
  for (int set = 0; set <= WITH_ALL; set++) {
    char run[32], dir[FILE_PATH_MAX];
    snprintf(run, sizeof run, "round-%d", set);
    save(at(run), set, 7, false);
    assert_int_equal(resume(at(run), set, dir), 7);
    assert_true(str_ends(dir, "/checkpoints/step-00000007"));
    bool there[FILES] = {true, true, true, set & WITH_E, set & WITH_M, set & WITH_V, true};
    for (int i = 0; i < FILES; i++)
      assert_int_equal(file_exists(join(dir, files[i])), there[i]);
    /* weights.safetensors, which translate loads, contains the EMA if there is one */
    memset(floats[1][0], 0, params.padded * sizeof(float));
    OK(store_load_array(&params, floats[1][0], join(dir, "weights.safetensors")));
    fill_array(floats[0][0], 7, set & WITH_E ? 1 : 0);
    assert_memory_equal(floats[0][0], floats[1][0], params.padded * sizeof(float));
    ModelConfig back;
    StoreSums sums;
    FileSum weights;
    OK(store_load_config(&back, &sums, dir));
    assert_int_equal(transformer_config(&back)->ffn_dim, config.ffn_dim);
    OK(filesum_file(join(dir, "weights.safetensors"), &weights));
    assert_true(sums.known && sums.weights.crc == weights.crc &&
                sums.weights.bytes == weights.bytes);
    OK(store_check_file(&sums, dir, "tokenizer.model"));
  }
}

static void test_checkpoint_same_step_saved_again_replaces_the_first(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX];
  save(at("again"), WITH_M, 3, true);
  save(at("again"), WITH_ALL, 3, false); /* save the same step again, with other arrays */
  assert_int_equal(resume(at("again"), WITH_ALL, dir), 3);
  assert_true(file_exists(join(at("again"), "checkpoints/step-00000003.old")));
  assert_true(file_is_dir(join(at("again"), "checkpoints/best")));
  OK(checkpoint_prune(at("again"), 1, every_step));
  assert_false(file_exists(join(at("again"), "checkpoints/step-00000003.old")));
  assert_int_equal(resume(at("again"), WITH_ALL, dir), 3);
  /* As after a kill between the two renames: the replaced checkpoint is found. */
  OK(file_rename(dir, join(at("again"), "checkpoints/step-00000003.old")));
  listen_begin();
  uint64_t step = resume(at("again"), WITH_ALL, dir);
  assert_holds(listen_end(), "step-00000003.old is taken instead");
  assert_int_equal(step, 3);
}

static void test_checkpoint_of_older_version_is_read(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX];
  static const char old[] =
      "{\"format\": \"trireme-training\", \"version\": 1, \"step\": 9, \"target_tokens\": "
      "8, \"pairs\": 7, \"best_bleu\": 6.5, \"best_step\": 5, \"worse\": 4, \"seconds\": 3}";
  save(at("older"), WITH_M | WITH_V, 9, false);
  OK(file_write(join(at("older"), "checkpoints/latest/training.json"), old, sizeof old - 1));
  TrainArrays a = arrays(1, WITH_M | WITH_V);
  TrainCounters c;
  bool found;
  clear_loaded();
  OK(checkpoint_find(at("older"), dir, &found));
  OK(checkpoint_load(dir, &a, &c));
  TrainCounters known = counters(9);
  assert_true(c.step == 9 && c.predictions == 8 && c.examples == 7 && c.best_step == 5);
  assert_true(c.best_score == 6.5 && c.worse == 4 && c.seconds == 3);
  assert_true(c.lr_scale == 1 && c.rollbacks == 0 && c.micro_batches == 0);
  assert_true(c.scaler.scale == 0 && c.scaler.clean == 0);
  /* Older checkpoints do not name their task: it is translate, then the only one. */
  assert_string_equal(c.task, "translate");
  assert_loaded(WITH_M | WITH_V, 9, (TrainCounters[]){known});
  /* Without checksums, a missing file is still detected. */
  static const char *const needed[] = {"model.json", "tokenizer.model", "weights.safetensors",
                                       "moment1.safetensors", "moment2.safetensors"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    OK(file_rename(join(dir, needed[i]), at("older/away")));
    assert_int_equal(checkpoint_find(at("older"), dir, &found), ERR_WORK);
    assert_says(needed[i]);
    OK(file_rename(at("older/away"), join(at("older/checkpoints/latest"), needed[i])));
  }
}

/* A newer format version is not damage: an older checkpoint must not be loaded instead. */
static void test_checkpoint_of_newer_version_is_refused(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX], newer[128];
  bool found;
  for (unsigned sum = 0, turn = 0; turn < 2; turn++) {
    snprintf(newer, sizeof newer,
             "{\"format\": \"trireme-training\", \"version\": 9, \"checksum\": \"%08x\", "
             "\"step\": 2}",
             sum);
    sum = (unsigned)crc32(0, (const Bytef *)newer, (uInt)strlen(newer));
  }
  save(at("newer"), 0, 1, false);
  save(at("newer"), 0, 2, false);
  OK(file_write(join(at("newer"), "checkpoints/latest/training.json"), newer, strlen(newer)));
  assert_int_equal(checkpoint_find(at("newer"), dir, &found), ERR_WORK);
  assert_says("step-00000002/training.json");
  assert_says("version 9");
}

/* Writes a training.json with a correct checksum. */
static void write_sealed(const char *dir, json_t *root) {
  Str text = {0};
  if (json_object_get(root, "checksum"))
    json_object_set_new(root, "checksum", json_string(JSONDOC_NO_SUM));
  char *dump = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  str_addf(&text, "%s\n", dump);
  free(dump);
  jsondoc_seal(&text);
  FILE *f = fopen(join(dir, "training.json"), "w"); /* file_write syncs, which takes longer */
  assert_non_null(f);
  assert_int_equal(fwrite(text.s, 1, text.len, f), text.len);
  assert_int_equal(fclose(f), 0);
  str_free(&text);
}

/* Writes the training.json of the run `from` into `to`, with `value` (JSON; NULL: nothing) for a key.
 * "a/b" is the key b of the object a. */
static void write_changed(const char *from, const char *to, const char *key,
                          const char *value) {
  char path[64];
  json_t *root = json_load_file(join(from, "training.json"), 0, NULL);
  assert_non_null(root);
  json_t *object = root;
  for (const char *slash; (slash = strchr(key, '/')); key = slash + 1) {
    snprintf(path, sizeof path, "%.*s", (int)(slash - key), key);
    object = json_object_get(object, path);
  }
  if (value)
    json_object_set_new(object, key, json_loads(value, JSON_DECODE_ANY, NULL));
  else
    json_object_del(object, key);
  write_sealed(to, root);
  json_decref(root);
}

#define NOTHING NULL
#define SUM     "its format or checksum is wrong"
#define LIST    "its list of files is invalid"

static void test_record_value_that_is_wrong_is_damage_that_is_named(void **state) {
  (void)state;
  static const struct {
    const char *key, *value, *words;
  } rows[] = {
      {"format", NOTHING, SUM},
      {"format", "7", SUM},
      {"format", "\"trireme-trainings\"", SUM},
      {"version", NOTHING, SUM},
      {"version", "\"2\"", SUM},
      {"version", "0", SUM},
      {"version", "2.0", SUM},
      {"version", "3", "has version 3, this trireme reads up to 2"},
      {"checksum", NOTHING, SUM},
      {"step", NOTHING, SUM},
      {"step", "\"2\"", SUM},
      {"step", "-1", "its 'step' is invalid"},
      {"task", "7", "its 'task' is invalid"},
      {"task", "\"a-task-with-a-name-of-32-letters\"", "its 'task' is invalid"},
      {"target_tokens", "-1", "its 'target_tokens' is invalid"},
      {"pairs", "\"x\"", "its 'pairs' is invalid"},
      {"micro_batches", "1.5", "its 'micro_batches' is invalid"},
      {"batch_tokens", "[]", "its 'batch_tokens' is invalid"},
      {"seed", "null", "its 'seed' is invalid"},
      {"best_score", "\"12\"", "its 'best_score' is invalid"},
      {"best_step", "-1", "its 'best_step' is invalid"},
      {"worse", "2147483648", "its 'worse' is invalid"},
      {"worse", "-1", "its 'worse' is invalid"},
      {"validated", "true", "its 'validated' is invalid"},
      {"seconds", "-0.5", "its 'seconds' is invalid"},
      {"seconds", "{}", "its 'seconds' is invalid"},
      {"lr_scale", "0", "its 'lr_scale' is invalid"},
      {"lr_scale", "\"1\"", "its 'lr_scale' is invalid"},
      {"rollbacks", "2147483648", "its 'rollbacks' is invalid"},
      {"loss_scale", "-1", "its 'loss_scale' is invalid"},
      {"loss_scale", "\"1\"", "its 'loss_scale' is invalid"},
      {"clean_steps", "-7", "its 'clean_steps' is invalid"},
      {"data", "7", "its 'data' is invalid"},
      {"data", "\"abc\"", "its 'data' is invalid"},
      {"second", "7", "its 'second' is invalid"},
      {"second", "[1, \"2\"]", "its 'second' is invalid"},
      {"second", "[\"1\", 2]", "its 'second' is invalid"},
      {"files", NOTHING, LIST},
      {"files", "[]", LIST},
      {"files/model.json", NOTHING, LIST},
      {"files/weights.safetensors", NOTHING, LIST},
      {"files/weights.safetensors", "7", LIST},
      {"files/..", "{\"bytes\": 1, \"crc32\": \"00000000\"}", LIST},
      {"files/weights.safetensors/bytes", NOTHING, LIST},
      {"files/weights.safetensors/bytes", "-1", LIST},
      {"files/weights.safetensors/bytes", "\"1\"", LIST},
      {"files/weights.safetensors/crc32", NOTHING, LIST},
      {"files/weights.safetensors/crc32", "7", LIST},
      {"files/weights.safetensors/crc32", "\"0123456\"", LIST},
      {"files/weights.safetensors/crc32", "\"012345678\"", LIST},
      {"files/weights.safetensors/crc32", "\"0123456g\"", LIST},
      {"files/weights.safetensors/crc32", "\"+1234567\"", LIST},
      {"files/tokenizer.model/crc32", "\"\"", LIST},
  };
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  save(at("values"), WITH_SECOND, 2, false);
  OK(file_join(from, at("values"), "checkpoints/latest"));
  OK(file_join(to, scratch, "values-changed"));
  OK(file_mkdirs(to));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Record r;
    bool whole = true;
    write_changed(from, to, rows[i].key, rows[i].value);
    Err err = record_read(to, &r, &whole);
    bool is_newer = strstr(rows[i].words, "version 3") != NULL;
    if (whole || (err != ERR_OK) != is_newer || !strstr(err_message(), rows[i].words) ||
        !strstr(err_message(), "values-changed/training.json"))
      fail_msg("%s %s: %s", rows[i].key, rows[i].value ? rows[i].value : "missing",
               err_message());
    assert_true(!r.second && r.files == 0); /* nothing is allocated */
  }
}

static void test_record_value_that_is_missing_gets_its_default(void **state) {
  (void)state;
  static const char *const keys[] = {
      "task",       "target_tokens", "pairs",       "micro_batches", "batch_tokens", "seed",
      "best_score", "best_step",     "worse",       "validated",     "seconds",      "lr_scale",
      "rollbacks",  "loss_scale",    "clean_steps", "data"};
  char dir[FILE_PATH_MAX];
  Record r;
  bool whole;
  save(at("bare"), 0, 9, false);
  OK(file_join(dir, at("bare"), "checkpoints/latest"));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    write_changed(dir, dir, keys[i], NOTHING);
  OK(record_read(dir, &r, &whole));
  assert_true(whole);
  TrainCounters want = {.step = 9, .validated = 9, .lr_scale = 1, .task = "translate"};
  const TrainCounters *c = &r.counters;
  assert_int_equal(c->step, want.step);
  assert_int_equal(c->validated, want.validated);
  assert_true(c->lr_scale == want.lr_scale);
  assert_string_equal(c->task, want.task);
  assert_string_equal(c->data, "");
  assert_int_equal(c->predictions + c->examples + c->micro_batches + c->batch_tokens, 0);
  assert_int_equal(c->seed + c->best_step + c->scaler.clean, 0);
  assert_int_equal(c->worse + c->rollbacks, 0);
  assert_true(c->best_score == 0 && c->seconds == 0 && c->scaler.scale == 0);
}

static void test_record_extreme_values_are_read_back(void **state) {
  (void)state;
  static const struct {
    const char *key, *value;
  } rows[] = {{"worse", "2147483647"},
              {"rollbacks", "2147483647"},
              {"best_step", "9223372036854775807"},
              {"seconds", "0"},
              {"loss_scale", "0"},
              {"lr_scale", "1e-300"},
              {"best_score", "-1e300"},
              {"task", "\"a-task-with-a-name-of-31-letter\""},
              {"data", "\"\""},
              {"second", "[]"}};
  char dir[FILE_PATH_MAX];
  Record r;
  bool whole;
  save(at("extreme"), 0, 2, false);
  OK(file_join(dir, at("extreme"), "checkpoints/latest"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    write_changed(dir, dir, rows[i].key, rows[i].value);
  OK(record_read(dir, &r, &whole));
  assert_true(whole);
  const TrainCounters *c = &r.counters;
  assert_true(c->worse == INT32_MAX && c->rollbacks == INT32_MAX);
  assert_true(c->best_step == INT64_MAX && c->seconds == 0 && c->scaler.scale == 0);
  assert_true(c->lr_scale == 1e-300 && c->best_score == -1e300);
  assert_string_equal(c->task, "a-task-with-a-name-of-31-letter");
  assert_string_equal(c->data, "");
  record_free(&r);
}

/* More files than a model can have, each with a valid name. */
static void test_record_more_files_than_a_model_has_are_damage(void **state) {
  (void)state;
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX], key[32];
  bool whole = true;
  Record r;
  save(at("files"), 0, 2, false);
  OK(file_join(from, at("files"), "checkpoints/latest"));
  OK(file_join(to, scratch, "files-changed"));
  OK(file_mkdirs(to));
  write_changed(from, to, "seed", "1");
  for (int i = 1; i < STORE_FILES; i++) { /* beside the tokenizer */
    snprintf(key, sizeof key, "files/more-%d.txt", i);
    write_changed(to, to, key, "{\"bytes\": 5, \"crc32\": \"00000aBC\"}");
  }
  OK(record_read(to, &r, &whole));
  assert_true(whole);
  assert_int_equal(r.files, STORE_FILES);
  assert_non_null(record_find_file(&r, "more-1.txt"));
  assert_true(record_find_file(&r, "more-1.txt")->sum.crc == 0xabc);
  assert_null(record_find_file(&r, "more-0.txt"));
  write_changed(to, to, "files/more-0.txt", "{\"bytes\": 5, \"crc32\": \"00000abc\"}");
  OK(record_read(to, &r, &whole));
  assert_false(whole);
  assert_says(LIST);
}

static void test_record_number_that_is_not_finite_is_not_written(void **state) {
  (void)state;
  double second[] = {1, 2};
  Record good = {.counters = counters(2), .second = second, .seconds = 2};
  OK(file_mkdirs(at("record")));
  OK(record_write(at("record"), &good));
  for (int i = 0; i < 6; i++) {
    Record r = good;
    double *const place[] = {
        &r.counters.best_score,   &r.counters.seconds, &r.counters.lr_scale,
        &r.counters.scaler.scale, &second[0],          &second[1]};
    double kept = *place[i];
    *place[i] = i % 2 ? NAN : INFINITY;
    if (record_write(at("record"), &r) != ERR_WORK) fail_msg("number %d", i);
    assert_says("record/training.json: a counter or moment of step 2 is not finite");
    *place[i] = kept;
  }
}

/* Flips one bit at the offset, if the file is that long; returns the size of the file. */
static uint64_t flip(const char *path, uint64_t offset, int bit) {
  struct stat st;
  unsigned char byte;
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0 && fstat(fd, &st) == 0);
  if (offset < (uint64_t)st.st_size) {
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte = (unsigned char)(byte ^ 1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
  }
  close(fd);
  return (uint64_t)st.st_size;
}

/* The newest checkpoint is damaged in this file: loading it fails and names the file, and step
 * 1 is loaded instead. */
static void assert_damaged(const char *run, const char *file) {
  char dir[FILE_PATH_MAX];
  TrainArrays a = arrays(1, WITH_ALL);
  TrainCounters c;
  bool whole = true;
  OK(checkpoint_check(join(run, "checkpoints/step-00000002"), false, &whole));
  assert_false(whole);
  assert_says(file);
  if (strcmp(file, "tokenizer.model") != 0) { /* checkpoint_load does not read the tokenizer */
    assert_int_equal(checkpoint_load(join(run, "checkpoints/latest"), &a, &c), ERR_WORK);
    assert_says(file);
  }
  listen_begin();
  uint64_t step = resume(run, WITH_ALL, dir);
  const char *text = listen_end();
  assert_int_equal(step, 1);
  assert_holds(text, file);
  assert_holds(text, "step-00000001 is taken instead");
}

static void test_checkpoint_damaged_file_is_named_and_older_checkpoint_used(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX], path[FILE_PATH_MAX], away[FILE_PATH_MAX];
  OK(file_join(run, scratch, "damage"));
  OK(file_join(away, scratch, "away"));
  save(run, WITH_ALL, 1, false);
  save(run, WITH_ALL, 2, false);
  for (int i = 0; i < FILES; i++) {
    OK(file_join(path, join(run, "checkpoints/step-00000002"), files[i]));
    uint64_t bytes = flip(path, UINT64_MAX, 0);
    const uint64_t places[] = {0, bytes / 2, bytes - 1};
    for (int k = 0; k < 3; k++) {
      flip(path, places[k], k);
      assert_damaged(run, files[i]);
      flip(path, places[k], k);
    }
    OK(file_rename(path, away)); /* the file is missing */
    assert_damaged(run, files[i]);
    OK(place_copy(away, path));
    assert_int_equal(truncate(path, (off_t)bytes - 1), 0);
    assert_damaged(run, files[i]);
    OK(file_rename(away, path));
    assert_int_equal(resume(run, WITH_ALL, dir), 2);
  }
  /* training.json contains numbers as text; a change of any byte must be detected. */
  OK(file_join(path, join(run, "checkpoints/step-00000002"), "training.json"));
  uint64_t bytes = flip(path, UINT64_MAX, 0);
  for (uint64_t at_byte = 0; at_byte < bytes; at_byte++) {
    bool whole = true;
    flip(path, at_byte, (int)(at_byte % 7));
    OK(checkpoint_check(join(run, "checkpoints/step-00000002"), true, &whole));
    if (whole) fail_msg("byte %d of training.json was not missed", (int)at_byte);
    flip(path, at_byte, (int)(at_byte % 7));
  }
  assert_int_equal(resume(run, WITH_ALL, dir), 2);
}

static void test_checkpoint_find_without_whole_checkpoint_finds_none(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  bool found = true;
  OK(file_join(run, scratch, "none"));
  OK(checkpoint_find(run, dir, &found)); /* there is no run directory */
  assert_false(found);
  OK(file_mkdirs(join(run, "checkpoints/unfinished")));
  assert_int_equal(symlink("step-00000001", join(run, "checkpoints/latest.tmp")), 0);
  OK(checkpoint_find(run, dir, &found)); /* the state after a kill during the first save */
  assert_false(found);
  save(run, 0, 1, false);
  assert_int_equal(resume(run, 0, dir), 1);
  save(run, 0, 2, false);
  flip(join(run, "checkpoints/step-00000001/weights.safetensors"), 700, 3);
  flip(join(run, "checkpoints/step-00000002/weights.safetensors"), 700, 3);
  listen_begin();
  Err err = checkpoint_find(run, dir, &found);
  listen_end();
  assert_int_equal(err, ERR_WORK);
  assert_says("no checkpoint");
  assert_says("step-00000002/weights.safetensors");
}

static void test_checkpoint_missing_links_newest_step_is_found(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  OK(file_join(run, scratch, "links"));
  save(run, 0, 99999999, false);
  save(run, 0, 100000000, false); /* a step number with one more digit than the name has */
  assert_int_equal(unlink(join(run, "checkpoints/latest")), 0);
  listen_begin();
  uint64_t step = resume(run, 0, dir);
  assert_holds(listen_end(), "latest is missing");
  assert_int_equal(step, 100000000);
  assert_int_equal(symlink("step-00000555", join(run, "checkpoints/latest")), 0);
  listen_begin();
  step = resume(run, 0, dir);
  assert_holds(listen_end(), "step-00000555");
  assert_int_equal(step, 100000000);
  /* As after a kill before the link was moved: the older step is loaded until the next save. */
  assert_int_equal(unlink(join(run, "checkpoints/latest")), 0);
  assert_int_equal(symlink("step-99999999", join(run, "checkpoints/latest")), 0);
  assert_int_equal(resume(run, 0, dir), 99999999);
}

static void test_checkpoint_of_another_task_is_refused(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX];
  TrainArrays a = arrays(1, 0);
  TrainCounters c;
  bool found;
  save(at("task"), 0, 4, false);
  OK(checkpoint_find(at("task"), dir, &found));
  a.task = "translate";
  OK(checkpoint_compare(dir, &a, &c));
  OK(checkpoint_load(dir, &a, &c));
  a.task = "rating";
  assert_int_equal(checkpoint_compare(dir, &a, &c), ERR_USAGE);
  assert_says("with --task translate, which cannot continue with --task rating");
  assert_int_equal(checkpoint_load(dir, &a, &c), ERR_USAGE);
}

static void assert_too_long(Err err) {
  assert_int_equal(err, ERR_WORK);
  assert_says("this path is too long");
  err_set(ERR_OK, "nothing was said");
}

/* No name of a file fits behind a path of this length. */
static void test_checkpoint_path_that_is_too_long_is_an_error(void **state) {
  (void)state;
  char run[FILE_PATH_MAX - 5], dir[FILE_PATH_MAX];
  TrainArrays a = arrays(0, 0);
  TrainCounters c = counters(1);
  Record r = {.counters = c};
  CheckpointList list;
  bool is_there, is_moved;
  memset(run, '/', sizeof run);
  run[sizeof run - 1] = '\0';
  assert_too_long(checkpoint_save(run, &a, &c));
  assert_too_long(checkpoint_add_validation(run, &c, true));
  assert_too_long(checkpoint_settle_best(run, 1, &is_there, &is_moved));
  assert_too_long(checkpoint_prune(run, 1, every_step));
  assert_too_long(checkpoint_find(run, dir, &is_there));
  assert_too_long(checkpoint_list(&list, run));
  assert_too_long(checkpoint_check(run, false, &is_there));
  assert_too_long(checkpoint_compare(run, &a, &c));
  assert_too_long(checkpoint_load(run, &a, &c));
  assert_too_long(record_write(run, &r));
  assert_too_long(record_check(run, &r, PART_MODEL));
  assert_too_long(record_read(run, &r, &is_there));
}

static void test_checkpoint_load_with_other_arrays_is_refused(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  TrainCounters c;
  bool found;
  OK(file_join(run, scratch, "other"));
  save(run, WITH_M | WITH_V, 4, false);
  OK(checkpoint_find(run, dir, &found));
  for (int set = 0; set <= WITH_ALL; set++) {
    TrainArrays a = arrays(1, set);
    bool same = (set & ~WITH_E) == (WITH_M | WITH_V);
    assert_int_equal(checkpoint_load(dir, &a, &c), same ? ERR_OK : ERR_USAGE);
    if (!same) assert_says("another optimizer");
  }
  TrainArrays a = arrays(1, WITH_E | WITH_M | WITH_V);
  memset(a.e, 1, params.padded * sizeof(float));
  OK(checkpoint_load(dir, &a, &c)); /* the EMA starts with this run */
  assert_memory_equal(a.e, a.w, params.padded * sizeof(float));
  OK(file_write(at("another.model"), "peices", 6));
  ModelFile another;
  a = arrays_with_tokenizer(1, WITH_E | WITH_M | WITH_V, &another, at("another.model"));
  assert_int_equal(checkpoint_load(dir, &a, &c), ERR_USAGE);
  assert_says("another tokenizer");
  a = arrays_with_tokenizer(1, WITH_E | WITH_M | WITH_V, &another, at("nowhere.model"));
  assert_int_equal(checkpoint_load(dir, &a, &c), ERR_WORK);
  assert_says("nowhere.model");
  TransformerConfig gelu = config;
  gelu.activation = ACT_GELU;
  ModelConfig other = transformer_model_config(&gelu);
  a = arrays(1, WITH_M | WITH_V);
  a.config = &other;
  assert_int_equal(checkpoint_load(dir, &a, &c), ERR_USAGE);
  assert_says("'activation' is relu in the checkpoint, but gelu with these options");
  /* Dropping an EMA is a warning; training continues from the weights. */
  save(run, WITH_ALL, 5, false);
  OK(checkpoint_find(run, dir, &found));
  a = arrays(1, WITH_ALL & ~WITH_E);
  clear_loaded();
  listen_begin();
  Err err = checkpoint_load(dir, &a, &c);
  assert_holds(listen_end(), "which is dropped");
  OK(err);
  assert_loaded(WITH_ALL & ~WITH_E, 5, &c);
}

static void test_checkpoint_value_that_is_not_finite_is_refused(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX];
  TrainArrays a = arrays(0, WITH_SECOND);
  TrainCounters c = counters(2);
  save(at("finite"), WITH_SECOND, 1, false);
  a.second[params.count - 1] = 1e308 * 10;
  assert_int_equal(checkpoint_save(at("finite"), &a, &c), ERR_WORK);
  assert_says("not finite");
  assert_false(file_exists(join(at("finite"), "checkpoints/unfinished")));
  assert_int_equal(resume(at("finite"), WITH_SECOND, dir), 1);
}

static void assert_steps(const char *run, const char *want) {
  CheckpointList list;
  Str text = {0};
  OK(checkpoint_list(&list, run));
  for (size_t i = 0; i < list.count; i++) str_addf(&text, "%s ", list.at[i].name + 5);
  assert_string_equal(str_text(&text), want);
  str_free(&text);
  checkpoint_list_free(&list);
}

static void test_checkpoint_list_has_names_of_steps_alone(void **state) {
  (void)state;
  static const char *const names[] = {
      "step-5",
      "step-000000000000000000000000000000000000000007", /* 47 letters */
      "step-0000000000000000000000000000000000000000008",
      "step-18446744073709551615",
      "step-18446744073709551616",
      "step-9.old",
      "step-9",
      "step-9.olds",
      "step-9.old.old",
      "step-10x",
      "step-",
      "step--1",
      "step-+1",
      "step-x",
      "steps-1",
  };
  OK(file_mkdirs(at("names")));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[96];
    snprintf(path, sizeof path, "names/checkpoints/%s", names[i]);
    OK(file_mkdirs(at(path)));
  }
  assert_steps(at("names"),
               "18446744073709551615 9 9.old "
               "000000000000000000000000000000000000000007 5 ");
}

static void test_checkpoint_validation_that_is_added_keeps_the_longer_time(void **state) {
  (void)state;
  static const struct {
    double seconds, want;
  } rows[] = {{0.1, 0.2}, {7, 7}, {6, 7}}; /* 0.2 s were saved */
  char dir[FILE_PATH_MAX];
  Record r;
  bool whole;
  save(at("time"), 0, 2, false);
  OK(file_join(dir, at("time"), "checkpoints/latest"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    TrainCounters c = counters(2);
    c.seconds = rows[i].seconds;
    OK(checkpoint_add_validation(at("time"), &c, false));
    OK(record_read(dir, &r, &whole));
    assert_true(whole && r.counters.seconds == rows[i].want);
    assert_false(file_exists(at("time/checkpoints/best")));
  }
}

static void test_checkpoint_prune_removes_those_of_a_stop_first(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  const SaveSteps steps = {.save_every = 4, .valid_every = 6};
  OK(file_join(run, scratch, "stops"));
  for (uint64_t step = 4; step <= 10; step++) save(run, 0, step, step == 7);
  OK(checkpoint_prune(run, 3, steps));
  assert_steps(run, "00000010 00000008 00000007 00000006 ");
  save(run, 0, 12, false);
  OK(checkpoint_prune(run, 3, steps));
  assert_steps(run, "00000012 00000008 00000007 00000006 ");
  save(run, 0, 16, true);
  OK(checkpoint_prune(run, 3, steps));
  assert_steps(run, "00000016 00000012 00000008 ");
  OK(file_join(run, scratch, "best"));
  for (uint64_t step = 4; step <= 16; step += 4) save(run, 0, step, step == 8);
  OK(checkpoint_prune(run, 3, steps));
  assert_steps(run, "00000016 00000012 00000008 ");
  /* They have the places that no other has, in case the latest is damaged. */
  OK(file_join(run, scratch, "young"));
  for (uint64_t step = 1; step <= 5; step++) save(run, 0, step, false);
  OK(checkpoint_prune(run, 3, steps));
  assert_steps(run, "00000005 00000004 00000003 ");
}

static void test_checkpoint_prune_keeps_newest_and_best(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  OK(file_join(run, scratch, "prune"));
  for (uint64_t step = 1; step <= 6; step++) save(run, 0, step, step == 2);
  OK(file_mkdirs(join(run, "checkpoints/step-mine")));
  OK(checkpoint_prune(run, 3, every_step));
  assert_steps(run, "00000006 00000005 00000004 00000002 ");
  OK(checkpoint_prune(run, 0, every_step));
  assert_steps(run, "00000006 00000002 ");
  for (uint64_t step = 7; step <= 9; step++) save(run, 0, step, false);
  /* Training has returned to step 6, because later checkpoints are damaged; these are not
   * counted. */
  save(run, 0, 6, false);
  OK(checkpoint_prune(run, 2, every_step));
  assert_steps(run, "00000009 00000008 00000007 00000006 00000002 ");
  save(run, 0, 8, false);
  OK(checkpoint_prune(run, 2, every_step));
  assert_steps(run, "00000009 00000008 00000007 00000002 ");
  /* A directory that Trireme did not create. */
  assert_true(file_is_dir(join(run, "checkpoints/step-mine")));
}

/* Returns the target of the link `best`, "" if there is none. */
static const char *best_of(const char *run) {
  static char to[FILE_PATH_MAX];
  ssize_t n = readlink(join(run, "checkpoints/best"), to, sizeof to - 1);
  to[n > 0 ? n : 0] = '\0';
  return to;
}

static void test_checkpoint_settle_best_follows_the_restored_state(void **state) {
  (void)state;
  const char *run = at("settle");
  bool is_there, is_moved;
  save(run, 0, 3, true);
  save(run, 0, 6, true);
  OK(checkpoint_settle_best(run, 6, &is_there, &is_moved));
  assert_true(is_there && !is_moved);
  assert_string_equal(best_of(run), "step-00000006");
  /* A state in which an earlier step was the best. */
  OK(checkpoint_settle_best(run, 3, &is_there, &is_moved));
  assert_true(is_there && is_moved);
  assert_string_equal(best_of(run), "step-00000003");
  /* One whose best checkpoint is gone, damaged, or has never been. */
  OK(checkpoint_settle_best(run, 2, &is_there, &is_moved));
  assert_true(!is_there && is_moved);
  assert_string_equal(best_of(run), "");
  OK(checkpoint_settle_best(run, 2, &is_there, &is_moved));
  assert_true(!is_there && !is_moved);
  OK(checkpoint_settle_best(run, 6, &is_there, &is_moved));
  assert_true(is_there && is_moved);
  OK(checkpoint_settle_best(run, 0, &is_there, &is_moved));
  assert_true(!is_there && is_moved);
  flip(join(run, "checkpoints/step-00000006/weights.safetensors"), 100, 1);
  OK(checkpoint_settle_best(run, 6, &is_there, &is_moved));
  assert_false(is_there);
  assert_string_equal(best_of(run), "");
}

/* In a copy of a run made with cp -L, `best` is a directory. */
static void test_checkpoint_settle_best_accepts_a_directory(void **state) {
  (void)state;
  const char *run = at("settle-copy");
  bool is_there, is_moved;
  save(run, 0, 3, false);
  OK(file_rename(join(run, "checkpoints/step-00000003"), join(run, "checkpoints/best")));
  OK(checkpoint_settle_best(run, 3, &is_there, &is_moved));
  assert_true(is_there && !is_moved);
  OK(checkpoint_settle_best(run, 2, &is_there, &is_moved));
  assert_false(is_there);
  assert_true(file_is_dir(join(run, "checkpoints/best")));
}

/* Saves step 1 and waits until it is on disk. */
static void save_one(Saver *s) {
  TrainCounters c = counters(1);
  Err last;
  fill_arrays(saver_begin(s), 1);
  saver_commit(s, &c, SAVE_IN_BACKGROUND);
  saver_wait(s, &last);
  OK(last);
  saver_free(s);
}

static void test_saver_tokenizer_changed_under_the_run_saves_the_first(void **state) {
  (void)state;
  const Backend backend = {.host = true};
  Saver *s;
  Str saved = {0};
  ModelFile changing;
  TrainArrays mine = arrays_with_tokenizer(0, WITH_M, &changing, at("changing.model"));
  OK(file_write(at("changing.model"), "pieces", 6));
  OK(saver_new(&s, at("changing"), &mine, 2, every_step, &backend));
  OK(file_write(at("changing.model"), "", 0));
  save_one(s);
  OK(file_read(at("changing/checkpoints/latest/tokenizer.model"), 100, &saved));
  assert_string_equal(str_text(&saved), "pieces");
  str_free(&saved);
}

static void test_saver_tokenizer_removed_under_the_run_saves_the_first(void **state) {
  (void)state;
  const Backend backend = {.host = true};
  Saver *s;
  TrainArrays mine = arrays(0, WITH_M);
  OK(file_write(at("removed.model"), "pieces", 6));
  ModelFile removed;
  mine = arrays_with_tokenizer(0, WITH_M, &removed, at("removed.model"));
  OK(saver_new(&s, at("removed"), &mine, 2, every_step, &backend));
  assert_int_equal(unlink(at("removed.model")), 0);
  save_one(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_saver_tokenizer_changed_under_the_run_saves_the_first),
      cmocka_unit_test(test_saver_tokenizer_removed_under_the_run_saves_the_first),
      cmocka_unit_test(test_checkpoint_saved_arrays_are_read_back),
      cmocka_unit_test(test_checkpoint_same_step_saved_again_replaces_the_first),
      cmocka_unit_test(test_checkpoint_of_older_version_is_read),
      cmocka_unit_test(test_checkpoint_of_newer_version_is_refused),
      cmocka_unit_test(test_record_value_that_is_wrong_is_damage_that_is_named),
      cmocka_unit_test(test_record_value_that_is_missing_gets_its_default),
      cmocka_unit_test(test_record_extreme_values_are_read_back),
      cmocka_unit_test(test_record_more_files_than_a_model_has_are_damage),
      cmocka_unit_test(test_record_number_that_is_not_finite_is_not_written),
      cmocka_unit_test(test_checkpoint_damaged_file_is_named_and_older_checkpoint_used),
      cmocka_unit_test(test_checkpoint_find_without_whole_checkpoint_finds_none),
      cmocka_unit_test(test_checkpoint_missing_links_newest_step_is_found),
      cmocka_unit_test(test_checkpoint_of_another_task_is_refused),
      cmocka_unit_test(test_checkpoint_path_that_is_too_long_is_an_error),
      cmocka_unit_test(test_checkpoint_load_with_other_arrays_is_refused),
      cmocka_unit_test(test_checkpoint_value_that_is_not_finite_is_refused),
      cmocka_unit_test(test_checkpoint_list_has_names_of_steps_alone),
      cmocka_unit_test(test_checkpoint_validation_that_is_added_keeps_the_longer_time),
      cmocka_unit_test(test_checkpoint_prune_keeps_newest_and_best),
      cmocka_unit_test(test_checkpoint_prune_removes_those_of_a_stop_first),
      cmocka_unit_test(test_checkpoint_settle_best_follows_the_restored_state),
      cmocka_unit_test(test_checkpoint_settle_best_accepts_a_directory),
  };
  return cmocka_run_group_tests(tests, set_up_model, tear_down_model);
}
