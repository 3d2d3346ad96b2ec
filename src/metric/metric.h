/* Scores of translations, equal to those of sacreBLEU 2.6.0: BLEU, chrF, chrF++
 * and TER. Statistics are kept per sentence, so a corpus, a sentence and a
 * bootstrap sample are all sums of the same rows. Depends on base, utf8proc. */
#ifndef METRIC_METRIC_H
#define METRIC_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define METRIC_COMPATIBLE "2.6.0" /* the version of sacreBLEU whose scores these equal */

/* One line of valid UTF-8. A reference whose `s` is NULL is missing: that sentence has one
 * reference less than the others. */
typedef struct {
  const char *s;
  size_t len;
} MetricText;

typedef enum { METRIC_BLEU, METRIC_CHRF, METRIC_CHRFPP, METRIC_TER, METRIC_KINDS } MetricKind;
typedef enum { METRIC_13A, METRIC_NONE, METRIC_INTL, METRIC_CHAR } MetricTokenizer;

typedef struct {
  MetricKind kind;
  MetricTokenizer tokenizer; /* BLEU only */
  bool lowercase;            /* BLEU and chrF; TER always ignores case */
  bool effective;            /* BLEU: leave out orders longer than the sentence */
} MetricConfig;

typedef struct {
  double score;        /* 0 … 100; TER may exceed 100 */
  double precision[4]; /* BLEU only, from here on; in per cent */
  double correct[4], total[4];
  double brevity, ratio; /* brevity penalty; hypothesis over reference length */
  double hyp_len, ref_len;
  double edits, mean_ref_len; /* TER */
} MetricScore;

typedef struct Metric Metric;

/* "bleu", "chrf", "chrf++", "ter"; ERR_USAGE for anything else. */
NODISCARD Err metric_kind(const char *word, size_t len, MetricKind *kind);
NODISCARD Err metric_tokenizer(const char *word, MetricTokenizer *tokenizer);
const char *metric_name(MetricKind kind); /* as sacreBLEU: "BLEU", "chrF2++" */
MetricText metric_text(const char *text); /* of a C string */

NODISCARD Err metric_open(Metric **metric, const MetricConfig *config);
void metric_close(Metric *metric);
void metric_reset(Metric *metric); /* removes the sentences, keeps the memory */
/* Adds a sentence: its hypothesis and its `n` references. */
NODISCARD Err metric_add(Metric *metric, MetricText hyp, const MetricText *refs, int n);

size_t metric_lines(const Metric *metric);
void metric_score(const Metric *metric, MetricScore *score); /* of all sentences */
void metric_sentence(const Metric *metric, size_t line, MetricScore *score);
/* "nrefs:1|case:mixed|…"; with resamples also "bs" and "seed". */
void metric_signature(const Metric *metric, size_t resamples, uint64_t seed, Str *out);

/* Mean over bootstrap samples and half the width of the 95% interval. */
typedef struct {
  double mean, ci;
} MetricInterval;

/* As sacreBLEU's --confidence. */
NODISCARD Err metric_confidence(const Metric *metric, size_t resamples, uint64_t seed,
                                MetricInterval *interval);
/* As sacreBLEU's --paired-bs: the intervals of both systems over the same
 * samples, and the p-value of their difference. */
NODISCARD Err metric_paired(const Metric *base, const Metric *other, size_t resamples,
                            uint64_t seed, MetricInterval *of_base, MetricInterval *of_other,
                            double *p);

#endif
