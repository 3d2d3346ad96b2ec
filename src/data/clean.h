/* Cleans parallel text with the rules of Moses' clean-corpus-n: runs of white space become one
 * space; pairs with an empty side, a side that is too long, or sides of very different lengths
 * are dropped. Depends on base. */
#ifndef DATA_CLEAN_H
#define DATA_CLEAN_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t min_words, max_words;
  uint32_t max_word_length; /* maximum number of characters in a word */
  double max_ratio;         /* maximum ratio of the word counts of the two sides */
} CleanRules;

/* The reason why a pair is dropped; CLEAN_KEEP: the pair is kept. */
typedef enum {
  CLEAN_KEEP,
  CLEAN_BAD_UTF8,
  CLEAN_NUL,
  CLEAN_EMPTY,
  CLEAN_LONG,
  CLEAN_SHORT,
  CLEAN_RATIO,
  CLEAN_WORD,
  CLEAN_TOKENS,
  CLEAN_DUPLICATE,
  CLEAN_VERDICTS,
} CleanVerdict;
/* For each verdict its description, such as "length ratio above the limit", and its key in
 * dataset.json, such as "ratio". */
extern const char *const clean_reason[CLEAN_VERDICTS];
extern const char *const clean_key[CLEAN_VERDICTS];

typedef struct {
  size_t len; /* bytes after white space was reduced */
  /* number of words; '|' does not count, because Moses removes it first */
  uint32_t words;
  uint32_t longest_word; /* characters of the longest word */
} CleanLine;

/* Replaces every run of Unicode white space by one space and strips both ends. `text` must be
 * UTF-8. `out` must have at least `len` bytes and may be `text` itself. */
CleanLine clean_squeeze(const char *text, size_t len, char *out);

CleanVerdict clean_judge(const CleanRules *rules, const CleanLine *source,
                         const CleanLine *target);

#endif
