/* Makes a report: reads the runs, answers the questions, compares. Depends on report_internal. */
#include "monitor/report.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/report_internal.h"

static const char *const questions[REPORT_ANSWERS][2] = {
    [ANSWER_DURATION] = {"duration", "How long did the run take?"},
    [ANSWER_TRAINED] = {"trained", "Is the model fully trained?"},
    [ANSWER_OVERFITTING] = {"overfitting", "Was it overfitting?"},
    [ANSWER_DEVICES] = {"devices", "Were the devices fully used?"},
    [ANSWER_NETWORK] = {"network", "Was the network the bottleneck?"},
    [ANSWER_LEARNING_RATE] = {"learning_rate", "What does the learning-rate curve show?"},
    [ANSWER_DATA] = {"data", "How big was the training set?"},
    [ANSWER_FILES] = {"checkpoint_files", "What files make up a checkpoint?"},
    [ANSWER_SIZE] = {"checkpoint_size", "How big is a checkpoint?"},
    [ANSWER_STEP] = {"step", "How long is an average step?"},
    [ANSWER_TRAFFIC] = {"traffic", "How does step time relate to network traffic?"}};

static Err check_texts(const RunReport *run) {
  for (int i = 0; i < REPORT_ANSWERS; i++) {
    TRY(str_check(&run->answers[i].chart));
    TRY(str_check(&run->answers[i].caption));
    TRY(str_check(&run->answers[i].table));
  }
  return str_check(&run->rank_chart);
}

static Err make_run(RunReport *run, const char *dir, double price_per_hour) {
  TRY(facts_read(&run->facts, dir));
  for (int i = 0; i < REPORT_ANSWERS; i++) {
    run->answers[i].id = questions[i][0];
    run->answers[i].question = questions[i][1];
  }
  run->straggler = SIZE_MAX;
  TRY(report_answer_curves(run));
  TRY(report_answer_machine(run));
  report_answer_files(run);
  report_sum_costs(run, price_per_hour);
  report_find_changes(run);
  return check_texts(run);
}

Err report_make(Report *r, const char *const *dirs, size_t count, double price_per_hour) {
  *r = (Report){.price_per_hour = price_per_hour};
  for (size_t i = 0; i < REPORT_RUNS; i++) {
    r->bleu_difference[i] = NAN;
    r->bleu_p[i] = NAN;
  }
  Err err = ERR_OK;
  for (size_t i = 0; i < count; i++) {
    TRY_DONE(mem_alloc(&r->runs[i], 1, sizeof *r->runs[i]));
    r->run_count++;
    TRY_DONE(make_run(r->runs[i], dirs[i], price_per_hour));
  }
  if (count > 1) TRY_DONE(report_compare(r));
  TRY_DONE(str_check(&r->charts));
done:
  if (err) report_free(r);
  return err;
}

void report_free(Report *r) {
  for (size_t i = 0; i < r->run_count; i++) {
    RunReport *run = r->runs[i];
    for (int k = 0; k < REPORT_ANSWERS; k++) {
      str_free(&run->answers[k].chart);
      str_free(&run->answers[k].caption);
      str_free(&run->answers[k].table);
    }
    str_free(&run->rank_chart);
    facts_free(&run->facts);
    mem_free(run);
  }
  str_free(&r->charts);
  *r = (Report){0};
}
