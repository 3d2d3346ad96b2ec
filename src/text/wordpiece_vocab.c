/* Two hash tables with open addressing: pieces that begin a word, and pieces that continue one,
 * without their "##". Depends on base. */
#include "text/wordpiece_vocab.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Words have at most 100 characters (wordpiece.c), so longer pieces can never match. */
#define MOST_BYTES 400

typedef struct {
  uint32_t at, len; /* position in `text` */
} Piece;

typedef struct {
  int32_t *slot;  /* ids; -1: empty */
  size_t mask;    /* number of slots, which is a power of two, minus 1 */
  size_t longest; /* bytes of the longest key */
} PieceTable;

struct WordpieceVocab {
  char *text; /* all pieces, each followed by NUL */
  Piece *piece;
  size_t pieces;
  PieceTable table[2]; /* by WordpiecePlace */
};

/* FNV-1a, because the hash of a longer prefix continues that of a shorter one. */
#define HASH_BEGIN 0xcbf29ce484222325u
static uint64_t extend_hash(uint64_t hash, unsigned char byte) {
  return (hash ^ byte) * 0x100000001b3u;
}
static size_t first_slot(const PieceTable *t, uint64_t hash) {
  return (size_t)(hash ^ hash >> 32) & t->mask;
}

/* Returns the key of a piece in its table. */
static const char *get_key(const WordpieceVocab *v, int32_t id, WordpiecePlace place,
                           size_t *len) {
  size_t prefix = place == WORDPIECE_CONTINUES ? 2 : 0;
  *len = v->piece[id].len - prefix;
  return v->text + v->piece[id].at + prefix;
}

static size_t find_slot(const WordpieceVocab *v, WordpiecePlace place, uint64_t hash,
                        const char *key, size_t len) {
  const PieceTable *t = &v->table[place];
  size_t i = first_slot(t, hash), n;
  for (; t->slot[i] >= 0; i = (i + 1) & t->mask) {
    const char *other = get_key(v, t->slot[i], place, &n);
    if (n == len && memcmp(other, key, len) == 0) break;
  }
  return i;
}

static void add_piece(WordpieceVocab *v, int32_t id) {
  const Piece *p = &v->piece[id];
  bool continues = p->len > 2 && memcmp(v->text + p->at, "##", 2) == 0;
  WordpiecePlace place = continues ? WORDPIECE_CONTINUES : WORDPIECE_BEGINS;
  PieceTable *t = &v->table[place];
  uint64_t hash = HASH_BEGIN;
  size_t len;
  const char *key = get_key(v, id, place, &len);
  if (len == 0 || len > MOST_BYTES) return;
  for (size_t i = 0; i < len; i++) hash = extend_hash(hash, (unsigned char)key[i]);
  t->slot[find_slot(v, place, hash, key, len)] = id;
  if (len > t->longest) t->longest = len;
}

static Err check_line(const char *line, size_t len, size_t number, const char *where) {
  if (memchr(line, '\0', len))
    return err_set(ERR_WORK, "%s, line %zu: has a NUL byte; this is not a vocabulary", where,
                   number);
  if (utf8_valid(line, len) != len)
    return err_set(ERR_WORK, "%s, line %zu: is not UTF-8; this is not a vocabulary", where,
                   number);
  return ERR_OK;
}

/* Copies the lines to v->text. The copy has at most one byte more than the file: a NUL in place of each
 * line break. */
static Err read_lines(WordpieceVocab *v, const char *bytes, size_t len, const char *where) {
  size_t capacity = 0, used = 0;
  TRY(mem_alloc(&v->text, len + 1, 1));
  for (size_t at = 0; at < len;) {
    const char *end = memchr(bytes + at, '\n', len - at);
    size_t size = end ? (size_t)(end - bytes) - at : len - at, next = at + size + 1;
    if (size && bytes[at + size - 1] == '\r') size--;
    TRY(check_line(bytes + at, size, v->pieces + 1, where));
    TRY(mem_grow(&v->piece, &capacity, v->pieces + 1, sizeof *v->piece));
    v->piece[v->pieces++] = (Piece){.at = (uint32_t)used, .len = (uint32_t)size};
    memcpy(v->text + used, bytes + at, size);
    used += size;
    v->text[used++] = '\0';
    at = next;
  }
  return ERR_OK;
}

static Err index_pieces(WordpieceVocab *v) {
  size_t slots = 64;
  while (slots < 2 * v->pieces) slots *= 2;
  for (int place = 0; place < 2; place++) {
    PieceTable *t = &v->table[place];
    TRY(mem_alloc(&t->slot, slots, sizeof *t->slot));
    memset(t->slot, 0xff, slots * sizeof *t->slot);
    t->mask = slots - 1;
  }
  for (size_t i = 0; i < v->pieces; i++) add_piece(v, (int32_t)i);
  return ERR_OK;
}

Err wordpiece_vocab_read(WordpieceVocab **out, const char *bytes, size_t len,
                         const char *where) {
  WordpieceVocab *v;
  Err err;
  *out = NULL;
  TRY(mem_alloc(&v, 1, sizeof *v));
  TRY_DONE(read_lines(v, bytes, len, where));
  TRY_DONE(index_pieces(v));
done:
  if (err)
    wordpiece_vocab_free(v);
  else
    *out = v;
  return err;
}

void wordpiece_vocab_free(WordpieceVocab *v) {
  if (!v) return;
  for (int place = 0; place < 2; place++) mem_free(v->table[place].slot);
  mem_free(v->piece);
  mem_free(v->text);
  mem_free(v);
}

int wordpiece_vocab_size(const WordpieceVocab *v) {
  return (int)v->pieces;
}

const char *wordpiece_vocab_piece(const WordpieceVocab *v, int32_t id) {
  return id < 0 || (size_t)id >= v->pieces ? NULL : v->text + v->piece[id].at;
}

int wordpiece_vocab_find(const WordpieceVocab *v, const char *piece) {
  for (size_t i = v->pieces; i-- > 0;)
    if (strcmp(v->text + v->piece[i].at, piece) == 0) return (int)i;
  return -1;
}

int wordpiece_vocab_longest(const WordpieceVocab *v, WordpiecePlace place, const char *text,
                            size_t len, size_t *n) {
  const PieceTable *t = &v->table[place];
  uint64_t hash[MOST_BYTES + 1]; /* of the first i bytes */
  size_t longest = len < t->longest ? len : t->longest;
  hash[0] = HASH_BEGIN;
  for (size_t i = 0; i < longest; i++)
    hash[i + 1] = extend_hash(hash[i], (unsigned char)text[i]);
  for (size_t i = longest; i > 0; i--) {
    bool is_boundary = i == len || ((unsigned char)text[i] & 0xc0) != 0x80;
    if (!is_boundary) continue;
    int32_t id = t->slot[find_slot(v, place, hash[i], text, i)];
    if (id < 0) continue;
    *n = i;
    return id;
  }
  return -1;
}
