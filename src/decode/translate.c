/* Encodes lines, translates them in batches of similar length, decodes the results. On a GPU
 * several batches can be searched at the same time, each by a thread. Depends on beam_pool, text,
 * data/clean. */
#include "decode/translate.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/clean.h"
#include "decode/beam_pool.h"

/* Default number of hypotheses in a batch. More would not make the GEMMs faster, but their logits
 * need memory. On a GPU a step with few hypotheses takes as long as one with many. */
#define STEP_ROWS        512
#define STEP_ROWS_DEVICE 2048

/* Default number of source tokens in a batch. */
#define BATCH_TOKENS        4096
#define BATCH_TOKENS_DEVICE 16384

/* The batch that a stream of the pool is searching. */
typedef struct {
  int32_t *src, *off; /* ids and sentence offsets */
  uint64_t *line;     /* line numbers of the sentences */
  Hypothesis *best;
} BatchArrays;

struct Translator {
  TransformerConfig config;
  Backend backend;
  const Tokenizer *tokenizer;
  BeamSpec spec;
  BeamPool *pool;
  size_t max_tokens, max_sentences; /* maximum source tokens and sentences of a batch */
  bool packed;
  size_t streams;      /* maximum number of batches that are searched at the same time */
  BatchArrays *arrays; /* (streams) */
  /* number of lines in earlier runs; number of the first truncated line */
  uint64_t lines, first_cut;
  atomic_size_t done; /* lines of this run whose search has ended */
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

/* Consecutive items that are searched together. */
typedef struct {
  size_t first, count;
} Group;

/* The lines of the current run, sorted by length, in batches. */
typedef struct {
  Translator *t;
  const IdList *ids;
  const Item *item;
  Group *group;
  size_t groups;
  Result *result;
} Search;

void translator_batch(const Backend *b, size_t batch_rows, size_t longest, int beam,
                      size_t *rows, size_t *sentences) {
  size_t most = (b->host ? STEP_ROWS : STEP_ROWS_DEVICE) / (size_t)(beam > 0 ? beam : 1);
  if (batch_rows == 0) batch_rows = b->host ? BATCH_TOKENS : BATCH_TOKENS_DEVICE;
  *rows = batch_rows > longest ? batch_rows : longest;
  *sentences = *rows / 16 + 1 < most ? *rows / 16 + 1 : most;
}

void translator_fit_batch(const TransformerConfig *config, const Backend *b,
                          const BeamSpec *spec, size_t *rows, size_t *sentences) {
  size_t least = (size_t)config->max_positions;
  BeamPoolSpec pool = {.config = config, .backend = b, .spec = spec};
  while (!b->host && *rows > least) {
    pool.tokens = *rows;
    pool.sentences = *sentences;
    if (beam_pool_fits(&pool, 0)) return;
    *rows = *rows / 2 > least ? *rows / 2 : least;
    *sentences = *sentences > 1 ? *sentences / 2 : 1;
  }
}

static Err new_arrays(Translator *t, BatchArrays *a) {
  TRY(mem_alloc(&a->src, t->max_tokens, sizeof *a->src));
  TRY(mem_alloc(&a->off, t->max_sentences + 1, sizeof *a->off));
  TRY(mem_alloc(&a->line, t->max_sentences, sizeof *a->line));
  return mem_alloc(&a->best, t->max_sentences * (size_t)t->spec.nbest, sizeof *a->best);
}

/* Creates a translator whose pool has at most `streams` streams. */
static Err new_translator(Translator **out, const TransformerConfig *config,
                          const Backend *backend, Weights w, const Tokenizer *tokenizer,
                          const BeamSpec *spec, const TranslateRoom *room, size_t streams) {
  *out = NULL;
  Translator *t;
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->config = *config;
  t->backend = *backend;
  t->tokenizer = tokenizer;
  t->spec = *spec;
  t->max_tokens = room->tokens;
  t->max_sentences = room->sentences;
  BeamPoolSpec pool = {.config = &t->config,
                       .backend = &t->backend,
                       .weights = w,
                       .spec = &t->spec,
                       .tokens = room->tokens,
                       .sentences = room->sentences,
                       .words = room->words};
  Err err;
  TRY_DONE(beam_pool_new(&t->pool, &pool, streams));
  TRY_DONE(mem_alloc(&t->arrays, beam_pool_streams(t->pool), sizeof *t->arrays));
  t->streams = beam_pool_streams(t->pool);
  for (size_t i = 0; i < t->streams; i++) TRY_DONE(new_arrays(t, &t->arrays[i]));
done:
  if (err)
    translator_free(t);
  else
    *out = t;
  return err;
}

Err translator_new(Translator **out, const TransformerConfig *config, const Backend *backend,
                   Weights w, const Tokenizer *tokenizer, const BeamSpec *spec,
                   size_t batch_rows) {
  TranslateRoom room = {0}; /* With words = 0 the KV cache grows as needed. */
  translator_batch(backend, batch_rows, (size_t)config->max_positions, spec->beam_size,
                   &room.tokens, &room.sentences);
  if (!batch_rows) translator_fit_batch(config, backend, spec, &room.tokens, &room.sentences);
  return new_translator(out, config, backend, w, tokenizer, spec, &room,
                        beam_pool_default_streams(backend));
}

Err translator_new_for(Translator **out, const TransformerConfig *config,
                       const Backend *backend, Weights w, const Tokenizer *tokenizer,
                       const BeamSpec *spec, const TranslateRoom *room) {
  return new_translator(out, config, backend, w, tokenizer, spec, room, 1);
}

void translator_free(Translator *t) {
  if (!t) return;
  beam_pool_free(t->pool);
  for (size_t i = 0; i < t->streams; i++) {
    BatchArrays *a = &t->arrays[i];
    mem_free(a->src);
    mem_free(a->off);
    mem_free(a->line);
    mem_free(a->best);
  }
  mem_free(t->arrays);
  mem_free(t);
}

void translator_on_step(Translator *t, BeamStep step, void *context) {
  beam_pool_on_step(t->pool, step, context);
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

/* Copies the ids of a batch to `a`. */
static void fill_arrays(const Search *s, const Group *g, BatchArrays *a) {
  size_t rows = 0;
  a->off[0] = 0;
  for (size_t i = 0; i < g->count; i++) {
    const Item *item = &s->item[g->first + i];
    memcpy(a->src + rows, s->ids->id + item->at, item->len * sizeof *a->src);
    rows += item->len;
    a->src[rows++] = s->t->config.eos;
    a->off[i + 1] = (int32_t)rows;
    a->line[i] = s->t->lines + item->index + 1;
  }
}

static Err decode_result(const Translator *t, const Hypothesis *h, Result *result) {
  Str text = {0};
  Err err = h->id ? tokenizer_decode(t->tokenizer, h->id, h->len, &text) : ERR_OK;
  if (!err) err = mem_dup(&result->text, str_text(&text), text.len);
  result->score = h->score;
  str_free(&text);
  return err;
}

/* Translates one batch and stores the texts in `result` (PoolSearch). */
static Err search_group(void *search, Beam *beam, size_t stream, size_t index) {
  const Search *s = search;
  Translator *t = s->t;
  const Group *g = &s->group[index];
  BatchArrays *a = &t->arrays[stream];
  size_t nbest = (size_t)t->spec.nbest;
  fill_arrays(s, g, a);
  beam_set_lines(beam, a->line);
  TRY(beam_search(beam, a->src, a->off, g->count, a->best));
  for (size_t i = 0; i < g->count; i++) {
    Result *result = s->result + s->item[g->first + i].result;
    for (size_t k = 0; k < nbest; k++)
      TRY(decode_result(t, &a->best[i * nbest + k], &result[k]));
  }
  atomic_fetch_add(&t->done, g->count);
  return ERR_OK;
}

/* Divides the n sorted items into batches. */
static Err form_groups(Search *s, size_t n) {
  const Translator *t = s->t;
  for (size_t i = 0; i < n && s->item[i].len;) {
    Group g = {.first = i};
    size_t rows = 0;
    for (; i < n && fits_batch(t->max_tokens, t->max_sentences, g.count, rows, s->item[i].len);
         i++, g.count++)
      rows += s->item[i].len + 1;
    if (!g.count)
      return err_set(
          ERR_WORK,
          "bug: a line of %zu ids does not fit into a batch of %zu tokens; please report it",
          s->item[i].len, t->max_tokens);
    s->group[s->groups++] = g;
  }
  return ERR_OK;
}

static Err search_all(Translator *t, const IdList *ids, Item *item, size_t n, Result *result) {
  Search s = {.t = t, .ids = ids, .item = item, .result = result};
  qsort(item, n, sizeof *item, by_length);
  TRY(mem_alloc(&s.group, n, sizeof *s.group));
  Err err = form_groups(&s, n);
  if (!err) err = beam_pool_run(t->pool, s.groups, search_group, &s);
  mem_free(s.group);
  return err;
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
  if (!t->packed || !t->spec.fixed_weights) TRY_DONE(beam_pool_pack(t->pool));
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
