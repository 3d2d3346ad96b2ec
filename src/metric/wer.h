/* Word and character error rate, equal to those of jiwer 4: insertions, deletions and substitutions
 * over the length of the reference. Depends on metric/unicode, ngram (word numbers). */
#ifndef METRIC_WER_H
#define METRIC_WER_H

#include "metric/ngram.h"
#include "metric/unicode.h"

#define WER_COMPATIBLE "jiwer-4.0.0"
#define WER_STATS      2 /* statistics of a sentence: edits, length of the reference */

typedef enum { WER_WORDS, WER_CHARS } WerUnit;

typedef struct {
  WerUnit unit;
  bool lowercase;
  MetricBuffer hyp, ref; /* lower-cased lines */
  NgramWords words;
  uint32_t *hyp_ids, *ref_ids; /* numbers of the words, or code points */
  int32_t *row;                /* one row of the distance matrix */
  size_t hyp_cap, ref_cap, row_cap;
} Wer;

NODISCARD Err wer_add(Wer *w, MetricText hyp, MetricText ref, double *row);
/* Returns edits over length in per cent; 100 if the references are empty and the hypotheses are
 * not. */
double wer_score(const double *sum);
void wer_free(Wer *w);

#endif
