/* The prediction as text: where the numbers come from, then three tables. Depends on
 * plan_report.h. */
#include <math.h>
#include <stdio.h>

#include "monitor/plan_report.h"

static const char *name_rate(char out[32], double bytes_per_second) {
  if (bytes_per_second >= 1e9)
    snprintf(out, 32, "%.4g GB/s", bytes_per_second / 1e9);
  else
    snprintf(out, 32, "%.4g MB/s", bytes_per_second / 1e6);
  return out;
}

/* Returns the bytes that the all-reduce sends of the largest bucket. */
static uint64_t get_largest_bucket_bytes(const PlanInput *in) {
  size_t most = 0;
  for (size_t i = 0; i < in->schedule->buckets; i++)
    if (in->schedule->size[i] > most) most = in->schedule->size[i];
  return (uint64_t)most * (uint64_t)in->bytes_per_element;
}

static void add_model(const PlanReport *r, Str *out) {
  const PlanInput *in = &r->input;
  char parameters[32], bytes[32], bucket[32];
  str_addf(
      out, "model    %s, %s parameters; %s of gradients a step in %zu bucket%s of %s\n",
      r->preset, str_of_count(parameters, r->model->params.total),
      str_of_bytes(bytes, (uint64_t)in->schedule->elements * (uint64_t)in->bytes_per_element),
      in->schedule->buckets, str_plural(in->schedule->buckets),
      str_of_bytes(bucket, get_largest_bucket_bytes(in)));
}

static const char *name_tokens(const PlanReport *r) {
  return r->has_texts ? "tokens" : "target tokens";
}

static void add_sources(const PlanReport *r, Str *out) {
  const PlanInput *in = &r->input;
  const PlanCompute *c = &in->compute;
  char a[32], b[32];
  str_addf(out, "batches  %u tokens%s per micro-batch, %.0f %s in it (%s)\n", r->batch_tokens,
           r->has_texts ? "" : " a side", r->batch.tokens[1], name_tokens(r),
           r->data ? "counted in the data set" : "assumed: no padding");
  str_addf(out, "compute  %s in %s: forward %.2f ms, backward %.2f ms, update %.2f ms\n",
           r->machine->about, r->precision, 1e3 * c->forward, 1e3 * c->backward,
           1e3 * c->update);
  str_addf(out, "         (%s)\n", c->source);
  str_addf(out, "inside   a machine: %s %s, %.3g us (%s)\n", name_rate(a, in->local.bandwidth),
           in->is_local_shared ? "for all its ranks" : "a rank", 1e6 * in->local.latency,
           r->local_source);
  if (r->is_link_given)
    str_addf(out,
             "link     of a machine: %s (given), of which an all-reduce reaches %.0f %%: %s; "
             "%.3g us (%s)\n",
             name_rate(a, in->link.bandwidth / r->link_efficiency), 100 * r->link_efficiency,
             name_rate(b, in->link.bandwidth), 1e6 * in->link.latency,
             r->is_latency_given ? "given" : "assumed");
  str_addf(out, "waits    a rank's compute time varies by %.1f %% (standard deviation)\n",
           100 * in->jitter);
  str_addf(out,
           "faults   %.4g failures per machine and day; a restart takes %.0f s, a checkpoint "
           "delays by %.3f s (%s)\n",
           in->faults.failures_per_node_day, in->faults.restart, in->faults.checkpoint,
           r->is_checkpoint_given             ? "given"
           : r->machine->is_snapshot_measured ? "measured copy to host memory"
                                              : "assumed copy to host memory");
}

static const char *name_size(char out[32], const PlanNetwork *n) {
  snprintf(out, 32, "%d x %d", n->nodes, n->gpus);
  return out;
}

static void add_steps(const PlanReport *r, Str *out) {
  char size[32], count[32];
  str_addf(out, "\n%-9s %9s %9s %9s %11s = %8s + %8s %9s %9s %9s\n", "ms a step", "forward",
           "backward", "straggler", "all-reduce", "hidden", "exposed", "update", "other",
           "step");
  for (size_t i = 0; i < r->rows; i++) {
    const PlanPoint *p = &r->row[i].at;
    str_addf(out, "%-9s %9.2f %9.2f %9.2f %11.2f = %8.2f + %8.2f %9.2f %9.2f %9.2f\n",
             name_size(size, &p->net), 1e3 * p->forward, 1e3 * p->backward, 1e3 * p->straggler,
             1e3 * p->allreduce, 1e3 * p->hidden, 1e3 * p->exposed, 1e3 * p->update,
             1e3 * (p->copies + p->gather), 1e3 * p->step);
  }
  str_addf(out,
           "step = forward + backward + straggler + exposed + update + other (copies to host "
           "memory, all-gather of weights)\n\n"
           "%-9s %12s %8s %6s %11s %9s %10s %10s\n",
           "", "tokens/s", "speed-up", "eff.", "memory", "MB sent", "by", "per step");
  for (size_t i = 0; i < r->rows; i++) {
    const PlanPoint *p = &r->row[i].at;
    char memory[32], algorithm[32] = "-";
    if (p->net.nodes * p->net.gpus > 1)
      snprintf(algorithm, sizeof algorithm, "%s",
               p->algorithm == PLAN_SHARED ? "memory" : plan_algorithm_name(p->algorithm));
    str_addf(out, "%-9s %12s %8.2f %6.3f %10s%s %9.1f %10s %5u x %.0f\n",
             name_size(size, &p->net), str_of_count(count, (uint64_t)p->rate), p->speedup,
             p->efficiency, str_of_bytes(memory, r->row[i].memory), r->row[i].fits ? " " : "!",
             p->traffic / 1e6, algorithm, p->micro_batches, r->input.tokens);
  }
  for (size_t i = 0; i < r->rows; i++) {
    if (r->row[i].fits) continue;
    char bytes[32];
    str_addf(out, "! does not fit into the %s of the GPU: use smaller batches\n",
             str_of_bytes(bytes, r->machine->memory_bytes));
    break;
  }
}

static void add_run(const PlanReport *r, Str *out) {
  char size[32], count[32], hours[32], cost[32], mtbf[32], best[32];
  str_addf(out, "\n%-9s %10s %10s %12s %14s %24s %8s\n", "the run", "steps", "hours", "cost",
           "failure every", "best checkpoint interval", "lost");
  for (size_t i = 0; i < r->rows; i++) {
    const PlanPoint *p = &r->row[i].at;
    bool fails = !isinf(p->mtbf);
    char interval[64] = "-";
    if (fails)
      snprintf(interval, sizeof interval, "%s, %.0f steps",
               str_of_seconds(best, p->best_interval), p->best_interval / p->step);
    /* More failures than progress: the expected time is beyond any use, or infinite. */
    bool ends = p->hours < 1e9;
    snprintf(hours, sizeof hours, ends ? "%.3f" : "never ends", p->hours);
    snprintf(cost, sizeof cost, ends && r->input.price > 0 ? "%.2f" : "-", p->cost);
    str_addf(out, "%-9s %10s %10s %12s %14s %24s %6.2f %%\n", name_size(size, &p->net),
             str_of_count(count, (uint64_t)p->steps), hours, cost,
             fails ? str_of_seconds(mtbf, p->mtbf) : "-", interval, 100 * p->lost);
  }
  str_addf(out,
           "for %s %s; 'lost' is the time of checkpoints, restarts and repeated "
           "steps, %s\n",
           str_of_count(count, (uint64_t)r->input.total_tokens), name_tokens(r),
           r->input.faults.save_every ? "with --save-every" : "at the best interval");
}

void plan_print_text(const PlanReport *r, Str *out) {
  add_model(r, out);
  add_sources(r, out);
  add_steps(r, out);
  add_run(r, out);
}
