/* chrF (Popović 2015) and chrF++ (2017): F-score with beta 2 of character n-grams up to 6
 * and, for chrF++, word n-grams up to 2. Depends on metric/unicode, ngram. */
#ifndef METRIC_CHRF_H
#define METRIC_CHRF_H

#include "metric/ngram.h"
#include "metric/unicode.h"

#define CHRF_CHARS 6
#define CHRF_WORDS 2
/* maximum number of statistics: hyp, ref and match per order */
#define CHRF_STATS_MAX (3 * (CHRF_CHARS + CHRF_WORDS))

typedef struct {
  size_t word_order; /* maximum order of word n-grams: 0, or CHRF_WORDS for chrF++ */
  bool lowercase;
  MetricBuffer hyp, ref; /* lower-cased lines */
  NgramWords words;
  NgramTree char_tree, word_tree;
  uint32_t *code; /* code points of the line without white space */
  MetricText *word;
  uint32_t *symbol; /* numbers of the words of the line, from NgramWords */
  size_t code_cap, word_cap, symbol_cap, codes, word_count;
} Chrf;

NODISCARD Err chrf_add(Chrf *c, MetricText hyp, const MetricText *refs, int n, double *row);
/* Computes the score; `orders` is 6 or 8. A `single` that is not NULL requests float32
 * arithmetic; *single is set to true if the result is float32 (a score without any match is
 * not). */
double chrf_score(const double *sum, size_t orders, bool *single);
void chrf_free(Chrf *c);

#endif
