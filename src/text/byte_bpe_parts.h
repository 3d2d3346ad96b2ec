/* Steps by which the readers of files fill in a ByteVocab: pieces, added tokens, end_pieces, merges,
 * end_merges. Private to byte_bpe.c, byte_bpe_vocab.c and byte_bpe_files.c. */
#ifndef TEXT_BYTE_BPE_PARTS_H
#define TEXT_BYTE_BPE_PARTS_H

#include "text/byte_bpe_vocab.h"

struct json_t;

typedef struct {
  const char *text;
  size_t len;
} ByteText;

/* Reads a flag of a JSON object; `fallback` if it is missing or null. Another type is an error. */
NODISCARD Err byte_vocab_read_flag(const struct json_t *object, const char *key, bool fallback,
                                   const char *where, bool *value);
/* Adds the pieces of a JSON object from pieces to ids. */
NODISCARD Err byte_vocab_add_pieces(ByteVocab *v, struct json_t *vocab, const char *where);
/* Adds a token with the id and flags of `token`; it becomes a piece if it is none. */
NODISCARD Err byte_vocab_add_token(ByteVocab *v, const char *text, ByteToken token,
                                   const char *where);
NODISCARD Err byte_vocab_end_pieces(ByteVocab *v, const char *where);
/* Adds the merge of two pieces. `unit` and `number` say where it is in the file: "line", 7. */
NODISCARD Err byte_vocab_add_merge(ByteVocab *v, ByteText a, ByteText b, const char *where,
                                   const char *unit, size_t number);
NODISCARD Err byte_vocab_end_merges(ByteVocab *v);

#endif
