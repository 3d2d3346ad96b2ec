/* What the files of metric/ share: a metric with one row of statistics per sentence. Depends
 * on bleu, chrf, ter. */
#ifndef METRIC_INTERNAL_H
#define METRIC_INTERNAL_H

#include "metric/bleu.h"
#include "metric/chrf.h"
#include "metric/ter.h"

#define METRIC_STATS_MAX CHRF_STATS_MAX

struct Metric {
  MetricConfig config;
  double *rows; /* (lines, stats) */
  size_t lines;
  size_t stats; /* numbers per sentence */
  size_t rows_cap;
  int refs;            /* references per sentence; -1 when that varies */
  MetricText *defined; /* working memory: the references that are not NULL */
  size_t defined_cap;
  Bleu bleu;
  Chrf chrf;
  Ter ter;
};

/* The score of statistics summed over sentences. A `single` that is not NULL requests
 * sacreBLEU's float32 arithmetic for bootstrap samples; it is set to whether the result is
 * float32. */
void metric_compute(const Metric *metric, const double *sum, bool *single, MetricScore *score);

#endif
