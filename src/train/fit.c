/* Computes the memory that a run needs, and the largest batch that fits. Depends on
 * trainer.h. */
#include "train/fit.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/agree.h"

#define TOKENS_UNIT       256u
#define MAX_TOKENS_DEVICE 65536u
/* Largest batch that auto selects on a CPU, where larger ones are not faster. */
#define MAX_TOKENS_HOST 8192u
/* Smallest number of batches per epoch that --batch-tokens auto leaves. */
#define MIN_BATCHES 64
/* Bytes that CUDA libraries allocate at their first use, including the timing of GEMM
 * algorithms. */
#define LIBRARIES ((uint64_t)512 << 20)

static void add_share(FitPlan *f, const char *name, uint64_t bytes, bool is_host) {
  if (!bytes) return;
  f->share[f->shares++] = (FitShare){name, bytes, is_host};
  if (is_host)
    f->host_bytes += bytes;
  else
    f->device_bytes += bytes;
}

/* Returns the output columns of the widest GEMM that may be computed in fp8. */
static uint64_t find_widest_fp8(const ModelShape *shape) {
  uint64_t most = shape->gemm_widths[0];
  for (size_t i = 1; i < sizeof shape->gemm_widths / sizeof *shape->gemm_widths; i++) {
    uint64_t width = shape->gemm_widths[i];
    if (width > most && width <= FP8_MAX_DIM) most = width;
  }
  return most;
}

void fit_list_shares(const FitInputs *in, FitPlan *f) {
  const Model *m = in->model;
  const Backend *b = m->backend;
  uint64_t n = m->params.padded * sizeof(float), tokens = m->capacity;
  /* Number of sums of squares for the gradient norm. */
  uint64_t units = norm_units(m->params.padded);
  uint64_t low = b->type == TYPE_F32 ? 0 : m->params.padded * type_size(b->type);
  uint64_t state = (in->weight_copies + in->moments) * n; /* bytes of a checkpoint */
  ModelShape shape = m->config.family->shape(&m->config);
  uint64_t d = shape.d_model;
  *f = (FitPlan){0};
  add_share(f, "weights", in->weight_copies * (n + low), b->host);
  add_share(f, "gradients", n + units * sizeof(double) + sizeof(StepNumbers), b->host);
  add_share(f, "optimizer state", in->moments * n / in->optimizer_shards, b->host);
  add_share(f, "activations", m->arena_bytes, b->host);
  add_share(f, "validation", in->validation, b->host);
  if (!b->host)
    add_share(f, "GEMM workspace and libraries", LIBRARIES + (2 * tokens + shape.vocab) * d * 4,
              /*is_host=*/false);
  if (b->fp8)
    add_share(f, "fp8 operands", (tokens + d) * (find_widest_fp8(&shape) + 8),
              /*is_host=*/false);
  add_share(f, "all-reduce", in->reduce.device, /*is_host=*/false);
  add_share(f, "all-reduce", in->reduce.host, /*is_host=*/true);
  if (in->is_writer) add_share(f, "snapshot for checkpoints", state, /*is_host=*/true);
  /* In-memory copies need the state three times: the snapshot, the last complete copy, and the
   * copy being written. */
  if (in->is_writer && in->has_memory_copies)
    add_share(f, "in-memory copies", 3 * state, /*is_host=*/true);
}

/* Lists what the memory of a run is used for. `m` must be planned for `tokens` tokens. */
static Err plan_shares(const Trainer *t, const Model *m, uint64_t tokens, FitPlan *f) {
  const TrainSpec *s = t->spec;
  uint64_t n = m->params.padded * sizeof(float);
  FitInputs in = {.model = m,
                  .weight_copies = s->ema > 0 ? 2 : 1,
                  .moments = (uint64_t)optim_has_moment(&s->optim, 1) +
                             (uint64_t)optim_has_moment(&s->optim, 2),
                  .optimizer_shards = world_optimizer_shards(&t->world, s),
                  .reduce = world_reduce_bytes(&t->world, s, t->micro_batches, n),
                  .is_writer = world_is_writer(&t->world),
                  .has_memory_copies = s->copy_every > 0};
  if (t->task->valid_examples && t->task->kind->score_bytes)
    TRY(t->task->kind->score_bytes(t->task, m, tokens, &in.validation));
  fit_list_shares(&in, f);
  return ERR_OK;
}

Err fit_plan(const Trainer *t, FitPlan *f) {
  return plan_shares(t, t->state.model, t->state.model->capacity, f);
}

/* Returns the bytes that are needed in the memory in which the backend computes. */
static uint64_t backend_bytes(const FitPlan *f, bool host) {
  return host ? f->host_bytes : f->device_bytes;
}

static Err count_bytes(const Trainer *t, const ModelConfig *c, uint32_t tokens,
                       uint64_t *bytes) {
  Model *m;
  FitPlan f;
  ModelSpec spec = {
      .config = c, .backend = &t->world.backend, .capacity = tokens, .training = true};
  TRY(model_plan(&m, &spec));
  Err err = plan_shares(t, m, tokens, &f);
  *bytes = backend_bytes(&f, t->world.backend.host);
  model_free(m);
  return err;
}

/* Finds the largest multiple of TOKENS_UNIT, at most `most`, that fits into `bytes`; 0 if none
 * does. */
static Err find_largest(const Trainer *t, const ModelConfig *c, uint64_t bytes, uint32_t most,
                        uint32_t *tokens) {
  uint32_t low = 0, high = most / TOKENS_UNIT; /* binary search: low fits, high + 1 does not */
  while (low < high) {
    uint32_t middle = high - (high - low) / 2;
    uint64_t takes;
    TRY(count_bytes(t, c, middle * TOKENS_UNIT, &takes));
    if (takes <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  *tokens = low * TOKENS_UNIT;
  return ERR_OK;
}

static uint32_t round_up_tokens(uint64_t tokens) {
  return (uint32_t)((tokens + TOKENS_UNIT - 1) / TOKENS_UNIT) * TOKENS_UNIT;
}

/* Returns the largest useful number of tokens: not too many for the device, and small enough
 * that an epoch has MIN_BATCHES batches. */
static uint32_t limit_tokens(const Trainer *t, uint32_t least) {
  uint64_t of_data = t->task->tokens / MIN_BATCHES / TOKENS_UNIT * TOKENS_UNIT;
  uint64_t most = t->world.backend.host ? MAX_TOKENS_HOST : MAX_TOKENS_DEVICE;
  if (of_data < most) most = of_data;
  return most > least ? (uint32_t)most : least;
}

static Err choose_tokens(Trainer *t, const ModelConfig *c, uint32_t *tokens) {
  uint64_t bytes;
  uint32_t least = round_up_tokens(c->family->shape(c).max_tokens),
           most = limit_tokens(t, least);
  char text[32];
  TRY(world_free_memory(&t->world, &bytes));
  if (t->world.backend.host) bytes /= 2; /* leave the other half to other programs */
  TRY(find_largest(t, c, bytes, most, tokens));
  TRY(world_least(&t->world, "tokens of a batch", tokens));
  if (*tokens < least)
    return err_set(ERR_WORK,
                   "a batch of %u %s, which the longest sentence needs, does not fit into "
                   "the %s that a rank may have here; use a smaller model, or prepare the data "
                   "with a smaller --max-tokens",
                   least, t->task->kind->capacity_unit, str_of_bytes(text, bytes));
  log_info(
      "batches  --batch-tokens auto is %u tokens: %s", *tokens,
      *tokens < most ? "as many as fit into the memory"
      : *tokens >= MAX_TOKENS_DEVICE || (t->world.backend.host && *tokens >= MAX_TOKENS_HOST)
          ? "larger batches are not faster"
          : "larger batches would leave too few in an epoch");
  return ERR_OK;
}

Err fit_tokens(Trainer *t, const ModelConfig *c, uint32_t *tokens) {
  char path[FILE_PATH_MAX];
  uint64_t saved = 0;
  *tokens = t->spec->batch_tokens;
  if (*tokens) return ERR_OK;
  if (world_is_writer(&t->world)) saved = t->run.at.batch_tokens;
  if (world_is_writer(&t->world) && t->run.is_resumed && !saved) {
    TRY(file_join(path, t->spec->run, "config"));
    if (file_exists(path)) TRY(agree_saved(path, "batch-tokens", &saved));
  }
  comm_broadcast(t->world.comm, "tokens of a batch", &saved, sizeof saved);
  *tokens = (uint32_t)saved;
  return saved ? ERR_OK : choose_tokens(t, c, tokens);
}

Err fit_check(Trainer *t, FitCheck *check) {
  FitPlan f;
  const ModelConfig *c = &t->state.model->config;
  TRY(fit_plan(t, &f));
  TRY(world_free_memory(&t->world, &check->left));
  /* A barrier: no rank may allocate memory before all ranks have read how much is free. */
  comm_sum(t->world.comm, "memory", &(double){0}, 1);
  check->needed = backend_bytes(&f, t->world.backend.host);
  check->tokens = (uint32_t)t->state.model->capacity;
  if (check->needed <= check->left) return ERR_OK;
  TRY(find_largest(t, c, check->left, check->tokens, &check->tokens));
  if (check->tokens < c->family->shape(c).max_tokens) check->tokens = 0;
  return ERR_OK;
}

static const char *describe_remedy(char out[96], const FitCheck *c) {
  if (c->tokens)
    snprintf(out, 96, "pass --batch-tokens %u, or auto", c->tokens);
  else
    snprintf(out, 96, "no batch size fits: use a smaller model");
  return out;
}

static Err check_or_refuse(Trainer *t, FitCheck *c) {
  char needs[32], left[32], remedy[96];
  TRY(fit_check(t, c));
  if (c->needed <= c->left) return ERR_OK;
  return err_set(
      ERR_WORK,
      "the run does not fit into memory: a rank needs %s with batches of %zu %s, and %s has "
      "%s free; %s",
      str_of_bytes(needs, c->needed), t->state.model->capacity, t->task->kind->capacity_unit,
      t->world.backend.host ? "this machine" : "the GPU", str_of_bytes(left, c->left),
      describe_remedy(remedy, c));
}

Err fit_or_refuse(Trainer *t) {
  FitCheck c;
  return check_or_refuse(t, &c);
}

Err fit_print(Trainer *t) {
  FitCheck c;
  char needs[32], left[32];
  TRY(check_or_refuse(t, &c));
  log_info("memory   fits: each rank needs %s, %s are free", str_of_bytes(needs, c.needed),
           str_of_bytes(left, c.left));
  return ERR_OK;
}
