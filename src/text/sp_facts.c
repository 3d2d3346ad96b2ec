/* Reads a SentencePiece .model: special ids, kind, and whether lines may be
 * encoded word by word. Relies on base.
 *
 * A line of words with single spaces between them may be encoded word by word,
 * each word alone, when nothing in the model looks across a space:
 *  - the kind is BPE: its merges are local (a unigram path is a sum of rounded
 *    numbers along the whole line, so near ties could fall otherwise);
 *  - every word gets its own "▁" in front: add_dummy_prefix, escape_whitespaces
 *    and remove_extra_whitespaces are on, treat_whitespace_as_suffix is off;
 *  - no piece has "▁" behind its first character, and no user-defined piece
 *    has "▁" or a space at all;
 *  - no rule of the normaliser has a space in what it replaces, but for the space
 *    alone, or a space followed by a byte that `joins` lists. */
#include "text/sp_facts.h"

#include <string.h>

#include "base/mem.h"

#define MARK     "\xe2\x96\x81" /* ▁, U+2581 */
#define MARK_LEN ((size_t)3)

typedef struct {
  const uint8_t *at, *end, *base;
  const char *where;
} Reader;

typedef struct {
  uint32_t number; /* of the field */
  uint32_t wire;   /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
  uint64_t value;  /* of a varint or a fixed field */
  Reader body;     /* of wire type 2 */
} Field;

static Err damaged(const Reader *r) {
  return err_set(ERR_WORK, "%s is not a SentencePiece model: damaged at byte %zu", r->where,
                 (size_t)(r->at - r->base));
}

static Err read_varint(Reader *r, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (r->at == r->end) return damaged(r);
    uint8_t byte = *r->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return ERR_OK;
  }
  return damaged(r);
}

static Err read_field(Reader *r, Field *f) {
  uint64_t tag, len;
  TRY(read_varint(r, &tag));
  *f = (Field){.number = (uint32_t)(tag >> 3), .wire = tag & 7};
  size_t left = (size_t)(r->end - r->at);
  switch (f->wire) {
    case 0:
      return read_varint(r, &f->value);
    case 1:
    case 5: {
      size_t n = f->wire == 1 ? 8 : 4;
      if (left < n) return damaged(r);
      memcpy(&f->value, r->at, n); /* little-endian, as all our machines are */
      r->at += n;
      return ERR_OK;
    }
    case 2:
      TRY(read_varint(r, &len));
      left = (size_t)(r->end - r->at);
      if (len > left) return damaged(r);
      f->body = (Reader){r->at, r->at + len, r->base, r->where};
      r->at += len;
      return ERR_OK;
    default:
      return damaged(r);
  }
}

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN = 2, PIECE_CONTROL = 3, PIECE_USER = 4 };

static Err read_piece(Reader r, SpFacts *facts) {
  Reader text = {0};
  uint64_t type = PIECE_NORMAL;
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.number == 1 && f.wire == 2) text = f.body;
    if (f.number == 3 && f.wire == 0) type = f.value;
  }
  size_t n = (size_t)(text.end - text.at);
  if (type == PIECE_UNKNOWN) facts->unk = facts->pieces;
  if (type == PIECE_USER && n &&
      (memmem(text.at, n, MARK, MARK_LEN) || memchr(text.at, ' ', n)))
    facts->by_word = false;
  if (type == PIECE_NORMAL && n > 1 && memmem(text.at + 1, n - 1, MARK, MARK_LEN))
    facts->by_word = false;
  facts->pieces++;
  return ERR_OK;
}

typedef struct {
  int pad, bos, eos;
  bool suffix;
} TrainerSpec;

static Err read_trainer(Reader r, SpFacts *facts, TrainerSpec *spec) {
  uint64_t kind = 1; /* unigram is the format's default */
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.wire != 0) continue;
    int id = (int)(int64_t)f.value;
    switch (f.number) {
      case 3:
        kind = f.value;
        break;
      case 24:
        spec->suffix = f.value != 0;
        break;
      case 41:
        spec->bos = id;
        break;
      case 42:
        spec->eos = id;
        break;
      case 43:
        spec->pad = id;
        break;
      default:
        break;
    }
  }
  static const char *const name[] = {"unigram", "bpe", "word", "char"};
  if (kind < 1 || kind > 4) return damaged(&r);
  facts->type = name[kind - 1];
  return ERR_OK;
}

/* The normaliser's rules are a double-array trie of 32-bit units, after their
 * size in bytes; equal tails are shared, so it is a graph, and a hostile one may
 * have circles. Visits every node once and looks for spaces in company. */
typedef struct {
  const uint8_t *bytes;
  size_t units;
} Trie;

static uint32_t unit_at(const Trie *t, size_t i) {
  uint32_t u;
  memcpy(&u, t->bytes + 4 * i, 4);
  return u;
}

static bool child_of(const Trie *t, size_t node, uint32_t byte, size_t *child) {
  uint32_t u = unit_at(t, node);
  size_t offset = (size_t)(u >> 10) << ((u & 0x200u) >> 6);
  *child = node ^ offset ^ byte;
  return *child < t->units && (unit_at(t, *child) & 0x800000ffu) == byte;
}

static Err read_rules(Reader charsmap, SpFacts *facts) {
  size_t n = (size_t)(charsmap.end - charsmap.at);
  if (n == 0) return ERR_OK;
  uint32_t size = 0;
  if (n < 4 || (memcpy(&size, charsmap.at, 4), size > n - 4)) return damaged(&charsmap);
  Trie trie = {charsmap.at + 4, size / 4};
  if (trie.units == 0) return ERR_OK;
  size_t *stack, depth = 0, child, beyond;
  bool *visited;
  TRY(mem_alloc(&stack, trie.units, sizeof *stack));
  if (mem_alloc(&visited, trie.units, sizeof *visited)) {
    mem_free(stack);
    return ERR_WORK;
  }
  for (stack[depth++] = 0, visited[0] = true; depth;) {
    size_t node = stack[--depth];
    for (uint32_t byte = 1; byte < 256; byte++) {
      if (!child_of(&trie, node, byte, &child)) continue;
      if (byte == ' ' && node == 0) {
        for (uint32_t next = 1; next < 256; next++)
          facts->joins[next] |= child_of(&trie, child, next, &beyond);
      } else if (byte == ' ') {
        facts->by_word = false;
      } else if (!visited[child]) {
        visited[child] = true;
        stack[depth++] = child;
      }
    }
  }
  mem_free(stack);
  mem_free(visited);
  return ERR_OK;
}

static Err read_normalizer(Reader r, SpFacts *facts) {
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.number == 2 && f.wire == 2) TRY(read_rules(f.body, facts));
    /* 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces */
    bool off = f.number >= 3 && f.number <= 5 && f.wire == 0 && f.value == 0;
    if (off) facts->by_word = false;
  }
  return ERR_OK;
}

static int within(int id, int pieces) {
  return id >= 0 && id < pieces ? id : -1;
}

Err sp_facts(SpFacts *facts, const char *bytes, size_t len, const char *where) {
  *facts = (SpFacts){.unk = -1, .by_word = true, .type = "unigram"};
  TrainerSpec spec = {.pad = -1, .bos = 1, .eos = 2}; /* the format's defaults */
  const uint8_t *base = (const uint8_t *)bytes;
  Reader r = {base, base + len, base, where};
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.wire != 2) continue;
    if (f.number == 1) TRY(read_piece(f.body, facts));
    if (f.number == 2) TRY(read_trainer(f.body, facts, &spec));
    if (f.number == 3) TRY(read_normalizer(f.body, facts));
  }
  if (facts->pieces == 0)
    return err_set(ERR_WORK, "%s is not a SentencePiece model: it has no pieces", where);
  facts->pad = within(spec.pad, facts->pieces);
  facts->bos = within(spec.bos, facts->pieces);
  facts->eos = within(spec.eos, facts->pieces);
  facts->by_word = facts->by_word && strcmp(facts->type, "bpe") == 0 && !spec.suffix;
  return ERR_OK;
}
