/* Cleans parallel text. Depends on base/utf8. */
#include "data/clean.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

const char *const clean_reason[CLEAN_VERDICTS] = {
    [CLEAN_KEEP] = "kept",
    [CLEAN_BAD_UTF8] = "not UTF-8",
    [CLEAN_NUL] = "a NUL byte",
    [CLEAN_EMPTY] = "a side is empty",
    [CLEAN_LONG] = "too many words",
    [CLEAN_SHORT] = "too few words",
    [CLEAN_RATIO] = "lengths too unlike",
    [CLEAN_WORD] = "a word too long",
    [CLEAN_TOKENS] = "too many tokens",
    [CLEAN_DUPLICATE] = "seen before",
};

const char *const clean_key[CLEAN_VERDICTS] = {
    [CLEAN_KEEP] = "kept",           [CLEAN_BAD_UTF8] = "bad_utf8", [CLEAN_NUL] = "nul",
    [CLEAN_EMPTY] = "empty",         [CLEAN_LONG] = "long",         [CLEAN_SHORT] = "short",
    [CLEAN_RATIO] = "ratio",         [CLEAN_WORD] = "word",         [CLEAN_TOKENS] = "tokens",
    [CLEAN_DUPLICATE] = "duplicate",
};

CleanLine clean_squeeze(const char *text, size_t len, char *out) {
  CleanLine line = {0};
  const char *at = text, *end = text + len;
  char *to = out;
  uint32_t word = 0; /* number of characters of the current word, without '|' */
  bool blank = true; /* True at the beginning of the line and after a space. */
  while (at < end) {
    unsigned char c = (unsigned char)*at;
    size_t n = 1;
    bool space;
    if (c < 0x80) {
      space = c == ' ' || (c >= 0x09 && c <= 0x0d);
    } else {
      uint32_t code = 0;
      n = utf8_decode(at, end, &code);
      /* The input is not UTF-8, although the caller must ensure it: copies the byte. */
      if (n == 0) n = 1;
      space = c <= 0xe3 && utf8_is_space(code);
    }
    if (space) {
      if (!blank) {
        *to++ = ' ';
        line.words += word > 0;
        if (word > line.longest_word) line.longest_word = word;
        word = 0;
        blank = true;
      }
    } else {
      for (size_t i = 0; i < n; i++) *to++ = at[i];
      word += c != '|';
      blank = false;
    }
    at += n;
  }
  line.words += word > 0;
  if (word > line.longest_word) line.longest_word = word;
  if (blank && to > out) to--; /* removes a trailing space */
  line.len = (size_t)(to - out);
  return line;
}

CleanVerdict clean_judge(const CleanRules *rules, const CleanLine *source,
                         const CleanLine *target) {
  uint32_t s = source->words, t = target->words;
  if (s == 0 || t == 0) return CLEAN_EMPTY;
  if (s > rules->max_words || t > rules->max_words) return CLEAN_LONG;
  if (s < rules->min_words || t < rules->min_words) return CLEAN_SHORT;
  if ((double)s / t > rules->max_ratio || (double)t / s > rules->max_ratio) return CLEAN_RATIO;
  if (source->longest_word > rules->max_word_length ||
      target->longest_word > rules->max_word_length)
    return CLEAN_WORD;
  return CLEAN_KEEP;
}
