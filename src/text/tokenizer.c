/* The tokenizer: SentencePiece with a cache of encoded words. Depends on sp_shim, sp_facts,
 * tokenizer_pair, wordcache, base. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "text/sp_facts.h"
#include "text/sp_shim.h"
#include "text/tokenizer_pair.h"
#include "text/wordcache.h"

void ids_free(IdList *ids) {
  mem_free(ids->id);
  *ids = (IdList){0};
}

static bool put_id(void *context, int32_t id) {
  IdList *ids = context;
  if (mem_grow(&ids->id, &ids->cap, ids->len + 1, sizeof *ids->id)) return false;
  ids->id[ids->len++] = id;
  return true;
}

Err tokenizer_open(Tokenizer *t, const char *path) {
  *t = (Tokenizer){0};
  Str bytes = {0};
  SpFacts facts;
  Err err;
  TRY_DONE(place_read_all(path, TOKENIZER_LIMIT, &bytes));
  TRY_DONE(sp_facts(&facts, str_text(&bytes), bytes.len, path));
  TRY_DONE(sp_load(&t->model_, str_text(&bytes), bytes.len, path));
  t->vocab = facts.pieces;
  t->pad = facts.pad;
  t->bos = facts.bos;
  t->eos = facts.eos;
  t->unk = facts.unk;
  t->type = facts.type;
  t->by_word = facts.by_word;
  memcpy(t->joins, facts.joins, sizeof t->joins);
  if (sp_size(t->model_) != t->vocab) {
    err =
        err_set(ERR_WORK,
                "%s: SentencePiece reads %d pieces where the file has %d; copy the file again",
                path, sp_size(t->model_), t->vocab);
    goto done;
  }
  if (t->eos < 0) {
    err = err_set(ERR_WORK,
                  "%s has no end-of-sentence piece </s>; train the model with an eos_id", path);
    goto done;
  }
  if (t->by_word) TRY_DONE(wordcache_new(&t->cache_));
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, str_text(&bytes), bytes.len);
  sha256_end(&sha, t->sha256);
done:
  str_free(&bytes);
  if (err) tokenizer_close(t);
  return err;
}

Err tokenizer_open_pair(Tokenizer *t, const char *dir) {
  *t = (Tokenizer){.pad = -1, .bos = -1, .unk = -1, .type = "pair"};
  TRY(tokenizer_pair_open(&t->pair_, dir, t->sha256));
  t->vocab = tokenizer_pair_vocab(t->pair_);
  t->pad = tokenizer_pair_find(t->pair_, "<pad>");
  t->eos = tokenizer_pair_find(t->pair_, "</s>");
  t->unk = tokenizer_pair_find(t->pair_, "<unk>");
  if (t->eos >= 0 && t->unk >= 0) return ERR_OK;
  bool lacks_eos = t->eos < 0;
  tokenizer_close(t);
  return err_set(ERR_WORK, "%s/vocab.json lacks %s; copy the model again", dir,
                 lacks_eos ? "</s>" : "<unk>");
}

const char *tokenizer_piece(const Tokenizer *t, int32_t id) {
  if (t->pair_) return tokenizer_pair_piece(t->pair_, id);
  return id >= 0 && id < t->vocab ? sp_piece(t->model_, id) : NULL;
}

void tokenizer_close(Tokenizer *t) {
  tokenizer_pair_close(t->pair_);
  wordcache_free(t->cache_);
  if (t->model_) sp_free(t->model_);
  *t = (Tokenizer){0};
}

/* Appends the ids of a word, without its first unk if the last id so far is unk: SentencePiece
 * encodes a run of unknown characters as one unk, also across a space. */
static Err add_word(const Tokenizer *t, size_t begin, const int32_t *id, size_t n,
                    IdList *ids) {
  bool continues = n && id[0] == t->unk && ids->len > begin && ids->id[ids->len - 1] == t->unk;
  if (continues) {
    id++;
    n--;
  }
  TRY(mem_grow(&ids->id, &ids->cap, ids->len + n, sizeof *ids->id));
  if (n) memcpy(ids->id + ids->len, id, n * sizeof *id);
  ids->len += n;
  return ERR_OK;
}

static Err encode_word(const Tokenizer *t, size_t begin, const char *word, size_t len,
                       uint64_t hash, IdList *ids) {
  size_t n;
  const int32_t *known = wordcache_find(t->cache_, word, len, hash, &n);
  if (known) return add_word(t, begin, known, n, ids);
  IdList fresh = {0};
  Err err = sp_encode(t->model_, word, len, put_id, &fresh);
  if (!err) wordcache_add(t->cache_, word, len, hash, fresh.id, fresh.len);
  if (!err) err = add_word(t, begin, fresh.id, fresh.len, ids);
  ids_free(&fresh);
  return err;
}

Err tokenizer_encode(const Tokenizer *t, const char *text, size_t len, IdList *ids) {
  if (t->pair_) return tokenizer_pair_encode(t->pair_, text, len, ids);
  if (!t->by_word) return sp_encode(t->model_, text, len, put_id, ids);
  /* Most words are in the cache, and cache lookups are bound by memory latency. Words are
   * therefore processed in groups of 32: all words of a group are hashed first, and their slots
   * and entries are prefetched. */
  enum { GROUP = 32 };
  size_t begin = ids->len, at = 0;
  while (at < len) {
    size_t word[GROUP], size[GROUP], n = 0;
    uint64_t hash[GROUP];
    for (; n < GROUP && at < len; n++) {
      const char *space = memchr(text + at, ' ', len - at);
      word[n] = at;
      size[n] = space ? (size_t)(space - text) - at : len - at;
      hash[n] = rng_hash(text + at, size[n], 0);
      wordcache_fetch_slot(t->cache_, hash[n]);
      if (t->joins[(unsigned char)text[at]]) {
        ids->len = begin;
        return sp_encode(t->model_, text, len, put_id, ids);
      }
      at += size[n] + 1;
    }
    for (size_t i = 0; i < n; i++) wordcache_fetch_entry(t->cache_, hash[i]);
    for (size_t i = 0; i < n; i++)
      TRY(encode_word(t, begin, text + word[i], size[i], hash[i], ids));
  }
  return ERR_OK;
}

Err tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t n, Str *text) {
  if (t->pair_) return tokenizer_pair_decode(t->pair_, ids, n, text);
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0 || ids[i] >= t->vocab) {
      return err_set(
          ERR_WORK,
          "id %d is outside the vocabulary of %d pieces; use the tokenizer of this model",
          ids[i], t->vocab);
    }
  }
  return sp_decode(t->model_, ids, n, text);
}

Err tokenizer_train(const TokenizerTraining *spec,
                    bool (*next)(void *, const char **, size_t *), void *context,
                    const char *path) {
  Str model = {0};
  Err err = sp_train(spec, next, context, &model);
  if (!err) err = file_write(path, model.s, model.len);
  str_free(&model);
  return err;
}
