/* Imports MarianMT models: configuration, weights, and the files of the tokenizer. Depends on marian,
 * store, format/tensors, text/tokenizer. */
#include "model/hf_import.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "format/tensors.h"
#include "model/marian.h"
#include "model/store.h"
#include "model/transformer.h"
#include "text/tokenizer.h"

/* Positions that differ by less are those of POSITION_MARIAN: fp16 has errors of 5e-4. */
#define POSITION_TOLERANCE 1e-3f

/* A model that is being imported. */
typedef struct {
  const char *from;
  TensorSource source;
  TransformerConfig config;
  TransformerParams at;
  Params params;
  float *w;
  size_t used; /* number of tensors that were read */
} Import;

/* Checks that a tensor exists and has this shape: (rows, cols), (rows) if cols is 1, or (1, rows). */
static Err find_tensor(const Import *m, const char *name, size_t rows, size_t cols,
                       const TensorEntry **entry) {
  const TensorEntry *e = tensors_find(&m->source, name);
  if (!e)
    return err_set(ERR_WORK, "%s: the weights lack the tensor '%s'; copy the model again",
                   m->from, name);
  bool is_row = cols == 1 && e->dimensions == 2 && e->shape[0] == 1 && e->shape[1] == rows;
  bool fits = e->dimensions == (cols > 1 ? 2 : 1) && e->shape[0] == rows &&
              (cols == 1 || e->shape[1] == cols);
  if (!fits && !is_row)
    return err_set(ERR_WORK,
                   "%s: tensor '%s' has %d dimensions (%llu, %llu), while config.json requires "
                   "(%zu, %zu); use the config.json of this model",
                   e->path, name, e->dimensions,
                   (unsigned long long)(e->dimensions > 0 ? e->shape[0] : 0),
                   (unsigned long long)(e->dimensions > 1 ? e->shape[1] : 1), rows, cols);
  *entry = e;
  return ERR_OK;
}

/* The tied embedding is stored under one of several names. */
static const char *name_embedding(const Import *m, const char *name) {
  if (strcmp(name, MARIAN_EMBEDDING) != 0) return name;
  for (const char *const *other = marian_tied; !tensors_find(&m->source, name) && *other;
       other++) {
    if (tensors_find(&m->source, *other)) name = *other;
  }
  return name;
}

static Err read_tensor(void *context, const char *name, size_t offset, size_t rows,
                       size_t cols) {
  Import *m = context;
  const TensorEntry *e;
  name = name_embedding(m, name);
  if (strcmp(name, MARIAN_OUTPUT_BIAS) == 0 && !tensors_find(&m->source, name))
    return ERR_OK; /* it is zero */
  TRY(find_tensor(m, name, rows, cols, &e));
  TRY(tensors_read(&m->source, e, m->w + offset, rows * cols));
  for (size_t i = 0; i < rows * cols; i++) {
    if (isfinite(m->w[offset + i])) continue;
    return err_set(ERR_WORK, "%s: number %zu of '%s' is not finite; copy the model again",
                   e->path, i, name);
  }
  m->used++;
  return ERR_OK;
}

/* Reads the positions of encoder (0) or decoder (1), (max_positions, d), and says whether they are
 * those of POSITION_MARIAN; `expected` has these. A file without positions has the latter. */
static Err read_positions(const Import *m, int stack, const float *expected, float *out,
                          bool *differ) {
  size_t rows = (size_t)m->config.max_positions, cols = (size_t)m->config.d_model;
  const TensorEntry *e;
  memcpy(out, expected, rows * cols * sizeof *out);
  if (!tensors_find(&m->source, marian_positions[stack])) return ERR_OK;
  TRY(find_tensor(m, marian_positions[stack], rows, cols, &e));
  TRY(tensors_read(&m->source, e, out, rows * cols));
  for (size_t i = 0; i < rows * cols; i++)
    *differ = *differ || !(fabsf(out[i] - expected[i]) <= POSITION_TOLERANCE);
  return ERR_OK;
}

/* Reads both tables of positions into `table` (2, max_positions, d). If they are not Marian's, the
 * model gets them as learned positions. */
static Err select_positions(Import *m, float *table) {
  size_t n = (size_t)m->config.max_positions * (size_t)m->config.d_model;
  float *expected;
  bool differ = false;
  TRY(mem_alloc(&expected, n, sizeof *expected));
  transformer_fill_positions(&m->config, expected);
  Err err = read_positions(m, 0, expected, table, &differ);
  if (!err) err = read_positions(m, 1, expected, table + n, &differ);
  if (differ) m->config.positions = POSITION_LEARNED;
  mem_free(expected);
  return err;
}

static Err read_weights(Import *m, const float *table) {
  size_t n = (size_t)m->config.max_positions * (size_t)m->config.d_model;
  TRY(transformer_lay_out(&m->at, &m->params, &m->config));
  TRY(mem_alloc_aligned(&m->w, m->params.padded * sizeof *m->w));
  TRY(marian_visit(&m->config, &m->at, read_tensor, m));
  if (m->config.positions != POSITION_LEARNED) return ERR_OK;
  memcpy(m->w + m->at.source_positions, table, n * sizeof *table);
  memcpy(m->w + m->at.target_positions, table + n, n * sizeof *table);
  return ERR_OK;
}

/* Refuses a file with tensors that the model does not use: it is of another form. */
static Err check_unused(const Import *m) {
  size_t known = m->used;
  for (int i = 0; i < 2; i++) known += tensors_find(&m->source, marian_positions[i]) != NULL;
  for (const char *const *name = marian_tied; *name; name++)
    known += tensors_find(&m->source, *name) != NULL;
  if (!tensors_find(&m->source, MARIAN_EMBEDDING)) known--; /* a tied name was read instead */
  if (known == m->source.entries) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: the weights have %zu tensors, of which a MarianMT model with this "
                 "config.json uses %zu; only that form can be imported",
                 m->from, m->source.entries, known);
}

static Err check_tokenizer(const Import *m) {
  Tokenizer t;
  TRY(tokenizer_open_pair(&t, m->from));
  int vocab = t.vocab, eos = t.eos;
  tokenizer_close(&t);
  if (vocab <= m->config.vocab && eos == m->config.eos) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: vocab.json has ids up to %d and </s> is %d, while config.json has a "
                 "vocabulary of %d and </s> is %d; use files of the same model",
                 m->from, vocab - 1, eos, m->config.vocab, m->config.eos);
}

static Err read_model(Import *m) {
  HfConfig hf;
  float *table = NULL;
  TRY(hf_open(&hf, m->from));
  const char *type = hf_text(&hf, "model_type", "(none)");
  Err err;
  if (strcmp(type, "marian") != 0)
    TRY_DONE(err_set(
        ERR_WORK, "%s: \"model_type\" is '%s'; this version imports marian (MarianMT, Opus-MT)",
        hf.path, type));
  TRY_DONE(marian_read_config(&m->config, &hf));
  TRY_DONE(check_tokenizer(m));
  TRY_DONE(tensors_open(&m->source, m->from));
  size_t n = (size_t)m->config.max_positions * (size_t)m->config.d_model;
  TRY_DONE(mem_alloc(&table, 2 * n, sizeof *table));
  TRY_DONE(select_positions(m, table));
  TRY_DONE(read_weights(m, table));
  err = check_unused(m);
done:
  mem_free(table);
  hf_close(&hf);
  return err;
}

static Err write_model(const Import *m, const char *dir) {
  static const char *const files[] = {"source.spm", "target.spm", "vocab.json"};
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  StoreSums sums = {.known = true};
  ModelConfig config = transformer_model_config(&m->config);
  TRY(file_mkdirs(dir));
  for (size_t i = 0; i < 3; i++) {
    FileSum sum;
    TRY(file_join(from, m->from, files[i]));
    TRY(file_join(to, dir, files[i]));
    TRY(place_copy(from, to));
    TRY(filesum_file(to, &sum));
    store_add_file(&sums, files[i], sum);
  }
  TRY(file_join(to, dir, "weights.safetensors"));
  TRY(store_save_summed(&m->params, m->w, to, &sums.weights));
  return store_save_config(&config, &sums, dir);
}

/* Writes OUT.partial and renames it, so that OUT is always complete. */
static Err write_directory(const Import *m, const char *out) {
  char partial[FILE_PATH_MAX];
  int len = snprintf(partial, sizeof partial, "%s.partial", out);
  if (len < 0 || (size_t)len >= sizeof partial)
    return err_set(ERR_USAGE, "--out %s: the path is too long", out);
  if (file_exists(partial)) TRY(file_remove_all(partial));
  TRY(write_model(m, partial));
  return file_rename(partial, out);
}

Err hf_import(const char *from, const char *out, HfImported *imported) {
  Import m = {.from = from};
  if (file_exists(out))
    return err_set(ERR_USAGE, "--out %s exists; pass the path of a new directory", out);
  Err err = read_model(&m);
  if (!err) err = write_directory(&m, out);
  imported->config = transformer_model_config(&m.config);
  imported->parameters = m.params.total;
  mem_free(m.w);
  params_free(&m.params);
  transformer_params_free(&m.at);
  tensors_close(&m.source);
  return err;
}
