/* Lines of raw text to translations: encoded, sorted by length, searched in
 * batches, decoded, given back in order. Relies on beam, text, data/clean. */
#ifndef DECODE_TRANSLATE_H
#define DECODE_TRANSLATE_H

#include "decode/beam.h"

typedef struct {
  const char *text;
  size_t len;
} Line;

/* Translation k of line i, best first (k < nbest); text is "" for an empty line. */
typedef Err (*TranslateTake)(void *context, size_t i, int k, const char *text, float score);

typedef struct Translator Translator;
/* batch_rows: source rows of a batch. */
NODISCARD Err translator_new(Translator **t, const ModelConfig *config, const Backend *backend,
                             Weights w, const Tokenizer *tokenizer, const BeamSpec *spec,
                             size_t batch_rows);
void translator_free(Translator *t);
/* Gives the translations in the order of the lines. `warn` counts lines that were
 * cut because the model has no positions for all of them. */
NODISCARD Err translator_run(Translator *t, const Line *line, size_t n, TranslateTake take,
                             void *context, size_t *cut);

#endif
