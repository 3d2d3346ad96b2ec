/* Parsing of options: every type and its limits; precedence of command line, config file and
 * recipe; errors with file and line; opt_record; and the help of the real option table. Depends
 * on base/opt, cmd/options, cmocka. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/opt.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "support.h"

static const OptSpec specs[] = {
    {"fast", OPT_FLAG, NULL, NULL, 0, 0, NULL, 1, false, "row", "A", "Be quick"},
    {"warm", OPT_FLAG, NULL, "yes", 0, 0, NULL, 1, false, "row", "A", "Be warm"},
    {"count", OPT_COUNT, "N", "5", 1, 1000000, NULL, 1, false, "row", "A", "How many"},
    {"size", OPT_BYTES, "SIZE", "64M", 0, 0, NULL, 1, false, "row sail", "A", "How large"},
    {"wait", OPT_SECONDS, "TIME", "90s", 0, 86400, NULL, 1, false, "row", "B", "How long"},
    {"rate", OPT_REAL, "R", NULL, -1, 1, NULL, 1, false, "row", "B", "How fast"},
    {"name", OPT_TEXT, "TEXT", NULL, 0, 0, NULL, 1, false, "row", "B", "What it is called"},
    {"kind", OPT_CHOICE, "KIND", "oak", 0, 0, "oak|ash|elm", 1, false, "row", "B",
     "Which wood"},
    {"pair", OPT_TEXT, "A B", NULL, 0, 0, NULL, 2, false, "row", "C", "One or two words"},
    {"file", OPT_TEXT, "A B", NULL, 0, 0, NULL, 2, true, "row", "C", "Again and again"},
    {"input", OPT_TEXT, "FILE", NULL, 0, 0, NULL, 1, OPT_ONCE, "row", "C", "Text to read"},
    {"config", OPT_TEXT, "FILE", NULL, 0, 0, NULL, 1, false, "*", "C", "A file of these"},
    {"mast", OPT_COUNT, "N", "2", 0, 0, NULL, 1, false, "sail", "A", "How many masts"},
    {0},
};

static const OptCommand commands[] = {
    {.name = "row",
     .summary = "s",
     .usage = "u",
     .about = "a",
     .operands = "a PATH",
     .max_operands = 2},
    {.name = "sail",
     .summary = "s",
     .usage = "u",
     .about = "a",
     .operands = "a PATH",
     .min_operands = 1,
     .max_operands = 1},
    {0},
};

/* Parses words, separated by '|', as typed after `trireme row`. */
static Err parse_as(OptSet **set, const char *command, const char *line) {
  static char text[2 * FILE_PATH_MAX];
  static char *word[64];
  int n = 0;
  assert_true(strlen(line) < sizeof text);
  strcpy(text, line);
  for (char *at = text; *line && at; n++) {
    word[n] = at;
    at = strchr(at, '|');
    if (at) *at++ = '\0';
  }
  return opt_parse(set, opt_command(command), n, word);
}

static Err parse(OptSet **set, const char *line) {
  return parse_as(set, "row", line);
}

static void assert_refused(const char *line, const char *words) {
  OptSet *set;
  if (parse(&set, line) != ERR_USAGE) fail_msg("'%s' is taken", line);
  assert_null(set);
  assert_says(words);
}

static Err config(OptSet *set, const char *text) {
  return opt_parse_config(set, text, strlen(text), "some/config");
}

static void test_opt_nothing_given_has_defaults(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, ""));
  assert_false(opt_flag(set, "fast"));
  assert_true(opt_flag(set, "warm"));
  assert_int_equal(opt_count(set, "count"), 5);
  assert_int_equal(opt_count(set, "size"), 64 << 20);
  assert_true(opt_real(set, "wait") == 90);
  assert_null(opt_text(set, "name"));
  assert_string_equal(opt_text(set, "kind"), "oak");
  assert_int_equal(opt_times(set, "file"), 0);
  assert_false(opt_given(set, "count"));
  assert_int_equal(opt_operands(set), 0);
  assert_null(opt_operand(set, 0));
  Str record = {0};
  opt_record(set, &record);
  assert_string_equal(str_text(&record), "");
  str_free(&record);
  opt_free(set);
}

static void test_opt_record_all_has_given_values_and_defaults(void **state) {
  (void)state;
  OptSet *set;
  Str record = {0};
  OK(parse(&set, "--count=7|--name|a b|--file|x|y|--file|z"));
  opt_record_all(set, &record);
  assert_string_equal(str_text(&record),
                      "warm = yes\ncount = 7\nsize = 64M\nwait = 90s\nname = \"a b\"\n"
                      "kind = oak\nfile = x y\nfile = z\n");
  str_free(&record);
  opt_free(set);
}

static void test_opt_every_type_is_parsed(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(
      &set,
      "here|--count=25k|--size|2G|--wait|1h30m|--rate|-0.5|--name=a=b|--kind|elm|--pair|x|y|"
      "--fast|there"));
  assert_int_equal(opt_count(set, "count"), 25000);
  assert_int_equal(opt_count(set, "size"), (int64_t)2 << 30);
  assert_true(opt_real(set, "wait") == 5400);
  assert_true(opt_real(set, "rate") == -0.5);
  assert_string_equal(opt_text(set, "name"), "a=b");
  assert_string_equal(opt_text(set, "kind"), "elm");
  assert_true(opt_flag(set, "fast"));
  assert_int_equal(opt_words(set, "pair", 0), 2);
  assert_string_equal(opt_word(set, "pair", 0, 0), "x");
  assert_string_equal(opt_word(set, "pair", 0, 1), "y");
  assert_null(opt_word(set, "pair", 0, 2));
  assert_int_equal(opt_operands(set), 2);
  assert_string_equal(opt_operand(set, 0), "here");
  assert_string_equal(opt_operand(set, 1), "there");
  assert_true(opt_given(set, "count") && !opt_given(set, "warm"));
  opt_free(set);
}

static void test_opt_flag_is_switched_off_by_no(void **state) {
  (void)state;
  static const struct {
    const char *line;
    bool fast, warm;
  } cases[] = {{"--fast", true, true},
               {"--no-warm", false, false},
               {"--fast=no|--warm=off", false, false},
               {"--fast=yes|--warm=0", true, false},
               {"--fast=true|--warm=false", true, false},
               {"--fast=1|--no-fast", false, true},
               {"--no-fast|--fast=on", true, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    OptSet *set;
    OK(parse(&set, cases[i].line));
    assert_true(opt_flag(set, "fast") == cases[i].fast);
    assert_true(opt_flag(set, "warm") == cases[i].warm);
    opt_free(set);
  }
  assert_refused("--fast=maybe", "maybe");
  assert_refused("--no-fast=yes", "no-fast");
  assert_refused("--no-count", "no-count");
}

static void test_opt_flag_takes_no_following_word(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "--fast|no")); /* "no" is an operand, not the value of --fast. */
  assert_true(opt_flag(set, "fast"));
  assert_string_equal(opt_operand(set, 0), "no");
  opt_free(set);
}

static void test_opt_repeated_option_keeps_all_or_last(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "--file|a|b|--count|6|--file|c|--file=d|e|--count|7"));
  assert_int_equal(opt_count(set, "count"), 7); /* The last --count is kept. */
  assert_int_equal(opt_times(set, "count"), 1);
  assert_int_equal(opt_times(set, "file"), 3); /* every --file is kept */
  assert_int_equal(opt_words(set, "file", 0), 2);
  assert_int_equal(opt_words(set, "file", 1), 1);
  assert_string_equal(opt_word(set, "file", 1, 0), "c");
  assert_null(opt_word(set, "file", 1, 1));
  assert_string_equal(opt_word(set, "file", 2, 1), "e");
  assert_string_equal(opt_text(set, "file"), "d"); /* first word of the last --file */
  opt_free(set);
}

static void test_opt_file_to_read_given_twice_is_refused(void **state) {
  (void)state;
  OptSet *set;
  assert_refused("--input|a|--input|b",
                 "--input: given twice, 'a' and 'b', and takes only one; leave one out");
  assert_refused("--input=a|--input|a", "--input: given twice");
  /* A default and a config file are not repetitions, in any order. */
  OK(parse(&set, "--input|a"));
  OK(config(set, "input = b\ninput = c\n"));
  assert_string_equal(opt_text(set, "input"), "a");
  opt_free(set);
  OK(parse(&set, ""));
  OK(config(set, "input = b\ninput = c\n"));
  assert_string_equal(opt_text(set, "input"), "c");
  opt_free(set);
}

static void test_opt_odd_values_are_accepted(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "--name|-|--pair|-|x|--file="));
  assert_string_equal(opt_text(set, "name"), "-");
  assert_string_equal(opt_word(set, "pair", 0, 0), "-");
  assert_string_equal(opt_text(set, "file"), "");
  opt_free(set);
  OK(parse(&set, "-"));
  assert_string_equal(opt_operand(set, 0), "-");
  opt_free(set);
}

static void test_opt_wrong_calls_are_errors_with_the_reason(void **state) {
  (void)state;
  assert_refused("--count|0", "below the minimum, 1");
  assert_refused("--count|2M", "above the maximum, 1000000");
  assert_refused("--count|-3", "--count");
  assert_refused("--count|many", "whole number");
  assert_refused("--count|1.5", "whole number");
  assert_refused("--size|1.5x", "size in bytes");
  assert_refused("--size|-1", "below");
  assert_refused("--wait|soon", "time such as");
  assert_refused("--wait|2d", "above");
  assert_refused("--rate|nan", "not a number");
  assert_refused("--rate|1.01", "above");
  assert_refused("--kind|pine", "oak, ash, elm");
  assert_refused("--kind|oak|--kind=", "oak, ash, elm");
  assert_refused("--kind=oak|x|y|z", "takes at most 2 arguments, and 'z' is one more");
  assert_refused("--name", "--name needs a value: TEXT");
  assert_refused("--name|--fast", "--name needs a value");
  assert_refused("--cuont|3", "did you mean --count?");
  assert_refused("--nam", "did you mean --name?");
  assert_refused("--zebra", "trireme help row");
  assert_refused("--mast|3", "'row' has no option --mast");
  assert_refused("-n|5", "no short option");
  assert_refused("--=5", "no option");
  OptSet *set;
  assert_int_equal(parse_as(&set, "sail", ""), ERR_USAGE);
  assert_says("'sail' needs a PATH");
  char endless[600];
  memset(endless, 'x', sizeof endless);
  memcpy(endless, "--", 2);
  endless[sizeof endless - 1] = '\0';
  assert_refused(endless, "no option");
}

static void test_opt_misspelt_command_suggests_the_nearest(void **state) {
  (void)state;
  assert_non_null(opt_command("sail"));
  assert_null(opt_command("sai"));
  assert_string_equal(opt_suggest_command("sall"), "; did you mean 'sail'?");
  assert_string_equal(opt_suggest_command("swim"), "; 'trireme help' lists the commands");
}

static void test_opt_config_file_is_parsed(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, ""));
  OK(config(set,
            "# a comment\n"
            "\n"
            "   count = 7   # and another\n"
            "\tsize=1k\r\n"
            "fast = yes\n"
            "name = \"two words # no comment\"\n"
            "pair = \"a \\\"b\\\" \\\\ c\" d\n"
            "file = a b\n"
            "file = c#d\n"
            "count = 8\n"
            "kind = ash")); /* the last line has no line break */
  assert_int_equal(opt_count(set, "count"), 8);
  assert_int_equal(opt_count(set, "size"), 1024);
  assert_true(opt_flag(set, "fast"));
  assert_string_equal(opt_text(set, "name"), "two words # no comment");
  assert_string_equal(opt_word(set, "pair", 0, 0), "a \"b\" \\ c");
  assert_string_equal(opt_word(set, "pair", 0, 1), "d");
  assert_int_equal(opt_times(set, "file"), 2);
  assert_string_equal(opt_word(set, "file", 1, 0), "c#d");
  assert_string_equal(opt_text(set, "kind"), "ash");
  opt_free(set);
}

static void test_opt_config_error_names_file_and_line(void **state) {
  (void)state;
  static const struct {
    const char *text, *where, *words;
  } cases[] = {
      {"\ncount = many\n", "some/config:2: ", "'many' is not a whole number"},
      {"count = 0\n", "some/config:1: ", "count: 0 is below"},
      {"count 5\n", "some/config:1: ", "option = value"},
      {"count\n", "some/config:1: ", "option = value"},
      {"fast\n", "some/config:1: ", "'option = yes' for a flag"},
      {"count =\n", "some/config:1: ", "has no value"},
      {"count = # 5\n", "some/config:1: ", "has no value"},
      {"count = 5 6\n", "some/config:1: ", "at most 1 word"},
      {"pair = a b c\n", "some/config:1: ", "at most 2 words"},
      {"name = \"no end\n", "some/config:1: ", "quote"},
      {"fast = perhaps\n", "some/config:1: ", "neither yes nor no"},
      {"# one\n\n\ncuont = 3\n", "some/config:4: ", "did you mean --count?"},
      {"= 5\n", "some/config:1: ", "no option"},
      {"config = more\n", "some/config:1: ", "cannot contain 'config'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    OptSet *set;
    OK(parse(&set, ""));
    if (config(set, cases[i].text) != ERR_USAGE) fail_msg("taken: %s", cases[i].text);
    assert_memory_equal(err_message(), cases[i].where, strlen(cases[i].where));
    assert_says(cases[i].words);
    opt_free(set);
  }
  OptSet *set;
  OK(parse(&set, ""));
  assert_int_equal(opt_parse_config(set, "name = a\0b\n", 11, "some/config"), ERR_USAGE);
  assert_says("some/config:1: the file contains a NUL byte");
  opt_free(set);
}

static void test_opt_config_ignores_options_of_other_commands(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, ""));
  OK(config(set, "mast = 3\nsize = 2k\n"));
  assert_int_equal(opt_count(set, "size"), 2048);
  opt_free(set);
  OK(parse_as(&set, "sail", "path"));
  OK(config(set, "mast = 3\nsize = 2k\ncount = 9\n"));
  assert_int_equal(opt_count(set, "mast"), 3);
  assert_int_equal(opt_count(set, "size"), 2048);
  opt_free(set);
}

/* The command line must override the config file, which must override the recipe, in any order of
 * reading. */
static void test_opt_line_overrides_config_overrides_recipe(void **state) {
  (void)state;
  static const char recipe[] = "count = 1\nsize = 1\nname = recipe\nfile = r1\nfile = r2\n";
  static const char file[] = "count = 2\nsize = 2\nfile = c1\n";
  for (int order = 0; order < 2; order++) {
    OptSet *set;
    OK(parse(&set, "--count|3"));
    if (order) OK(config(set, file));
    OK(opt_parse_recipe(set, recipe, strlen(recipe), "recipe"));
    if (!order) OK(config(set, file));
    assert_int_equal(opt_count(set, "count"), 3);
    assert_int_equal(opt_count(set, "size"), 2);
    assert_string_equal(opt_text(set, "name"), "recipe");
    /* The config replaces the recipe's occurrences instead of adding to them. */
    assert_int_equal(opt_times(set, "file"), 1);
    assert_string_equal(opt_text(set, "file"), "c1");
    assert_true(opt_given(set, "name"));
    /* An overridden value must still be valid. */
    assert_int_equal(opt_parse_recipe(set, "count = x\n", 10, "recipe"), ERR_USAGE);
    assert_says("recipe:1: count");
    opt_free(set);
  }
}

static void test_opt_config_option_reads_the_file(void **state) {
  (void)state;
  char path[FILE_PATH_MAX], line[FILE_PATH_MAX + 64];
  OptSet *set;
  OK(file_join(path, scratch, "row.conf"));
  OK(file_write(path, "count = 7\nsize = 3\n", 19));
  snprintf(line, sizeof line, "--size|4|--config|%s", path);
  OK(parse(&set, line));
  assert_int_equal(opt_count(set, "count"), 7);
  assert_int_equal(opt_count(set, "size"), 4);
  opt_free(set);
  snprintf(line, sizeof line, "--config|%s|--size|5", path);
  OK(parse(&set, line));
  assert_int_equal(opt_count(set, "size"), 5);
  opt_free(set);
  OK(file_write(path, "count = 7\n\nsize = x\n", 20));
  assert_int_equal(parse(&set, line), ERR_USAGE);
  snprintf(line, sizeof line, "%s:3: ", path);
  assert_says(line);
  assert_int_equal(parse(&set, "--config|/no/such/file"), ERR_WORK);
  assert_says("/no/such/file");
}

static void test_opt_record_parses_to_the_same_options(void **state) {
  (void)state;
  static const char *const hostile[] = {
      "plain",       "two words",       "a\"b", "back\\slash", "#",  "a#b", "",  " ",
      "tab\there",   "line\nbreak = 5", "cr\r", "\\n",         "\\", "\"",  "=", "\v\f",
      "\xc3\xa4\xff"};
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
    OptSet *set, *again;
    char *line[] = {"--name",
                    (char *)(uintptr_t)hostile[i],
                    "--file",
                    "x",
                    (char *)(uintptr_t)hostile[i],
                    "--file",
                    (char *)(uintptr_t)hostile[i],
                    "--fast",
                    "--no-warm",
                    "--count",
                    "25k",
                    "--rate",
                    "0.125",
                    "--wait",
                    "1h"};
    OK(opt_parse(&set, opt_command("row"), sizeof line / sizeof *line, line));
    Str record = {0};
    opt_record(set, &record);
    OK(str_check(&record));
    OK(parse(&again, ""));
    OK(opt_parse_config(again, record.s, record.len, "record"));
    assert_string_equal(opt_text(again, "name"), hostile[i]);
    assert_int_equal(opt_times(again, "file"), 2);
    assert_string_equal(opt_word(again, "file", 0, 0), "x");
    assert_string_equal(opt_word(again, "file", 0, 1), hostile[i]);
    assert_string_equal(opt_word(again, "file", 1, 0), hostile[i]);
    assert_int_equal(opt_words(again, "file", 1), 1);
    assert_true(opt_flag(again, "fast") && !opt_flag(again, "warm"));
    assert_int_equal(opt_count(again, "count"), 25000);
    assert_true(opt_real(again, "rate") == 0.125 && opt_real(again, "wait") == 3600);
    assert_false(opt_given(again, "size")); /* opt_record omits default values */
    Str twice = {0};
    opt_record(again, &twice);
    assert_string_equal(record.s, twice.s);
    str_free(&record);
    str_free(&twice);
    opt_free(set);
    opt_free(again);
  }
}

/* The real option table. The table of commands is in main.c, which is not in the library, so this
 * one is built from the commands that the options name. */
static const OptCommand *real_commands(void) {
  static OptCommand list[32];
  static char names[1024];
  size_t n = 0, used = 0;
  memset(list, 0, sizeof list);
  for (const OptSpec *s = cmd_options(); s->name; s++) {
    for (const char *at = s->commands; *at; at += strspn(at, " ")) {
      size_t len = strcspn(at, " ");
      char *name = names + used;
      assert_true(used + len + 1 <= sizeof names);
      memcpy(name, at, len);
      name[len] = '\0';
      at += len;
      opt_tables(cmd_options(), list, cmd_aliases);
      if (opt_command(name)) continue;
      assert_true(n + 1 < sizeof list / sizeof *list);
      list[n++] = (OptCommand){.name = name, .summary = "s", .usage = "u", .about = "a"};
      used += len + 1;
    }
  }
  assert_true(n >= 4);
  return list;
}

static bool is_of(const OptSpec *s, const OptCommand *v) {
  char padded[256], name[64];
  snprintf(padded, sizeof padded, " %s ", s->commands);
  snprintf(name, sizeof name, " %s ", v->name);
  return strstr(padded, name) != NULL;
}

static void test_cmd_options_every_row_is_valid(void **state) {
  (void)state;
  const OptCommand *all = real_commands();
  for (const OptSpec *s = cmd_options(); s->name; s++) {
    assert_true(s->help && s->help[0] && s->group && s->commands && s->most >= 1 &&
                s->most <= 8);
    assert_true(s->type == OPT_FLAG || (s->arg && s->arg[0]));
    assert_true(s->type == OPT_CHOICE || s->type == OPT_TEXT || !s->choices);
    assert_true(s->type != OPT_CHOICE || s->choices);
    if (s->help[strlen(s->help) - 1] == '.') fail_msg("--%s: no full stop", s->name);
    for (const OptSpec *t = cmd_options(); t < s;
         t++) { /* A name must have one meaning within a command. */
      if (strcmp(s->name, t->name) != 0) continue;
      for (const OptCommand *v = all; v->name; v++) {
        if (is_of(s, v) && is_of(t, v))
          fail_msg("--%s is there twice for %s", s->name, v->name);
      }
    }
  }
  for (const OptCommand *v = all; v->name; v++) {
    OptSet *set;
    OK(opt_parse(&set, v, 0, NULL)); /* Every default must be a valid value. */
    opt_free(set);
  }
}

/* Asserts that no line is wider than 80 columns, one column per character. */
static void assert_narrow(const char *text, const char *what) {
  while (*text) {
    const char *end = strchr(text, '\n');
    size_t columns = 0;
    assert_non_null(end);
    for (const char *at = text; at < end; columns++) {
      uint32_t code;
      size_t n = utf8_decode(at, end, &code);
      assert_true(n > 0);
      at += n;
    }
    if (columns > 80) fail_msg("%s: %.*s", what, (int)(end - text), text);
    if (end > text && end[-1] == ' ') fail_msg("%s: a blank at the end of a line", what);
    text = end + 1;
  }
}

static void test_cmd_options_help_fits_80_columns(void **state) {
  (void)state;
  const OptCommand *all = real_commands();
  Str out = {0};
  opt_help(&out, NULL);
  assert_narrow(str_text(&out), "help");
  for (const OptCommand *v = all; v->name; v++) {
    str_clear(&out);
    opt_help(&out, v);
    OK(str_check(&out));
    assert_narrow(out.s, v->name);
    for (const OptSpec *s = cmd_options(); s->name; s++) {
      if (!is_of(s, v)) continue;
      char name[64];
      snprintf(name, sizeof name, "  --%s", s->name);
      bool is_hidden = strcmp(s->group, OPT_HIDDEN) == 0;
      if (!strstr(out.s, name) && !is_hidden) fail_msg("help %s lacks --%s", v->name, s->name);
    }
  }
  str_free(&out);
}

static void append_fast_default(Str *out, const OptSpec *row) {
  if (strcmp(row->name, "rate") == 0) str_add(out, "0.5 for a race");
  if (strcmp(row->name, "kind") == 0) str_add(out, "ash for a race");
}

static void test_opt_help_has_special_defaults(void **state) {
  (void)state;
  Str out = {0};
  opt_set_special_defaults(append_fast_default);
  opt_help(&out, opt_command("row"));
  opt_set_special_defaults(NULL);
  OK(str_check(&out));
  assert_non_null(strstr(out.s, "How fast (default 0.5 for a race)"));
  assert_non_null(strstr(out.s, "Which wood: oak, ash, elm (default oak; ash for a"));
  assert_non_null(strstr(out.s, "How many (default 5)"));
  str_free(&out);
}

static int use_own_tables(void **state) {
  (void)state;
  opt_tables(specs, commands, NULL);
  return 0;
}

#define OWN(test) cmocka_unit_test_setup(test, use_own_tables)

int main(void) {
  const struct CMUnitTest tests[] = {
      OWN(test_opt_nothing_given_has_defaults),
      OWN(test_opt_record_all_has_given_values_and_defaults),
      OWN(test_opt_every_type_is_parsed),
      OWN(test_opt_flag_is_switched_off_by_no),
      OWN(test_opt_flag_takes_no_following_word),
      OWN(test_opt_repeated_option_keeps_all_or_last),
      OWN(test_opt_file_to_read_given_twice_is_refused),
      OWN(test_opt_odd_values_are_accepted),
      OWN(test_opt_wrong_calls_are_errors_with_the_reason),
      OWN(test_opt_misspelt_command_suggests_the_nearest),
      OWN(test_opt_config_file_is_parsed),
      OWN(test_opt_config_error_names_file_and_line),
      OWN(test_opt_config_ignores_options_of_other_commands),
      OWN(test_opt_line_overrides_config_overrides_recipe),
      OWN(test_opt_config_option_reads_the_file),
      OWN(test_opt_record_parses_to_the_same_options),
      OWN(test_opt_help_has_special_defaults),
      cmocka_unit_test(test_cmd_options_every_row_is_valid),
      cmocka_unit_test(test_cmd_options_help_fits_80_columns),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
