/* Growable byte strings, numbers with units, and small text helpers. A Str that
 * could not grow remembers it: check once, with str_check. Relies on mem, err. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  char *s; /* NUL-terminated once anything was added; NULL before */
  size_t len, cap;
  bool failed;
} Str;

void str_add(Str *str, const char *text);
void str_addn(Str *str, const char *bytes, size_t len);
void str_addc(Str *str, char c);
void str_addf(Str *str, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Adds a word as a shell reads it back: in quotes only where it needs them. */
void str_add_shell(Str *str, const char *word);
void str_clear(Str *str); /* keeps the memory */
void str_free(Str *str);
NODISCARD Err str_check(const Str *str);
const char *str_text(const Str *str); /* "" when nothing was added */

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Edit distance, for "did you mean". */
size_t str_distance(const char *a, const char *b);

/* "25k" = 25000, "2M", "1G"; for bytes k, M, G are powers of 1024. */
NODISCARD Err str_count(const char *text, int64_t *value);
NODISCARD Err str_bytes(const char *text, int64_t *value);
/* "90s", "15m", "2h", "1d", in seconds; a plain number is seconds. */
NODISCARD Err str_seconds(const char *text, double *value);
NODISCARD Err str_real(const char *text, double *value);

/* For people: 12345678 -> "12,345,678"; bytes -> "11.8 MB"; s -> "2m 05s".
 * Each returns `out`, which must hold 32 bytes. */
char *str_of_count(char *out, uint64_t value);
char *str_of_bytes(char *out, uint64_t bytes);
char *str_of_seconds(char *out, double seconds);

#endif
