/* Aliases of options: former names and names of other programs are accepted or answered with a
 * hint, on the command line and in config files; the config of a run has current names only.
 * Depends on base/opt, cmd/aliases, cmd/options, cmocka. */
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "cmd/cmd.h"
#include "support.h"

static const OptSpec specs[] = {
    {"beam-size", OPT_COUNT, "N", "4", 1, 64, NULL, 1, false, "train", "A", "Beam"},
    {"batch-tokens", OPT_COUNT, "N", "9", 1, 0, NULL, 1, false, "train", "A", "Tokens"},
    {"precision", OPT_CHOICE, "P", "fp32", 0, 0, "fp32|fp16|bf16", 1, false, "train", "A", "P"},
    {"schedule", OPT_CHOICE, "S", "noam", 0, 0, "noam=transformer|constant=fixed=flat|cosine",
     1, false, "train", "A", "S"},
    {"sample", OPT_FLAG, NULL, NULL, 0, 0, NULL, 1, false, "train", "A", "Sample"},
    {"max-tokens", OPT_COUNT, "N", "255", 1, 0, NULL, 1, false, "prepare", "A", "Length"},
    {"out", OPT_TEXT, "DIR", NULL, 0, 0, NULL, 1, false, "prepare", "A", "Where"},
    {0},
};

static const OptCommand commands[] = {
    {.name = "train", .summary = "s", .usage = "u", .about = "a"},
    {.name = "prepare", .summary = "s", .usage = "u", .about = "a"},
    {0},
};

static const OptAlias aliases[] = {
    {"train", "beam", "beam-size", NULL, OPT_FORMER, NULL},
    {"train", "num-beams", "beam-size", NULL, "Hugging Face", NULL},
    {"train", "max-tokens", "batch-tokens", NULL, "fairseq", NULL},
    {"train", "fp16", "precision", "fp16", "fairseq", NULL},
    {"train", "fp32", "precision", "fp32", "nobody", NULL},
    {"train", "do-sample", "sample", NULL, "Hugging Face", NULL},
    {"train", "update-freq", NULL, NULL, "fairseq", "pass --micro-batches N * ranks"},
    {"train", "np", NULL, NULL, "mpirun", "pass --micro-batches N"},
    {"prepare", "folder", "out", NULL, OPT_FORMER, NULL},
    {"prepare", "destdir", "out", NULL, "fairseq", NULL},
    {0},
};

/* Parses words, separated by blanks, as typed after `trireme COMMAND`. */
static Err parse(OptSet **set, const char *command, const char *line) {
  static char text[512];
  static char *word[32];
  int n = 0;
  snprintf(text, sizeof text, "%s", line);
  for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) word[n++] = at;
  return opt_parse(set, opt_command(command), n, word);
}

static Err parse_config(OptSet *set, const char *text) {
  return opt_parse_config(set, text, strlen(text), "conf");
}

static void assert_recorded(const OptSet *set, const char *want) {
  Str record = {0};
  opt_record(set, &record);
  assert_string_equal(str_text(&record), want);
  str_free(&record);
}

static void test_opt_former_name_on_line_sets_option(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--beam 7"));
  assert_int_equal(opt_count(set, "beam-size"), 7);
  assert_recorded(set, "beam-size = 7\n");
  opt_free(set);
}

static void test_opt_former_name_in_config_sets_option(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", ""));
  OK(parse_config(set, "beam = 7\n"));
  assert_int_equal(opt_count(set, "beam-size"), 7);
  opt_free(set);
}

static void test_opt_alias_with_equals_sets_option(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--num-beams=5"));
  assert_int_equal(opt_count(set, "beam-size"), 5);
  opt_free(set);
}

static void test_opt_underscore_in_name_is_hyphen(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--num_beams 5 --batch_tokens 3"));
  assert_int_equal(opt_count(set, "beam-size"), 5);
  assert_int_equal(opt_count(set, "batch-tokens"), 3);
  opt_free(set);
}

static void test_opt_alias_and_option_last_one_wins(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--num-beams 5 --beam-size 6 --beam 7"));
  assert_int_equal(opt_count(set, "beam-size"), 7);
  assert_int_equal(opt_times(set, "beam-size"), 1);
  opt_free(set);
}

static void test_opt_alias_in_config_yields_to_line(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--beam-size 2"));
  OK(parse_config(set, "num-beams = 9\n"));
  assert_int_equal(opt_count(set, "beam-size"), 2);
  opt_free(set);
}

static void test_opt_flag_alias_sets_its_value(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--fp16 --do-sample"));
  assert_string_equal(opt_text(set, "precision"), "fp16");
  assert_true(opt_flag(set, "sample"));
  opt_free(set);
}

static void test_opt_flag_alias_switched_off_in_config_sets_nothing(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--no-do-sample"));
  OK(parse_config(set, "fp16 = no\n"));
  assert_string_equal(opt_text(set, "precision"), "fp32");
  assert_false(opt_flag(set, "sample"));
  opt_free(set);
}

static void test_opt_flag_alias_switched_off_on_line_is_refused(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "--no-fp16"), ERR_USAGE);
  assert_says(
      "turning fp16 off does not select another value; set precision to the value to use");
}

static void test_opt_flag_alias_of_default_switched_off_in_config_is_refused(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", ""));
  assert_int_equal(parse_config(set, "fp32 = no\n"), ERR_USAGE);
  assert_says(
      "turning fp32 off does not select another value; set precision to the value to use");
  opt_free(set);
}

static void test_opt_flag_alias_in_config_sets_its_value(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", ""));
  OK(parse_config(set, "fp16 = yes\n"));
  assert_string_equal(opt_text(set, "precision"), "fp16");
  opt_free(set);
}

static void test_opt_hint_is_an_error_that_says_what_to_pass(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "--update-freq 4"), ERR_USAGE);
  assert_string_equal(err_message(),
                      "--update-freq is an option of fairseq: pass --micro-batches N * ranks");
}

static void test_opt_hint_for_a_short_option_says_what_to_pass(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "-np 4"), ERR_USAGE);
  assert_string_equal(err_message(), "-np is an option of mpirun: pass --micro-batches N");
  assert_int_equal(parse(&set, "train", "-x 4"), ERR_USAGE);
  assert_non_null(strstr(err_message(), "there is no short option '-x'"));
}

static void test_opt_hint_in_config_is_an_error_with_the_line(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", ""));
  assert_int_equal(parse_config(set, "\nupdate-freq = 4\n"), ERR_USAGE);
  assert_says("conf:2: update-freq is an option of fairseq: pass --micro-batches");
  opt_free(set);
}

static void test_opt_bad_value_of_alias_names_both(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "--num-beams 99"), ERR_USAGE);
  assert_says("--num-beams (--beam-size): 99 is above the maximum, 64");
}

static void test_opt_misspelt_alias_suggests_the_option(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "--num-beasm 5"), ERR_USAGE);
  assert_says("did you mean --beam-size?");
}

static void test_opt_alias_of_another_command_is_refused_on_line(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "prepare", "--num-beams 5"), ERR_USAGE);
  assert_says("'prepare' has no option --num-beams");
}

static void test_opt_alias_of_another_command_is_ignored_in_config(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "prepare", ""));
  OK(parse_config(set, "num-beams = 5\nbeam = 5\nupdate-freq = 2\n"));
  assert_recorded(set, "");
  opt_free(set);
}

static void test_opt_alias_that_another_command_has_as_option_is_ignored_in_config(
    void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", ""));
  /* In a file for prepare and train, "max-tokens = 100" is the option of prepare. */
  OK(parse_config(set, "max-tokens = 100\n"));
  assert_int_equal(opt_count(set, "batch-tokens"), 9);
  opt_free(set);
  /* On the command line the alias is unambiguous. */
  OK(parse(&set, "train", "--max-tokens 100"));
  assert_int_equal(opt_count(set, "batch-tokens"), 100);
  opt_free(set);
}

static void test_opt_former_choice_is_stored_under_current_name(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--schedule flat"));
  assert_string_equal(opt_text(set, "schedule"), "constant");
  assert_recorded(set, "schedule = constant\n");
  opt_free(set);
}

static void test_opt_former_choice_of_the_default_is_not_recorded(void **state) {
  (void)state;
  OptSet *set;
  OK(parse(&set, "train", "--schedule transformer"));
  assert_recorded(set, "");
  opt_free(set);
}

static void test_opt_unknown_choice_lists_current_names_only(void **state) {
  (void)state;
  OptSet *set;
  assert_int_equal(parse(&set, "train", "--schedule linear"), ERR_USAGE);
  assert_says("'linear' is not one of noam, constant, cosine");
  assert_int_equal(parse(&set, "train", "--schedule noam=transformer"), ERR_USAGE);
}

static void test_opt_rename_replaces_former_names_and_choices(void **state) {
  (void)state;
  Str out = {0};
  opt_rename("train", "beam = 7\nschedule = fixed\nother = a b\nfp16 = yes\n\n# beam = 1",
             &out);
  assert_string_equal(
      str_text(&out),
      "beam-size = 7\nschedule = constant\nother = a b\nfp16 = yes\n\n# beam = 1");
  str_free(&out);
}

static void test_opt_help_aliases_lists_aliases_and_hints_once(void **state) {
  (void)state;
  Str out = {0};
  opt_help_aliases(&out);
  OK(str_check(&out));
  assert_non_null(strstr(out.s, "--beam (earlier versions), --num-beams (Hugging Face)"));
  assert_non_null(strstr(out.s, "--precision fp16"));
  assert_non_null(strstr(out.s, "(fairseq) pass --micro-batches N * ranks"));
  const char *first = strstr(out.s, "--num-beams");
  assert_null(strstr(first + 1, "--num-beams"));
  str_free(&out);
}

/* The commands of main.c, which is not in the library. */
static const OptCommand real_commands[] = {
    {.name = "prepare"},   {.name = "inspect"}, {.name = "train"},
    {.name = "translate"}, {.name = "score"},   {.name = "bench"},
    {.name = "help"},      {.name = "launch"},  {0},
};

static bool is_in(const char *list, const char *name) {
  char padded[256], word[64];
  snprintf(padded, sizeof padded, " %s ", list);
  snprintf(word, sizeof word, " %s ", name);
  return strstr(padded, word) != NULL;
}

static const OptSpec *find_option(const char *command, const char *name) {
  for (const OptSpec *s = cmd_options(); s->name; s++) {
    if (strcmp(s->name, name) == 0 && is_in(s->commands, command)) return s;
  }
  return NULL;
}

static void check_alias(const OptAlias *a, const char *command) {
  if (find_option(command, a->alias)) fail_msg("--%s is an option of %s", a->alias, command);
  for (const OptAlias *b = cmd_aliases; b < a; b++) {
    if (strcmp(a->alias, b->alias) == 0 && is_in(b->commands, command))
      fail_msg("--%s is there twice for %s", a->alias, command);
  }
  if (a->name && !find_option(command, a->name))
    fail_msg("--%s stands for --%s, which %s lacks", a->alias, a->name, command);
}

static void test_cmd_aliases_every_row_is_valid(void **state) {
  (void)state;
  for (const OptAlias *a = cmd_aliases; a->alias; a++) {
    if (!a->name == !a->hint) fail_msg("--%s needs either an option or a hint", a->alias);
    assert_non_null(a->origin);
    int found = 0;
    for (const OptCommand *v = real_commands; v->name; v++) {
      if (!is_in(a->commands, v->name)) continue;
      check_alias(a, v->name);
      found++;
    }
    if (!found) fail_msg("--%s is of no command", a->alias);
  }
}

static void test_cmd_aliases_every_flag_alias_sets_an_accepted_value(void **state) {
  (void)state;
  opt_tables(cmd_options(), real_commands, cmd_aliases);
  for (const OptAlias *a = cmd_aliases; a->alias; a++) {
    if (!a->value) continue;
    char line[64];
    OptSet *set;
    snprintf(line, sizeof line, "--%s", a->alias);
    OK(parse(&set, "train", line));
    assert_string_equal(opt_text(set, a->name), a->value);
    opt_free(set);
  }
}

/* Every option that a hint names must exist. */
static void test_cmd_aliases_hints_name_existing_options(void **state) {
  (void)state;
  for (const OptAlias *a = cmd_aliases; a->alias; a++) {
    for (const char *at = a->hint; at && (at = strstr(at, "--")); at += 2) {
      char name[64];
      snprintf(name, sizeof name, "%.*s",
               (int)strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-_"), at + 2);
      bool is_known = strcmp(name, "batch_type") == 0; /* batch_type is an option of OpenNMT */
      for (const OptCommand *v = real_commands; v->name && !is_known; v++)
        is_known = find_option(v->name, name) != NULL;
      if (!is_known) fail_msg("the hint of --%s names --%s", a->alias, name);
    }
  }
}

static int use_own_tables(void **state) {
  (void)state;
  opt_tables(specs, commands, aliases);
  return 0;
}

#define OWN(test) cmocka_unit_test_setup(test, use_own_tables)

int main(void) {
  const struct CMUnitTest tests[] = {
      OWN(test_opt_former_name_on_line_sets_option),
      OWN(test_opt_former_name_in_config_sets_option),
      OWN(test_opt_alias_with_equals_sets_option),
      OWN(test_opt_underscore_in_name_is_hyphen),
      OWN(test_opt_alias_and_option_last_one_wins),
      OWN(test_opt_alias_in_config_yields_to_line),
      OWN(test_opt_flag_alias_sets_its_value),
      OWN(test_opt_flag_alias_switched_off_in_config_sets_nothing),
      OWN(test_opt_flag_alias_switched_off_on_line_is_refused),
      OWN(test_opt_flag_alias_of_default_switched_off_in_config_is_refused),
      OWN(test_opt_flag_alias_in_config_sets_its_value),
      OWN(test_opt_hint_is_an_error_that_says_what_to_pass),
      OWN(test_opt_hint_for_a_short_option_says_what_to_pass),
      OWN(test_opt_hint_in_config_is_an_error_with_the_line),
      OWN(test_opt_bad_value_of_alias_names_both),
      OWN(test_opt_misspelt_alias_suggests_the_option),
      OWN(test_opt_alias_of_another_command_is_refused_on_line),
      OWN(test_opt_alias_of_another_command_is_ignored_in_config),
      OWN(test_opt_alias_that_another_command_has_as_option_is_ignored_in_config),
      OWN(test_opt_former_choice_is_stored_under_current_name),
      OWN(test_opt_former_choice_of_the_default_is_not_recorded),
      OWN(test_opt_unknown_choice_lists_current_names_only),
      OWN(test_opt_rename_replaces_former_names_and_choices),
      OWN(test_opt_help_aliases_lists_aliases_and_hints_once),
      cmocka_unit_test(test_cmd_aliases_every_row_is_valid),
      cmocka_unit_test(test_cmd_aliases_every_flag_alias_sets_an_accepted_value),
      cmocka_unit_test(test_cmd_aliases_hints_name_existing_options),
  };
  return cmocka_run_group_tests_name("opt_alias", tests, NULL, NULL);
}
