/* The parts of a report, one per file, and helpers to fill in answers. Depends on report. */
#ifndef MONITOR_REPORT_INTERNAL_H
#define MONITOR_REPORT_INTERNAL_H

#include "base/err.h"
#include "monitor/plot.h"
#include "monitor/report.h"

/* Numbers of the answers, in the order of the questions. */
enum {
  ANSWER_DURATION,
  ANSWER_TRAINED,
  ANSWER_OVERFITTING,
  ANSWER_DEVICES,
  ANSWER_NETWORK,
  ANSWER_LEARNING_RATE,
  ANSWER_DATA,
  ANSWER_FILES,
  ANSWER_SIZE,
  ANSWER_STEP,
  ANSWER_TRAFFIC
};

/* Why ranks wait during a step, from the times of all ranks. In ms per step. */
typedef struct {
  double network;   /* shortest all-reduce wait of any rank: the transfer alone; NAN: unknown */
  double straggler; /* mean wait beyond `network`: for the slowest rank; NAN: unknown */
  size_t slowest;   /* the rank with the most work and data wait; SIZE_MAX: none stands out */
  double slowest_extra; /* its work and data wait minus the mean of the other ranks */
  bool is_data;         /* most of slowest_extra is data wait */
} Waiting;
Waiting report_waiting(const RunFacts *f);

/* A metric of validations, and the figures of ANSWER_TRAINED for it. */
typedef struct {
  const char *column;
  const char *best_key, *best_label, *last_key, *last_label;
  int digits;
  bool lower_is_better;
} ReportScore;
#define REPORT_SCORES 6
#define REPORT_BLEU   0 /* number of BLEU; the others are metrics of texts */
extern const ReportScore report_scores[REPORT_SCORES];

/* report_curves.c: duration, training, overfitting, learning rate. */
NODISCARD Err report_answer_curves(RunReport *r);
/* report_machine.c: devices and step; calls report_answer_network. */
NODISCARD Err report_answer_machine(RunReport *r);
/* report_files.c: data and checkpoint. */
void report_answer_files(RunReport *r);
/* report_change.c: costs and changes. */
void report_sum_costs(RunReport *r, double price_per_hour);
void report_find_changes(RunReport *r);
/* report_compare.c */
NODISCARD Err report_compare(Report *r);

/* A curve as arrays, for charts and statistics. */
typedef struct {
  double *x, *y; /* steps and values */
  size_t points;
} Curve;
/* Milliseconds of a step, and for which rank 0 waits for gradients and for data. */
typedef struct {
  const Curve *step, *comm, *data;
} StepCurves;
/* report_network.c: network and traffic. */
void report_answer_network(RunReport *r, const StepCurves *curves);
/* Copies a column; no points if it was not measured. */
NODISCARD Err report_curve(const RunLog *log, const char *name, Curve *curve);
void report_free_curve(Curve *curve);

/* Sets a text of an answer: verdict and headline, or sentence. */
void report_verdict(Answer *a, Verdict verdict, const char *fmt, ...) PRINTF_LIKE(3, 4);
void report_say(Answer *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Adds a figure: the number, and how it is shown. A value of NAN is shown as "unknown", or with its
 * reason if `shown` begins with "unknown:". */
void report_figure(Answer *a, const char *key, const char *label, double value, const char *fmt,
                   ...) PRINTF_LIKE(5, 6);
void report_set_figure(Figure *figure, const char *key, const char *label, double value,
                       const char *shown);
/* Adds a chart with its caption: a sparkline of the first series. */
void report_chart(Answer *a, const PlotLines *plot);

/* Appends text of several lines from a file, with control characters escaped. */
void report_visible(const char *text, Str *out);

/* Describes how gradients are all-reduced; "": unknown. The run records it only where GPUs could do it
 * themselves. */
const char *report_allreduce(const RunFacts *f);

/* Format numbers; unknown ones as "unknown". `out` has 32 bytes; returns it. */
char *report_bytes(char *out, double bytes);
char *report_seconds(char *out, double seconds);
char *report_count(char *out, double count);
char *report_share(char *out, double share); /* 0.123 as "12 %" */
char *report_ms(char *out, double ms);

#endif
