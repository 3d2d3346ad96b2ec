/* Declarations shared by the files of metric/: a metric with one row of statistics per sentence.
 * Depends on bleu, chrf, ter, wer. */
#ifndef METRIC_INTERNAL_H
#define METRIC_INTERNAL_H

#include "metric/bleu.h"
#include "metric/chrf.h"
#include "metric/ter.h"
#include "metric/wer.h"

#define METRIC_STATS_MAX CHRF_STATS_MAX

struct Metric {
  MetricConfig config;
  double *rows; /* (lines, stats) statistics of each sentence */
  size_t lines;
  size_t stats; /* number of statistics per sentence */
  size_t rows_cap;
  int refs;            /* references per sentence; -1 if the number varies */
  MetricText *defined; /* working memory: the references that are not NULL */
  size_t defined_cap;
  Bleu bleu;
  Chrf chrf;
  Ter ter;
  Wer wer;
};

/* Computes the score from statistics that are summed over sentences. A `single` that is not NULL
 * requests sacreBLEU's float32 arithmetic for bootstrap samples; *single is set to true if the
 * result is float32. */
void metric_compute(const Metric *metric, const double *sum, bool *single, MetricScore *score);

#endif
