/* Functions common to all model families: planning, allocation, sums of losses. Depends on
 * model.h. */
#include "model/model.h"

#include <string.h>

#include "base/mem.h"
#include "data/batch.h"

Err model_plan_into(Model *m, const ModelSpec *spec) {
  const ModelFamily *family = spec->config->family;
  Arena arena = {.type = spec->backend->type};
  memset((void *)m, 0, family->bytes);
  m->family = family;
  m->config = *spec->config;
  m->backend = spec->backend;
  m->capacity = spec->capacity;
  m->training = spec->training;
  Err err = family->plan(m, spec);
  if (err) {
    model_release(m);
    return err;
  }
  family->lay_out_memory(m, &arena);
  m->arena_bytes = arena.bytes;
  return ERR_OK;
}

Err model_plan(Model **out, const ModelSpec *spec) {
  Model *m;
  *out = NULL;
  TRY(mem_alloc(&m, 1, spec->config->family->bytes));
  Err err = model_plan_into(m, spec);
  if (err)
    mem_free(m);
  else
    *out = m;
  return err;
}

Err model_reserve(const ModelConfig *config, const Backend *b) {
  ModelShape shape = config->family->shape(config);
  /* On a device batch_pad rounds the tokens up to BATCH_UNIT, and the padding forms one more
   * sentence. */
  if (!b->host && shape.max_tokens < BATCH_UNIT) shape.max_tokens = BATCH_UNIT;
  return b->reserve(b, shape.max_tokens, shape.head_dim);
}

Err model_allocate(Model *m) {
  const Backend *b = m->backend;
  TRY(model_reserve(&m->config, b));
  TRY(b->alloc(b, &m->arena, m->arena_bytes));
  m->family->lay_out_memory(m, &(Arena){.at = m->arena, .type = b->type});
  return m->family->initialize ? m->family->initialize(m) : ERR_OK;
}

Err model_new(Model **out, const ModelSpec *spec) {
  TRY(model_plan(out, spec));
  Err err = model_allocate(*out);
  if (!err) return ERR_OK;
  model_free(*out);
  *out = NULL;
  return err;
}

void model_release(Model *m) {
  if (!m->family) return;
  size_t bytes = m->family->bytes;
  if (m->family->release) m->family->release(m);
  if (m->arena) m->backend->release(m->backend, m->arena);
  params_free(&m->params);
  memset((void *)m, 0, bytes);
}

void model_free(Model *m) {
  if (!m) return;
  model_release(m);
  mem_free(m);
}

void model_load(Model *m, const void *batch, StepKey key) {
  m->loads++;
  m->dropout = key.dropout;
  m->first = key.first;
  m->family->load(m, batch, key);
}

void model_run(Model *m, Weights w, float *g, const ModelPass *pass) {
  m->family->run(m, w, g, pass);
}

Err model_loss(Model *m, ModelLoss *loss) {
  const Backend *b = m->backend;
  TRY(b->get(b, loss->sum, m->sums, sizeof loss->sum));
  b->zero(b, m->sums, sizeof loss->sum);
  loss->predictions = m->predictions;
  m->predictions = 0;
  return ERR_OK;
}

void model_announce(const void *model, GradReady ready, void *context) {
  const Model *m = model;
  m->family->announce(m, ready, context);
}
