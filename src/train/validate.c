/* Validation. Relies on model, decode, metric, data. */
#include "train/validate.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "metric/metric.h"

struct Validator {
  DataSet *data;
  Transformer *t;
  Weights w;
  Translator *translator;
  Backend cpu; /* translates for a device, which cannot yet, */
  float *copy; /* with these weights; NULL where the model is here */
  Batch batch;
  FileMap text[2]; /* valid.src, valid.ref */
  Line *line[2];
  size_t lines;
};

/* Lines of a mapped file; their number must be the data set's. */
static Err split_lines(const FileMap *map, Line *line, size_t lines) {
  const char *at = (const char *)map->bytes, *end = at + map->size;
  for (size_t i = 0; i < lines; i++) {
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!newline)
      return err_set(ERR_WORK, "%s has fewer than %zu lines; prepare the data set again",
                     map->path, lines);
    line[i] = (Line){at, (size_t)(newline - at)};
    at = newline + 1;
  }
  return ERR_OK;
}

static Err new_translator(Validator *v, const Tokenizer *tokenizer, const BeamSpec *spec) {
  const Backend *b = v->t->backend;
  Weights w = v->w;
  if (!b->host) {
    TRY(backend_cpu(&v->cpu, 0, false));
    TRY(mem_alloc_aligned(&v->copy, v->t->params.padded * sizeof(float)));
    b = &v->cpu, w = (Weights){v->copy, v->copy};
  }
  return translator_new(&v->translator, &v->t->config, b, w, tokenizer, spec, 2048);
}

Err validator_new(Validator **out, DataSet *data, Transformer *t, Weights w,
                  const Tokenizer *tokenizer, const BeamSpec *spec) {
  *out = NULL;
  Validator *v;
  TRY(mem_alloc(&v, 1, sizeof *v));
  v->data = data, v->t = t, v->w = w;
  v->lines = (size_t)data->meta.split[SPLIT_VALID].lines;
  Err err;
  for (int side = 0; side < 2; side++) {
    char path[FILE_PATH_MAX];
    TRY_DONE(dataset_path(data, data->meta.split[SPLIT_VALID].raw[side].name, path));
    TRY_DONE(file_map(&v->text[side], path));
    TRY_DONE(mem_alloc(&v->line[side], v->lines, sizeof *v->line[side]));
    TRY_DONE(split_lines(&v->text[side], v->line[side], v->lines));
  }
  TRY_DONE(batch_new(&v->batch, (uint32_t)t->capacity, (uint32_t)t->capacity / 2 + 1));
  err = new_translator(v, tokenizer, spec);
done:
  if (err)
    validator_free(v);
  else
    *out = v;
  return err;
}

void validator_free(Validator *v) {
  if (!v) return;
  translator_free(v->translator);
  mem_free(v->copy);
  batch_free(&v->batch);
  for (int side = 0; side < 2; side++) {
    mem_free(v->line[side]);
    file_unmap(&v->text[side]);
  }
  mem_free(v);
}

static Err valid_loss(Validator *v, double *nll) {
  double sum = 0;
  uint64_t rows = 0, next = 0;
  while (next < v->data->meta.split[SPLIT_VALID].pairs) {
    TRY(batch_fill_from(&v->batch, v->data, SPLIT_VALID, &next));
    BatchLoss loss;
    transformer_step(v->t, v->w, NULL, &v->batch, (StepKey){0}, 0, 0, NULL, NULL);
    TRY(transformer_loss(v->t, &loss));
    sum += loss.nll;
    rows += loss.rows;
  }
  *nll = rows ? sum / (double)rows : 0;
  return ERR_OK;
}

typedef struct {
  Validator *v;
  Metric *bleu;
  int samples;
} Scoring;

static Err take(void *context, size_t i, int k, const char *text, float score) {
  Scoring *s = context;
  const Line *line[2] = {&s->v->line[0][i], &s->v->line[1][i]};
  (void)k, (void)score;
  if ((int)i < s->samples) {
    log_info("  %.*s\n    -> %s\n    == %.*s", (int)line[0]->len, line[0]->text, text,
             (int)line[1]->len, line[1]->text);
  }
  MetricText reference = {line[1]->text, line[1]->len};
  return metric_add(s->bleu, metric_text(text), &reference, 1);
}

Err validator_run(Validator *v, int samples, Validation *result) {
  double start = progress_clock();
  Scoring s = {.v = v, .samples = samples};
  MetricScore score = {0};
  size_t cut;
  const Backend *b = v->t->backend;
  TRY(valid_loss(v, &result->nll));
  if (v->copy) TRY(b->get(b, v->copy, v->w.full, v->t->params.padded * sizeof(float)));
  TRY(metric_open(&s.bleu, &(MetricConfig){.kind = METRIC_BLEU}));
  Err err = translator_run(v->translator, v->line[0], v->lines, take, &s, &cut);
  if (!err) metric_score(s.bleu, &score);
  metric_close(s.bleu);
  result->bleu = score.score;
  result->seconds = progress_clock() - start;
  return err;
}
