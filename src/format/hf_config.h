/* Reads config.json, and other JSON files, of a directory that Hugging Face transformers wrote. A value
 * of a wrong type is an error; errors name the file, the key and the values that are allowed. The bytes
 * are untrusted. Depends on base, Jansson. */
#ifndef FORMAT_HF_CONFIG_H
#define FORMAT_HF_CONFIG_H

#include <stdbool.h>

#include "base/file.h"
#include "base/str.h"

typedef struct {
  struct json_t *root;
  char path[FILE_PATH_MAX];
} HfConfig;

/* Opens DIR/config.json. */
NODISCARD Err hf_open(HfConfig *hf, const char *dir);
/* Opens DIR/NAME, of at most `limit` bytes. `reals`: numbers are read as reals, because the file may
 * have integers of more than 64 bits. */
NODISCARD Err hf_open_file(HfConfig *hf, const char *dir, const char *name, size_t limit,
                           bool reals);
void hf_close(HfConfig *hf);
/* Reads the text at `key`; `fallback` if the key is missing or null. Valid until hf_close. */
NODISCARD Err hf_text(const HfConfig *hf, const char *key, const char *fallback,
                      const char **text);
/* Read a number in [min, max] or a flag. If the key is missing or null, the value is `fallback`;
 * hf_int fails instead if `fallback` is below `min`. */
NODISCARD Err hf_int(const HfConfig *hf, const char *key, int min, int max, int fallback,
                     int *value);
NODISCARD Err hf_real(const HfConfig *hf, const char *key, double min, double max,
                      double fallback, float *value);
NODISCARD Err hf_flag(const HfConfig *hf, const char *key, bool fallback, bool *value);

/* Sets the number of tokens to which the tokenizer of a directory cuts texts: "model_max_length" of
 * tokenizer_config.json; INT_MAX if there is no such file or limit. */
NODISCARD Err hf_read_max_length(const char *dir, int *length);

/* Reads the class of the model, such as "BertForMaskedLM": the first of "architectures"; NULL if there
 * is none. Valid until hf_close. */
NODISCARD Err hf_architecture(const HfConfig *hf, const char **name);
/* Returns the number of labels of a classifier: those of "id2label", or "num_labels", or 2. */
NODISCARD Err hf_count_labels(const HfConfig *hf, int *labels);
/* Appends the names of the labels in the order of their numbers, one per line. */
NODISCARD Err hf_print_labels(const HfConfig *hf, int labels, Str *out);

#endif
