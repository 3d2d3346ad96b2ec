/* Prints predictions: text, JSON, and SVG. Depends on plan.h, plan_machine.h. */
#ifndef MONITOR_PLAN_REPORT_H
#define MONITOR_PLAN_REPORT_H

#include "monitor/plan_machine.h"

typedef struct {
  PlanPoint at;
  uint64_t memory; /* bytes of a GPU, or of a rank on a CPU */
  bool fits;       /* false: more than the GPU has */
} PlanRow;

/* What was predicted, and from what. */
typedef struct {
  const char *preset, *precision;
  const Model *model;
  const PlanMachine *machine;
  const char *machine_name; /* value of --machine */
  const char *data;         /* directory of the data set; NULL: none */
  bool has_texts;           /* the model reads texts, one side, instead of pairs of sentences */
  PlanBatch batch;
  uint32_t batch_tokens; /* tokens per side that fit into a micro-batch */
  size_t bucket_bytes;
  PlanInput input;
  char local_source[160]; /* where PlanInput.local comes from */
  double link_efficiency;
  bool is_link_given, is_latency_given, is_checkpoint_given;
  PlanRow *row;
  size_t rows;
} PlanReport;

void plan_print_text(const PlanReport *r, Str *out);
/* A document with two charts: speed-up over the number of GPUs, and the parts of a step. */
NODISCARD Err plan_print_svg(const PlanReport *r, Str *out);
NODISCARD Err plan_print_json(const PlanReport *r, Str *out);

#endif
