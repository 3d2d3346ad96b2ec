/* The byte-level BPE of RoBERTa and GPT-2: text to ids, equal to those of Hugging Face `tokenizers`.
 *
 * Text is split into words, which begin with their space. The bytes of a word are its first pieces,
 * each written as a character ("Ġ" is a space), and two neighbours whose merge has the lowest rank
 * become one piece, until no merge is possible. Depends on base, tokenizer.h (IdList), wordcache. */
#ifndef TEXT_BYTE_BPE_H
#define TEXT_BYTE_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "text/tokenizer.h"

#define BYTE_BPE_LIMIT ((size_t)1 << 26) /* maximum size of a file in bytes */

typedef struct {
  int vocab; /* largest id + 1 */
  int pad, unk, cls, sep,
      mask;        /* ids of <pad>, <unk>, <s>, </s>, <mask>; pad, unk, mask -1: none */
  char sha256[65]; /* SHA-256 of tokenizer.json; empty if there was none */
  struct ByteVocab *vocab_;
  struct WordCache *cache_;
} ByteBpe;

/* Reads tokenizer.json. */
NODISCARD Err byte_bpe_open(ByteBpe *b, const char *path);
/* The same from memory; `where` names the file in errors. */
NODISCARD Err byte_bpe_read(ByteBpe *b, const char *bytes, size_t len, const char *where);
/* Reads a tokenizer as transformers 5 does. `path` is a directory, a tokenizer.json, or a vocab.json with a
 * merges.txt beside it; a directory with tokenizer.json needs no other file. If tokenizer_config.json
 * is beside it, its "add_prefix_space" counts. */
NODISCARD Err byte_bpe_import(ByteBpe *b, const char *path);
void byte_bpe_close(ByteBpe *b); /* accepts a zeroed struct */

/* Appends the ids of a text, without <s> and </s>. The names of added tokens in the text, such as "<mask>",
 * become their ids, as in Hugging Face. Bytes that are not UTF-8 are removed. Any number of threads may
 * call it at the same time. */
NODISCARD Err byte_bpe_encode(const ByteBpe *b, const char *text, size_t len, IdList *ids);
/* Returns the piece in the characters that stand for bytes, or NULL if there is no such id. */
const char *byte_bpe_piece(const ByteBpe *b, int32_t id);

/* Append a file of the tokenizer: tokenizer.json, vocab.json and merges.txt. */
NODISCARD Err byte_bpe_print(const ByteBpe *b, Str *out);
NODISCARD Err byte_bpe_print_vocab(const ByteBpe *b, Str *out);
NODISCARD Err byte_bpe_print_merges(const ByteBpe *b, Str *out);
/* Returns true if a space is put before each text ("add_prefix_space"). */
bool byte_bpe_adds_space(const ByteBpe *b);

#endif
