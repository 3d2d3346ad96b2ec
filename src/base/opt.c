/* Parses command lines and config files against the option table, resolves aliases, and
 * returns typed values. Depends on str, file, log, mem, err. */
#include "base/opt.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt_internal.h"
#include "base/utf8.h"

#define CONFIG_LIMIT ((size_t)1 << 20)

/* Sources of an option's value, by increasing priority. */
typedef enum { FROM_DEFAULT, FROM_TASK, FROM_RECIPE, FROM_CONFIG, FROM_LINE } Source;

typedef struct {
  char **word;
  int words;
} Occurrence;

typedef struct {
  Source source;
  Occurrence *item;
  size_t items, capacity;
  double number;          /* value of the last occurrence, for numeric types */
  bool has_other_default; /* opt_set_defaults replaced the default of the option table */
} Value;

struct OptSet {
  const OptCommand *command;
  Value *value; /* one entry per row of the option table */
  char **operand;
  size_t operands, operand_capacity;
};

static Err read_truth(const char *word, double *value) {
  static const char *const names[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(word, names[i]) == 0) {
      *value = (double)(i % 2);
      return ERR_OK;
    }
  }
  return err_set(ERR_USAGE, "'%s' is neither yes nor no", word);
}

/* An empty name of a file or directory is probably a shell variable that is not set. */
static Err check_name(const OptSpec *s, const char *word) {
  static const char *const kinds[] = {"FILE", "DIR", "PATH", "SRC"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !*word; i++)
    if (strstr(s->arg, kinds[i]))
      return err_set(ERR_USAGE, "the value is empty; pass %s", s->arg);
  return ERR_OK;
}

/* Parses one word as a value of the option's type. Numbers and flags are stored in `number`. */
static Err check_word(const OptSpec *s, const char *word, double *number) {
  int64_t whole = 0;
  char choice[64];
  Err err = ERR_OK;
  switch (s->type) {
    case OPT_FLAG:
      return read_truth(word, number);
    case OPT_COUNT:
      err = str_count(word, &whole);
      *number = (double)whole;
      break;
    case OPT_BYTES:
      err = str_bytes(word, &whole);
      *number = (double)whole;
      break;
    case OPT_SECONDS:
      err = str_seconds(word, number);
      break;
    case OPT_REAL:
      err = str_real(word, number);
      break;
    case OPT_TEXT:
      return check_name(s, word);
    case OPT_CHOICE:
      if (opt_read_choice_(s->choices, word, choice)) return ERR_OK;
      return opt_refuse_choice_(s->choices, word);
  }
  if (err) return err;
  if (*number < s->min)
    return err_set(ERR_USAGE, "%s is below the minimum, %.10g", word, s->min);
  if (s->max != 0 && *number > s->max)
    return err_set(ERR_USAGE, "%s is above the maximum, %.10g", word, s->max);
  return ERR_OK;
}

static void clear_value(Value *v) {
  for (size_t i = 0; i < v->items; i++) {
    for (int w = 0; w < v->item[i].words; w++) mem_free(v->item[i].word[w]);
    mem_free(v->item[i].word);
  }
  v->items = 0;
}

/* Adds an occurrence of an option. The new value replaces the earlier ones if its source has a
 * higher priority or the option has only one value. A value of lower priority is checked and then
 * ignored. */
static Err store_value(OptSet *set, const OptSpec *s, char **word, int words, Source source) {
  Value *v = &set->value[s - opt_specs_];
  double number = 0;
  char choice[64];
  for (int w = 0; w < words; w++) TRY(check_word(s, word[w], &number));
  if (source == FROM_TASK) v->has_other_default = true;
  if (source < v->source) return ERR_OK;
  if (source == FROM_LINE && source == v->source && s->repeat == OPT_ONCE)
    return err_set(ERR_USAGE, "given twice, '%s' and '%s', and takes only one; leave one out",
                   v->item[0].word[0], word[0]);
  if (source > v->source || s->repeat != OPT_ALL) clear_value(v);
  v->source = source;
  v->number = number;
  TRY(mem_grow(&v->item, &v->capacity, v->items + 1, sizeof *v->item));
  Occurrence *item = &v->item[v->items];
  *item = (Occurrence){0};
  TRY(mem_alloc(&item->word, (size_t)words, sizeof *item->word));
  v->items++;
  for (; item->words < words; item->words++) {
    const char *text = word[item->words];
    if (s->type == OPT_CHOICE && opt_read_choice_(s->choices, text, choice)) text = choice;
    TRY(mem_dup(&item->word[item->words], text, strlen(text)));
  }
  return ERR_OK;
}

/* Stores the value that a flag alias stands for; --fp16 means --precision fp16. A negated alias
 * does not say which other value to use: on the command line (--no-fp16), and for an alias of the
 * default value, it is an error. Otherwise "fp16 = no" in a config file stores nothing. */
static Err store_flag_alias(OptSet *set, const OptMatch *m, const char *word, Source source) {
  double is_on = 0;
  char value[64];
  char *words[] = {value};
  TRY(read_truth(word, &is_on));
  bool is_default = m->spec->initial && strcmp(m->spec->initial, m->alias->value) == 0;
  if (is_on == 0 && (source == FROM_LINE || is_default))
    return err_set(ERR_USAGE,
                   "turning %s off does not select another value; set %s to the value to use",
                   m->alias->alias, m->spec->name);
  if (is_on == 0) return ERR_OK;
  snprintf(value, sizeof value, "%s", m->alias->value);
  return store_value(set, m->spec, words, 1, source);
}

static int most_words(const OptSpec *s) {
  return s->type == OPT_FLAG ? 0 : s->most > 1 ? s->most : 1;
}

static bool is_option(const char *text) {
  return text[0] == '-' && text[1] == '-';
}

static Err read_config(OptSet *set, const char *path) {
  Str text = {0};
  Err err = file_read(path, CONFIG_LIMIT, &text);
  if (err)
    err = err_context("--config");
  else
    err = opt_parse_config(set, str_text(&text), text.len, path);
  str_free(&text);
  return err;
}

static Err refuse_option(const OptCommand *command, const char *name, size_t len) {
  char typed[64];
  snprintf(typed, sizeof typed, "%.*s", (int)(len < 60 ? len : 60), name);
  return err_set(ERR_USAGE, "'%s' has no option --%s%s", command->name, typed,
                 opt_suggest_option_(command, typed));
}

/* Adds the option's name to an error message: the name as typed and, for an alias, the option
 * that the alias stands for. */
static Err name_in_error(const OptMatch *m, const char *dashes) {
  if (m->alias)
    return err_context("%s%s (%s%s)", dashes, m->alias->alias, dashes, m->spec->name);
  return err_context("%s%s", dashes, m->spec->name);
}

/* Parses a flag: --name, --name=yes or --no-name. */
static Err parse_flag(OptSet *set, const OptMatch *m, const char *value) {
  char word[64];
  char *words[] = {word};
  snprintf(word, sizeof word, "%s", value);
  Err err = m->alias && m->alias->value ? store_flag_alias(set, m, word, FROM_LINE)
                                        : store_value(set, m->spec, words, 1, FROM_LINE);
  return err ? name_in_error(m, "--") : ERR_OK;
}

static bool is_flag(const OptMatch *m) {
  return m->spec && (m->spec->type == OPT_FLAG || (m->alias && m->alias->value));
}

static Err parse_option(OptSet *set, int argc, char **argv, int *at) {
  char *name = argv[*at] + 2;
  char *equals = strchr(name, '=');
  size_t len = equals ? (size_t)(equals - name) : strlen(name);
  OptMatch m = opt_match_name_(set->command, name, len);
  if (m.alias && m.alias->hint) return opt_refuse_with_hint_(m.alias, "--");
  if (!m.spec && !equals && str_starts(name, "no-")) {
    m = opt_match_name_(set->command, name + 3, len - 3);
    if (is_flag(&m)) return parse_flag(set, &m, "no");
    m.spec = NULL;
  }
  if (!m.spec) return refuse_option(set->command, name, len);
  if (is_flag(&m)) return parse_flag(set, &m, equals ? equals + 1 : "yes");
  char *word[8];
  int words = 0;
  int most = most_words(m.spec);
  if (equals) word[words++] = equals + 1;
  for (; words < most && *at + 1 < argc && !is_option(argv[*at + 1]) && !(equals && most == 1);
       (*at)++) {
    word[words++] = argv[*at + 1];
  }
  if (words == 0)
    return err_set(ERR_USAGE, "--%s needs a value: %s", m.spec->name, m.spec->arg);
  if (store_value(set, m.spec, word, words, FROM_LINE)) return name_in_error(&m, "--");
  if (strcmp(m.spec->name, "config") == 0) return read_config(set, word[0]);
  return ERR_OK;
}

static Err add_operand(OptSet *set, const char *text) {
  if (set->operands >= (size_t)set->command->max_operands) {
    const char *instead = set->command->instead;
    if (set->command->max_operands > 1)
      return err_set(
          ERR_USAGE,
          "'%s' takes at most %d arguments, and '%s' is one more; see 'trireme help %s'",
          set->command->name, set->command->max_operands, text, set->command->name);
    return err_set(ERR_USAGE, "'%s' takes no argument '%s'; %s%s'trireme help %s'",
                   set->command->name, text, instead ? instead : "",
                   instead ? "; see " : "see ", set->command->name);
  }
  TRY(mem_grow(&set->operand, &set->operand_capacity, set->operands + 1, sizeof *set->operand));
  TRY(mem_dup(&set->operand[set->operands], text, strlen(text)));
  set->operands++;
  return ERR_OK;
}

/* Refuses "-n 2" and the like, with a hint if another program has this option. */
static Err refuse_short(const OptCommand *command, const char *text) {
  OptMatch m = opt_match_name_(command, text + 1, strlen(text + 1));
  if (m.alias && m.alias->hint) return opt_refuse_with_hint_(m.alias, "-");
  return err_set(ERR_USAGE,
                 "there is no short option '%s': options begin with two hyphens; see 'trireme "
                 "help %s'",
                 text, command->name);
}

static Err parse_line(OptSet *set, int argc, char **argv) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    char *initial = (char *)(uintptr_t)s->initial;
    if (initial && opt_applies_(s, set->command))
      TRY(store_value(set, s, &initial, 1, FROM_DEFAULT));
  }
  bool options_end = false; /* True after the argument "--". */
  for (int i = 0; i < argc; i++) {
    if (options_end || argv[i][0] != '-' || !argv[i][1]) {
      TRY(add_operand(set, argv[i]));
      if (set->command->is_wrapper) options_end = true;
    } else if (strcmp(argv[i], "--") == 0) {
      options_end = true;
    } else if (is_option(argv[i])) {
      TRY(parse_option(set, argc, argv, &i));
    } else {
      return refuse_short(set->command, argv[i]);
    }
  }
  if (set->operands < (size_t)set->command->min_operands) {
    return err_set(ERR_USAGE, "'%s' needs %s; see 'trireme help %s'", set->command->name,
                   set->command->operands, set->command->name);
  }
  return ERR_OK;
}

Err opt_parse(OptSet **out, const OptCommand *command, int argc, char **argv) {
  size_t rows = 0;
  while (opt_specs_[rows].name) rows++;
  OptSet *set;
  TRY(mem_alloc(&set, 1, sizeof *set));
  set->command = command;
  Err err = mem_alloc(&set->value, rows, sizeof *set->value);
  if (!err) err = parse_line(set, argc, argv);
  if (err) {
    opt_free(set);
    set = NULL;
  }
  *out = set;
  return err;
}

/* Splits a config value into words, in place. In double quotes a word may contain blanks, and
 * \", \\ and \n are a quote, a backslash and a line break. Returns the number of words, or -1 if
 * the value cannot be split. */
static int split_words(char *text, char **word, int room) {
  int words = 0;
  for (char *at = text;;) {
    while (isspace((unsigned char)*at)) at++;
    if (*at == '\0' || *at == '#') return words;
    if (words == room) return -1;
    char *to = at;
    word[words++] = to;
    bool quoted = *at == '"';
    if (quoted) at++;
    while (*at && (quoted ? *at != '"' : !isspace((unsigned char)*at))) {
      bool escaped = quoted && *at == '\\' && at[1] && strchr("\"\\n", at[1]);
      at += escaped;
      *to++ = escaped && *at == 'n' ? '\n' : *at;
      at++;
    }
    if (quoted && *at != '"') return -1;
    bool last = *at == '\0';
    *to = '\0';
    if (last) return words;
    at++;
  }
}

/* Checks a name in a config file that is neither an option of this command nor a former name of
 * one. One file may serve several commands, so options and aliases of other commands are ignored;
 * a warning is printed if this command has an alias of the same name. Any other unknown name is
 * an error. */
static Err check_unused_name(OptSet *set, const OptMatch *m, const char *name, size_t len) {
  char typed[64];
  snprintf(typed, sizeof typed, "%.*s", (int)(len < 60 ? len : 60), name);
  if (opt_is_of_another_command_(set->command, name, len)) {
    if (m->alias)
      log_warn(
          "config option '%s' belongs to another command and is ignored by %s; for the "
          "option of %s write '%s'",
          typed, set->command->name, m->alias->origin,
          m->alias->name ? m->alias->name : "what 'trireme help aliases' says");
    return ERR_OK;
  }
  if (m->alias) return opt_refuse_with_hint_(m->alias, "");
  if (opt_is_alias_of_another_command_(set->command, name, len)) return ERR_OK;
  return err_set(ERR_USAGE, "there is no option '%s'%s", typed,
                 opt_suggest_option_(set->command, typed));
}

static bool is_usable_in_config(const OptSet *set, const OptMatch *m, const char *name,
                                size_t len) {
  if (!m->spec) return false;
  return !m->alias || opt_is_former_(m->alias) ||
         !opt_is_of_another_command_(set->command, name, len);
}

static Err parse_config_line(OptSet *set, char *line, Source source) {
  while (isspace((unsigned char)*line)) line++;
  if (*line == '\0' || *line == '#') return ERR_OK;
  size_t len = strcspn(line, " \t=");
  char *value = line + len + strspn(line + len, " \t");
  if (*value != '=')
    return err_set(ERR_USAGE, "expected 'option = value', or 'option = yes' for a flag");
  value++;
  OptMatch m = opt_match_name_(set->command, line, len);
  if (!is_usable_in_config(set, &m, line, len)) return check_unused_name(set, &m, line, len);
  const OptSpec *s = m.spec;
  if (strcmp(s->name, "config") == 0)
    return err_set(ERR_USAGE,
                   "a config file cannot contain 'config'; put all options into one file");
  char *word[8];
  int most = most_words(s) ? most_words(s) : 1;
  int words = split_words(value, word, most);
  if (words < 0)
    return err_set(ERR_USAGE,
                   "'%s' takes %s, at most %d %s; put words with blanks into double quotes",
                   s->name, s->arg ? s->arg : "yes or no", most, most == 1 ? "word" : "words");
  if (words == 0) return err_set(ERR_USAGE, "'%s' has no value; write one after '='", s->name);
  Err err = m.alias && m.alias->value ? store_flag_alias(set, &m, word[0], source)
                                      : store_value(set, s, word, words, source);
  return err ? name_in_error(&m, "") : ERR_OK;
}

static Err parse_config(OptSet *set, const char *text, size_t len, const char *where,
                        Source source) {
  Str line = {0};
  Err err = ERR_OK;
  size_t number = 0;
  for (size_t at = utf8_bom(text, len); at < len && !err;) {
    const char *end = memchr(text + at, '\n', len - at);
    size_t n = end ? (size_t)(end - text) - at : len - at;
    number++;
    str_clear(&line);
    str_addn(&line, text + at, n);
    err = str_check(&line);
    if (!err && memchr(text + at, '\0', n))
      err = err_set(ERR_USAGE, "the file contains a NUL byte; save it as UTF-8 text");
    if (!err) err = parse_config_line(set, line.s, source);
    if (err) err = err_context("%s:%zu", where, number);
    at += n + 1;
  }
  str_free(&line);
  return err;
}

Err opt_parse_config(OptSet *set, const char *text, size_t len, const char *where) {
  return parse_config(set, text, len, where, FROM_CONFIG);
}

Err opt_parse_recipe(OptSet *set, const char *text, size_t len, const char *where) {
  return parse_config(set, text, len, where, FROM_RECIPE);
}

Err opt_set_defaults(OptSet *set, const char *text, size_t len, const char *where) {
  return parse_config(set, text, len, where, FROM_TASK);
}

void opt_free(OptSet *set) {
  if (!set) return;
  for (const OptSpec *s = opt_specs_; s->name && set->value; s++) {
    clear_value(&set->value[s - opt_specs_]);
    mem_free(set->value[s - opt_specs_].item);
  }
  for (size_t i = 0; i < set->operands; i++) mem_free(set->operand[i]);
  mem_free(set->operand);
  mem_free(set->value);
  mem_free(set);
}

static const Value *value_of(const OptSet *set, const char *name) {
  const OptSpec *s = opt_find_spec_(set->command, name, strlen(name));
  assert(s && "option name missing from the table");
  return &set->value[s - opt_specs_];
}

Err opt_forget(OptSet *set, const char *name) {
  const OptSpec *s = opt_find_spec_(set->command, name, strlen(name));
  assert(s && "option name missing from the table");
  Value *v = &set->value[s - opt_specs_];
  char *initial = (char *)(uintptr_t)s->initial;
  clear_value(v);
  v->source = FROM_DEFAULT;
  v->number = 0;
  return initial ? store_value(set, s, &initial, 1, FROM_DEFAULT) : ERR_OK;
}

Err opt_keep_one(OptSet *set, const char *name, const char *other) {
  Source source = value_of(set, name)->source, against = value_of(set, other)->source;
  if (!opt_given(set, name) || !opt_given(set, other)) return ERR_OK;
  if (source == against)
    return err_set(ERR_USAGE, "--%s and --%s exclude each other: pass one of them", name,
                   other);
  return opt_forget(set, source < against ? name : other);
}

bool opt_given(const OptSet *set, const char *name) {
  return value_of(set, name)->source > FROM_TASK;
}

bool opt_flag(const OptSet *set, const char *name) {
  return value_of(set, name)->number != 0;
}

int64_t opt_count(const OptSet *set, const char *name) {
  return (int64_t)value_of(set, name)->number;
}

double opt_real(const OptSet *set, const char *name) {
  return value_of(set, name)->number;
}

const char *opt_text(const OptSet *set, const char *name) {
  const Value *v = value_of(set, name);
  return v->items ? v->item[v->items - 1].word[0] : NULL;
}

int opt_choice(const OptSet *set, const char *name, const char *names) {
  const char *text = opt_text(set, name);
  int i = 0;
  for (const char *at = names; text && *at; i++) {
    size_t n = strcspn(at, "|");
    if (strlen(text) == n && memcmp(text, at, n) == 0) return i;
    at += n + (at[n] == '|');
  }
  return 0;
}

int opt_times(const OptSet *set, const char *name) {
  return (int)value_of(set, name)->items;
}

int opt_words(const OptSet *set, const char *name, int i) {
  return value_of(set, name)->item[i].words;
}

const char *opt_word(const OptSet *set, const char *name, int i, int word) {
  const Occurrence *item = &value_of(set, name)->item[i];
  return word < item->words ? item->word[word] : NULL;
}

int opt_operands(const OptSet *set) {
  return (int)set->operands;
}

const char *opt_operand(const OptSet *set, int i) {
  return (size_t)i < set->operands ? set->operand[i] : NULL;
}

static void record_word(Str *out, const char *word) {
  if (*word && !strpbrk(word, " \t\n\r\v\f\"#\\")) {
    str_addf(out, " %s", word);
    return;
  }
  str_add(out, " \"");
  for (; *word; word++) {
    if (*word == '"' || *word == '\\' || *word == '\n') str_addc(out, '\\');
    str_addc(out, *word == '\n' ? 'n' : *word);
  }
  str_addc(out, '"');
}

/* Returns true if the option was given with its default value. */
static bool is_default(const OptSpec *s, const Value *v) {
  return s->initial && !v->has_other_default && v->items == 1 && v->item[0].words == 1 &&
         strcmp(v->item[0].word[0], s->initial) == 0;
}

static void record_value(Str *out, const OptSpec *s, const Value *v) {
  for (size_t i = 0; i < v->items; i++) {
    str_addf(out, "%s =", s->name);
    for (int w = 0; w < v->item[i].words; w++) record_word(out, v->item[i].word[w]);
    str_addc(out, '\n');
  }
}

void opt_record(const OptSet *set, Str *out) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    const Value *v = &set->value[s - opt_specs_];
    if (v->source <= FROM_TASK || strcmp(s->name, "config") == 0) continue;
    if (!is_default(s, v)) record_value(out, s, v);
  }
}

void opt_record_all(const OptSet *set, Str *out) {
  for (const OptSpec *s = opt_specs_; s->name; s++)
    if (strcmp(s->name, "config") != 0) record_value(out, s, &set->value[s - opt_specs_]);
}
