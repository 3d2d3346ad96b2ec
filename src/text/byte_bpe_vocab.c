/* Pieces and merges of a byte-level BPE. Depends on byte_bpe_parts.h, stringmap, Jansson. */
#include "text/byte_bpe_vocab.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/byte_bpe_parts.h"

#define NO_PIECE   UINT32_MAX
#define MOST_BYTES 4096 /* of a piece */

/* ---- pieces ---- */

/* Returns the character that stands for a byte in pieces: printable bytes of Latin-1 stand for
 * themselves, the others are U+0100, U+0101, … in their order. */
static uint32_t get_byte_char(int byte) {
  uint32_t other = 0x100;
  for (int b = 0; b <= byte; b++) {
    bool is_printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    if (b == byte) return is_printable ? (uint32_t)b : other;
    other += !is_printable;
  }
  return other;
}

static void find_bytes(ByteVocab *v) {
  for (int b = 0; b < 256; b++) {
    char text[4];
    v->byte[b] = byte_vocab_find(v, text, utf8_encode(get_byte_char(b), text));
  }
}

static Err check_piece(const char *piece, const json_t *value, const char *where) {
  json_int_t id = json_integer_value(value);
  if (!json_is_integer(value) || id < 0 || id >= BYTE_BPE_IDS)
    return err_set(ERR_WORK,
                   "%s: the id of '%.40s' is not an integer from 0 to %d; copy the model again",
                   where, piece, BYTE_BPE_IDS - 1);
  if (strlen(piece) <= MOST_BYTES) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s: the piece with id %d has more than %d bytes; this is not the vocabulary of "
      "a byte-level BPE",
      where, (int)id, MOST_BYTES);
}

static Err add_piece(ByteVocab *v, const char *piece, int32_t id) {
  uint32_t number;
  TRY(stringmap_add(&v->pieces, piece, strlen(piece), &number));
  TRY(mem_grow(&v->id, &v->id_capacity, (size_t)number + 1, sizeof *v->id));
  v->id[number] = id;
  if ((size_t)id >= v->ids) v->ids = (size_t)id + 1;
  return ERR_OK;
}

/* Fills in v->piece, the inverse of v->id. */
static Err invert_ids(ByteVocab *v, const char *where) {
  /* Ids without a piece are few, so that the table is not much larger than the file. */
  if (v->ids > 2 * v->pieces.count + 1024)
    return err_set(ERR_WORK, "%s: most ids below %zu have no piece; copy the model again",
                   where, v->ids);
  TRY(mem_alloc(&v->piece, v->ids, sizeof *v->piece));
  for (size_t i = 0; i < v->ids; i++) v->piece[i] = NO_PIECE;
  for (uint32_t n = 0; n < v->pieces.count; n++) {
    uint32_t *piece = &v->piece[v->id[n]];
    if (*piece != NO_PIECE)
      return err_set(
          ERR_WORK, "%s: '%.40s' and '%.40s' have the same id %d; copy the model again", where,
          stringmap_text(&v->pieces, *piece), stringmap_text(&v->pieces, n), v->id[n]);
    *piece = n;
  }
  return ERR_OK;
}

Err byte_vocab_add_pieces(ByteVocab *v, json_t *vocab, const char *where) {
  const char *piece;
  json_t *value;
  if (json_object_size(vocab) == 0)
    return err_set(ERR_WORK, "%s has no vocabulary; copy the model again", where);
  json_object_foreach(vocab, piece, value) {
    TRY(check_piece(piece, value, where));
    TRY(add_piece(v, piece, (int32_t)json_integer_value(value)));
  }
  return ERR_OK;
}

Err byte_vocab_add_token(ByteVocab *v, const char *text, ByteToken token, const char *where) {
  int32_t id = byte_vocab_find(v, text, strlen(text));
  if (id >= 0 && id != token.id)
    return err_set(ERR_WORK,
                   "%s: the added token '%.40s' has the id %d, but %d in the vocabulary; copy "
                   "the model again",
                   where, text, token.id, id);
  if (strlen(text) > MOST_BYTES)
    return err_set(ERR_WORK,
                   "%s: the added token with id %d has more than %d bytes; it cannot be used",
                   where, token.id, MOST_BYTES);
  if (v->tokens == BYTE_BPE_TOKENS)
    return err_set(ERR_WORK, "%s: more than %d added tokens; it cannot be used", where,
                   BYTE_BPE_TOKENS);
  TRY(mem_grow(&v->token, &v->token_capacity, v->tokens + 1, sizeof *v->token));
  token.len = strlen(text);
  TRY(mem_dup(&token.text, text, token.len));
  v->token[v->tokens++] = token;
  v->starts_token[(unsigned char)text[0]] = true;
  return id >= 0 ? ERR_OK : add_piece(v, text, token.id);
}

Err byte_vocab_end_pieces(ByteVocab *v, const char *where) {
  find_bytes(v);
  return invert_ids(v, where);
}

int32_t byte_vocab_find(const ByteVocab *v, const char *piece, size_t len) {
  uint32_t n = stringmap_find(&v->pieces, piece, len);
  return n == UINT32_MAX ? -1 : v->id[n];
}

/* ---- merges ---- */

/* Returns the slot of a merge, or the empty one where it belongs. */
static size_t find_slot(const ByteVocab *v, int32_t left, int32_t right) {
  uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
  size_t i = (size_t)(hash >> 32) & (v->slots - 1);
  for (; v->slot[i]; i = (i + 1) & (v->slots - 1)) {
    const ByteMerge *m = &v->merge[v->slot[i] - 1];
    if (m->left == left && m->right == right) break;
  }
  return i;
}

uint32_t byte_vocab_rank(const ByteVocab *v, int32_t left, int32_t right) {
  return v->slot[find_slot(v, left, right)] - 1; /* an empty slot is 0: UINT32_MAX */
}

static Err refuse_merge(ByteText a, ByteText b, const char *where, const char *unit,
                        size_t number) {
  return err_set(
      ERR_WORK,
      "%s, %s %zu: '%.*s' and '%.*s' cannot be merged: one of them, or both together, "
      "are not in the vocabulary; use files of the same model",
      where, unit, number, a.len < 40 ? (int)a.len : 40, a.text, b.len < 40 ? (int)b.len : 40,
      b.text);
}

/* Returns true if a text can be a part of a line of merges.txt. */
static bool is_part(ByteText a) {
  for (size_t i = 0; i < a.len; i++)
    if (strchr(" \r\n", a.text[i])) return false;
  return a.len > 0 && a.len <= MOST_BYTES;
}

Err byte_vocab_add_merge(ByteVocab *v, ByteText a, ByteText b, const char *where,
                         const char *unit, size_t number) {
  char both[2 * MOST_BYTES];
  ByteMerge merge = {.left = -1, .right = -1, .id = -1};
  if (is_part(a) && is_part(b)) {
    memcpy(both, a.text, a.len);
    memcpy(both + a.len, b.text, b.len);
    merge = (ByteMerge){.left = byte_vocab_find(v, a.text, a.len),
                        .right = byte_vocab_find(v, b.text, b.len),
                        .id = byte_vocab_find(v, both, a.len + b.len)};
  }
  if (merge.left < 0 || merge.right < 0 || merge.id < 0)
    return refuse_merge(a, b, where, unit, number);
  TRY(mem_grow(&v->merge, &v->merge_capacity, v->merges + 1, sizeof *v->merge));
  v->merge[v->merges++] = merge;
  return ERR_OK;
}

/* If a merge occurs twice, the later one counts, as in Hugging Face. */
Err byte_vocab_end_merges(ByteVocab *v) {
  v->slots = 64;
  while (v->slots < 2 * v->merges) v->slots *= 2;
  TRY(mem_alloc(&v->slot, v->slots, sizeof *v->slot));
  for (size_t i = 0; i < v->merges; i++)
    v->slot[find_slot(v, v->merge[i].left, v->merge[i].right)] = (uint32_t)i + 1;
  return ERR_OK;
}

void byte_vocab_free(ByteVocab *v) {
  for (size_t i = 0; i < v->tokens; i++) mem_free(v->token[i].text);
  mem_free(v->token);
  mem_free(v->merge);
  mem_free(v->slot);
  mem_free(v->piece);
  mem_free(v->id);
  stringmap_free(&v->pieces);
  *v = (ByteVocab){0};
}
