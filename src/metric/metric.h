/* Scores of translations, equal to those of sacreBLEU 2.6.0: BLEU, chrF, chrF++ and TER; word and
 * character error rate, equal to those of jiwer 4.
 * Statistics are stored per sentence; the score of a corpus, a sentence or a bootstrap sample is
 * computed from the sum of its rows. Depends on base, utf8proc. */
#ifndef METRIC_METRIC_H
#define METRIC_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define METRIC_COMPATIBLE "2.6.0" /* the version of sacreBLEU that produces the same scores */

/* One line of valid UTF-8. A reference whose `s` is NULL is missing: this sentence has fewer
 * references than the others. */
typedef struct {
  const char *s;
  size_t len;
} MetricText;

typedef enum {
  METRIC_BLEU,
  METRIC_CHRF,
  METRIC_CHRFPP,
  METRIC_TER,
  METRIC_WER,
  METRIC_CER,
  METRIC_KINDS
} MetricKind;
typedef enum { METRIC_13A, METRIC_NONE, METRIC_INTL, METRIC_CHAR } MetricTokenizer;

typedef struct {
  MetricKind kind;
  MetricTokenizer tokenizer; /* tokenizer of BLEU; unused by the other metrics */
  bool lowercase;            /* not used by TER, which always ignores case */
  bool effective;            /* for BLEU: omits n-gram orders longer than the sentence */
} MetricConfig;

typedef struct {
  double score; /* score from 0 to 100; error rates may exceed 100 */
  /* precision of each order in per cent; BLEU only, like the next fields */
  double precision[4];
  double correct[4], total[4];
  double brevity, ratio; /* brevity penalty; hypothesis length over reference length */
  double hyp_len, ref_len;
  double edits, mean_ref_len; /* number of edits and mean reference length of error rates */
} MetricScore;

typedef struct Metric Metric;

/* Converts "bleu", "chrf", "chrf++", "ter", "wer" or "cer" to a MetricKind; ERR_USAGE for any other word. */
NODISCARD Err metric_kind(const char *word, size_t len, MetricKind *kind);
NODISCARD Err metric_tokenizer(const char *word, MetricTokenizer *tokenizer);
/* Returns the name that sacreBLEU uses: "BLEU", "chrF2++". */
const char *metric_name(MetricKind kind);
MetricText metric_text(const char *text); /* Returns the MetricText of a C string. */

NODISCARD Err metric_open(Metric **metric, const MetricConfig *config);
void metric_close(Metric *metric);
void metric_reset(Metric *metric); /* Removes all sentences; keeps the memory. */
/* Adds a sentence: its hypothesis and its `n` references. */
NODISCARD Err metric_add(Metric *metric, MetricText hyp, const MetricText *refs, int n);

size_t metric_lines(const Metric *metric);
/* Computes the score of all sentences. */
void metric_score(const Metric *metric, MetricScore *score);
void metric_sentence(const Metric *metric, size_t line, MetricScore *score);
/* Appends the signature of sacreBLEU, "nrefs:1|case:mixed|…"; with `resamples` also "bs" and
 * "seed". */
void metric_signature(const Metric *metric, size_t resamples, uint64_t seed, Str *out);

/* Mean over bootstrap samples, and half the width of the 95 % confidence interval. */
typedef struct {
  double mean, ci;
} MetricInterval;

/* Computes a confidence interval, like sacreBLEU's --confidence. */
NODISCARD Err metric_confidence(const Metric *metric, size_t resamples, uint64_t seed,
                                MetricInterval *interval);
/* Compares two systems, like sacreBLEU's --paired-bs: the confidence intervals of both over the
 * same bootstrap samples, and the p-value of their difference. */
NODISCARD Err metric_paired(const Metric *base, const Metric *other, size_t resamples,
                            uint64_t seed, MetricInterval *of_base, MetricInterval *of_other,
                            double *p);
/* The same for scores of bootstrap samples that were computed elsewhere, in double precision: mean and
 * interval of n scores; p-value of two systems whose scores differ by `observed` on all texts. It is 1
 * if that is 0, which classifiers often have: sacreBLEU's count would give the smallest p. */
NODISCARD Err metric_interval(const double *score, size_t n, MetricInterval *interval);
NODISCARD Err metric_p_value(const double *base, const double *other, size_t n, double observed,
                             double *p);

#endif
