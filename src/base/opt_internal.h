/* Shared by opt.c (parsing), opt_names.c (names) and opt_help.c (printing) only. */
#ifndef BASE_OPT_INTERNAL_H
#define BASE_OPT_INTERNAL_H

#include "base/opt.h"

extern const OptSpec *opt_specs_;
extern const OptCommand *opt_commands_;
extern const OptAlias *opt_aliases_; /* never NULL */

/* What a name on the command line or in a config file stands for. */
typedef struct {
  const OptSpec *spec;   /* NULL: there is no such option, or only a hint */
  const OptAlias *alias; /* NULL: it is the option's own name */
} OptMatch;

/* Is the command in the list "train bench" ("*" is every command)? */
bool opt_is_for_(const char *commands, const OptCommand *command);
bool opt_applies_(const OptSpec *spec, const OptCommand *command);

/* In names '_' is the same as '-', so --learning_rate is --learning-rate. NULL: none. */
const OptSpec *opt_find_spec_(const OptCommand *command, const char *name, size_t len);
OptMatch opt_match_name_(const OptCommand *command, const char *name, size_t len);
bool opt_is_former_(const OptAlias *a); /* a former name of our own */
/* Is it an option of another command, by its present or its former name? */
bool opt_is_of_another_command_(const OptCommand *command, const char *name, size_t len);
/* Is it a name that another command accepts as an alias or answers with a hint? */
bool opt_is_alias_of_another_command_(const OptCommand *command, const char *name, size_t len);
/* "; did you mean --NAME?", or where to look. */
const char *opt_suggest_option_(const OptCommand *command, const char *name);
NODISCARD Err opt_refuse_with_hint_(const OptAlias *a, const char *prefix);

/* Reads the next choice of "a=old|b" into `name`, without its synonyms, and moves `at` behind
 * it. Returns false at the end. */
bool opt_next_choice_(const char **at, char name[64]);
/* Reads the choice that `word` means into `name`: the choice itself or one of its synonyms. */
bool opt_read_choice_(const char *choices, const char *word, char name[64]);
NODISCARD Err opt_refuse_choice_(const char *choices, const char *word);

#endif
