/* The state of a run of prepare --task classify or mlm, which its steps share: prepare_classify.c calls them
 * in order. Depends on text and the rest of data. */
#ifndef DATA_CLASSIFY_WORK_H
#define DATA_CLASSIFY_WORK_H

#include "base/progress.h"
#include "data/manifest.h"
#include "data/prepare_classify.h"
#include "data/prepare_state.h"
#include "data/shard.h"

/* The examples of a split that are being written. */
typedef struct {
  ShardBuilder builder;
  ManifestEntry entry; /* counts of the shard that is being built */
  FileWriter raw;      /* validation and test of labeled texts: the rows as CSV */
} SplitOutput;

typedef struct {
  const ClassifySpec *spec;
  Meta *meta;
  PrepareState state;
  TextLabels labels;
  TextEncoder encoder;
  const char **column; /* (texts + label columns) columns that are read */
  size_t columns;
  /* The training rows, of all files: stratum of each, and the Split that it goes to. */
  uint32_t *stratum;
  uint8_t *part;
  size_t rows, row_capacity;
  bool is_new;        /* OUT.partial has only files of this run */
  uint64_t rows_done; /* with --resume: training rows that are in finished shards */
  SplitOutput output[SPLITS];
  Progress progress;
} ClassifyWork;

/* A row of a table. */
typedef struct {
  Split split;    /* the split whose table this is */
  uint64_t index; /* number of the row in all tables of the split, from 0 */
  const char *path;
  uint64_t line; /* number of its last line in the file */
  const TableField *field;
} ClassifyRow;
typedef Err (*ClassifyTake)(void *context, const ClassifyRow *row);
/* classify_rows.c: reads all tables of a split and passes their rows to `take`. Errors of the table name
 * the file and line. Fails if a signal asks to stop. The first call for a split records the files in meta;
 * later calls fail if a file has changed since. */
NODISCARD Err classify_read(ClassifyWork *w, Split split, ClassifyTake take, void *context);
/* classify_rows.c: returns the bytes of all tables, for the progress. Fails if one is not a regular
 * file. */
NODISCARD Err classify_input_bytes(const ClassifyWork *w, uint64_t *bytes);
/* classify_rows.c: reads the labels of a row into w->labels. Errors name the file and line. */
NODISCARD Err classify_read_labels(ClassifyWork *w, const ClassifyRow *row);

/* classify_survey.c: reads the labels of all tables; decides which training rows go to validation
 * and test. */
NODISCARD Err classify_survey(ClassifyWork *w);
/* classify_survey.c: trains a vocabulary on the texts that remain in training. */
NODISCARD Err classify_train_vocab(ClassifyWork *w, const char *path);
/* classify_encode.c: encodes all tables into shards, together with the other ranks. */
NODISCARD Err classify_encode(ClassifyWork *w);

/* A row that is encoded. */
typedef struct {
  Split split;
  int32_t label;
  uint64_t bytes;          /* of the texts */
  const float *value;      /* (label columns) */
  const TableField *field; /* (columns) set if classify_keeps_row */
  EncodedText *encoded;
} EncodedRow;
/* classify_store.c: returns true if rows of this split are also kept as CSV. */
bool classify_keeps_row(const ClassifyWork *w, Split split);
/* classify_store.c: counts the labels of a row that is in a finished shard. */
void classify_count_labels(ClassifyWork *w, const EncodedRow *row);
/* classify_store.c: begins the shards and CSV files; adds a row; ends them. */
NODISCARD Err classify_begin_store(ClassifyWork *w);
NODISCARD Err classify_store_row(ClassifyWork *w, const EncodedRow *row);
NODISCARD Err classify_finish_store(ClassifyWork *w);

#endif
