/* Downloads one URL to one file. Resumes an interrupted download, retries after network errors, and
 * checks size and hash before the file gets its final name. Depends on libcurl, base. */
#ifndef DATA_FETCH_H
#define DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What happened, for callers that choose what to do next. */
typedef struct {
  bool unreachable; /* failed because no server answered: no network, or host down */
  int requests;
  uint64_t resumed; /* bytes that were there before and were kept */
} FetchReport;

typedef struct {
  const char *url;    /* http, https, ftp or file */
  const char *path;   /* the file to write; PATH.part and PATH.part.meta during the download */
  const char *sha256; /* 64 lower-case digits to expect; NULL = unknown */
  uint64_t bytes;     /* size to expect; 0 = unknown */
  const char *title;  /* shown with progress; NULL = the file's own name */
  int tries;          /* attempts in a row that receive nothing new; 0 = 5 */
  double delay; /* seconds before the second attempt, doubled for each further one; 0 = 1 */
  double stall; /* seconds without a byte after which an attempt is abandoned; 0 = 30 */
  FetchReport *report; /* filled when not NULL */
} FetchJob;

/* PATH then holds the whole file, synced, with the size and hash asked for. A
 * file that fails the check is kept as PATH.bad. What an interrupted call left in
 * PATH.part is continued by the next. */
NODISCARD Err fetch_file(const FetchJob *job);

/* Returns whether the text is a URL that fetch accepts. */
bool fetch_is_url(const char *text);
/* Was the program built with libcurl? */
bool fetch_is_built(void);

/* Does the file have this size (0 = any) and hash (NULL = any)? The error names
 * both sides. */
NODISCARD Err fetch_check(const char *path, const char *sha256, uint64_t bytes);

#endif
