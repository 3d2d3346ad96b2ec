/* BLEU (Papineni et al. 2002) with exponential smoothing.
 * Depends on metric/tokenize, ngram. */
#ifndef METRIC_BLEU_H
#define METRIC_BLEU_H

#include "metric/ngram.h"
#include "metric/tokenize.h"

#define BLEU_ORDER 4
#define BLEU_STATS (2 + 2 * BLEU_ORDER) /* hyp_len, ref_len, correct[4], total[4] */

typedef struct {
  MetricTokenizer tokenizer;
  bool lowercase;
  MetricTokens tokens;
  MetricBuffer lower, hyp; /* `hyp` keeps the hypothesis while references are read */
  NgramWords words;
  NgramTree tree;
  uint32_t *symbol;
  size_t symbol_cap;
} Bleu;

/* The statistics of one sentence. */
NODISCARD Err bleu_add(Bleu *b, MetricText hyp, const MetricText *refs, int n, double *row);
/* The score of statistics summed over sentences. `single`: computed in float32, in which
 * sacreBLEU scores bootstrap samples. */
void bleu_score(const double *sum, bool effective, bool single, MetricScore *score);
void bleu_free(Bleu *b);

#endif
