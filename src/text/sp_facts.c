/* Reads a SentencePiece .model file: special ids, model type, and whether a line may be encoded
 * word by word. Verifies the fields that the library uses without a check. Depends on base,
 * sp_rules.
 *
 * Encoding each word of a line alone gives the ids of the whole line if the words are separated
 * by single spaces and if no part of the model depends on text across a space:
 *  - The model type is BPE, whose merges are local. (A unigram segmentation maximizes a sum of
 *  rounded numbers over the whole line, so near ties could be decided differently.)
 *  - Every word is prefixed with its own "▁": add_dummy_prefix, escape_whitespaces and
 *  remove_extra_whitespaces are on, treat_whitespace_as_suffix is off.
 *  - No piece contains "▁" after its first character, and no user-defined piece contains "▁" or a
 *  space.
 *  - No normalization rule has a space in its pattern, except a rule for the space alone or for a
 *  space followed by a byte listed in `joins`. */
#include "text/sp_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/sp_rules.h"

#define MARK     "\xe2\x96\x81" /* the character ▁ (U+2581) */
#define MARK_LEN ((size_t)3)

#define PIECE_LIMIT ((size_t)4096)
/* Maximum number of user-defined pieces that may match at one position: the size of
 * SentencePiece's array for the matches. */
#define MOST_USER_MATCHES 64
/* Maximum bytes of the self-test sentences in a model, which SentencePiece encodes when it loads
 * the model. */
#define SELF_TEST_LIMIT ((size_t)1 << 16)

typedef struct {
  const uint8_t *at, *end, *base;
  const char *where;
} Reader;

typedef struct {
  uint32_t number; /* field number of the protocol buffer */
  uint32_t wire;   /* wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes */
  uint64_t value;  /* value of a varint or a fixed-size field */
  Reader body;     /* contents of a field of wire type 2 */
} Field;

static Err report_damage(const Reader *r) {
  return err_set(ERR_WORK,
                 "%s is not a SentencePiece model: damaged at byte %zu; copy the file again",
                 r->where, (size_t)(r->at - r->base));
}

static Err read_varint(Reader *r, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (r->at == r->end) return report_damage(r);
    uint8_t byte = *r->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return ERR_OK;
  }
  return report_damage(r);
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
      if (left < n) return report_damage(r);
      /* The format is little-endian, like all supported processors. */
      memcpy(&f->value, r->at, n);
      r->at += n;
      return ERR_OK;
    }
    case 2:
      TRY(read_varint(r, &len));
      left = (size_t)(r->end - r->at);
      if (len > left) return report_damage(r);
      f->body = (Reader){r->at, r->at + len, r->base, r->where};
      r->at += len;
      return ERR_OK;
    default:
      return report_damage(r);
  }
}

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN = 2, PIECE_USER = 4, PIECE_BYTE = 6 };

typedef struct {
  const uint8_t *text;
  size_t len;
} UserPiece;

typedef struct {
  UserPiece *at;
  size_t count, cap;
} UserPieces;

static Err bad_piece(const Reader *r, int piece, const char *what) {
  return err_set(ERR_WORK,
                 "%s is not a usable SentencePiece model: piece %d %s (before byte %zu); copy "
                 "the file again",
                 r->where, piece, what, (size_t)(r->end - r->base));
}

/* A vocabulary piece with the values that SentencePiece will read. */
typedef struct {
  const uint8_t *text;
  size_t len;
  uint64_t type;
} Piece;

static Err parse_piece(Reader r, int number, Piece *p) {
  *p = (Piece){.type = PIECE_NORMAL};
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.number == 1 && f.wire == 2) {
      p->text = f.body.at;
      p->len = (size_t)(f.body.end - f.body.at);
    }
    if (f.number == 2 && f.wire == 5) {
      float score;
      /* The format is little-endian: the low four bytes hold the float. */
      memcpy(&score, &f.value, 4);
      if (!isfinite(score)) return bad_piece(&r, number, "has a score that is not finite");
    }
    if (f.number == 3 && f.wire == 0) p->type = f.value;
  }
  if (p->len == 0) return bad_piece(&r, number, "is empty");
  if (p->len > PIECE_LIMIT) return bad_piece(&r, number, "is longer than 4,096 bytes");
  if (memchr(p->text, 0, p->len)) return bad_piece(&r, number, "holds a NUL");
  if (p->type < PIECE_NORMAL || p->type > PIECE_BYTE)
    return bad_piece(&r, number, "is of an unknown type");
  return ERR_OK;
}

static Err read_piece(Reader r, SpFacts *facts, UserPieces *user) {
  Piece p;
  TRY(parse_piece(r, facts->pieces, &p));
  if (p.type == PIECE_UNKNOWN) {
    if (facts->unk >= 0) return bad_piece(&r, facts->pieces, "is a second unknown piece");
    facts->unk = facts->pieces;
  }
  if (p.type == PIECE_USER) {
    if (memmem(p.text, p.len, MARK, MARK_LEN) || memchr(p.text, ' ', p.len))
      facts->by_word = false;
    TRY(mem_grow(&user->at, &user->cap, user->count + 1, sizeof *user->at));
    user->at[user->count++] = (UserPiece){p.text, p.len};
  }
  if (p.type == PIECE_NORMAL && p.len > 1 && memmem(p.text + 1, p.len - 1, MARK, MARK_LEN))
    facts->by_word = false;
  facts->pieces++;
  return ERR_OK;
}

static int by_text(const void *a, const void *b) {
  const UserPiece *x = a, *y = b;
  int c = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
  return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

/* SentencePiece looks up all user-defined pieces that match at one position and writes them
 * to an array of fixed size. In sorted order, pieces that are prefixes of one another are
 * neighbours, so one pass finds the longest such chain. */
static Err check_user_pieces(UserPieces *user, const char *where) {
  const UserPiece *open[MOST_USER_MATCHES + 1];
  size_t depth = 0;
  if (user->count) qsort(user->at, user->count, sizeof *user->at, by_text);
  for (size_t i = 0; i < user->count; i++) {
    const UserPiece *p = &user->at[i];
    while (depth && (open[depth - 1]->len > p->len ||
                     memcmp(open[depth - 1]->text, p->text, open[depth - 1]->len) != 0))
      depth--;
    open[depth++] = p;
    if (depth > MOST_USER_MATCHES)
      return err_set(ERR_WORK,
                     "%s is not a usable SentencePiece model: more than %d user-defined pieces "
                     "are prefixes of one another; remove some of them",
                     where, MOST_USER_MATCHES);
  }
  return ERR_OK;
}

typedef struct {
  int pad, bos, eos;
  bool suffix;
} TrainerSpec;

static Err read_trainer(Reader r, SpFacts *facts, TrainerSpec *spec) {
  uint64_t kind = 1; /* Model type 1 (unigram) is the default of the format. */
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
  if (kind < 1 || kind > 4) return report_damage(&r);
  facts->type = name[kind - 1];
  return ERR_OK;
}

static SpRules rules_of(const Reader *r) {
  return (SpRules){r->at, (size_t)(r->end - r->at), (size_t)(r->at - r->base), r->where};
}

static Err read_normalizer(Reader r, SpFacts *facts) {
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.number == 2 && f.wire == 2) {
      SpRules rules = rules_of(&f.body);
      bool only_alone;
      TRY(sp_rules_verify(&rules));
      TRY(sp_rules_spaces(&rules, &only_alone, facts->joins));
      if (!only_alone) facts->by_word = false;
    }
    /* Protocol buffer fields: 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5
     * escape_whitespaces. */
    bool off = f.number >= 3 && f.number <= 5 && f.wire == 0 && f.value == 0;
    if (off) facts->by_word = false;
  }
  return ERR_OK;
}

/* Checks the denormalizer's rules. The denormalizer changes only decoded text, so it does not
 * affect whether lines may be encoded word by word. */
static Err read_denormalizer(Reader r) {
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    if (f.number != 2 || f.wire != 2) continue;
    SpRules rules = rules_of(&f.body);
    TRY(sp_rules_verify(&rules));
  }
  return ERR_OK;
}

static Err check_id(const char *name, int *id, const SpFacts *facts, const char *where) {
  if (*id >= facts->pieces)
    return err_set(ERR_WORK,
                   "%s is not a usable SentencePiece model: its %s_id %d is outside the "
                   "vocabulary of %d pieces; copy the file again",
                   where, name, *id, facts->pieces);
  if (*id < 0) *id = -1;
  return ERR_OK;
}

typedef struct {
  TrainerSpec spec;
  UserPieces user;
  /* had[i]: field i has been read. These fields of the model may occur only once. */
  bool had[6];
} Parts;

static Err read_part(const Field *f, const Reader *r, SpFacts *facts, Parts *parts) {
  if (f->wire != 2 || f->number < 1 || f->number > 5) return ERR_OK;
  if (f->number == 1) return read_piece(f->body, facts, &parts->user);
  if (parts->had[f->number]) return report_damage(r);
  parts->had[f->number] = true;
  switch (f->number) {
    case 2:
      return read_trainer(f->body, facts, &parts->spec);
    case 3:
      return read_normalizer(f->body, facts);
    case 4:
      if ((size_t)(f->body.end - f->body.at) <= SELF_TEST_LIMIT) return ERR_OK;
      return err_set(ERR_WORK,
                     "%s is not a usable SentencePiece model: its self test is longer than %zu "
                     "bytes; train it without self-test samples",
                     r->where, SELF_TEST_LIMIT);
    default:
      return read_denormalizer(f->body);
  }
}

static Err read_model(Reader r, SpFacts *facts, Parts *parts) {
  const char *where = r.where;
  while (r.at < r.end) {
    Field f;
    TRY(read_field(&r, &f));
    TRY(read_part(&f, &r, facts, parts));
  }
  if (facts->pieces == 0)
    return err_set(ERR_WORK,
                   "%s is not a SentencePiece model: it has no pieces; give a .model file",
                   where);
  TRY(check_user_pieces(&parts->user, where));
  facts->pad = parts->spec.pad;
  facts->bos = parts->spec.bos;
  facts->eos = parts->spec.eos;
  TRY(check_id("pad", &facts->pad, facts, where));
  TRY(check_id("bos", &facts->bos, facts, where));
  return check_id("eos", &facts->eos, facts, where);
}

Err sp_facts(SpFacts *facts, const char *bytes, size_t len, const char *where) {
  *facts = (SpFacts){.unk = -1, .by_word = true, .type = "unigram"};
  /* The special ids default to these values in the format. */
  Parts parts = {.spec = {.pad = -1, .bos = 1, .eos = 2}};
  const uint8_t *base = (const uint8_t *)bytes;
  Err err = read_model((Reader){base, base + len, base, where}, facts, &parts);
  mem_free(parts.user.at);
  facts->by_word = facts->by_word && strcmp(facts->type, "bpe") == 0 && !parts.spec.suffix;
  return err;
}
