/* Parsing of command lines and config files against the option table, and the
 * typed values that come of it. Relies on str, file, mem, err. */
#include "base/opt.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/opt_internal.h"
#include "base/utf8.h"

#define CONFIG_LIMIT ((size_t)1 << 20)

const OptSpec *opt_specs_;
const OptVerb *opt_verbs_;

/* From weak to strong. */
typedef enum { FROM_DEFAULT, FROM_RECIPE, FROM_CONFIG, FROM_LINE } Source;

typedef struct {
  char **word;
  int words;
} Occurrence;

typedef struct {
  Source source;
  Occurrence *item;
  size_t items, capacity;
  double number; /* of the last occurrence, for numeric types */
} Value;

struct OptSet {
  const OptVerb *verb;
  Value *value; /* one per row of the table */
  char **operand;
  size_t operands, operand_capacity;
};

void opt_tables(const OptSpec *specs, const OptVerb *verbs) {
  opt_specs_ = specs;
  opt_verbs_ = verbs;
}

const OptVerb *opt_verb(const char *name) {
  for (const OptVerb *v = opt_verbs_; v->name; v++) {
    if (strcmp(v->name, name) == 0) return v;
  }
  return NULL;
}

bool opt_applies_(const OptSpec *spec, const OptVerb *verb) {
  size_t n = strlen(verb->name);
  for (const char *at = spec->verbs; (at = strstr(at, verb->name)); at += n) {
    if ((at == spec->verbs || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  }
  return strcmp(spec->verbs, "*") == 0;
}

/* Near enough to be meant: a third of the letters may be wrong, or it begins so. */
static bool is_near(const char *typed, const char *name, size_t *best) {
  size_t d = str_distance(typed, name);
  if (strlen(typed) >= 3 && str_starts(name, typed) && d > 1) d = 1;
  if (d >= *best || 3 * d > strlen(name) + 1) return false;
  *best = d;
  return true;
}

const char *opt_suggest_verb(const char *name) {
  static char text[96];
  size_t best = SIZE_MAX;
  snprintf(text, sizeof text, "; 'trireme help' lists the verbs");
  for (const OptVerb *v = opt_verbs_; v->name; v++) {
    if (is_near(name, v->name, &best))
      snprintf(text, sizeof text, "; did you mean '%s'?", v->name);
  }
  return text;
}

static const char *suggest_option(const OptVerb *verb, const char *name) {
  static char text[96];
  size_t best = SIZE_MAX;
  snprintf(text, sizeof text, "; see 'trireme help %s'", verb->name);
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    if (opt_applies_(s, verb) && is_near(name, s->name, &best)) {
      snprintf(text, sizeof text, "; did you mean --%s?", s->name);
    }
  }
  return text;
}

static const OptSpec *find(const OptVerb *verb, const char *name, size_t len) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    if (strlen(s->name) == len && memcmp(s->name, name, len) == 0 && opt_applies_(s, verb))
      return s;
  }
  return NULL;
}

static bool is_choice(const char *choices, const char *word) {
  size_t n = strlen(word);
  for (const char *at = choices; n && *at;) {
    const char *bar = strchr(at, '|');
    size_t len = bar ? (size_t)(bar - at) : strlen(at);
    if (len == n && memcmp(at, word, n) == 0) return true;
    at += len + (bar != NULL);
  }
  return false;
}

/* Names the choices, and the one that was meant. */
static Err refuse_choice(const char *choices, const char *word) {
  Str list = {0};
  char name[64], meant[64] = "";
  size_t best = SIZE_MAX;
  for (const char *at = choices; *at;) {
    size_t len = strcspn(at, "|");
    snprintf(name, sizeof name, "%.*s", (int)len, at);
    if (is_near(word, name, &best)) memcpy(meant, name, sizeof name);
    str_addf(&list, "%s%s", list.len ? ", " : "", name);
    at += len + (at[len] == '|');
  }
  Err err = err_set(ERR_USAGE, "'%.80s' is not one of %s%s%s%s", word, str_text(&list),
                    *meant ? "; did you mean " : "", meant, *meant ? "?" : "");
  str_free(&list);
  return err;
}

static Err truth(const char *word, double *value) {
  static const char *const names[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(word, names[i]) == 0) {
      *value = (double)(i % 2);
      return ERR_OK;
    }
  }
  return err_set(ERR_USAGE, "'%s' is neither yes nor no", word);
}

/* Reads one word as the option's type. */
static Err check(const OptSpec *s, const char *word, double *number) {
  int64_t whole = 0;
  Err err = ERR_OK;
  switch (s->type) {
    case OPT_FLAG:
      return truth(word, number);
    case OPT_COUNT:
      err = str_count(word, &whole), *number = (double)whole;
      break;
    case OPT_BYTES:
      err = str_bytes(word, &whole), *number = (double)whole;
      break;
    case OPT_SECONDS:
      err = str_seconds(word, number);
      break;
    case OPT_REAL:
      err = str_real(word, number);
      break;
    case OPT_TEXT:
      return ERR_OK;
    case OPT_CHOICE:
      if (is_choice(s->choices, word)) return ERR_OK;
      return refuse_choice(s->choices, word);
  }
  if (err) return err;
  if (*number < s->min)
    return err_set(ERR_USAGE, "%s is below the minimum, %.10g", word, s->min);
  if (s->max != 0 && *number > s->max)
    return err_set(ERR_USAGE, "%s is above the maximum, %.10g", word, s->max);
  return ERR_OK;
}

static void forget(Value *v) {
  for (size_t i = 0; i < v->items; i++) {
    for (int w = 0; w < v->item[i].words; w++) mem_free(v->item[i].word[w]);
    mem_free(v->item[i].word);
  }
  v->items = 0;
}

/* Adds an occurrence; a stronger source, or an option that holds one value,
 * replaces what was there; a weaker source is checked and then ignored. */
static Err store(OptSet *set, const OptSpec *s, char **word, int words, Source source) {
  Value *v = &set->value[s - opt_specs_];
  double number = 0;
  for (int w = 0; w < words; w++) TRY(check(s, word[w], &number));
  if (source < v->source) return ERR_OK;
  if (source > v->source || !s->many) forget(v);
  v->source = source;
  v->number = number;
  TRY(mem_grow(&v->item, &v->capacity, v->items + 1, sizeof *v->item));
  Occurrence *item = &v->item[v->items];
  *item = (Occurrence){0};
  TRY(mem_alloc(&item->word, (size_t)words, sizeof *item->word));
  v->items++;
  for (; item->words < words; item->words++) {
    TRY(mem_dup(&item->word[item->words], word[item->words], strlen(word[item->words])));
  }
  return ERR_OK;
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

static Err parse_option(OptSet *set, int argc, char **argv, int *at) {
  char *name = argv[*at] + 2;
  char *equals = strchr(name, '=');
  size_t len = equals ? (size_t)(equals - name) : strlen(name);
  const OptSpec *s = find(set->verb, name, len);
  bool negated = false;
  if (!s && !equals && str_starts(name, "no-")) {
    s = find(set->verb, name + 3, len - 3);
    negated = s && s->type == OPT_FLAG;
    if (!negated) s = NULL;
  }
  if (!s) {
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(len < 60 ? len : 60), name);
    return err_set(ERR_USAGE, "'%s' has no option --%s%s", set->verb->name, typed,
                   suggest_option(set->verb, typed));
  }
  char *word[8];
  int words = 0, most = most_words(s);
  if (equals)
    word[words++] = equals + 1;
  else if (most == 0)
    word[words++] = negated ? "no" : "yes";
  for (; words < most && *at + 1 < argc && !is_option(argv[*at + 1]) && !(equals && most == 1);
       (*at)++) {
    word[words++] = argv[*at + 1];
  }
  if (words == 0) return err_set(ERR_USAGE, "--%s needs a value: %s", s->name, s->arg);
  if (store(set, s, word, words, FROM_LINE)) return err_context("--%s", s->name);
  if (strcmp(s->name, "config") == 0) return read_config(set, word[0]);
  return ERR_OK;
}

static Err add_operand(OptSet *set, const char *text) {
  if (set->operands >= (size_t)set->verb->max_operands) {
    const char *instead = set->verb->instead;
    return err_set(ERR_USAGE, "'%s' does not know what to do with '%s'; %s%s'trireme help %s'",
                   set->verb->name, text, instead ? instead : "", instead ? "; see " : "see ",
                   set->verb->name);
  }
  TRY(mem_grow(&set->operand, &set->operand_capacity, set->operands + 1, sizeof *set->operand));
  TRY(mem_dup(&set->operand[set->operands], text, strlen(text)));
  set->operands++;
  return ERR_OK;
}

static Err parse_line(OptSet *set, int argc, char **argv) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    char *initial = (char *)(uintptr_t)s->initial;
    if (initial && opt_applies_(s, set->verb)) TRY(store(set, s, &initial, 1, FROM_DEFAULT));
  }
  bool options_end = false; /* behind "--" */
  for (int i = 0; i < argc; i++) {
    if (options_end || argv[i][0] != '-' || !argv[i][1]) {
      TRY(add_operand(set, argv[i]));
    } else if (strcmp(argv[i], "--") == 0) {
      options_end = true;
    } else if (is_option(argv[i])) {
      TRY(parse_option(set, argc, argv, &i));
    } else {
      return err_set(ERR_USAGE,
                     "options have long names only: '%s' is not one; see 'trireme help %s'",
                     argv[i], set->verb->name);
    }
  }
  if (set->operands < (size_t)set->verb->min_operands) {
    return err_set(ERR_USAGE, "'%s' needs %s; see 'trireme help %s'", set->verb->name,
                   set->verb->operands, set->verb->name);
  }
  return ERR_OK;
}

Err opt_parse(OptSet **out, const OptVerb *verb, int argc, char **argv) {
  size_t rows = 0;
  while (opt_specs_[rows].name) rows++;
  OptSet *set;
  TRY(mem_alloc(&set, 1, sizeof *set));
  set->verb = verb;
  Err err = mem_alloc(&set->value, rows, sizeof *set->value);
  if (!err) err = parse_line(set, argc, argv);
  if (err) opt_free(set), set = NULL;
  *out = set;
  return err;
}

/* Splits a config value into words in place; "double quotes" keep blanks, and
 * within them \" and \\ stand for themselves and \n for a line break. Returns the
 * count, or -1. */
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

static Err parse_config_line(OptSet *set, char *line, Source source) {
  while (isspace((unsigned char)*line)) line++;
  if (*line == '\0' || *line == '#') return ERR_OK;
  size_t len = strcspn(line, " \t=");
  char *value = line + len + strspn(line + len, " \t");
  if (*value != '=')
    return err_set(ERR_USAGE, "expected 'option = value', or 'option = yes' for a flag");
  value++;
  const OptSpec *s = find(set->verb, line, len);
  if (!s) {
    line[len] = '\0';
    for (const OptSpec *other = opt_specs_; other->name; other++) {
      if (strcmp(other->name, line) == 0)
        return ERR_OK; /* another verb's: one file may serve several */
    }
    return err_set(ERR_USAGE, "there is no option '%.60s'%s", line,
                   suggest_option(set->verb, line));
  }
  if (strcmp(s->name, "config") == 0)
    return err_set(ERR_USAGE, "a config file cannot name another");
  char *word[8];
  int most = most_words(s) ? most_words(s) : 1;
  int words = split_words(value, word, most);
  if (words < 0)
    return err_set(ERR_USAGE, "'%s' takes %s, at most %d %s; quote what holds blanks", s->name,
                   s->arg ? s->arg : "yes or no", most, most == 1 ? "word" : "words");
  if (words == 0) return err_set(ERR_USAGE, "'%s' has no value", s->name);
  if (store(set, s, word, words, source)) return err_context("%s", s->name);
  return ERR_OK;
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
      err = err_set(ERR_USAGE, "a zero byte; save the file as UTF-8 text");
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

void opt_free(OptSet *set) {
  if (!set) return;
  for (const OptSpec *s = opt_specs_; s->name && set->value; s++) {
    forget(&set->value[s - opt_specs_]);
    mem_free(set->value[s - opt_specs_].item);
  }
  for (size_t i = 0; i < set->operands; i++) mem_free(set->operand[i]);
  mem_free(set->operand);
  mem_free(set->value);
  mem_free(set);
}

static const Value *value_of(const OptSet *set, const char *name) {
  const OptSpec *s = find(set->verb, name, strlen(name));
  assert(s && "option name missing from the table");
  return &set->value[s - opt_specs_];
}

bool opt_given(const OptSet *set, const char *name) {
  return value_of(set, name)->source != FROM_DEFAULT;
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

/* Said, but no more than the default says. */
static bool is_default(const OptSpec *s, const Value *v) {
  return s->initial && v->items == 1 && v->item[0].words == 1 &&
         strcmp(v->item[0].word[0], s->initial) == 0;
}

void opt_record(const OptSet *set, Str *out) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    const Value *v = &set->value[s - opt_specs_];
    if (v->source == FROM_DEFAULT || strcmp(s->name, "config") == 0) continue;
    if (is_default(s, v)) continue;
    for (size_t i = 0; i < v->items; i++) {
      str_addf(out, "%s =", s->name);
      for (int w = 0; w < v->item[i].words; w++) record_word(out, v->item[i].word[w]);
      str_addc(out, '\n');
    }
  }
}
