/* Plug-ins: the search path, and which files are refused. The test compiles its own plug-ins.
 * Depends on base/plugin, a C compiler. */
#include <stdio.h>
#include <unistd.h>

#include "base/place.h"
#include "base/plugin.h"
#include "support.h"

#define NAME "libtrireme-test.so"

/* Compiles `source` into dir/NAME. */
static void build(const char *dir, const char *source) {
  char path[FILE_PATH_MAX], command[3 * FILE_PATH_MAX];
  const char *cc = getenv("CC");
  OK(file_mkdirs(dir));
  OK(file_join(path, dir, "plugin.c"));
  OK(file_write(path, source, strlen(source)));
  snprintf(command, sizeof command, "%s -shared -fPIC -o %s/" NAME " %s", cc && *cc ? cc : "cc",
           dir, path);
  assert_int_equal(system(command), 0);
}

static void good_plugin(const char *dir, int answer) {
  char source[512];
  snprintf(source, sizeof source,
           "const char trireme_plugin_version[] = \"%s\";\n"
           "int answer(void);\nint answer(void) { return %d; }\n",
           PLUGIN_VERSION, answer);
  build(dir, source);
}

static int ask(void) {
  Plugin p;
  int (*answer)(void);
  OK(plugin_open(&p, NAME));
  OK(plugin_symbol(&p, "answer", &answer));
  int value = answer();
  assert_int_equal(plugin_symbol(&p, "nothing", &answer), ERR_WORK);
  assert_says("has no symbol nothing");
  assert_null(answer);
  plugin_close(&p);
  plugin_close(&p);
  return value;
}

/* The directories of the search path come first, in their order, then the directory of the
 * program. */
static void test_plugin_search_follows_order_of_path(void **state) {
  (void)state;
  char path[2 * FILE_PATH_MAX], here[FILE_PATH_MAX], beside[FILE_PATH_MAX];
  OK(file_program_dir(here));
  OK(file_join(beside, here, NAME));
  good_plugin(at("a"), 1);
  good_plugin(at("b"), 2);
  snprintf(path, sizeof path, "%s/none:%s:%s", scratch, at("b"), at("a"));
  setenv("TRIREME_PLUGIN_PATH", path, 1);
  assert_int_equal(ask(), 2);
  good_plugin(at("c"), 3);
  OK(place_copy(at("c/" NAME), beside));
  assert_int_equal(ask(), 2);
  unsetenv("TRIREME_PLUGIN_PATH");
  assert_int_equal(ask(), 3);
  assert_int_equal(unlink(beside), 0);
}

static void test_plugin_not_found_lists_searched_directories(void **state) {
  (void)state;
  Plugin p;
  char here[FILE_PATH_MAX];
  OK(file_program_dir(here));
  setenv("TRIREME_PLUGIN_PATH", "/no/such/place:/nor/this", 1);
  assert_int_equal(plugin_open(&p, NAME), ERR_WORK);
  assert_says("/no/such/place, /nor/this, ");
  assert_says(here);
  assert_says("../lib/trireme");
  assert_says("TRIREME_PLUGIN_PATH");
  unsetenv("TRIREME_PLUGIN_PATH");
  plugin_close(&p);
}

static void test_plugin_wrong_file_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *source, *says;
  } cases[] = {
      {"int x;\n", "is not a plug-in of trireme"},
      {"const char trireme_plugin_version[] = \"0.0.1/0\";\n", "has version 0.0.1/0"},
      {"extern int missing(void);\nint f(void);\nint f(void) { return missing(); }\n",
       "undefined symbol"},
  };
  setenv("TRIREME_PLUGIN_PATH", at("bad"), 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plugin p;
    build(at("bad"), cases[i].source);
    assert_int_equal(plugin_open(&p, NAME), ERR_WORK);
    assert_says(cases[i].says);
    assert_null(p.handle);
  }
  OK(file_write(at("bad/" NAME), "not a library", 13));
  Plugin p;
  assert_int_equal(plugin_open(&p, NAME), ERR_WORK);
  assert_says("cannot load");
  unsetenv("TRIREME_PLUGIN_PATH");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plugin_search_follows_order_of_path),
      cmocka_unit_test(test_plugin_not_found_lists_searched_directories),
      cmocka_unit_test(test_plugin_wrong_file_is_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
