/* Incremental decoding. Relies on transformer_internal.h. */
#include "model/decoder.h"

#include <string.h>

#include "base/mem.h"
#include "model/transformer_internal.h"

Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t slots, size_t longest) {
  if (!t->backend->host)
    return err_set(ERR_USAGE, "translation runs on the CPU so far; use --device cpu");
  *d = (Decoder){.t = t, .w = w, .slots = slots, .longest = longest};
  size_t layers = (size_t)t->config.layers[1],
         of_layer = slots * longest * 2 * (size_t)t->config.d;
  Err err;
  int32_t *ints;
  TRY_DONE(mem_alloc(&d->cache, layers, sizeof *d->cache));
  TRY_DONE(mem_alloc_aligned(&d->block, layers * of_layer * sizeof(float)));
  TRY_DONE(mem_alloc(&ints, 6 * (slots + 1), sizeof *ints));
  int32_t **list[] = {&d->q_off, &d->k_off, &d->k_len, &d->m_off, &d->m_len, &d->position};
  for (size_t i = 0; i < 6; i++) *list[i] = ints + i * (slots + 1);
  for (size_t i = 0; i <= slots; i++) d->q_off[i] = (int32_t)i;
  for (size_t l = 0; l < layers; l++) d->cache[l] = d->block + l * of_layer;
done:
  if (err) decoder_free(d);
  return err;
}

void decoder_free(Decoder *d) {
  mem_free(d->cache);
  mem_free(d->block);
  mem_free(d->q_off); /* begins the block of all six */
  *d = (Decoder){0};
}

void decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos, const int32_t *off,
                   size_t sentences) {
  size_t rows = (size_t)off[sentences];
  const void *memory =
      transformer_encode(d->t, d->w, src, pos, off, sentences, rows, (StepKey){0});
  transformer_cross_kv(d->t, d->w, memory, rows);
}

static void self_step(Decoder *d, int layer, const void *y, const int32_t *slot, size_t n,
                      size_t place) {
  Transformer *t = d->t;
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[1][layer].self;
  AttentionState *s = &t->stack[1].self[layer];
  size_t width = (size_t)t->config.d;
  b->linear(b, s->in, y, weight(t, d->w, p->in), weight(t, d->w, p->in_bias), n, width,
            3 * width);
  for (size_t i = 0; i < n; i++) {
    size_t row = (size_t)slot[i] * d->longest + place;
    memcpy(d->cache[layer] + row * 2 * width, element(t, s->in, i * 3 * width + width),
           2 * width * sizeof(float));
    d->k_off[i] = (int32_t)((size_t)slot[i] * d->longest);
    d->k_len[i] = (int32_t)place + 1;
  }
  Attention a = self_attention(t, 1, layer, d->q_off, n, (StepKey){0});
  a.k_off = d->k_off, a.k_len = d->k_len, a.kv_ld = 2 * width, a.causal = false;
  b->attend(b, s->out, s->lse, s->in, d->cache[layer], d->cache[layer] + width, &a);
  b->linear(b, t->branch, s->out, weight(t, d->w, p->out), weight(t, d->w, p->out_bias), n,
            width, width);
}

static void cross_step(Decoder *d, int layer, const void *y, size_t n) {
  Transformer *t = d->t;
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t width = (size_t)t->config.d;
  const void *k = element(t, t->cross_kv, (size_t)layer * 2 * width);
  Attention a = cross_attention(t, layer, d->q_off, d->m_off, n, (StepKey){0});
  a.k_len = d->m_len;
  b->linear(b, s->in, y, weight(t, d->w, p->in), weight(t, d->w, p->in_bias), n, width, width);
  b->attend(b, s->out, s->lse, s->in, k, element(t, k, width), &a);
  b->linear(b, t->branch, s->out, weight(t, d->w, p->out), weight(t, d->w, p->out_bias), n,
            width, width);
}

const float *decoder_step(Decoder *d, const int32_t *slot, const int32_t *sentence,
                          const int32_t *off, const int32_t *word, size_t n, size_t place) {
  Transformer *t = d->t;
  StackState *s = &t->stack[1];
  StepKey key = {0};
  for (size_t i = 0; i < n; i++) {
    d->position[i] = (int32_t)place;
    d->m_off[i] = off[sentence[i]];
    d->m_len[i] = off[sentence[i] + 1] - off[sentence[i]];
  }
  embed_into(t, d->w, 1, word, d->position, n, key);
  cross_junction(t, d->w, 1, 0, n, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_step(d, i / 3, s->y[i], slot, n, place);
    if (i % 3 == 1) cross_step(d, i / 3, s->y[i], n);
    if (i % 3 == 2) feed_sublayer(t, d->w, 1, i / 3, s->y[i], n, key);
    cross_junction(t, d->w, 1, i + 1, n, key);
  }
  const Backend *b = t->backend;
  b->linear(b, t->logits, s->y[s->sublayers], weight(t, d->w, t->params.output), NULL, n,
            (size_t)t->config.d, (size_t)t->config.vocab);
  return t->logits;
}

void decoder_copy(Decoder *d, size_t to, size_t from, size_t length) {
  size_t width = (size_t)d->t->config.d, of_slot = d->longest * 2 * width;
  for (int l = 0; l < d->t->config.layers[1]; l++) {
    memcpy(d->cache[l] + to * of_slot, d->cache[l] + from * of_slot,
           length * 2 * width * sizeof(float));
  }
}
