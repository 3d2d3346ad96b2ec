/* Options of prepare that the tasks with texts share (classify, mlm), what they become, and the steps.
 * Depends on prepare_ranks, data/prepare_classify. */
#ifndef CMD_PREPARE_TEXTS_H
#define CMD_PREPARE_TEXTS_H

#include "base/opt.h"
#include "cmd/prepare_ranks.h"
#include "data/prepare_classify.h"

extern const OptSpec prepare_text_options[];
/* Options of prepare that these tasks do not have; ends with NULL. */
extern const char *const prepare_texts_unused[];

/* Copies the words of an option that may be repeated; the caller frees the list. */
NODISCARD Err prepare_texts_list(const OptSet *opts, const char *name, const char ***list,
                                 size_t *count);
/* Fails unless `name`, the value of --option, can be the name of a column: column names are stored in
 * dataset.json, and those of labels in labels.txt. */
NODISCARD Err prepare_texts_check_column(const char *option, const char *name);
/* Sets --out, which is given, the inputs and sizes. */
NODISCARD Err prepare_texts_begin(ClassifySpec *s, const OptSet *opts);
/* Sets shares and tokenizer, after columns and labels are set. */
NODISCARD Err prepare_texts_finish(ClassifySpec *s, const OptSet *opts);

/* Prints the head of the table at the end, with a column for each split: counts of texts and tokens.
 * cut, empty: names of those counts. */
void prepare_texts_print(const Meta *m, const char *cut, const char *empty);

/* A task with texts: what differs between tasks. */
typedef struct {
  Err (*fill)(ClassifySpec *s,
              const OptSet *opts); /* sets the specification from the options */
  void (*print)(const Meta *m);    /* prints the table at the end */
  PrepareCompare compare;          /* calls prepare_texts_compare with this task */
} PrepareTexts;

/* Prepares the data set, as prepare_on_ranks calls it. */
NODISCARD Err prepare_texts_set(OptSet *opts, const PrepareTexts *task, Comm *comm,
                                Ranks *ranks);
NODISCARD Err prepare_texts_compare(OptSet *opts, const PrepareTexts *task, Str *differences);

#endif
