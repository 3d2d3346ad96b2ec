/* Writes model.bin of CTranslate2. Depends on base/file. */
#include "format/ct2.h"

#include <string.h>

#define BINARY_VERSION 6

static Err put_u32(FileWriter *w, uint32_t value) {
  uint8_t bytes[4];
  for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> 8 * i);
  return file_put(w, bytes, sizeof bytes);
}

/* Writes a length of two bytes, which includes the NUL, and the text with its NUL. */
static Err put_text(FileWriter *w, const char *text) {
  size_t len = strlen(text) + 1;
  uint8_t bytes[2] = {(uint8_t)len, (uint8_t)(len >> 8)};
  TRY(file_put(w, bytes, sizeof bytes));
  return file_put(w, text, len);
}

Err ct2_begin(FileWriter *w, const char *architecture, uint32_t revision, uint32_t variables) {
  TRY(put_u32(w, BINARY_VERSION));
  TRY(put_text(w, architecture));
  TRY(put_u32(w, revision));
  return put_u32(w, variables);
}

uint64_t ct2_bytes(const Ct2Entry *e) {
  uint64_t bytes = e->type == CT2_FLOAT32 ? 4 : e->type == CT2_INT16 ? 2 : 1;
  for (int i = 0; i < e->dimensions; i++) bytes *= e->shape[i];
  return bytes;
}

Err ct2_put_entry(FileWriter *w, const Ct2Entry *e) {
  uint64_t bytes = ct2_bytes(e);
  if (bytes > UINT32_MAX)
    return err_set(ERR_WORK,
                   "cannot write %s: '%s' has %llu bytes, and a variable of CTranslate2 has at "
                   "most 4294967295; export a model with a smaller vocabulary",
                   w->path, e->name, (unsigned long long)bytes);
  uint8_t dimensions = (uint8_t)e->dimensions, type = (uint8_t)e->type;
  TRY(put_text(w, e->name));
  TRY(file_put(w, &dimensions, 1));
  for (int i = 0; i < e->dimensions; i++) TRY(put_u32(w, e->shape[i]));
  TRY(file_put(w, &type, 1));
  return put_u32(w, (uint32_t)bytes);
}

Err ct2_put_aliases(FileWriter *w, const char *const *names, uint32_t count) {
  TRY(put_u32(w, count));
  for (uint32_t i = 0; i < 2 * count; i++) TRY(put_text(w, names[i]));
  return ERR_OK;
}
