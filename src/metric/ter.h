/* Translation edit rate (Snover et al. 2006), with tercom's search for shifts and
 * sacreBLEU's limits on it. Depends on metric/unicode, ngram (word numbers). */
#ifndef METRIC_TER_H
#define METRIC_TER_H

#include "metric/ngram.h"
#include "metric/unicode.h"

#define TER_STATS 2 /* statistics: edits to the best reference, mean length of the references */

/* Working memory for one pair of word sequences. The matrices hold a band of columns around
 * the diagonal: row i has columns low[i] … high[i]-1. */
typedef struct {
  size_t hyps, refs;
  const uint32_t *ref; /* (refs) */
  uint32_t *words;     /* (hyps) the hypothesis as shifted so far */
  uint32_t *moved;     /* (hyps) scratch of a shift */
  int32_t *low, *high; /* (hyps + 1) */
  size_t stride;       /* cells of a row, infinite ones at its ends included */
  int32_t *from;       /* (hyps + 1, stride) edits from the beginning to the cell */
  int32_t *to;         /* (hyps + 1, stride) edits from the cell to the end */
  int32_t *trial;      /* (2, stride) rows of a candidate */
  int32_t *align;      /* (refs) hypothesis word at or before each reference word */
  int32_t *hyp_errors; /* (hyps + 1) running sums of misaligned words */
  int32_t *ref_errors; /* (refs + 1) */
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
/* Shifts, insertions, deletions and substitutions that turn the hypothesis into the
 * reference. */
NODISCARD Err ter_edits(TerSpace *s, const uint32_t *hyp, size_t hyps, const uint32_t *ref,
                        size_t refs, size_t *edits);
/* `single` as in chrf_score. */
double ter_score(const double *sum, bool *single);
void ter_free(Ter *t);

#endif
