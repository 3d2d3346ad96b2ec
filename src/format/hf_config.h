/* Reads config.json of a directory that Hugging Face transformers wrote. Errors name the file, the
 * key and the values that are allowed. The bytes are untrusted. Depends on base, Jansson. */
#ifndef FORMAT_HF_CONFIG_H
#define FORMAT_HF_CONFIG_H

#include <stdbool.h>

#include "base/file.h"

typedef struct {
  struct json_t *root;
  char path[FILE_PATH_MAX];
} HfConfig;

NODISCARD Err hf_open(HfConfig *hf, const char *dir);
void hf_close(HfConfig *hf);
/* Returns the text at `key`; `fallback` if there is none. Valid until hf_close. */
const char *hf_text(const HfConfig *hf, const char *key, const char *fallback);
/* Read a number in [min, max] or a flag. If the key is missing or null, the value is `fallback`;
 * hf_int fails instead if `fallback` is below `min`. */
NODISCARD Err hf_int(const HfConfig *hf, const char *key, int min, int max, int fallback,
                     int *value);
NODISCARD Err hf_real(const HfConfig *hf, const char *key, double min, double max,
                      double fallback, float *value);
NODISCARD Err hf_flag(const HfConfig *hf, const char *key, bool fallback, bool *value);

#endif
