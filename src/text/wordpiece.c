/* BERT's tokenizer: divides the words of a text into pieces. Each distinct chunk of text between ASCII
 * white space is encoded once and cached. Depends on bert_words, wordpiece_vocab, wordcache, base. */
#include "text/wordpiece.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "text/wordcache.h"
#include "text/wordpiece_vocab.h"

#define MOST_CHARS 100 /* a longer word is [UNK], as in BERT */

/* The special pieces, by their names in the vocabulary. */
enum { PAD, UNK, CLS, SEP, MASK, SPECIALS };
static const char *const special_name[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                   "[MASK]"};

/* State of the encoding of one chunk. */
typedef struct {
  const Wordpiece *w;
  IdList *ids;
  BertSplitter splitter;
} Encoder;

/* --- vocabulary --- */

static Err find_specials(Wordpiece *w, const char *where) {
  int id[SPECIALS];
  for (int i = 0; i < SPECIALS; i++) {
    id[i] = wordpiece_vocab_find(w->vocab_, special_name[i]);
    bool is_needed = i == UNK || i == CLS || i == SEP;
    if (id[i] < 0 && is_needed)
      return err_set(ERR_WORK, "%s has no line %s; use the vocab.txt of a BERT model", where,
                     special_name[i]);
  }
  w->pad = id[PAD];
  w->unk = id[UNK];
  w->cls = id[CLS];
  w->sep = id[SEP];
  w->mask = id[MASK];
  return ERR_OK;
}

Err wordpiece_read(Wordpiece *w, const char *bytes, size_t len, const char *where,
                   BertRules rules) {
  Err err;
  *w = (Wordpiece){.rules = rules};
  TRY(bert_check_rules(rules));
  TRY_DONE(wordpiece_vocab_read(&w->vocab_, bytes, len, where));
  TRY_DONE(find_specials(w, where));
  TRY_DONE(wordcache_new(&w->cache_));
  w->vocab = wordpiece_vocab_size(w->vocab_);
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, bytes, len);
  sha256_end(&sha, w->sha256);
done:
  if (err) wordpiece_close(w);
  return err;
}

Err wordpiece_open(Wordpiece *w, const char *path, BertRules rules) {
  Str bytes = {0};
  *w = (Wordpiece){0};
  Err err = place_read_all(path, WORDPIECE_LIMIT, &bytes);
  if (!err) err = wordpiece_read(w, str_text(&bytes), bytes.len, path, rules);
  str_free(&bytes);
  return err;
}

void wordpiece_close(Wordpiece *w) {
  wordcache_free(w->cache_);
  wordpiece_vocab_free(w->vocab_);
  *w = (Wordpiece){0};
}

const char *wordpiece_piece(const Wordpiece *w, int32_t id) {
  return wordpiece_vocab_piece(w->vocab_, id);
}

/* --- words to pieces --- */

static Err add_id(Encoder *e, int32_t id) {
  IdList *ids = e->ids;
  TRY(mem_grow(&ids->id, &ids->cap, ids->len + 1, sizeof *ids->id));
  ids->id[ids->len++] = id;
  return ERR_OK;
}

/* Appends the pieces of the word, or [UNK] if a part of it is in no piece. */
static Err add_pieces(Encoder *e, const char *word, size_t len) {
  size_t begin = e->ids->len, n;
  for (size_t at = 0; at < len; at += n) {
    WordpiecePlace place = at ? WORDPIECE_CONTINUES : WORDPIECE_BEGINS;
    int id = wordpiece_vocab_longest(e->w->vocab_, place, word + at, len - at, &n);
    if (id < 0) {
      e->ids->len = begin;
      return add_id(e, e->w->unk);
    }
    TRY(add_id(e, id));
  }
  return ERR_OK;
}

static Err take_word(void *context, const char *word, size_t len, size_t chars) {
  Encoder *e = context;
  return chars > MOST_CHARS ? add_id(e, e->w->unk) : add_pieces(e, word, len);
}

/* Returns the id of the special piece whose name is at the beginning of the text, and its length; -1
 * if there is none. */
static int find_special(const Wordpiece *w, const char *at, const char *end, size_t *n) {
  const int id[SPECIALS] = {w->pad, w->unk, w->cls, w->sep, w->mask};
  for (int i = 0; i < SPECIALS; i++) {
    *n = strlen(special_name[i]);
    if (id[i] >= 0 && (size_t)(end - at) >= *n && memcmp(at, special_name[i], *n) == 0)
      return id[i];
  }
  return -1;
}

/* Appends the ids of a text of any characters: the words before, between and after special pieces. */
static Err encode_chunk(Encoder *e, const char *text, size_t len) {
  const char *end = text + len, *begin = text;
  for (const char *at = text; at < end;) {
    size_t n = 1;
    int special = *at == '[' ? find_special(e->w, at, end, &n) : -1;
    if (special >= 0) {
      TRY(bert_split(&e->splitter, begin, (size_t)(at - begin)));
      TRY(add_id(e, special));
      begin = at + n;
    }
    at += special >= 0 ? n : 1;
  }
  return bert_split(&e->splitter, begin, (size_t)(end - begin));
}

static Err encode_cached(Encoder *e, const char *chunk, size_t len) {
  IdList *ids = e->ids;
  uint64_t hash = rng_hash(chunk, len, 0);
  size_t n;
  const int32_t *known = wordcache_find(e->w->cache_, chunk, len, hash, &n);
  if (known) {
    TRY(mem_grow(&ids->id, &ids->cap, ids->len + n, sizeof *ids->id));
    if (n) memcpy(ids->id + ids->len, known, n * sizeof *known);
    ids->len += n;
    return ERR_OK;
  }
  size_t begin = ids->len;
  TRY(encode_chunk(e, chunk, len));
  if (ids->len > begin)
    wordcache_add(e->w->cache_, chunk, len, hash, ids->id + begin, ids->len - begin);
  return ERR_OK;
}

static bool is_ascii_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

Err wordpiece_encode(const Wordpiece *w, const char *text, size_t len, IdList *ids) {
  Encoder e = {.w = w, .ids = ids, .splitter = {.rules = w->rules, .take = take_word}};
  e.splitter.context = &e;
  Err err = ERR_OK;
  for (size_t at = 0; at < len && !err;) {
    size_t end = at;
    while (end < len && !is_ascii_space(text[end])) end++;
    if (end > at) err = encode_cached(&e, text + at, end - at);
    at = end + 1;
  }
  bert_splitter_free(&e.splitter);
  return err;
}
