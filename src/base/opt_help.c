/* Help, man page and shell completion, printed from the option table.
 * Depends on opt, str. */
#include <string.h>

#include "base/opt.h"
#include "base/opt_internal.h"

#define WIDTH  79
#define INDENT 24 /* column in which descriptions begin */

/* Adds `text`, wrapped at word boundaries, beginning at column `column`. Later lines are indented
 * by `indent`. */
static void add_wrapped(Str *out, const char *text, size_t column, size_t indent) {
  bool fresh = true; /* True until the current line of the output has a word. */
  while (*text) {
    size_t n = strcspn(text, " \n");
    if (n) {
      if (!fresh && column + 1 + n > WIDTH) {
        str_addf(out, "\n%*s", (int)indent, "");
        column = indent;
        fresh = true;
      }
      if (!fresh) {
        str_addc(out, ' ');
        column++;
      }
      str_addn(out, text, n);
      column += n;
      fresh = false;
    }
    text += n + (text[n] != '\0');
  }
  str_addc(out, '\n');
}

/* Frees `part`. If `part` failed because memory ran out, marks `out` as failed too: otherwise its
 * text would be missing without an error. */
static void free_part(Str *out, Str *part) {
  out->failed = out->failed || part->failed;
  str_free(part);
}

/* Empties `part` to be used again, and marks `out` as failed if `part` failed. */
static void clear_part(Str *out, Str *part) {
  out->failed = out->failed || part->failed;
  str_clear(part);
}

static void add_option_name(Str *out, const OptSpec *s) {
  str_addf(out, "--%s", s->name);
  if (s->type != OPT_FLAG) str_addf(out, " %s", s->arg);
}

static void list_choices(Str *out, const OptSpec *s, const char *separator) {
  char name[64];
  for (const char *at = s->choices; opt_next_choice_(&at, name);)
    str_addf(out, "%s%s", name, *at ? separator : "");
}

static void (*append_special_defaults)(Str *out, const OptSpec *row);

void opt_set_special_defaults(void (*append)(Str *out, const OptSpec *row)) {
  append_special_defaults = append;
}

static void add_default(Str *out, const OptSpec *s) {
  Str special = {0};
  const char *initial = s->initial && s->type != OPT_FLAG ? s->initial : "";
  if (append_special_defaults) append_special_defaults(&special, s);
  if (*initial || special.len)
    str_addf(out, " (default %s%s%s)", initial, *initial && special.len ? "; " : "",
             str_text(&special));
  free_part(out, &special);
}

/* Adds an option's description with its choices, its default and "may be repeated". */
static void add_description(Str *out, const OptSpec *s) {
  str_add(out, s->help);
  if (s->type == OPT_CHOICE) {
    str_add(out, ": ");
    list_choices(out, s, ", ");
  }
  add_default(out, s);
  if (s->repeat == OPT_ALL) str_add(out, " (may be repeated)");
}

/* Adds one line "  left    right" and wraps the right column. */
static void add_columns(Str *out, Str *left, const char *right) {
  str_add(out, str_text(left));
  if (left->len + 2 > INDENT)
    str_addf(out, "\n%*s", INDENT, "");
  else
    str_addf(out, "%*s", (int)(INDENT - left->len), "");
  add_wrapped(out, right, INDENT, INDENT);
}

static void add_option_help(Str *out, const OptSpec *s) {
  Str left = {0}, right = {0};
  str_add(&left, "  ");
  add_option_name(&left, s);
  add_description(&right, s);
  add_columns(out, &left, str_text(&right));
  free_part(out, &left);
  free_part(out, &right);
}

static bool is_shown(const OptSpec *s, const OptCommand *command) {
  return opt_applies_(s, command) && strcmp(s->group, OPT_HIDDEN) != 0;
}

/* Calls `each` for the command's options, group by group in the order of the table. The group
 * OPT_COMMON is last. */
static void visit_groups(Str *out, const OptCommand *command,
                         void (*heading)(Str *, const char *),
                         void (*each)(Str *, const OptSpec *)) {
  for (int common = 0; common < 2; common++) {
    for (const OptSpec *first = opt_specs_; first->name; first++) {
      if (!is_shown(first, command) || (strcmp(first->group, OPT_COMMON) == 0) != common)
        continue;
      bool seen = false;
      for (const OptSpec *s = opt_specs_; s < first && !seen; s++) {
        seen = opt_applies_(s, command) && strcmp(s->group, first->group) == 0;
      }
      if (seen) continue;
      heading(out, first->group);
      for (const OptSpec *s = first; s->name; s++) {
        if (opt_applies_(s, command) && strcmp(s->group, first->group) == 0) each(out, s);
      }
    }
  }
}

static void add_help_heading(Str *out, const char *group) {
  str_addf(out, "\n%s\n", group);
}

static void add_command_list(Str *out) {
  str_add(out, "Usage: trireme COMMAND [--option value ...]\n\n");
  for (const OptCommand *v = opt_commands_; v->name; v++)
    str_addf(out, "  %-10s %s\n", v->name, v->summary);
  str_add(out,
          "\n'trireme help COMMAND', or 'trireme COMMAND -h', shows the options of a command;\n"
          "'trireme help aliases' names of fairseq, Marian and others that are accepted;\n"
          "'trireme --version' the version.\n"
          "Results go to standard output, messages and progress to standard error.\n"
          "Exit codes: 0 success, 1 the work failed, 2 wrong options, 3 a signal stopped a\n"
          "training, which is saved and can be resumed.\n");
}

static bool has_flag(const OptCommand *command) {
  for (const OptSpec *s = opt_specs_; s->name; s++) {
    if (s->type == OPT_FLAG && opt_applies_(s, command)) return true;
  }
  return false;
}

/* Adds the notes on all options that follow the list of options. */
static void add_option_notes(Str *out, const OptCommand *command) {
  str_add(out,
          "\n  -h, --help            Print this text\n"
          "  --version             Print the version\n");
  if (has_flag(command)) {
    str_addc(out, '\n');
    add_wrapped(
        out,
        "An option without a value is a flag; --no-NAME switches off one that a config file or "
        "a recipe has switched on.",
        0, 0);
  }
}

void opt_help(Str *out, const OptCommand *command) {
  if (!command) {
    add_command_list(out);
    return;
  }
  str_addf(out, "trireme %s: %s\n\nUsage: ", command->name, command->summary);
  Str usage = {0};
  str_addf(&usage, "trireme %s %s", command->name, command->usage);
  add_wrapped(out, str_text(&usage), 7, 9);
  free_part(out, &usage);
  str_addc(out, '\n');
  add_wrapped(out, command->about, 0, 0);
  visit_groups(out, command, add_help_heading, add_option_help);
  add_option_notes(out, command);
  if (command->examples) str_addf(out, "\nExamples\n%s", command->examples);
}

static bool has_alias(const OptCommand *command) {
  for (const OptAlias *a = opt_aliases_; a->alias; a++) {
    if (opt_is_for_(a->commands, command)) return true;
  }
  return false;
}

/* Adds the alias and the program that uses it: "--num-beams (Hugging Face)". */
static void add_alias_name(Str *out, const OptAlias *a) {
  str_addf(out, "--%s (%s)", a->alias, a->origin);
}

/* Adds the option of an alias, and the value if the alias sets one: "--precision fp16". */
static void add_target_name(Str *out, const OptAlias *a) {
  str_addf(out, "--%s%s%s", a->name, a->value ? " " : "", a->value ? a->value : "");
}

static bool is_same_target(const OptAlias *a, const OptAlias *b) {
  if (!a->name || !b->name || strcmp(a->name, b->name) != 0) return false;
  return strcmp(a->value ? a->value : "", b->value ? b->value : "") == 0;
}

/* Adds one line with all aliases of the option that `first` stands for. Does nothing if an alias
 * before `first` stands for the same option. */
static void add_alias_line(Str *out, const OptCommand *command, const OptAlias *first) {
  for (const OptAlias *a = opt_aliases_; a < first; a++) {
    if (opt_is_for_(a->commands, command) && is_same_target(a, first)) return;
  }
  Str left = {0}, right = {0};
  str_add(&left, "  ");
  add_target_name(&left, first);
  for (const OptAlias *a = first; a->alias; a++) {
    if (!opt_is_for_(a->commands, command) || !is_same_target(a, first)) continue;
    if (right.len) str_add(&right, ", ");
    add_alias_name(&right, a);
  }
  add_columns(out, &left, str_text(&right));
  free_part(out, &left);
  free_part(out, &right);
}

static void add_hint_line(Str *out, const OptAlias *a) {
  Str left = {0}, right = {0};
  str_addf(&left, "  --%s", a->alias);
  str_addf(&right, "(%s) %s", a->origin, a->hint);
  add_columns(out, &left, str_text(&right));
  free_part(out, &left);
  free_part(out, &right);
}

void opt_help_aliases(Str *out) {
  add_wrapped(
      out,
      "Other names of options. Former names and names of other programs that mean exactly the "
      "same are accepted on the command line and in config files; '_' may stand for '-'. "
      "Names that mean something else are answered with what to pass instead.",
      0, 0);
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    if (!has_alias(v)) continue;
    str_addf(out, "\n%s: accepted\n", v->name);
    bool has_hint = false;
    for (const OptAlias *a = opt_aliases_; a->alias; a++) {
      if (!opt_is_for_(a->commands, v)) continue;
      has_hint = has_hint || a->hint;
      if (a->name) add_alias_line(out, v, a);
    }
    if (has_hint) str_addf(out, "\n%s: not accepted\n", v->name);
    for (const OptAlias *a = opt_aliases_; a->alias; a++) {
      if (a->hint && opt_is_for_(a->commands, v)) add_hint_line(out, a);
    }
  }
}

/* Adds text in which the characters that roff interprets are escaped. */
static void add_roff(Str *out, const char *text) {
  for (const char *at = text; *at; at++) {
    if (at == text && (*at == '.' || *at == '\'')) str_add(out, "\\&");
    if (*at == '\\')
      str_add(out, "\\e");
    else if (*at == '-')
      str_add(out, "\\-");
    else
      str_addc(out, *at);
  }
}

static void add_man_heading(Str *out, const char *group) {
  str_addf(out, ".PP\n%s:\n", group);
}

static void add_man_option(Str *out, const OptSpec *s) {
  Str text = {0};
  add_option_name(&text, s);
  str_add(out, ".TP\n.B ");
  add_roff(out, str_text(&text));
  str_addc(out, '\n');
  clear_part(out, &text);
  add_description(&text, s);
  add_roff(out, str_text(&text));
  str_addc(out, '\n');
  free_part(out, &text);
}

/* Adds one paragraph with the aliases of each option, and a list of the names that have a
 * hint. */
static void add_man_aliases(Str *out) {
  Str text = {0};
  str_add(
      out,
      ".SH OTHER NAMES OF OPTIONS\nThese names are accepted for the options before them.\n");
  for (const OptAlias *a = opt_aliases_; a->alias; a++) {
    if (!a->name) continue;
    clear_part(out, &text);
    add_target_name(&text, a);
    str_add(out, ".TP\n.B ");
    add_roff(out, str_text(&text));
    clear_part(out, &text);
    add_alias_name(&text, a);
    str_addf(&text, ", of %s", a->commands);
    str_addc(out, '\n');
    add_roff(out, str_text(&text));
    str_addc(out, '\n');
  }
  str_add(out, ".PP\nThese names mean something else and are answered with a hint.\n");
  for (const OptAlias *a = opt_aliases_; a->alias; a++) {
    if (!a->hint) continue;
    clear_part(out, &text);
    str_addf(&text, "--%s", a->alias);
    str_add(out, ".TP\n.B ");
    add_roff(out, str_text(&text));
    clear_part(out, &text);
    str_addf(&text, "(%s) %s", a->origin, a->hint);
    str_addc(out, '\n');
    add_roff(out, str_text(&text));
    str_addc(out, '\n');
  }
  free_part(out, &text);
}

void opt_man(Str *out, const char *version) {
  str_addf(out, ".TH TRIREME 1 \"\" \"trireme %s\" \"User Commands\"\n", version);
  str_add(out,
          ".SH NAME\ntrireme \\- from raw parallel text to trained translation "
          "models\n");
  str_add(out,
          ".SH SYNOPSIS\n.B trireme\n.I COMMAND\n[\\fB\\-\\-option\\fR \\fIvalue\\fR ...]\n");
  str_add(out, ".SH COMMANDS\n");
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    str_addf(out, ".SS %s\n.B trireme %s\n", v->name, v->name);
    add_roff(out, v->usage);
    str_add(out, "\n.PP\n");
    add_roff(out, v->about);
    str_addc(out, '\n');
    visit_groups(out, v, add_man_heading, add_man_option);
    if (v->examples) {
      str_add(out, ".PP\nExamples:\n.nf\n");
      add_roff(out, v->examples);
      str_add(out, ".fi\n");
    }
  }
  add_man_aliases(out);
  str_add(
      out,
      ".SH OPTIONS OF EVERY COMMAND\n.TP\n.B \\-\\-help \\fRor\\fB \\-h\n"
      "Print the command's options.\n.TP\n.B \\-\\-version\nPrint the version.\n"
      ".TP\n.B \\-\\-\nWhat follows is no option, even if it begins with a hyphen.\n"
      ".PP\n\\fB\\-\\-name=value\\fR is the same as \\fB\\-\\-name value\\fR. An option "
      "without a value is a flag; \\fB\\-\\-no\\-NAME\\fR switches off one that a config file "
      "or a recipe has switched on.\n"
      ".SH VALUES\nCounts take k, M and G (25k = 25000); sizes take k, M and G as powers of "
      "1024; "
      "times take s, m, h and d. If an option is given twice, the last value counts; those "
      "that "
      "may be repeated keep all, and a file to read that is given twice is an error. A config "
      "file has one \\fIoption = value\\fR per line; later "
      "lines win, and the command line wins over the file.\n"
      ".SH EXIT STATUS\n0 done, 1 the work failed, 2 the call was wrong, 3 a signal "
      "stopped train or prepare, which continues with \\-\\-resume. When the reader of its "
      "output ends first, as in \\fBtrireme help | head \\-1\\fR, the program ends by SIGPIPE "
      "without a message (141 in a shell).\n");
}

void opt_completion(Str *out) {
  str_add(out,
          "# bash completion for trireme\n"
          "_trireme() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
          "command=${COMP_WORDS[1]}\n"
          "  local options=\n"
          "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    options='");
  for (const OptCommand *v = opt_commands_; v->name; v++)
    str_addf(out, "%s%s", v == opt_commands_ ? "" : " ", v->name);
  str_add(out,
          "'\n    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n    return\n  "
          "fi\n  case $command:$prev in\n");
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    for (const OptSpec *s = opt_specs_; s->name; s++) {
      if (!s->choices || !is_shown(s, v)) continue;
      str_addf(out, "    %s:--%s) options='", v->name, s->name);
      list_choices(out, s, " ");
      str_add(out,
              "'; mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\"); return;;\n");
    }
  }
  str_add(out, "  esac\n  case $command in\n");
  for (const OptCommand *v = opt_commands_; v->name; v++) {
    str_addf(out, "    %s) options='", v->name);
    bool first = true;
    if (strcmp(v->name, "help") == 0) {
      for (const OptCommand *w = opt_commands_; w->name; w++) str_addf(out, "%s ", w->name);
      str_add(out, "aliases ");
    }
    for (const OptSpec *s = opt_specs_; s->name; s++) {
      if (!is_shown(s, v)) continue;
      str_addf(out, "%s--%s", first ? "" : " ", s->name);
      first = false;
    }
    str_add(out, first ? "--help --version';;\n" : " --help --version';;\n");
  }
  str_add(out,
          "  esac\n"
          "  case $cur in\n"
          "    --*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\");;\n"
          "    *) if [ \"$command\" = help ]; then mapfile -t COMPREPLY < <(compgen -W "
          "\"$options\" -- \"$cur\")\n"
          "       else mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); fi;;\n"
          "  esac\n"
          "}\n"
          "complete -o filenames -F _trireme trireme\n");
}
