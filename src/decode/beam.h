/* Beam search over a batch of sentences, with cached keys and values. A sentence's
 * translation does not depend on the batch it comes in. Relies on model/decoder. */
#ifndef DECODE_BEAM_H
#define DECODE_BEAM_H

#include "model/decoder.h"
#include "text/tokenizer.h"

typedef struct {
  int beam;
  float alpha; /* score = log probability / ((5 + length) / 6)^alpha */
  int extra;   /* longest output: source tokens + extra */
  int nbest;   /* hypotheses given back, at most beam */
} BeamSpec;

typedef struct {
  int32_t *id; /* without end mark */
  size_t len;
  float score; /* with the length penalty */
  float log_probability;
} Hypothesis;

typedef struct Beam Beam;
/* Room for batches of at most `rows` source rows and `sentences` sentences. */
NODISCARD Err beam_new(Beam **beam, const ModelConfig *config, const Backend *backend,
                       Weights w, const BeamSpec *spec, size_t rows, size_t sentences);
void beam_free(Beam *beam);
/* Source ids lie end to end, each sentence closed by eos; off (n + 1). Fills
 * best (n, nbest), best first; missing ones have score -INFINITY. The ids stay
 * valid until the next call. */
NODISCARD Err beam_search(Beam *beam, const int32_t *src, const int32_t *off, size_t n,
                          Hypothesis *best);

#endif
