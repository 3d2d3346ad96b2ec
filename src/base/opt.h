/* Parses command lines and config files against the option table in cmd/options.c, and
 * prints help, man page, shell completion and the options of a run from the same table.
 * Depends on str, err, log, mem. */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

typedef enum {
  OPT_FLAG,    /* --resume; also --resume=no */
  OPT_COUNT,   /* whole number, 25k = 25000 */
  OPT_BYTES,   /* 64M = 64 * 1024 * 1024 */
  OPT_SECONDS, /* 90s, 2h */
  OPT_REAL,
  OPT_TEXT,
  OPT_CHOICE, /* one of `choices` */
} OptType;

#define OPT_COMMON "Running"  /* the group that help prints last */
#define OPT_HIDDEN "Internal" /* a group for the program's own use, which no help shows */

typedef struct {
  const char *name; /* without the two dashes */
  OptType type;
  const char *arg;     /* what help shows for the value: "FILE", "SRC TGT" */
  const char *initial; /* default as text; NULL when unset */
  double min, max;     /* range of numbers; max 0 = none */
  /* "a|b|c"; "a=old|b" also accepts "old" and stores "a". For OPT_TEXT: values that completion
   * offers, beside which others are allowed. */
  const char *choices;
  int most;             /* greatest number of words per occurrence */
  bool many;            /* may be repeated; all occurrences are kept */
  const char *commands; /* "prepare inspect" */
  const char *group;    /* heading in help */
  const char *help;     /* one or two sentences, no full stop needed */
} OptSpec;

/* Another name of an option. An alias means exactly the same and is stored under the option's
 * own name. A name whose meaning differs has a `hint` instead and is an error that prints it. */
typedef struct {
  const char *commands; /* "train translate" */
  const char *alias;    /* without the two dashes */
  const char *name;     /* the option; NULL when there is only a hint */
  const char *value;    /* the alias is a flag that sets this value; NULL: it takes the value */
  const char *origin;   /* the program that uses the name: "fairseq, OpenNMT" */
  const char *hint;     /* the difference and what to pass; NULL for an alias */
} OptAlias;

#define OPT_FORMER "earlier versions" /* the origin of our own former names */

typedef struct OptSet OptSet; /* the values of one call */

typedef struct {
  const char *name, *summary;
  const char *usage;    /* after "trireme NAME " */
  const char *about;    /* a paragraph, wrapped by help */
  const char *examples; /* lines, shown as they are */
  const char *operands; /* positional arguments, e.g. "PATH"; NULL: the command takes none */
  const char *instead;  /* hint for a command without operands that is given one; or NULL */
  int min_operands, max_operands;
  bool is_wrapper; /* the first operand begins another command: what follows is not parsed */
  Err (*run)(OptSet *); /* called by main.c */
} OptCommand;

/* Sets the tables: options, commands and other names of options. Each ends with a NULL name
 * (NULL alias); `aliases` may be NULL. */
void opt_tables(const OptSpec *specs, const OptCommand *commands, const OptAlias *aliases);
const OptCommand *opt_command(const char *name); /* NULL if there is none */
/* "did you mean 'train'?" or "" */
const char *opt_suggest_command(const char *name);

NODISCARD Err opt_parse(OptSet **set, const OptCommand *command, int argc, char **argv);
/* Applies the text of a config file; `where` is its name for errors. A later line overrides an
 * earlier one; the command line overrides the file. */
NODISCARD Err opt_parse_config(OptSet *set, const char *text, size_t len, const char *where);
/* Applies the options of a recipe; config file and command line override them. */
NODISCARD Err opt_parse_recipe(OptSet *set, const char *text, size_t len, const char *where);
void opt_free(OptSet *set);

/* Values by name. Asking for an option that the command does not have is a programming error. */
bool opt_given(const OptSet *set, const char *name); /* by command line or config file */
bool opt_flag(const OptSet *set, const char *name);
int64_t opt_count(const OptSet *set, const char *name);    /* COUNT and BYTES */
double opt_real(const OptSet *set, const char *name);      /* REAL and SECONDS */
const char *opt_text(const OptSet *set, const char *name); /* NULL when unset */
/* An option that may be repeated or takes several words: how often it was given, the number of
 * words of occurrence `i`, and one of them (NULL if there are fewer). */
int opt_times(const OptSet *set, const char *name);
int opt_words(const OptSet *set, const char *name, int i);
const char *opt_word(const OptSet *set, const char *name, int i, int word);
int opt_operands(const OptSet *set);
const char *opt_operand(const OptSet *set, int i);

/* Appends every option that differs from its default, as lines of a config file. */
void opt_record(const OptSet *set, Str *out);
/* Copies config lines of a command, as opt_record wrote them, with former names of options and
 * of their values replaced by the present ones. Other lines are copied unchanged. */
void opt_rename(const char *command, const char *record, Str *out);

void opt_help(Str *out, const OptCommand *command); /* NULL: the list of commands */
void opt_help_aliases(Str *out);                    /* the other names of all options */
void opt_man(Str *out, const char *version);
void opt_completion(Str *out);

#endif
