/* Parts of the import that the forms of models share. Depends on store, format. */
#ifndef MODEL_HF_IMPORT_INTERNAL_H
#define MODEL_HF_IMPORT_INTERNAL_H

#include "format/hf_config.h"
#include "format/tensors.h"
#include "model/hf_import.h"
#include "model/store.h"

/* A file of the model directory besides weights and model.json. */
typedef struct {
  const char *name;
  bool is_copied; /* from the file of the same name; false: `text` is written */
  Str text;
} HfFile;

/* A model that is being imported. A reader fills in everything but `from`. */
typedef struct {
  const char *from; /* directory */
  TensorSource source;
  bool *is_used; /* (source.entries) tensors that were read */
  ModelConfig config;
  Params params;
  float *w; /* (params.padded) */
  HfFile file[STORE_FILES];
  size_t files;
} HfImport;

/* Opens the tensors of the model. */
NODISCARD Err hf_open_tensors(HfImport *m);
/* Checks that a tensor exists and has this shape: (rows, cols), (rows) if cols is 1, or
 * (1, rows). */
NODISCARD Err hf_find_tensor(const HfImport *m, const char *name, size_t rows, size_t cols,
                             const TensorEntry **entry);
/* Reads a tensor of this shape to `offset` of the flat array, and marks it as used. */
NODISCARD Err hf_read_tensor(HfImport *m, const char *name, size_t offset, size_t rows,
                             size_t cols);
/* Adds a file that is copied, or an empty one whose text the caller sets. */
HfFile *hf_add_file(HfImport *m, const char *name, bool is_copied);

/* Readers for values of "model_type". */
NODISCARD Err hf_import_marian(HfImport *m, const HfConfig *hf);
NODISCARD Err hf_import_bert(HfImport *m, const HfConfig *hf);

#endif
