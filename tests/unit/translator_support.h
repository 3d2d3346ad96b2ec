/* A tiny translator with random weights and random source sentences, for the tests of decoding. */
#ifndef TESTS_TRANSLATOR_SUPPORT_H
#define TESTS_TRANSLATOR_SUPPORT_H

#include "base/mem.h"
#include "base/rng.h"
#include "model/transformer.h"
#include "support.h"

static TransformerConfig config;
static Params params;
static float *w; /* (params.padded) */

/* Creates the model. `sizes`: vocab, d_model, ffn_dim, heads, layers and max_positions. Logits
 * are four times as large as those of a new model, so that outputs differ in length. */
static void open_translator(const TransformerConfig *sizes) {
  TransformerParams where;
  config = (TransformerConfig){.vocab = sizes->vocab,
                               .bos = 2,
                               .eos = 1,
                               .pad = 0,
                               .max_positions = sizes->max_positions};
  OK(transformer_preset(&config, "tiny"));
  config.d_model = sizes->d_model;
  config.ffn_dim = sizes->ffn_dim;
  config.heads = sizes->heads;
  config.tying = TIE_NONE;
  memcpy(config.layers, sizes->layers, sizeof config.layers);
  OK(transformer_lay_out(&where, &params, &config));
  OK(mem_alloc_aligned(&w, params.padded * sizeof *w));
  params_init(&params, 3, w);
  for (size_t i = 0; i < (size_t)(config.vocab * config.d_model); i++) w[where.output + i] *= 4;
  transformer_params_free(&where);
}

static int close_translator(void **state) {
  (void)state;
  params_free(&params);
  mem_free(w);
  return 0;
}

/* Fills `src` with sentences of 1 to `most` random tokens and eos; sentence s is src[off[s]] to
 * src[off[s + 1] - 1]. */
static void make_sentences(int32_t *src, int32_t *off, int sentences, uint32_t most,
                           uint64_t seed) {
  Rng rng = {.key = seed};
  uint32_t words = (uint32_t)config.vocab - 4; /* ids below 4 are special tokens */
  off[0] = 0;
  for (int s = 0; s < sentences; s++) {
    int32_t n = 1 + (int32_t)rng_below(&rng, most);
    for (int32_t i = 0; i < n; i++) src[off[s] + i] = 4 + (int32_t)rng_below(&rng, words);
    src[off[s] + n] = config.eos;
    off[s + 1] = off[s] + n + 1;
  }
}

#endif
