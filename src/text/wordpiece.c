/* BERT's tokenizer: cleans text, splits it into words and divides words into pieces. Each distinct
 * chunk of text between ASCII white space is encoded once and cached. Depends on bert_chars,
 * wordpiece_vocab, wordcache, base, utf8proc. */
#include "text/wordpiece.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "text/bert_chars.h"
#include "text/wordcache.h"
#include "text/wordpiece_vocab.h"

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>
#endif

#define MOST_CHARS 100 /* a longer word is [UNK], as in BERT */
#define MOST_PARTS 32  /* characters into which Unicode decomposes one; at most 4 so far */

/* The special pieces, by their names in the vocabulary. */
enum { PAD, UNK, CLS, SEP, MASK, SPECIALS };
static const char *const special_name[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                   "[MASK]"};

/* State of the encoding of one chunk. */
typedef struct {
  const Wordpiece *w;
  IdList *ids;
  uint32_t *word; /* code points of the current word */
  size_t chars, capacity;
  Str bytes; /* the current word in UTF-8 */
} Encoder;

/* --- vocabulary --- */

static Err check_rules(WordpieceRules rules) {
#ifndef HAVE_UTF8PROC
  if (rules.is_lower || rules.strips_accents)
    return err_set(
        ERR_WORK,
        "an uncased tokenizer needs Unicode tables, and this trireme was built without "
        "utf8proc; install libutf8proc-dev and build it again");
#endif
  (void)rules;
  return ERR_OK;
}

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
                   WordpieceRules rules) {
  Err err;
  *w = (Wordpiece){.rules = rules};
  TRY(check_rules(rules));
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

Err wordpiece_open(Wordpiece *w, const char *path, WordpieceRules rules) {
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

static Err end_word(Encoder *e) {
  size_t chars = e->chars;
  e->chars = 0;
  if (chars == 0) return ERR_OK;
  if (chars > MOST_CHARS) return add_id(e, e->w->unk);
  str_clear(&e->bytes);
  for (size_t i = 0; i < chars; i++) {
    char utf8[4];
    str_addn(&e->bytes, utf8, utf8_encode(e->word[i], utf8));
  }
  TRY(str_check(&e->bytes));
  return add_pieces(e, e->bytes.s, e->bytes.len);
}

/* --- text to words --- */

static int combining_class(uint32_t code) {
#ifdef HAVE_UTF8PROC
  return utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
#else
  (void)code;
  return 0;
#endif
}

/* Appends a character to the current word. With decomposition, combining characters are kept in
 * Unicode's canonical order. */
static Err add_char(Encoder *e, uint32_t code) {
  TRY(mem_grow(&e->word, &e->capacity, e->chars + 1, sizeof *e->word));
  size_t at = e->chars++;
  if (code >= 0x300 && e->w->rules.strips_accents) {
    int class = combining_class(code);
    for (; class && at && combining_class(e->word[at - 1]) > class; at--)
      e->word[at] = e->word[at - 1];
  }
  e->word[at] = code;
  return ERR_OK;
}

/* Appends a character in the case of the vocabulary; punctuation becomes a word. */
static Err add_split(Encoder *e, uint32_t code) {
  if (bert_is_punctuation(code)) {
    TRY(end_word(e));
    TRY(add_char(e, code));
    return end_word(e);
  }
  return add_char(e, code);
}

#ifdef HAVE_UTF8PROC
static Err add_lower(Encoder *e, uint32_t code) {
  if (!e->w->rules.is_lower) return add_split(e, code);
  /* The only letter whose lower case has two characters: I with a dot. */
  if (code == 0x130) {
    TRY(add_split(e, 'i'));
    return add_split(e, 0x307);
  }
  return add_split(e, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
}

/* Decomposes the character (NFD), removes accents, and changes the case, in this order. */
static Err add_normalized(Encoder *e, uint32_t code) {
  utf8proc_int32_t part[MOST_PARTS];
  int boundary = 0;
  if (!e->w->rules.strips_accents) return add_lower(e, code);
  utf8proc_ssize_t parts = utf8proc_decompose_char((utf8proc_int32_t)code, part, MOST_PARTS,
                                                   UTF8PROC_DECOMPOSE, &boundary);
  if (parts < 1 || parts > MOST_PARTS) return add_lower(e, code);
  for (utf8proc_ssize_t i = 0; i < parts; i++)
    if (!bert_is_mark((uint32_t)part[i])) TRY(add_lower(e, (uint32_t)part[i]));
  return ERR_OK;
}
#else
static Err add_normalized(Encoder *e, uint32_t code) {
  return add_split(e, code);
}
#endif

static Err take_char(Encoder *e, uint32_t code) {
  if (code < 0x80 && code > ' ' && code != 0x7f) {
    bool is_upper = code >= 'A' && code <= 'Z';
    return add_split(e, is_upper && e->w->rules.is_lower ? code + 32 : code);
  }
  if (bert_is_removed(code)) return ERR_OK;
  if (bert_is_space(code)) return end_word(e);
  if (!bert_is_cjk(code)) return add_normalized(e, code);
  TRY(end_word(e));
  TRY(add_normalized(e, code));
  return end_word(e);
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

/* Appends the ids of a text of any characters. */
static Err encode_chunk(Encoder *e, const char *text, size_t len) {
  const char *end = text + len;
  uint32_t code;
  for (const char *at = text; at < end;) {
    size_t n;
    int special = *at == '[' ? find_special(e->w, at, end, &n) : -1;
    if (special >= 0) {
      TRY(end_word(e));
      TRY(add_id(e, special));
      at += n;
      continue;
    }
    n = utf8_decode(at, end, &code);
    if (n) TRY(take_char(e, code));
    at += n ? n : 1;
  }
  return end_word(e);
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
  Encoder e = {.w = w, .ids = ids};
  Err err = ERR_OK;
  for (size_t at = 0; at < len && !err;) {
    size_t end = at;
    while (end < len && !is_ascii_space(text[end])) end++;
    if (end > at) err = encode_cached(&e, text + at, end - at);
    at = end + 1;
  }
  mem_free(e.word);
  str_free(&e.bytes);
  return err;
}
