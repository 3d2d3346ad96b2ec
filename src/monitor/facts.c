/* Reads the facts of a run. Depends on facts_internal. */
#include "monitor/facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "monitor/facts_internal.h"

/* Sets every number to NAN. */
static void set_unknown(RunFacts *f) {
  *f = (RunFacts){0};
  double *const unknown[] = {&f->processes,
                             &f->ranks,
                             &f->hosts,
                             &f->threads,
                             &f->parameters,
                             &f->gradient_bytes,
                             &f->planned_steps,
                             &f->warmup_steps,
                             &f->began,
                             &f->seconds,
                             &f->step_seconds,
                             &f->valid_seconds,
                             &f->checkpoint_seconds,
                             &f->other_seconds,
                             &f->wall_seconds,
                             &f->last_step,
                             &f->epochs,
                             &f->step_median,
                             &f->step_p95,
                             &f->tokens_per_s,
                             &f->pairs_per_s,
                             &f->tflops,
                             &f->mfu,
                             &f->sent_bytes,
                             &f->received_bytes,
                             &f->gpus,
                             &f->gpus_used,
                             &f->gpu_busy,
                             &f->gpu_watts,
                             &f->gpu_watts_limit,
                             &f->gpu_memory_used,
                             &f->gpu_memory_total,
                             &f->gpu_throttled,
                             &f->cpu_busy,
                             &f->cores,
                             &f->gpu_joules,
                             &f->cpu_joules,
                             &f->sampled_seconds,
                             &f->card.sent,
                             &f->card.received,
                             &f->card.peak,
                             &f->card.speed,
                             &f->dropout,
                             &f->checkpoint_step,
                             &f->target_tokens,
                             &f->train_pairs,
                             &f->train_lines,
                             &f->text_bytes,
                             &f->source_tokens,
                             &f->data_target_tokens,
                             &f->train_texts,
                             &f->train_text_tokens,
                             &f->labels,
                             &f->checkpoint_bytes,
                             &f->checkpoints};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) *unknown[i] = NAN;
  f->parts = (StepParts){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
}

static void set_name(RunFacts *f, const char *dir) {
  snprintf(f->dir, sizeof f->dir, "%s", dir);
  size_t end = strlen(dir);
  while (end > 1 && dir[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && dir[begin - 1] != '/') begin--;
  char name[FILE_PATH_MAX];
  snprintf(name, sizeof name, "%.*s", (int)(end - begin), dir + begin);
  utf8_visible(name, f->name, sizeof f->name);
}

Err facts_read(RunFacts *f, const char *dir) {
  set_unknown(f);
  set_name(f, dir);
  Err err;
  TRY_DONE(runlog_open(&f->log, dir));
  TRY_DONE(runlog_read(&f->log));
  TRY_DONE(facts_read_files(f));
  TRY_DONE(facts_sum_steps(f));
  TRY_DONE(facts_sum_ranks(f));
  facts_sum_hosts(f);
done:
  if (err) facts_free(f);
  return err;
}

void facts_free(RunFacts *f) {
  runlog_close(&f->log);
  str_free(&f->config);
  str_free(&f->command);
  mem_free(f->rank);
  f->rank = NULL;
}
