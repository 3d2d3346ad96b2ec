/* Growable strings, numbers with units, text helpers. Depends on mem, err, utf8. */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void str_addn(Str *str, const char *bytes, size_t len) {
  if (str->failed) return;
  if (mem_grow(&str->s, &str->cap, str->len + len + 1, 1)) {
    str->failed = true;
    return;
  }
  if (len) memcpy(str->s + str->len, bytes, len);
  str->len += len;
  str->s[str->len] = '\0';
}

void str_add(Str *str, const char *text) {
  str_addn(str, text, strlen(text));
}

void str_addc(Str *str, char c) {
  str_addn(str, &c, 1);
}

void str_addf(Str *str, const char *fmt, ...) {
  char small[256];
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, fmt, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof small) {
    str_addn(str, small, (size_t)n);
  } else if (n >= 0 && !str->failed) {
    if (mem_grow(&str->s, &str->cap, str->len + (size_t)n + 1, 1)) {
      str->failed = true;
    } else {
      vsnprintf(str->s + str->len, (size_t)n + 1, fmt, again);
      str->len += (size_t)n;
    }
  }
  va_end(again);
}

static bool is_shell_safe(unsigned char c) {
  return c >= 0x80 || isalnum(c) || strchr("_@%+=:,./-", c);
}

/* Returns true if a message would print the word unchanged, without escapes. */
static bool is_visible(const char *word) {
  char shown[256];
  while (*word) {
    size_t n = utf8_visible(word, shown, sizeof shown);
    if (strlen(shown) != n || memcmp(shown, word, n) != 0) return false;
    word += n;
  }
  return true;
}

void str_add_shell(Str *str, const char *word) {
  bool safe = *word != '\0', control = !is_visible(word);
  for (const char *at = word; *at; at++) safe = safe && is_shell_safe((unsigned char)*at);
  if (safe && !control) {
    str_add(str, word);
    return;
  }
  str_add(str, control ? "$'" : "'");
  for (const char *at = word; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (control && (iscntrl(c) || c >= 0x80))
      str_addf(str, "\\%03o", (unsigned)c);
    else if (control && (*at == '\'' || *at == '\\'))
      str_addf(str, "\\%c", *at);
    else if (*at == '\'')
      str_add(str, "'\\''");
    else
      str_addc(str, *at);
  }
  str_addc(str, '\'');
}

void str_clear(Str *str) {
  str->len = 0;
  str->failed = false;
  if (str->s) str->s[0] = '\0';
}

void str_free(Str *str) {
  mem_free(str->s);
  *str = (Str){0};
}

Err str_check(const Str *str) {
  return str->failed ? err_set(ERR_WORK, "out of memory while building a text") : ERR_OK;
}

const char *str_text(const Str *str) {
  return str->s ? str->s : "";
}

bool str_starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

size_t str_distance(const char *a, const char *b) {
  /* row[j] is the distance between the first i letters of a and the first j letters of b. */
  size_t row[64];
  size_t m = strlen(b);
  if (m >= 64) return SIZE_MAX;
  for (size_t j = 0; j <= m; j++) row[j] = j;
  for (size_t i = 0; a[i]; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 1; j <= m; j++) {
      size_t best = diagonal + (a[i] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return row[m];
}

/* Parses the number at the beginning of `text` and sets *rest to the character after it. */
static Err parse_number(const char *text, double *value, const char **rest) {
  char *end = NULL;
  errno = 0;
  const char *digits = text + (text[0] == '+' || text[0] == '-');
  bool plausible = isdigit((unsigned char)digits[0]) || digits[0] == '.';
  if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) plausible = false;
  /* Rejects what strtod accepts beyond decimal numbers: leading blanks, "nan", "0x". */
  if (plausible) *value = strtod(text, &end);
  if (!plausible || end == text || !isfinite(*value) || errno == ERANGE) {
    return err_set(ERR_USAGE, "'%s' is not a number", text);
  }
  *rest = end;
  return ERR_OK;
}

/* Returns the factor of the unit k, K, M, G or T, or 0 for any other letter. `kilo` is 1000 or
 * 1024. */
static double scale_of(char letter, double kilo) {
  switch (letter) {
    case 'k':
    case 'K':
      return kilo;
    case 'M':
      return kilo * kilo;
    case 'G':
      return kilo * kilo * kilo;
    case 'T':
      return kilo * kilo * kilo * kilo;
    default:
      return 0;
  }
}

static Err parse_scaled(const char *text, double kilo, const char *bad, int64_t *value) {
  double x = 0;
  const char *rest = text;
  if (parse_number(text, &x, &rest)) return err_set(ERR_USAGE, "'%s' is not %s", text, bad);
  double scale = scale_of(*rest, kilo), unit = scale > 0 ? scale : 1;
  if (scale > 0) rest++;
  if (kilo == 1024.0 && *rest == 'B') rest++;
  x *= unit;
  /* Rounds to an integer. "1.001k" is 1000.9999999999999 in binary, so a difference of a few
   * units in the last place is accepted. */
  double whole = round(x), slack = unit > 1 ? 4e-16 * fabs(x) : 0;
  if (*rest || fabs(x - whole) > slack || fabs(x) > 9e15)
    return err_set(ERR_USAGE, "'%s' is not %s", text, bad);
  *value = (int64_t)whole;
  return ERR_OK;
}

Err str_count(const char *text, int64_t *value) {
  return parse_scaled(text, 1000.0, "a whole number such as 500, 25k or 2M", value);
}

Err str_bytes(const char *text, int64_t *value) {
  return parse_scaled(text, 1024.0, "a size in bytes such as 4096, 64M or 2G", value);
}

/* Adds x, in the unit at *rest ("ms", "s", "m", "h", "d"), to *total and moves *rest after the
 * unit. Returns false if there is no such unit. */
static bool add_time(double x, const char **rest, double *total) {
  static const struct {
    const char *name;
    double factor, divisor;
  } units[] = {{"ms", 1, 1000}, {"s", 1, 1}, {"m", 60, 1}, {"h", 3600, 1}, {"d", 86400, 1}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (!str_starts(*rest, units[i].name)) continue;
    *total += units[i].factor * x / units[i].divisor;
    *rest += strlen(units[i].name);
    return true;
  }
  return false;
}

Err str_seconds(const char *text, double *value) {
  const char *rest = text;
  double total = 0, x = 0;
  const char *at = text;
  do { /* Parses one or more number-unit pairs, as in "1h30m". */
    if (parse_number(at, &x, &rest) || x < 0) goto bad;
    if (*rest == '\0' && at == text)
      total += x;
    else if (!add_time(x, &rest, &total))
      goto bad;
    at = rest;
  } while (*at);
  if (!isfinite(total)) goto bad;
  *value = total;
  return ERR_OK;
bad:
  return err_set(ERR_USAGE, "'%s' is not a time such as 90s, 15m, 2h or 1h30m", text);
}

Err str_real(const char *text, double *value) {
  const char *rest = text;
  TRY(parse_number(text, value, &rest));
  return *rest ? err_set(ERR_USAGE, "'%s' is not a number", text) : ERR_OK;
}

const char *str_plural(uint64_t number) {
  return number == 1 ? "" : "s";
}

char *str_of_count(char *out, uint64_t value) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  char *to = out;
  for (int i = 0; i < n; i++) {
    if (i && (n - i) % 3 == 0) *to++ = ',';
    *to++ = digits[i];
  }
  *to = '\0';
  return out;
}

char *str_of_bytes(char *out, uint64_t bytes) {
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double x = (double)bytes;
  size_t u = 0;
  for (; x >= 999.5 && u < 5; u++) x /= 1000;
  snprintf(out, 32, u && x < 99.95 ? "%.1f %s" : "%.0f %s", x, unit[u]);
  return out;
}

char *str_of_seconds(char *out, double seconds) {
  uint64_t s = seconds > 0 && seconds < 1e12 ? (uint64_t)(seconds + 0.5) : 0;
  if (s < 60 && seconds < 10)
    snprintf(out, 32, "%.1fs", seconds > 0 ? seconds : 0);
  else if (s < 60)
    snprintf(out, 32, "%llus", (unsigned long long)s);
  else if (s < 3600)
    snprintf(out, 32, "%llum %02llus", (unsigned long long)s / 60, (unsigned long long)s % 60);
  else if (s < 172800)
    snprintf(out, 32, "%lluh %02llum", (unsigned long long)s / 3600,
             (unsigned long long)s % 3600 / 60);
  else
    snprintf(out, 32, "%llud %02lluh", (unsigned long long)s / 86400,
             (unsigned long long)s % 86400 / 3600);
  return out;
}
