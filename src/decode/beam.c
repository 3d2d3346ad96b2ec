/* Beam search: extends all live hypotheses by one token per step and keeps ended ones until no
 * live hypothesis can reach a better score. Sampling: extends each sample independently. Depends
 * on model/decoder, sample. */
#include "decode/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"

#define MOST_BEAM 64

typedef struct {
  float sum;     /* sum of the log probabilities of the tokens so far */
  int32_t *word; /* (longest) tokens so far */
  int32_t row;   /* row of the hypothesis in the batch of the last step */
  int which;     /* index among the samples of the sentence */
} Alive;

typedef struct {
  float score, sum;
  int32_t *word;
  size_t len;
} Ended;

typedef struct {
  float score; /* score of the hypothesis extended by this word */
  int parent, word;
} Candidate;

typedef struct {
  int alive, ended; /* numbers of live and ended hypotheses */
  size_t most;      /* maximum number of tokens of an output */
  size_t least;     /* minimum number of tokens before end-of-sentence is allowed */
  bool done;
  Alive hyp[MOST_BEAM];
  Ended best[MOST_BEAM]; /* ended hypotheses by decreasing score; samples by their index */
} Sentence;

struct Beam {
  BeamSpec spec;
  Backend backend; /* copy of the caller's backend, with packed weights */
  Transformer t;
  Decoder decoder;
  size_t max_tokens, max_sentences; /* maximum source tokens and sentences of a batch */
  size_t max_positions;             /* maximum tokens of a hypothesis */
  const uint64_t *line;
  const int32_t *length;
  Sentence *sentence;
  int32_t *words;    /* the tokens of all hypotheses (Alive.word, Ended.word) */
  int32_t *position; /* (rows) positions of the source tokens */
  /* (slots) for each row of a step: sentence, token, row in the previous step */
  int32_t *owner, *word, *parent;
  size_t words_per_row; /* k of the top-k that is computed for each row */
  float *device_top;    /* result of the top-k, in device memory */
  /* copy of device_top in host memory; on a CPU device_top itself. value, lse and id point into
   * it. */
  float *host_top;
  bool is_pinned;     /* host_top is page-locked */
  float *value, *lse; /* (rows of the step, k) logits; (rows) log-sum-exp */
  int32_t *id;        /* (rows of the step, k) tokens */
  /* (slots, vocab) host copy of a GPU's logits, for sampling from the whole vocabulary */
  char *logits;
  float *logits_f32;    /* (vocab) one row of the logits in fp32 */
  Candidate *candidate; /* (2 * beam) continuations of a sentence */
  BeamTimes times;
  BeamStep on_step;
  void *step_context;
};

/* Returns k of the top-k of a row. Beam search needs 2 * beam, because up to `beam` of the
 * candidates may be end-of-sentence. Sampling needs top_k, or only the maximum if it draws from the
 * whole vocabulary. Both need three more, because pad, bos and eos may be excluded. */
static size_t words_of_row(const BeamSpec *spec, size_t vocab) {
  size_t n = 2 * (size_t)spec->beam_size;
  if (spec->is_sampling) n = spec->sample.top_k ? (size_t)spec->sample.top_k : 1;
  return n + 3 < vocab ? n + 3 : vocab;
}

/* Returns the bytes of the top-k results of a step. */
static size_t found_bytes(size_t slots, size_t best) {
  return slots * (2 * best + 1) * sizeof(float);
}

/* Allocates memory for the top-k results and, for sampling from the whole vocabulary, host memory
 * for logits. */
static Err new_results(Beam *b, size_t slots) {
  const Backend *backend = &b->backend;
  size_t bytes = found_bytes(slots, b->words_per_row), vocab = (size_t)b->t.config.vocab;
  TRY(backend->alloc(backend, &b->device_top, bytes));
  b->host_top = b->device_top;
  if (backend->host) return ERR_OK;
  TRY(mem_alloc_aligned(&b->host_top, bytes));
  /* Without page-locked memory the copy is slower, but as correct. */
  b->is_pinned = backend->pin(backend, b->host_top, bytes) == ERR_OK;
  if (!b->spec.is_sampling || b->spec.sample.top_k) return ERR_OK;
  TRY(mem_alloc_aligned(&b->logits, slots * vocab * type_size(backend->type)));
  return mem_alloc_aligned(&b->logits_f32, vocab * sizeof *b->logits_f32);
}

static Err new_lists(Beam *b, size_t slots) {
  size_t beam = (size_t)b->spec.beam_size;
  TRY(mem_alloc(&b->sentence, b->max_sentences, sizeof *b->sentence));
  TRY(mem_alloc(&b->words, 2 * slots * b->max_positions, sizeof *b->words));
  TRY(mem_alloc(&b->position, b->max_tokens, sizeof *b->position));
  TRY(mem_alloc(&b->owner, 3 * slots, sizeof *b->owner));
  b->word = b->owner + slots;
  b->parent = b->word + slots;
  TRY(mem_alloc(&b->candidate, 2 * beam, sizeof *b->candidate));
  int32_t *at = b->words;
  for (size_t s = 0; s < b->max_sentences; s++) {
    for (size_t k = 0; k < beam; k++, at += 2 * b->max_positions) {
      b->sentence[s].hyp[k] = (Alive){.word = at};
      b->sentence[s].best[k].word = at + b->max_positions;
    }
  }
  return ERR_OK;
}

Err beam_new(Beam **out, const TransformerConfig *config, const Backend *backend, Weights w,
             const BeamSpec *spec, size_t rows, size_t sentences) {
  *out = NULL;
  if (spec->beam_size < 1 || spec->beam_size > MOST_BEAM)
    return err_set(ERR_USAGE, "--beam-size must be from 1 to %d, not %d", MOST_BEAM,
                   spec->beam_size);
  size_t best = words_of_row(spec, (size_t)config->vocab);
  if (backend->max_top_k && best > backend->max_top_k)
    return err_set(ERR_USAGE,
                   "%s can sample from the %zu most likely tokens at most, or from all; lower "
                   "--top-k, pass --top-k 0, or use --device cpu",
                   backend->name, backend->max_top_k - 3);
  Beam *b;
  TRY(mem_alloc(&b, 1, sizeof *b));
  size_t slots = sentences * (size_t)spec->beam_size;
  b->spec = *spec;
  b->max_tokens = rows;
  b->max_sentences = sentences;
  b->backend = *backend;
  b->backend.packed = NULL;
  /* Decoding does not use fp8, which would quantize the weights again in every step. */
  b->backend.fp8 = false;
  b->backend.few_rows = true;
  b->max_positions = (size_t)config->max_positions;
  b->words_per_row = best;
  Err err;
  TRY_DONE(transformer_new(&b->t, config, &b->backend, rows > slots ? rows : slots, slots,
                           /*training=*/false));
  TRY_DONE(decoder_new(&b->decoder, &b->t, w, slots));
  TRY_DONE(new_results(b, slots));
  err = new_lists(b, slots);
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
  if (b->backend.unpack) b->backend.unpack(&b->backend);
  if (b->is_pinned) b->backend.unpin(&b->backend, b->host_top);
  if (b->host_top != b->device_top) mem_free(b->host_top);
  if (b->device_top) b->backend.release(&b->backend, b->device_top);
  mem_free(b->logits);
  mem_free(b->logits_f32);
  mem_free(b->sentence);
  mem_free(b->words);
  mem_free(b->position);
  mem_free(b->owner);
  mem_free(b->candidate);
  mem_free(b);
}

Err beam_reserve(Beam *b, size_t words) {
  return decoder_reserve(&b->decoder, words);
}

Err beam_bytes(const TransformerConfig *config, const Backend *backend, const BeamSpec *spec,
               size_t rows, size_t sentences, size_t words, uint64_t *bytes) {
  Transformer t;
  size_t slots = sentences * (size_t)spec->beam_size;
  TRY(transformer_plan(&t, config, backend, rows > slots ? rows : slots, slots,
                       /*training=*/false));
  *bytes = t.model.arena_bytes + decoder_bytes(config, backend, slots, words) +
           found_bytes(slots, words_of_row(spec, (size_t)config->vocab));
  transformer_free(&t);
  return ERR_OK;
}

Err beam_pack(Beam *b) {
  return decoder_pack(&b->decoder, &b->backend);
}

void beam_set_lines(Beam *b, const uint64_t *line) {
  b->line = line;
}

void beam_set_lengths(Beam *b, const int32_t *length) {
  b->length = length;
}

BeamTimes beam_times(const Beam *b) {
  return b->times;
}

static float length_penalty(const BeamSpec *s, size_t len) {
  if (s->is_hf) return powf((float)len, s->length_penalty);
  return powf((5 + (float)len) / 6, s->length_penalty);
}

/* Orders candidates by decreasing score, then by parent, then by word. This is a total order, so
 * that results do not depend on the batch. */
static bool is_before(const Candidate *a, const Candidate *b) {
  if (a->score != b->score) return a->score > b->score;
  if (a->parent != b->parent) return a->parent < b->parent;
  return a->word < b->word;
}

/* Inserts a candidate into a sorted list of the best `room` candidates. */
static void offer_candidate(Candidate *list, int *n, int room, Candidate c) {
  if (*n == room && !is_before(&c, &list[room - 1])) return;
  int i = *n < room ? (*n)++ : room - 1;
  for (; i > 0 && is_before(&c, &list[i - 1]); i--) list[i] = list[i - 1];
  list[i] = c;
}

/* Returns true if this token may come next: never pad and bos, end-of-sentence only after
 * s->least tokens. */
static bool is_allowed(const Beam *b, const Sentence *s, int word, size_t len) {
  const TransformerConfig *c = &b->t.config;
  if (word == c->eos) return len >= s->least;
  return word != c->pad && word != c->bos;
}

/* Finds the best 2 * beam continuations of the sentence whose rows begin at `row`. */
static int find_continuations(Beam *b, const Sentence *s, size_t row, size_t len) {
  int room = 2 * b->spec.beam_size, n = 0;
  for (int k = 0; k < s->alive; k++, row++) {
    const float *value = b->value + row * b->words_per_row;
    const int32_t *id = b->id + row * b->words_per_row;
    float base = s->hyp[k].sum - b->lse[row];
    for (size_t i = 0; i < b->words_per_row; i++) {
      /* Values decrease, so none of the rest of the row can be among the best either. */
      if (n == room && base + value[i] < b->candidate[room - 1].score) break;
      if (is_allowed(b, s, id[i], len))
        offer_candidate(b->candidate, &n, room, (Candidate){base + value[i], k, id[i]});
    }
  }
  return n;
}

/* Ends a hypothesis of `len` tokens. `scored_len`: the length for its score, which includes the
 * end-of-sentence token. */
static void end_hypothesis(Beam *b, Sentence *s, const Candidate *c, size_t len,
                           size_t scored_len) {
  float score = c->score / length_penalty(&b->spec, scored_len);
  int beam = b->spec.beam_size, i = s->ended;
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

static void copy_hypothesis(Alive *to, const Alive *from, size_t len) {
  memcpy(to->word, from->word, len * sizeof *to->word);
  to->row = from->row;
}

/* Replaces the live hypotheses by the n best continuations; a continuation by end-of-sentence
 * becomes an ended hypothesis. The first child of a hypothesis reuses its token array, the other
 * children receive copies. */
static void advance_beam(Beam *b, Sentence *s, int n, size_t len) {
  int beam = b->spec.beam_size, alive = 0, unused = 0;
  Alive next[MOST_BEAM];
  bool used[MOST_BEAM] = {false}, first[MOST_BEAM] = {false};
  const Candidate *chosen[MOST_BEAM];
  for (int i = 0; i < n && alive < beam; i++) {
    const Candidate *c = &b->candidate[i];
    if (c->word != b->t.config.eos)
      chosen[alive++] = c;
    else if (i < beam)
      end_hypothesis(b, s, c, len, len + 1);
  }
  for (int k = 0; k < alive; k++) {
    int p = chosen[k]->parent;
    first[k] = !used[p];
    used[p] = true;
    if (first[k]) next[k] = s->hyp[p];
  }
  for (int k = 0; k < alive; k++) {
    if (!first[k]) {
      while (used[unused]) unused++;
      used[unused] = true;
      next[k] = s->hyp[unused];
      copy_hypothesis(&next[k], &s->hyp[chosen[k]->parent], len);
    }
    next[k].sum = chosen[k]->score;
  }
  for (int k = 0; k < alive; k++) next[k].word[len] = chosen[k]->word;
  /* Appends the unused hypotheses, so that their token arrays are not lost. */
  for (int i = 0, at = alive; i < beam; i++) {
    if (!used[i]) next[at++] = s->hyp[i];
  }
  memcpy(s->hyp, next, (size_t)beam * sizeof *next);
  s->alive = alive;
}

/* Draws the next token of the sample in `row`; returns the token and its log probability. */
static int draw_word(Beam *b, const Sentence *s, const Alive *hyp, size_t row, float *logits,
                     uint64_t line, size_t len, float *log_probability) {
  const TransformerConfig *c = &b->t.config;
  const SampleSpec *spec = &b->spec.sample;
  float *value = b->value + row * b->words_per_row, largest = -INFINITY;
  int32_t *id = b->id + row * b->words_per_row;
  double u = sample_uniform(spec, line, (uint32_t)hyp->which, (uint32_t)len);
  size_t n = 0, most = spec->top_k ? (size_t)spec->top_k : b->words_per_row;
  for (size_t i = 0; i < b->words_per_row && n < most; i++) {
    if (!is_allowed(b, s, id[i], len)) continue;
    value[n] = value[i];
    id[n++] = id[i];
  }
  if (n) largest = value[0];
  if (spec->top_k) {
    size_t i = sample_draw(spec, u, value, n, largest);
    *log_probability = value[i] - b->lse[row];
    return id[i];
  }
  int banned[] = {c->pad, c->bos, c->eos};
  for (int i = 0; i < 3; i++) {
    if (banned[i] >= 0 && !is_allowed(b, s, banned[i], len)) logits[banned[i]] = -INFINITY;
  }
  size_t word = sample_draw(spec, u, logits, (size_t)c->vocab, largest);
  *log_probability = logits[word] - b->lse[row];
  return (int)word;
}

/* Returns a row of the logits in fp32 in host memory, which sampling may overwrite; NULL if
 * sampling uses only the top-k. */
static float *get_logits(Beam *b, void *logits, size_t row) {
  size_t vocab = (size_t)b->t.config.vocab;
  if (b->backend.host) return (float *)logits + row * vocab;
  if (!b->logits) return NULL;
  type_to_f32(b->backend.type, b->logits_f32,
              b->logits + row * vocab * type_size(b->backend.type), vocab);
  return b->logits_f32;
}

/* Draws the next token of each sample of a sentence. */
static void advance_samples(Beam *b, Sentence *s, uint64_t line, size_t row, void *logits,
                            size_t len) {
  int alive = 0, count = s->alive;
  for (int k = 0; k < count; k++, row++) {
    float log_probability;
    Alive h = s->hyp[k];
    int word =
        draw_word(b, s, &h, row, get_logits(b, logits, row), line, len, &log_probability);
    h.sum += log_probability;
    bool ends = word == b->t.config.eos;
    if (!ends) h.word[len] = word;
    if (ends || len + 1 >= s->most) {
      Ended *e = &s->best[h.which];
      e->len = ends ? len : len + 1;
      e->score = e->sum = h.sum;
      memcpy(e->word, h.word, e->len * sizeof *e->word);
      s->hyp[k] = h;
      continue;
    }
    s->hyp[k] = s->hyp[alive]; /* Swaps with an ended sample: live ones come first. */
    s->hyp[alive++] = h;
  }
  s->alive = alive;
  s->done = alive == 0;
}

/* Returns true if the search of the sentence is finished: no hypothesis is live, the length limit
 * is reached, or there are `beam` ended hypotheses and no live one can score better than the worst
 * of them. The upper bound of a live hypothesis is its sum of log probabilities, which is negative
 * and only decreases, divided by the largest length penalty that it can have. That is the penalty
 * at the maximum length if --length-penalty is positive, otherwise at the next length. */
static bool is_done(const Beam *b, const Sentence *s, size_t len) {
  if (s->alive == 0 || len >= s->most) return true;
  if (s->ended < b->spec.beam_size) return false;
  size_t longest = b->spec.length_penalty > 0 ? s->most + 1 : len + 1;
  float bound = s->hyp[0].sum / length_penalty(&b->spec, b->spec.is_hf ? len : longest);
  return bound <= s->best[s->ended - 1].score;
}

/* Ends the search of a sentence; hypotheses that are still live at the length limit are added to
 * the ended ones: where there is room (is_hf: by their score, without an end-of-sentence token). */
static void close_sentence(Beam *b, Sentence *s, size_t len) {
  bool is_hf = b->spec.is_hf, at_limit = len >= s->most;
  for (int k = 0; k < s->alive; k++) {
    if (is_hf ? !at_limit : s->ended == b->spec.beam_size) break;
    end_hypothesis(b, s, &(Candidate){s->hyp[k].sum, k, b->t.config.eos}, len,
                   is_hf ? len : len + 1);
  }
  s->done = true;
}

/* Returns the maximum number of tokens of a hypothesis for a source of `rows` tokens (including
 * end-of-sentence); `wanted`: its forced length, or NULL. */
static size_t limit_words(const BeamSpec *spec, size_t longest, size_t rows,
                          const int32_t *wanted) {
  size_t most = wanted ? (size_t)*wanted : rows - 1 + (size_t)spec->extra_length;
  if (spec->max_length && most > (size_t)spec->max_length) most = (size_t)spec->max_length;
  return most < longest - 1 ? most : longest - 1;
}

/* Returns the maximum number of tokens of all hypotheses of a sentence together. A beam search
 * has one hypothesis in its first step. */
static size_t words_of_all(const BeamSpec *spec, size_t most) {
  size_t beam = (size_t)spec->beam_size, steps = most ? most : 1;
  return spec->is_sampling ? steps * beam : 1 + (steps - 1) * beam;
}

size_t beam_words(const BeamSpec *spec, size_t longest, size_t rows) {
  return words_of_all(spec, limit_words(spec, longest, rows, NULL));
}

static Err begin_search(Beam *b, const int32_t *src, const int32_t *off, size_t n) {
  const BeamSpec *spec = &b->spec;
  /* Initial size of the KV cache: outputs as long as their sources, limited by the maximum
   * lengths. */
  size_t expected = (size_t)off[n] * (size_t)spec->beam_size, bound = 0;
  for (size_t s = 0; s < n; s++) {
    Sentence *x = &b->sentence[s];
    size_t len = (size_t)(off[s + 1] - off[s]);
    for (size_t i = 0; i < len; i++) b->position[(size_t)off[s] + i] = (int32_t)i;
    x->alive = spec->is_sampling ? spec->beam_size : 1;
    x->ended = spec->is_sampling ? spec->beam_size : 0;
    x->done = false;
    for (int k = 0; k < spec->beam_size; k++) {
      x->hyp[k].sum = 0;
      x->hyp[k].which = k;
    }
    x->least = b->length ? (size_t)b->length[s] : 0;
    x->most = limit_words(spec, b->max_positions, len, b->length ? &b->length[s] : NULL);
    bound += words_of_all(spec, x->most);
  }
  double start = progress_clock();
  TRY(decoder_begin(&b->decoder, src, b->position, off, n,
                    expected < bound ? expected : bound));
  TRY(b->backend.sync(&b->backend));
  b->times.encode += progress_clock() - start;
  return ERR_OK;
}

/* Collects the rows of a step: one for each live hypothesis of each sentence. */
static size_t gather_rows(Beam *b, size_t n, size_t len) {
  int32_t start = b->t.config.bos >= 0 ? b->t.config.bos : b->t.config.eos;
  size_t rows = 0;
  for (size_t s = 0; s < n; s++) {
    Sentence *x = &b->sentence[s];
    for (int k = 0; k < x->alive && !x->done; k++, rows++) {
      b->parent[rows] = len ? x->hyp[k].row : 0;
      x->hyp[k].row = (int32_t)rows;
      b->owner[rows] = (int32_t)s;
      b->word[rows] = len ? x->hyp[k].word[len - 1] : start;
    }
  }
  return rows;
}

/* Computes the top-k of the step's rows and copies it to the host, with the logits if samples are
 * drawn from the whole vocabulary. A step has no other synchronization with a GPU. */
static Err find_top(Beam *b, const void *logits, size_t rows) {
  const Backend *backend = &b->backend;
  size_t vocab = (size_t)b->t.config.vocab, each = rows * b->words_per_row;
  float *there = b->device_top;
  backend->top_k(backend, there, (int32_t *)(there + each), there + 2 * each, logits, rows,
                 vocab, b->words_per_row);
  b->value = b->host_top;
  b->id = (int32_t *)(b->host_top + each);
  b->lse = b->host_top + 2 * each;
  if (b->logits)
    TRY(backend->get(backend, b->logits, logits, rows * vocab * type_size(backend->type)));
  return backend->get(backend, b->host_top, there, (2 * each + rows) * sizeof *there);
}

/* Extends the hypotheses of every sentence by one token. */
static void advance_sentences(Beam *b, size_t n, void *logits, size_t len) {
  size_t row = 0;
  for (size_t s = 0; s < n; s++) {
    Sentence *x = &b->sentence[s];
    if (x->done) continue;
    size_t own = (size_t)x->alive;
    if (b->spec.is_sampling) {
      advance_samples(b, x, b->line ? b->line[s] : s, row, logits, len);
    } else {
      advance_beam(b, x, find_continuations(b, x, row, len), len);
      if (is_done(b, x, len + 1)) close_sentence(b, x, len + 1);
    }
    row += own;
  }
}

void beam_on_step(Beam *b, BeamStep step, void *context) {
  b->on_step = step;
  b->step_context = context;
}

Err beam_search(Beam *b, const int32_t *src, const int32_t *off, size_t n, Hypothesis *best) {
  if (n > b->max_sentences || (size_t)off[n] > b->max_tokens)
    return err_set(ERR_WORK,
                   "bug: a batch of %zu sentences and %d tokens is larger than the beam was "
                   "created for; please report it",
                   n, off[n]);
  TRY(begin_search(b, src, off, n));
  for (size_t len = 0, rows; (rows = gather_rows(b, n, len)) > 0; len++) {
    void *logits;
    if (b->on_step) TRY(b->on_step(b->step_context));
    double start = progress_clock();
    TRY(decoder_step(&b->decoder, b->parent, b->word, b->owner, off, rows, len, &logits));
    TRY(find_top(b, logits, rows));
    double middle = progress_clock();
    advance_sentences(b, n, logits, len);
    b->times.step += middle - start;
    b->times.choose += progress_clock() - middle;
    b->times.steps++;
    b->times.launched = b->decoder.graphs.launched;
    b->times.graphs = b->decoder.graphs.captured;
    b->times.rows += rows;
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
