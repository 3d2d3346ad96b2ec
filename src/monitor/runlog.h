/* Reads what a run has measured, RUN/metrics.jsonl and RUN/system.jsonl (docs/formats.md), while the
 * run goes on or afterwards. The files are untrusted: a line that is not a record is skipped and
 * counted, and lines, names, records and memory are limited. Called by one thread. Depends on base,
 * nameindex, scan.
 *
 *   RunLog log;
 *   TRY(runlog_open(&log, dir));
 *   TRY(runlog_read(&log));                       again later: reads only what was added
 *   const RunColumn *c = runlog_column(&log, "nll");
 *   for (size_t i = 0; c && i < c->points; i++) use(runlog_point(&log, c, i));
 *   runlog_close(&log);
 *
 * Steps that were undone (roll-back, resume) are dropped: the steps of a column strictly increase.
 * `revision` changes whenever points that were there before were dropped or replaced; as long as it
 * stays the same, columns, events and hosts have only grown. Of more names of values, hosts or values of a host than the
 * limits below, the first are read and the others are left out. */
#ifndef MONITOR_RUNLOG_H
#define MONITOR_RUNLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "monitor/nameindex.h"

#define RUNLOG_LINE    ((size_t)256 << 10) /* longest line in bytes; a longer one is damaged */
#define RUNLOG_NAME    64                  /* longest name of a column, with its NUL */
#define RUNLOG_RECORDS ((size_t)1 << 24)   /* most records of metrics.jsonl */
#define RUNLOG_COLUMNS 256                 /* most columns of the metrics, and of a host */
#define RUNLOG_EVENTS  65536               /* most events other than "ranks" */
#define RUNLOG_RANKS   4096 /* most "ranks" events; beyond that, every second one is dropped */
#define RUNLOG_HOSTS   4096 /* most hosts */
/* Most samples in a column of a host. Beyond that, two samples become their mean. */
#define RUNLOG_SAMPLES 65536

#define RUNLOG_LEFT_OUT 1152 /* room for the text of runlog_left_out */

/* A value of metrics.jsonl. `seconds`: training time over all processes of the run. */
typedef struct {
  uint64_t step;
  double seconds;
  double value;
} RunPoint;

/* All values of one name, such as "valid_nll". */
typedef struct {
  char name[RUNLOG_NAME];
  size_t points;
  uint32_t *record; /* private: index of the record of each point */
  double *value;
  size_t record_capacity, value_capacity;
} RunColumn;

/* A record with "event". Its fields are read with runlog_event_*. */
typedef struct {
  uint64_t step;
  double seconds;
  bool is_undone;         /* the run later returned to an earlier step */
  bool undoes_later;      /* the record is a roll-back: later steps were undone */
  char kind[RUNLOG_NAME]; /* "restart", "rollback", "ranks", … */
  char *line;             /* the record, as JSON */
  size_t len;
} RunEvent;

/* Samples of one value of a host. Names of nested values are joined by '/': "memory_used", "cpu"
 * (mean of the cores), "cpu_max" (the busiest core), "net/eth0/sent", "gpu/0/watts". A text in a list,
 * such as a reason for throttling, is a column "gpu/0/throttle/power_cap" with the value 1 at the
 * times at which it was there. */
typedef struct {
  char name[RUNLOG_NAME];
  size_t points;
  double *time; /* seconds since 1970 */
  double *value;
  size_t time_capacity, value_capacity;
  uint32_t stride,
      pending; /* private: samples per point; samples of the point that is not complete */
  double time_sum, value_sum;
} RunSeries;

/* A text of a host, such as "gpu/0/name". */
typedef struct {
  char name[RUNLOG_NAME];
  char text[RUNLOG_NAME];
} RunText;

typedef struct {
  char name[256];
  size_t samples;
  uint32_t cores; /* of the last sample; 0: unknown */
  double first_time, last_time;
  RunSeries *series;
  RunText *texts;
  size_t series_count, text_count;
  size_t series_capacity, text_capacity;
  NameIndex series_index, text_index; /* private */
} RunHost;

struct RunReading;

/* State of one file that is read incrementally. Private. */
typedef struct {
  char *path;
  uint64_t device, inode;
  uint64_t offset;  /* of the first byte that was not processed */
  uint64_t lines;   /* before the offset */
  bool is_skipping; /* within a line that is too long */
  char tail[64];    /* the last bytes before the offset: other bytes there mean another file */
  size_t tail_len;
} RunFile;

typedef struct {
  char *dir;
  bool has_metrics, has_system; /* the file exists */
  size_t records;               /* of measurements; those that were undone are dropped */
  RunColumn *columns;
  size_t column_count;
  RunEvent *events;
  size_t event_count;
  RunHost *hosts;
  size_t host_count;
  uint64_t revision;
  uint64_t damaged_lines; /* lines that were skipped */
  char damage[512];       /* the first of them: file, line, offset, reason */
  /* The first name of values and the first host that were left out because there were RUNLOG_COLUMNS
   * or RUNLOG_HOSTS before, and the first value of a host that had RUNLOG_COLUMNS before; empty: none.
   * See runlog_left_out. */
  char left_out_name[RUNLOG_NAME];
  char left_out_host[256];
  char left_out_series[RUNLOG_NAME], left_out_series_host[256];

  /* Private. */
  RunFile metrics, system;
  uint64_t *step; /* of each record */
  double *seconds;
  char *buffer;
  struct RunReading *readings; /* values of the sample that is being read */
  size_t step_capacity, seconds_capacity, column_capacity, event_capacity, host_capacity;
  size_t ranks_events;
  NameIndex column_index, host_index;
  uint64_t last_event_step; /* latest step of the events that are not undone */
} RunLog;

/* Opens the run in `dir`, which must be a directory; reads nothing yet. After an error nothing has to
 * be closed. */
NODISCARD Err runlog_open(RunLog *log, const char *dir);
/* Reads what was added to both files. A last line without its end is left for the next call. A file
 * that was replaced, or has become shorter, is read again from its beginning; so is one that an
 * earlier call failed to read. A file that does not exist is no error. */
NODISCARD Err runlog_read(RunLog *log);
void runlog_close(RunLog *log);

/* Returns a column of the metrics; NULL if it was never measured. Valid until the next
 * runlog_read. */
const RunColumn *runlog_column(const RunLog *log, const char *name);
RunPoint runlog_point(const RunLog *log, const RunColumn *column, size_t i);
/* Returns the last value of a column. Returns false if there is none. */
bool runlog_last(const RunLog *log, const char *name, RunPoint *point);

/* Describes the values and hosts that were left out, for people: up to three sentences. Returns false, and
 * an empty text, if there are none. */
bool runlog_left_out(const RunLog *log, char *out, size_t room);

/* Returns a column of a host; NULL if it was never measured. */
const RunSeries *runlog_series(const RunHost *host, const char *name);
/* Returns a text of a host, such as "gpu/0/name"; NULL if there is none. */
const char *runlog_text(const RunHost *host, const char *name);

/* Read a field of an event; return false if it is missing. */
bool runlog_event_number(const RunEvent *event, const char *name, double *value);
bool runlog_event_text(const RunEvent *event, const char *name, char *out, size_t room);
/* Reads a list of numbers, at most `most` of them; returns how many. */
size_t runlog_event_numbers(const RunEvent *event, const char *name, double *out, size_t most);
/* Reads item `index` of a list of texts. */
bool runlog_event_item(const RunEvent *event, const char *name, size_t index, char *out,
                       size_t room);

#endif
