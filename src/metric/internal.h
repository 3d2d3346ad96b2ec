/* What the files of this room share: a metric with its rows of statistics.
 * Depends on bleu, chrf, ter. */
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
  MetricText *defined; /* scratch: the references that are there */
  size_t defined_cap;
  Bleu bleu;
  Chrf chrf;
  Ter ter;
};

/* The score of a sum of rows. `single`, when not NULL, asks for sacreBLEU's
 * float32 arithmetic for bootstrap samples, and says if the result is one. */
void metric_compute(const Metric *metric, const double *sum, bool *single, MetricScore *score);

#endif
