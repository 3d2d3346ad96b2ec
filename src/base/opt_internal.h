/* Declarations shared by opt.c (parsing), opt_names.c (names) and opt_help.c (printing) only. */
#ifndef BASE_OPT_INTERNAL_H
#define BASE_OPT_INTERNAL_H

#include "base/opt.h"

extern const OptSpec *opt_specs_;
extern const OptCommand *opt_commands_;
extern const OptAlias *opt_aliases_; /* The alias table; never NULL. */

/* The option and alias that a name on the command line or in a config file refers to. */
typedef struct {
  /* the option; NULL: there is no such option, or the name has only a hint */
  const OptSpec *spec;
  const OptAlias *alias; /* the alias; NULL: the name is the option's own name */
} OptMatch;

/* Returns true if `commands`, a list such as "train bench", contains the command. "*" contains
 * every command. */
bool opt_is_for_(const char *commands, const OptCommand *command);
bool opt_applies_(const OptSpec *spec, const OptCommand *command);

/* Returns the command's option of that name, or NULL. '_' and '-' are equal in names:
 * --learning_rate is --learning-rate. */
const OptSpec *opt_find_spec_(const OptCommand *command, const char *name, size_t len);
OptMatch opt_match_name_(const OptCommand *command, const char *name, size_t len);
/* Returns true if the alias is a name that an earlier version of Trireme used. */
bool opt_is_former_(const OptAlias *a);
/* Returns true if `name` is the current or a former name of an option of another command. */
bool opt_is_of_another_command_(const OptCommand *command, const char *name, size_t len);
/* Returns true if another command has `name` as an alias or as a name with a hint. */
bool opt_is_alias_of_another_command_(const OptCommand *command, const char *name, size_t len);
/* Returns "; did you mean --NAME?", or how to list the options if no name is similar. */
const char *opt_suggest_option_(const OptCommand *command, const char *name);
NODISCARD Err opt_refuse_with_hint_(const OptAlias *a, const char *prefix);

/* Copies the next choice of a list such as "a=old|b" to `name`, without its synonyms, and moves
 * *at to the end of that choice. Returns false at the end of the list. */
bool opt_next_choice_(const char **at, char name[64]);
/* Copies to `name` the choice that equals `word` or has `word` as a synonym. Returns false if
 * there is none. */
bool opt_read_choice_(const char *choices, const char *word, char name[64]);
NODISCARD Err opt_refuse_choice_(const char *choices, const char *word);

#endif
