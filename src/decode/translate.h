/* Translates lines of raw text: tokenizes them, sorts them by length, searches in batches,
 * detokenizes, and returns the results in the order of the lines. Depends on beam, text,
 * data/clean. */
#ifndef DECODE_TRANSLATE_H
#define DECODE_TRANSLATE_H

#include "decode/beam.h"
#include "decode/lines.h"

typedef struct Translator Translator;
/* Creates a translator. batch_rows: maximum source tokens in a batch; 0: a default for the
 * backend. The weights may change between calls of translator_run. */
NODISCARD Err translator_new(Translator **t, const TransformerConfig *config,
                             const Backend *backend, Weights w, const Tokenizer *tokenizer,
                             const BeamSpec *spec, size_t batch_rows);
/* The size of the largest batch: source tokens, sentences, and tokens of all its hypotheses
 * together. */
typedef struct {
  size_t tokens, sentences, words;
} TranslateRoom;
/* Like translator_new, but allocates all memory immediately, for batches of at most `room`. */
NODISCARD Err translator_new_for(Translator **t, const TransformerConfig *config,
                                 const Backend *backend, Weights w, const Tokenizer *tokenizer,
                                 const BeamSpec *spec, const TranslateRoom *room);
void translator_free(Translator *t);
/* Sets a function that is called before each step of a search (see beam_on_step). */
void translator_on_step(Translator *t, BeamStep step, void *context);
/* Translates n lines and calls `take` in their order with each translation k < nbest, best first.
 * All translations of an empty line are "". *cut receives the number of lines that were
 * truncated because they exceed the model's positions. Lines are numbered from 1 over all calls;
 * the number is part of the random key of a sample. */
NODISCARD Err translator_run(Translator *t, const Line *line, size_t n, LineTake take,
                             void *context, size_t *cut);
/* Returns the number of lines of this call translated so far. For the function set by
 * translator_on_step. */
size_t translator_done(const Translator *t);
/* Sets the number of the first line of the next call of translator_run to lines + 1. */
void translator_count_from(Translator *t, uint64_t lines);
/* Returns the number of the first line that the last call truncated. */
uint64_t translator_first_cut(const Translator *t);
/* Returns the translator as a worker for share.h; it must outlive the worker. */
LineWorker translator_worker(Translator *t);

/* Writes the lengths of the lines in tokens to len (n), longest first, each limited to the
 * `longest` positions of the model. */
NODISCARD Err translator_lengths(const Tokenizer *tokenizer, size_t longest, const Line *line,
                                 size_t n, size_t *len);
/* Returns the size of the largest batch that lines of these lengths form, if batches have at most
 * `rows` source tokens (at least `longest`) and `sentences` sentences. A translator created for
 * that size forms the same batches. */
TranslateRoom translator_room(const BeamSpec *spec, size_t longest, const size_t *len, size_t n,
                              size_t rows, size_t sentences);
/* Returns the maximum source tokens (*rows) and sentences of a batch that translator_new
 * selects if there is enough memory. */
void translator_batch(const Backend *backend, size_t batch_rows, size_t longest, int beam,
                      size_t *rows, size_t *sentences);

/* Halves these limits until a device has memory for such a batch. The memory of a CPU is not
 * limited. */
void translator_fit_batch(const TransformerConfig *config, const Backend *backend,
                          const BeamSpec *spec, size_t *rows, size_t *sentences);

#endif
