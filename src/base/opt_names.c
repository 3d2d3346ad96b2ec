/* Names in the option table: options, commands, aliases, choices, and suggestions for misspelt
 * ones. Depends on str, err. */
#include <string.h>

#include "base/opt.h"
#include "base/opt_internal.h"

const OptSpec *opt_specs_;
const OptCommand *opt_commands_;
static const OptAlias no_aliases[] = {{0}};
const OptAlias *opt_aliases_ = no_aliases;

void opt_tables(const OptSpec *specs, const OptCommand *commands, const OptAlias *aliases) {
  opt_specs_ = specs;
  opt_commands_ = commands;
  opt_aliases_ = aliases ? aliases : no_aliases;
}

const OptCommand *opt_command(const char *name) {
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    if (strcmp(v->name, name) == 0) return v;
  }
  return NULL;
}

bool opt_is_for_(const char *commands, const OptCommand *command) {
  size_t n = strlen(command->name);
  for (const char *at = commands; (at = strstr(at, command->name)); at += n) {
    if ((at == commands || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  }
  return strcmp(commands, "*") == 0;
}

bool opt_applies_(const OptSpec *spec, const OptCommand *command) {
  return opt_is_for_(spec->commands, command);
}

/* Returns true if `name` is similar enough to be suggested: at most a third of its letters
 * differ, or it begins with `typed`. */
static bool is_near(const char *typed, const char *name, size_t *best) {
  size_t d = str_distance(typed, name);
  if (strlen(typed) >= 3 && str_starts(name, typed) && d > 1) d = 1;
  if (d >= *best || 3 * d > strlen(name) + 1) return false;
  *best = d;
  return true;
}

const char *opt_suggest_command(const char *name) {
  static char text[96];
  size_t best = SIZE_MAX;
  snprintf(text, sizeof text, "; 'trireme help' lists the commands");
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    if (is_near(name, v->name, &best))
      snprintf(text, sizeof text, "; did you mean '%s'?", v->name);
  }
  return text;
}

/* Returns the command that `launch` starts and that has this option; NULL if there is none. */
static const char *find_launched(const char *name) {
  static const char *const launched[] = {"train", "prepare", "translate", "classify", "bench"};
  for (size_t i = 0; i < sizeof launched / sizeof *launched; i++) {
    const OptCommand *command = opt_command(launched[i]);
    for (const OptSpec *s = opt_specs_; command && s->name; s++)
      if (strcmp(s->name, name) == 0 && opt_applies_(s, command)) return command->name;
  }
  return NULL;
}

const char *opt_suggest_option_(const OptCommand *command, const char *name) {
  static char text[160];
  size_t best = SIZE_MAX;
  const char *launched = strcmp(command->name, "launch") == 0 ? find_launched(name) : NULL;
  if (launched) {
    snprintf(text, sizeof text, ", which belongs to %s: trireme launch [options] -- %s --%.60s",
             launched, launched, name);
    return text;
  }
  snprintf(text, sizeof text, "; see 'trireme help %s'", command->name);
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    bool is_hidden = strcmp(s->group, OPT_HIDDEN) == 0;
    if (opt_applies_(s, command) && !is_hidden && is_near(name, s->name, &best)) {
      snprintf(text, sizeof text, "; did you mean --%s?", s->name);
    }
  }
  for (const OptAlias *a = opt_aliases_; a->alias; a++) {
    if (a->name && opt_is_for_(a->commands, command) && is_near(name, a->alias, &best)) {
      snprintf(text, sizeof text, "; did you mean --%s?", a->name);
    }
  }
  return text;
}

/* Compares two names; '_' and '-' are equal. */
static bool is_same_name(const char *a, const char *b, size_t len) {
  for (size_t i = 0; i < len; i++) {
    if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i])) return false;
  }
  return true;
}

const OptSpec *opt_find_spec_(const OptCommand *command, const char *name, size_t len) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    if (strlen(s->name) == len && is_same_name(s->name, name, len) && opt_applies_(s, command))
      return s;
  }
  return NULL;
}

bool opt_is_former_(const OptAlias *a) {
  return strcmp(a->origin, OPT_FORMER) == 0;
}

/* Finds an alias. The former names of Trireme's own options take precedence over the names of
 * other programs. */
static const OptAlias *find_alias(const OptCommand *command, const char *name, size_t len) {
  const OptAlias *other = NULL;
  for (const OptAlias *a = opt_aliases_; a->alias; a++) {
    if (strlen(a->alias) != len || !is_same_name(a->alias, name, len)) continue;
    if (!opt_is_for_(a->commands, command)) continue;
    if (opt_is_former_(a)) return a;
    if (!other) other = a;
  }
  return other;
}

OptMatch opt_match_name_(const OptCommand *command, const char *name, size_t len) {
  OptMatch m = {.spec = opt_find_spec_(command, name, len)};
  if (m.spec) return m;
  m.alias = find_alias(command, name, len);
  if (m.alias && m.alias->name)
    m.spec = opt_find_spec_(command, m.alias->name, strlen(m.alias->name));
  return m;
}

bool opt_is_of_another_command_(const OptCommand *command, const char *name, size_t len) {
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    if (v == command) continue;
    if (opt_find_spec_(v, name, len)) return true;
    const OptAlias *a = find_alias(v, name, len);
    if (a && opt_is_former_(a)) return true;
  }
  return false;
}

bool opt_is_alias_of_another_command_(const OptCommand *command, const char *name, size_t len) {
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    if (v != command && find_alias(v, name, len)) return true;
  }
  return false;
}

Err opt_refuse_with_hint_(const OptAlias *a, const char *prefix) {
  return err_set(ERR_USAGE, "%s%s is an option of %s: %s", prefix, a->alias, a->origin,
                 a->hint);
}

bool opt_next_choice_(const char **at, char name[64]) {
  if (!**at) return false;
  size_t whole = strcspn(*at, "|");
  size_t own = strcspn(*at, "=|");
  snprintf(name, 64, "%.*s", (int)own, *at);
  *at += whole + ((*at)[whole] == '|');
  return true;
}

bool opt_read_choice_(const char *choices, const char *word, char name[64]) {
  size_t n = strlen(word);
  const char *next = choices;
  for (const char *at = choices; n && opt_next_choice_(&next, name); at = next) {
    while (at < next) {
      size_t len = strcspn(at, "=|");
      if (len == n && is_same_name(at, word, n)) return true;
      at += len;
      if (*at == '|' || !*at) break;
      at++;
    }
  }
  return false;
}

/* Returns an error that `word` is not a choice, lists the choices and suggests the most similar
 * one. */
Err opt_refuse_choice_(const char *choices, const char *word) {
  Str list = {0};
  char name[64], meant[64] = "";
  size_t best = SIZE_MAX;
  for (const char *at = choices; opt_next_choice_(&at, name);) {
    if (is_near(word, name, &best)) memcpy(meant, name, sizeof name);
    str_addf(&list, "%s%s", list.len ? ", " : "", name);
  }
  Err err = err_set(ERR_USAGE, "'%.80s' is not one of %s%s%s%s", word, str_text(&list),
                    *meant ? "; did you mean " : "", meant, *meant ? "?" : "");
  str_free(&list);
  return err;
}

/* Adds the current name of a choice whose former name is in a config line. */
static void rename_choice(const OptSpec *s, const char *value, size_t len, Str *out) {
  char word[64], name[64];
  snprintf(word, sizeof word, "%.*s", (int)len, value);
  if (len < sizeof word && s->type == OPT_CHOICE && opt_read_choice_(s->choices, word, name))
    str_add(out, name);
  else
    str_addn(out, value, len);
}

void opt_rename(const char *command, const char *record, Str *out) {
  const OptCommand *v = opt_commands_ ? opt_command(command) : NULL;
  while (*record) {
    size_t line = strcspn(record, "\n");
    size_t len = strcspn(record, " =\n");
    size_t value = len + strspn(record + len, " =");
    OptMatch m = {0};
    if (v && value <= line) m = opt_match_name_(v, record, len);
    if (m.spec && !(m.alias && m.alias->value)) {
      str_addf(out, "%s = ", m.spec->name);
      rename_choice(m.spec, record + value, line - value, out);
    } else {
      str_addn(out, record, line);
    }
    if (record[line] == '\n') str_addc(out, '\n');
    record += line + (record[line] == '\n');
  }
}
