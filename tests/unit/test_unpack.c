/* Archive members, from archives made with tar and zip, and SGM files. Depends on data/unpack,
 * cmocka. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/unpack.h"

static char root[64];

static const char *at(const char *name) {
  static char path[4][256];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
  return path[turn];
}

static int begin(void **state) {
  (void)state;
  strcpy(root, "/tmp/trireme-unpack-XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}

static int end(void **state) {
  (void)state;
  return file_remove_all(root) == ERR_OK ? 0 : -1;
}

/* Runs a shell command in the directory of the test. */
static bool shell(const char *command) {
  char all[2048];
  snprintf(all, sizeof all, "cd '%s' && { %s; } > /dev/null 2>&1", root, command);
  return system(all) == 0;
}

static void assert_file(const char *name, const char *text) {
  Str got = {0};
  assert_int_equal(file_read(at(name), 1 << 20, &got), ERR_OK);
  assert_string_equal(str_text(&got), text);
  str_free(&got);
}

static void assert_says(const char *words) {
  if (!strstr(err_message(), words)) fail_msg("\"%s\" lacks \"%s\"", err_message(), words);
}

static void need_archive(void) {
  if (unpack_is_built()) return;
  printf("skip: built without libarchive\n");
  skip();
}

#define TREE "mkdir -p dir && echo one > dir/a && echo two > dir/b && ln -sf a dir/link"

/* ---- archives ---- */

static void test_unpack_every_format_is_read(void **state) {
  (void)state;
  need_archive();
  static const struct {
    const char *name, *make;
  } kinds[] = {
      {"x.tar", "tar cf x.tar dir"},
      {"x.tgz", "tar czf x.tgz dir"},
      {"x.tar.gz", "tar czf x.tar.gz ./dir"},
      {"x.tar.zst", "tar cf - dir | zstd -q > x.tar.zst"},
      {"x.zip", "zip -q -r x.zip dir"},
  };
  assert_true(shell(TREE));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!shell(kinds[i].make)) { /* zip and zstd are not installed on every machine. */
      assert_true(i >= 3);
      continue;
    }
    unlink(at("out"));
    assert_int_equal(unpack_member(at(kinds[i].name), "dir/b", at("out")), ERR_OK);
    assert_file("out", "two\n");
    assert_int_equal(unpack_member(at(kinds[i].name), "./dir/a", at("out")), ERR_OK);
    assert_file("out", "one\n");
    assert_false(file_exists(at("out.part")));
  }
}

static void test_unpack_several_members_in_one_pass(void **state) {
  (void)state;
  need_archive();
  assert_true(shell(TREE " && tar czf x.tgz dir"));
  char first[256], second[256];
  strcpy(first, at("1"));
  strcpy(second, at("2"));
  UnpackPair pairs[] = {{"dir/b", first}, {"dir/a", second}};
  assert_int_equal(unpack_members(at("x.tgz"), pairs, 2), ERR_OK);
  assert_file("1", "two\n");
  assert_file("2", "one\n");
}

static void test_unpack_large_member_is_written(void **state) {
  (void)state;
  need_archive();
  assert_true(shell("head -c 3000000 /dev/urandom > big && tar czf x.tgz big && mv big was"));
  assert_int_equal(unpack_member(at("x.tgz"), "big", at("big")), ERR_OK);
  assert_true(shell("cmp big was"));
}

static void test_unpack_absent_member_is_named(void **state) {
  (void)state;
  need_archive();
  assert_true(shell(TREE " && tar czf x.tgz dir"));
  assert_int_equal(unpack_member(at("x.tgz"), "dir/c", at("out")), ERR_WORK);
  assert_says("dir/c");
  assert_says("dir/b");
  assert_says("x.tgz");
  assert_false(file_exists(at("out")));
}

static void test_unpack_link_or_directory_is_refused(void **state) {
  (void)state;
  need_archive();
  assert_true(
      shell(TREE " && ln dir/a dir/hard && tar cf x.tar dir/b dir/a dir/hard dir/link dir"));
  assert_int_equal(unpack_member(at("x.tar"), "dir/link", at("out")), ERR_WORK);
  assert_says("dir/link");
  assert_int_equal(unpack_member(at("x.tar"), "dir/hard", at("out")), ERR_WORK);
  assert_int_equal(unpack_member(at("x.tar"), "dir/", at("out")), ERR_WORK);
  assert_false(file_exists(at("out")));
}

static void test_unpack_damaged_archive_leaves_nothing(void **state) {
  (void)state;
  need_archive();
  assert_true(
      shell("head -c 1000000 /dev/urandom > big && tar czf x.tgz big && "
            "head -c 500000 x.tgz > cut.tgz && echo text > not.tgz && : > empty.tgz"));
  assert_int_equal(unpack_member(at("cut.tgz"), "big", at("out")), ERR_WORK);
  assert_says("cut.tgz");
  assert_int_equal(unpack_member(at("not.tgz"), "big", at("out")), ERR_WORK);
  assert_says("not.tgz");
  assert_int_equal(unpack_member(at("empty.tgz"), "big", at("out")), ERR_WORK);
  assert_int_equal(unpack_member(at("absent.tgz"), "big", at("out")), ERR_WORK);
  assert_says("absent.tgz");
  assert_false(file_exists(at("out")));
  assert_false(file_exists(at("out.part")));
}

/* ---- SGM ---- */

static Err sgm(const char *text, Str *out) {
  str_clear(out);
  return unpack_sgm_text(text, strlen(text), "x.sgm", out);
}

static void test_sgm_segments_become_lines(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"<srcset setid=\"n\" srclang=\"any\">\n<doc docid=\"a\">\n<p>\n<seg "
       "id=\"1\">One.</seg>\n"
       "<seg id=\"2\"> Two, too. </seg>\n</p>\n</doc>\n</srcset>\n",
       "One.\nTwo, too.\n"},
      {"<seg>a</seg><seg>b</seg>", "a\nb\n"},
      {"<SEG ID='1'>A</SEG>", "A\n"},
      {"<seg id=\"1\"></seg><seg id=\"2\">x</seg>", "\nx\n"},
      {"<seg id=\"a>b\">c</seg >", "c\n"},
      {"<seg>one\ntwo\r\n  three</seg>", "one two three\n"},
      {"<seg>a  b\tc</seg>", "a  b\tc\n"},
      {"<seg>\n\n a \n</seg>", "a\n"},
      {"<seg>&amp;&lt;&gt;&quot;&apos;</seg>", "&<>\"'\n"},
      {"<seg>&amp;lt;</seg>", "&lt;\n"},
      {"<seg>&#228;&#xE4;&#XE4;&#x1F600;</seg>", "\xC3\xA4\xC3\xA4\xC3\xA4\xF0\x9F\x98\x80\n"},
      {"<seg>a&#10;b&#13;c&#9;d</seg>", "a b c d\n"},
      {"<seg>AT&T &nbsp; & &; &#; &#x; &#0; &#xD800; &#x110000; &#99999999999; &#12</seg>",
       "AT&T &nbsp; & &; &#; &#x; &#0; &#xD800; &#x110000; &#99999999999; &#12\n"},
      {"<seg>1 < 2 <b>bold</b></seg>", "1 < 2 <b>bold</b>\n"},
      {"<!-- <seg>no</seg> --><seg>yes</seg>", "yes\n"},
      {"<segment>no</segment><seg>yes</seg>", "yes\n"},
  };
  Str out = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(sgm(cases[i].in, &out), ERR_OK);
    assert_string_equal(str_text(&out), cases[i].out);
  }
  str_free(&out);
}

static void test_sgm_malformed_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *in, *says;
  } cases[] = {
      {"<seg>a</seg>\n<seg>b", "byte 13"},
      {"ab<seg id=1>a<seg id=2>b</seg>", "byte 2"},
      {"<seg id=\"1>a</seg>", "byte 0"},
      {"<seg", "no <seg>"},
      {"<seg ", "byte 0"},
      {"<seg>", "byte 0"},
      {"<seg>a</seg", "byte 0"},
      {"<seg>a</seg>x</seg>", "byte 13"},
      {"<!-- <seg>a</seg>", "byte 0"},
      {"", "x.sgm"},
      {"just text\n", "x.sgm"},
  };
  Str out = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(sgm(cases[i].in, &out), ERR_WORK);
    assert_says("x.sgm");
    assert_says(cases[i].says);
  }
  assert_int_equal(unpack_sgm_text("<seg>a\0b</seg>", 14, "x.sgm", &out), ERR_WORK);
  assert_says("byte 6");
  str_free(&out);
}

static void test_unpack_sgm_member_is_written_as_text(void **state) {
  (void)state;
  assert_true(
      shell("printf '<seg id=\"1\">a &amp; b</seg>\\n' > good.sgm && echo '<seg>' > bad.sgm"));
  assert_int_equal(unpack_sgm(at("good.sgm"), at("out")), ERR_OK);
  assert_file("out", "a & b\n");
  assert_int_equal(unpack_sgm(at("bad.sgm"), at("none")), ERR_WORK);
  assert_says("bad.sgm");
  assert_false(file_exists(at("none")));
  assert_int_equal(unpack_sgm(at("absent.sgm"), at("none")), ERR_WORK);
}

static void test_unpack_out_of_memory_is_error(void **state) {
  (void)state;
  Str out = {0};
  for (uint64_t n = 1; n < 20; n++) {
    mem_fail_once(n);
    Err err = sgm("<seg>a</seg><seg>&amp;bcdefghijklmnopqrstuvwxyz</seg>", &out);
    mem_fail_once(0);
    if (!err)
      assert_string_equal(str_text(&out), "a\n&bcdefghijklmnopqrstuvwxyz\n");
    else
      assert_says("memory");
    str_free(&out);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(test_unpack_every_format_is_read),
      TEST(test_unpack_several_members_in_one_pass),
      TEST(test_unpack_large_member_is_written),
      TEST(test_unpack_absent_member_is_named),
      TEST(test_unpack_link_or_directory_is_refused),
      TEST(test_unpack_damaged_archive_leaves_nothing),
      TEST(test_sgm_segments_become_lines),
      TEST(test_sgm_malformed_is_refused),
      TEST(test_unpack_sgm_member_is_written_as_text),
      TEST(test_unpack_out_of_memory_is_error),
  };
  log_quiet(true);
  return cmocka_run_group_tests_name("unpack", tests, NULL, NULL);
}
