/* A model directory: model.json (configuration and checksums), weights.safetensors, and the
 * files that its task also needs, such as tokenizer.model. A checkpoint directory has these
 * files and others. Depends on format, text, model.h. */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include "base/file.h"
#include "base/filesum.h"
#include "model/model.h"
#include "text/tokenizer.h"

#define STORE_FILES      4  /* largest number of files of a task in a model directory */
#define STORE_NAME       64 /* size of a buffer for a file name */
#define STORE_FILE_LIMIT ((size_t)1 << 26) /* largest size of such a file in bytes */

/* A file of the task, before it is copied into the model directory. */
typedef struct {
  /* Name in messages, such as "tokenizer"; `what` and `name` are string literals. */
  const char *what;
  const char *name; /* file name in the model directory, such as "tokenizer.model" */
  char path[FILE_PATH_MAX];
} ModelFile;

/* A file of the task in the model directory. */
typedef struct {
  char name[STORE_NAME];
  FileSum sum;
} StoreFile;

/* Checksums and sizes of a model's other files, as written into model.json. */
typedef struct {
  bool known; /* false for a model.json of version 1, which has no checksums */
  FileSum weights;
  StoreFile file[STORE_FILES]; /* checksums of the task's files, such as tokenizer.model */
  size_t files;
} StoreSums;

/* Returns true if `name` is a file name without a directory and fits into StoreFile.name. */
bool store_is_name(const char *name);
/* Adds a file to the list, which must have room for it. */
void store_add_file(StoreSums *sums, const char *name, FileSum sum);
/* Returns true if model.json lists the file. */
bool store_has_file(const StoreSums *sums, const char *name);
/* Compares DIR/NAME with its checksum in model.json, if checksums are known. Fails also if
 * model.json does not list the file. */
NODISCARD Err store_check_file(const StoreSums *sums, const char *dir, const char *name);

/* Opens the tokenizer of a translation model with `vocab` tokens: tokenizer.model or, if model.json
 * lists vocab.json, a pair of SentencePiece models. Compares the files with their checksums. */
NODISCARD Err store_open_tokenizer(Tokenizer *tokenizer, const StoreSums *sums, int vocab,
                                   const char *dir);

/* Writes model.json. Must be called after the other files are written, whose checksums it
 * contains. */
NODISCARD Err store_save_config(const ModelConfig *config, const StoreSums *sums,
                                const char *dir);
/* Reads model.json. `sums` may be NULL. */
NODISCARD Err store_load_config(ModelConfig *config, StoreSums *sums, const char *dir);
/* Write a flat array (weights or optimizer state) as a safetensors file with the names of the
 * parameters. store_save_summed also returns the checksum of the file. */
NODISCARD Err store_save_array(const Params *p, const float *array, const char *path);
NODISCARD Err store_write_array(const Params *p, const float *array, FileWriter *w);
NODISCARD Err store_save_summed(const Params *p, const float *array, const char *path,
                                FileSum *sum);
/* Reads a flat array. The file must contain every parameter in its shape and no other
 * tensor. */
NODISCARD Err store_load_array(const Params *p, float *array, const char *path);
/* Reads weights for inference into a new array. Checks names and shapes before it allocates
 * memory, compares the checksum if `sums` has one, and fails if a weight is not finite. */
NODISCARD Err store_load_weights(const Params *p, const StoreSums *sums, const char *path,
                                 float **array);

#endif
