/* Translation edit rate (Snover et al. 2006), with the shift search of tercom and the limits of
 * sacreBLEU. Depends on metric/unicode, ngram (word numbers). */
#ifndef METRIC_TER_H
#define METRIC_TER_H

#include "metric/ngram.h"
#include "metric/unicode.h"

/* statistics of a sentence: edits to the best reference, mean length of the references */
#define TER_STATS 2

/* Working memory for two word sequences. The matrices store a band of columns around the
 * diagonal: row i has the columns low[i] … high[i]-1. */
typedef struct {
  size_t hyps, refs;
  const uint32_t *ref; /* (refs) words of the reference */
  uint32_t *words;     /* (hyps) words of the hypothesis after the shifts so far */
  uint32_t *moved;     /* (hyps) words that a candidate shift moves */
  int32_t *low, *high; /* (hyps + 1) first column of each row, and column after the last */
  size_t stride;       /* cells of a row, including the infinite ones at its ends */
  int32_t *from;       /* (hyps + 1, stride) edits from the beginning to the cell */
  int32_t *to;         /* (hyps + 1, stride) edits from the cell to the end */
  int32_t *trial;      /* (2, stride) rows of the candidate shift */
  int32_t *align;      /* (refs) hypothesis word at or before each reference word */
  int32_t *hyp_errors; /* (hyps + 1) running sum of misaligned hypothesis words */
  int32_t *ref_errors; /* (refs + 1) running sum of misaligned reference words */
  size_t words_cap, moved_cap, low_cap, high_cap, from_cap, to_cap, trial_cap, align_cap,
      hyp_errors_cap, ref_errors_cap;
} TerSpace;

typedef struct {
  MetricBuffer hyp, ref; /* lower-cased lines */
  NgramWords words;
  MetricText *token;
  uint32_t *hyp_ids, *ref_ids;
  size_t token_cap, hyp_cap, ref_cap, tokens;
  TerSpace space;
} Ter;

NODISCARD Err ter_add(Ter *t, MetricText hyp, const MetricText *refs, int n, double *row);
/* Counts the shifts, insertions, deletions and substitutions that turn the hypothesis into the
 * reference. */
NODISCARD Err ter_edits(TerSpace *s, const uint32_t *hyp, size_t hyps, const uint32_t *ref,
                        size_t refs, size_t *edits);
/* Computes the score; `single` as in chrf_score. */
double ter_score(const double *sum, bool *single);
void ter_free(Ter *t);

#endif
