/* Cleaning of parallel text, with the rules of Moses' clean-corpus-n: runs of
 * white space become one space; pairs with an empty, too long or badly matching side are dropped.
 * Depends on base. */
#ifndef DATA_CLEAN_H
#define DATA_CLEAN_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t min_words, max_words;
  uint32_t max_word_length; /* characters */
  double max_ratio;         /* of the word counts */
} CleanRules;

/* Why a pair is dropped; CLEAN_KEEP comes first. */
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
/* "length ratio above the limit"; and the key in dataset.json, "ratio". */
extern const char *const clean_reason[CLEAN_VERDICTS];
extern const char *const clean_key[CLEAN_VERDICTS];

typedef struct {
  size_t len;            /* bytes after squeezing */
  uint32_t words;        /* '|' aside, which Moses takes out before it counts */
  uint32_t longest_word; /* characters */
} CleanLine;

/* Squeezes every run of Unicode white space to one space and strips the ends.
 * `out` holds at least `len` bytes and may be `text`, which must be UTF-8. */
CleanLine clean_squeeze(const char *text, size_t len, char *out);

CleanVerdict clean_judge(const CleanRules *rules, const CleanLine *source,
                         const CleanLine *target);

#endif
