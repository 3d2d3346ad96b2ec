/* Validation. Relies on model, decode, metric, data. */
#include "train/validate.h"

#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stop.h"
#include "metric/metric.h"
#include "train/pass.h"

struct Validator {
  DataSet *data;
  const Tokenizer *tokenizer;
  BeamSpec spec;
  Model *model;
  Weights w;
  Translator *translator;
  Batch batch;
  FileMap text[2]; /* valid.src, valid.ref */
  Line *line[2];
  size_t lines;
  Line *mine;            /* those this rank translates */
  size_t *length, mines; /* of them in ids, the longest first; how many */
  size_t longest;
};

#define MOST_ROWS 16384 /* source rows of a batch to translate on a device */
#define MOST_HERE 2048  /* and on the CPU */

#define PROGRESS_PERIOD 15 /* seconds between two lines of progress */

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

/* Line i is rank i's, in turn: the long ones are spread as the short ones are. */
static Err share_out(Validator *v, int rank, int ranks) {
  TRY(mem_alloc(&v->mine, v->lines, sizeof *v->mine));
  TRY(mem_alloc(&v->length, v->lines, sizeof *v->length));
  for (size_t i = (size_t)rank; i < v->lines; i += (size_t)ranks)
    v->mine[v->mines++] = v->line[0][i];
  return translator_lengths(v->tokenizer, v->longest, v->mine, v->mines, v->length);
}

Err validator_new(Validator **out, DataSet *data, const Tokenizer *tokenizer, size_t longest,
                  const BeamSpec *spec, const Comm *comm) {
  *out = NULL;
  Validator *v;
  TRY(mem_alloc(&v, 1, sizeof *v));
  v->data = data, v->tokenizer = tokenizer, v->spec = *spec, v->longest = longest;
  v->lines = (size_t)data->meta.split[SPLIT_VALID].lines;
  Err err;
  for (int side = 0; side < 2; side++) {
    char path[FILE_PATH_MAX];
    TRY_DONE(dataset_path(data, data->meta.split[SPLIT_VALID].raw[side].name, path));
    TRY_DONE(file_map(&v->text[side], path));
    TRY_DONE(mem_alloc(&v->line[side], v->lines, sizeof *v->line[side]));
    TRY_DONE(split_lines(&v->text[side], v->line[side], v->lines));
  }
  err = share_out(v, comm_rank(comm), comm_size(comm));
done:
  if (err)
    validator_free(v);
  else
    *out = v;
  return err;
}

/* Batches no larger than training's: a device has little memory left beside it. */
static TranslateRoom room_of(const Validator *v, const Backend *b, size_t capacity) {
  size_t rows, sentences, most = b->host ? MOST_HERE : MOST_ROWS;
  translator_batch(b, b->host || capacity > most ? most : capacity, v->longest, v->spec.beam,
                   &rows, &sentences);
  return translator_room(&v->spec, v->longest, v->length, v->mines, rows, sentences);
}

Err validator_bytes(const Validator *v, const TransformerConfig *config, const Backend *b,
                    size_t capacity, uint64_t *bytes) {
  TranslateRoom room = room_of(v, b, capacity);
  return beam_bytes(config, b, &v->spec, room.rows, room.sentences, room.words, bytes);
}

Err validator_begin(Validator *v, Model *model, Weights w) {
  TranslateRoom room = room_of(v, model->backend, model->capacity);
  v->model = model;
  v->w = w;
  TRY(batch_new(&v->batch, (uint32_t)model->capacity, (uint32_t)model->capacity / 2 + 1));
  return translator_new_for(&v->translator, transformer_config(&model->config), model->backend,
                            w, v->tokenizer, &v->spec, &room);
}

void validator_free(Validator *v) {
  if (!v) return;
  translator_free(v->translator);
  batch_free(&v->batch);
  mem_free(v->mine);
  mem_free(v->length);
  for (int side = 0; side < 2; side++) {
    mem_free(v->line[side]);
    file_unmap(&v->text[side]);
  }
  mem_free(v);
}

/* Batch k is rank k's, in turn. */
static Err valid_loss(Validator *v, Comm *comm, double *nll) {
  double sum[3] = {0}; /* losses, rows, ranks that were asked to stop */
  uint64_t next = 0;
  int turn = 0;
  while (next < v->data->meta.split[SPLIT_VALID].pairs && !stop_asked()) {
    ModelLoss loss;
    TRY(batch_fill_from(&v->batch, v->data, SPLIT_VALID, &next));
    if (turn++ % comm_size(comm) != comm_rank(comm)) continue;
    comm_at(comm, pass_limit(v->model), "validation, loss");
    model_load(v->model, &v->batch, (StepKey){0});
    model_run(v->model, v->w, NULL, &(ModelPass){0});
    TRY(model_loss(v->model, &loss));
    sum[0] += loss.sum[1];
    sum[1] += (double)loss.predictions;
  }
  sum[2] = stop_asked();
  comm_sum(comm, "validation loss", sum, 3);
  if (sum[2] > 0) return err_set(ERR_STOPPED, "stopped within a validation");
  *nll = sum[1] > 0 ? sum[0] / sum[1] : 0;
  return ERR_OK;
}

typedef struct {
  Str text; /* this rank's translations, a line each */
} Mine;

static Err take(void *context, size_t i, int k, const char *text, float score) {
  Mine *m = context;
  (void)i, (void)k, (void)score;
  size_t begin = m->text.len;
  str_addf(&m->text, "%s\n", text);
  for (size_t c = begin; c + 1 < m->text.len; c++)
    if (m->text.s[c] == '\n') m->text.s[c] = ' '; /* a line each */
  return str_check(&m->text);
}

typedef struct {
  const Validator *validator;
  Comm *comm;
  double start, shown; /* when the validation began; when its progress was last printed */
  double period;       /* seconds between two lines of progress */
} ValidStep;

/* A long validation prints how far rank 0 is; the other ranks have as many sentences. */
static void show_progress(ValidStep *p) {
  double now = progress_clock();
  if (comm_rank(p->comm) != 0 || now - p->shown < p->period) return;
  char done[32], all[32], time[32];
  log_live("valid    %s of %s sentences translated%s, %s so far",
           str_of_count(done, translator_done(p->validator->translator)),
           str_of_count(all, p->validator->mines), comm_size(p->comm) > 1 ? " on rank 0" : "",
           str_of_seconds(time, now - p->start));
  p->shown = now;
}

/* A step of the search: the other ranks see that this one moves. A signal ends it. */
static Err report_step(void *context) {
  ValidStep *p = context;
  show_progress(p);
  comm_at(p->comm, pass_limit(p->validator->model), "validation, translating");
  fault_point("validation");
  return stop_asked() ? err_set(ERR_STOPPED, "stopped within a validation") : ERR_OK;
}

static void show(const Validator *v, size_t i, const char *text, size_t len) {
  log_info("  %.*s", (int)v->line[0][i].len, v->line[0][i].text);
  log_info("    -> %.*s", (int)len, text);
  log_info("    == %.*s", (int)v->line[1][i].len, v->line[1][i].text);
}

/* The lines of all ranks, dealt back into their order. */
static Err score_all(const Validator *v, char **list, int ranks, int samples, double *bleu) {
  Metric *metric;
  MetricScore score = {0};
  TRY(metric_open(&metric, &(MetricConfig){.kind = METRIC_BLEU}));
  Err err = ERR_OK;
  for (size_t i = 0; i < v->lines && !err; i++) {
    char **at = &list[i % (size_t)ranks];
    size_t len = strcspn(*at, "\n");
    MetricText reference = {v->line[1][i].text, v->line[1][i].len};
    if ((int)i < samples) show(v, i, *at, len);
    err = metric_add(metric, (MetricText){*at, len}, &reference, 1);
    *at += len + 1;
  }
  if (!err) metric_score(metric, &score);
  metric_close(metric);
  *bleu = score.score;
  return err;
}

Err validator_run(Validator *v, Comm *comm, int samples, Validation *result) {
  double start = progress_clock();
  Mine mine = {0};
  char **list = NULL;
  size_t cut;
  Err err;
  *result = (Validation){0};
  const Backend *b = v->model->backend; /* a running mean is updated in floats alone */
  b->lower(b, (void *)(uintptr_t)v->w.low, v->w.full, v->model->params.padded);
  TRY_DONE(valid_loss(v, comm, &result->nll));
  log_live_end(); /* the step's line stays above those of the progress */
  ValidStep progress = {v, comm, start, start,
                        (double)fault_number("valid-progress", PROGRESS_PERIOD)};
  translator_on_step(v->translator, report_step, &progress);
  err = translator_run(v->translator, v->mine, v->mines, take, &mine, &cut);
  if (err && err != ERR_STOPPED) goto done;
  double stopped = err == ERR_STOPPED; /* one rank ends the validation of all */
  comm_sum(comm, "validation stopped", &stopped, 1);
  if (stopped > 0) TRY_DONE(err_set(ERR_STOPPED, "stopped within a validation"));
  TRY_DONE(comm_gather_text(comm, "translations", str_text(&mine.text), mine.text.len, &list));
  if (comm_rank(comm) == 0)
    TRY_DONE(score_all(v, list, comm_size(comm), samples, &result->bleu));
  result->seconds = progress_clock() - start;
  comm_broadcast(comm, "validation", result, sizeof *result);
done:
  translator_on_step(v->translator, NULL, NULL);
  mem_free(list);
  str_free(&mine.text);
  return err;
}
