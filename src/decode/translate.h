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
/* batch_rows: source rows of a batch; 0: what suits the backend. The weights may change
 * between runs. */
NODISCARD Err translator_new(Translator **t, const ModelConfig *config, const Backend *backend,
                             Weights w, const Tokenizer *tokenizer, const BeamSpec *spec,
                             size_t batch_rows);
void translator_free(Translator *t);
/* Gives the translations in the order of the lines. `cut` counts the lines that were
 * cut because the model has no positions for all of them. Lines are numbered from 1
 * over all runs; samples follow from the number. */
NODISCARD Err translator_run(Translator *t, const Line *line, size_t n, TranslateTake take,
                             void *context, size_t *cut);
/* Number of the first line of the last run that was cut. */
uint64_t translator_first_cut(const Translator *t);

/* The batches a translator makes: at most so many source rows and sentences. */
void translator_batch(const Backend *backend, size_t batch_rows, size_t longest, int beam,
                      size_t *rows, size_t *sentences);

#endif
