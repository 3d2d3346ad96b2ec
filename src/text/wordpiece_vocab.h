/* The vocabulary of a WordPiece tokenizer: pieces by id, and the longest piece that begins a
 * text. Depends on base. */
#ifndef TEXT_WORDPIECE_VOCAB_H
#define TEXT_WORDPIECE_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct WordpieceVocab WordpieceVocab;

/* Reads the lines of a vocabulary file, which is not trusted. If a piece occurs twice, the later line
 * counts, as in Hugging Face. */
NODISCARD Err wordpiece_vocab_read(WordpieceVocab **out, const char *bytes, size_t len,
                                   const char *where);
void wordpiece_vocab_free(WordpieceVocab *v);

int wordpiece_vocab_size(const WordpieceVocab *v);
/* Returns the piece, or NULL if there is no such id. */
const char *wordpiece_vocab_piece(const WordpieceVocab *v, int32_t id);
/* Returns the id of a whole line of the vocabulary, -1 if there is none. */
int wordpiece_vocab_find(const WordpieceVocab *v, const char *piece);

/* Finds the longest piece that `text` (valid UTF-8) begins with, among the pieces that continue a word
 * ("##" is left out of the comparison) or among those that begin one. Returns its id and sets *n to
 * its length in bytes; -1 if there is none. */
typedef enum { WORDPIECE_BEGINS, WORDPIECE_CONTINUES } WordpiecePlace;
int wordpiece_vocab_longest(const WordpieceVocab *v, WordpiecePlace place, const char *text,
                            size_t len, size_t *n);

#endif
