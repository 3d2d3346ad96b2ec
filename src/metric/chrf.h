/* chrF (Popović 2015) and chrF++ (2017): F-score, with recall counted double, of
 * character n-grams to 6 and, for chrF++, word n-grams to 2.
 * Depends on metric/unicode, ngram. */
#ifndef METRIC_CHRF_H
#define METRIC_CHRF_H

#include "metric/ngram.h"
#include "metric/unicode.h"

#define CHRF_CHARS     6
#define CHRF_WORDS     2
#define CHRF_STATS_MAX (3 * (CHRF_CHARS + CHRF_WORDS)) /* hyp, ref, match per order */

typedef struct {
  size_t word_order; /* 0, or CHRF_WORDS for chrF++ */
  bool lowercase;
  MetricBuffer hyp, ref; /* lower-cased lines */
  NgramWords words;
  NgramTree char_tree, word_tree;
  uint32_t *code; /* characters that are not white space */
  MetricText *word;
  uint32_t *symbol; /* of the words */
  size_t code_cap, word_cap, symbol_cap, codes, word_count;
} Chrf;

NODISCARD Err chrf_add(Chrf *c, MetricText hyp, const MetricText *refs, int n, double *row);
/* `orders` is 6 or 8. `single`, when not NULL, asks for float32 arithmetic and
 * says whether the score came of it; a score without any match does not. */
double chrf_score(const double *sum, size_t orders, bool *single);
void chrf_free(Chrf *c);

#endif
