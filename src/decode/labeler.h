/* Applies a classifier to texts: encodes them, runs the model in packed batches and passes the outputs
 * on in the order of the texts. An output does not depend on the batch. Depends on model/classifier,
 * lines.h. */
#ifndef DECODE_LABELER_H
#define DECODE_LABELER_H

#include "decode/lines.h"
#include "model/classifier.h"

/* Between the two texts of a pair in a Line. It is no byte of UTF-8, so texts cannot contain it; they may
 * contain NUL. */
#define LABELER_PAIR '\xff'

/* Called with the outputs of text i: `output` (labels) has probabilities (softmax, sigmoid) or values
 * (square). */
typedef Err (*LabelerTake)(void *context, size_t i, const double *output);

typedef struct Labeler Labeler;
/* Creates a labeler; the classifier must outlive it. batch_tokens: maximum tokens of a batch; 0: a
 * default for the backend. It is raised to the longest text of the model. */
NODISCARD Err labeler_new(Labeler **labeler, const Classifier *classifier, size_t batch_tokens);
void labeler_free(Labeler *l);
/* Returns the maximum tokens of a batch. */
size_t labeler_capacity(const Labeler *l);
/* Sets a function that is called before each batch; NULL: none. */
void labeler_on_step(Labeler *l, LineStep step, void *context);
/* Classifies n texts and calls `take` in their order. `cut` receives the texts that were longer than the
 * model's maximum; `before` is the number of texts before these. A text without a word is classified
 * as the empty text. */
NODISCARD Err labeler_run(Labeler *l, uint64_t before, const Line *line, size_t n,
                          LabelerTake take, void *context, LineCut *cut);

#endif
