/* The machine that reads a pickle: values, a stack and a memo. Used by pickle.c, which interprets
 * the result, and by tests. Depends on base, safetensors. */
#ifndef FORMAT_PICKLE_MACHINE_H
#define FORMAT_PICKLE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/safetensors.h"

typedef enum {
  PICKLE_NONE,
  PICKLE_BOOL,   /* number: 0 or 1 */
  PICKLE_INT,    /* number */
  PICKLE_OTHER,  /* a value that state dicts have but nothing reads: floats, long integers */
  PICKLE_TEXT,   /* text, len */
  PICKLE_TUPLE,  /* item, count */
  PICKLE_LIST,   /* item, count */
  PICKLE_DICT,   /* item, count: keys and values alternate */
  PICKLE_GLOBAL, /* number: index in the table of globals */
  PICKLE_STORAGE,
  PICKLE_TENSOR,
  PICKLE_MARK,
} PickleKind;

/* A strided view of a storage, in elements. */
typedef struct {
  uint32_t storage; /* number of the PICKLE_STORAGE value */
  int dimensions;
  uint64_t offset, shape[SAFE_DIMENSIONS], stride[SAFE_DIMENSIONS];
} PickleView;

/* Values refer to each other by their numbers in PickleMachine.value. */
typedef struct {
  PickleKind kind;
  SafeType type;    /* of a storage */
  int64_t number;   /* integer; number of elements of a storage */
  const char *text; /* text, or key of a storage; points into the pickle */
  size_t len;
  uint32_t *item;
  size_t count, cap;
  PickleView *view; /* of a tensor */
} PickleValue;

typedef struct {
  const uint8_t *bytes;
  size_t len, at;
  const char *where; /* file name in errors */
  PickleValue *value;
  size_t values, value_cap;
  uint32_t *stack;
  size_t depth, stack_cap;
  uint32_t *memo;
  size_t memos, memo_cap;
} PickleMachine;

/* Runs one pickle up to its STOP. *root receives the number of the result. The caller frees the
 * machine, also after an error. */
NODISCARD Err pickle_run(PickleMachine *m, const uint8_t *bytes, size_t len, const char *where,
                         uint32_t *root);
void pickle_free(PickleMachine *m);
/* Sets the error for bytes that no state dict has. */
Err pickle_damaged(const PickleMachine *m, const char *what);

#endif
