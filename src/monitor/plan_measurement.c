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

/* Reads a number; returns `otherwise` if it is missing, NaN for another type or a number outside
 * of [0, 1e15]. */
static double read_number(const json_t *object, const char *name, double otherwise) {
  const json_t *v = json_object_get(object, name);
  if (!v) return otherwise;
  if (!json_is_number(v)) return NAN;
  double value = json_number_value(v);
  return value >= 0 && value <= 1e15 ? value : NAN;
}

/* Copies a text, which is printed: control characters are escaped. */
static void copy_text(const json_t *object, const char *name, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(object, name));
  utf8_visible(text ? text : "", out, size);
}

/* Adds the milliseconds of one kind of operation to the part of the step it belongs to. */
static Err add_part(PlanMeasurement *m, const json_t *part, const char *where) {
  static const char *const backward[] = {"attention backward", "norms backward",
                                         "activation backward"};
  const char *name = json_string_value(json_object_get(part, "name"));
  double seconds = read_number(part, "ms", NAN) / 1e3;
  if (!name || isnan(seconds)) return refuse_file(where, "an entry of parts.work has no ms");
  if (strcmp(name, "GEMMs, input grads") == 0 || strcmp(name, "GEMMs, weight grads") == 0)
    m->gradients += seconds;
  for (size_t i = 0; i < sizeof backward / sizeof *backward; i++)
    if (strcmp(name, backward[i]) == 0) m->other_backward += seconds;
  if (strcmp(name, "optimizer") == 0) m->optimizer += seconds;
  return ERR_OK;
}

static Err read_parts(PlanMeasurement *m, const json_t *parts, const char *where) {
  const json_t *part;
  size_t i;
  m->has_parts = true;
  m->timed = read_number(json_object_get(parts, "step"), "ms", NAN) / 1e3;
  m->copy = read_number(parts, "copy_gb_s", 0) * 1e9;
  json_array_foreach(json_object_get(parts, "work"), i, part) TRY(add_part(m, part, where));
  double named = m->gradients + m->other_backward + m->optimizer;
  if (!(m->timed > 0) || isnan(m->copy) || named > 1.001 * m->timed)
    return refuse_file(where, "parts has no step, or operations longer than the step");
  return ERR_OK;
}

static Err read_document(PlanMeasurement *m, const json_t *doc, const char *where) {
  char kind[16];
  copy_text(doc, "bench", kind, sizeof kind);
  if (strcmp(kind, "train") != 0) return refuse_file(where, "\"bench\" is not \"train\"");
  copy_text(doc, "preset", m->preset, sizeof m->preset);
  copy_text(doc, "precision", m->precision, sizeof m->precision);
  copy_text(doc, "backend", m->device, sizeof m->device);
  m->is_host = str_starts(m->device, "cpu") || str_starts(m->device, "reference");
  m->step = read_number(doc, "step_ms", NAN) / 1e3;
  m->has_texts = !json_object_get(doc, "tgt_tok_s");
  double rate = read_number(doc, m->has_texts ? "tok_s" : "tgt_tok_s", NAN),
         parameters = read_number(doc, "parameters", 0);
  double capacity = read_number(doc, "batch_tokens", NAN);
  m->tokens = rate * m->step;
  if (!(m->step > 0) || !(m->tokens > 0) || !(capacity >= 1) || capacity > 1e9 ||
      isnan(parameters))
    return refuse_file(
        where, "step_ms, tgt_tok_s (of texts tok_s) or batch_tokens is missing or wrong");
  m->parameters = (uint64_t)parameters;
  m->batch_tokens = (uint32_t)capacity;
  const json_t *parts = json_object_get(doc, "parts");
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

/* Rates that nothing in a measurement tells: copies in the memory of a machine (reads and writes
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

/* The measured copy is in the memory of the GPU, so it does not tell how fast GPUs reach each other
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
