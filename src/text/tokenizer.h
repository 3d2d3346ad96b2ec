/* Text to ids and back, through a SentencePiece model. Where the model allows
 * it, each distinct word is encoded once and remembered. Depends on base. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define TOKENIZER_LIMIT ((size_t)1 << 26) /* largest .model file in bytes */

typedef struct {
  int32_t *id;
  size_t len, cap;
} IdList;
void ids_free(IdList *ids);

typedef struct {
  int vocab;
  int pad, bos, eos, unk; /* -1 when the model has none; every model has eos */
  const char *type;       /* "bpe", "unigram", … */
  bool by_word;           /* words are encoded one by one, and cached */
  bool joins[256]; /* … except in a line with a word that begins with one of these bytes */
  char sha256[65]; /* of the .model file */
  struct SpModel *model_;
  struct WordCache *cache_;
} Tokenizer;

NODISCARD Err tokenizer_open(Tokenizer *t, const char *path);
void tokenizer_close(Tokenizer *t);
/* Appends the ids of a line whose words are separated by single spaces. They equal those of
 * SentencePiece for every line. Any number of threads may call it at once. */
NODISCARD Err tokenizer_encode(const Tokenizer *t, const char *text, size_t len, IdList *ids);
/* Appends the text; control ids (pad, bos, eos) give no text. */
NODISCARD Err tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t n, Str *text);

typedef struct {
  const char *type; /* "bpe" or "unigram" */
  int vocab_size;
  double character_coverage;
} TokenizerTraining;
/* Trains a model (pad 0, eos 1, bos 2, unk 3) on the lines that next() returns and writes it
 * to `path`. */
NODISCARD Err tokenizer_train(const TokenizerTraining *spec,
                              bool (*next)(void *, const char **, size_t *), void *context,
                              const char *path);

#endif
