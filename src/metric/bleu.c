/* Statistics and score of BLEU. Depends on metric/tokenize, ngram. */
#include "metric/bleu.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static Err tokenize_line(Bleu *b, MetricText line) {
  if (b->lowercase) {
    TRY(metric_lower(line, &b->lower));
    line = (MetricText){b->lower.s, b->lower.len};
  }
  TRY(metric_tokenize(&b->tokens, b->tokenizer, metric_rstrip(line)));
  return mem_grow(&b->symbol, &b->symbol_cap, b->tokens.tokens, sizeof *b->symbol);
}

/* Copies the tokens of the hypothesis to `hyp`. The word table points to this copy while the
 * buffers of the tokenizer are reused for the references. */
static Err keep_tokens(Bleu *b) {
  size_t bytes = 0;
  for (size_t i = 0; i < b->tokens.tokens; i++) bytes += b->tokens.token[i].len;
  TRY(mem_grow(&b->hyp.s, &b->hyp.cap, bytes, 1));
  char *to = b->hyp.s;
  for (size_t i = 0; i < b->tokens.tokens; i++) {
    MetricText *token = &b->tokens.token[i];
    memcpy(to, token->s, token->len);
    token->s = to;
    to += token->len;
  }
  return ERR_OK;
}

Err bleu_add(Bleu *b, MetricText hyp, const MetricText *refs, int n, double *row) {
  TRY(tokenize_line(b, hyp));
  TRY(keep_tokens(b));
  size_t hyp_len = b->tokens.tokens;
  TRY(ngram_words_begin(&b->words, hyp_len));
  for (size_t i = 0; i < hyp_len; i++) {
    b->symbol[i] = ngram_word_add(&b->words, b->tokens.token[i]);
  }
  TRY(ngram_hyp(&b->tree, b->symbol, hyp_len, BLEU_ORDER));

  /* Selects the reference whose length is nearest to the hypothesis; of two equally near ones the
   * shorter. */
  size_t ref_len = 0, nearest = SIZE_MAX;
  for (int r = 0; r < n; r++) {
    TRY(tokenize_line(b, refs[r]));
    size_t len = b->tokens.tokens, away = len > hyp_len ? len - hyp_len : hyp_len - len;
    for (size_t i = 0; i < len; i++) {
      b->symbol[i] = ngram_word_find(&b->words, b->tokens.token[i]);
    }
    ngram_ref(&b->tree, b->symbol, len, BLEU_ORDER);
    if (away < nearest || (away == nearest && len < ref_len)) {
      nearest = away;
      ref_len = len;
    }
  }
  row[0] = (double)hyp_len;
  row[1] = (double)ref_len;
  ngram_match(&b->tree, BLEU_ORDER, row + 2);
  for (size_t k = 0; k < BLEU_ORDER; k++) {
    row[2 + BLEU_ORDER + k] = hyp_len > k ? (double)(hyp_len - k) : 0;
  }
  return ERR_OK;
}

static double compute_percent(double part, double whole, bool single) {
  if (!single) return 100.0 * part / whole;
  float scaled = 100.0f * (float)part;
  return (double)(scaled / (float)whole);
}

void bleu_score(const double *sum, bool effective, bool single, MetricScore *score) {
  const double *correct = sum + 2, *total = sum + 2 + BLEU_ORDER;
  *score = (MetricScore){.hyp_len = sum[0], .ref_len = sum[1], .brevity = 1};
  memcpy(score->correct, correct, sizeof score->correct);
  memcpy(score->total, total, sizeof score->total);
  score->ratio = sum[1] > 0 ? sum[0] / sum[1] : 0;
  if (sum[0] < sum[1]) score->brevity = sum[0] > 0 ? exp(1 - sum[1] / sum[0]) : 0;

  double any = 0;
  for (int k = 0; k < BLEU_ORDER; k++) any += correct[k];
  /* Without a match of any order the score is 0; smoothing does not apply. */
  if (any == 0) return;

  /* Exponential smoothing: the m-th order without a match counts as 1 / 2^m matches. */
  double smooth = 1;
  int orders = BLEU_ORDER;
  for (int k = 0; k < BLEU_ORDER && total[k] > 0; k++) {
    if (effective) orders = k + 1;
    if (correct[k] > 0) {
      score->precision[k] = compute_percent(correct[k], total[k], single);
    } else {
      smooth *= 2;
      score->precision[k] = compute_percent(1, smooth * total[k], single);
    }
  }
  double logs = 0;
  for (int k = 0; k < orders; k++) {
    logs += score->precision[k] > 0 ? log(score->precision[k]) : -9999999999.0;
  }
  score->score = score->brevity * exp(logs / orders);
}

void bleu_free(Bleu *b) {
  metric_tokens_free(&b->tokens);
  mem_free(b->lower.s);
  mem_free(b->hyp.s);
  ngram_words_free(&b->words);
  ngram_tree_free(&b->tree);
  mem_free(b->symbol);
}
