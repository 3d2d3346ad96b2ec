/* RoBERTa's tokenizer: finds added tokens, splits the text between them into words and merges their
 * bytes. Each distinct word is encoded once and cached. Depends on byte_words, byte_bpe_vocab,
 * wordcache, base. */
#include "text/byte_bpe.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "text/byte_bpe_parts.h"
#include "text/byte_bpe_vocab.h"
#include "text/byte_words.h"
#include "text/wordcache.h"

/* A piece of the word that is being merged; `next` is the index of the following one. */
typedef struct {
  int32_t id, previous, next; /* -1: none; id -1: was merged into another */
} Symbol;

/* A merge that is possible, or was: the symbols may have changed since. */
typedef struct {
  uint32_t rank;
  int32_t at; /* index of the left symbol */
} Candidate;

typedef struct {
  const ByteVocab *v;
  struct WordCache *cache;
  IdList *ids;
  Symbol *symbol;
  Candidate *heap; /* the first has the lowest rank and, of equal ones, the lowest index */
  size_t candidates, symbol_capacity, heap_capacity;
  Str spaced; /* a text with a space before it */
} Encoder;

/* ---- opening ---- */

static Err find_specials(ByteBpe *b, const char *where) {
  static const char *const name[] = {"<pad>", "<unk>", "<s>", "</s>", "<mask>"};
  int *id[] = {&b->pad, &b->unk, &b->cls, &b->sep, &b->mask};
  const ByteVocab *v = b->vocab_;
  for (size_t i = 0; i < 5; i++) *id[i] = byte_vocab_find(v, name[i], strlen(name[i]));
  if (b->cls >= 0 && b->sep >= 0) return ERR_OK;
  return err_set(ERR_WORK, "%s has no piece %s; use the tokenizer of a RoBERTa model", where,
                 b->cls < 0 ? "<s>" : "</s>");
}

/* Allocates what a tokenizer consists of. */
static Err allocate_parts(ByteBpe *b) {
  *b = (ByteBpe){0};
  TRY(wordcache_new(&b->cache_));
  return mem_alloc(&b->vocab_, 1, sizeof *b->vocab_);
}

/* Sets the size of the vocabulary and the ids of its special pieces. */
static Err set_ids(ByteBpe *b, const char *where) {
  b->vocab = (int)b->vocab_->ids;
  return find_specials(b, where);
}

Err byte_bpe_read(ByteBpe *b, const char *bytes, size_t len, const char *where) {
  Err err;
  Sha256 sha;
  TRY_DONE(allocate_parts(b));
  TRY_DONE(byte_vocab_read(b->vocab_, bytes, len, where));
  TRY_DONE(set_ids(b, where));
  sha256_begin(&sha);
  sha256_add(&sha, bytes, len);
  sha256_end(&sha, b->sha256);
done:
  if (err) byte_bpe_close(b);
  return err;
}

Err byte_bpe_open(ByteBpe *b, const char *path) {
  Str bytes = {0};
  *b = (ByteBpe){0};
  Err err = place_read_all(path, BYTE_BPE_LIMIT, &bytes);
  if (!err) err = byte_bpe_read(b, str_text(&bytes), bytes.len, path);
  str_free(&bytes);
  return err;
}

static Err read_pair(ByteBpe *b, const char *json_path, const char *merges_path) {
  Str json = {0}, merges = {0};
  Err err;
  TRY_DONE(place_read_all(json_path, BYTE_BPE_LIMIT, &json));
  TRY_DONE(place_read_all(merges_path, BYTE_BPE_LIMIT, &merges));
  TRY_DONE(allocate_parts(b));
  TRY_DONE(byte_vocab_read_pair(b->vocab_, &json, json_path, &merges, merges_path));
  err = set_ids(b, json_path);
done:
  str_free(&json);
  str_free(&merges);
  if (err) byte_bpe_close(b);
  return err;
}

/* Reads "add_prefix_space" of tokenizer_config.json. Integers are read as reals, because the file may
 * have some of more than 64 bits. */
static Err read_settings(ByteBpe *b, const char *path) {
  Str bytes = {0};
  json_error_t error;
  Err err = place_read_all(path, BYTE_BPE_LIMIT, &bytes);
  if (!err) err = jsondoc_check(str_text(&bytes), bytes.len, path);
  if (!err) {
    json_t *root = json_loadb(str_text(&bytes), bytes.len, JSON_DECODE_INT_AS_REAL, &error);
    if (!json_is_object(root))
      err = err_set(ERR_WORK, "%s is not a JSON object; copy the model again", path);
    else
      err = byte_vocab_read_flag(root, "add_prefix_space", /*fallback=*/false, path,
                                 &b->vocab_->adds_space);
    json_decref(root);
  }
  str_free(&bytes);
  return err;
}

/* Writes the path of a file beside `path`, or in it if it is a directory. */
static Err join_beside(char out[FILE_PATH_MAX], const char *path, const char *name) {
  const char *slash = str_ends(path, ".json") ? strrchr(path, '/') : path + strlen(path);
  char dir[FILE_PATH_MAX];
  if (!slash) return file_join(out, ".", name);
  if ((size_t)(slash - path) >= sizeof dir)
    return err_set(ERR_WORK, "%s: the path is too long", path);
  snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
  return file_join(out, slash == path ? "/" : dir, name);
}

Err byte_bpe_import(ByteBpe *b, const char *path) {
  char json[FILE_PATH_MAX], vocab[FILE_PATH_MAX], merges[FILE_PATH_MAX];
  char settings[FILE_PATH_MAX];
  bool is_vocab = str_ends(path, ".json") && !str_ends(path, "tokenizer.json");
  *b = (ByteBpe){0};
  TRY(join_beside(json, path, "tokenizer.json"));
  TRY(join_beside(vocab, path, "vocab.json"));
  TRY(join_beside(merges, path, "merges.txt"));
  TRY(join_beside(settings, path, "tokenizer_config.json"));
  bool is_pair = is_vocab || (!str_ends(path, ".json") && !place_exists(json));
  if (is_pair && (!place_exists(is_vocab ? path : vocab) || !place_exists(merges)))
    return err_set(ERR_WORK,
                   "%s: there is neither tokenizer.json nor vocab.json with merges.txt; copy "
                   "the tokenizer's files of the RoBERTa model",
                   path);
  if (is_pair)
    TRY(read_pair(b, is_vocab ? path : vocab, merges));
  else
    TRY(byte_bpe_open(b, str_ends(path, ".json") ? path : json));
  Err err = place_exists(settings) ? read_settings(b, settings) : ERR_OK;
  if (err) byte_bpe_close(b);
  return err;
}

void byte_bpe_close(ByteBpe *b) {
  wordcache_free(b->cache_);
  if (b->vocab_) byte_vocab_free(b->vocab_);
  mem_free(b->vocab_);
  *b = (ByteBpe){0};
}

const char *byte_bpe_piece(const ByteBpe *b, int32_t id) {
  const ByteVocab *v = b->vocab_;
  if (id < 0 || (size_t)id >= v->ids || v->piece[id] == UINT32_MAX) return NULL;
  return stringmap_text(&v->pieces, v->piece[id]);
}

Err byte_bpe_print(const ByteBpe *b, Str *out) {
  return byte_vocab_print(b->vocab_, out);
}

Err byte_bpe_print_vocab(const ByteBpe *b, Str *out) {
  return byte_vocab_print_pieces(b->vocab_, out);
}

Err byte_bpe_print_merges(const ByteBpe *b, Str *out) {
  return byte_vocab_print_merges(b->vocab_, out);
}

bool byte_bpe_adds_space(const ByteBpe *b) {
  return b->vocab_->adds_space;
}

/* ---- merges ---- */

static bool is_before(Candidate a, Candidate b) {
  return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void swap_candidates(Candidate *a, Candidate *b) {
  Candidate kept = *a;
  *a = *b;
  *b = kept;
}

/* Adds the merge of the symbol at `at` with the following one, if there is such a merge. */
static Err push_candidate(Encoder *e, int32_t at) {
  int32_t next = at < 0 ? -1 : e->symbol[at].next;
  if (next < 0) return ERR_OK;
  uint32_t rank = byte_vocab_rank(e->v, e->symbol[at].id, e->symbol[next].id);
  if (rank == UINT32_MAX) return ERR_OK;
  TRY(mem_grow(&e->heap, &e->heap_capacity, e->candidates + 1, sizeof *e->heap));
  size_t i = e->candidates++;
  e->heap[i] = (Candidate){.rank = rank, .at = at};
  for (; i && is_before(e->heap[i], e->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap_candidates(&e->heap[i], &e->heap[(i - 1) / 2]);
  return ERR_OK;
}

static Candidate pop_candidate(Encoder *e) {
  Candidate first = e->heap[0];
  e->heap[0] = e->heap[--e->candidates];
  for (size_t i = 0;;) {
    size_t child = 2 * i + 1;
    if (child + 1 < e->candidates && is_before(e->heap[child + 1], e->heap[child])) child++;
    if (child >= e->candidates || !is_before(e->heap[child], e->heap[i])) return first;
    swap_candidates(&e->heap[i], &e->heap[child]);
    i = child;
  }
}

/* Merges the symbol with the following one, unless one of them has changed since. */
static Err apply_candidate(Encoder *e, Candidate c) {
  Symbol *left = &e->symbol[c.at];
  if (left->id < 0 || left->next < 0) return ERR_OK;
  Symbol *right = &e->symbol[left->next];
  if (byte_vocab_rank(e->v, left->id, right->id) != c.rank) return ERR_OK;
  left->id = e->v->merge[c.rank].id;
  left->next = right->next;
  right->id = -1;
  if (left->next >= 0) e->symbol[left->next].previous = c.at;
  TRY(push_candidate(e, left->previous));
  return push_candidate(e, c.at);
}

/* Makes symbols of the bytes of a word; returns how many there are. */
static Err begin_symbols(Encoder *e, const char *word, size_t len, int32_t *symbols) {
  int32_t n = 0;
  TRY(mem_grow(&e->symbol, &e->symbol_capacity, len, sizeof *e->symbol));
  for (size_t i = 0; i < len; i++) {
    int32_t id = e->v->byte[(unsigned char)word[i]];
    if (id < 0) id = e->v->unknown;
    if (id < 0) continue;
    e->symbol[n] = (Symbol){.id = id, .previous = n - 1, .next = n + 1};
    n++;
  }
  if (n) e->symbol[n - 1].next = -1;
  *symbols = n;
  return ERR_OK;
}

static Err add_id(Encoder *e, int32_t id) {
  IdList *ids = e->ids;
  TRY(mem_grow(&ids->id, &ids->cap, ids->len + 1, sizeof *ids->id));
  ids->id[ids->len++] = id;
  return ERR_OK;
}

static Err merge_word(Encoder *e, const char *word, size_t len) {
  int32_t symbols;
  if (len > INT32_MAX) return err_set(ERR_WORK, "a word has more than %d bytes", INT32_MAX);
  TRY(begin_symbols(e, word, len, &symbols));
  e->candidates = 0;
  for (int32_t i = 0; i < symbols; i++) TRY(push_candidate(e, i));
  while (e->candidates) TRY(apply_candidate(e, pop_candidate(e)));
  for (int32_t i = symbols ? 0 : -1; i >= 0; i = e->symbol[i].next)
    TRY(add_id(e, e->symbol[i].id));
  return ERR_OK;
}

static Err encode_word(Encoder *e, const char *word, size_t len) {
  IdList *ids = e->ids;
  uint64_t hash = rng_hash(word, len, 0);
  size_t n, begin = ids->len;
  const int32_t *known = wordcache_find(e->cache, word, len, hash, &n);
  if (known) {
    TRY(mem_grow(&ids->id, &ids->cap, ids->len + n, sizeof *ids->id));
    if (n) memcpy(ids->id + ids->len, known, n * sizeof *known);
    ids->len += n;
    return ERR_OK;
  }
  TRY(merge_word(e, word, len));
  if (ids->len > begin)
    wordcache_add(e->cache, word, len, hash, ids->id + begin, ids->len - begin);
  return ERR_OK;
}

/* ---- texts ---- */

static Err encode_words(Encoder *e, const char *at, const char *end) {
  while (at < end) {
    const char *stop = byte_word_end(at, end);
    TRY(encode_word(e, at, (size_t)(stop - at)));
    at = stop;
  }
  return ERR_OK;
}

/* Encodes text without added tokens. */
static Err encode_plain(Encoder *e, const char *at, const char *end) {
  if (at == end) return ERR_OK;
  if (!e->v->adds_space || *at == ' ') return encode_words(e, at, end);
  str_clear(&e->spaced);
  str_addc(&e->spaced, ' ');
  str_addn(&e->spaced, at, (size_t)(end - at));
  TRY(str_check(&e->spaced));
  return encode_words(e, e->spaced.s, e->spaced.s + e->spaced.len);
}

/* Returns the longest added token at the beginning of the text; NULL if there is none. */
static const ByteToken *find_token(const ByteVocab *v, bool is_normalized, const char *at,
                                   const char *end) {
  const ByteToken *found = NULL;
  for (size_t i = 0; i < v->tokens; i++) {
    const ByteToken *t = &v->token[i];
    bool is_here = t->is_normalized == is_normalized && (size_t)(end - at) >= t->len &&
                   memcmp(at, t->text, t->len) == 0;
    if (is_here && (!found || t->len > found->len)) found = t;
  }
  return found;
}

static const char *strip_left(const char *begin, const char *at) {
  const char *start = at;
  while (start > begin) {
    const char *last = start - 1;
    uint32_t code = 0;
    while (last > begin && ((unsigned char)*last & 0xc0) == 0x80) last--;
    if (!utf8_decode(last, start, &code) || !utf8_is_space(code)) break;
    start = last;
  }
  return start;
}

static const char *strip_right(const char *at, const char *end) {
  uint32_t code = 0;
  size_t n;
  while (at < end && (n = utf8_decode(at, end, &code)) > 0 && utf8_is_space(code)) at += n;
  return at;
}

/* Encodes the text before, between and after added tokens: first those that are not normalized, then
 * those that are. */
static Err encode_tokens(Encoder *e, bool is_normalized, const char *text, const char *end) {
  const char *begin = text;
  for (const char *at = text; at < end;) {
    bool is_start = e->v->starts_token[(unsigned char)*at];
    const ByteToken *t = is_start ? find_token(e->v, is_normalized, at, end) : NULL;
    if (!t) {
      at++;
      continue;
    }
    const char *stop = t->strips_left ? strip_left(begin, at) : at;
    TRY(is_normalized ? encode_plain(e, begin, stop) : encode_tokens(e, true, begin, stop));
    TRY(add_id(e, t->id));
    begin = at + t->len;
    if (t->strips_right) begin = strip_right(begin, end);
    at = begin;
  }
  return is_normalized ? encode_plain(e, begin, end) : encode_tokens(e, true, begin, end);
}

/* Copies the valid characters of a text. */
static Err remove_invalid(const char *text, size_t len, Str *out) {
  for (size_t at = 0; at < len; at++) {
    size_t n = utf8_valid(text + at, len - at);
    str_addn(out, text + at, n);
    at += n;
  }
  return str_check(out);
}

Err byte_bpe_encode(const ByteBpe *b, const char *text, size_t len, IdList *ids) {
  Encoder e = {.v = b->vocab_, .cache = b->cache_, .ids = ids};
  Str valid = {0};
  Err err = ERR_OK;
  if (utf8_valid(text, len) != len) {
    err = remove_invalid(text, len, &valid);
    text = str_text(&valid);
    len = valid.len;
  }
  if (!err) err = encode_tokens(&e, /*is_normalized=*/false, text, text + len);
  str_free(&valid);
  str_free(&e.spaced);
  mem_free(e.symbol);
  mem_free(e.heap);
  return err;
}
