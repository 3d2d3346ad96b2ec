/* Config files and command lines as hostile bytes, parsed with the real option table.
 * Accepted options must be the same after opt_record and parsing again. Depends on
 * base/opt, cmd/options. */
#include "cmd/cmd.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const OptCommand commands[] = {
    {.name = "prepare", .max_operands = 0},
    {.name = "inspect", .operands = "a PATH", .min_operands = 1, .max_operands = 1},
    {.name = "score"},
    {.name = "bench"},
    {.name = "help", .operands = "a command", .max_operands = 1},
    {0},
};

static Err parse(OptSet **set, const OptCommand *command, const char *text, size_t len) {
  char operand[] = "x", *words[] = {operand};
  Err err = opt_parse(set, command, command->max_operands, words);
  REQUIRE(err == ERR_OK);
  err = opt_parse_config(*set, text, len, "fuzz");
  if (err) opt_free(*set);
  return err;
}

/* Parses the text of opt_record again: the values and their text must be the same. */
static void round_trip(const OptSet *set, const OptCommand *command) {
  Str first = {0}, second = {0};
  OptSet *again;
  opt_record(set, &first);
  REQUIRE(parse(&again, command, str_text(&first), first.len) == ERR_OK);
  opt_record(again, &second);
  REQUIRE(first.len == second.len && strcmp(str_text(&first), str_text(&second)) == 0);
  for (const OptSpec *s = cmd_options(); s->name; s++) {
    if (!strstr(s->commands, command->name) || strcmp(s->name, "config") == 0) continue;
    REQUIRE(opt_times(set, s->name) == opt_times(again, s->name));
    for (int i = 0; i < opt_times(set, s->name); i++) {
      REQUIRE(opt_words(set, s->name, i) == opt_words(again, s->name, i));
      for (int w = 0; w < opt_words(set, s->name, i); w++)
        REQUIRE(strcmp(opt_word(set, s->name, i, w), opt_word(again, s->name, i, w)) == 0);
    }
  }
  opt_free(again);
  str_free(&first);
  str_free(&second);
}

/* Parses the bytes as a command line; a zero byte ends each word. */
static void try_line(const OptCommand *command, const uint8_t *data, size_t size) {
  enum { MOST = 64 };
  char *text = malloc(size + 1), *words[MOST];
  int n = 0;
  REQUIRE(text);
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  for (size_t at = 0; at < size && n < MOST; at += strlen(text + at) + 1) {
    words[n++] = text + at;
    if (strncmp(text + at, "--config", 8) == 0) n--; /* skipped: it would read a file */
  }
  OptSet *set;
  if (opt_parse(&set, command, n, words) == ERR_OK) {
    round_trip(set, command);
    opt_free(set);
  }
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  opt_tables(cmd_options(), commands, cmd_aliases);
  if (size < 1) return 0;
  const OptCommand *command = &commands[(data[0] & 7) % 5];
  bool line = data[0] & 8;
  data++, size--;
  OptSet *set;
  if (line) {
    try_line(command, data, size);
  } else if (parse(&set, command, (const char *)data, size) == ERR_OK) {
    round_trip(set, command);
    opt_free(set);
  }
  return 0;
}
