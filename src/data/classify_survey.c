/* The first passes over the tables: labels, split, and the sample for a vocabulary. Depends on labels,
 * text_split, sample, text/wordpiece_train. */
#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/classify_work.h"
#include "data/sample.h"
#include "data/text_split.h"
#include "text/wordpiece_train.h"

static Err read_train_labels(void *context, const ClassifyRow *row) {
  ClassifyWork *w = context;
  TRY(classify_read_labels(w, row));
  if (w->rows == UINT32_MAX)
    return err_set(ERR_WORK,
                   "%s:%" PRIu64 ": the training text has more than 4,294,967,295 rows",
                   row->path, row->line);
  TRY(mem_grow(&w->stratum, &w->row_capacity, w->rows + 1, sizeof *w->stratum));
  w->stratum[w->rows++] = w->labels.stratum;
  return ERR_OK;
}

static Err read_other_labels(void *context, const ClassifyRow *row) {
  return classify_read_labels(context, row);
}

static Err split_rows(ClassifyWork *w) {
  TRY(mem_alloc(&w->part, w->rows, 1));
  for (int s = SPLIT_VALID; s < SPLITS; s++) {
    /* The share counts all rows; those that were taken before are no longer there. */
    double rest = s == SPLIT_TEST ? 1 - w->spec->share[SPLIT_VALID] : 1;
    if (w->spec->share[s] > 0)
      TRY(text_split(w->stratum, w->part, w->rows, w->spec->share[s] / rest, w->spec->seed,
                     (Split)s));
  }
  return ERR_OK;
}

/* Fails if --split took no row, because the text is too small. */
static Err check_split(const ClassifyWork *w) {
  size_t rows[SPLITS] = {0};
  for (size_t i = 0; i < w->rows; i++) rows[w->part[i]]++;
  for (int s = SPLIT_VALID; s < SPLITS; s++) {
    if (w->spec->share[s] > 0 && rows[s] == 0)
      return err_set(ERR_WORK,
                     "--split %g of %zu row%s is no %s text; pass a larger share, or more rows",
                     w->spec->share[s], w->rows, str_plural(w->rows),
                     s == SPLIT_VALID ? "validation" : "test");
  }
  return ERR_OK;
}

Err classify_survey(ClassifyWork *w) {
  uint64_t bytes;
  TRY(classify_input_bytes(w, &bytes));
  progress_begin(&w->progress,
                 w->spec->labels.kind == LABEL_NONE ? "read texts" : "read labels", "bytes",
                 bytes);
  TRY(classify_read(w, SPLIT_TRAIN, read_train_labels, w));
  TRY(text_labels_close(&w->labels));
  for (int s = SPLIT_VALID; s < SPLITS; s++)
    TRY(classify_read(w, (Split)s, read_other_labels, w));
  progress_end(&w->progress);
  TRY(split_rows(w));
  return check_split(w);
}

/* ---- vocabulary ---- */

typedef struct {
  const ClassifyWork *work;
  Sample sample;
} Sampling;

static Err sample_row(void *context, const ClassifyRow *row) {
  Sampling *s = context;
  const ClassifyWork *w = s->work;
  const char *text[2] = {"", ""};
  size_t len[2] = {0};
  if (row->index >= w->rows || w->part[row->index] != SPLIT_TRAIN) return ERR_OK;
  for (size_t i = 0; i < w->spec->texts; i++) {
    text[i] = row->field[i].text;
    len[i] = row->field[i].len;
  }
  return sample_add(&s->sample, row->index, text, len);
}

static Err train_on_sample(const ClassifySpec *spec, Sample *sample, const char *path) {
  WordpieceTraining training = {.rules = spec->rules,
                                .vocab_size = spec->vocab_size,
                                .alphabet = WORDPIECE_ALPHABET,
                                .min_count = WORDPIECE_MIN_COUNT};
  char texts[32], wanted[32], got[32];
  size_t size;
  sample_sort(sample);
  log_info("learn: a WordPiece vocabulary of %s pieces from %s text%s",
           str_of_count(wanted, spec->vocab_size), str_of_count(texts, sample->size),
           str_plural(sample->size));
  ProgressWait wait;
  progress_wait_begin(&wait, "learn");
  Err err = wordpiece_train(&training, sample_line, sample, path, &size);
  progress_wait_end(&wait);
  if (!err && size < spec->vocab_size)
    log_warn(
        "the text has only %s pieces that occur at least twice; the vocabulary has no more",
        str_of_count(got, size));
  return err;
}

Err classify_train_vocab(ClassifyWork *w, const char *path) {
  Sampling s = {.work = w};
  uint64_t bytes;
  TRY(classify_input_bytes(w, &bytes));
  sample_begin(&s.sample, w->spec->seed, (size_t)w->spec->sample);
  progress_begin(&w->progress, "sample", "bytes", bytes);
  Err err = classify_read(w, SPLIT_TRAIN, sample_row, &s);
  if (!err) progress_end(&w->progress);
  if (!err) err = train_on_sample(w->spec, &s.sample, path);
  sample_free(&s.sample);
  return err;
}
