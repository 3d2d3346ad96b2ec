/* WER and CER. Words are split as in jiwer: runs of white space become one space, and words are
 * separated by spaces only, so that a single tab is part of a word. Depends on metric/unicode, ngram. */
#include "metric/wer.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* A sequence of words or characters. */
typedef struct {
  const uint32_t *id;
  size_t len;
} Sequence;

static const char *skip_space(const char *at, const char *end) {
  uint32_t code;
  for (size_t n; at < end; at += n) {
    n = utf8_decode(at, end, &code);
    if (!metric_is_space(code)) break;
  }
  return at;
}

/* Removes white space at both ends. */
static MetricText strip_line(MetricText line) {
  line = metric_rstrip(line);
  if (!line.len) return line;
  const char *end = line.s + line.len, *begin = skip_space(line.s, end);
  return (MetricText){begin, (size_t)(end - begin)};
}

/* Returns the end of the word at `at`, and in *next the beginning of the following one. */
static const char *end_of_word(const char *at, const char *end, const char **next) {
  uint32_t code;
  for (size_t n; at < end; at += n) {
    n = utf8_decode(at, end, &code);
    if (!metric_is_space(code)) continue;
    *next = skip_space(at, end);
    bool is_run = *next > at + n;
    if (is_run || code == ' ') return at;
  }
  *next = end;
  return end;
}

/* Numbers the words of the hypothesis from 1; words of the reference that it does not have are 0. */
static uint32_t number_word(Wer *w, MetricText word, bool is_hyp) {
  return is_hyp ? ngram_word_add(&w->words, word) : ngram_word_find(&w->words, word);
}

static Err split_line(Wer *w, MetricText line, bool is_hyp, Sequence *out) {
  MetricBuffer *lower = is_hyp ? &w->hyp : &w->ref;
  uint32_t **ids = is_hyp ? &w->hyp_ids : &w->ref_ids;
  size_t count = 0, n;
  if (w->lowercase) {
    TRY(metric_lower(line, lower));
    line = (MetricText){lower->s, lower->len};
  }
  line = strip_line(line);
  TRY(mem_grow(ids, is_hyp ? &w->hyp_cap : &w->ref_cap, line.len + 1, sizeof **ids));
  const char *end = line.s + line.len, *next = end;
  if (is_hyp && w->unit == WER_WORDS) TRY(ngram_words_begin(&w->words, line.len / 2 + 1));
  if (w->unit == WER_CHARS)
    for (const char *at = line.s; at < end; at += n) n = utf8_decode(at, end, &(*ids)[count++]);
  else
    for (const char *at = line.s; at < end; at = next) {
      const char *stop = end_of_word(at, end, &next);
      (*ids)[count++] = number_word(w, (MetricText){at, (size_t)(stop - at)}, is_hyp);
    }
  *out = (Sequence){.id = *ids, .len = count};
  return ERR_OK;
}

/* Removes the common prefix and suffix, which do not change the edit distance. */
static void trim_common(Sequence *a, Sequence *b) {
  while (a->len && b->len && a->id[a->len - 1] == b->id[b->len - 1]) {
    a->len--;
    b->len--;
  }
  while (a->len && b->len && a->id[0] == b->id[0]) {
    a->id++;
    b->id++;
    a->len--;
    b->len--;
  }
}

/* Computes the edit distance if it is at most `limit`; otherwise returns a larger number. Only cells
 * within `limit` of the diagonal are computed. */
static size_t distance_within(int32_t *row, Sequence a, Sequence b, size_t limit) {
  const int32_t far = INT32_MAX / 2;
  for (size_t j = 0; j <= b.len; j++) row[j] = j <= limit ? (int32_t)j : far;
  for (size_t i = 1; i <= a.len; i++) {
    size_t low = i > limit ? i - limit : 0, high = i + limit < b.len ? i + limit : b.len;
    int32_t diagonal = low ? row[low - 1] : far, left = far;
    if (low == 0) {
      diagonal = row[0];
      row[0] = left = (int32_t)i;
      low = 1;
    }
    for (size_t j = low; j <= high; j++) {
      int32_t above =
          row[j]; /* `far` at the end of the band, which the row above did not reach */
      int32_t best = diagonal + (a.id[i - 1] != b.id[j - 1]);
      if (above + 1 < best) best = above + 1;
      if (left + 1 < best) best = left + 1;
      diagonal = row[j];
      row[j] = left = best;
    }
  }
  return (size_t)row[b.len];
}

Err wer_add(Wer *w, MetricText hyp, MetricText ref, double *row) {
  Sequence a, b;
  TRY(split_line(w, hyp, true, &a));
  TRY(split_line(w, ref, false, &b));
  row[1] = (double)b.len;
  trim_common(&a, &b);
  TRY(mem_grow(&w->row, &w->row_cap, b.len + 1, sizeof *w->row));
  size_t limit = a.len > b.len ? a.len - b.len : b.len - a.len,
         longest = a.len > b.len ? a.len : b.len;
  limit += 8;
  size_t edits = distance_within(w->row, a, b, limit);
  while (edits > limit && limit < longest) {
    limit *= 2;
    edits = distance_within(w->row, a, b, limit);
  }
  row[0] = (double)edits;
  return ERR_OK;
}

double wer_score(const double *sum) {
  if (sum[1] > 0) return 100 * (sum[0] / sum[1]);
  return sum[0] > 0 ? 100 : 0;
}

void wer_free(Wer *w) {
  mem_free(w->hyp.s);
  mem_free(w->ref.s);
  mem_free(w->hyp_ids);
  mem_free(w->ref_ids);
  mem_free(w->row);
  ngram_words_free(&w->words);
}
