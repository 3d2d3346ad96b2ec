/* Failing allocations: each operation is repeated with the first, the second, … allocation
 * failing, until it succeeds. Every failure must be an error that mentions memory, and leak
 * nothing (make asan checks for leaks). Allocations inside libraries do not fail. Depends on
 * base, text, data, cmocka. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/place.h"
#include "base/rng.h"
#include "cmd/cmd.h"
#include "data/batch.h"
#include "data/input.h"
#include "data/prepare.h"
#include "data/recipe.h"
#include "text/tokenizer.h"

#define OK(call) assert_ok((call), #call)
static void assert_ok(Err err, const char *what) {
  if (err) fail_msg("%s: %s", what, err_message());
}

static char scratch[] = "/dev/shm/trireme-mem-XXXXXX"; /* on tmpfs, where fsync is fast */

static const char *at(const char *name) {
  static char path[8][FILE_PATH_MAX];
  static int turn;
  turn = (turn + 1) % 8;
  OK(file_join(path[turn], scratch, name));
  return path[turn];
}

/* Runs the operation with the n-th allocation failing, for every n (or every `stride`-th, for
 * slow operations) until none fails. The operation must free everything, whether or not it fails.
 * Returns the last n that failed. */
static int walk(const char *what, Err (*operation)(void), uint64_t stride) {
  uint64_t last = 0;
  for (uint64_t n = 1; n < 5000; last = n, n += n < 20 ? 1 : stride) {
    err_set(ERR_OK, "nothing was said");
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = operation();
    mem_fail_once(0);
    if (!err && mem_count() - before < n) return (int)last; /* none failed */
    if (!err) continue; /* it does without, as the cache of words does */
    if (err != ERR_WORK || !strstr(err_message(), "out of memory"))
      fail_msg("%s, allocation %d: code %d, \"%s\"", what, (int)n, (int)err, err_message());
  }
  fail_msg("%s never succeeds", what);
  return 0;
}
#define WALK(operation, stride, least)                \
  do {                                                \
    int walked = walk(#operation, operation, stride); \
    if (walked < (least)) fail_msg("%d", walked);     \
    OK(operation()); /* succeeds without failures */  \
  } while (0)

/* Writes a corpus, a data set of two or more shards, and its tokenizer. */

static void write_corpus(void) {
  Str text[2] = {{0}, {0}};
  Rng rng = {.key = 4};
  for (int i = 0; i < 400; i++) {
    uint64_t words = 1 + rng_below(&rng, 9);
    for (uint64_t w = 0; w < words; w++) {
      unsigned a = (unsigned)rng_below(&rng, 5), c = (unsigned)rng_below(&rng, 5);
      str_addf(&text[0], "%s%c%co%c", w ? " " : "", 'a' + a, 'a' + c, 'a' + a);
      str_addf(&text[1], "%s%cu%c", w ? " " : "", 'a' + c, 'a' + a);
    }
    for (int side = 0; side < 2; side++) str_addc(&text[side], '\n');
  }
  OK(file_write(at("a"), text[0].s, text[0].len));
  OK(file_write(at("b"), text[1].s, text[1].len));
  for (int side = 0; side < 2; side++) str_free(&text[side]);
}

static Err prepare(const char *out, const char *tokenizer) {
  TextPair pair = {.path = {at("a"), at("b")}};
  PrepareSpec spec = {.out = out,
                      .train = &pair,
                      .trains = 1,
                      .valid = pair,
                      .lang = {"a", "b"},
                      .rules = {1, 80, 1000, 9},
                      .max_tokens = 255,
                      .dedup = true,
                      .tokenizer = tokenizer,
                      .training = {"bpe", 64, 1.0},
                      .sample = 100,
                      .seed = 1,
                      .shard_bytes = 4096,
                      .threads = 1};
  Meta meta;
  Err err = prepare_run(&spec, &meta);
  if (!err) meta_free(&meta);
  return err;
}

/* ---- operations ---- */

static const OptCommand commands[] = {
    {.name = "prepare", .summary = "s", .usage = "u", .about = "a", .examples = "e\n"},
    {.name = "inspect",
     .summary = "s",
     .usage = "u",
     .about = "a",
     .operands = "a PATH",
     .max_operands = 2},
    {0},
};

static Err parse_options(void) {
  char *line[] = {"--train", "a", "b",          "--train", "c", "d",
                  "--out",   "x", "--no-dedup", "--valid", "a", "--vocab-size=8k"};
  static const char text[] = "train = e f\nout = \"x y\"\nsource-lang = fr\nseed = 5\n";
  OptSet *set;
  TRY(opt_parse(&set, opt_command("prepare"), sizeof line / sizeof *line, line));
  Str record = {0};
  Err err = opt_parse_config(set, text, sizeof text - 1, "config");
  if (!err) err = opt_parse_recipe(set, text, sizeof text - 1, "recipe");
  if (!err) {
    opt_record(set, &record);
    err = str_check(&record);
  }
  str_free(&record);
  opt_free(set);
  return err;
}

static Err parse_operands(void) {
  char *line[] = {"one", "--json", "two"};
  OptSet *set;
  TRY(opt_parse(&set, opt_command("inspect"), sizeof line / sizeof *line, line));
  opt_free(set);
  return ERR_OK;
}

static size_t help_length;

/* Help text that lacks a line must not be returned as complete. */
static Err print_help(void) {
  Str out = {0};
  opt_help(&out, &commands[0]);
  opt_man(&out, "1");
  opt_completion(&out);
  Err err = str_check(&out);
  if (!err && help_length == 0) help_length = out.len;
  if (!err && out.len != help_length) {
    mem_fail_once(0);
    fail_msg("%zu of %zu bytes of help, and no error", out.len, help_length);
  }
  str_free(&out);
  return err;
}

static Err load_recipe(void) {
  static const char text[] =
      "about = \"A toy\"\nfetch = t.tgz http://h/t.tgz bytes:5\nunpack = t.tgz in/a a\n"
      "sgm = b.sgm b\nfetch = b.sgm http://h/b.sgm\ntrain = a b\nvalid = a b\nseed = 5\n";
  Recipe recipe;
  TRY(recipe_parse(&recipe, text, sizeof text - 1, "recipe"));
  recipe_free(&recipe);
  return ERR_OK;
}

static Err encode_text(void) {
  static const char line[] = "abob cdoc eaoe unknown \xc3\xa4\xc3\xb6 abob";
  Tokenizer t;
  IdList ids = {0};
  Str text = {0};
  TRY(tokenizer_open(&t, at("set/tokenizer.model")));
  Err err = tokenizer_encode(&t, line, sizeof line - 1, &ids);
  if (!err) err = tokenizer_decode(&t, ids.id, ids.len, &text);
  ids_free(&ids);
  str_free(&text);
  tokenizer_close(&t);
  return err;
}

static Err fill_batches(void) {
  DataSet d;
  OrderPlan plan;
  Batch b;
  TRY(dataset_open(&d, at("set")));
  Err err = dataset_verify(&d);
  if (!err) {
    err = order_plan(&plan, &d.order, 128);
    if (!err) {
      err = batch_new(&b, plan.capacity, plan.most_sentences);
      for (uint64_t i = 0; i < plan.batches && !err; i++)
        err = batch_fill(&b, &d, &plan, 1, 0, i);
      batch_free(&b);
      order_plan_free(&plan);
    }
  }
  dataset_close(&d);
  return err;
}

static Err load_batches(void) {
  DataSet d;
  OrderPlan plan;
  TRY(dataset_open(&d, at("set")));
  Err err = order_plan(&plan, &d.order, 128);
  if (!err) {
    Loader *loader;
    const Batch *b;
    err = loader_open(&loader, &d, &plan, &(LoaderSpec){.seed = 1, .group = 1, .end = 1});
    for (uint64_t i = 0; i < plan.batches + 2 && !err; i++) err = loader_next(loader, &b);
    loader_close(loader);
    order_plan_free(&plan);
  }
  dataset_close(&d);
  return err;
}

static Err read_input(const char *name) {
  Input *in;
  const char *line;
  size_t len;
  TRY(input_open(&in, at(name)));
  Err err;
  do err = input_line(in, &line, &len);
  while (!err && line);
  input_close(in);
  return err;
}

static Err read_plain(void) {
  return read_input("a");
}

static Err write_file(void) {
  TRY(file_write(at("written"), "text", 4));
  Str text = {0};
  Err err = file_read(at("written"), 100, &text);
  str_free(&text);
  return err ? err : place_copy(at("written"), at("copied"));
}

/* Runs all of prepare, from text to data set. A failure may leave OUT.partial, which the next run
 * resumes. */
static Err make_dataset(const char *tokenizer) {
  OK(file_remove_all(at("made")));
  OK(file_remove_all(at("made.partial")));
  return prepare(at("made"), tokenizer);
}

static Err make_with_tokenizer(void) {
  return make_dataset(at("set/tokenizer.model"));
}

static void test_mem_failing_allocation_in_options_is_error(void **state) {
  (void)state;
  opt_tables(cmd_options(), commands, cmd_aliases);
  WALK(parse_options, 1, 50);
  WALK(parse_operands, 1, 5);
  OK(print_help());
  WALK(print_help, 1, 20);
}

static void test_mem_failing_allocation_in_recipes_is_error(void **state) {
  (void)state;
  WALK(load_recipe, 1, 10);
}

static void test_mem_failing_allocation_in_files_is_error(void **state) {
  (void)state;
  WALK(write_file, 1, 6);
  WALK(read_plain, 1, 3);
}

static void test_mem_failing_allocation_in_tokenizers_is_error(void **state) {
  (void)state;
  WALK(encode_text, 1, 5);
}

static void test_mem_failing_allocation_in_batches_is_error(void **state) {
  (void)state;
  WALK(fill_batches, 1, 20);
  WALK(load_batches, 1, 20);
}

/* After all these failures the data set must have the same bytes. */
static void test_mem_failing_allocation_in_whole_runs_is_error(void **state) {
  (void)state;
  char one[65], two[65];
  WALK(make_with_tokenizer, 9, 50);
  static const char *const names[] = {"train-00000.tok", "train.order", "valid.tok",
                                      "dataset.json"};
  OK(make_with_tokenizer());
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char made[64], set[64];
    snprintf(made, sizeof made, "made/%s", names[i]);
    snprintf(set, sizeof set, "set/%s", names[i]);
    OK(place_sha256(at(made), one));
    OK(place_sha256(at(set), two));
    assert_string_equal(one, two);
  }
}

static int begin(void **state) {
  (void)state;
  log_quiet(true);
  if (access("/dev/shm", W_OK) != 0) strcpy(scratch, "/tmp/trireme-mem-XXXXXX");
  if (!mkdtemp(scratch)) return -1;
  write_corpus();
  OK(prepare(at("set"), NULL));
  return 0;
}

static int end(void **state) {
  (void)state;
  return (int)file_remove_all(scratch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mem_failing_allocation_in_options_is_error),
      cmocka_unit_test(test_mem_failing_allocation_in_recipes_is_error),
      cmocka_unit_test(test_mem_failing_allocation_in_files_is_error),
      cmocka_unit_test(test_mem_failing_allocation_in_tokenizers_is_error),
      cmocka_unit_test(test_mem_failing_allocation_in_batches_is_error),
      cmocka_unit_test(test_mem_failing_allocation_in_whole_runs_is_error),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
