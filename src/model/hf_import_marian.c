/* Imports MarianMT models: configuration, weights, and the files of the tokenizer. Depends on
 * hf_import_internal.h, marian, text/tokenizer. */
#include "model/marian.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/hf_import_internal.h"
#include "model/transformer.h"
#include "text/tokenizer.h"

/* Positions that differ by less are those of POSITION_MARIAN: fp16 has errors of 5e-4. */
#define POSITION_TOLERANCE 1e-3f

typedef struct {
  HfImport *in;
  TransformerConfig config;
  TransformerParams at;
} Marian;

/* The tied embedding is stored under one of several names. */
static const char *name_embedding(const Marian *m, const char *name) {
  if (strcmp(name, MARIAN_EMBEDDING) != 0) return name;
  for (const char *const *other = marian_tied; !tensors_find(&m->in->source, name) && *other;
       other++) {
    if (tensors_find(&m->in->source, *other)) name = *other;
  }
  return name;
}

static Err read_tensor(void *context, const char *name, size_t offset, size_t rows,
                       size_t cols) {
  Marian *m = context;
  name = name_embedding(m, name);
  if (strcmp(name, MARIAN_OUTPUT_BIAS) == 0 && !tensors_find(&m->in->source, name))
    return ERR_OK; /* it is zero */
  return hf_read_tensor(m->in, name, offset, rows, cols);
}

/* Reads the positions of encoder (0) or decoder (1), (max_positions, d), and says whether they are
 * those of POSITION_MARIAN; `expected` has these. A file without positions has the latter. */
static Err read_positions(const Marian *m, int stack, const float *expected, float *out,
                          bool *differ) {
  size_t rows = (size_t)m->config.max_positions, cols = (size_t)m->config.d_model;
  const TensorEntry *e;
  memcpy(out, expected, rows * cols * sizeof *out);
  if (!tensors_find(&m->in->source, marian_positions[stack])) return ERR_OK;
  TRY(hf_find_tensor(m->in, marian_positions[stack], rows, cols, &e));
  TRY(tensors_read(&m->in->source, e, out, rows * cols));
  for (size_t i = 0; i < rows * cols; i++)
    *differ = *differ || !(fabsf(out[i] - expected[i]) <= POSITION_TOLERANCE);
  return ERR_OK;
}

/* Reads both tables of positions into `table` (2, max_positions, d). If they are not Marian's, the
 * model gets them as learned positions. */
static Err select_positions(Marian *m, float *table) {
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

static Err read_weights(Marian *m, const float *table) {
  size_t n = (size_t)m->config.max_positions * (size_t)m->config.d_model;
  TRY(transformer_lay_out(&m->at, &m->in->params, &m->config));
  TRY(mem_alloc_aligned(&m->in->w, m->in->params.padded * sizeof *m->in->w));
  TRY(marian_visit(&m->config, &m->at, read_tensor, m));
  if (m->config.positions != POSITION_LEARNED) return ERR_OK;
  memcpy(m->in->w + m->at.source_positions, table, n * sizeof *table);
  memcpy(m->in->w + m->at.target_positions, table + n, n * sizeof *table);
  return ERR_OK;
}

/* Refuses a file with tensors that the model does not use: it is of another form. */
static Err check_unused(const Marian *m) {
  size_t known = 0;
  for (size_t i = 0; i < m->in->source.entries; i++) known += m->in->is_used[i];
  for (int i = 0; i < 2; i++)
    known += tensors_find(&m->in->source, marian_positions[i]) != NULL;
  for (const char *const *name = marian_tied; *name; name++)
    known += tensors_find(&m->in->source, *name) != NULL;
  if (!tensors_find(&m->in->source, MARIAN_EMBEDDING))
    known--; /* a tied name was read instead */
  if (known == m->in->source.entries) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: the weights have %zu tensors, of which a MarianMT model with this "
                 "config.json uses %zu; only that form can be imported",
                 m->in->from, m->in->source.entries, known);
}

static Err check_tokenizer(const Marian *m) {
  Tokenizer t;
  TRY(tokenizer_open_pair(&t, m->in->from));
  int vocab = t.vocab, eos = t.eos;
  tokenizer_close(&t);
  if (vocab <= m->config.vocab && eos == m->config.eos) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: vocab.json has ids up to %d and </s> is %d, while config.json has a "
                 "vocabulary of %d and </s> is %d; use files of the same model",
                 m->in->from, vocab - 1, eos, m->config.vocab, m->config.eos);
}

static Err read_marian(Marian *m, const HfConfig *hf) {
  float *table = NULL;
  TRY(marian_read_config(&m->config, hf));
  TRY(check_tokenizer(m));
  TRY(hf_open_tensors(m->in));
  size_t n = (size_t)m->config.max_positions * (size_t)m->config.d_model;
  TRY(mem_alloc(&table, 2 * n, sizeof *table));
  Err err = select_positions(m, table);
  if (!err) err = read_weights(m, table);
  if (!err) err = check_unused(m);
  mem_free(table);
  return err;
}

Err hf_import_marian(HfImport *in, const HfConfig *hf) {
  Marian m = {.in = in};
  hf_add_file(in, "source.spm", /*is_copied=*/true);
  hf_add_file(in, "target.spm", /*is_copied=*/true);
  hf_add_file(in, "vocab.json", /*is_copied=*/true);
  Err err = read_marian(&m, hf);
  in->config = transformer_model_config(&m.config);
  transformer_params_free(&m.at);
  return err;
}
