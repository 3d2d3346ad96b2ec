/* Encodes lines, translates them in batches of similar length, decodes the results. Depends on
 * beam, text, data/clean. */
#include "decode/translate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/clean.h"

/* Default number of hypotheses in a batch. More would not make the GEMMs faster, but their logits
 * need memory. On a GPU a step with few hypotheses takes as long as one with many. */
#define STEP_ROWS        512
#define STEP_ROWS_DEVICE 2048

/* Default number of source tokens in a batch. */
#define BATCH_TOKENS        4096
#define BATCH_TOKENS_DEVICE 16384

struct Translator {
  TransformerConfig config;
  const Tokenizer *tokenizer;
  BeamSpec spec;
  Beam *beam;
  size_t max_tokens, max_sentences; /* maximum source tokens and sentences of a batch */
  bool packed;
  int32_t *src, *off; /* ids and sentence offsets of the current batch */
  uint64_t *line;     /* line numbers of the batch's sentences */
  Hypothesis *best;
  /* number of lines in earlier runs; number of the first truncated line */
  uint64_t lines, first_cut;
  size_t done; /* lines of this run whose search has ended */
};

/* A line of the current run. */
typedef struct {
  size_t index;
  size_t at, len; /* offset and number of the line's ids */
  size_t result;  /* index of the first of the line's nbest texts */
} Item;

typedef struct {
  char *text;
  float score;
} Result;

void translator_batch(const Backend *b, size_t batch_rows, size_t longest, int beam,
                      size_t *rows, size_t *sentences) {
  size_t most = (b->host ? STEP_ROWS : STEP_ROWS_DEVICE) / (size_t)(beam > 0 ? beam : 1);
  if (batch_rows == 0) batch_rows = b->host ? BATCH_TOKENS : BATCH_TOKENS_DEVICE;
  *rows = batch_rows > longest ? batch_rows : longest;
  *sentences = *rows / 16 + 1 < most ? *rows / 16 + 1 : most;
}

Err translator_new(Translator **out, const TransformerConfig *config, const Backend *backend,
                   Weights w, const Tokenizer *tokenizer, const BeamSpec *spec,
                   size_t batch_rows) {
  TranslateRoom room = {0}; /* With words = 0 the KV cache grows as needed. */
  translator_batch(backend, batch_rows, (size_t)config->max_positions, spec->beam_size,
                   &room.tokens, &room.sentences);
  return translator_new_for(out, config, backend, w, tokenizer, spec, &room);
}

Err translator_new_for(Translator **out, const TransformerConfig *config,
                       const Backend *backend, Weights w, const Tokenizer *tokenizer,
                       const BeamSpec *spec, const TranslateRoom *room) {
  *out = NULL;
  Translator *t;
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->config = *config;
  t->tokenizer = tokenizer;
  t->spec = *spec;
  t->max_tokens = room->tokens;
  t->max_sentences = room->sentences;
  Err err;
  TRY_DONE(beam_new(&t->beam, config, backend, w, spec, t->max_tokens, t->max_sentences));
  TRY_DONE(beam_reserve(t->beam, room->words));
  TRY_DONE(mem_alloc(&t->src, t->max_tokens, sizeof *t->src));
  TRY_DONE(mem_alloc(&t->off, t->max_sentences + 1, sizeof *t->off));
  TRY_DONE(mem_alloc(&t->line, t->max_sentences, sizeof *t->line));
  TRY_DONE(mem_alloc(&t->best, t->max_sentences * (size_t)spec->nbest, sizeof *t->best));
done:
  if (err)
    translator_free(t);
  else
    *out = t;
  return err;
}

void translator_free(Translator *t) {
  if (!t) return;
  beam_free(t->beam);
  mem_free(t->src);
  mem_free(t->off);
  mem_free(t->line);
  mem_free(t->best);
  mem_free(t);
}

void translator_on_step(Translator *t, BeamStep step, void *context) {
  beam_on_step(t->beam, step, context);
}

static int by_length(const void *a, const void *b) {
  const Item *x = a, *y = b;
  /* Longest lines first, so that insufficient memory is detected in the first batch. */
  if (x->len != y->len) return x->len > y->len ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

/* Appends a line's ids, truncated to the model's positions; `squeezed` is a scratch buffer. */
static Err encode_line(const Tokenizer *tokenizer, size_t longest, const Line *line,
                       Str *squeezed, IdList *ids, bool *cut) {
  size_t before = ids->len;
  *cut = false;
  str_clear(squeezed);
  str_addn(squeezed, line->text, line->len);
  TRY(str_check(squeezed));
  if (squeezed->len) {
    size_t len = clean_squeeze(squeezed->s, squeezed->len, squeezed->s).len;
    TRY(tokenizer_encode(tokenizer, squeezed->s, len, ids));
  }
  *cut = ids->len - before > longest - 1;
  if (*cut) ids->len = before + longest - 1;
  return ERR_OK;
}

static Err encode_lines(Translator *t, const Line *line, size_t n, IdList *ids, Item *item,
                        size_t *cut) {
  Str squeezed = {0};
  Err err = ERR_OK;
  for (size_t i = 0; i < n && !err; i++) {
    size_t before = ids->len;
    bool is_cut;
    err = encode_line(t->tokenizer, (size_t)t->config.max_positions, &line[i], &squeezed, ids,
                      &is_cut);
    if (is_cut && (*cut)++ == 0) t->first_cut = t->lines + i + 1;
    item[i] = (Item){.index = i,
                     .at = before,
                     .len = ids->len - before,
                     .result = i * (size_t)t->spec.nbest};
  }
  str_free(&squeezed);
  return err;
}

static int longer_first(const void *a, const void *b) {
  const size_t *x = a, *y = b;
  return *x < *y ? 1 : *x > *y ? -1 : 0;
}

Err translator_lengths(const Tokenizer *tokenizer, size_t longest, const Line *line, size_t n,
                       size_t *len) {
  Str squeezed = {0};
  IdList ids = {0};
  Err err = ERR_OK;
  for (size_t i = 0; i < n && !err; i++) {
    bool is_cut;
    ids.len = 0;
    err = encode_line(tokenizer, longest, &line[i], &squeezed, &ids, &is_cut);
    len[i] = ids.len;
  }
  if (n) qsort(len, n, sizeof *len, longer_first);
  str_free(&squeezed);
  ids_free(&ids);
  return err;
}

/* Returns true if a line of `len` ids fits into a batch that has `count` lines and `used` tokens.
 * Empty lines are sorted last and belong to no batch. */
static bool fits_batch(size_t tokens, size_t sentences, size_t count, size_t used, size_t len) {
  return len && count < sentences && used + len + 1 <= tokens;
}

TranslateRoom translator_room(const BeamSpec *spec, size_t longest, const size_t *len, size_t n,
                              size_t rows, size_t sentences) {
  TranslateRoom most = {.tokens = 1, .sentences = 1};
  for (size_t i = 0; i < n && len[i];) {
    TranslateRoom now = {0};
    for (; i < n && fits_batch(rows, sentences, now.sentences, now.tokens, len[i]); i++) {
      now.sentences++;
      now.tokens += len[i] + 1;
      now.words += beam_words(spec, longest, len[i] + 1);
    }
    if (now.tokens > most.tokens) most.tokens = now.tokens;
    if (now.sentences > most.sentences) most.sentences = now.sentences;
    if (now.words > most.words) most.words = now.words;
  }
  return most;
}

/* Translates one batch and stores the texts in `result`. */
static Err search_batch(Translator *t, const IdList *ids, const Item *item, size_t n,
                        Result *result) {
  size_t rows = 0;
  t->off[0] = 0;
  for (size_t i = 0; i < n; i++) {
    memcpy(t->src + rows, ids->id + item[i].at, item[i].len * sizeof *t->src);
    rows += item[i].len;
    t->src[rows++] = t->config.eos;
    t->off[i + 1] = (int32_t)rows;
    t->line[i] = t->lines + item[i].index + 1;
  }
  beam_set_lines(t->beam, t->line);
  TRY(beam_search(t->beam, t->src, t->off, n, t->best));
  for (size_t i = 0; i < n; i++) {
    for (int k = 0; k < t->spec.nbest; k++) {
      const Hypothesis *h = &t->best[i * (size_t)t->spec.nbest + (size_t)k];
      Str text = {0};
      Err err = h->id ? tokenizer_decode(t->tokenizer, h->id, h->len, &text) : ERR_OK;
      if (!err)
        err = mem_dup(&result[item[i].result + (size_t)k].text, str_text(&text), text.len);
      result[item[i].result + (size_t)k].score = h->score;
      str_free(&text);
      TRY(err);
    }
  }
  return ERR_OK;
}

static Err search_all(Translator *t, const IdList *ids, Item *item, size_t n, Result *result) {
  qsort(item, n, sizeof *item, by_length);
  for (size_t i = 0; i < n && item[i].len;) {
    size_t count = 0, rows = 0;
    while (i + count < n &&
           fits_batch(t->max_tokens, t->max_sentences, count, rows, item[i + count].len))
      rows += item[i + count++].len + 1;
    if (!count)
      return err_set(
          ERR_WORK,
          "bug: a line of %zu ids does not fit into a batch of %zu tokens; please report it",
          item[i].len, t->max_tokens);
    TRY(search_batch(t, ids, item + i, count, result));
    i += count;
    t->done = i;
  }
  return ERR_OK;
}

Err translator_run(Translator *t, const Line *line, size_t n, LineTake take, void *context,
                   size_t *cut) {
  IdList ids = {0};
  Item *item = NULL;
  Result *result = NULL;
  size_t results = n * (size_t)t->spec.nbest;
  Err err;
  *cut = 0;
  t->done = 0;
  if (!t->packed || !t->spec.fixed_weights) TRY_DONE(beam_pack(t->beam));
  t->packed = true;
  TRY_DONE(mem_alloc(&item, n, sizeof *item));
  TRY_DONE(mem_alloc(&result, results, sizeof *result));
  TRY_DONE(encode_lines(t, line, n, &ids, item, cut));
  TRY_DONE(search_all(t, &ids, item, n, result));
  for (size_t i = 0; i < n; i++) {
    for (int k = 0; k < t->spec.nbest; k++) {
      const Result *r = &result[i * (size_t)t->spec.nbest + (size_t)k];
      TRY_DONE(take(context, i, k, r->text ? r->text : "", r->text ? r->score : 0));
    }
  }
done:
  t->lines += n;
  for (size_t i = 0; result && i < results; i++) mem_free(result[i].text);
  mem_free(result);
  mem_free(item);
  ids_free(&ids);
  return err;
}

size_t translator_done(const Translator *t) {
  return t->done;
}

void translator_count_from(Translator *t, uint64_t lines) {
  t->lines = lines;
}

uint64_t translator_first_cut(const Translator *t) {
  return t->first_cut;
}

static Err run_worker(void *self, uint64_t before, const Line *line, size_t n, LineTake take,
                      void *context, LineCut *cut) {
  Translator *t = self;
  size_t count = 0;
  translator_count_from(t, before);
  TRY(translator_run(t, line, n, take, context, &count));
  *cut = (LineCut){count, t->first_cut};
  return ERR_OK;
}

static void set_step(void *self, LineStep step, void *context) {
  translator_on_step(self, step, context);
}

LineWorker translator_worker(Translator *t) {
  return (LineWorker){
      .self = t, .doing = "translating", .run = run_worker, .on_step = set_step};
}
