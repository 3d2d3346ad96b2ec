/* Beam search or random sampling over a batch of sentences, with a KV cache. The translation of a
 * sentence does not depend on the other sentences of its batch. Depends on model/decoder,
 * sample. */
#ifndef DECODE_BEAM_H
#define DECODE_BEAM_H

#include "decode/sample.h"
#include "model/decoder.h"
#include "text/tokenizer.h"

typedef struct {
  int beam_size;
  float length_penalty; /* score = log probability / ((5 + length) / 6)^length_penalty */
  /* As in generate of Hugging Face: score = log probability / length^length_penalty, and the search of
   * a sentence ends when beam_size hypotheses have ended and the best live one, if it ended now,
   * would not be better than the worst of them. */
  bool is_hf;
  int extra_length;   /* maximum tokens of an output beyond those of its source */
  int nbest;          /* number of hypotheses returned, at most beam_size */
  int max_length;     /* maximum tokens of an output, for any source; 0: no such limit */
  bool fixed_weights; /* The weights never change, so they may be packed once. */
  /* Draws beam_size samples as `sample` specifies; score = log probability. */
  bool is_sampling;
  SampleSpec sample;
} BeamSpec;

typedef struct {
  int32_t *id; /* (len) ids without the end-of-sentence token */
  size_t len;
  float score; /* score with the length penalty */
  float log_probability;
} Hypothesis;

typedef struct Beam Beam;
/* Creates a beam for batches of at most `rows` source tokens and `sentences` sentences. */
NODISCARD Err beam_new(Beam **beam, const TransformerConfig *config, const Backend *backend,
                       Weights w, const BeamSpec *spec, size_t rows, size_t sentences);
void beam_free(Beam *beam);
/* Returns the maximum number of tokens of all hypotheses together for a sentence of `rows` source
 * tokens, including end-of-sentence. longest: the number of positions of the model. */
size_t beam_words(const BeamSpec *spec, size_t longest, size_t rows);
/* Allocates the KV cache for batches whose hypotheses have at most `words` tokens together, so
 * that no search allocates memory. */
NODISCARD Err beam_reserve(Beam *beam, size_t words);
/* Returns the bytes of device memory that beam_new and beam_reserve allocate. */
NODISCARD Err beam_bytes(const TransformerConfig *config, const Backend *backend,
                         const BeamSpec *spec, size_t rows, size_t sentences, size_t words,
                         uint64_t *bytes);
/* Packs the weights for faster GEMMs. Call it again after the weights changed. Results are
 * bit-identical with and without packing. */
NODISCARD Err beam_pack(Beam *beam);
/* Set arrays for later searches, with one element per sentence of the batch. beam_set_lines: line
 * numbers, which are part of the random key of samples (NULL: the index in the batch).
 * beam_set_lengths: forced output lengths for benchmarks (NULL: the model decides). The caller
 * owns the arrays. */
void beam_set_lines(Beam *beam, const uint64_t *line);
void beam_set_lengths(Beam *beam, const int32_t *length);
/* Sets a function that every later search calls before each step, to report progress. An error
 * from it ends the search. NULL: none. */
typedef Err (*BeamStep)(void *context);
void beam_on_step(Beam *beam, BeamStep step, void *context);
/* Searches n sentences. src: their ids, concatenated, each sentence with eos at its end; off (n +
 * 1): the offset of each sentence. Fills best (n, nbest): by decreasing score, samples in the
 * order drawn; missing hypotheses have the score -INFINITY. The ids in `best` are valid until the
 * next call. */
NODISCARD Err beam_search(Beam *beam, const int32_t *src, const int32_t *off, size_t n,
                          Hypothesis *best);

/* Times of all searches so far. */
typedef struct {
  double encode; /* seconds in the encoder */
  double step;   /* seconds in the decoder and its top-k */
  double choose; /* seconds for selecting hypotheses on the host */
  uint64_t steps;
  uint64_t rows;             /* sum of the number of hypotheses over all steps */
  uint64_t graphs, launched; /* CUDA graphs captured; steps launched as such */
} BeamTimes;
BeamTimes beam_times(const Beam *beam);

#endif
