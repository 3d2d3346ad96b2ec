/* Downloads one URL to one file. Continues an interrupted download, retries after network errors,
 * and checks size and hash before the file receives its final name. Depends on libcurl, base. */
#ifndef DATA_FETCH_H
#define DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Result of a download, for callers that decide how to continue. */
typedef struct {
  /* The download failed because no server answered (no network, or host down). */
  bool unreachable;
  int requests;
  uint64_t resumed; /* bytes that an earlier call downloaded and that were kept */
} FetchReport;

typedef struct {
  const char *url;    /* http, https, ftp or file URL */
  const char *path;   /* file to write; during the download PATH.part and PATH.part.meta */
  const char *sha256; /* expected SHA-256, 64 lower-case digits; NULL: unknown */
  uint64_t bytes;     /* expected size in bytes; 0: unknown */
  const char *title;  /* title of the progress display; NULL: the name of the file */
  /* maximum number of consecutive attempts that receive no new bytes; 0: 5 */
  int tries;
  double delay; /* seconds before the second attempt, doubled for each further one; 0: 1 */
  double stall; /* seconds without a byte after which an attempt is abandoned; 0: 30 */
  FetchReport *report; /* receives the result, if not NULL */
} FetchJob;

/* Downloads the file. On success PATH is the complete file, synced, with the expected size and
 * hash. A file with another size or hash is kept as PATH.bad. The next call continues the
 * PATH.part of an interrupted call. */
NODISCARD Err fetch_file(const FetchJob *job);

/* Returns true if the text is a URL that fetch_file accepts. */
bool fetch_is_url(const char *text);
/* Returns true if the program was built with libcurl. */
bool fetch_is_built(void);

/* Fails unless the file has this size (0: any) and hash (NULL: any). The error contains the
 * actual and the expected values. */
NODISCARD Err fetch_check(const char *path, const char *sha256, uint64_t bytes);

#endif
