/* trireme plan: time, cost and memory of a training run on machines that need not be here. Reads
 * options, data set and measurements; monitor/plan.h has the formulas. Depends on monitor/plan,
 * train/fit, train/pieces, data/dataset. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "cmd/bench_batches.h"
#include "cmd/cmd.h"
#include "cmd/plan_measure.h"
#include "data/dataset.h"
#include "monitor/plan_report.h"
#include "train/fit.h"
#include "train/pieces.h"

#define MOST_JSON     ((size_t)1 << 20) /* bytes of a measurement */
#define DEFAULT_BATCH 4096              /* tokens, as of train */
/* Share of a link's bandwidth that an all-reduce reaches. Host transport: measured over TCP, which
 * loses more when both directions are full than by its headers (bench/RESULTS.md, "plan beside
 * measured steps"). NCCL: an assumption. */
#define HOST_EFFICIENCY 0.67
#define NCCL_EFFICIENCY 0.8
#define DEFAULT_LATENCY 25e-6 /* seconds of a message between machines */
#define MEMORY_LATENCY  20e-6 /* seconds of a message between ranks through host memory */
#define ADAM_MOMENTS    2
#define CORE_PROCESSES  4 /* that --machine this starts at most, per core */

typedef struct {
  const OptSet *opts;
  PlanReport report;
  DataSet data;
  bool has_data;
  OrderPlan packing;
  PlanSizes nodes, gpus;
  Backend stand_in; /* only its type of activations and its kind of memory are read */
  Model *model;
  PlanSchedule schedule;
  PlanMachine machine;
  bool is_host; /* the ranks compute on CPUs */
  bool has_measurement;
  PlanMeasurement measurement;
  char source[64]; /* where the measurement comes from */
  char machine_name[FILE_PATH_MAX];
} Planning;

/* Opens the data set. The preset decides whether it has texts or pairs of sentences. */
static Err open_data(Planning *p) {
  const char *dir = opt_text(p->opts, "data");
  ModelConfig config;
  TRY(bench_configure(&config, opt_text(p->opts, "preset"),
                      (int)opt_count(p->opts, "vocab-size")));
  p->report.has_texts = bench_has_texts(&config);
  if (!dir) return ERR_OK;
  TRY((p->report.has_texts ? dataset_open_any_texts : dataset_open)(&p->data, dir));
  p->has_data = true;
  p->report.data = dir;
  return ERR_OK;
}

static int vocab_size(const Planning *p) {
  return p->has_data ? p->data.meta.vocab : (int)opt_count(p->opts, "vocab-size");
}

/* Sets the tokens of a micro-batch: those that the packing reaches or, without a data set, full
 * batches. Texts have one side, whose tokens count for both. */
static Err set_batch(Planning *p) {
  PlanReport *r = &p->report;
  const MetaSplit *train = &p->data.meta.split[SPLIT_TRAIN];
  r->batch.tokens[0] = r->batch.tokens[1] = r->batch_tokens;
  if (!p->has_data) return ERR_OK;
  TRY(order_plan(&p->packing, &p->data.order, r->batch_tokens));
  for (int side = 0; side < 2; side++) {
    uint64_t tokens =
        r->has_texts ? train->tokens[0] : train->tokens[side] + train->pairs; /* with eos */
    r->batch.tokens[side] = (double)tokens / (double)p->packing.batches;
  }
  return ERR_OK;
}

/* The measured preset and precision must be those that are planned. */
static Err check_measurement(const Planning *p, const char *name) {
  const PlanMeasurement *m = &p->measurement;
  const char *preset = opt_text(p->opts, "preset"), *precision = opt_text(p->opts, "precision");
  if (strcmp(m->preset, preset) != 0)
    return err_set(
        ERR_USAGE,
        "%s was measured with --preset %s, not %s; pass --preset %s, or measure again", name,
        m->preset, preset, m->preset);
  if (precision && strcmp(m->precision, precision) != 0)
    return err_set(ERR_USAGE,
                   "%s was measured with --precision %s, not %s; leave --precision out, or "
                   "measure again",
                   name, m->precision, precision);
  return ERR_OK;
}

static Err read_measurement(Planning *p, const char *path) {
  Str text = {0};
  Err err = file_read(path, MOST_JSON, &text);
  if (!err) err = plan_measurement_parse(str_text(&text), text.len, path, &p->measurement);
  str_free(&text);
  if (!err) err = check_measurement(p, path);
  return err;
}

static Err measure_this(Planning *p) {
  const OptSet *opts = p->opts;
  const char *device = opt_text(opts, "device"), *precision = opt_text(opts, "precision");
  Backend b = {0};
  BackendSpec spec = {device, "fp32", 0};
  TRY(backend_open(&b, &spec));
  if (!b.host && strcmp(device, "auto") == 0) device = "cuda";
  PlanMeasureSpec measure = {.preset = opt_text(opts, "preset"),
                             .precision = precision ? precision
                                          : b.host  ? "fp32"
                                                    : "bf16",
                             .device = b.host ? "cpu" : device,
                             .vocab = vocab_size(p),
                             .batch_tokens = (uint32_t)opt_count(opts, "batch-tokens"),
                             .steps = (uint64_t)opt_count(opts, "steps"),
                             .ranks = p->gpus.size[0],
                             .has_texts = p->report.has_texts,
                             .order = p->has_data ? &p->data.order : NULL};
  backend_close(&b);
  if (!measure.batch_tokens) measure.batch_tokens = DEFAULT_BATCH;
  if (p->gpus.count > 1)
    return err_set(ERR_USAGE,
                   "--machine this is measured with one number of ranks; pass one number to "
                   "--gpus instead of %zu",
                   p->gpus.count);
  if (measure.ranks > CORE_PROCESSES * thread_cores())
    return err_set(
        ERR_USAGE,
        "--machine this starts a process for each of the --gpus, and %d are too many for %d "
        "cores; pass at most %d",
        measure.ranks, thread_cores(), CORE_PROCESSES * thread_cores());
  return plan_measure(&measure, &p->measurement);
}

/* Sets the machine of a measurement and what follows from it. */
static void use_measurement(Planning *p, const char *where) {
  PlanReport *r = &p->report;
  p->has_measurement = true;
  utf8_visible(where, p->source, sizeof p->source);
  p->machine = plan_measurement_machine(&p->measurement);
  p->is_host = p->measurement.is_host;
  r->precision = p->measurement.precision;
  if (!r->batch_tokens) r->batch_tokens = p->measurement.batch_tokens;
}

static Err use_known(Planning *p, const PlanMachine *m) {
  const char *given = opt_text(p->opts, "precision");
  PlanPrecision precision = given ? plan_precision_find(given) : plan_machine_precision(m);
  TRY(plan_machine_check(m, precision));
  p->machine = *m;
  p->report.precision = plan_precision_names[precision];
  return ERR_OK;
}

static Err choose_machine(Planning *p) {
  const char *name = opt_text(p->opts, "machine");
  char names[128];
  PlanReport *r = &p->report;
  if (!name)
    return err_set(ERR_USAGE,
                   "no machine given: pass --machine with %s, 'this' (measured now) or a file "
                   "that 'trireme bench train --json' wrote",
                   plan_machine_names(names));
  const PlanMachine *known = plan_machine_find(name);
  utf8_visible(name, p->machine_name, sizeof p->machine_name);
  r->machine_name = p->machine_name;
  r->batch_tokens = (uint32_t)opt_count(p->opts, "batch-tokens");
  r->machine = &p->machine;
  if (known) {
    TRY(use_known(p, known));
  } else if (strcmp(name, "this") == 0) {
    TRY(measure_this(p));
    use_measurement(p, "this machine, now");
  } else if (file_exists(name)) {
    TRY(read_measurement(p, name));
    use_measurement(p, name);
  } else {
    return err_set(ERR_USAGE,
                   "there is no machine and no file '%s'; known are %s, 'this' (measured now), "
                   "and files that 'trireme bench train --json' wrote",
                   name, plan_machine_names(names));
  }
  if (!r->batch_tokens) r->batch_tokens = DEFAULT_BATCH;
  return ERR_OK;
}

static Err plan_model(Planning *p) {
  PlanReport *r = &p->report;
  ModelConfig config;
  const char *precision = r->precision;
  bool is_half = strcmp(precision, "fp16") == 0, is_fp8 = strcmp(precision, "fp8") == 0;
  bool is_low = is_half || is_fp8 || strcmp(precision, "bf16") == 0;
  r->preset = opt_text(p->opts, "preset");
  TRY(bench_configure(&config, r->preset, vocab_size(p)));
  /* Activations are fp32 on a CPU in every precision. */
  p->stand_in = (Backend){.name = "plan",
                          .type = p->is_host || !is_low ? TYPE_F32
                                  : is_half             ? TYPE_F16
                                                        : TYPE_BF16,
                          .fp8 = is_fp8,
                          .host = p->is_host};
  ModelShape shape = config.family->shape(&config);
  TRY(backend_check_fp8(&p->stand_in, shape.d_model, shape.ffn_dim, r->batch_tokens));
  ModelSpec spec = {.config = &config,
                    .backend = &p->stand_in,
                    .capacity = r->batch_tokens,
                    .training = true};
  TRY(model_plan(&p->model, &spec));
  r->model = p->model;
  uint64_t measured = p->measurement.parameters;
  if (measured && measured != p->model->params.total)
    return err_set(ERR_USAGE,
                   "%s was measured with a model of %llu parameters, not %zu: its vocabulary "
                   "differs; pass the --vocab-size of the measurement, or measure again",
                   p->source, (unsigned long long)measured, p->model->params.total);
  r->bucket_bytes = (size_t)opt_count(p->opts, "bucket-size");
  return plan_schedule_make(&p->schedule, p->model, r->bucket_bytes);
}

/* Sets how the ranks of one machine reach each other. NCCL sends from GPU to GPU. The host
 * transport adds up in host memory, which the ranks share; a copy reads and writes each byte. */
static void set_local(Planning *p) {
  PlanReport *r = &p->report;
  PlanInput *in = &r->input;
  const PlanMachine *m = &p->machine;
  in->is_local_shared = !in->is_nccl;
  in->local = in->is_nccl ? m->local : (PlanLink){m->host_memory / 2, MEMORY_LATENCY};
  if (in->is_nccl) {
    in->local.bandwidth *= NCCL_EFFICIENCY;
    snprintf(r->local_source, sizeof r->local_source,
             "assumed: an all-reduce reaches %.0f %% of %s", 100 * NCCL_EFFICIENCY,
             m->local_about);
  } else if (m->is_host_memory_measured) {
    snprintf(r->local_source, sizeof r->local_source,
             "measured copy in host memory; latency assumed");
  } else {
    snprintf(r->local_source, sizeof r->local_source,
             "assumed: host memory of %.0f GB/s, reads and writes counted",
             1e-9 * m->host_memory);
  }
}

static Err set_network(Planning *p) {
  const OptSet *opts = p->opts;
  PlanInput *in = &p->report.input;
  const char *link = opt_text(opts, "link");
  int transport = opt_choice(opts, "allreduce-transport", "auto|nccl|host");
  if (transport == 1 && p->is_host)
    return err_set(
        ERR_USAGE,
        "--allreduce-transport nccl needs GPUs, and --machine %s is a CPU; leave it out",
        p->report.machine_name);
  in->is_nccl = !p->is_host && transport != 2;
  in->nccl_algo = (PlanNcclAlgo)opt_choice(opts, "nccl-algo", "auto|ring|tree");
  set_local(p);
  for (size_t i = 0; i < p->nodes.count && !link; i++)
    if (p->nodes.size[i] > 1)
      return err_set(ERR_USAGE,
                     "%d machines need a network: pass --link with its bandwidth and latency, "
                     "for example --link 25Gbit,30us",
                     p->nodes.size[i]);
  p->report.link_efficiency = opt_given(opts, "link-efficiency")
                                  ? opt_real(opts, "link-efficiency")
                              : in->is_nccl ? NCCL_EFFICIENCY
                                            : HOST_EFFICIENCY;
  if (!link) return ERR_OK;
  TRY(plan_parse_link(link, &in->link));
  p->report.is_link_given = true;
  p->report.is_latency_given = in->link.latency > 0;
  if (!p->report.is_latency_given) in->link.latency = DEFAULT_LATENCY;
  in->link.bandwidth *= p->report.link_efficiency;
  return ERR_OK;
}

static void set_sharding(Planning *p) {
  PlanInput *in = &p->report.input;
  GatheredWeights g = pieces_gathered(&p->model->params, p->stand_in.type, in->is_nccl);
  in->is_sharded = opt_flag(p->opts, "shard-optimizer");
  in->weight_bytes = (int)g.width;
  in->full_elements = g.full_elements;
}

static void set_input(Planning *p) {
  const OptSet *opts = p->opts;
  PlanReport *r = &p->report;
  PlanInput *in = &r->input;
  double gradients = (double)p->schedule.elements * sizeof(float);
  double state = (1 + ADAM_MOMENTS) * gradients; /* bytes of a checkpoint */
  in->tokens = r->batch.tokens[1];
  in->micro_batches =
      opt_given(opts, "micro-batches") ? (uint32_t)opt_count(opts, "micro-batches") : 0;
  in->schedule = &p->schedule;
  in->bytes_per_element = opt_choice(opts, "allreduce-dtype", "fp32|bf16") ? 2 : 4;
  in->overlaps = opt_choice(opts, "overlap", "yes|no") == 0;
  set_sharding(p);
  if (!p->is_host && !in->is_nccl) {
    /* Gradients to host memory and back; with a sharded optimizer also the weights. */
    int copies = in->is_sharded ? 4 : 2;
    in->copies = copies * gradients / p->machine.snapshot_bandwidth;
  }
  in->jitter = opt_real(opts, "jitter");
  r->is_checkpoint_given = opt_given(opts, "checkpoint-time");
  in->faults = (PlanFaults){
      .failures_per_node_day = opt_real(opts, "failures-per-node-day"),
      .checkpoint = r->is_checkpoint_given ? opt_real(opts, "checkpoint-time")
                                           : state / p->machine.snapshot_bandwidth,
      .restart = opt_real(opts, "restart-time"),
      .save_every =
          opt_given(opts, "save-every") ? (uint64_t)opt_count(opts, "save-every") : 0};
  in->total_tokens = (double)opt_count(opts, "tokens");
  in->price = opt_real(opts, "price-per-hour");
}

static Err set_compute(Planning *p) {
  PlanReport *r = &p->report;
  PlanCompute *c = &r->input.compute;
  if (!p->has_measurement)
    return plan_machine_compute(&p->machine, plan_precision_find(r->precision), r->preset,
                                p->model, &r->batch, c);
  plan_measurement_compute(&p->measurement, p->source, p->model, &r->batch, c);
  /* A file was measured by one process, which had the cores that several ranks would share. */
  bool is_file = strcmp(opt_text(p->opts, "machine"), "this") != 0;
  bool has_several = false;
  for (size_t i = 0; i < p->gpus.count; i++) has_several |= p->gpus.size[i] > 1;
  size_t used = strlen(c->source);
  if (is_file && has_several && p->is_host)
    snprintf(c->source + used, sizeof c->source - used,
             "; assumed: as fast with other ranks on the machine");
  return ERR_OK;
}

/* Computes the memory of rank 0 as train would plan it, without validations. */
static uint64_t count_memory(const Planning *p, const PlanPoint *at) {
  const PlanInput *in = &p->report.input;
  uint64_t ranks = (uint64_t)at->net.nodes * (uint64_t)at->net.gpus;
  GradientsMemory reduce = {.ranks = (int)ranks,
                            .is_host = p->is_host,
                            .has_nccl = in->is_nccl && ranks > 1,
                            .bucket = p->report.bucket_bytes,
                            .gradients = p->schedule.elements * sizeof(float)};
  FitInputs fit = {.model = p->model,
                   .weight_copies = 1,
                   .moments = ADAM_MOMENTS,
                   .optimizer_shards = in->is_sharded ? ranks : 1,
                   .reduce = gradients_bytes(&reduce),
                   .is_writer = true};
  FitPlan plan;
  fit_list_shares(&fit, &plan);
  return p->is_host ? plan.host_bytes : plan.device_bytes;
}

static Err add_row(Planning *p, int nodes, int gpus) {
  PlanReport *r = &p->report;
  PlanRow *row = &r->row[r->rows++];
  uint64_t ranks = (uint64_t)nodes * (uint64_t)gpus;
  if (ranks > PLAN_RANKS)
    return err_set(
        ERR_USAGE,
        "%d machines of %d GPUs are %llu ranks; pass fewer --nodes or --gpus, at most "
        "%d ranks in all",
        nodes, gpus, (unsigned long long)ranks, PLAN_RANKS);
  if (r->input.micro_batches && ranks > r->input.micro_batches)
    return err_set(
        ERR_USAGE,
        "--micro-batches %u are too few for %d x %d ranks: each rank needs one; pass "
        "%llu or more, or fewer %s",
        r->input.micro_batches, nodes, gpus, (unsigned long long)ranks,
        nodes > 1 ? "--nodes" : "--gpus");
  plan_predict(&r->input, nodes, gpus, &row->at);
  row->memory = count_memory(p, &row->at);
  row->fits = !p->machine.memory_bytes || row->memory <= p->machine.memory_bytes;
  return ERR_OK;
}

static Err predict_all(Planning *p) {
  size_t most = p->nodes.count * p->gpus.count;
  TRY(mem_alloc(&p->report.row, most, sizeof *p->report.row));
  for (size_t n = 0; n < p->nodes.count; n++)
    for (size_t g = 0; g < p->gpus.count; g++)
      TRY(add_row(p, p->nodes.size[n], p->gpus.size[g]));
  return ERR_OK;
}

static Err print_report(const PlanReport *r, bool is_json) {
  Str out = {0};
  Err err = ERR_OK;
  if (is_json)
    err = plan_print_json(r, &out);
  else
    plan_print_text(r, &out);
  if (!err) err = str_check(&out);
  if (!err) err = out_print(str_text(&out));
  str_free(&out);
  return err;
}

static Err write_svg(const PlanReport *r, const char *path) {
  Str out = {0};
  Err err = path ? plan_print_svg(r, &out) : ERR_OK;
  if (!err && path) err = file_write_output(path, str_text(&out), out.len);
  str_free(&out);
  return err;
}

Err cmd_plan(OptSet *opts) {
  Planning p = {.opts = opts};
  Err err;
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("plan", "call it without mpirun or srun"));
  TRY_DONE(plan_parse_sizes("nodes", opt_text(opts, "nodes"), &p.nodes));
  TRY_DONE(plan_parse_sizes("gpus", opt_text(opts, "gpus"), &p.gpus));
  TRY_DONE(open_data(&p));
  TRY_DONE(choose_machine(&p));
  TRY_DONE(plan_model(&p));
  TRY_DONE(set_batch(&p));
  TRY_DONE(set_network(&p));
  set_input(&p);
  TRY_DONE(set_compute(&p));
  TRY_DONE(predict_all(&p));
  TRY_DONE(write_svg(&p.report, opt_text(opts, "svg")));
  err = print_report(&p.report, opt_flag(opts, "json"));
done:
  mem_free(p.report.row);
  plan_schedule_free(&p.schedule);
  model_free(p.model);
  order_plan_free(&p.packing);
  if (p.has_data) dataset_close(&p.data);
  return err;
}
