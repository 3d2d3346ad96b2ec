/* Writes a model for other programs: Hugging Face transformers, CTranslate2. Depends on store,
 * transformer, bert. */
#ifndef MODEL_EXPORT_H
#define MODEL_EXPORT_H

#include "base/file.h"
#include "base/progress.h"
#include "model/bert.h"
#include "model/store.h"
#include "model/transformer.h"

/* A model that is being exported. */
typedef struct {
  const char *dir; /* its directory */
  StoreSums sums;
  ModelConfig config;
  Params params;
  bool is_translator; /* otherwise it is of the BERT family */
  /* Set for translators only: */
  TransformerConfig translator; /* `config` as a Transformer */
  TransformerParams at;
  Tokenizer tokenizer;
  /* Set for the BERT family only: */
  BertConfig bert;
  BertParams bert_at;
  float *w; /* (params.padded) weights */
} Export;

/* A form in which models are written. */
typedef struct {
  const char *name; /* value of --to */
  /* Fails if the form cannot express the model. Called before the weights are read. */
  Err (*check)(const Export *e);
  /* Writes all files into the directory `dir`, which exists and is empty. */
  Err (*write)(const Export *e, const char *dir);
} ExportForm;

/* Ends with NULL. */
extern const ExportForm *const export_forms[];

/* What was exported, for messages. */
typedef struct {
  ModelConfig config;
  size_t parameters; /* number of weights */
} Exported;

/* Reads the model directory `dir` and writes the directory `out`, which must not exist. `out` appears
 * when it is complete; until then, and after a crash, it is called OUT.partial. */
NODISCARD Err export_model(const ExportForm *form, const char *dir, const char *out,
                           Exported *exported);

/* Returns true if the model directory has a file of this name. */
bool export_has_file(const Export *e, const char *name);
/* Copies the files of the tokenizer of a translator. */
NODISCARD Err export_copy_tokenizer(const Export *e, const char *dir);
/* Writes `count` floats in pieces, after each of which the progress is that of the file. NULL: zeros. */
NODISCARD Err export_put_floats(FileWriter *w, const float *data, size_t count, Progress *p);
/* Writes a JSON text as DIR/NAME, with sorted keys, and frees `root`. NULL: out of memory. */
struct json_t;
NODISCARD Err export_write_json(struct json_t *root, const char *dir, const char *name);
/* Writes the sinusoidal positions, or returns the learned ones, of the source (0) or target (1), (max_positions,
 * d). *memory receives an array to free, or NULL. */
NODISCARD Err export_positions(const Export *e, int stack, const float **positions,
                               float **memory);

#endif
