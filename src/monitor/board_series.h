/* The curves of one run, read from a metrics.jsonl that may be growing, in bounded memory.
 *
 * Two ways of reading, so that a file of any size is shown at once and is exact soon after:
 *   sample  the lines at SAMPLE_PLACES places of the file; takes milliseconds
 *   exact   every line, in parts; afterwards only what has been appended
 * A file that was truncated or replaced is read again from its beginning. An incomplete last line
 * waits until its line break has been written. Steps that the run has undone are removed
 * (docs/formats.md). One thread at a time. Depends on board_buckets, board_line. */
#ifndef MONITOR_BOARD_SERIES_H
#define MONITOR_BOARD_SERIES_H

#include <time.h>

#include "base/file.h"
#include "monitor/board_buckets.h"
#include "monitor/board_line.h"

#define SERIES_TAIL   512 /* a record, more or less */
#define SERIES_EVENTS 512 /* the last ones are kept */

/* A line of the file, read again when it is asked for. */
typedef struct {
  uint64_t offset;
  uint32_t len;
} SeriesLine;

/* At `offset` the run has returned to `step`: lines before it with a greater step do not count. */
typedef struct {
  uint64_t offset;
  double step;
} SeriesUndo;

/* The records of one kind. */
typedef struct {
  Buckets buckets;
  /* In the order of the file, with increasing steps: an entry makes earlier ones with the same
   * or a greater step superfluous. */
  SeriesUndo *undo;
  size_t undos, undo_room;
} SeriesKind;

typedef struct {
  SeriesKind kind[LINE_KINDS];
  char tail[SERIES_TAIL]; /* the bytes before the offset: others there mean another file */
  size_t tail_len;
  uint64_t offset;                 /* where the first line begins that was not read */
  uint64_t read_again;             /* bytes that were read once more to undo records */
  SeriesLine event[SERIES_EVENTS]; /* event number i is event[i % SERIES_EVENTS] */
  uint64_t events;
  SeriesLine ranks; /* the last record of the times of each rank; len 0: none */
} SeriesData;

typedef struct {
  char path[FILE_PATH_MAX];
  uint64_t device, inode, size; /* of the file, when it was last looked at */
  struct timespec changed;      /* its ctime: content or attributes were last changed */
  uint64_t generation;          /* increases when the file is read from its beginning */
  SeriesData *sample;           /* shown until all lines were read; then NULL */
  SeriesData *exact;            /* NULL or being read while there is a sample */
  bool is_exact; /* every line of the file that existed at the last refresh was read */
} Series;

/* Returns true if two times of a file are the same one. */
bool series_is_same_time(struct timespec a, struct timespec b);
/* Looks at the file: whether it has grown, was truncated or replaced. Returns false if there is no
 * such file; what was read stays. */
bool series_refresh(Series *s);
/* Reads a sample of the file, if nothing of it was read yet. */
NODISCARD Err series_sample(Series *s);
/* Reads at most `bytes` of lines that were not read yet; sets is_exact after the last. For small
 * files, and for what is appended to a file whose sample is no longer shown. */
NODISCARD Err series_read(Series *s, size_t bytes);
/* The same for a large file, in data that nobody shows yet: needs no lock of the series. Sets
 * *is_end after the last line; then series_publish shows the data instead of the sample, and owns
 * it. */
NODISCARD Err series_read_data(const char *path, SeriesData *d, size_t bytes, bool *is_end);
void series_publish(Series *s, SeriesData *d);
void series_free_data(SeriesData *d); /* Accepts NULL. */
/* Returns what to show, or NULL if nothing was read. */
const SeriesData *series_data(const Series *s);
/* Reads the records of one kind with from <= step <= to again, so that they fill the buckets of
 * `out`. Needs is_exact. Sets *is_read to false if that part of the file is larger than `bytes`. */
NODISCARD Err series_zoom(const Series *s, LineKind kind, double from, double to, size_t bytes,
                          Buckets *out, bool *is_read);
/* Appends the text of a line. Appends nothing if the file no longer has it. */
void series_line(const Series *s, SeriesLine line, Str *out);
void series_free(Series *s); /* Frees the data; the path stays. */

#endif
