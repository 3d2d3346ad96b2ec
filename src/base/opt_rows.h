/* Macros for the rows of option tables. Include it only in files that define such a table: the names
 * are short. A row: name, value in help, default, range or choices, commands, group, help. Depends on
 * opt.h. */
#ifndef BASE_OPT_ROWS_H
#define BASE_OPT_ROWS_H

#include "base/opt.h"

#define COUNT(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_COUNT, arg, initial, min, max, NULL, 1, OPT_LAST, commands, group, help }
#define BYTES(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_BYTES, arg, initial, min, max, NULL, 1, OPT_LAST, commands, group, help }
#define REAL(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_REAL, arg, initial, min, max, NULL, 1, OPT_LAST, commands, group, help }
#define TEXT(name, arg, initial, commands, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, NULL, 1, OPT_LAST, commands, group, help }
/* A file or directory to read. */
#define INPUT(name, arg, initial, commands, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, NULL, 1, OPT_ONCE, commands, group, help }
/* An option with free text, for which shell completion offers some values. */
#define NAMED(name, arg, initial, values, commands, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, values, 1, OPT_LAST, commands, group, help }
#define TEXTS(name, arg, words, commands, group, help) \
  { name, OPT_TEXT, arg, NULL, 0, 0, NULL, words, OPT_ALL, commands, group, help }
#define PAIR(name, commands, group, help) \
  { name, OPT_TEXT, "SRC TGT", NULL, 0, 0, NULL, 2, OPT_ONCE, commands, group, help }
#define FLAG(name, commands, group, help) \
  { name, OPT_FLAG, NULL, NULL, 0, 0, NULL, 1, OPT_LAST, commands, group, help }
#define CHOICE(name, arg, initial, choices, commands, group, help) \
  { name, OPT_CHOICE, arg, initial, 0, 0, choices, 1, OPT_LAST, commands, group, help }

#endif
