/* Growable byte strings, numbers with units, and small text helpers. If memory runs out, a Str sets
 * `failed` and ignores later additions: call str_check once, at the end. Depends on mem, err. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  char *s; /* NUL-terminated contents; NULL until something is added */
  size_t len, cap;
  bool failed;
} Str;

void str_add(Str *str, const char *text);
void str_addn(Str *str, const char *bytes, size_t len);
void str_addc(Str *str, char c);
void str_addf(Str *str, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Adds a word, in shell quotes if it needs them. */
void str_add_shell(Str *str, const char *word);
void str_clear(Str *str); /* Empties the string and keeps its memory. */
void str_free(Str *str);
NODISCARD Err str_check(const Str *str);
const char *str_text(const Str *str); /* Returns the contents, or "" if nothing was added. */

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Returns the Levenshtein distance of two words, used for "did you mean". */
size_t str_distance(const char *a, const char *b);

/* Parse integers with units: "25k" = 25000, "2M", "1G". str_bytes takes k, M, G as powers of
 * 1024. */
NODISCARD Err str_count(const char *text, int64_t *value);
NODISCARD Err str_bytes(const char *text, int64_t *value);
/* Parses "90s", "15m", "2h" or "1d" to seconds; a number without a unit is seconds. */
NODISCARD Err str_seconds(const char *text, double *value);
NODISCARD Err str_real(const char *text, double *value);

/* Format values for messages: 12345678 as "12,345,678", bytes as "11.8 MB", seconds as "2m 05s".
 * Each returns `out`, a buffer of 32 bytes. */
char *str_of_count(char *out, uint64_t value);
char *str_of_bytes(char *out, uint64_t bytes);
char *str_of_seconds(char *out, double seconds);
/* Returns the end of a regular noun after a number: "" after 1, otherwise "s". */
const char *str_plural(uint64_t number);

#endif
