/* Reads and writes the log of a Weights & Biases run (run-ID.wandb), which `wandb sync` uploads.
 * The file has the log format of LevelDB with another checksum:
 *   7 bytes  header of the file: ":W&B", 0xbee1 as a little-endian integer, version 0
 *   blocks of 32 KiB; the header belongs to the first one. A block has fragments:
 *     4 bytes  CRC-32 of type and data, little-endian
 *     2 bytes  length of the data, little-endian
 *     1 byte   type: whole record, or first, middle or last fragment of a record
 *     data
 *   If less than 7 bytes are left in a block, they are zero.
 * A record is one message Record of wandb_internal.proto. All values in it are texts in JSON.
 * Depends on base, protobuf. */
#ifndef FORMAT_WANDB_H
#define FORMAT_WANDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "format/protobuf.h"

/* Kinds of records: numbers of the fields of Record. */
typedef enum {
  WANDB_HISTORY = 2, /* values of one step */
  WANDB_SUMMARY = 3, /* the last value of each key */
  WANDB_CONFIG = 5,
  WANDB_STATS = 7, /* measurements of a host */
  WANDB_RUN = 17,
  WANDB_EXIT = 18,
  WANDB_HEADER = 21,
  WANDB_ENVIRONMENT = 26
} WandbType;

/* Writer. Functions append complete records to `out`, which the caller appends to the file. Check
 * out and message at the end (wandb_check). Begin with a zeroed struct. */
typedef struct {
  uint64_t offset; /* size of the file: the position of out in it */
  Str out;
  Str message;    /* the record that is being made */
  size_t body;    /* position of its contents in `message` */
  int item_field; /* number of the field that has its values */
  bool has_step;  /* it is a history record of `step` */
  uint64_t step;
} WandbLog;

NODISCARD Err wandb_check(const WandbLog *log);
void wandb_free(WandbLog *log);

/* The header of the file and the first record. `producer`: name and version of the program. */
void wandb_add_header(WandbLog *log, const char *producer);

typedef struct {
  const char *id;      /* identifies the run on the server */
  const char *project; /* group of runs */
  const char *name;    /* shown to the user */
  const char *host;
  const char *options; /* config: lines "name = value"; a number is stored as a number */
  double start;        /* seconds since 1970 */
} WandbRun;
void wandb_add_run(WandbLog *log, const WandbRun *run);
/* Changes values of the config. */
void wandb_add_config(WandbLog *log, const char *options);

typedef struct {
  const char *id; /* of the run */
  const char *system, *host, *program;
  double start;    /* seconds since 1970 */
  uint64_t cores;  /* logical */
  uint64_t memory; /* bytes */
} WandbEnvironment;
void wandb_add_environment(WandbLog *log, const WandbEnvironment *e);

/* A record with values: one of the functions wandb_begin_…, any number of values, and wandb_end. A
 * history record is begun with its step, a summary with the duration of the run so far in seconds,
 * measurements of a host with their time in seconds since 1970. */
void wandb_begin_history(WandbLog *log, uint64_t step);
void wandb_begin_summary(WandbLog *log, double seconds);
void wandb_begin_stats(WandbLog *log, double time);
/* `json`: a JSON text; NaN, Infinity and -Infinity are allowed. */
void wandb_add_item(WandbLog *log, const char *key, const char *json);
void wandb_add_number(WandbLog *log, const char *key, double value);
void wandb_end(WandbLog *log);
/* The last record of a finished run. */
void wandb_add_exit(WandbLog *log, int code, double seconds);

/* Writes a number in JSON, at most 32 bytes with the NUL. */
#define WANDB_NUMBER 32
void wandb_print_number(char out[WANDB_NUMBER], double value);

/* Reader. */

typedef struct {
  WandbType type;       /* 0: a kind that is unknown here */
  uint64_t offset, end; /* of the record in the file */
  uint64_t step;        /* WANDB_HISTORY */
  double time;          /* WANDB_STATS; WANDB_RUN: its start. Seconds since 1970 */
  ProtoBytes body;      /* contents, for wandb_next_item */
} WandbRecord;

/* A value of a history, summary, config or stats record. Not NUL-terminated; valid until the
 * visitor returns. */
typedef struct {
  const char *key, *json;
  size_t key_len, json_len;
} WandbItem;

typedef Err (*WandbVisit)(void *context, const WandbRecord *record);
/* Calls `visit` for each record. *end: end of the last complete record, where a writer can continue
 * after it has truncated the file; 0 if not even the header of the file is complete. An incomplete
 * record at the end, which a killed process leaves, is no error. Fails if the file is not such a
 * log, or if a record is damaged; the error contains file and offset, and *end is valid. An error of
 * `visit` ends the reading and is returned. */
NODISCARD Err wandb_read(const char *path, WandbVisit visit, void *context, uint64_t *end);
/* Reads the next value. Begin with a copy of record->body in *at; returns false after the last
 * value. */
bool wandb_next_item(const WandbRecord *record, ProtoBytes *at, WandbItem *item);

#endif
