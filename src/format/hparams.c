/* Reads the options of a run. Depends on base. */
#include "format/hparams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool hparams_next(const char **at, Hparam *h) {
  while (**at) {
    const char *line = *at;
    size_t len = strcspn(line, "\n");
    const char *end = line + len, *equals = memchr(line, '=', len);
    *at = end + (*end == '\n');
    if (!equals || equals == line) continue;
    const char *text = equals + 1;
    while (text < end && *text == ' ') text++;
    size_t name_len = (size_t)(equals - line);
    while (name_len > 1 && line[name_len - 1] == ' ') name_len--;
    *h = (Hparam){line, text, name_len, (size_t)(end - text)};
    return true;
  }
  return false;
}

bool hparams_is_number(const Hparam *h, Str *copy, double *number) {
  char *end;
  str_clear(copy);
  str_addn(copy, h->text, h->text_len);
  const char *text = str_text(copy);
  if (!*text || !strchr("+-.0123456789", *text)) return false; /* no white space, no "nan" */
  if (strpbrk(text, "xX")) return false;                       /* strtod reads "0x1f" */
  *number = strtod(text, &end);
  return !*end && isfinite(*number);
}
