/* Reads the JSON of `bench train`. Depends on plan_machine.h, jansson. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/utf8.h"
#include "monitor/plan_machine.h"

static Err refuse_file(const char *where, const char *why) {
  return err_set(ERR_WORK,
                 "%s is not the output of 'trireme bench train --json': %s; write it "
                 "with that command",
                 where, why);
}

/* A number of the document. */
typedef struct {
  const char *path; /* "parts.step.ms": member ms of the object that is passed */
  double least, most;
  bool is_whole;
} Member;

static const Member step_ms = {"step_ms", 1e-3, 1e9, false};
static const Member rate_of_pairs = {"tgt_tok_s", 1e-3, 1e12, false};
static const Member rate_of_texts = {"tok_s", 1e-3, 1e12, false};
static const Member batch_tokens = {"batch_tokens", 16, 16777216, true}; /* as of bench train */
static const Member parameters = {"parameters", 1, 1e12, true};
static const Member copy_gb_s = {"parts.copy_gb_s", 1e-2, 1e6, false};
static const Member timed_ms = {"parts.step.ms", 1e-3, 1e9, false};
static const Member part_ms = {"parts.work[].ms", 0, 1e9, false};

static const json_t *find_member(const json_t *object, const Member *m) {
  const char *dot = strrchr(m->path, '.');
  return json_object_get(object, dot ? dot + 1 : m->path);
}

static Err read_number(const json_t *object, const Member *m, const char *where,
                       double *value) {
  const json_t *v = find_member(object, m);
  char why[160];
  double x = json_number_value(v);
  *value = x;
  if (json_is_number(v) && x >= m->least && x <= m->most && (!m->is_whole || x == floor(x)))
    return ERR_OK;
  if (!json_is_number(v))
    snprintf(why, sizeof why, "%s is %s", m->path, v ? "not a number" : "missing");
  else
    snprintf(why, sizeof why, "%s is %.9g, not a %snumber from %.9g to %.9g", m->path, x,
             m->is_whole ? "whole " : "", m->least, m->most);
  return refuse_file(where, why);
}

/* Copies a text, which is printed: control characters are escaped. */
static Err read_text(const json_t *object, const char *name, const char *where, char *out,
                     size_t size) {
  const char *text = json_string_value(json_object_get(object, name));
  char why[64];
  snprintf(why, sizeof why, "%s is missing, empty or not a text", name);
  if (!text || !*text) return refuse_file(where, why);
  utf8_visible(text, out, size);
  return ERR_OK;
}

/* Adds the milliseconds of one kind of operation to the part of the step it belongs to. */
static Err add_part(PlanMeasurement *m, const json_t *part, const char *where) {
  static const char *const backward[] = {"attention backward", "norms backward",
                                         "activation backward"};
  const char *name = json_string_value(json_object_get(part, "name"));
  double seconds;
  if (!name) return refuse_file(where, "an entry of parts.work has no name");
  TRY(read_number(part, &part_ms, where, &seconds));
  seconds /= 1e3;
  if (strcmp(name, "GEMMs, input grads") == 0 || strcmp(name, "GEMMs, weight grads") == 0)
    m->gradients += seconds;
  for (size_t i = 0; i < sizeof backward / sizeof *backward; i++)
    if (strcmp(name, backward[i]) == 0) m->other_backward += seconds;
  if (strcmp(name, "optimizer") == 0) m->optimizer += seconds;
  return ERR_OK;
}

static Err read_parts(PlanMeasurement *m, const json_t *parts, const char *where) {
  const json_t *part, *work = json_object_get(parts, "work");
  size_t i;
  double copy = 0, timed;
  m->has_parts = true;
  TRY(read_number(json_object_get(parts, "step"), &timed_ms, where, &timed));
  if (find_member(parts, &copy_gb_s)) TRY(read_number(parts, &copy_gb_s, where, &copy));
  m->timed = timed / 1e3;
  m->copy = copy * 1e9;
  if (!json_is_array(work)) return refuse_file(where, "parts.work is missing or not a list");
  json_array_foreach(work, i, part) TRY(add_part(m, part, where));
  if (m->gradients + m->other_backward + m->optimizer > 1.001 * m->timed)
    return refuse_file(where, "the operations of parts.work take longer than parts.step");
  return ERR_OK;
}

/* Reads the description of the backend: "cpu: …", "reference: …" or "cuda:0: …". */
static Err read_backend(PlanMeasurement *m, const json_t *doc, const char *where) {
  TRY(read_text(doc, "backend", where, m->device, sizeof m->device));
  m->is_host = str_starts(m->device, "cpu:") || str_starts(m->device, "reference:");
  if (m->is_host || str_starts(m->device, "cuda:")) return ERR_OK;
  return refuse_file(where, "backend starts neither with \"cpu:\" nor with \"cuda:\"");
}

static Err read_precision(PlanMeasurement *m, const json_t *doc, const char *where) {
  TRY(read_text(doc, "precision", where, m->precision, sizeof m->precision));
  PlanPrecision found = plan_precision_find(m->precision);
  if (strcmp(plan_precision_names[found], m->precision) != 0)
    return refuse_file(where, "precision is not fp32, tf32, bf16, fp16 or fp8");
  if (m->is_host && found != PLAN_FP32 && found != PLAN_BF16)
    return refuse_file(where, "precision is not fp32 or bf16, and backend is a CPU");
  return ERR_OK;
}

static Err read_step(PlanMeasurement *m, const json_t *doc, const char *where) {
  double ms, rate, capacity, count = 0;
  m->has_texts = find_member(doc, &rate_of_texts) && !find_member(doc, &rate_of_pairs);
  TRY(read_number(doc, &step_ms, where, &ms));
  TRY(read_number(doc, m->has_texts ? &rate_of_texts : &rate_of_pairs, where, &rate));
  TRY(read_number(doc, &batch_tokens, where, &capacity));
  if (find_member(doc, &parameters)) TRY(read_number(doc, &parameters, where, &count));
  m->step = ms / 1e3;
  m->tokens = rate * m->step;
  m->batch_tokens = (uint32_t)capacity;
  m->parameters = (uint64_t)count;
  return ERR_OK;
}

static Err read_document(PlanMeasurement *m, const json_t *doc, const char *where) {
  const char *kind = json_string_value(json_object_get(doc, "bench"));
  const json_t *parts = json_object_get(doc, "parts");
  if (!kind || strcmp(kind, "train") != 0)
    return refuse_file(where, "\"bench\" is not \"train\"");
  TRY(read_text(doc, "preset", where, m->preset, sizeof m->preset));
  TRY(read_backend(m, doc, where));
  TRY(read_precision(m, doc, where));
  TRY(read_step(m, doc, where));
  return parts ? read_parts(m, parts, where) : ERR_OK;
}

Err plan_measurement_parse(const char *text, size_t len, const char *where,
                           PlanMeasurement *m) {
  json_error_t e;
  *m = (PlanMeasurement){0};
  TRY(jsondoc_check(text, len, where));
  json_t *doc = json_loadb(text, len, 0, &e);
  if (!doc)
    return err_set(ERR_WORK,
                   "%s: not JSON at byte %d: %s; write it with 'trireme bench train "
                   "--json'",
                   where, e.position, e.text);
  Err err = read_document(m, doc, where);
  json_decref(doc);
  return err;
}

/* Share of the output layer in the FLOPs of the GEMMs. Its gradients are computed with the loss,
 * before backward. */
static double output_share(const Model *model, const PlanBatch *batch) {
  ModelShape s = model->config.family->shape(&model->config);
  double output = batch->tokens[1] * plan_output_weights(&s);
  return output / (batch->tokens[0] * s.gemm_weights[0] + batch->tokens[1] * s.gemm_weights[1]);
}

void plan_measurement_compute(const PlanMeasurement *m, const char *where, const Model *model,
                              const PlanBatch *batch, PlanCompute *c) {
  double layers = 1 - output_share(model, batch);
  /* The timed steps may be slower than the others (no CUDA graph), so only their shares count. */
  double scale = m->has_parts ? m->step / m->timed : 0;
  double grow = batch->tokens[1] / m->tokens;
  double backward = m->has_parts ? scale * (m->gradients * layers + m->other_backward)
                                 : m->step * layers * 2 / 3;
  c->update = scale * m->optimizer;
  c->backward = grow * backward;
  c->forward = grow * (m->step - backward - c->update);
  c->is_measured = true;
  snprintf(c->source, sizeof c->source, "measured: %s, %.1f ms for %.0f %s%s%s", where,
           1e3 * m->step, m->tokens, m->has_texts ? "tokens" : "target tokens",
           fabs(grow - 1) > 0.01 ? ", scaled to this batch" : "",
           m->has_parts ? "" : "; its parts by their FLOPs");
}

/* Rates that a measurement does not contain: copies in the memory of a machine (reads and writes
 * counted), copies of a GPU to host memory, and PCIe 4.0 x16 between GPUs. */
#define ASSUMED_COPY     10e9
#define ASSUMED_SNAPSHOT 10e9
static const PlanLink assumed_pcie = {24e9, 5e-6};

static PlanMachine describe_host(const PlanMeasurement *m) {
  double copy = m->copy > 0 ? m->copy : ASSUMED_COPY;
  return (PlanMachine){.host_memory = copy,
                       .is_host_memory_measured = m->copy > 0,
                       .snapshot_bandwidth = copy / 2};
}

/* The measured copy is in the memory of the GPU, so it does not show how fast GPUs reach each other
 * or the host. */
static PlanMachine describe_gpu(const PlanMeasurement *m) {
  const PlanMachine *known = plan_machine_of_device(m->device);
  if (!known)
    return (PlanMachine){
        .local = assumed_pcie,
        .local_about = "PCIe 4.0 x16, because the links of this GPU are not known",
        .host_memory = PLAN_SERVER_MEMORY,
        .snapshot_bandwidth = ASSUMED_SNAPSHOT};
  return (PlanMachine){.local = known->local,
                       .local_about = known->local_about,
                       .host_memory = known->host_memory,
                       .snapshot_bandwidth = known->snapshot_bandwidth,
                       .is_snapshot_measured = known->is_snapshot_measured};
}

PlanMachine plan_measurement_machine(const PlanMeasurement *m) {
  PlanMachine machine = m->is_host ? describe_host(m) : describe_gpu(m);
  machine.name = "measured";
  machine.about = m->device;
  machine.sustained_clock = 1;
  return machine;
}
