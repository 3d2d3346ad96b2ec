/* TER: repeatedly applies the shift of words that saves the most edits, until none saves any,
 * then counts the edit distance. A candidate shift changes only some rows of the distance matrix,
 * so only these are computed again. A second matrix contains the distances from each cell to the
 * end. Depends on metric/unicode, ngram. */
#include "metric/ter.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Limits of tercom and of sacreBLEU. Other values would change scores. */
#define MAX_SHIFT_SIZE       10
#define MAX_SHIFT_DISTANCE   50
#define MAX_SHIFT_CANDIDATES 1000
#define BEAM_WIDTH           25

#define FAR (INT32_MAX / 4) /* number of edits of a cell outside the band */

/* Returns a pointer to row i of a matrix, indexed by column. Each row has one infinite cell
 * before its band, and after it as many as the next row reads. */
static inline int32_t *row_of(const TerSpace *s, int32_t *matrix, size_t i) {
  return matrix + i * s->stride + 1 - s->low[i];
}

/* Computes the band of each row and allocates the matrices. The band of row i has `width` columns
 * on both sides of a diagonal whose slope is the ratio of the lengths, in double precision with
 * the rounding of sacreBLEU. */
static Err lay_out(TerSpace *s) {
  TRY(mem_grow(&s->low, &s->low_cap, s->hyps + 1, sizeof *s->low));
  TRY(mem_grow(&s->high, &s->high_cap, s->hyps + 1, sizeof *s->high));
  double slope = s->hyps ? (double)s->refs / (double)s->hyps : 1;
  double width = BEAM_WIDTH < slope / 2 ? ceil(slope / 2 + BEAM_WIDTH) : BEAM_WIDTH;
  int32_t end = (int32_t)s->refs + 1, widest = 0, step = 0;
  for (size_t i = 1; i <= s->hyps; i++) {
    double middle = floor((double)i * slope);
    s->low[i] = (int32_t)fmax(0, middle - width);
    s->high[i] = i == s->hyps ? end : (int32_t)fmin(end, middle + width);
  }
  /* Row 0, before the first word, has only the cells that row 1 reads. */
  s->low[0] = s->hyps && s->low[1] > 0 ? s->low[1] - 1 : 0;
  s->high[0] = s->hyps ? s->high[1] : end;
  for (size_t i = 0; i <= s->hyps; i++) {
    int32_t here = s->high[i] - s->low[i];
    if (here > widest) widest = here;
    int32_t down = i ? s->low[i] - s->low[i - 1] : 0;
    if (down > step) step = down;
  }
  s->stride = (size_t)widest + (size_t)step + 3;
  size_t cells = (s->hyps + 1) * s->stride;
  TRY(mem_grow(&s->from, &s->from_cap, cells, sizeof *s->from));
  TRY(mem_grow(&s->to, &s->to_cap, cells, sizeof *s->to));
  TRY(mem_grow(&s->trial, &s->trial_cap, 2 * s->stride, sizeof *s->trial));
  for (size_t k = 0; k < cells; k++) s->from[k] = s->to[k] = FAR;
  for (size_t k = 0; k < 2 * s->stride; k++) s->trial[k] = FAR;
  int32_t *first = row_of(s, s->from, 0);
  for (int32_t j = s->low[0]; j < s->high[0]; j++) first[j] = j;
  return ERR_OK;
}

static inline int32_t min_edits(int32_t a, int32_t b) {
  return a < b ? a : b;
}

/* Computes row i of the distances from the beginning, with `word` as hypothesis word i. `above`
 * and `row` are indexed by column. */
static void next_row(const TerSpace *s, size_t i, uint32_t word, const int32_t *above,
                     int32_t *row) {
  int32_t j = s->low[i], left = FAR;
  if (j == 0) row[j++] = left = above[0] + 1;
  for (; j < s->high[i]; j++) {
    int32_t edits = min_edits(above[j - 1] + (word != s->ref[j - 1]), above[j] + 1);
    row[j] = left = min_edits(edits, left + 1);
  }
}

/* Computes both matrices for the current words. Row 0 of `to` is not needed. */
static void fill_matrices(TerSpace *s) {
  for (size_t i = 1; i <= s->hyps; i++) {
    next_row(s, i, s->words[i - 1], row_of(s, s->from, i - 1), row_of(s, s->from, i));
  }
  int32_t end = (int32_t)s->refs;
  int32_t *below = row_of(s, s->to, s->hyps);
  for (int32_t j = s->low[s->hyps]; j < s->high[s->hyps]; j++) below[j] = end - j;
  for (size_t i = s->hyps; i-- > 1;) {
    int32_t *row = row_of(s, s->to, i), right = FAR;
    for (int32_t j = s->high[i] - 1; j >= s->low[i]; j--) {
      /* The next row begins at or after this column; its earlier cells are infinite. */
      int32_t edits = j >= s->low[i + 1] ? below[j] + 1 : FAR;
      if (j < end && j + 1 >= s->low[i + 1]) {
        edits = min_edits(edits, below[j + 1] + (s->words[i] != s->ref[j]));
      }
      row[j] = right = min_edits(edits, right + 1);
    }
    below = row;
  }
}

/* Traces the cheapest path back. Of equally cheap steps it prefers a match or substitution, then
 * the deletion of a hypothesis word, then an insertion. Fills `align` and both running sums. */
static void trace_path(TerSpace *s) {
  memset(s->hyp_errors, 0, (s->hyps + 1) * sizeof *s->hyp_errors);
  memset(s->ref_errors, 0, (s->refs + 1) * sizeof *s->ref_errors);
  size_t i = s->hyps, j = s->refs;
  while (i > 0 || j > 0) {
    const int32_t *row = row_of(s, s->from, i), *above = i ? row_of(s, s->from, i - 1) : NULL;
    int32_t differ = i && j ? s->words[i - 1] != s->ref[j - 1] : 0;
    if (i && j && row[j] == above[j - 1] + differ) {
      i--;
      j--;
      s->align[j] = (int32_t)i;
      s->hyp_errors[i + 1] = s->ref_errors[j + 1] = differ;
    } else if (i && row[j] == above[j] + 1) {
      i--;
      s->hyp_errors[i + 1] = 1;
    } else {
      j--;
      s->align[j] = (int32_t)i - 1;
      s->ref_errors[j + 1] = 1;
    }
  }
  for (i = 0; i < s->hyps; i++) s->hyp_errors[i + 1] += s->hyp_errors[i];
  for (j = 0; j < s->refs; j++) s->ref_errors[j + 1] += s->ref_errors[j];
}

/* Moves the words start … start+length-1 to the position `target`. */
typedef struct {
  int32_t gain; /* number of edits that the shift saves */
  size_t start, length, target;
} Shift;

/* Writes the words whose position changes to `moved`, in their new order, and returns their
 * range. */
static void apply_shift(TerSpace *s, const Shift *shift, size_t *first, size_t *last) {
  size_t start = shift->start, end = start + shift->length, target = shift->target;
  size_t block = shift->length * sizeof *s->words;
  if (target < start) {
    *first = target;
    *last = end;
    memcpy(s->moved, s->words + start, block);
    memcpy(s->moved + shift->length, s->words + target, (start - target) * sizeof *s->words);
    return;
  }
  if (target <= end)
    target += shift->length; /* A target inside the shifted words counts from their end. */
  if (target > s->hyps) target = s->hyps;
  *first = start;
  *last = target;
  memcpy(s->moved, s->words + end, (target - end) * sizeof *s->words);
  memcpy(s->moved + (target - end), s->words + start, block);
}

/* Returns the number of edits after the shift, or any number above `limit` if there are more than
 * `limit`. */
static int32_t edits_after(TerSpace *s, const Shift *shift, int32_t limit) {
  size_t first, last;
  apply_shift(s, shift, &first, &last);
  const int32_t *above = row_of(s, s->from, first);
  for (size_t i = first + 1; i <= last; i++) {
    int32_t *row = s->trial + (i & 1) * s->stride + 1 - s->low[i];
    next_row(s, i, s->moved[i - 1 - first], above, row);
    /* An earlier candidate may have written the cells after this row's band. */
    for (int32_t j = s->high[i]; j < s->low[i] + (int32_t)s->stride - 1; j++) row[j] = FAR;
    above = row;
  }
  if (last == s->hyps) return above[s->refs];
  const int32_t *rest = row_of(s, s->to, last);
  int32_t edits = limit + 1;
  for (int32_t j = s->low[last]; j < s->high[last]; j++)
    edits = min_edits(edits, above[j] + rest[j]);
  return edits;
}

/* Compares two shifts by tercom's ranking: most edits saved, then longest, then earliest start,
 * then smallest target. Only a shift that saves edits is applied. */
static bool is_better(const Shift *a, const Shift *b) {
  if (a->gain != b->gain) return a->gain > b->gain;
  if (a->length != b->length) return a->length > b->length;
  if (a->start != b->start) return a->start < b->start;
  return a->target < b->target;
}

/* Visits the candidate shifts: equal runs of words at different positions that are misaligned in
 * hypothesis and reference. Counts them or, if `best` is not NULL, keeps the best one. As in
 * sacreBLEU, the count ends after the run that reaches the limit. */
static size_t visit_shifts(TerSpace *s, size_t checked, int32_t edits, Shift *best) {
  for (size_t h = 0; h < s->hyps; h++) {
    size_t r = h > MAX_SHIFT_DISTANCE ? h - MAX_SHIFT_DISTANCE : 0;
    for (; r < s->refs && r <= h + MAX_SHIFT_DISTANCE; r++) {
      for (size_t n = 1; n <= MAX_SHIFT_SIZE; n++) {
        if (h + n > s->hyps || r + n > s->refs || s->words[h + n - 1] != s->ref[r + n - 1])
          break;
        if (s->hyp_errors[h + n] == s->hyp_errors[h]) continue;
        if (s->ref_errors[r + n] == s->ref_errors[r]) continue;
        int32_t at = s->align[r];
        if (at >= (int32_t)h && at < (int32_t)(h + n)) continue;
        int32_t before = -1;
        for (size_t k = 0; k <= n; k++) {
          int32_t target = r + k == 0 ? 0 : s->align[r + k - 1] + 1;
          if (target == before) continue;
          before = target;
          checked++;
          Shift shift = {0, h, n, (size_t)target};
          /* A shift to its own position saves nothing. */
          if (!best || shift.target == h) continue;
          shift.gain = edits - edits_after(s, &shift, edits);
          if (shift.gain > 0 && is_better(&shift, best)) *best = shift;
        }
        if (checked >= MAX_SHIFT_CANDIDATES) return checked;
      }
    }
  }
  return checked;
}

Err ter_edits(TerSpace *s, const uint32_t *hyp, size_t hyps, const uint32_t *ref, size_t refs,
              size_t *edits) {
  *edits = hyps;
  if (refs == 0) return ERR_OK;
  if (hyps > INT32_MAX / 8 || refs > INT32_MAX / 8) {
    return err_set(ERR_WORK, "cannot compute TER of a line of more than %d words; split it",
                   INT32_MAX / 8);
  }
  s->hyps = hyps;
  s->refs = refs;
  s->ref = ref;
  TRY(mem_grow(&s->words, &s->words_cap, hyps, sizeof *s->words));
  TRY(mem_grow(&s->moved, &s->moved_cap, hyps, sizeof *s->moved));
  TRY(mem_grow(&s->align, &s->align_cap, refs, sizeof *s->align));
  TRY(mem_grow(&s->hyp_errors, &s->hyp_errors_cap, hyps + 1, sizeof *s->hyp_errors));
  TRY(mem_grow(&s->ref_errors, &s->ref_errors_cap, refs + 1, sizeof *s->ref_errors));
  TRY(lay_out(s));
  if (hyps) memcpy(s->words, hyp, hyps * sizeof *hyp);
  size_t shifts = 0, checked = 0;
  for (;; shifts++) {
    fill_matrices(s);
    int32_t distance = row_of(s, s->from, hyps)[refs];
    *edits = shifts + (size_t)distance;
    if (distance == 0) return ERR_OK;
    trace_path(s);
    /* A search that reaches the limit applies no shift, so its candidates need not be
     * evaluated. */
    size_t after = visit_shifts(s, checked, distance, NULL);
    if (after >= MAX_SHIFT_CANDIDATES) return ERR_OK;
    Shift best = {0};
    visit_shifts(s, checked, distance, &best);
    if (best.gain <= 0) return ERR_OK;
    checked = after;
    size_t first, last;
    apply_shift(s, &best, &first, &last);
    memcpy(s->words + first, s->moved, (last - first) * sizeof *s->words);
  }
}

/* Splits the lower-cased line at white space. */
static Err split_line(Ter *t, MetricText line, MetricBuffer *lower) {
  TRY(metric_lower(line, lower));
  TRY(mem_grow(&t->token, &t->token_cap, lower->len / 2 + 1, sizeof *t->token));
  t->tokens = 0;
  const char *end = lower->s + lower->len, *word = NULL;
  for (const char *at = lower->s; at < end;) {
    uint32_t code;
    size_t n = utf8_decode(at, end, &code);
    if (!metric_is_space(code)) {
      if (!word) word = at;
    } else if (word) {
      t->token[t->tokens++] = (MetricText){word, (size_t)(at - word)};
      word = NULL;
    }
    at += n;
  }
  if (word) t->token[t->tokens++] = (MetricText){word, (size_t)(end - word)};
  return ERR_OK;
}

Err ter_add(Ter *t, MetricText hyp, const MetricText *refs, int n, double *row) {
  TRY(split_line(t, hyp, &t->hyp));
  size_t hyps = t->tokens, fewest = SIZE_MAX, lengths = 0;
  TRY(mem_grow(&t->hyp_ids, &t->hyp_cap, hyps, sizeof *t->hyp_ids));
  TRY(ngram_words_begin(&t->words, hyps));
  for (size_t i = 0; i < hyps; i++) t->hyp_ids[i] = ngram_word_add(&t->words, t->token[i]);
  for (int r = 0; r < n; r++) {
    TRY(split_line(t, refs[r], &t->ref));
    TRY(mem_grow(&t->ref_ids, &t->ref_cap, t->tokens, sizeof *t->ref_ids));
    for (size_t i = 0; i < t->tokens; i++) {
      t->ref_ids[i] = ngram_word_find(&t->words, t->token[i]);
    }
    size_t edits;
    TRY(ter_edits(&t->space, t->hyp_ids, hyps, t->ref_ids, t->tokens, &edits));
    if (edits < fewest) fewest = edits;
    lengths += t->tokens;
  }
  row[0] = (double)fewest;
  row[1] = (double)lengths / n;
  return ERR_OK;
}

double ter_score(const double *sum, bool *single) {
  if (sum[1] <= 0) {
    if (single) *single = false;
    return sum[0] > 0 ? 100 : 0;
  }
  if (!single) return 100 * (sum[0] / sum[1]);
  *single = true;
  float rate = (float)sum[0] / (float)sum[1];
  rate *= 100;
  return (double)rate;
}

void ter_free(Ter *t) {
  TerSpace *s = &t->space;
  void *blocks[] = {t->hyp.s, t->ref.s, t->token, t->hyp_ids,    t->ref_ids,
                    s->words, s->moved, s->low,   s->high,       s->from,
                    s->to,    s->trial, s->align, s->hyp_errors, s->ref_errors};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) mem_free(blocks[i]);
  ngram_words_free(&t->words);
}
