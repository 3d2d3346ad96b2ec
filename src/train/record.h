/* training.json: the counters of a checkpoint, size and CRC-32 of its other files, and its own
 * checksum. Depends on counters.h, model/store.h. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include <stddef.h>

#include "model/store.h"
#include "train/counters.h"

/* Files of every checkpoint. The task may add others (RecordFile). */
typedef enum {
  PART_MODEL,
  PART_WEIGHTS,  /* weights that translate uses: the moving average (EMA) if there is one */
  PART_TRAINING, /* weights that the optimizer updates; saved only if there is an EMA */
  PART_MOMENT1,  /* optimizer state m */
  PART_MOMENT2,  /* optimizer state v */
  PARTS
} Part;
extern const char *const record_name[PARTS]; /* file name of each part */

typedef struct {
  bool there;
  bool summed; /* false: written by an older version, without sizes and checksums */
  uint64_t bytes;
  uint32_t crc;
} PartSum;

/* A file of the task, such as its tokenizer. */
typedef struct {
  char name[STORE_NAME];
  PartSum sum;
} RecordFile;

typedef struct {
  TrainCounters counters;
  PartSum part[PARTS];
  RecordFile file[STORE_FILES];
  size_t files;
  /* (seconds) NovoGrad's second moments, one per weight; NULL for other optimizers. */
  double *second;
  size_t seconds; /* number of elements of `second` */
} Record;

NODISCARD Err record_write(const char *dir, const Record *r);
/* Reads DIR/training.json. If the file is damaged or missing, sets *whole = false, leaves the
 * reason in err_message(), returns ERR_OK and allocates nothing. */
NODISCARD Err record_read(const char *dir, Record *r, bool *whole);
void record_free(Record *r); /* frees what record_read allocated */

NODISCARD Err record_sum(const char *path, PartSum *sum);
/* Fails if size or CRC-32 of a file differ from the record; the error names the file. */
NODISCARD Err record_check(const char *dir, const Record *r, Part part);
NODISCARD Err record_check_file(const char *dir, const RecordFile *file);
/* Returns the task's file of this name, or NULL. */
const RecordFile *record_find_file(const Record *r, const char *name);

#endif
