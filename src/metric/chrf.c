/* Statistics and score of chrF. Depends on metric/unicode, ngram. */
#include "metric/chrf.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define BETA_SQUARED 4

/* Splits a word like chrF++: separates one ASCII punctuation mark from the end of the word or, if
 * there is none, from its beginning. A mark alone is a word. */
static void add_word(Chrf *c, const char *s, size_t len) {
  static const char marks[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  if (len > 1 && s[len - 1] && strchr(marks, s[len - 1])) {
    c->word[c->word_count++] = (MetricText){s, len - 1};
    c->word[c->word_count++] = (MetricText){s + len - 1, 1};
  } else if (len > 1 && s[0] && strchr(marks, s[0])) {
    c->word[c->word_count++] = (MetricText){s, 1};
    c->word[c->word_count++] = (MetricText){s + 1, len - 1};
  } else {
    c->word[c->word_count++] = (MetricText){s, len};
  }
}

/* Splits the line into characters and, for chrF++, into words. */
static Err split_line(Chrf *c, MetricText line, MetricBuffer *lower) {
  if (c->lowercase) {
    TRY(metric_lower(line, lower));
    line = (MetricText){lower->s, lower->len};
  }
  TRY(mem_grow(&c->code, &c->code_cap, line.len, sizeof *c->code));
  TRY(mem_grow(&c->word, &c->word_cap, line.len + 1, sizeof *c->word));
  TRY(mem_grow(&c->symbol, &c->symbol_cap, line.len + 1, sizeof *c->symbol));
  c->codes = c->word_count = 0;
  const char *end = line.s + line.len, *word = NULL;
  for (const char *at = line.s; at < end;) {
    uint32_t code;
    size_t n = utf8_decode(at, end, &code);
    if (n == 0)
      return err_set(ERR_WORK,
                     "cannot score a line that is not valid UTF-8; convert the file, for "
                     "example with iconv");
    if (!metric_is_space(code)) {
      c->code[c->codes++] = code;
      if (!word) word = at;
    } else if (word) {
      if (c->word_order) add_word(c, word, (size_t)(at - word));
      word = NULL;
    }
    at += n;
  }
  if (word && c->word_order) add_word(c, word, (size_t)(end - word));
  return ERR_OK;
}

/* Computes the statistics (hyp, ref, match) of each order of characters or of words. If the
 * reference is too short for an order, the n-grams of the hypothesis of that order do not
 * count. */
static void count_matches(NgramTree *tree, const uint32_t *ref, size_t ref_len, size_t hyp_len,
                          size_t orders, double *row) {
  double match[NGRAM_ORDER_MAX];
  ngram_ref(tree, ref, ref_len, orders);
  ngram_match(tree, orders, match);
  ngram_forget_refs(tree);
  for (size_t k = 0; k < orders; k++) {
    double hyps = hyp_len > k ? (double)(hyp_len - k) : 0;
    double refs = ref_len > k ? (double)(ref_len - k) : 0;
    row[3 * k] = refs > 0 ? hyps : 0;
    row[3 * k + 1] = refs;
    row[3 * k + 2] = match[k];
  }
}

Err chrf_add(Chrf *c, MetricText hyp, const MetricText *refs, int n, double *row) {
  TRY(split_line(c, hyp, &c->hyp));
  size_t codes = c->codes, words = c->word_count, orders = CHRF_CHARS + c->word_order;
  TRY(ngram_hyp(&c->char_tree, c->code, codes, CHRF_CHARS));
  if (c->word_order) {
    TRY(ngram_words_begin(&c->words, words));
    for (size_t i = 0; i < words; i++) c->symbol[i] = ngram_word_add(&c->words, c->word[i]);
    TRY(ngram_hyp(&c->word_tree, c->symbol, words, c->word_order));
  }
  double best = -1;
  for (int r = 0; r < n; r++) {
    double these[CHRF_STATS_MAX];
    TRY(split_line(c, refs[r], &c->ref));
    count_matches(&c->char_tree, c->code, c->codes, codes, CHRF_CHARS, these);
    if (c->word_order) {
      for (size_t i = 0; i < c->word_count; i++) {
        c->symbol[i] = ngram_word_find(&c->words, c->word[i]);
      }
      count_matches(&c->word_tree, c->symbol, c->word_count, words, c->word_order,
                    these + 3 * CHRF_CHARS);
    }
    double score = chrf_score(these, orders, NULL);
    if (score > best) {
      best = score;
      memcpy(row, these, 3 * orders * sizeof *row);
    }
  }
  return ERR_OK;
}

/* Has one operation per statement, because a fused multiply-add would round differently from
 * sacreBLEU. */
static double score_single(const double *sum, size_t orders, bool *single) {
  float precision = 0, recall = 0, effective = 0;
  for (size_t k = 0; k < orders; k++) {
    float hyp = (float)sum[3 * k], ref = (float)sum[3 * k + 1], match = (float)sum[3 * k + 2];
    if (hyp <= 0 || ref <= 0) continue;
    float p = match / hyp, r = match / ref;
    precision += p;
    recall += r;
    effective += 1;
  }
  *single = false;
  if (effective == 0) return 0;
  precision /= effective;
  recall /= effective;
  if (precision + recall == 0) return 0;
  *single = true;
  float above = (1 + BETA_SQUARED) * precision;
  above *= recall;
  float below = BETA_SQUARED * precision;
  below += recall;
  above /= below;
  above *= 100;
  return (double)above;
}

double chrf_score(const double *sum, size_t orders, bool *single) {
  if (single) return score_single(sum, orders, single);
  double precision = 0, recall = 0, effective = 0;
  for (size_t k = 0; k < orders; k++) {
    double hyp = sum[3 * k], ref = sum[3 * k + 1], match = sum[3 * k + 2];
    if (hyp <= 0 || ref <= 0) continue;
    precision += match / hyp;
    recall += match / ref;
    effective++;
  }
  if (effective > 0) {
    precision /= effective;
    recall /= effective;
  }
  if (precision + recall == 0) return 0;
  double score = (1 + BETA_SQUARED) * precision * recall;
  score /= BETA_SQUARED * precision + recall;
  return 100 * score;
}

void chrf_free(Chrf *c) {
  mem_free(c->hyp.s);
  mem_free(c->ref.s);
  ngram_words_free(&c->words);
  ngram_tree_free(&c->char_tree);
  ngram_tree_free(&c->word_tree);
  mem_free(c->code);
  mem_free(c->word);
  mem_free(c->symbol);
}
