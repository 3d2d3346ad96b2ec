/* Trains a WordPiece vocabulary: counts the words of a text and joins, again and again, the two adjacent
 * pieces that occur together most often, as Hugging Face's trainer does. Depends on bert_words, base. */
#ifndef TEXT_WORDPIECE_TRAIN_H
#define TEXT_WORDPIECE_TRAIN_H

#include "text/bert_words.h"

typedef struct {
  BertRules rules;
  size_t vocab_size;  /* number of pieces, with the special ones */
  size_t alphabet;    /* maximum number of characters; words with rarer ones become [UNK] */
  uint64_t min_count; /* pieces that occur together less often are not joined */
} WordpieceTraining;

#define WORDPIECE_ALPHABET  1000
#define WORDPIECE_MIN_COUNT 2

/* Trains on the texts that next() returns, and writes the vocabulary to `path`, one piece per line:
 * [PAD], [UNK], [CLS], [SEP], [MASK], the characters, and the joined pieces in the order in which they
 * were found. *size is the number of pieces: fewer than vocab_size if the text has no more. The result
 * depends only on the words and their counts. */
NODISCARD Err wordpiece_train(const WordpieceTraining *spec,
                              bool (*next)(void *, const char **, size_t *), void *context,
                              const char *path, size_t *size);

#endif
