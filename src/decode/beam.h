/* Beam search or random sampling over a batch of sentences, with a KV cache. A sentence's
 * translation does not depend on the other sentences of its batch. Depends on model/decoder,
 * sample. */
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
  int32_t *id; /* (len) without the end-of-sentence token */
  size_t len;
  float score; /* with the length penalty */
  float log_probability;
} Hypothesis;

typedef struct Beam Beam;
/* Creates a beam for batches of at most `rows` source tokens and `sentences` sentences. */
NODISCARD Err beam_new(Beam **beam, const TransformerConfig *config, const Backend *backend,
                       Weights w, const BeamSpec *spec, size_t rows, size_t sentences);
void beam_free(Beam *beam);
/* Most tokens of all hypotheses together for a sentence of `rows` source tokens, end-of-sentence
 * included. longest: the model's positions. */
size_t beam_words(const BeamSpec *spec, size_t longest, size_t rows);
/* Allocates the KV cache for batches whose hypotheses have at most `words` tokens together, so that
 * no search allocates. */
NODISCARD Err beam_reserve(Beam *beam, size_t words);
/* Bytes of the backend's memory that beam_new and beam_reserve allocate. */
NODISCARD Err beam_bytes(const TransformerConfig *config, const Backend *backend,
                         const BeamSpec *spec, size_t rows, size_t sentences, size_t words,
                         uint64_t *bytes);
/* Packs the weights for faster GEMMs; call it again when they have changed. Results are
 * bit-identical with and without. */
NODISCARD Err beam_pack(Beam *beam);
/* Set for later searches, per sentence of the batch: its line number, which is part of the random
 * key of samples (NULL: the index in the batch); and a forced output length, for benchmarks (NULL:
 * the model decides). The caller owns the arrays. */
void beam_set_lines(Beam *beam, const uint64_t *line);
void beam_set_lengths(Beam *beam, const int32_t *length);
/* Sets a function that every later search calls before each step, to report progress; an error from
 * it ends the search. NULL: none. */
typedef Err (*BeamStep)(void *context);
void beam_on_step(Beam *beam, BeamStep step, void *context);
/* Searches n sentences. src: their ids, concatenated, each with eos at its end; off (n + 1): where
 * each begins. Fills best (n, nbest): by falling score, samples in the order drawn; missing ones
 * have score -INFINITY. The ids in it are valid until the next call. */
NODISCARD Err beam_search(Beam *beam, const int32_t *src, const int32_t *off, size_t n,
                          Hypothesis *best);

/* Time of all searches so far. */
typedef struct {
  double encode; /* seconds in the encoder */
  double step;   /* seconds in the decoder and its top-k */
  double choose; /* seconds selecting hypotheses on the host */
  uint64_t steps;
  uint64_t rows; /* sum over steps of the hypotheses in the step */
} BeamTimes;
BeamTimes beam_times(const Beam *beam);

#endif
