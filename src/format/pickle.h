/* Reads the pickle of a PyTorch state dict: a dictionary from names to tensors. The machine knows
 * only what such a dictionary needs. It executes nothing: a global (a class or function that the
 * pickle names) is either one of the few in the table of pickle.c, each of which only makes a value
 * of the machine, or the pickle is refused with the name of the global. Memory is bounded by the
 * size of the pickle. Depends on base, safetensors (for the types). */
#ifndef FORMAT_PICKLE_H
#define FORMAT_PICKLE_H

#include <stdint.h>

#include "format/safetensors.h"

#define PICKLE_LIMIT ((uint64_t)64 << 20) /* maximum bytes of a pickle */

/* A tensor of the dictionary: a strided view of a storage. All numbers are in elements; the view
 * lies within the storage. */
typedef struct {
  char *name;
  char *storage; /* key of the storage, a file name without a directory */
  uint64_t storage_elements;
  SafeType type;
  int dimensions;
  uint64_t shape[SAFE_DIMENSIONS], stride[SAFE_DIMENSIONS];
  uint64_t offset;
} PickleTensor;

typedef struct {
  PickleTensor *tensor; /* in the order of the pickle */
  size_t tensors, cap;
} PickleState;

/* Reads a state dict. Entries that are not tensors are ignored. *used receives the number of bytes
 * up to the end of the pickle. `where` is the file name in errors. */
NODISCARD Err pickle_read_state(PickleState *state, const uint8_t *bytes, size_t len,
                                size_t *used, const char *where);
void pickle_free_state(PickleState *state);

/* The two other pickles of files that PyTorch before 1.6 wrote: one to skip, and a list of
 * texts. */
NODISCARD Err pickle_skip(const uint8_t *bytes, size_t len, size_t *used, const char *where);
typedef struct {
  char **text;
  size_t count;
} PickleTexts;
NODISCARD Err pickle_read_texts(PickleTexts *texts, const uint8_t *bytes, size_t len,
                                size_t *used, const char *where);
void pickle_free_texts(PickleTexts *texts);

#endif
