/* Reads and writes TensorBoard's event files (events.out.tfevents.*): a sequence of TFRecords,
 * each of which holds one message Event of TensorFlow's event.proto. A record is
 *   8 bytes  length of the message, little-endian
 *   4 bytes  masked CRC-32C of these 8 bytes
 *   message
 *   4 bytes  masked CRC-32C of the message
 * The messages are encoded field by field (protobuf.h), in the order of the numbers of the fields
 * and without default values, so the bytes equal those of TensorBoard's own writer. Depends on
 * base. */
#ifndef FORMAT_TFEVENTS_H
#define FORMAT_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Returns the CRC-32C (Castagnoli) of `len` bytes, continuing from `crc` (0 at the beginning). */
uint32_t tfevents_crc32c(uint32_t crc, const void *bytes, size_t len);
/* Returns the masked CRC-32C that a record contains: rotated and with a constant added, because
 * the CRC of bytes that contain their own CRC is a constant. */
uint32_t tfevents_masked_crc(const void *bytes, size_t len);

/* Writer. Each function appends to `out` complete records; check the Str at the end
 * (str_check). `time`: seconds since 1970. */

/* The first record of every file: the version of the format and the name of the program. */
void tfevents_add_version(Str *out, double time);
/* A session start. TensorBoard discards what earlier records have for `step` and later steps.
 * (Exception: the first session start of a run discards nothing.) */
void tfevents_add_start(Str *out, double time, uint64_t step);

/* A record with values of one step: tfevents_begin, any number of values, tfevents_end. */
typedef struct {
  Str *out;
  size_t record, summary; /* positions in `out` at which the two begin */
} TfSummary;
TfSummary tfevents_begin(Str *out, double time, uint64_t step);
void tfevents_end(const TfSummary *s);

void tfevents_add_scalar(const TfSummary *s, const char *tag, float value);
/* A table of strings (rows, columns) for the text dashboard, which renders each cell as
 * Markdown. `cells`: rows * columns strings in UTF-8, one after another, each ends with NUL. */
void tfevents_add_table(const TfSummary *s, const char *tag, const char *cells, size_t rows,
                        size_t columns);

/* bucket[i]: number of values that are above limit[i-1] (for i = 0: at least `min`) and at most
 * limit[i]. */
typedef struct {
  double min, max, count, sum, square_sum;
  size_t buckets;
  const double *limit, *bucket;
} TfHistogram;
void tfevents_add_histogram(const TfSummary *s, const char *tag, const TfHistogram *h);

/* The hyperparameters of a run, for the HParams dashboard. `options`: lines "name = value"; a
 * value that is a number is stored as a number, others as text. `time`: start of the run. */
#define TFEVENTS_HPARAMS_TAG "_hparams_/session_start_info"
void tfevents_add_hparams(const TfSummary *s, const char *options, double time);

/* Reader. */

typedef struct {
  double time;
  int64_t step;
  bool is_start;          /* a session start */
  const uint8_t *summary; /* values, for tfevents_next_value; NULL: none */
  size_t summary_len;
  uint64_t offset; /* offset of the record in the file */
} TfEvent;

typedef enum { TF_SCALAR, TF_HISTOGRAM, TF_TENSOR, TF_OTHER } TfKind;

/* A value of an event. Its pointers are valid until the visitor returns. */
typedef struct {
  const char *tag; /* `tag_len` bytes, not NUL-terminated */
  size_t tag_len;
  TfKind kind;
  float scalar;         /* valid for TF_SCALAR */
  const uint8_t *bytes; /* TF_HISTOGRAM, TF_TENSOR: the message, `len` bytes */
  size_t len;
} TfValue;

typedef Err (*TfVisit)(void *context, const TfEvent *event);
/* Calls `visit` for each event of the file. An incomplete record at the end, which a killed
 * process leaves, ends the file without an error. Fails if a checksum or a message is wrong; the
 * error contains file and offset. An error of `visit` ends the reading and is returned. */
NODISCARD Err tfevents_read(const char *path, TfVisit visit, void *context);
/* Reads the next value of a summary; *at begins with 0. Returns false after the last one. */
bool tfevents_next_value(const TfEvent *event, size_t *at, TfValue *value);

#endif
