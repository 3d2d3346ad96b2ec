/* A hash table from texts to consecutive numbers 0, 1, 2 …, in the order in which they were added.
 * Depends on base. */
#ifndef TEXT_STRINGMAP_H
#define TEXT_STRINGMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  size_t at, len; /* position of the text in StringMap.text */
} StringEntry;

/* Zero at first. */
typedef struct {
  char *text; /* all texts, each followed by NUL */
  size_t text_len, text_capacity;
  StringEntry *entry; /* (count) */
  size_t count, capacity;
  uint32_t *slot; /* number + 1; 0: empty */
  size_t slots;   /* a power of two */
} StringMap;

/* Sets *number to the number of `text`; a new text is added. Fails if there are 2^31 texts. */
NODISCARD Err stringmap_add(StringMap *m, const char *text, size_t len, uint32_t *number);
/* Returns the number of `text`, or UINT32_MAX if it was not added. */
uint32_t stringmap_find(const StringMap *m, const char *text, size_t len);
/* Returns the text, which ends with NUL. Valid until the next text is added. */
const char *stringmap_text(const StringMap *m, uint32_t number);
void stringmap_free(StringMap *m);

#endif
