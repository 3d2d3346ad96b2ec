/* What a run takes of memory, and how many rows a batch may have to fit. Relies on
 * trainer.h. */
#include "train/fit.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/agree.h"

#define ROWS_UNIT 256u
#define MOST_ROWS 65536u
#define MOST_HERE 8192u /* rows of the CPU: more make nothing faster */
#define EPOCH     64    /* batches it has at least: of fewer, each is much like the others */
/* What a device's libraries take when they are first used, and timing of products. */
#define LIBRARIES ((uint64_t)512 << 20)

/* Memory. */

static void add(FitPlan *f, const char *name, uint64_t bytes, bool here) {
  if (!bytes) return;
  f->share[f->shares++] = (FitShare){name, bytes, here};
  *(here ? &f->here : &f->there) += bytes;
}

/* The most columns of a product that may be made in fp8. */
static uint64_t widest_fp8(const ModelShape *shape) {
  uint64_t most = shape->gemm_widths[0];
  for (size_t i = 1; i < sizeof shape->gemm_widths / sizeof *shape->gemm_widths; i++) {
    uint64_t width = shape->gemm_widths[i];
    if (width > most && width <= FP8_MAX_DIM) most = width;
  }
  return most;
}

/* `m` is planned for `rows` rows. */
static Err plan_shares(const Trainer *t, const Model *m, uint64_t rows, FitPlan *f) {
  const TrainSpec *s = t->spec;
  const Backend *b = &t->world.backend;
  uint64_t n = m->params.padded * sizeof(float), search = 0;
  uint64_t units = norm_units(m->params.padded); /* of its norm */
  uint64_t low = b->type == TYPE_F32 ? 0 : m->params.padded * type_size(b->type);
  uint64_t copies = s->ema > 0 ? 2 : 1;
  ModelShape shape = m->config.family->shape(&m->config);
  uint64_t d = shape.d_model;
  uint64_t moments =
      (uint64_t)optim_has_moment(&s->optim, 1) + (uint64_t)optim_has_moment(&s->optim, 2);
  ReduceBytes reduce = world_reduce_bytes(&t->world, s, t->micro_batches, n);
  if (t->task->valid_examples && t->task->kind->score_bytes)
    TRY(t->task->kind->score_bytes(t->task, m, rows, &search));
  *f = (FitPlan){0};
  add(f, "weights", copies * (n + low), b->host);
  add(f, "gradients", n + units * sizeof(double) + sizeof(StepNumbers), b->host);
  add(f, "optimizer state", world_shard_bytes(&t->world, s, moments * n), b->host);
  add(f, "activations", m->arena_bytes, b->host);
  add(f, "validation", search, b->host);
  if (!b->host)
    add(f, "GEMM workspace and libraries", LIBRARIES + (2 * rows + shape.vocab) * d * 4, false);
  if (b->fp8) add(f, "fp8 operands", (rows + d) * (widest_fp8(&shape) + 8), false);
  add(f, "all-reduce", reduce.device, false);
  add(f, "all-reduce", reduce.host, true);
  if (world_is_writer(&t->world))
    add(f, "snapshot for checkpoints", (copies + moments) * n, true);
  return ERR_OK;
}

Err fit_plan(const Trainer *t, FitPlan *f) {
  return plan_shares(t, t->state.model, t->state.model->capacity, f);
}

/* Bytes where the backend's memory is. */
static uint64_t needed(const FitPlan *f, bool host) {
  return host ? f->here : f->there;
}

static Err bytes_of_rows(const Trainer *t, const ModelConfig *c, uint32_t rows,
                         uint64_t *bytes) {
  Model *m;
  FitPlan f;
  ModelSpec spec = {
      .config = c, .backend = &t->world.backend, .capacity = rows, .training = true};
  TRY(model_plan(&m, &spec));
  Err err = plan_shares(t, m, rows, &f);
  *bytes = needed(&f, t->world.backend.host);
  model_free(m);
  return err;
}

/* The largest multiple of the unit, up to `most`, that fits; 0 if none does. */
static Err largest(const Trainer *t, const ModelConfig *c, uint64_t bytes, uint32_t most,
                   uint32_t *rows) {
  uint32_t low = 0, high = most / ROWS_UNIT; /* low fits, above high nothing does */
  while (low < high) {
    uint32_t middle = high - (high - low) / 2;
    uint64_t takes;
    TRY(bytes_of_rows(t, c, middle * ROWS_UNIT, &takes));
    if (takes <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  *rows = low * ROWS_UNIT;
  return ERR_OK;
}

static uint32_t round_up(uint64_t rows) {
  return (uint32_t)((rows + ROWS_UNIT - 1) / ROWS_UNIT) * ROWS_UNIT;
}

/* The most rows that make sense: of a small data set a few batches would be all. */
static uint32_t most_rows(const Trainer *t, uint32_t least) {
  uint64_t of_data = t->task->tokens / EPOCH / ROWS_UNIT * ROWS_UNIT;
  uint64_t most = t->world.backend.host ? MOST_HERE : MOST_ROWS;
  if (of_data < most) most = of_data;
  return most > least ? (uint32_t)most : least;
}

static Err choose_rows(Trainer *t, const ModelConfig *c, uint32_t *rows) {
  uint64_t bytes;
  uint32_t least = round_up(c->family->shape(c).max_tokens), most = most_rows(t, least);
  char text[32];
  TRY(world_free_memory(&t->world, &bytes));
  if (t->world.backend.host) bytes /= 2; /* others want to live here too */
  TRY(largest(t, c, bytes, most, rows));
  TRY(world_least(&t->world, "rows of a batch", rows));
  if (*rows < least)
    return err_set(
        ERR_WORK,
        "a batch of %u tokens a side, which the longest sentence needs, does not fit into "
        "the %s that a rank may have here; take a smaller model, or prepare the "
        "data with a smaller --max-tokens",
        least, str_of_bytes(text, bytes));
  log_info("batches  --batch-tokens auto is %u tokens: %s", *rows,
           *rows < most ? "as many as fit into the memory"
           : *rows >= MOST_ROWS || (t->world.backend.host && *rows >= MOST_HERE)
               ? "more make nothing faster"
               : "more would leave few batches in an epoch");
  return ERR_OK;
}

Err fit_rows(Trainer *t, const ModelConfig *c, uint32_t *rows) {
  char path[FILE_PATH_MAX];
  uint64_t saved = 0;
  *rows = t->spec->batch_tokens;
  if (*rows) return ERR_OK;
  if (world_is_writer(&t->world)) saved = t->run.at.batch_tokens;
  if (world_is_writer(&t->world) && t->spec->resume && !saved) {
    TRY(file_join(path, t->spec->run, "config"));
    if (file_exists(path)) TRY(agree_saved(path, "batch-tokens", &saved));
  }
  comm_broadcast(t->world.comm, "rows of a batch", &saved, sizeof saved);
  *rows = (uint32_t)saved;
  return saved ? ERR_OK : choose_rows(t, c, rows);
}

Err fit_check(Trainer *t, FitCheck *check) {
  FitPlan f;
  const ModelConfig *c = &t->state.model->config;
  TRY(fit_plan(t, &f));
  TRY(world_free_memory(&t->world, &check->left));
  /* Nobody takes memory before all have looked. */
  comm_sum(t->world.comm, "memory", &(double){0}, 1);
  check->needed = needed(&f, t->world.backend.host);
  check->rows = (uint32_t)t->state.model->capacity;
  if (check->needed <= check->left) return ERR_OK;
  TRY(largest(t, c, check->left, check->rows, &check->rows));
  if (check->rows < c->family->shape(c).max_tokens) check->rows = 0;
  return ERR_OK;
}

/* What would fit, in words. */
static const char *remedy(char out[96], const FitCheck *c) {
  if (c->rows)
    snprintf(out, 96, "pass --batch-tokens %u, or auto", c->rows);
  else
    snprintf(out, 96, "no batch size fits: use a smaller model");
  return out;
}

Err fit_or_refuse(Trainer *t) {
  FitCheck c;
  char needs[32], left[32], words[96];
  TRY(fit_check(t, &c));
  if (c.needed <= c.left) return ERR_OK;
  return err_set(ERR_WORK,
                 "the run does not fit into memory: it needs %s with batches of %zu tokens a "
                 "side, and %s has %s "
                 "free; %s",
                 str_of_bytes(needs, c.needed), t->state.model->capacity,
                 t->world.backend.host ? "this machine" : "the GPU", str_of_bytes(left, c.left),
                 remedy(words, &c));
}

Err fit_say(Trainer *t) {
  FitCheck c;
  char needs[32], left[32], words[96];
  TRY(fit_check(t, &c));
  if (c.needed <= c.left)
    log_info("memory   fits: each rank needs %s, %s are free", str_of_bytes(needs, c.needed),
             str_of_bytes(left, c.left));
  else
    return err_set(
        ERR_WORK, "the run does not fit into memory: a rank needs %s, %s are free; %s",
        str_of_bytes(needs, c.needed), str_of_bytes(left, c.left), remedy(words, &c));
  return ERR_OK;
}
