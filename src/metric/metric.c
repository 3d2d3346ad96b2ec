/* One interface for all metrics: statistics per sentence, their sums, signatures. Depends on
 * bleu, chrf, ter, wer. */
#include "metric/metric.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "metric/internal.h"

static const struct {
  const char *word, *name;
  size_t stats;
} kinds[METRIC_KINDS] = {
    [METRIC_BLEU] = {"bleu", "BLEU", BLEU_STATS},
    [METRIC_CHRF] = {"chrf", "chrF2", 3 * CHRF_CHARS},
    [METRIC_CHRFPP] = {"chrf++", "chrF2++", 3 * (CHRF_CHARS + CHRF_WORDS)},
    [METRIC_TER] = {"ter", "TER", TER_STATS},
    [METRIC_WER] = {"wer", "WER", WER_STATS},
    [METRIC_CER] = {"cer", "CER", WER_STATS},
};

static const char *const tokenizers[] = {[METRIC_13A] = "13a",
                                         [METRIC_NONE] = "none",
                                         [METRIC_INTL] = "intl",
                                         [METRIC_CHAR] = "char"};

Err metric_kind(const char *word, size_t len, MetricKind *kind) {
  for (int k = 0; k < METRIC_KINDS; k++) {
    if (strlen(kinds[k].word) == len && strncasecmp(kinds[k].word, word, len) == 0) {
      *kind = (MetricKind)k;
      return ERR_OK;
    }
  }
  return err_set(ERR_USAGE,
                 "there is no metric '%.*s'; there are bleu, chrf, chrf++, ter, wer and cer",
                 (int)(len < 60 ? len : 60), word);
}

Err metric_tokenizer(const char *word, MetricTokenizer *tokenizer) {
  for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
    if (strcmp(tokenizers[i], word) == 0) {
      *tokenizer = (MetricTokenizer)i;
      return ERR_OK;
    }
  }
  return err_set(ERR_USAGE, "there is no tokenizer '%.60s'; there are 13a, none, intl and char",
                 word);
}

const char *metric_name(MetricKind kind) {
  return kinds[kind].name;
}

MetricText metric_text(const char *text) {
  return (MetricText){text, text ? strlen(text) : 0};
}

Err metric_open(Metric **metric, const MetricConfig *config) {
  *metric = NULL;
  TRY(metric_unicode());
  Metric *m;
  TRY(mem_alloc(&m, 1, sizeof *m));
  m->config = *config;
  m->stats = kinds[config->kind].stats;
  m->bleu.tokenizer = config->tokenizer;
  m->bleu.lowercase = m->chrf.lowercase = config->lowercase;
  m->wer.lowercase = config->lowercase;
  m->wer.unit = config->kind == METRIC_CER ? WER_CHARS : WER_WORDS;
  m->chrf.word_order = config->kind == METRIC_CHRFPP ? CHRF_WORDS : 0;
  *metric = m;
  return ERR_OK;
}

void metric_close(Metric *m) {
  if (!m) return;
  bleu_free(&m->bleu);
  chrf_free(&m->chrf);
  ter_free(&m->ter);
  wer_free(&m->wer);
  mem_free(m->rows);
  mem_free(m->defined);
  mem_free(m);
}

void metric_reset(Metric *m) {
  m->lines = 0;
  m->refs = 0;
}

Err metric_add(Metric *m, MetricText hyp, const MetricText *refs, int n) {
  TRY(mem_grow(&m->rows, &m->rows_cap, (m->lines + 1) * m->stats, sizeof *m->rows));
  TRY(mem_grow(&m->defined, &m->defined_cap, n > 0 ? (size_t)n : 1, sizeof *m->defined));
  double *row = m->rows + m->lines * m->stats;
  int count = 0;
  for (int i = 0; i < n; i++) {
    if (refs[i].s) m->defined[count++] = refs[i];
  }
  if (count == 0) {
    return err_set(ERR_WORK,
                   "cannot score sentence %zu: it has no reference; give a line for it in "
                   "every reference file",
                   m->lines + 1);
  }
  switch (m->config.kind) {
    case METRIC_BLEU:
      TRY(bleu_add(&m->bleu, hyp, m->defined, count, row));
      break;
    case METRIC_CHRF:
    case METRIC_CHRFPP:
      TRY(chrf_add(&m->chrf, hyp, m->defined, count, row));
      break;
    case METRIC_TER:
      TRY(ter_add(&m->ter, hyp, m->defined, count, row));
      break;
    case METRIC_WER:
    case METRIC_CER:
      if (count > 1)
        return err_set(ERR_USAGE,
                       "%s is defined for one reference, not for %d: pass --ref once",
                       metric_name(m->config.kind), count);
      TRY(wer_add(&m->wer, hyp, m->defined[0], row));
      break;
    case METRIC_KINDS:
      break;
  }
  if (m->lines == 0) m->refs = count;
  if (m->refs != count) m->refs = -1;
  m->lines++;
  return ERR_OK;
}

size_t metric_lines(const Metric *m) {
  return m->lines;
}

void metric_compute(const Metric *m, const double *sum, bool *single, MetricScore *score) {
  if (m->config.kind == METRIC_BLEU) {
    bleu_score(sum, m->config.effective, single != NULL, score);
    /* Only the precisions of BLEU are float32; its score is not. */
    if (single) *single = false;
    return;
  }
  *score = (MetricScore){0};
  if (m->config.kind == METRIC_CHRF || m->config.kind == METRIC_CHRFPP) {
    score->score = chrf_score(sum, m->stats / 3, single);
    return;
  }
  score->edits = sum[0];
  score->mean_ref_len = sum[1];
  if (m->config.kind == METRIC_TER) {
    score->score = ter_score(sum, single);
  } else {
    score->score = wer_score(sum);
    if (single) *single = false;
  }
}

void metric_score(const Metric *m, MetricScore *score) {
  double sum[METRIC_STATS_MAX] = {0};
  for (size_t i = 0; i < m->lines; i++) {
    for (size_t k = 0; k < m->stats; k++) sum[k] += m->rows[i * m->stats + k];
  }
  metric_compute(m, sum, NULL, score);
}

void metric_sentence(const Metric *m, size_t line, MetricScore *score) {
  metric_compute(m, m->rows + line * m->stats, NULL, score);
}

void metric_signature(const Metric *m, size_t resamples, uint64_t seed, Str *out) {
  if (m->refs < 0) {
    str_add(out, "nrefs:var");
  } else {
    str_addf(out, "nrefs:%d", m->refs);
  }
  if (resamples) str_addf(out, "|bs:%zu|seed:%llu", resamples, (unsigned long long)seed);
  const char *letters = m->config.lowercase || m->config.kind == METRIC_TER ? "lc" : "mixed";
  str_addf(out, "|case:%s", letters);
  switch (m->config.kind) {
    case METRIC_BLEU:
      str_addf(out, "|eff:%s|tok:%s|smooth:exp", m->config.effective ? "yes" : "no",
               tokenizers[m->config.tokenizer]);
      break;
    case METRIC_CHRF:
    case METRIC_CHRFPP:
      str_addf(out, "|eff:yes|nc:%d|nw:%zu|space:no", CHRF_CHARS, m->chrf.word_order);
      break;
    case METRIC_TER:
      str_add(out, "|tok:tercom|norm:no|punct:yes|asian:no");
      break;
    case METRIC_WER:
    case METRIC_CER:
      str_addf(out, "|unit:%s|version:%s", m->config.kind == METRIC_WER ? "word" : "char",
               WER_COMPATIBLE);
      return;
    case METRIC_KINDS:
      break;
  }
  str_add(out, "|version:" METRIC_COMPATIBLE);
}
