/* Splits text into words as GPT-2 does. Depends on byte_chars_table, base/utf8. */
#include "text/byte_words.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "text/byte_chars_table.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

typedef enum { CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_OTHER, CLASS_NONE } CharClass;

static CharClass get_ascii_class(uint32_t code) {
  if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z')) return CLASS_LETTER;
  if (code >= '0' && code <= '9') return CLASS_NUMBER;
  return utf8_is_space(code) ? CLASS_SPACE : CLASS_OTHER;
}

static CharClass get_class(uint32_t code) {
  if (code < 0x80) return get_ascii_class(code);
  if (char_range_has(letters, COUNT(letters), code)) return CLASS_LETTER;
  if (char_range_has(numbers, COUNT(numbers), code)) return CLASS_NUMBER;
  return utf8_is_space(code) ? CLASS_SPACE : CLASS_OTHER;
}

/* Returns the class of the character at `at` and sets *n to its bytes; CLASS_NONE at the end. */
static CharClass read_class(const char *at, const char *end, size_t *n) {
  uint32_t code;
  *n = at < end ? utf8_decode(at, end, &code) : 0;
  return *n ? get_class(code) : CLASS_NONE;
}

/* Returns the length of the contraction at the beginning of the text, such as 're; 0 if there is none. */
static size_t match_contraction(const char *at, const char *end) {
  static const char *const forms[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (size_t i = 0; i < COUNT(forms); i++) {
    size_t n = strlen(forms[i]);
    if ((size_t)(end - at) >= n && memcmp(at, forms[i], n) == 0) return n;
  }
  return 0;
}

/* Returns the end of the characters of one class. */
static const char *skip_class(const char *at, const char *end, CharClass class) {
  size_t n;
  while (read_class(at, end, &n) == class) at += n;
  return at;
}

/* White space before a word leaves its last character to the word, or to be a word of its own. */
static const char *skip_space(const char *at, const char *end) {
  const char *begin = at, *last = at;
  size_t n;
  while (read_class(at, end, &n) == CLASS_SPACE) {
    last = at;
    at += n;
  }
  return at < end && last > begin ? last : at;
}

const char *byte_word_end(const char *at, const char *end) {
  size_t n, space = *at == ' ';
  size_t contraction = match_contraction(at, end);
  if (contraction) return at + contraction;
  CharClass class = read_class(at + space, end, &n);
  if (class == CLASS_SPACE || class == CLASS_NONE) return skip_space(at, end);
  return skip_class(at + space, end, class);
}
