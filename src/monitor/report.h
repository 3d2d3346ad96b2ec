/* The report of one or several runs: the questions that people ask after a training run, each
 * answered from measurements with a verdict, a sentence, figures and a chart; costs; what to change;
 * runs compared. Written as HTML, Markdown or JSON. Depends on facts, plot, metric. */
#ifndef MONITOR_REPORT_H
#define MONITOR_REPORT_H

#include "base/str.h"
#include "monitor/facts.h"

#define REPORT_ANSWERS 11
#define REPORT_FIGURES 12
#define REPORT_CHANGES 3
#define REPORT_RUNS    16 /* most runs of one report */

typedef enum {
  VERDICT_UNKNOWN,
  VERDICT_GOOD,
  VERDICT_MIXED,
  VERDICT_BAD,
  VERDICT_FACT
} Verdict;

/* A number with its name. `shown` is how a reader sees it, with its unit; NAN is "unknown". */
typedef struct {
  const char *key; /* in JSON, with the unit: "step_ms" */
  char label[64];
  double value;
  char shown[96];
} Figure;

typedef struct {
  const char *id; /* in JSON and as an anchor: "overfitting" */
  const char *question;
  Verdict verdict;
  char headline[160];  /* the answer in a few words */
  char sentence[1200]; /* the answer in plain sentences, with its reason */
  Figure figures[REPORT_FIGURES];
  size_t figure_count;
  Str chart;   /* SVG */
  Str caption; /* the same for pages without pictures: a sparkline and its range */
  Str table;   /* rows "name\tvalue\tmeaning\n", for the files of a checkpoint; may be empty */
} Answer;

/* A change that would make the run faster, cheaper or better. */
typedef struct {
  char what[200];
  char how[320];  /* what to do, with options */
  char gain[200]; /* as a text */
  double share;   /* of the run's time that it saves, 0 to 1; the order of the changes */
} Change;

typedef struct {
  RunFacts facts;
  Answer answers[REPORT_ANSWERS];
  Change changes[REPORT_CHANGES];
  size_t change_count;
  Figure costs[REPORT_FIGURES];
  size_t cost_count;
  size_t straggler; /* rank that the others wait for; SIZE_MAX: none, or unknown */
  Str rank_chart;
} RunReport;

/* Row of the comparison: one figure of every run, or the value of an option that differs. */
typedef struct {
  char label[64];
  const char *key; /* in JSON; NULL: an option, whose name is the label */
  double value[REPORT_RUNS];
  char shown[REPORT_RUNS][64];
} CompareRow;

#define COMPARE_ROWS 64

typedef struct {
  RunReport *runs[REPORT_RUNS];
  size_t run_count;
  CompareRow rows[COMPARE_ROWS];
  size_t row_count;
  Str charts; /* SVG of all runs */
  char bleu[REPORT_RUNS]
           [320]; /* paired bootstrap of a run against the first one; the reason if unknown */
  double bleu_difference[REPORT_RUNS], bleu_p[REPORT_RUNS]; /* NAN: unknown */
  double price_per_hour;                                    /* of one machine; NAN: not given */
} Report;

/* Reads the runs and answers everything. `price_per_hour`: of one machine, or NAN. */
NODISCARD Err report_make(Report *r, const char *const *dirs, size_t count,
                          double price_per_hour);
void report_free(Report *r);
NODISCARD Err report_html(const Report *r, Str *out);
NODISCARD Err report_markdown(const Report *r, Str *out);
NODISCARD Err report_json(const Report *r, Str *out);

#endif
