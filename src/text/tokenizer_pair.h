/* The tokenizer of a MarianMT model: a SentencePiece model for the source (source.spm), one for the
 * target (target.spm), and vocab.json, which gives the id of each piece of both. Encoding and
 * decoding are those of Hugging Face's MarianTokenizer: a line may begin with the code of a target
 * language, >>CODE<<; pieces that are not in vocab.json become <unk>. Used by tokenizer.c only.
 * Threads: any number may encode and decode. Depends on sp_shim, stringmap, base, Jansson. */
#ifndef TEXT_TOKENIZER_PAIR_H
#define TEXT_TOKENIZER_PAIR_H

#include "text/tokenizer.h"

typedef struct TokenizerPair TokenizerPair;

/* Opens the three files of a directory. sha256 receives the hash of their hashes. */
NODISCARD Err tokenizer_pair_open(TokenizerPair **pair, const char *dir, char sha256[65]);
void tokenizer_pair_close(TokenizerPair *p); /* accepts NULL */
/* Returns the largest id plus 1. */
int tokenizer_pair_vocab(const TokenizerPair *p);
/* Returns the id of a piece, or -1. */
int tokenizer_pair_find(const TokenizerPair *p, const char *piece);
/* Returns the text of the piece with this id, or NULL. */
const char *tokenizer_pair_piece(const TokenizerPair *p, int32_t id);
/* Appends the ids of a line. */
NODISCARD Err tokenizer_pair_encode(const TokenizerPair *p, const char *text, size_t len,
                                    IdList *ids);
/* Appends the text of ids; <unk>, </s>, <pad> and ids without a piece produce no text. */
NODISCARD Err tokenizer_pair_decode(const TokenizerPair *p, const int32_t *ids, size_t n,
                                    Str *text);

#endif
