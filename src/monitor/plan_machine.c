/* GPUs by name: data sheets, and steps that were measured. Depends on plan_machine.h. */
#include "monitor/plan_machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/presets.h"

#define GB 1e9

/* Data sheets of NVIDIA: H200 SXM, A100 SXM 80 GB, V100 SXM2 16 GB, T4. GEMMs without sparsity;
 * `local` is NVLink, for the T4 PCIe 3.0 x16. The latency between GPUs is assumed. So is the T4's
 * clock: its limit of 70 W lowers the clock of continuous GEMMs well below the 1,590 MHz to which
 * the peak refers. Snapshots: H200 690 MB in 10.5 ms (bench/RESULTS.md); the others by PCIe. */
static const PlanMachine machines[] = {
    {.name = "h200",
     .about = "NVIDIA H200",
     .peak = {67e12, 494e12, 989e12, 989e12, 1979e12},
     .memory_bandwidth = 4.8e12,
     .memory_bytes = (uint64_t)(141 * GB),
     .local = {450 * GB, 3e-6},
     .local_about = "NVLink of the H200",
     .host_memory = PLAN_SERVER_MEMORY,
     .sustained_clock = 1,
     .snapshot_bandwidth = 66 * GB,
     .is_snapshot_measured = true},
    {.name = "a100",
     .about = "NVIDIA A100 80 GB",
     .peak = {19.5e12, 156e12, 312e12, 312e12, 0},
     .memory_bandwidth = 2.04e12,
     .memory_bytes = (uint64_t)(80 * GB),
     .local = {300 * GB, 3e-6},
     .local_about = "NVLink of the A100",
     .host_memory = PLAN_SERVER_MEMORY,
     .sustained_clock = 1,
     .snapshot_bandwidth = 20 * GB},
    {.name = "v100",
     .about = "NVIDIA V100 16 GB",
     .peak = {15.7e12, 0, 0, 125e12, 0},
     .memory_bandwidth = 0.9e12,
     .memory_bytes = (uint64_t)(16 * GB),
     .local = {150 * GB, 3e-6},
     .local_about = "NVLink of the V100",
     .host_memory = PLAN_SERVER_MEMORY,
     .sustained_clock = 1,
     .snapshot_bandwidth = 10 * GB},
    {.name = "t4",
     .about = "NVIDIA T4",
     .peak = {8.1e12, 0, 0, 65e12, 0},
     .memory_bandwidth = 0.32e12,
     .memory_bytes = (uint64_t)(16 * GB),
     .local = {12 * GB, 5e-6},
     .local_about = "PCIe 3.0 x16",
     .host_memory = PLAN_SERVER_MEMORY,
     .sustained_clock = 0.6,
     .snapshot_bandwidth = 10 * GB},
};
#define MACHINES (sizeof machines / sizeof *machines)

/* Steps that were measured (bench/RESULTS.md, "Training step on one GPU"): batches of 25,600 tokens
 * by `bench train`, of 8,192 by `train`; a vocabulary of VOCAB. `tokens` are real target tokens of a step, rate
 * times step time. The ratio to the roofline of the same batch scales other batches. `unfused_seconds` is the step
 * of an earlier version, without the loss and the forward ReLU in the epilogues of GEMMs. They need a Hopper GPU, 16
 * bits and a vocabulary that is a multiple of FUSED_VOCAB; its ratio is used for what does not have them. */
#define VOCAB       32768
#define FUSED_VOCAB 256
typedef struct {
  const char *machine, *preset;
  PlanPrecision precision;
  double tokens, seconds, unfused_seconds;
} Measured;

static const Measured measured[] = {
    {"h200", "base", PLAN_BF16, 25552, 20.6e-3, 22.0e-3},
    {"h200", "base", PLAN_BF16, 8173, 6.2e-3, 6.2e-3},
    {"h200", "big", PLAN_BF16, 25566, 57.9e-3, 60.9e-3},
    {"h200", "big", PLAN_FP8, 25574, 51.2e-3, 54.9e-3},
    {"h200", "small", PLAN_BF16, 25479, 7.8e-3, 7.8e-3},
    {"h200", "tiny", PLAN_BF16, 25460, 5.4e-3, 5.4e-3},
};
#define MEASURED (sizeof measured / sizeof *measured)

const char *const plan_precision_names[PLAN_PRECISIONS] = {"fp32", "tf32", "bf16", "fp16",
                                                           "fp8"};

PlanPrecision plan_precision_find(const char *name) {
  int i = 0;
  while (i + 1 < PLAN_PRECISIONS && strcmp(plan_precision_names[i], name) != 0) i++;
  return (PlanPrecision)i;
}

const PlanMachine *plan_machine_find(const char *name) {
  for (size_t i = 0; i < MACHINES; i++)
    if (strcmp(machines[i].name, name) == 0) return &machines[i];
  return NULL;
}

/* The PCIe cards of an A100 and a V100 have no NVLink, and other GPUs have H200 or T4 in their
 * names. */
const PlanMachine *plan_machine_of_device(const char *device) {
  static const char *const names[MACHINES][2] = {
      {"NVIDIA H200", "h200"}, {"A100-SXM", "a100"}, {"V100-SXM", "v100"}, {"Tesla T4", "t4"}};
  for (size_t i = 0; i < MACHINES; i++)
    if (strstr(device, names[i][0])) return plan_machine_find(names[i][1]);
  return NULL;
}

const char *plan_machine_names(char out[128]) {
  size_t n = 0;
  for (size_t i = 0; i < MACHINES; i++)
    n += (size_t)snprintf(out + n, 128 - n, "%s%s", i ? ", " : "", machines[i].name);
  return out;
}

PlanPrecision plan_machine_precision(const PlanMachine *m) {
  return m->peak[PLAN_BF16] > 0 ? PLAN_BF16 : PLAN_FP16;
}

Err plan_machine_check(const PlanMachine *m, PlanPrecision precision) {
  char has[64];
  size_t n = 0;
  if (m->peak[precision] > 0) return ERR_OK;
  for (int i = 0; i < PLAN_PRECISIONS; i++)
    if (m->peak[i] > 0)
      n += (size_t)snprintf(has + n, sizeof has - n, "%s%s", n ? ", " : "",
                            plan_precision_names[i]);
  return err_set(ERR_USAGE, "--machine %s has no --precision %s; it has %s", m->name,
                 plan_precision_names[precision], has);
}

/* Bytes that operations other than GEMMs move, at least. Per token: 4.3 elements for each column
 * of a weight matrix (attention, norms, activations and residuals, forward and backward; counted
 * for layers of 12 d^2 and 16 d^2 weights), and 4 for each logit. The update reads weight,
 * gradient, m and v, the gradient again for its norm, and writes weight, m, v and the
 * low-precision copy. */
#define ELEMENTS_PER_COLUMN 4.3
#define ELEMENTS_PER_LOGIT  4.0

double plan_output_weights(const ModelShape *s) {
  return s->gemm_weights[1] > 0 ? (double)s->vocab * (double)s->d_model : 0;
}

PlanRoofline plan_roofline(const PlanMachine *m, PlanPrecision precision, const Model *model,
                           const PlanBatch *batch) {
  ModelShape s = model->config.family->shape(&model->config);
  bool is_low = precision != PLAN_FP32 && precision != PLAN_TF32;
  double rate = m->peak[precision] * m->sustained_clock, width = is_low ? 2 : 4;
  double d = (double)s.d_model, output = plan_output_weights(&s);
  double tokens = (batch->tokens[0] + batch->tokens[1]) / 2;
  double layers =
      batch->tokens[0] * s.gemm_weights[0] + batch->tokens[1] * (s.gemm_weights[1] - output);
  double columns = (s.gemm_weights[0] + s.gemm_weights[1] - output) / d;
  double layer_bytes = tokens * ELEMENTS_PER_COLUMN * columns * width;
  double logit_bytes = batch->tokens[1] * ELEMENTS_PER_LOGIT * output / d * width;
  double update_bytes = (double)model->params.total * (32 + (is_low ? 2 : 0));
  return (PlanRoofline){
      .output = 6 * batch->tokens[1] * output / rate + logit_bytes / m->memory_bandwidth,
      .layers = 6 * layers / rate + layer_bytes / m->memory_bandwidth,
      .update = update_bytes / m->memory_bandwidth};
}

/* The measurements that a prediction is based on. */
typedef struct {
  const Measured *near;
  const Measured *other; /* Batches of `near` and `other` enclose the predicted one; or NULL. */
  double weight;         /* of the other in the ratio */
  bool is_exact;         /* They have the machine, preset and precision that are asked for. */
} Basis;

/* Returns how similar a measurement is to what is asked for: EXACT if all three are the same. */
enum { EXACT = 4 + 2 + 1 };
static int rate_likeness(const Measured *c, const char *machine, const char *preset,
                         PlanPrecision precision) {
  return 4 * (c->precision == precision) + 2 * (strcmp(c->preset, preset) == 0) +
         (strcmp(c->machine, machine) == 0);
}

/* Finds what a batch of so many target tokens is based on. Between two batches that were measured the
 * ratio is interpolated over the logarithm of the tokens. If none is exact, it is the first of the
 * most similar, because the gain of small batches depends on the machine's cache. */
static Basis find_basis(const char *machine, const char *preset, PlanPrecision precision,
                        double tokens) {
  const Measured *similar = NULL, *below = NULL, *above = NULL;
  int most = -1;
  for (size_t i = 0; i < MEASURED; i++) {
    const Measured *c = &measured[i];
    int likeness = rate_likeness(c, machine, preset, precision);
    if (likeness > most) {
      most = likeness;
      similar = c;
    }
    if (likeness != EXACT) continue;
    if (c->tokens <= tokens && (!below || c->tokens > below->tokens)) below = c;
    if (c->tokens >= tokens && (!above || c->tokens < above->tokens)) above = c;
  }
  Basis b = {.near = below ? below : above ? above : similar, .is_exact = most == EXACT};
  if (!below || !above || below == above) return b;
  b.other = above;
  b.weight = log(tokens / below->tokens) / log(above->tokens / below->tokens);
  return b;
}

/* Computes the measured time divided by the roofline of the measured machine, model and batch. */
static Err compute_ratio(const Measured *m, bool is_fused, double *ratio) {
  ModelConfig config;
  Model *model;
  Backend stand_in = {.name = "plan"};
  PlanBatch batch = {{m->tokens, m->tokens}};
  TRY(presets_configure(&config, m->preset, VOCAB));
  ModelSpec spec = {.config = &config, .backend = &stand_in, .capacity = 1, .training = true};
  TRY(model_plan(&model, &spec));
  PlanRoofline r = plan_roofline(plan_machine_find(m->machine), m->precision, model, &batch);
  double seconds = is_fused ? m->seconds : m->unfused_seconds;
  *ratio = seconds / (r.output + r.layers + r.update);
  model_free(model);
  return ERR_OK;
}

static Err compute_basis_ratio(const Basis *b, bool is_fused, double *ratio) {
  double other = 0;
  TRY(compute_ratio(b->near, is_fused, ratio));
  if (!b->other) return ERR_OK;
  TRY(compute_ratio(b->other, is_fused, &other));
  *ratio += b->weight * (other - *ratio);
  return ERR_OK;
}

static void describe_measured(const Basis *b, char *out, size_t size) {
  char other[64] = "";
  if (b->other)
    snprintf(other, sizeof other, " and %.1f ms for %.0f", 1e3 * b->other->seconds,
             b->other->tokens);
  snprintf(out, size,
           "measured: bench/RESULTS.md, %.1f ms for %.0f%s target tokens, %s to this batch",
           1e3 * b->near->seconds, b->near->tokens, other,
           b->other ? "interpolated" : "scaled");
}

Err plan_machine_compute(const PlanMachine *m, PlanPrecision precision, const char *preset,
                         const Model *model, const PlanBatch *batch, PlanCompute *c) {
  PlanRoofline r = plan_roofline(m, precision, model, batch);
  Basis b = find_basis(m->name, preset, precision, batch->tokens[1]);
  double ratio = 1;
  uint64_t vocab = model->config.family->shape(&model->config).vocab;
  bool is_other_vocab = vocab != VOCAB;
  TRY(compute_basis_ratio(&b, b.is_exact && vocab % FUSED_VOCAB == 0, &ratio));
  c->is_measured = b.is_exact && !is_other_vocab;
  c->forward = ratio * (r.output + r.layers / 3);
  c->backward = ratio * r.layers * 2 / 3;
  c->update = ratio * r.update;
  if (c->is_measured) {
    describe_measured(&b, c->source, sizeof c->source);
    return ERR_OK;
  }
  char clock[64] = "";
  if (m->sustained_clock < 1)
    snprintf(clock, sizeof clock, " at %.0f %% of its clock", 100 * m->sustained_clock);
  char with[64] = "";
  if (is_other_vocab) snprintf(with, sizeof with, ", vocabulary %d", VOCAB);
  snprintf(
      c->source, sizeof c->source,
      "assumed: %.2f times the roofline of the data sheet%s; measured for %s in %s on %s%s",
      ratio, clock, b.near->preset, plan_precision_names[b.near->precision], b.near->machine,
      with);
  return ERR_OK;
}
