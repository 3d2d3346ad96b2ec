/* Recipe files, valid and invalid, and the sources of their data: source directory, cache,
 * mirror, network. Depends on data/recipe, cmocka. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/fetch.h"
#include "data/recipe.h"
#include "data/unpack.h"

static char root[64];

static const char *at(const char *name) {
  static char path[8][256];
  static int turn;
  turn = (turn + 1) % 8;
  snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
  return path[turn];
}

static int begin(void **state) {
  (void)state;
  char cache[128];
  strcpy(root, "/tmp/trireme-recipe-XXXXXX");
  if (!mkdtemp(root)) return -1;
  snprintf(cache, sizeof cache, "%s/xdg", root);
  setenv("XDG_CACHE_HOME", cache, 1); /* The test must not use the user's cache. */
  unsetenv("TRIREME_RECIPES");
  return 0;
}

static int end(void **state) {
  (void)state;
  return file_remove_all(root) == ERR_OK ? 0 : -1;
}

static bool shell(const char *command) {
  char all[2048];
  snprintf(all, sizeof all, "cd '%s' && { %s; } > /dev/null 2>&1", root, command);
  return system(all) == 0;
}

static void assert_file(const char *path, const char *text) {
  Str got = {0};
  assert_int_equal(file_read(path, 1 << 20, &got), ERR_OK);
  assert_string_equal(str_text(&got), text);
  str_free(&got);
}

static void assert_says(const char *words) {
  if (!strstr(err_message(), words)) fail_msg("\"%s\" lacks \"%s\"", err_message(), words);
}

/* Writes ROOT/NAME/recipe.conf; %s in the format is the root. */
static void PRINTF_LIKE(2, 3) write_recipe(const char *name, const char *fmt, ...) {
  char text[4096];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  assert_int_equal(file_mkdirs(at(name)), ERR_OK);
  char path[512];
  snprintf(path, sizeof path, "%s/recipe.conf", at(name));
  assert_int_equal(file_write(path, text, strlen(text)), ERR_OK);
}

static Err parse(Recipe *r, const char *text) {
  return recipe_parse(r, text, strlen(text), "x.conf");
}

static void need_libraries(void) {
  if (fetch_is_built() && unpack_is_built()) return;
  printf("skip: built without libcurl or libarchive\n");
  skip();
}

/* ---- parsing ---- */

#define HEX "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"

static const char whole[] =
    "# a recipe\n"
    "about = All that there is\n"
    "fetch = a.tgz http://h/p/a.tgz sha256:" HEX
    " bytes:12\n"
    "\n"
    "unpack = a.tgz \"in side/a.en\" a.en   # a comment\n"
    "  unpack=a.tgz in/b.sgm b.sgm\r\n"
    "sgm = b.sgm b.de\n"
    "train = a.en b.de\n"
    "vocab-size = 99\n"
    "test = \"a.en\" b.de # more\n";

static void test_recipe_every_key_is_read(void **state) {
  (void)state;
  Recipe r;
  assert_int_equal(parse(&r, whole), ERR_OK);
  assert_string_equal(r.about, "All that there is");
  assert_null(r.generate);
  assert_int_equal(r.items, 4);
  assert_int_equal(r.item[0].kind, RECIPE_FETCH);
  assert_string_equal(r.item[0].name, "a.tgz");
  assert_string_equal(r.item[0].url, "http://h/p/a.tgz");
  assert_string_equal(r.item[0].sha256,
                      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
  assert_int_equal(r.item[0].bytes, 12);
  assert_string_equal(r.item[1].member, "in side/a.en");
  assert_string_equal(r.item[1].from, "a.tgz");
  assert_string_equal(r.item[1].name, "a.en");
  assert_int_equal(r.item[1].line, 5);
  assert_string_equal(r.item[2].name, "b.sgm");
  assert_int_equal(r.item[3].kind, RECIPE_SGM);
  assert_string_equal(r.item[3].from, "b.sgm");
  assert_int_equal(r.uses, 2);
  assert_string_equal(r.use[1].key, "test");
  assert_string_equal(r.use[1].word[0], "a.en");
  assert_int_equal(r.use[1].line, 10);
  /* Lines keep their numbers: lines that only recipes have become blank lines. */
  assert_string_equal(str_text(&r.config),
                      "# a recipe\n\n\n\n\n\n\ntrain = a.en b.de\nvocab-size = 99\n"
                      "test = \"a.en\" b.de # more\n");
  recipe_free(&r);
}

static void test_recipe_split_is_read(void **state) {
  (void)state;
  Recipe r;
  assert_int_equal(parse(&r,
                         "fetch = a.zip http://h/a.zip\nunpack = a.zip a.txt a.txt\n"
                         "split = a.txt 100 t.en t.de v.en v.de\ntrain = t.en t.de\n"),
                   ERR_OK);
  static const char *const names[] = {"t.en", "t.de", "v.en", "v.de"};
  assert_int_equal(r.items, 6);
  for (int i = 0; i < 4; i++) {
    const RecipeItem *item = &r.item[2 + i];
    assert_int_equal(item->kind, RECIPE_SPLIT);
    assert_string_equal(item->name, names[i]);
    assert_string_equal(item->from, "a.txt");
    assert_int_equal(item->every, 100);
    assert_int_equal(item->part, i);
    assert_int_equal(item->line, 3);
  }
  assert_string_equal(str_text(&r.config), "\n\n\ntrain = t.en t.de\n");
  recipe_free(&r);
}

static void test_recipe_generator_is_read(void **state) {
  (void)state;
  Recipe r;
  assert_int_equal(parse(&r, "generate = demo\nvocab-size = 5"), ERR_OK);
  assert_string_equal(r.generate, "demo");
  assert_string_equal(str_text(&r.config), "\nvocab-size = 5\n");
  RecipeFrom from = {0};
  assert_int_equal(recipe_obtain(&r, &from), ERR_OK);
  recipe_free(&r);
}

static void test_recipe_invalid_line_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"", "train"},
      {"about = nothing\n", "train"},
      {"\n\nfetch", "x.conf:3"},
      {"= x", "x.conf:1"},
      {"fetch = a", "fetch = NAME URL"},
      {"fetch = a gopher://x/y", "gopher://x/y"},
      {"fetch = a /etc/passwd", "/etc/passwd"},
      {"fetch = ../a http://h/a", "'../a'"},
      {"fetch = a/b http://h/a", "'a/b'"},
      {"fetch = a..b http://h/a", "'a..b'"},
      {"fetch = .. http://h/a", "'..'"},
      {"fetch = .hidden http://h/a", "'.hidden'"},
      {"fetch = -f http://h/a", "'-f'"},
      {"fetch = \"\" http://h/a", "''"},
      {"fetch = \"a b\" http://h/a", "'a b'"},
      {"fetch = a\x01 http://h/a", "cannot be"},
      {"fetch = \xC3\xA4 http://h/a", "cannot be"},
      {"fetch = a.part http://h/a", ".part"},
      {"fetch = a.part.meta http://h/a", ".meta"},
      {"fetch = a.bad http://h/a", ".bad"},
      {"fetch = a http://h/a sha256:12", "64 hexadecimal"},
      {"fetch = a http://h/a bytes:x", "bytes:x"},
      {"fetch = a http://h/a bytes:-1", "bytes:-1"},
      {"fetch = a http://h/a bytes:0", "bytes:0"},
      {"fetch = a http://h/a bytes:99999999999999999999", "not a size"},
      {"fetch = a http://h/a bytes:1 bytes:2", "at most one"},
      {"fetch = a http://h/a md5:1", "md5:1"},
      {"fetch = a http://h/a\nfetch = a http://h/b", "line 1"},
      {"fetch = a http://h/a\nunpack = a m a", "line 1"},
      {"fetch = a \"http://h/a", "quote"},
      {"fetch = \"a\"b http://h/a", "blank"},
      {"fetch = a http://h/a 1 2 3 4 5 6 7 8 9", "too many"},
      {"unpack = a m", "unpack = ARCHIVE-NAME"},
      {"train = b\nunpack = a m b", "x.conf:2: 'a'"},
      {"fetch = a http://h/a\nunpack = a \"\" b", "empty"},
      {"fetch = a http://h/a\nunpack = a m ../b", "'../b'"},
      {"fetch = a http://h/a\nunpack = a m b\nunpack = b m c\ntrain = c", "x.conf:3: 'b'"},
      {"sgm = a", "sgm = FILE-NAME"},
      {"sgm = a a\ntrain = a", "x.conf:1: 'a'"},
      {"sgm = a b\nsgm = b a\ntrain = a", "x.conf:1: 'a'"},
      {"split = a 3 b c d", "split = FILE-NAME N"},
      {"split = a 3 b c d e f", "split = FILE-NAME N"},
      {"split = a 1 b c d e", "'1' is not a number"},
      {"split = a 1000001 b c d e", "'1000001' is not"},
      {"split = a 99999999999999999999 b c d e", "is not a number"},
      {"split = a -3 b c d e", "'-3' is not"},
      {"split = a \"\" b c d e", "'' is not"},
      {"split = a 3 b ../c d e", "'../c'"},
      {"split = a 3 b c b e", "the name 'b' is already used on line 1"},
      {"split = a 3 b c d e\ntrain = b c", "x.conf:1: 'a'"},
      {"split = b 3 b c d e\ntrain = b c", "x.conf:1: 'b'"},
      {"fetch = a http://h/a\nsplit = a 3 b c d e\nsgm = b f\ntrain = f", "x.conf:3: 'b'"},
      {"train = nowhere.en nowhere.de", "x.conf:1: 'nowhere.en'"},
      {"train =", "names no file"},
      {"generate = life", "generate = demo"},
      {"generate = demo\ngenerate = demo", "twice"},
      {"about = a\nabout = b", "twice"},
      {"out = /somewhere", "'out'"},
      {"recipe = another", "'recipe'"},
      {"config = another", "'config'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    if (parse(&r, cases[i].text) != ERR_USAGE) fail_msg("accepted: %s", cases[i].text);
    assert_says("x.conf");
    assert_says(cases[i].says);
    assert_int_equal(r.items, 0);
    assert_null(r.item);
  }
  Recipe r;
  assert_int_equal(recipe_parse(&r, "generate = demo\0\n", 17, "x.conf"), ERR_USAGE);
  assert_says("x.conf:1");
}

static void test_recipe_read_out_of_memory_is_error(void **state) {
  (void)state;
  Recipe r;
  int failures = 0;
  for (uint64_t n = 1; n < 1000; n++) {
    mem_fail_after(n);
    Err err = parse(&r, whole);
    mem_fail_after(0);
    if (!err) {
      recipe_free(&r);
      break;
    }
    assert_null(r.item);
    failures++;
  }
  assert_true(failures > 10 && failures < 900);
}

/* ---- finding ---- */

static void test_recipe_is_found_by_name_or_path(void **state) {
  (void)state;
  Recipe r;
  write_recipe("mine/alpha", "generate = demo\n");
  setenv("TRIREME_RECIPES", at("mine"), 1);
  assert_int_equal(recipe_load(&r, "alpha"), ERR_OK);
  assert_string_equal(r.name, "alpha");
  assert_true(str_ends(r.path, "/mine/alpha/recipe.conf"));
  recipe_free(&r);
  assert_int_equal(recipe_load(&r, at("mine/alpha")), ERR_OK);
  assert_string_equal(r.name, "alpha");
  recipe_free(&r);
  assert_int_equal(recipe_load(&r, at("mine/alpha/recipe.conf")), ERR_OK);
  assert_string_equal(r.name, "alpha");
  recipe_free(&r);
}

static void test_recipe_unknown_name_lists_recipes(void **state) {
  (void)state;
  Recipe r;
  write_recipe("mine/alpha", "generate = demo\n");
  write_recipe("mine/omega", "generate = demo\n");
  assert_int_equal(file_mkdirs(at("mine/no-recipe")), ERR_OK);
  setenv("TRIREME_RECIPES", at("mine"), 1);
  assert_int_equal(recipe_load(&r, "alfa"), ERR_USAGE);
  assert_says("did you mean 'alpha'");
  assert_says("omega");
  assert_null(strstr(err_message(), "no-recipe"));
  assert_int_equal(recipe_load(&r, "something-else"), ERR_USAGE);
  assert_null(strstr(err_message(), "did you mean"));
  assert_says("alpha");
  assert_int_equal(recipe_load(&r, ""), ERR_USAGE);
  assert_int_equal(recipe_load(&r, at("absent")), ERR_WORK);
  assert_says("absent");
  Str list = {0};
  assert_int_equal(recipe_list(&list), ERR_OK);
  assert_non_null(strstr(list.s, "alpha\n"));
  assert_true(strstr(list.s, "alpha\n") < strstr(list.s, "omega\n"));
  str_free(&list);
}

static void test_recipe_error_names_file_and_line(void **state) {
  (void)state;
  Recipe r;
  write_recipe("bad", "about = x\n\nfetch = a b\n");
  assert_int_equal(recipe_load(&r, at("bad")), ERR_USAGE);
  assert_says("/bad/recipe.conf:3");
}

/* Checks the recipes of the source tree. */
static void test_recipe_shipped_recipes_are_valid(void **state) {
  (void)state;
  static const char *const names[] = {"multi30k-en-de", "wmt16-en-de", "demo", "tatoeba-en-de",
                                      "europarl-en-de"};
  static const size_t uses[] = {3, 5, 0, 2, 3};
  char here[FILE_PATH_MAX], own[FILE_PATH_MAX];
  assert_int_equal(file_program_dir(here), ERR_OK);
  /* The program is in build/tests or build/asan/tests: searches upwards for the folder
   * recipes. */
  for (int up = 0; up < 4; up++) {
    assert_int_equal(file_join(own, here, "recipes/multi30k-en-de"), ERR_OK);
    if (file_is_dir(own)) break;
    assert_int_equal(file_join(own, here, ".."), ERR_OK);
    strcpy(here, own);
  }
  assert_int_equal(file_join(own, here, "recipes"), ERR_OK);
  setenv("TRIREME_RECIPES", own, 1);
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
    Recipe r;
    assert_int_equal(recipe_load(&r, names[i]), ERR_OK);
    assert_string_equal(r.name, names[i]);
    assert_non_null(r.about);
    assert_int_equal(r.generate != NULL, i == 2);
    assert_int_equal(r.uses, uses[i]);
    for (size_t k = 0; k < r.items; k++) {
      if (r.item[k].kind == RECIPE_FETCH) assert_true(str_starts(r.item[k].url, "https://"));
    }
    recipe_free(&r);
  }
}

/* ---- fetching ---- */

/* Creates a recipe with three texts below ROOT/remote: one in an archive, one in SGM in the
 * archive, and a plain file. */
static void make_remote(const char *url_base) {
  assert_true(
      shell("mkdir -p remote in && printf 'one\\n' > in/a.en && "
            "printf '<seg>eins</seg>' > in/a.sgm && tar czf remote/a.tgz in && "
            "printf 'plain\\n' > remote/b.txt && rm -r in"));
  write_recipe("toy",
               "fetch = a.tgz %s/a.tgz\n"
               "fetch = b %s/b.txt bytes:6\n"
               "fetch = unused %s/unused\n"
               "unpack = a.tgz in/a.en a.en\n"
               "unpack = a.tgz in/a.sgm a.sgm\n"
               "sgm = a.sgm a.de\n"
               "train = a.en a.de # both\n"
               "valid = b b\n"
               "vocab-size = 7\n",
               url_base, url_base, url_base);
}

static void make_local_remote(void) {
  char base[256];
  snprintf(base, sizeof base, "file://%s/remote", root);
  make_remote(base);
}

static Err get(Recipe *r, const RecipeFrom *from) {
  assert_int_equal(recipe_load(r, at("toy")), ERR_OK);
  RecipeFrom quick = *from;
  quick.delay = 0.01;
  Err err = recipe_obtain(r, &quick);
  return err;
}

static void assert_config(const Recipe *r, const char *dir) {
  char want[2048];
  snprintf(want, sizeof want,
           "\n\n\n\n\n\ntrain = \"%s/a.en\" \"%s/a.de\"\nvalid = \"%s/b\" \"%s/b\"\nvocab-size "
           "= 7\n",
           dir, dir, dir, dir);
  assert_string_equal(str_text(&r->config), want);
}

static void test_recipe_get_fetches_and_unpacks(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  RecipeFrom from = {.cache_dir = at("cache")};
  make_local_remote();
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_config(&r, at("cache"));
  assert_file(at("cache/a.en"), "one\n");
  assert_file(at("cache/a.de"), "eins\n");
  assert_false(file_exists(at("cache/unused")));
  recipe_free(&r);
}

static void test_recipe_get_again_fetches_nothing(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  RecipeFrom from = {.cache_dir = at("cache")};
  make_local_remote();
  assert_int_equal(get(&r, &from), ERR_OK);
  recipe_free(&r);
  /* The unpacked texts are sufficient without the archive. */
  assert_true(shell("rm -r remote && rm cache/a.tgz"));
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_config(&r, at("cache"));
  recipe_free(&r);
}

static void test_recipe_default_cache_is_in_users_home(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  RecipeFrom from = {0};
  make_local_remote();
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_config(&r, at("xdg/trireme/toy"));
  recipe_free(&r);
}

static void test_recipe_relative_cache_gives_absolute_paths(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  char before[FILE_PATH_MAX];
  RecipeFrom from = {.cache_dir = "rel \"quoted\" \\"};
  make_local_remote();
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(root), 0);
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_int_equal(chdir(before), 0);
  char want[512];
  snprintf(want, sizeof want, "valid = \"%s/rel \\\"quoted\\\" \\\\/b\"", root);
  assert_non_null(strstr(str_text(&r.config), want));
  recipe_free(&r);
}

static void test_recipe_wrong_file_in_cache_is_replaced(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  RecipeFrom from = {.cache_dir = at("cache")};
  make_local_remote();
  assert_true(shell("mkdir cache && printf 'plai' > cache/b"));
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_file(at("cache/b"), "plain\n");
  recipe_free(&r);
}

static void test_recipe_newer_archive_is_unpacked_again(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  RecipeFrom from = {.cache_dir = at("cache")};
  make_local_remote();
  assert_true(
      shell("mkdir cache && printf 'old\\n' > cache/a.en && printf 'alt\\n' > cache/a.de && "
            "touch -d 2001-01-01 cache/a.?? && cp remote/a.tgz cache"));
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_file(at("cache/a.en"), "one\n");
  assert_file(at("cache/a.de"), "eins\n");
  recipe_free(&r);
}

static void test_recipe_source_dir_files_come_first(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  char source[256], base[64];
  snprintf(base, sizeof base, "http://127.0.0.1:1");
  make_remote(base);
  snprintf(source, sizeof source, "%s", at("source"));
  assert_true(shell(
      "mkdir source && printf 'mine\\n' > source/a.en && printf 'mein\\n' > source/a.de && "
      "printf 'plain\\n' > source/b && chmod a-w source"));
  RecipeFrom from = {.cache_dir = at("cache"), .source_dir = source};
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_config(&r, source);
  assert_false(file_exists(at("cache"))); /* Nothing is downloaded or created. */
  recipe_free(&r);
  assert_true(shell("chmod u+w source"));
}

static void test_recipe_get_out_of_memory_is_error(void **state) {
  (void)state;
  Recipe r;
  bool done = false;
  make_remote("http://127.0.0.1:1");
  assert_true(
      shell("mkdir source && cp remote/b.txt source/b && cp remote/b.txt source/a.en && "
            "cp remote/b.txt source/a.de"));
  assert_int_equal(recipe_load(&r, at("toy")), ERR_OK);
  RecipeFrom from = {.cache_dir = at("cache"), .source_dir = at("source")};
  int failures = 0;
  for (uint64_t n = 1; n < 200 && !done; n++) {
    mem_fail_after(n);
    done = recipe_obtain(&r, &from) == ERR_OK;
    mem_fail_after(0);
    failures += !done;
  }
  assert_true(done);
  assert_true(failures > 3);
  assert_config(&r, at("source")); /* The earlier failures must have left no invalid state. */
  recipe_free(&r);
}

static void test_recipe_source_dir_archive_is_unpacked(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  char want[512];
  make_remote("http://127.0.0.1:1");
  assert_true(shell("mkdir source && mv remote/a.tgz source && mv remote/b.txt source/b"));
  RecipeFrom from = {.cache_dir = at("cache"), .source_dir = at("source")};
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_file(at("cache/a.en"), "one\n");
  snprintf(want, sizeof want, "train = \"%s\" \"%s\"\nvalid = \"%s\"", at("cache/a.en"),
           at("cache/a.de"), at("source/b"));
  assert_non_null(strstr(str_text(&r.config), want));
  assert_true(shell("test \"$(ls source)\" = \"$(printf 'a.tgz\\nb')\""));
  recipe_free(&r);
}

static void test_recipe_source_dir_wrong_file_is_error(void **state) {
  (void)state;
  Recipe r;
  make_remote("http://127.0.0.1:1");
  assert_true(
      shell("mkdir source && printf 'one' > source/a.en && printf 'x' > source/a.de && "
            "printf 'too long for this\\n' > source/b"));
  RecipeFrom from = {.cache_dir = at("cache"), .source_dir = at("source")};
  assert_int_equal(get(&r, &from), ERR_WORK);
  assert_says("source/b");
  assert_says("18");
  assert_file(at("source/b"), "too long for this\n");
  recipe_free(&r);
  from.source_dir = at("nowhere");
  assert_int_equal(get(&r, &from), ERR_USAGE);
  assert_says("nowhere");
  recipe_free(&r);
}

static void test_recipe_unreachable_files_are_one_error(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  make_remote("http://127.0.0.1:1/some/where");
  RecipeFrom from = {.cache_dir = at("cache")};
  assert_int_equal(get(&r, &from), ERR_WORK);
  assert_says("2 files");
  assert_says("http://127.0.0.1:1/some/where/a.tgz");
  assert_says("b from http://127.0.0.1:1/some/where/b.txt");
  assert_null(strstr(err_message(), "unused"));
  assert_says(at("cache"));
  assert_says("--source-dir");
  recipe_free(&r);
}

static void test_recipe_unreachable_many_files_are_counted(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  Str text = {0};
  for (int i = 0; i < 40; i++) {
    str_addf(&text, "fetch = f%d http://127.0.0.1:1/a/rather/long/address/of/a/file/f%d\n", i,
             i);
    str_addf(&text, "train = f%d\n", i);
  }
  write_recipe("toy", "%s", str_text(&text));
  str_free(&text);
  RecipeFrom from = {.cache_dir = at("cache")};
  assert_int_equal(get(&r, &from), ERR_WORK);
  assert_says("40 files");
  assert_says(" more; put them into");
  assert_says("--source-dir DIR");
  recipe_free(&r);
}

static void test_recipe_mirror_comes_before_origin(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  char mirror[256];
  make_remote("http://127.0.0.1:1/some/where");
  snprintf(mirror, sizeof mirror, "file://%s/remote/", root);
  RecipeFrom from = {.cache_dir = at("cache"), .mirror = mirror};
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_config(&r, at("cache"));
  recipe_free(&r);
}

static void test_recipe_mirror_without_file_falls_back_to_origin(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  char mirror[256];
  make_local_remote();
  /* A mirror that lacks one file and has a wrong version of another. */
  assert_true(shell("mkdir mirror && printf 'wrong\\n\\n' > mirror/b.txt"));
  snprintf(mirror, sizeof mirror, "file://%s/mirror", root);
  RecipeFrom from = {.cache_dir = at("cache"), .mirror = mirror};
  assert_int_equal(get(&r, &from), ERR_OK);
  assert_file(at("cache/b"), "plain\n");
  recipe_free(&r);
  from.mirror = "example.org";
  assert_int_equal(get(&r, &from), ERR_USAGE);
  assert_says("example.org");
  recipe_free(&r);
}

static void test_recipe_missing_remote_file_is_error_with_remedy(void **state) {
  (void)state;
  need_libraries();
  Recipe r;
  make_local_remote();
  assert_true(shell("rm remote/b.txt"));
  RecipeFrom from = {.cache_dir = at("cache")};
  assert_int_equal(get(&r, &from), ERR_WORK);
  assert_says("b.txt");
  assert_says("put b into");
  assert_says("--source-dir");
  recipe_free(&r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(test_recipe_every_key_is_read),
      TEST(test_recipe_split_is_read),
      TEST(test_recipe_generator_is_read),
      TEST(test_recipe_invalid_line_is_refused),
      TEST(test_recipe_read_out_of_memory_is_error),
      TEST(test_recipe_is_found_by_name_or_path),
      TEST(test_recipe_unknown_name_lists_recipes),
      TEST(test_recipe_error_names_file_and_line),
      TEST(test_recipe_shipped_recipes_are_valid),
      TEST(test_recipe_get_fetches_and_unpacks),
      TEST(test_recipe_get_again_fetches_nothing),
      TEST(test_recipe_default_cache_is_in_users_home),
      TEST(test_recipe_relative_cache_gives_absolute_paths),
      TEST(test_recipe_wrong_file_in_cache_is_replaced),
      TEST(test_recipe_newer_archive_is_unpacked_again),
      TEST(test_recipe_source_dir_files_come_first),
      TEST(test_recipe_get_out_of_memory_is_error),
      TEST(test_recipe_source_dir_archive_is_unpacked),
      TEST(test_recipe_source_dir_wrong_file_is_error),
      TEST(test_recipe_unreachable_files_are_one_error),
      TEST(test_recipe_unreachable_many_files_are_counted),
      TEST(test_recipe_mirror_comes_before_origin),
      TEST(test_recipe_mirror_without_file_falls_back_to_origin),
      TEST(test_recipe_missing_remote_file_is_error_with_remedy),
  };
  log_quiet(true);
  unsetenv("http_proxy");
  unsetenv("all_proxy");
  unsetenv("ALL_PROXY");
  return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
