/* The WordPiece tokenizer of BERT: text to ids, equal to those of Hugging Face `tokenizers`.
 *
 * Text is cleaned, split into words (at white space; punctuation and Chinese characters are words of
 * their own), and each word is divided from the left into the longest pieces of the vocabulary. Pieces
 * that continue a word are written with "##": "unaffable" is "un", "##aff", "##able". A word that
 * cannot be divided is [UNK]. Depends on base, tokenizer.h (IdList), wordcache. */
#ifndef TEXT_WORDPIECE_H
#define TEXT_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/bert_words.h"
#include "text/tokenizer.h"

#define WORDPIECE_LIMIT ((size_t)1 << 26) /* maximum size of a vocabulary file in bytes */

typedef struct {
  BertRules rules;
  int vocab;                    /* number of lines of the vocabulary */
  int pad, unk, cls, sep, mask; /* ids; pad and mask are -1 if the vocabulary has none */
  char sha256[65];              /* SHA-256 of the vocabulary file */
  struct WordpieceVocab *vocab_;
  struct WordCache *cache_;
} Wordpiece;

/* Reads vocab.txt: one piece per line, the id is the number of the line, from 0. */
NODISCARD Err wordpiece_open(Wordpiece *w, const char *path, BertRules rules);
/* The same from memory; `where` names the file in errors. */
NODISCARD Err wordpiece_read(Wordpiece *w, const char *bytes, size_t len, const char *where,
                             BertRules rules);
void wordpiece_close(Wordpiece *w);

/* Appends the ids of a text, without [CLS] and [SEP]. The names of special pieces in the text, such
 * as "[MASK]", become their ids, as in Hugging Face. Bytes that are not UTF-8 are removed. Any number
 * of threads may call it at the same time. */
NODISCARD Err wordpiece_encode(const Wordpiece *w, const char *text, size_t len, IdList *ids);
/* Returns the piece with its "##", or NULL if there is no such id. */
const char *wordpiece_piece(const Wordpiece *w, int32_t id);

#endif
