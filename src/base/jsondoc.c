/* Limits the number of values in JSON documents, and computes their checksums. Depends on err,
 * str, zlib. */
#include "base/jsondoc.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define DIGITS (sizeof JSONDOC_NO_SUM - 1)

static const char sum_key[] = "\"checksum\": \"";

/* Counts commas and opening brackets outside strings. The count plus one is an upper bound of the
 * number of JSON values, because every value except the first follows one of these characters. */
size_t jsondoc_count(const char *text, size_t len) {
  size_t values = 1;
  bool quoted = false;
  for (size_t i = 0; i < len; i++) {
    if (quoted && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted)
      values += text[i] == ',' || text[i] == '[' || text[i] == '{';
  }
  return values;
}

Err jsondoc_check(const char *text, size_t len, const char *where) {
  size_t values = jsondoc_count(text, len);
  if (values <= JSONDOC_VALUES) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s is damaged: it has %zu JSON values, at most %zu are allowed; restore the file", where,
      values, JSONDOC_VALUES);
}

/* Returns the offset of the checksum's digits in the document, or 0 if the document has no
 * checksum. */
static size_t find_sum(const char *text, size_t len) {
  const char *key = len ? memmem(text, len, sum_key, sizeof sum_key - 1) : NULL;
  size_t place = key ? (size_t)(key - text) + sizeof sum_key - 1 : 0;
  return place && place + DIGITS <= len ? place : 0;
}

static void print_sum(const char *text, size_t len, size_t place, char digits[DIGITS + 1]) {
  const Bytef *at = (const Bytef *)text;
  uLong crc = crc32_z(0, at, place);
  crc = crc32_z(crc, (const Bytef *)JSONDOC_NO_SUM, DIGITS);
  crc = crc32_z(crc, at + place + DIGITS, len - place - DIGITS);
  snprintf(digits, DIGITS + 1, "%08x", (unsigned)crc);
}

void jsondoc_seal(Str *text) {
  char digits[DIGITS + 1];
  size_t place = text->failed ? 0 : find_sum(str_text(text), text->len);
  if (!place) return;
  print_sum(text->s, text->len, place, digits);
  memcpy(text->s + place, digits, DIGITS);
}

bool jsondoc_is_sealed(const char *text, size_t len) {
  char digits[DIGITS + 1];
  size_t place = find_sum(text, len);
  if (!place) return false;
  print_sum(text, len, place, digits);
  return memcmp(text + place, digits, DIGITS) == 0;
}
