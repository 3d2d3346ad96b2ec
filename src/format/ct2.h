/* Writes model.bin of CTranslate2 (binary version 6): name and revision of the architecture, the
 * variables with their data, and aliases, which are other names of a variable. Numbers are
 * little-endian. Depends on base/file. */
#ifndef FORMAT_CT2_H
#define FORMAT_CT2_H

#include <stdint.h>

#include "base/file.h"

/* The values are those of the file. */
typedef enum { CT2_FLOAT32 = 0, CT2_INT8 = 1, CT2_INT16 = 2 } Ct2Type;

typedef struct {
  const char *name; /* parts separated by '/': encoder/layer_0/ffn/linear_0/weight */
  Ct2Type type;
  int dimensions; /* 0: a scalar */
  uint32_t shape[2];
} Ct2Entry;

/* Writes the beginning of a file with this number of variables. */
NODISCARD Err ct2_begin(FileWriter *w, const char *architecture, uint32_t revision,
                        uint32_t variables);
/* Returns the number of bytes of the data of a variable. */
uint64_t ct2_bytes(const Ct2Entry *entry);
/* Writes what precedes the data of a variable; file_put with ct2_bytes() bytes must follow. Fails if
 * these are more than 4 GiB, for which the file has no number. */
NODISCARD Err ct2_put_entry(FileWriter *w, const Ct2Entry *entry);
/* Writes the end of the file: alternating aliases and the names of their variables, `count` pairs. */
NODISCARD Err ct2_put_aliases(FileWriter *w, const char *const *names, uint32_t count);

#endif
