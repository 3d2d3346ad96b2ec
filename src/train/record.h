/* training.json: the counters of a checkpoint, size and CRC-32 of its other files, and a checksum of
 * itself. Depends on counters.h. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include <stddef.h>

#include "base/err.h"
#include "train/counters.h"

typedef enum {
  PART_MODEL,
  PART_TOKENIZER,
  PART_WEIGHTS, /* what translate uses: the moving average of the weights (EMA) if there is one */
  PART_TRAINING, /* with an EMA: the weights that the optimizer updates */
  PART_MOMENT1,  /* optimizer state m */
  PART_MOMENT2,  /* optimizer state v */
  PARTS
} Part;
extern const char *const record_name[PARTS]; /* file names */

typedef struct {
  bool there;
  bool summed; /* false: a checkpoint of an older version, without sizes and checksums */
  uint64_t bytes;
  uint32_t crc;
} PartSum;

typedef struct {
  TrainCounters counters;
  PartSum part[PARTS];
  double *second; /* (seconds) NovoGrad's second moments, one per weight matrix; or NULL */
  size_t seconds; /* their number */
} Record;

NODISCARD Err record_write(const char *dir, const Record *r);
/* Reads DIR/training.json. If it is damaged or missing, sets *whole = false, leaves the reason in
 * err_message(), returns ERR_OK and allocates nothing. */
NODISCARD Err record_read(const char *dir, Record *r, bool *whole);
void record_free(Record *r); /* what record_read allocated */

NODISCARD Err record_sum(const char *path, PartSum *sum);
/* Fails, naming the file, if its size or CRC-32 differs from the record. */
NODISCARD Err record_check(const char *dir, const Record *r, Part part);

#endif
