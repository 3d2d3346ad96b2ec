/* Beam search: alive hypotheses grow in step; those that end are kept aside while
 * an alive one could still beat them. Relies on model/decoder. */
#include "decode/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MOST_BEAM 64

typedef struct {
  float sum;     /* log probability so far */
  int32_t *word; /* (longest) what was written */
  int slot;      /* of the decoder's cache */
} Alive;

typedef struct {
  float score, sum;
  int32_t *word;
  size_t len;
} Ended;

typedef struct {
  float score; /* of the hypothesis with this word */
  int parent, word;
} Candidate;

typedef struct {
  int alive, ended; /* how many */
  size_t most;      /* words it may write */
  bool done;
  Alive hyp[MOST_BEAM];
  Ended best[MOST_BEAM]; /* sorted, best first */
} Sentence;

struct Beam {
  BeamSpec spec;
  Transformer t;
  Decoder decoder;
  size_t rows, sentences, longest; /* longest: positions of a hypothesis */
  Sentence *sentence;
  int32_t *words;               /* memory of all hypotheses */
  int32_t *position;            /* (rows) of the source */
  int32_t *slot, *owner, *word; /* (slots) of the rows of a step */
  Candidate *candidate;         /* (2 * beam) */
};

Err beam_new(Beam **out, const ModelConfig *config, const Backend *backend, Weights w,
             const BeamSpec *spec, size_t rows, size_t sentences) {
  *out = NULL;
  if (spec->beam < 1 || spec->beam > MOST_BEAM)
    return err_set(ERR_USAGE, "a beam has 1 to %d hypotheses, not %d", MOST_BEAM, spec->beam);
  Beam *b;
  TRY(mem_alloc(&b, 1, sizeof *b));
  size_t slots = sentences * (size_t)spec->beam;
  b->spec = *spec, b->rows = rows, b->sentences = sentences;
  b->longest = (size_t)config->longest;
  Err err;
  TRY_DONE(transformer_new(&b->t, config, backend, rows > slots ? rows : slots, slots, false));
  TRY_DONE(decoder_new(&b->decoder, &b->t, w, slots, b->longest));
  TRY_DONE(mem_alloc(&b->sentence, sentences, sizeof *b->sentence));
  TRY_DONE(mem_alloc(&b->words, 2 * slots * b->longest, sizeof *b->words));
  TRY_DONE(mem_alloc(&b->position, rows, sizeof *b->position));
  TRY_DONE(mem_alloc(&b->slot, 3 * slots, sizeof *b->slot));
  b->owner = b->slot + slots, b->word = b->owner + slots;
  TRY_DONE(mem_alloc(&b->candidate, 2 * (size_t)spec->beam, sizeof *b->candidate));
  for (size_t s = 0; s < sentences; s++) {
    for (int k = 0; k < spec->beam; k++) {
      size_t i = s * (size_t)spec->beam + (size_t)k;
      b->sentence[s].hyp[k] = (Alive){.word = b->words + 2 * i * b->longest, .slot = (int)i};
      b->sentence[s].best[k].word = b->words + (2 * i + 1) * b->longest;
    }
  }
done:
  if (err)
    beam_free(b);
  else
    *out = b;
  return err;
}

void beam_free(Beam *b) {
  if (!b) return;
  decoder_free(&b->decoder);
  transformer_free(&b->t);
  mem_free(b->sentence);
  mem_free(b->words);
  mem_free(b->position);
  mem_free(b->slot);
  mem_free(b->candidate);
  mem_free(b);
}

static float penalty(const BeamSpec *s, size_t len) {
  return powf((5 + (float)len) / 6, s->alpha);
}

static float log_sum(const float *x, size_t n) {
  float top = x[0];
  for (size_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)expf(x[i] - top);
  return top + (float)log(sum);
}

/* Better score first; among equals the earlier parent, then the smaller word, so
 * that the result never depends on anything else. */
static bool is_before(const Candidate *a, const Candidate *b) {
  if (a->score != b->score) return a->score > b->score;
  if (a->parent != b->parent) return a->parent < b->parent;
  return a->word < b->word;
}

/* Keeps the best `room` candidates, sorted. */
static void offer(Candidate *list, int *n, int room, Candidate c) {
  if (*n == room && !is_before(&c, &list[room - 1])) return;
  int i = *n < room ? (*n)++ : room - 1;
  for (; i > 0 && is_before(&c, &list[i - 1]); i--) list[i] = list[i - 1];
  list[i] = c;
}

/* The best 2 * beam continuations of a sentence; rows of logits are its own. */
static int continuations(Beam *b, Sentence *s, const float *logits) {
  size_t vocab = (size_t)b->t.config.vocab;
  int room = 2 * b->spec.beam, n = 0;
  for (int k = 0; k < s->alive; k++) {
    const float *row = logits + (size_t)k * vocab;
    float base = s->hyp[k].sum - log_sum(row, vocab);
    for (size_t v = 0; v < vocab; v++) {
      float score = base + row[v];
      if (n == room && score < b->candidate[n - 1].score) continue;
      if ((int)v == b->t.config.pad || ((int)v == b->t.config.bos && (int)v != b->t.config.eos))
        continue;
      offer(b->candidate, &n, room, (Candidate){score, k, (int)v});
    }
  }
  return n;
}

static void end_hypothesis(Beam *b, Sentence *s, const Candidate *c, size_t len) {
  float score = c->score / penalty(&b->spec, len + 1); /* the end mark counts */
  int beam = b->spec.beam, i = s->ended;
  if (i == beam && score <= s->best[beam - 1].score) return;
  if (i == beam)
    i--;
  else
    s->ended++;
  int32_t *memory = s->best[i].word;
  for (; i > 0 && score > s->best[i - 1].score; i--) s->best[i] = s->best[i - 1];
  memcpy(memory, s->hyp[c->parent].word, len * sizeof *memory);
  s->best[i] = (Ended){score, c->score, memory, len};
}

/* Takes the continuations: ends some, lets the best of the others live. The cache
 * moves with them: a parent's slot goes to its first child, copies to the rest. */
static void advance(Beam *b, Sentence *s, int n, size_t len) {
  int beam = b->spec.beam, alive = 0;
  Alive next[MOST_BEAM];
  bool used[MOST_BEAM] = {false};
  const Candidate *chosen[MOST_BEAM];
  for (int i = 0; i < n && alive < beam; i++) {
    const Candidate *c = &b->candidate[i];
    if (c->word == b->t.config.eos) {
      if (i < beam) end_hypothesis(b, s, c, len);
    } else {
      chosen[alive++] = c;
    }
  }
  int parent_slot[MOST_BEAM];
  for (int k = 0; k < alive; k++) parent_slot[k] = -1;
  for (int k = 0; k < alive; k++) { /* first children stay in place */
    int p = chosen[k]->parent;
    if (used[p]) continue;
    used[p] = true;
    next[k] = s->hyp[p];
    parent_slot[k] = p;
  }
  int free_slot = 0;
  for (int k = 0; k < alive; k++) {
    int p = chosen[k]->parent;
    if (parent_slot[k] < 0) {
      while (used[free_slot]) free_slot++;
      used[free_slot] = true;
      next[k] = s->hyp[free_slot];
      decoder_copy(&b->decoder, (size_t)next[k].slot, (size_t)s->hyp[p].slot, len + 1);
      memcpy(next[k].word, s->hyp[p].word, len * sizeof *next[k].word);
    }
    next[k].sum = chosen[k]->score;
  }
  for (int k = 0; k < alive; k++) next[k].word[len] = chosen[k]->word;
  for (int i = 0, at = alive; i < beam; i++) { /* the slots nobody took stay behind */
    if (!used[i]) next[at++] = s->hyp[i];
  }
  memcpy(s->hyp, next, (size_t)beam * sizeof *next);
  s->alive = alive;
}

/* Nothing alive can still beat the worst of a full set of ended hypotheses: log
 * probabilities only fall, and the longest output has the mildest penalty. */
static bool is_done(const Beam *b, const Sentence *s, size_t len) {
  if (s->alive == 0 || len >= s->most) return true;
  if (s->ended < b->spec.beam) return false;
  float bound = s->hyp[0].sum / penalty(&b->spec, b->spec.alpha > 0 ? s->most + 1 : len + 1);
  return bound <= s->best[s->ended - 1].score;
}

/* What is alive at the end counts as if it ended there. */
static void close_sentence(Beam *b, Sentence *s, size_t len) {
  for (int k = 0; k < s->alive && s->ended < b->spec.beam; k++) {
    end_hypothesis(b, s, &(Candidate){s->hyp[k].sum, k, b->t.config.eos}, len);
  }
  s->done = true;
}

static void begin(Beam *b, const int32_t *src, const int32_t *off, size_t n) {
  for (size_t s = 0; s < n; s++) {
    Sentence *x = &b->sentence[s];
    size_t len = (size_t)(off[s + 1] - off[s]);
    for (size_t i = 0; i < len; i++) b->position[(size_t)off[s] + i] = (int32_t)i;
    x->alive = 1, x->ended = 0, x->done = false;
    x->hyp[0].sum = 0;
    x->most = len - 1 + (size_t)b->spec.extra;
    if (x->most > b->longest - 1) x->most = b->longest - 1;
  }
  decoder_begin(&b->decoder, src, b->position, off, n);
}

Err beam_search(Beam *b, const int32_t *src, const int32_t *off, size_t n, Hypothesis *best) {
  if (n > b->sentences || (size_t)off[n] > b->rows)
    return err_set(ERR_WORK, "a batch of %zu sentences and %d rows is too large", n, off[n]);
  int32_t start = b->t.config.bos >= 0 ? b->t.config.bos : b->t.config.eos;
  begin(b, src, off, n);
  for (size_t len = 0;; len++) {
    size_t rows = 0;
    for (size_t s = 0; s < n; s++) {
      Sentence *x = &b->sentence[s];
      for (int k = 0; k < x->alive && !x->done; k++, rows++) {
        b->slot[rows] = x->hyp[k].slot;
        b->owner[rows] = (int32_t)s;
        b->word[rows] = len ? x->hyp[k].word[len - 1] : start;
      }
    }
    if (rows == 0) break;
    const float *logits = decoder_step(&b->decoder, b->slot, b->owner, off, b->word, rows, len);
    size_t row = 0;
    for (size_t s = 0; s < n; s++) {
      Sentence *x = &b->sentence[s];
      if (x->done) continue;
      size_t own = (size_t)x->alive;
      int found = continuations(b, x, logits + row * (size_t)b->t.config.vocab);
      advance(b, x, found, len);
      row += own;
      if (is_done(b, x, len + 1)) close_sentence(b, x, len + 1);
    }
  }
  for (size_t s = 0; s < n; s++) {
    for (int k = 0; k < b->spec.nbest; k++) {
      const Ended *e = &b->sentence[s].best[k];
      best[s * (size_t)b->spec.nbest + (size_t)k] =
          k < b->sentence[s].ended ? (Hypothesis){e->word, e->len, e->score, e->sum}
                                   : (Hypothesis){NULL, 0, -INFINITY, -INFINITY};
    }
  }
  return ERR_OK;
}
