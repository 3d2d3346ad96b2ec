/* What a check of machines found: one entry for each check and host, with a remedy where something
 * is wrong. Printed as a table or as JSON. Depends on base, Jansson. */
#ifndef LAUNCH_FINDINGS_H
#define LAUNCH_FINDINGS_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

typedef enum {
  FINDING_OK,
  FINDING_WARNING, /* a run works, but slower or with a risk */
  FINDING_PROBLEM, /* a run fails */
  FINDING_LEVELS
} FindingLevel;

typedef struct {
  FindingLevel level;
  char host[65];  /* "": it concerns all of them */
  char check[24]; /* "memory" */
  char text[512];
  char remedy[512]; /* "" for FINDING_OK */
} Finding;

typedef struct {
  Finding *list;
  size_t count, cap;
  Err err; /* of the first entry for which there was no memory */
} Findings;

void findings_add(Findings *f, FindingLevel level, const char *host, const char *check,
                  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Sets the remedy of the entry that was added last. */
void findings_remedy(Findings *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t findings_count(const Findings *f, FindingLevel level);
void findings_free(Findings *f);

/* Appends a table, one row for each finding; a check that is OK on all of `hosts` > 1 hosts is one
 * row. Lines are broken at `width` characters. */
void findings_print(const Findings *f, size_t hosts, size_t width, Str *out);
json_t *findings_to_json(const Findings *f); /* NULL: out of memory */

#endif
