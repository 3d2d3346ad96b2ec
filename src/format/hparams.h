/* The options of a run as hyperparameters for other programs (tfevents.h). Depends on base. */
#ifndef FORMAT_HPARAMS_H
#define FORMAT_HPARAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/* An option. The pointers point into the text of all options and are not NUL-terminated. */
typedef struct {
  const char *name, *text;
  size_t name_len, text_len;
} Hparam;

/* Reads the next line "name = value" of a config file; *at begins with the whole text. Lines of
 * another form are skipped. Returns false after the last one. */
bool hparams_next(const char **at, Hparam *h);
/* Returns true if the whole value is a finite number in decimal notation. `copy` is memory for a
 * copy of the text, which the caller frees; check it for lack of memory. */
bool hparams_is_number(const Hparam *h, Str *copy, double *number);

#endif
