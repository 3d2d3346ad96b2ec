/* The prediction as JSON: the inputs with their sources, and an object for each size. Depends on
 * plan_report.h, jansson. */
#include <jansson.h>
#include <math.h>

#include "base/mem.h"
#include "monitor/plan_report.h"

/* JSON has no infinity: what never happens, or never ends, is null. */
static json_t *finite_or_null(double value) {
  return isinf(value) ? json_null() : json_real(value);
}

static json_t *pack_row(const PlanReport *r, const PlanRow *row) {
  const PlanPoint *p = &row->at;
  return json_pack(
      "{s:i, s:i, s:I, s:I, s:f, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f},"
      " s:s?, s:f, s:f, s:f, s:f, s:f, s:I, s:b, s:I, s:o, s:o,"
      " s:{s:o, s:o, s:o, s:f}}",
      "nodes", p->net.nodes, "gpus", p->net.gpus, "micro_batches", (json_int_t)p->micro_batches,
      "rounds", (json_int_t)p->rounds, "step_ms", 1e3 * p->step, "parts", "forward_ms",
      1e3 * p->forward, "backward_ms", 1e3 * p->backward, "straggler_ms", 1e3 * p->straggler,
      "allreduce_ms", 1e3 * p->allreduce, "hidden_ms", 1e3 * p->hidden, "exposed_ms",
      1e3 * p->exposed, "copies_ms", 1e3 * p->copies, "update_ms", 1e3 * p->update, "gather_ms",
      1e3 * p->gather, "algorithm",
      p->net.nodes * p->net.gpus > 1 ? plan_algorithm_name(p->algorithm) : NULL,
      "bytes_sent_per_node", p->traffic, "local_bytes_per_s", p->net.local.bandwidth,
      "tgt_tok_s", p->rate, "speedup", p->speedup, "efficiency", p->efficiency, "memory_bytes",
      (json_int_t)row->memory, "fits", (int)row->fits, "steps", (json_int_t)p->steps, "hours",
      finite_or_null(p->hours), "cost",
      r->input.price > 0 ? finite_or_null(p->cost) : json_null(), "checkpoints", "mtbf_s",
      finite_or_null(p->mtbf), "best_interval_s", finite_or_null(p->best_interval),
      "interval_s", finite_or_null(p->interval), "lost", p->lost);
}

static json_t *pack_inputs(const PlanReport *r) {
  const PlanInput *in = &r->input;
  const PlanCompute *c = &in->compute;
  json_t *link = r->is_link_given
                     ? json_pack("{s:f, s:f, s:f, s:s}", "bytes_per_s",
                                 in->link.bandwidth / r->link_efficiency, "efficiency",
                                 r->link_efficiency, "latency_us", 1e6 * in->link.latency,
                                 "latency_source", r->is_latency_given ? "given" : "assumed")
                     : json_null();
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:{s:f, s:f, s:f, s:s, s:b}, s:I, s:I, s:i,"
      " s:b, s:b, s:b, s:o, s:{s:f, s:b, s:f, s:s}, s:f, s:{s:f, s:f, s:f, s:I}, s:f, s:f}",
      "preset", r->preset, "machine", r->machine_name, "device", r->machine->about, "precision",
      r->precision, "parameters", (json_int_t)r->model->params.total, "batch_tokens",
      (json_int_t)r->batch_tokens, "source_tokens", r->batch.tokens[0], "target_tokens",
      r->batch.tokens[1], "compute", "forward_ms", 1e3 * c->forward, "backward_ms",
      1e3 * c->backward, "update_ms", 1e3 * c->update, "source", c->source, "measured",
      (int)c->is_measured, "bucket_bytes", (json_int_t)r->bucket_bytes, "buckets",
      (json_int_t)in->schedule->buckets, "allreduce_element_bytes", in->bytes_per_element,
      "nccl", (int)in->is_nccl, "overlap", (int)in->overlaps, "shard_optimizer",
      (int)in->is_sharded, "link", link, "local", "bytes_per_s", in->local.bandwidth, "shared",
      (int)in->is_local_shared, "latency_us", 1e6 * in->local.latency, "source",
      r->local_source, "jitter", in->jitter, "faults", "failures_per_node_day",
      in->faults.failures_per_node_day, "checkpoint_s", in->faults.checkpoint, "restart_s",
      in->faults.restart, "save_every", (json_int_t)in->faults.save_every, "tokens",
      in->total_tokens, "price_per_hour", in->price);
}

Err plan_print_json(const PlanReport *r, Str *out) {
  json_t *sizes = json_array();
  int bad = sizes == NULL;
  for (size_t i = 0; i < r->rows; i++)
    bad |= json_array_append_new(sizes, pack_row(r, &r->row[i]));
  json_t *doc = json_pack("{s:o, s:o}", "inputs", pack_inputs(r), "sizes", sizes);
  char *text = doc && !bad ? json_dumps(doc, JSON_REAL_PRECISION(9)) : NULL;
  if (text) str_addf(out, "%s\n", text);
  free(text);
  json_decref(doc);
  return text ? str_check(out) : err_set(ERR_WORK, "out of memory while writing JSON");
}
