/* BLEU (Papineni et al. 2002) with exponential smoothing.
 * Depends on metric/tokenize, ngram. */
#ifndef METRIC_BLEU_H
#define METRIC_BLEU_H

#include "metric/ngram.h"
#include "metric/tokenize.h"

#define BLEU_ORDER 4
/* statistics of a sentence: hyp_len, ref_len, correct[4], total[4] */
#define BLEU_STATS (2 + 2 * BLEU_ORDER)

typedef struct {
  MetricTokenizer tokenizer;
  bool lowercase;
  MetricTokens tokens;
  /* `hyp`: tokens of the hypothesis, kept while references are read */
  MetricBuffer lower, hyp;
  NgramWords words;
  NgramTree tree;
  uint32_t *symbol;
  size_t symbol_cap;
} Bleu;

/* Computes the statistics of one sentence. */
NODISCARD Err bleu_add(Bleu *b, MetricText hyp, const MetricText *refs, int n, double *row);
/* Computes the score from statistics that are summed over sentences. `single`: uses float32 like
 * sacreBLEU for bootstrap samples. */
void bleu_score(const double *sum, bool effective, bool single, MetricScore *score);
void bleu_free(Bleu *b);

#endif
