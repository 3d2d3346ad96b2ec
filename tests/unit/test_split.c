/* Splitting a tab-separated text into training and validation files: the file of each pair,
 * invalid lines, and the sources of the four files of a recipe. Depends on data/unpack,
 * data/recipe, cmocka. */
#include "support.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/fetch.h"
#include "data/recipe.h"
#include "data/unpack.h"

static char root[128]; /* directory of the current test within the scratch directory */

/* Returns a path within the directory of this test; the path stays valid. */
static char *in_root(const char *name) {
  static char path[64][256];
  static int turn;
  turn = (turn + 1) % 64;
  snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
  return path[turn];
}

static int begin(void **state) {
  (void)state;
  static int number;
  snprintf(root, sizeof root, "%s/%d", scratch, number++);
  return (int)file_mkdirs(root);
}

static bool shell(const char *command) {
  char all[2048];
  snprintf(all, sizeof all, "cd '%s' && { %s; } > /dev/null 2>&1", root, command);
  return system(all) == 0;
}

static void assert_text(const char *name, const char *text) {
  Str got = {0};
  OK(file_read(in_root(name), 1 << 24, &got));
  assert_string_equal(str_text(&got), text);
  str_free(&got);
}

/* ---- splitting a text ---- */

static Err split(const char *text, size_t len, uint64_t n) {
  const char *const to[4] = {in_root("t.en"), in_root("t.de"), in_root("v.en"),
                             in_root("v.de")};
  OK(file_write(in_root("all.txt"), text, len));
  return unpack_split(in_root("all.txt"), n, to);
}
#define SPLIT(literal, n) split(literal, sizeof(literal) - 1, n)

/* The hashes of Hi., Run! and Go. are 0 modulo 3, those of Wow!, Stop! and Wait! are not. They
 * were computed with another program and must never change. */
static void test_split_source_decides_side(void **state) {
  (void)state;
  OK(
      SPLIT("Wow!\tPotzdonner!\tCC-BY 2.0 (France)\ttatoeba.org #1\n"
            "Hi.\tHallo!\n"
            "Wait!\tWarte!\tx\r\n"
            "Run!\tLauf!\r\n"
            "Hi.\tGr\xc3\xbc\xc3\x9f Gott!\tanother one\n"
            "Stop!\tStopp!\n"
            /* An empty target is still a pair; the last line may have no line break. */
            "Go.\t",
            3));
  assert_text("t.en", "Wow!\nWait!\nStop!\n");
  assert_text("t.de", "Potzdonner!\nWarte!\nStopp!\n");
  assert_text("v.en", "Hi.\nRun!\nHi.\nGo.\n");
  assert_text("v.de", "Hallo!\nLauf!\nGr\xc3\xbc\xc3\x9f Gott!\n\n");
}

static void test_split_other_order_of_lines_same_sides(void **state) {
  (void)state;
  OK(SPLIT("Go.\tGeh.\nStop!\tStopp!\nHi.\tHallo!\nRun!\tLauf!\nWow!\tOh!\nWait!\tWarte!\n",
           3));
  assert_text("t.en", "Stop!\nWow!\nWait!\n");
  assert_text("v.en", "Go.\nHi.\nRun!\n");
}

static void test_split_null_path_is_not_written(void **state) {
  (void)state;
  const char *const to[4] = {NULL, in_root("t.de"), in_root("v.en"), NULL};
  assert_true(shell("printf 'Hi.\\tHallo!\\nWow!\\tOh!\\n' > all.txt"));
  OK(unpack_split(in_root("all.txt"), 3, to));
  assert_text("t.de", "Oh!\n");
  assert_text("v.en", "Hi.\n");
  assert_true(shell("test \"$(echo *)\" = 'all.txt t.de v.en'"));
}

/* A text larger than the writer's buffer: about one source in N must be held out, no source may
 * be in both files, and none may be lost. */
static void test_split_holds_back_one_in_n(void **state) {
  (void)state;
  enum { SENTENCES = 200000, N = 50 };
  Str text = {0};
  for (int i = 0; i < SENTENCES; i++) str_addf(&text, "sentence %d\tSatz %d\n", i % 100000, i);
  OK(str_check(&text));
  OK(split(text.s, text.len, N));
  str_free(&text);
  /* 4000 lines are expected: 2000 sources of two lines each, standard deviation 44 sources. */
  assert_true(shell("n=$(wc -l < v.en) && [ $n -gt 3600 ] && [ $n -lt 4400 ]"));
  assert_true(shell("sort -u t.en > a && sort -u v.en > b && test -z \"$(comm -12 a b)\""));
  assert_true(
      shell("paste t.en t.de > a && paste v.en v.de >> a && sort a > b && sort all.txt | cmp - "
            "b"));
}

static void test_split_bad_line_is_named_and_nothing_left(void **state) {
  (void)state;
  assert_int_equal(SPLIT("Hi.\tHallo!\nWow! Oh!\n", 3), ERR_WORK);
  assert_says("all.txt:2: no tab");
  assert_int_equal(SPLIT("Hi.\tHallo!\nWow!\tOh!\n\n", 3), ERR_WORK);
  assert_says("all.txt:3: no tab");
  assert_int_equal(SPLIT("H\0i\0.\0\t\0H\0\n\0", 3), ERR_WORK);
  assert_says("all.txt:1: a zero byte");
  assert_int_equal(SPLIT("", 3), ERR_WORK);
  assert_says("of its 0 pairs");
  assert_int_equal(SPLIT("Wow!\tOh!\n", 3), ERR_WORK);
  assert_says("modulo 3) are none");
  assert_int_equal(SPLIT("Hi.\tHallo!\n", 3), ERR_WORK);
  assert_says("modulo 3) are all");
  assert_true(shell("test \"$(ls)\" = all.txt"));
  const char *const to[4] = {in_root("t.en"), NULL, NULL, NULL};
  assert_int_equal(unpack_split(in_root("absent.txt"), 3, to), ERR_WORK);
  assert_says("absent.txt");
}

static void test_split_failure_keeps_old_texts(void **state) {
  (void)state;
  OK(SPLIT("Hi.\tHallo!\nWow!\tOh!\n", 3));
  assert_int_equal(SPLIT("Hi.\tneu\nWow!\tneu\nbroken\n", 3), ERR_WORK);
  assert_text("t.de", "Oh!\n");
  assert_text("v.de", "Hallo!\n");
}

static void test_split_out_of_memory_is_error(void **state) {
  (void)state;
  const char *const to[4] = {in_root("t.en"), in_root("t.de"), in_root("v.en"),
                             in_root("v.de")};
  bool done = false;
  int failures = 0;
  assert_true(shell("printf 'Hi.\\tHallo!\\nWow!\\tOh!\\n' > all.txt"));
  for (uint64_t n = 1; n < 100 && !done; n++) {
    mem_fail_after(n);
    done = unpack_split(in_root("all.txt"), 3, to) == ERR_OK;
    mem_fail_after(0);
    failures += !done;
    if (!done) assert_true(shell("test \"$(ls)\" = all.txt"));
  }
  assert_true(done);
  assert_true(failures >= 8); /* two allocations for each file */
  assert_text("t.en", "Wow!\n");
}

/* ---- recipes with a split ---- */

/* Creates a text with both sides in an archive below `url`, and a recipe for it. */
static void make_recipe(const char *url) {
  assert_true(
      shell("mkdir -p remote && printf 'Hi.\\tHallo!\\tx\\nWow!\\tOh!\\tx\\n' > all.txt && "
            "tar czf remote/a.tgz all.txt && rm all.txt"));
  Str conf = {0};
  str_addf(&conf,
           "fetch = a.tgz %s/a.tgz\n"
           "unpack = a.tgz all.txt all.txt\n"
           "split = all.txt 3 t.en t.de v.en v.de\n"
           "train = t.en t.de\n"
           "valid = v.en v.de\n",
           url);
  OK(str_check(&conf));
  OK(file_write(in_root("recipe.conf"), conf.s, conf.len));
  str_free(&conf);
}

/* Obtains the texts of the recipe; `want`, if not NULL, is the expected config. */
static Err get(const char *source, const char *want) {
  Recipe r;
  RecipeFrom from = {.cache_dir = in_root("cache"), .source_dir = source, .delay = 0.01};
  OK(recipe_load(&r, in_root("recipe.conf")));
  Err err = recipe_obtain(&r, &from);
  if (!err && want) assert_string_equal(str_text(&r.config), want);
  recipe_free(&r);
  return err;
}

static void test_split_recipe_splits_fetched_text(void **state) {
  (void)state;
  if (!fetch_is_built() || !unpack_is_built()) {
    printf("skip: built without libcurl or libarchive\n");
    skip();
  }
  char url[256], want[2048];
  const char *cache = in_root("cache");
  snprintf(url, sizeof url, "file://%s/remote", root);
  make_recipe(url);
  snprintf(want, sizeof want,
           "\n\n\ntrain = \"%s/t.en\" \"%s/t.de\"\nvalid = \"%s/v.en\" \"%s/v.de\"\n", cache,
           cache, cache, cache);
  OK(get(NULL, want));
  assert_text("cache/t.en", "Wow!\n");
  assert_text("cache/t.de", "Oh!\n");
  assert_text("cache/v.en", "Hi.\n");
  assert_text("cache/v.de", "Hallo!\n");
  /* Existing files must not change; missing ones are made from the text in the cache. */
  assert_true(
      shell("rm -r remote && rm cache/a.tgz cache/v.de && printf 'kept\\n' > cache/t.en"));
  OK(get(NULL, want));
  assert_text("cache/t.en", "kept\n");
  assert_text("cache/v.de", "Hallo!\n");
  /* A newer text must be split again. */
  assert_true(
      shell("touch -d 2001-01-01 cache/?.?? && "
            "printf 'Hi.\\tneu\\nWow!\\tneuer\\n' > cache/all.txt"));
  OK(get(NULL, want));
  assert_text("cache/t.en", "Wow!\n");
  assert_text("cache/t.de", "neuer\n");
  assert_text("cache/v.de", "neu\n");
}

static void test_split_source_dir_with_four_texts_is_enough(void **state) {
  (void)state;
  char want[2048];
  const char *source = in_root("source");
  make_recipe("http://127.0.0.1:1");
  assert_true(
      shell("mkdir source && cd source && touch t.en.gz t.de v.en v.de.zst v.en.gz && "
            "chmod a-w ."));
  snprintf(want, sizeof want,
           "\n\n\ntrain = \"%s/t.en.gz\" \"%s/t.de\"\nvalid = \"%s/v.en\" \"%s/v.de.zst\"\n",
           source, source, source, source);
  OK(get(source, want));
  assert_false(file_exists(in_root("cache"))); /* Nothing is downloaded or created. */
  assert_true(shell("chmod u+w source"));
}

/* Files of two different splits could have sentences in common. */
static void test_split_source_dir_with_some_texts_is_refused(void **state) {
  (void)state;
  make_recipe("http://127.0.0.1:1");
  assert_true(shell("mkdir source && touch source/t.en source/t.de"));
  assert_int_equal(get(in_root("source"), NULL), ERR_WORK);
  assert_says("has t.de but not v.en");
  assert_true(shell("mkdir cache && touch cache/v.en cache/v.de"));
  assert_int_equal(get(in_root("source"), NULL), ERR_WORK);
  assert_says("has t.de but not v.en");
  assert_true(shell("rm source/*; touch source/v.de"));
  assert_int_equal(get(in_root("source"), NULL), ERR_WORK);
  assert_says("has v.de but not v.en");
}

static void test_split_source_dir_with_one_text_is_split(void **state) {
  (void)state;
  const char *source = in_root("source");
  make_recipe("http://127.0.0.1:1");
  assert_true(
      shell("mkdir source && "
            "printf 'Hi.\\tHallo!\\nWow!\\tOh!\\n' | gzip > source/all.txt.gz"));
  OK(get(source, NULL));
  assert_text("cache/v.de", "Hallo!\n");
  assert_true(shell("test \"$(ls source)\" = all.txt.gz"));
  /* A compressed text must also be found if it is newer than the four files. */
  assert_true(
      shell("touch -d 2001-01-01 cache/?.?? && "
            "printf 'Hi.\\tneu\\nWow!\\tneuer\\n' | gzip > source/all.txt.gz"));
  OK(get(source, NULL));
  assert_text("cache/v.de", "neu\n");
  assert_true(shell("rm cache/v.de && echo broken > source/all.txt"));
  assert_int_equal(get(source, NULL), ERR_WORK);
  assert_says("source/all.txt:1: no tab");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(test_split_source_decides_side),
      TEST(test_split_other_order_of_lines_same_sides),
      TEST(test_split_null_path_is_not_written),
      TEST(test_split_holds_back_one_in_n),
      TEST(test_split_bad_line_is_named_and_nothing_left),
      TEST(test_split_failure_keeps_old_texts),
      TEST(test_split_out_of_memory_is_error),
      TEST(test_split_recipe_splits_fetched_text),
      TEST(test_split_source_dir_with_four_texts_is_enough),
      TEST(test_split_source_dir_with_some_texts_is_refused),
      TEST(test_split_source_dir_with_one_text_is_split),
  };
  log_quiet(true);
  return cmocka_run_group_tests_name("split", tests, make_scratch, remove_scratch);
}
