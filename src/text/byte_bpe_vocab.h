/* The vocabulary of a byte-level BPE: pieces, merges in the order of their ranks, and tokens that are
 * found in a text before it is split. Read from the files of Hugging Face, which are not trusted.
 * Depends on base, Jansson. */
#ifndef TEXT_BYTE_BPE_VOCAB_H
#define TEXT_BYTE_BPE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "text/stringmap.h"

#define BYTE_BPE_IDS (1 << 22) /* ids are below this */
#define BYTE_BPE_TOKENS \
  1024 /* maximum number of added tokens; all are compared at a position */

typedef struct {
  int32_t left, right, id; /* two pieces, and the piece that they become */
} ByteMerge;

/* A token such as <mask>, which is found in a text before it is split into words. */
typedef struct {
  char *text;
  size_t len;
  int32_t id;
  bool strips_left, strips_right; /* takes the white space beside it */
  bool is_normalized;             /* looked for after those that are not, between them */
  bool is_special;
} ByteToken;

typedef struct ByteVocab {
  StringMap
      pieces;      /* pieces in the order of the file, in the characters that stand for bytes */
  int32_t *id;     /* (pieces.count) id of each piece */
  uint32_t *piece; /* (ids) number of the piece of each id; UINT32_MAX: none */
  size_t ids;      /* largest id + 1 */
  int32_t byte[256];      /* id of the piece of each byte; -1: none */
  ByteMerge *merge;       /* (merges) by rank */
  uint32_t *slot;         /* hash table of merges by left and right: rank + 1; 0: empty */
  ByteToken *token;       /* (tokens) */
  bool starts_token[256]; /* bytes with which a token begins */
  size_t merges, slots, tokens, id_capacity, merge_capacity, token_capacity;
  int32_t unknown; /* id for a byte without a piece; -1: such bytes are left out */
  bool adds_space; /* a space is put before a text that does not begin with one */
} ByteVocab;

/* Reads tokenizer.json. `where` is its name for errors. */
NODISCARD Err byte_vocab_read(ByteVocab *v, const char *json, size_t len, const char *where);
/* Reads vocab.json and merges.txt. */
NODISCARD Err byte_vocab_read_pair(ByteVocab *v, const Str *json, const char *json_path,
                                   const Str *merges, const char *merges_path);
void byte_vocab_free(ByteVocab *v); /* accepts a zeroed struct */

/* Returns the id of a piece, -1 if there is none. */
int32_t byte_vocab_find(const ByteVocab *v, const char *piece, size_t len);
/* Returns the rank of the merge of two pieces, UINT32_MAX if there is none. */
uint32_t byte_vocab_rank(const ByteVocab *v, int32_t left, int32_t right);

/* Append the files of Hugging Face: vocab.json, merges.txt, and tokenizer.json, which has both and is
 * what byte_vocab_read reads. Equal vocabularies give equal files. */
NODISCARD Err byte_vocab_print_pieces(const ByteVocab *v, Str *out);
NODISCARD Err byte_vocab_print_merges(const ByteVocab *v, Str *out);
NODISCARD Err byte_vocab_print(const ByteVocab *v, Str *out);

#endif
