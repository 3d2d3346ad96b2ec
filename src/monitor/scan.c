/* The scanner for lines of JSON. Depends on utf8. */
#include "monitor/scan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define NUMBER_BYTES 64 /* a longer number is refused */

Scan scan_begin(const char *line, size_t len) {
  return (Scan){.at = line, .end = line + len, .begin = line};
}

static ScanKind fail(Scan *s, const char *why) {
  s->why = why;
  return SCAN_ERROR;
}

static void skip_blanks(Scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) s->at++;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Reads digits into *mantissa, up to 19 of them; counts all in *digits and those that did not fit
 * in *dropped. */
static const char *read_digits(const char *at, const char *end, uint64_t *mantissa, int *digits,
                               int *dropped) {
  for (; at < end && is_digit(*at); at++) {
    if (*digits < 19)
      *mantissa = *mantissa * 10 + (uint64_t)(*at - '0');
    else
      (*dropped)++;
    if (*mantissa) (*digits)++;
  }
  return at;
}

/* Sets s->number. A number of up to 15 digits times a power of ten up to 22 is the exact product or
 * quotient of two doubles (Clinger, 1990), so one operation rounds it correctly; others go to
 * strtod. */
static bool convert_number(Scan *s, const char *begin, uint64_t mantissa, int digits,
                           int exponent, bool is_negative) {
  static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (digits <= 15 && exponent >= -22 && exponent <= 22) {
    double value = (double)mantissa;
    value = exponent < 0 ? value / power[-exponent] : value * power[exponent];
    s->number = is_negative ? -value : value;
    return true;
  }
  char copy[NUMBER_BYTES + 1];
  size_t len = (size_t)(s->at - begin);
  memcpy(copy, begin, len);
  copy[len] = 0;
  s->number = strtod(copy, NULL);
  return s->number - s->number == 0; /* not infinite */
}

static ScanKind scan_number(Scan *s) {
  const char *begin = s->at, *end = s->end;
  if (end - begin > NUMBER_BYTES) end = begin + NUMBER_BYTES;
  bool is_negative = *begin == '-';
  uint64_t mantissa = 0;
  int digits = 0, dropped = 0, exponent = 0;
  const char *at = begin + (is_negative ? 1 : 0), *whole = at;
  at = read_digits(at, end, &mantissa, &digits, &dropped);
  if (at == whole) return fail(s, "a value is expected");
  if (*whole == '0' && at - whole > 1) return fail(s, "a number has a leading zero");
  exponent = dropped;
  if (at < end && *at == '.') {
    const char *fraction = ++at;
    dropped = 0;
    at = read_digits(at, end, &mantissa, &digits, &dropped);
    if (at == fraction) return fail(s, "a digit is expected behind the decimal point");
    exponent -= (int)(at - fraction) - dropped;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    bool is_small = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    const char *first = at;
    int power = 0;
    for (; at < end && is_digit(*at); at++)
      if (power < 10000) power = power * 10 + (*at - '0');
    if (at == first) return fail(s, "a digit is expected in the exponent");
    exponent += is_small ? -power : power;
  }
  if (at == begin + NUMBER_BYTES) return fail(s, "a number has 64 or more characters");
  s->at = at;
  if (!convert_number(s, begin, mantissa, digits, exponent, is_negative))
    return fail(s, "a number is too large");
  return SCAN_NUMBER;
}

/* Reads a string; s->at is on its first quote. */
static bool scan_string(Scan *s, const char **text, size_t *len) {
  const char *at = s->at + 1;
  *text = at;
  for (; at < s->end && *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) {
      s->at = at;
      return false;
    }
    if (*at == '\\') at++;
  }
  if (at >= s->end) {
    s->at = s->end;
    return false;
  }
  *len = (size_t)(at - *text);
  s->at = at + 1;
  return true;
}

static bool scan_word(Scan *s, const char *word) {
  size_t len = strlen(word);
  if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0) return false;
  s->at += len;
  return true;
}

static ScanKind open_nested(Scan *s, bool is_array) {
  if (s->depth == SCAN_DEPTH) return fail(s, "objects and arrays are nested too deeply");
  s->at++;
  s->is_array[s->depth] = is_array;
  s->has_values[s->depth] = false;
  s->depth++;
  return SCAN_OPEN;
}

static ScanKind scan_value(Scan *s) {
  if (s->at >= s->end) return fail(s, "the line ends within an object");
  switch (*s->at) {
    case '"':
      return scan_string(s, &s->text, &s->text_len) ? SCAN_TEXT : fail(s, "a text has no end");
    case '{':
      return open_nested(s, /*is_array=*/false);
    case '[':
      return open_nested(s, /*is_array=*/true);
    case 't':
      return scan_word(s, "true") ? SCAN_OTHER : fail(s, "a value is expected");
    case 'f':
      return scan_word(s, "false") ? SCAN_OTHER : fail(s, "a value is expected");
    case 'n':
      return scan_word(s, "null") ? SCAN_OTHER : fail(s, "a value is expected");
    default:
      return scan_number(s);
  }
}

/* Reads `"name":`. */
static bool scan_key(Scan *s) {
  if (s->at >= s->end || *s->at != '"' || !scan_string(s, &s->key, &s->key_len)) return false;
  skip_blanks(s);
  if (s->at >= s->end || *s->at != ':') return false;
  s->at++;
  skip_blanks(s);
  return true;
}

/* Reads the first value of the line, which must be an object, or what comes after it: nothing. */
static ScanKind scan_outside(Scan *s) {
  if (s->is_done) return s->at == s->end ? SCAN_END : fail(s, "text behind the object");
  if (s->at == s->end || *s->at != '{') return fail(s, "an object is expected");
  s->is_done = true;
  return open_nested(s, /*is_array=*/false);
}

ScanKind scan_next(Scan *s) {
  s->key = NULL;
  s->key_len = 0;
  skip_blanks(s);
  if (s->depth == 0) return scan_outside(s);
  int level = s->depth - 1;
  if (s->at < s->end && *s->at == (s->is_array[level] ? ']' : '}')) {
    s->at++;
    s->depth--;
    return SCAN_CLOSE;
  }
  if (s->has_values[level]) {
    if (s->at >= s->end) return fail(s, "the line ends within an object");
    if (*s->at != ',') return fail(s, "a comma is expected");
    s->at++;
    skip_blanks(s);
  }
  s->has_values[level] = true;
  if (!s->is_array[level] && !scan_key(s)) return fail(s, "a name and a colon are expected");
  return scan_value(s);
}

bool scan_skip(Scan *s) {
  int outer = s->depth - 1;
  while (s->depth > outer) {
    ScanKind kind = scan_next(s);
    if (kind == SCAN_ERROR || kind == SCAN_END) return false;
  }
  return true;
}

bool scan_key_is(const Scan *s, const char *name) {
  return s->key && s->key_len == strlen(name) && memcmp(s->key, name, s->key_len) == 0;
}

bool scan_copy_name(char *out, size_t room, const char *name, size_t len) {
  if (len == 0 || len >= room) return false;
  for (size_t i = 0; i < len; i++) {
    char c = name[i], lower = (char)(c | 0x20);
    bool is_plain =
        (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_-./:", c));
    if (!is_plain) return false;
    out[i] = c;
  }
  out[len] = 0;
  return true;
}

static int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  char lower = (char)(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Reads the four digits of \uXXXX. Returns false if they are not there. */
static bool read_code(const char *at, const char *end, uint32_t *code) {
  *code = 0;
  if (end - at < 4) return false;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return false;
    *code = *code << 4 | (uint32_t)digit;
  }
  return true;
}

/* Reads the escape behind a backslash; returns how many bytes it has. An escape that is not valid
 * is '?'. */
static size_t read_escape(const char *at, const char *end, uint32_t *code) {
  static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/     ";
  const char *name = *at ? strchr(names, *at) : NULL;
  uint32_t read, low;
  *code = '?';
  if (name) {
    *code = (uint32_t)codes[name - names];
    return 1;
  }
  if (*at != 'u' || !read_code(at + 1, end, &read)) return 1;
  *code = read;
  bool is_high = *code >= 0xd800 && *code < 0xdc00;
  if (is_high && end - at >= 7 && at[5] == '\\' && at[6] == 'u' &&
      read_code(at + 7, end, &low) && low >= 0xdc00 && low < 0xe000) {
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return 11;
  }
  if (*code >= 0xd800 && *code < 0xe000) *code = '?';
  return 5;
}

/* Returns true for what a terminal or a page may take as a command: control characters, line separators,
 * and marks that change the direction of text. */
static bool is_command(uint32_t code) {
  bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  bool is_direction = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return is_control || is_direction || code == 0x200e || code == 0x200f;
}

void scan_unescape(const char *text, size_t len, char *out, size_t room) {
  const char *at = text, *end = text + len;
  size_t used = 0;
  while (at < end) {
    uint32_t code;
    size_t bytes = utf8_decode(at, end, &code);
    if (bytes == 0) code = '?';
    at += bytes ? bytes : 1;
    if (code == '\\' && at < end) at += read_escape(at, end, &code);
    if (is_command(code)) code = ' ';
    char encoded[4];
    size_t n = utf8_encode(code, encoded);
    if (used + n + 1 > room) break;
    memcpy(out + used, encoded, n);
    used += n;
  }
  if (room) out[used] = 0;
}
