/* Copies weights of another model by name and shape. Depends on model/store, format/safetensors. */
#include "train/init_from.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/safetensors.h"
#include "model/bert.h"

typedef struct {
  const ModelConfig *here; /* of the model in training */
  const char *dir;         /* the other model */
  ModelConfig config;
  StoreSums sums;
  SafeFile file;
  const Params *params; /* those of the model in training */
  bool is_silent;       /* after a roll-back: the log has been written before */
  size_t taken;
  Str fresh, unused; /* names of weights that are not taken, here and there */
} InitFrom;

static void add_name(Str *list, const char *name) {
  str_addf(list, "%s%s", list->len ? ", " : "", name);
}

static bool has_shape_of(const SafeTensor *t, const Param *q) {
  return t->dimensions == (q->cols > 1 ? 2 : 1) && t->shape[0] == q->rows &&
         (t->dimensions == 1 || t->shape[1] == q->cols);
}

static void add_shapes(Str *list, const SafeTensor *t, const Param *q) {
  str_addf(list, " (%zu x %zu, there %" PRIu64 " x %" PRIu64 ")", q->rows, q->cols,
           t->dimensions > 0 ? t->shape[0] : 1, t->dimensions > 1 ? t->shape[1] : 1);
}

static Err check_finite(const InitFrom *m, const Param *q, const float *w) {
  for (size_t i = 0; i < q->rows * q->cols; i++) {
    if (isfinite(w[i])) continue;
    return err_set(ERR_WORK,
                   "%s is damaged: number %zu of '%s' is not finite; copy the model again, or "
                   "use another checkpoint",
                   m->file.map.path, i, q->name);
  }
  return ERR_OK;
}

/* Returns true for the learned positions of a model in which row i belongs to another position. */
static bool is_shifted(const InitFrom *m, const Param *q) {
  const BertConfig *here = bert_config(m->here), *there = bert_config(&m->config);
  return here && there && here->position_offset != there->position_offset &&
         strcmp(q->name, "embed.positions") == 0;
}

/* Returns true for the learned positions of a model with another maximum of positions. */
static bool is_other_length(const SafeTensor *t, const Param *q) {
  return strcmp(q->name, "embed.positions") == 0 && t->dimensions == 2 &&
         t->shape[1] == q->cols && t->shape[0] > 0;
}

/* The model may have more positions than its texts need. */
static void warn_of_positions(const InitFrom *m) {
  const BertConfig *here = bert_config(m->here), *there = bert_config(&m->config);
  if (!here || !there || m->is_silent) return;
  size_t needed = bert_max_tokens(here);
  size_t learned = (size_t)(there->max_positions - there->position_offset);
  if (learned >= needed) return;
  log_warn(
      "--init-from %s has %zu positions, and the data set allows texts that need %zu: "
      "positions "
      "%zu to %zu start random; to use learned ones alone, prepare the data set again with "
      "--max-tokens %zu",
      m->dir, learned, needed, learned, needed - 1, learned);
}

/* Copies the positions that both models have. */
static Err take_positions(InitFrom *m, const SafeTensor *t, const Param *q, float *w) {
  size_t rows = t->shape[0] < q->rows ? (size_t)t->shape[0] : q->rows;
  float *all;
  TRY(mem_alloc(&all, (size_t)t->shape[0] * q->cols, sizeof *all));
  Err err = safetensors_read(&m->file, t, all, t->shape[0] * q->cols);
  if (!err) memcpy(w, all, rows * q->cols * sizeof *w);
  mem_free(all);
  TRY(err);
  m->taken++;
  warn_of_positions(m);
  return check_finite(m, q, w);
}

/* Copies one weight, or lists it. */
static Err take_weight(InitFrom *m, const Param *q, float *w) {
  const SafeTensor *t = safetensors_find(&m->file, q->name);
  bool is_usable = t && !is_shifted(m, q);
  if (is_usable && has_shape_of(t, q)) {
    m->taken++;
    TRY(safetensors_read(&m->file, t, w, q->rows * q->cols));
    return check_finite(m, q, w);
  }
  if (is_usable && is_other_length(t, q)) return take_positions(m, t, q, w);
  add_name(&m->fresh, q->name);
  if (t) add_shapes(&m->fresh, t, q);
  return ERR_OK;
}

static bool has_param(const Params *p, const char *name) {
  for (size_t i = 0; i < p->count; i++) {
    if (strcmp(p->param[i].name, name) == 0) return true;
  }
  return false;
}

static Err take_weights(InitFrom *m, float *w) {
  const Params *p = m->params;
  for (size_t i = 0; i < p->count; i++)
    TRY(take_weight(m, &p->param[i], w + p->param[i].offset));
  for (size_t i = 0; i < m->file.tensors; i++) {
    if (!has_param(p, m->file.tensor[i].name)) add_name(&m->unused, m->file.tensor[i].name);
  }
  if (m->taken) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "--init-from %s: no weight has the name and the shape of one of this model; leave "
      "out options that set its sizes, or --init-from",
      m->dir);
}

/* Weights may fit a model that computes something else, for example with other heads. */
static void log_differences(const InitFrom *m, const ModelConfig *here) {
  Str list = {0};
  for (const ConfigField *f = here->family->fields; f->key; f++) {
    char a[64], b[64];
    config_print(f, here, a, sizeof a);
    config_print(f, &m->config, b, sizeof b);
    if (f->may_change || strcmp(a, b) == 0) continue;
    str_addf(&list, "%s%s %s (there %s)", list.len ? ", " : "", f->key, a, b);
  }
  if (list.len) log_info("init     differs: %s", str_text(&list));
  str_free(&list);
}

/* Returns true if weights are taken whose rows belong to the lines of a vocabulary or of labels.txt. */
static bool takes_rows(const InitFrom *m, const char *file) {
  bool is_labels = strcmp(file, "labels.txt") == 0;
  for (size_t i = 0; i < m->params->count; i++) {
    const Param *q = &m->params->param[i];
    bool is_row = is_labels ? str_starts(q->name, "classifier.")
                            : str_starts(q->name, "embed.tokens") ||
                                  str_starts(q->name, "embedding"); /* of a translator */
    const SafeTensor *t = is_row ? safetensors_find(&m->file, q->name) : NULL;
    if (t && has_shape_of(t, q)) return true;
  }
  return false;
}

/* Warns of another vocabulary or other labels: their weights are taken by number if the count is the
 * same. */
static Err compare_files(const InitFrom *m, const Task *task) {
  for (size_t i = 0; i < task->files; i++) {
    for (size_t k = 0; k < m->sums.files; k++) {
      const StoreFile *there = &m->sums.file[k];
      FileSum sum;
      if (!m->sums.known || strcmp(there->name, task->file[i].name) != 0) continue;
      TRY(filesum_file(task->file[i].path, &sum));
      if (sum.crc == there->sum.crc && sum.bytes == there->sum.bytes) continue;
      if (!takes_rows(m, there->name)) continue;
      log_warn(
          "--init-from %s has another %s (%s) than the data set: weights of equal shape "
          "are taken, although they belong to other names",
          m->dir, task->file[i].what, there->name);
    }
  }
  return ERR_OK;
}

/* Verifies the vocabulary and the labels, of which only the numbers in model.json are used. */
static Err check_files(const InitFrom *m) {
  for (size_t i = 0; i < m->sums.files; i++)
    TRY(store_check_file(&m->sums, m->dir, m->sums.file[i].name));
  return ERR_OK;
}

static void log_taken(const InitFrom *m) {
  log_info("init     %zu of %zu weights are those of %s", m->taken, m->params->count, m->dir);
  if (m->fresh.len) log_info("init     initialised: %s", str_text(&m->fresh));
  if (m->unused.len) log_info("init     not used: %s", str_text(&m->unused));
}

static Err open_weights(InitFrom *m) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, m->dir, "weights.safetensors"));
  TRY(safetensors_open(&m->file, path));
  if (!m->sums.known) return ERR_OK;
  return filesum_compare(path, filesum_bytes(m->file.map.bytes, m->file.map.size),
                         m->sums.weights);
}

Err init_from_model(const Trainer *t, float *w) {
  const ModelConfig *here = &t->state.model->config;
  InitFrom m = {.here = here,
                .dir = t->spec->init_from,
                .params = &t->state.model->params,
                .is_silent = t->world.is_warm};
  Err err;
  TRY(store_load_config(&m.config, &m.sums, m.dir));
  if (m.config.family != here->family)
    return err_set(ERR_USAGE, "--init-from %s is a model of family %s, not %s", m.dir,
                   m.config.family->name, here->family->name);
  TRY_DONE(check_files(&m));
  TRY_DONE(open_weights(&m));
  TRY_DONE(take_weights(&m, w));
  TRY_DONE(str_check(&m.fresh));
  TRY_DONE(str_check(&m.unused));
  if (!m.is_silent) {
    log_taken(&m);
    log_differences(&m, here);
    err = compare_files(&m, t->task);
  }
done:
  str_free(&m.fresh);
  str_free(&m.unused);
  safetensors_close(&m.file);
  return err;
}
