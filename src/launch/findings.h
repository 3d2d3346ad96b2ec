/* Findings of the checks of machines: one entry for each check and host, with a remedy if
 * something is wrong. Depends on base, Jansson. */
#ifndef LAUNCH_FINDINGS_H
#define LAUNCH_FINDINGS_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

typedef enum {
  FINDING_OK,
  FINDING_WARNING, /* a run works, but is slower or at risk */
  FINDING_PROBLEM, /* with this problem a run fails */
  FINDING_LEVELS
} FindingLevel;

typedef struct {
  FindingLevel level;
  char host[65];  /* name of the host; "": the finding concerns all hosts */
  char check[24]; /* name of the check, such as "memory" */
  char text[512];
  char remedy[512]; /* what the user should do; "" for FINDING_OK */
} Finding;

typedef struct {
  Finding *list;
  size_t count, cap;
  Err err; /* out of memory while an entry was added */
} Findings;

void findings_add(Findings *f, FindingLevel level, const char *host, const char *check,
                  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Sets the remedy of the entry that was added last. */
void findings_remedy(Findings *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t findings_count(const Findings *f, FindingLevel level);
void findings_free(Findings *f);

/* Appends a table with one row for each finding. A check that is OK on all of `hosts` > 1 hosts
 * (the machine that starts the run may be added to them) is one row. Lines are wrapped at `width` columns. */
void findings_print(const Findings *f, size_t hosts, size_t width, Str *out);
json_t *findings_to_json(const Findings *f); /* returns NULL if out of memory */

#endif
