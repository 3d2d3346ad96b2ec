/* Beam search or random sampling over a batch of sentences, with cached keys and
 * values. A sentence's translation does not depend on the batch it comes in. Relies
 * on model/decoder, sample. */
#ifndef DECODE_BEAM_H
#define DECODE_BEAM_H

#include "decode/sample.h"
#include "model/decoder.h"
#include "text/tokenizer.h"

typedef struct {
  int beam_size;
  float length_penalty; /* score = log probability / ((5 + length) / 6)^length_penalty */
  int extra_length;     /* an output has at most source tokens + extra_length */
  int nbest;            /* hypotheses returned, at most beam_size */
  int max_length;       /* of an output, whatever the source; 0: no such bound */
  bool fixed_weights;   /* the weights never change: they may be packed once */
  bool is_sampling;     /* draws beam_size samples by `sample`; score = log probability */
  SampleSpec sample;
} BeamSpec;

typedef struct {
  int32_t *id; /* without end mark */
  size_t len;
  float score; /* with the length penalty */
  float log_probability;
} Hypothesis;

typedef struct Beam Beam;
/* Room for batches of at most `rows` source rows and `sentences` sentences. */
NODISCARD Err beam_new(Beam **beam, const TransformerConfig *config, const Backend *backend,
                       Weights w, const BeamSpec *spec, size_t rows, size_t sentences);
void beam_free(Beam *beam);
/* The most words that the hypotheses of a sentence of `rows` source rows, the end mark
 * among them, write together. longest: the model's. */
size_t beam_words(const BeamSpec *spec, size_t longest, size_t rows);
/* Takes the memory of the backend for batches that write at most `words` words now, so
 * that no search has to. */
NODISCARD Err beam_reserve(Beam *beam, size_t words);
/* Bytes of the backend's memory that a beam has from beam_new and beam_reserve. */
NODISCARD Err beam_bytes(const TransformerConfig *config, const Backend *backend,
                         const BeamSpec *spec, size_t rows, size_t sentences, size_t words,
                         uint64_t *bytes);
/* Lays the weights out for speed; again when they have changed. The bits of the
 * results stay the same. */
NODISCARD Err beam_pack(Beam *beam);
/* For the searches to come, of sentence i: its line, for sampling; and, to measure
 * speed, the length that every output must have. The caller keeps them; NULL: the
 * index in the batch, the length the model chooses. */
void beam_set_lines(Beam *beam, const uint64_t *line);
void beam_set_lengths(Beam *beam, const int32_t *length);
/* Called before each step of a search, to report progress; an error ends the search. NULL: none.
 * It stays set. */
typedef Err (*BeamStep)(void *context);
void beam_on_step(Beam *beam, BeamStep step, void *context);
/* Source ids lie end to end, each sentence closed by eos; off (n + 1). Fills
 * best (n, nbest), best first, samples as drawn; missing ones have score -INFINITY. The ids stay
 * valid until the next call. */
NODISCARD Err beam_search(Beam *beam, const int32_t *src, const int32_t *off, size_t n,
                          Hypothesis *best);

/* Where the time went so far. */
typedef struct {
  double encode, step, choose; /* seconds; the best words of a row are the step's */
  uint64_t steps, rows;        /* rows of all steps */
} BeamTimes;
BeamTimes beam_times(const Beam *beam);

#endif
