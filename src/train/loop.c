/* The training loop: batches, steps, updates, records, validations, checkpoints.
 * Relies on model, data, decode, checkpoint, validate. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "data/batch.h"
#include "train/checkpoint.h"
#include "train/optim.h"
#include "train/train.h"
#include "train/validate.h"

typedef struct {
  const TrainSpec *spec;
  Backend backend;
  DataSet data;
  OrderPlan plan;
  Loader *loader;
  Transformer t;
  Tokenizer tokenizer;
  Validator *validator;
  char tokenizer_path[FILE_PATH_MAX];
  float *w, *g, *m, *v; /* in the backend's memory */
  void *low;            /* w in the backend's type */
  float *kept[3];       /* w, m, v where checkpoints read and write them */
  TrainCounters at;
  double began; /* clock when this process began to count */
  FILE *metrics;
  int lock;
  /* Since the last line of the record. */
  struct {
    double loss, nll, rows, right, norm, data, model, update, start;
    uint64_t steps, tokens, pairs;
  } since;
  double last_loss;
} Train;

static double elapsed(const Train *t) {
  return t->at.seconds + progress_clock() - t->began;
}

/* The run directory. */

static Err lock_run(Train *t) {
  char path[FILE_PATH_MAX];
  bool busy;
  TRY(file_join(path, t->spec->run, "lock"));
  TRY(file_lock(path, &t->lock, &busy));
  if (!busy) return ERR_OK;
  return err_set(ERR_WORK, "%s is in use by another trireme; choose another --run",
                 t->spec->run);
}

static Err enter_run(Train *t, const char *record) {
  const char *run = t->spec->run;
  char path[FILE_PATH_MAX];
  if (file_exists(run) && !t->spec->resume) {
    return err_set(
        ERR_WORK, "%s exists already; continue it with --resume, or choose another --run", run);
  }
  TRY(file_join(path, run, "checkpoints"));
  TRY(file_mkdirs(path));
  TRY(lock_run(t));
  TRY(file_join(path, run, "config"));
  TRY(file_write(path, record, strlen(record)));
  TRY(file_join(path, run, "metrics.jsonl"));
  t->metrics = fopen(path, "a");
  return t->metrics ? ERR_OK : err_errno("cannot open", path);
}

/* Set-up. */

static Err new_arrays(Train *t) {
  const Backend *b = &t->backend;
  size_t n = t->t.params.padded;
  float **list[] = {&t->w, &t->m, &t->v, &t->g};
  for (int i = 0; i < 4; i++) TRY(b->alloc(b, list[i], n * sizeof(float)));
  t->low = t->w;
  if (b->type != TYPE_F32) TRY(b->alloc(b, &t->low, n * type_size(b->type)));
  for (int i = 0; i < 3; i++) {
    t->kept[i] = *list[i];
    if (!b->host) TRY(mem_alloc_aligned(&t->kept[i], n * sizeof(float)));
  }
  return ERR_OK;
}

static TrainArrays arrays(const Train *t) {
  return (TrainArrays){&t->t.config, &t->t.params, t->tokenizer_path,
                       t->kept[0],   t->kept[1],   t->kept[2]};
}

/* From what a checkpoint or the start left to the backend, and the other way. */
static void put_arrays(Train *t) {
  const Backend *b = &t->backend;
  size_t n = t->t.params.padded;
  float *list[] = {t->w, t->m, t->v};
  for (int i = 0; i < 3; i++) b->put(b, list[i], t->kept[i], n * sizeof(float));
  b->lower(b, t->low, t->w, n);
}

static Err get_arrays(Train *t) {
  const Backend *b = &t->backend;
  float *list[] = {t->w, t->m, t->v};
  for (int i = 0; i < 3; i++)
    TRY(b->get(b, t->kept[i], list[i], t->t.params.padded * sizeof(float)));
  return ERR_OK;
}

static ModelConfig config_for(const Train *t) {
  ModelConfig c = t->spec->config;
  const Meta *m = &t->data.meta;
  c.vocab = m->vocab, c.bos = m->bos, c.eos = m->eos, c.pad = m->pad;
  c.longest = (int)m->max_tokens + 1;
  return c;
}

static Err set_up(Train *t, const char *record) {
  const TrainSpec *s = t->spec;
  TRY(backend_open(&t->backend, &s->backend));
  TRY(dataset_open(&t->data, s->data));
  TRY(order_plan(&t->plan, &t->data.order, s->batch_tokens));
  TRY(dataset_path(&t->data, "tokenizer.model", t->tokenizer_path));
  TRY(tokenizer_open(&t->tokenizer, t->tokenizer_path));
  ModelConfig config = config_for(t);
  TRY(transformer_new(&t->t, &config, &t->backend, t->plan.capacity, 0, true));
  TRY(new_arrays(t));
  TRY(enter_run(t, record));
  char path[FILE_PATH_MAX];
  TRY(file_join(path, s->run, "checkpoints/latest"));
  if (file_exists(path)) {
    TrainArrays a = arrays(t);
    TRY(checkpoint_load(s->run, &a, &t->at));
    log_info("resume: step %" PRIu64 ", best BLEU so far %.2f", t->at.step, t->at.best_bleu);
  } else {
    params_init(&t->t.params, &config, s->seed, t->kept[0]);
  }
  put_arrays(t);
  if (s->valid_every)
    TRY(validator_new(&t->validator, &t->data, &t->t, (Weights){t->w, t->low}, &t->tokenizer,
                      &s->beam));
  LoaderSpec loader = {.seed = s->seed,
                       .step = t->at.step,
                       .group = s->micro_batches,
                       .begin = 0,
                       .end = s->micro_batches};
  return loader_open(&t->loader, &t->data, &t->plan, &loader);
}

static void say_header(const Train *t) {
  const TrainSpec *s = t->spec;
  const ModelConfig *c = &t->t.config;
  char parameters[32], pairs[32], memory[32], batches[32];
  double bytes = (double)t->t.arena_bytes + 16 * (double)t->t.params.padded;
  log_info("model    %s-norm Transformer, d %d, ff %d, %d+%d layers, %d heads, %s parameters",
           c->pre_norm ? "pre" : "post", c->d, c->ff, c->layers[0], c->layers[1], c->heads,
           str_of_count(parameters, t->t.params.total));
  log_info("data     %s: %s pairs, %s to %s, vocabulary %d", t->data.dir,
           str_of_count(pairs, t->data.order.pairs), t->data.meta.lang[0], t->data.meta.lang[1],
           c->vocab);
  log_info("batches  %u x %u rows a step, %s micro-batches an epoch, %.1f %% full",
           s->micro_batches, t->plan.capacity, str_of_count(batches, t->plan.batches),
           100 * t->plan.fill);
  log_info("machine  %s; memory planned %s", t->backend.about,
           str_of_bytes(memory, (uint64_t)bytes));
}

/* One step. */

static Err accumulate(Train *t, double *rows) {
  const TrainSpec *s = t->spec;
  size_t n = t->t.params.padded;
  t->backend.zero(&t->backend, t->g, n * sizeof(float));
  *rows = 0;
  for (uint32_t i = 0; i < s->micro_batches; i++) {
    const Batch *batch;
    BatchLoss loss;
    double start = progress_clock();
    TRY(loader_next(t->loader, &batch));
    double got = progress_clock();
    StepKey key = {rng_mix(rng_mix(s->seed, t->at.step), i), true};
    transformer_step(&t->t, (Weights){t->w, t->low}, t->g, batch, key, s->smoothing, 1, NULL,
                     NULL);
    TRY(transformer_loss(&t->t, &loss));
    t->since.data += got - start;
    t->since.model += progress_clock() - got;
    t->since.loss += loss.loss, t->since.nll += loss.nll, t->since.right += loss.right;
    t->since.rows += (double)loss.rows;
    t->since.tokens += loss.rows;
    t->since.pairs += batch->sentences;
    t->at.pairs += batch->sentences;
    *rows += (double)loss.rows;
    t->last_loss = loss.loss / (double)loss.rows;
  }
  return ERR_OK;
}

static Err update(Train *t, double rows, double lr) {
  const TrainSpec *s = t->spec;
  const Backend *b = &t->backend;
  double start = progress_clock();
  double norm = sqrt(optim_norm2(b, t->g, t->t.params.padded)) / rows;
  if (!isfinite(norm)) {
    return err_set(ERR_WORK,
                   "step %" PRIu64
                   ": the gradient is not finite; lower --lr or lengthen --warmup, and "
                   "continue with --resume",
                   t->at.step);
  }
  double scale = s->clip > 0 && norm > (double)s->clip ? (double)s->clip / norm : 1;
  double now = (double)(t->at.step + 1);
  AdamStep adam = {.lr = (float)lr,
                   .beta1 = s->beta1,
                   .beta2 = s->beta2,
                   .epsilon = s->epsilon,
                   .decay = s->decay};
  adam.scale = (float)(scale / rows);
  adam.correction1 = (float)(1 - pow((double)s->beta1, now));
  adam.correction2 = (float)(1 - pow((double)s->beta2, now));
  b->adam(b, t->w, t->m, t->v, t->g, t->t.params.padded, &adam);
  b->lower(b, t->low, t->w, t->t.params.padded);
  t->since.update += progress_clock() - start;
  t->since.norm = norm;
  return ERR_OK;
}

/* Records. */

static void record(Train *t, json_t *line) {
  json_object_set_new(line, "step", json_integer((json_int_t)t->at.step));
  json_object_set_new(line, "seconds", json_real(elapsed(t)));
  json_dumpf(line, t->metrics, JSON_COMPACT | JSON_REAL_PRECISION(7));
  fputc('\n', t->metrics);
  fflush(t->metrics);
  json_decref(line);
}

static void log_step(Train *t, double lr) {
  double took = progress_clock() - t->since.start, n = (double)t->since.steps;
  double rate = (double)t->since.tokens / took;
  char left[32], time[32];
  double steps_left = (double)(t->spec->steps - t->at.step);
  double remaining = steps_left * took / n;
  if (t->spec->seconds > 0 && t->spec->seconds - elapsed(t) < remaining)
    remaining = t->spec->seconds - elapsed(t);
  if (!log_is_quiet()) {
    fprintf(stderr,
            "%sstep %" PRIu64
            "  loss %.4f  lr %.3g  norm %.2f  %.0f tokens/s  %.0f pairs/s  %s  %s left%s",
            log_is_terminal() ? "\r\033[K" : "", t->at.step, t->since.loss / t->since.rows, lr,
            t->since.norm, rate, (double)t->since.pairs / took,
            str_of_seconds(time, elapsed(t)), str_of_seconds(left, remaining),
            log_is_terminal() ? "" : "\n");
    fflush(stderr);
  }
  record(t, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "loss",
                      t->since.loss / t->since.rows, "nll", t->since.nll / t->since.rows,
                      "accuracy", t->since.right / t->since.rows, "lr", lr, "grad_norm",
                      t->since.norm, "target_tokens_per_s", rate, "pairs_per_s",
                      (double)t->since.pairs / took, "data_wait_ms", 1e3 * t->since.data / n,
                      "model_ms", 1e3 * t->since.model / n, "update_ms",
                      1e3 * t->since.update / n));
  memset(&t->since, 0, sizeof t->since);
  t->since.start = progress_clock();
}

static Err save(Train *t, bool best) {
  TrainCounters now = t->at;
  TrainArrays a = arrays(t);
  now.seconds = elapsed(t);
  TRY(get_arrays(t));
  Err err = checkpoint_save(t->spec->run, &a, &now, best);
  if (!err) err = checkpoint_prune(t->spec->run, t->spec->keep);
  if (err)
    log_warn("the checkpoint of step %" PRIu64 " was not saved, training goes on: %s",
             t->at.step, err_message());
  return ERR_OK;
}

static Err validate(Train *t) {
  Validation v;
  if (log_is_terminal() && !log_is_quiet()) fputc('\n', stderr);
  TRY(validator_run(t->validator, t->spec->samples, &v));
  bool best = t->at.best_step == 0 || v.bleu > t->at.best_bleu;
  if (best)
    t->at.best_bleu = v.bleu, t->at.best_step = t->at.step, t->at.worse = 0;
  else
    t->at.worse++;
  log_info("valid    step %" PRIu64 "  loss %.4f  BLEU %.2f%s  (%.1fs)", t->at.step, v.nll,
           v.bleu, best ? ", the best so far" : "", v.seconds);
  record(t, json_pack("{s:f, s:f, s:f}", "valid_nll", v.nll, "valid_bleu", v.bleu,
                      "valid_seconds", v.seconds));
  TRY(save(t, best));
  t->since.start = progress_clock(); /* its time is not the steps' */
  return ERR_OK;
}

static Err loop(Train *t, TrainResult *r) {
  const TrainSpec *s = t->spec;
  t->since.start = t->began = progress_clock();
  while (t->at.step < s->steps && !r->early) {
    r->stopped = stop_asked();
    if (r->stopped || (s->seconds > 0 && elapsed(t) >= s->seconds)) break;
    double rows, lr = schedule_lr(&s->schedule, t->at.step);
    TRY(accumulate(t, &rows));
    TRY(update(t, rows, lr));
    t->at.step++;
    t->at.target_tokens += (uint64_t)rows;
    t->since.steps++;
    if (t->at.step % s->log_every == 0) log_step(t, lr);
    bool last = t->at.step == s->steps;
    if (t->validator && (t->at.step % s->valid_every == 0 || last)) {
      TRY(validate(t));
      r->early = s->patience > 0 && t->at.worse >= s->patience;
    } else if (t->at.step % s->save_every == 0 || last) {
      TRY(save(t, false));
    }
  }
  /* Stopped between validations: nothing is lost. */
  if (r->stopped) return save(t, false);
  if (t->validator && t->at.step % s->valid_every != 0 && t->at.step < s->steps && !r->early)
    return validate(t);
  return ERR_OK;
}

static void tear_down(Train *t) {
  loader_close(t->loader);
  validator_free(t->validator);
  transformer_free(&t->t);
  tokenizer_close(&t->tokenizer);
  order_plan_free(&t->plan);
  dataset_close(&t->data);
  const Backend *b = &t->backend;
  for (int i = 0; i < 3 && b->name && !b->host; i++) mem_free(t->kept[i]);
  float *list[] = {t->w, t->g, t->m, t->v};
  if (t->low != t->w) b->release(b, t->low);
  for (int i = 0; i < 4; i++) {
    if (list[i]) b->release(b, list[i]);
  }
  backend_close(&t->backend);
  if (t->metrics) fclose(t->metrics);
  if (t->lock >= 0) close(t->lock);
}

Err train_run(const TrainSpec *spec, const char *options, TrainResult *r) {
  Train *t;
  *r = (TrainResult){0};
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->spec = spec;
  t->lock = -1;
  stop_watch();
  Err err = set_up(t, options);
  if (!err) {
    say_header(t);
    err = loop(t, r);
    r->step = t->at.step, r->target_tokens = t->at.target_tokens;
    r->best_bleu = t->at.best_bleu, r->best_step = t->at.best_step;
    r->loss = t->last_loss, r->seconds = elapsed(t);
    if (log_is_terminal() && !log_is_quiet()) fputc('\n', stderr);
  }
  stop_unwatch();
  tear_down(t);
  mem_free(t);
  return err;
}
