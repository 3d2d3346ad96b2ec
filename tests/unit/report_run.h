/* Run directories whose truth is planted, for the tests of the report. Each test has a directory of its
 * own. */
#ifndef TESTS_REPORT_RUN_H
#define TESTS_REPORT_RUN_H

#include <math.h>
#include <stdio.h>

#include "monitor/report.h"
#include "support.h"

static Report report;
static char run_dir[FILE_PATH_MAX];
static int runs_made;

UNUSED static void add_line(const char *name, const char *fmt, ...) PRINTF_LIKE(2, 3);
UNUSED static void add_line(const char *name, const char *fmt, ...) {
  char path[FILE_PATH_MAX];
  OK(file_join(path, run_dir, name));
  FILE *f = fopen(path, "a");
  assert_non_null(f);
  va_list args;
  va_start(args, fmt);
  vfprintf(f, fmt, args);
  va_end(args);
  assert_int_equal(fclose(f), 0);
}

UNUSED static int make_run_dir(void **state) {
  (void)state;
  char name[32];
  snprintf(name, sizeof name, "run-%d", runs_made++);
  OK(file_join(run_dir, scratch, name));
  OK(file_mkdirs(run_dir));
  return 0;
}

UNUSED static int free_report(void **state) {
  (void)state;
  report_free(&report);
  return 0;
}

UNUSED static const RunReport *make_report(double price) {
  const char *dirs[] = {run_dir};
  OK(report_make(&report, dirs, 1, price));
  return report.runs[0];
}

UNUSED static const Answer *find_answer(const RunReport *run, const char *id) {
  for (int i = 0; i < REPORT_ANSWERS; i++)
    if (strcmp(run->answers[i].id, id) == 0) return &run->answers[i];
  fail_msg("no answer %s", id);
  return NULL;
}

UNUSED static double get_figure(const Answer *a, const char *key) {
  for (size_t i = 0; i < a->figure_count; i++)
    if (strcmp(a->figures[i].key, key) == 0) return a->figures[i].value;
  fail_msg("no figure %s", key);
  return NAN;
}

UNUSED static void assert_headline(const RunReport *run, const char *id, const char *words) {
  const Answer *a = find_answer(run, id);
  if (!strstr(a->headline, words)) fail_msg("%s: \"%s\" lacks \"%s\"", id, a->headline, words);
}

/* A record of 100 steps of 100 ms with the given parts. */
UNUSED static void add_step(int step, double nll, double data, double comm) {
  add_line(
      "metrics.jsonl",
      "{\"loss\":%g,\"nll\":%g,\"lr\":0.001,\"steps_per_s\":10,\"target_tokens_per_s\":1000,"
      "\"epoch\":1,\"data_wait_ms\":%g,\"forward_ms\":%g,\"backward_ms\":%g,\"comm_wait_ms\":%"
      "g,"
      "\"update_ms\":0,\"checkpoint_ms\":0,\"sent_bytes\":1000000,\"step\":%d,\"seconds\":%g}"
      "\n",
      nll, nll, data, (100 - data - comm) / 3, 2 * (100 - data - comm) / 3, comm, step,
      step / 10.0);
}

UNUSED static void add_validation(int step, double nll, double bleu) {
  add_line(
      "metrics.jsonl",
      "{\"valid_nll\":%g,\"valid_bleu\":%g,\"valid_seconds\":1,\"step\":%d,\"seconds\":%g}\n",
      nll, bleu, step, step / 10.0);
}

UNUSED static void add_process(int ranks, const char *hosts) {
  add_line("processes.jsonl",
           "{\"time\":1,\"version\":\"0.1.0\",\"command\":\"trireme train --x\",\"ranks\":%d,"
           "\"hosts\":[%s],\"device\":\"cpu: "
           "test\",\"gradient_bytes\":4000000,\"parameters\":1000000}\n",
           ranks, hosts);
}

UNUSED static void add_ranks(int step, const char *ms, const char *wait, const char *data) {
  add_line("metrics.jsonl",
           "{\"event\":\"ranks\",\"rank_ms\":[%s],\"rank_wait_ms\":[%s],\"rank_data_ms\":[%s],"
           "\"hosts\":[\"h1\",\"h2\"],\"step\":%d,\"seconds\":1}\n",
           ms, wait, data, step);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_run_dir, free_report)

#endif
