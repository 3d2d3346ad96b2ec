/* training.json: the counters of a checkpoint, and size and CRC-32 of every file beside
 * it, under a checksum of its own. Relies on counters.h. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include <stddef.h>

#include "base/err.h"
#include "train/counters.h"

typedef enum {
  PART_MODEL,
  PART_TOKENIZER,
  PART_WEIGHTS,  /* what translate uses: the average where there is one */
  PART_TRAINING, /* then the weights themselves */
  PART_MOMENT1,
  PART_MOMENT2,
  PARTS
} Part;
extern const char *const record_name[PARTS]; /* of the files */

typedef struct {
  bool there;
  bool summed; /* older checkpoints name no sizes and sums */
  uint64_t bytes;
  uint32_t crc;
} PartSum;

typedef struct {
  TrainCounters counters;
  PartSum part[PARTS];
  double *second; /* (seconds) or NULL */
  size_t seconds;
} Record;

NODISCARD Err record_write(const char *dir, const Record *r);
/* Not *whole: the error record says what is damaged, and there is nothing to free. */
NODISCARD Err record_read(const char *dir, Record *r, bool *whole);
void record_free(Record *r); /* of one that was read */

NODISCARD Err record_sum(const char *path, PartSum *sum);
/* Is the file as the record says? The error names it. */
NODISCARD Err record_check(const char *dir, const Record *r, Part part);

#endif
