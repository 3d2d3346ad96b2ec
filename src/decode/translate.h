/* Lines of raw text to translations: encoded, sorted by length, searched in
 * batches, decoded, given back in order. Relies on beam, text, data/clean. */
#ifndef DECODE_TRANSLATE_H
#define DECODE_TRANSLATE_H

#include "decode/beam.h"

typedef struct {
  const char *text;
  size_t len;
} Line;

/* Translation k of line i, best first, for each k < nbest; of an empty line all are "". */
typedef Err (*TranslateTake)(void *context, size_t i, int k, const char *text, float score);

typedef struct Translator Translator;
/* batch_rows: source rows of a batch; 0: what suits the backend. The weights may change
 * between runs. */
NODISCARD Err translator_new(Translator **t, const TransformerConfig *config,
                             const Backend *backend, Weights w, const Tokenizer *tokenizer,
                             const BeamSpec *spec, size_t batch_rows);
/* The largest batch: source tokens, sentences, and words that all its hypotheses write. */
typedef struct {
  size_t tokens, sentences, words;
} TranslateRoom;
/* The same with all memory taken at once, for batches of at most that. */
NODISCARD Err translator_new_for(Translator **t, const TransformerConfig *config,
                                 const Backend *backend, Weights w, const Tokenizer *tokenizer,
                                 const BeamSpec *spec, const TranslateRoom *room);
void translator_free(Translator *t);
/* Called before each step of a search, see beam_on_step. */
void translator_on_step(Translator *t, BeamStep step, void *context);
/* Gives the translations in the order of the lines. `cut` counts the lines that were
 * cut because the model has no positions for all of them. Lines are numbered from 1
 * over all runs; samples follow from the number. */
NODISCARD Err translator_run(Translator *t, const Line *line, size_t n, TranslateTake take,
                             void *context, size_t *cut);
/* Lines of this run that are translated so far, for whom translator_on_step calls. */
size_t translator_done(const Translator *t);
/* Numbers the lines of the next run from lines + 1 on. */
void translator_count_from(Translator *t, uint64_t lines);
/* Number of the first line of the last run that was cut. */
uint64_t translator_first_cut(const Translator *t);

/* The lengths of the lines in ids, as a model of so many positions takes them, the longest
 * first. */
NODISCARD Err translator_lengths(const Tokenizer *tokenizer, size_t longest, const Line *line,
                                 size_t n, size_t *len);
/* What the batches of lines of these lengths need, with at most so many rows, which are no
 * fewer than `longest`, and sentences; in a room of that size they are the same batches. */
TranslateRoom translator_room(const BeamSpec *spec, size_t longest, const size_t *len, size_t n,
                              size_t rows, size_t sentences);
/* The batches a translator makes: at most so many source rows and sentences. */
void translator_batch(const Backend *backend, size_t batch_rows, size_t longest, int beam,
                      size_t *rows, size_t *sentences);

#endif
