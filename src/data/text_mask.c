/* Chooses and masks tokens with Philox. Depends on meta, base/rng. */
#include "data/text_mask.h"

#include "base/rng.h"

#define RANGE      4294967296.0 /* number of values of a random word */
#define MASK_SHARE 0.8          /* of the chosen tokens: become [MASK] */
#define KEPT_SHARE 0.1          /* of the chosen tokens: stay as they are */
#define MASK_KEY   0x6d61736bu

/* Words of a random number: choice of the token, what becomes of it, its new id. */
enum { WORD_CHOICE, WORD_CHANGE, WORD_ID };

void text_mask_begin(TextMask *m, const Meta *meta, double rate) {
  *m =
      (TextMask){.rate = rate,
                 .vocab = meta->vocab,
                 .mask = meta->classify->mask,
                 .special = {meta->pad, meta->unk, meta->bos, meta->eos, meta->classify->mask}};
}

bool text_mask_is_special(const TextMask *m, int32_t id) {
  for (int i = 0; i < TEXT_SPECIAL; i++)
    if (m->special[i] == id) return true;
  return false;
}

uint64_t text_mask_key(uint64_t seed, Split split, uint64_t epoch) {
  return rng_mix(rng_mix(rng_mix(seed, MASK_KEY), (uint64_t)split), epoch);
}

static int32_t change_id(const TextMask *m, int32_t id, const uint32_t random[4]) {
  double change = random[WORD_CHANGE] / RANGE;
  if (change < MASK_SHARE) return m->mask;
  if (change >= 1 - KEPT_SHARE) return id;
  return (int32_t)(((uint64_t)random[WORD_ID] * (uint64_t)m->vocab) >> 32);
}

uint32_t text_mask_apply(const TextMask *m, uint64_t key, const MaskedText *text, int32_t *at,
                         int32_t *true_id) {
  uint32_t chosen = 0, best = text->tokens, random[4], lowest[4] = {0};
  for (uint32_t i = 0; i < text->tokens; i++) {
    int32_t id = text->id[i];
    if (text_mask_is_special(m, id)) continue;
    rng_philox(key, text->number, i, random);
    /* The token that is chosen if no other is. */
    if (best == text->tokens || random[WORD_CHOICE] < lowest[WORD_CHOICE]) {
      best = i;
      for (int k = 0; k < 4; k++) lowest[k] = random[k];
    }
    if (random[WORD_CHOICE] / RANGE >= m->rate) continue;
    at[chosen] = text->row + (int32_t)i;
    true_id[chosen++] = id;
    text->id[i] = change_id(m, id, random);
  }
  if (chosen || best == text->tokens) return chosen;
  at[0] = text->row + (int32_t)best;
  true_id[0] = text->id[best];
  text->id[best] = change_id(m, text->id[best], lowest);
  return 1;
}
