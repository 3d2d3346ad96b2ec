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
  OPT_FLAG,    /* flag: --resume, --resume=no */
  OPT_COUNT,   /* integer with a decimal unit: 25k = 25000 */
  OPT_BYTES,   /* size with a binary unit: 64M = 64 * 1024 * 1024 */
  OPT_SECONDS, /* duration: 90s, 2h */
  OPT_REAL,
  OPT_TEXT,
  OPT_CHOICE, /* one word of the list `choices` */
} OptType;

#define OPT_COMMON "Running" /* name of the option group that help prints last */
/* name of the group of internal options, which help does not print */
#define OPT_HIDDEN "Internal"

/* What a repetition of an option on the command line means. In a config file the last line of an
 * option that is not OPT_ALL counts. */
typedef enum {
  OPT_LAST, /* the last value counts, so that scripts can append their own */
  OPT_ALL,  /* a list: all values are kept */
  OPT_ONCE, /* an error: a file to read, which would be ignored without a word */
} OptRepeat;

typedef struct {
  const char *name; /* option name without the two dashes */
  OptType type;
  const char *arg;     /* placeholder of the value in help: "FILE", "SRC TGT" */
  const char *initial; /* default value as text; NULL: the option has none */
  double min, max;     /* allowed range of a number; max 0: no upper limit */
  /* For OPT_CHOICE: the allowed values "a|b|c"; "a=old|b" also accepts "old" and stores "a". For
   * OPT_TEXT: values that shell completion suggests; other values are allowed. */
  const char *choices;
  int most; /* maximum number of words per occurrence */
  OptRepeat repeat;
  const char *commands; /* commands that have the option, for example "prepare inspect" */
  const char *group;    /* heading of the option's group in help */
  const char *help;     /* description: one or two sentences, full stop optional */
} OptSpec;

/* Another name of an option. An alias has exactly the same meaning and is stored under the
 * option's own name. A name of another program whose meaning differs has a `hint`; using that
 * name is an error that prints the hint. */
typedef struct {
  const char *commands; /* commands that have the alias, for example "train translate" */
  const char *alias;    /* alias without the two dashes */
  const char *name;     /* name of the option; NULL if there is only a hint */
  /* value that the alias sets, for an alias that is a flag; NULL: the alias takes a value */
  const char *value;
  const char *origin; /* programs that use the name, for example "fairseq, OpenNMT" */
  const char *hint;   /* how the meaning differs and which option to use; NULL for an alias */
} OptAlias;

/* `origin` of names that earlier versions of Trireme used */
#define OPT_FORMER "earlier versions"

typedef struct OptSet OptSet; /* The option values of one invocation of the program. */

typedef struct {
  const char *name, *summary;
  const char *usage;    /* synopsis, printed after "trireme NAME " */
  const char *about;    /* description of the command, wrapped by help */
  const char *examples; /* example lines, printed unchanged */
  const char *operands; /* names of the positional arguments, for example "PATH"; NULL: none */
  /* What to use instead of a positional argument, for commands that have none; or NULL. */
  const char *instead;
  int min_operands, max_operands;
  /* The first positional argument starts another command line, which is not parsed. */
  bool is_wrapper;
  Err (*run)(OptSet *); /* Entry point of the command, called by main.c. */
} OptCommand;

/* Sets the tables of options, commands and aliases. Each ends with an entry whose name (alias) is
 * NULL; `aliases` may be NULL. */
void opt_tables(const OptSpec *specs, const OptCommand *commands, const OptAlias *aliases);
/* Returns the command of that name, or NULL. */
const OptCommand *opt_command(const char *name);
/* Returns "; did you mean 'train'?", or how to list the commands if no name is similar. */
const char *opt_suggest_command(const char *name);

NODISCARD Err opt_parse(OptSet **set, const OptCommand *command, int argc, char **argv);
/* Applies the text of a config file; `where` is the file's name for errors. A later line
 * overrides an earlier one; the command line overrides the file. */
NODISCARD Err opt_parse_config(OptSet *set, const char *text, size_t len, const char *where);
/* Applies the options of a recipe. The config file and the command line override them. */
NODISCARD Err opt_parse_recipe(OptSet *set, const char *text, size_t len, const char *where);
void opt_free(OptSet *set);

/* Replaces defaults of the option table by the values in lines of a config file, such as the defaults
 * of a task. Does not change options that were given; the new defaults do not count as given. */
NODISCARD Err opt_set_defaults(OptSet *set, const char *text, size_t len, const char *where);

/* Of two options that exclude each other, both given: the one of the source with the lower priority
 * (recipe, config file, command line) becomes one that is not given. Fails if both have the same source. */
NODISCARD Err opt_keep_one(OptSet *set, const char *name, const char *other);

/* An option becomes one that is not given, with its value of the option table. */
NODISCARD Err opt_forget(OptSet *set, const char *name);

/* Functions that return option values by name. Requesting an option that the command does not
 * have is a programming error. */
/* Returns true if the command line, the config file or the recipe sets the option. */
bool opt_given(const OptSet *set, const char *name);
bool opt_flag(const OptSet *set, const char *name);
/* value of an option of type OPT_COUNT or OPT_BYTES */
int64_t opt_count(const OptSet *set, const char *name);
/* value of an option of type OPT_REAL or OPT_SECONDS */
double opt_real(const OptSet *set, const char *name);
/* Returns NULL if the option has no value. */
const char *opt_text(const OptSet *set, const char *name);
/* Returns the index of an option's value in a list such as "a|b|c"; 0 if it is not in the list. */
int opt_choice(const OptSet *set, const char *name, const char *names);
/* For an option that may be repeated or takes several words: opt_times returns the number of
 * occurrences, the others the number of words of occurrence `i` and one of its words (NULL if it
 * has fewer). */
int opt_times(const OptSet *set, const char *name);
int opt_words(const OptSet *set, const char *name, int i);
const char *opt_word(const OptSet *set, const char *name, int i, int word);
int opt_operands(const OptSet *set);
const char *opt_operand(const OptSet *set, int i);

/* Appends every option that differs from its default, as lines of a config file. */
void opt_record(const OptSet *set, Str *out);
/* Appends every option of the command that has a value, also defaults, in the same form. */
void opt_record_all(const OptSet *set, Str *out);
/* Copies the config lines of a command, as opt_record wrote them. Replaces former names of
 * options and of their values by the current names. Copies all other lines unchanged. */
void opt_rename(const char *command, const char *record, Str *out);

/* Sets the function that help calls to append the defaults that an option has in special cases, as
 * "512 for mlm". NULL, as at the start: there are none. */
void opt_set_special_defaults(void (*append)(Str *out, const OptSpec *row));
/* Appends the help of a command; NULL: the list of commands. */
void opt_help(Str *out, const OptCommand *command);
void opt_help_aliases(Str *out); /* Appends the list of all aliases. */
void opt_man(Str *out, const char *version);
void opt_completion(Str *out);

#endif
