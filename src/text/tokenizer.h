/* Converts text to ids and back with a SentencePiece model, or with two models that share a
 * vocabulary (MarianMT: one for the source, one for the target). If the model allows encoding word by
 * word (sp_facts.h), each distinct word is encoded once and cached. Depends on base. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define TOKENIZER_LIMIT ((size_t)1 << 26) /* maximum size of a .model file in bytes */

typedef struct {
  int32_t *id;
  size_t len, cap;
} IdList;
void ids_free(IdList *ids);

typedef struct {
  int vocab;
  int pad, bos, eos, unk; /* special ids; -1 if the model has none; eos always exists */
  const char *type;       /* model type: "bpe", "unigram", … */
  bool by_word;           /* Words are encoded one by one and cached. */
  /* by_word does not apply to lines with a word that begins with byte b if joins[b] is true. */
  bool joins[256];
  char sha256[65]; /* SHA-256 of the .model file */
  struct SpModel *model_;
  struct WordCache *cache_;
  struct TokenizerPair *pair_; /* NULL: one SentencePiece model for both languages */
} Tokenizer;

NODISCARD Err tokenizer_open(Tokenizer *t, const char *path);
/* Opens source.spm, target.spm and vocab.json of a directory (see tokenizer_pair.h). vocab is the
 * largest id of vocab.json plus 1. */
NODISCARD Err tokenizer_open_pair(Tokenizer *t, const char *dir);
void tokenizer_close(Tokenizer *t);
/* Appends the ids of a line whose words are separated by single spaces. The ids equal those of
 * SentencePiece (with a pair: those of Hugging Face's MarianTokenizer) for every line. Any number of threads may call it at the same time. */
NODISCARD Err tokenizer_encode(const Tokenizer *t, const char *text, size_t len, IdList *ids);
/* Appends the text of the ids; control ids (pad, bos, eos) produce no text. */
NODISCARD Err tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t n, Str *text);
/* Returns the text of the piece with this id, valid until the tokenizer is closed; NULL if the id has
 * none. */
const char *tokenizer_piece(const Tokenizer *t, int32_t id);

typedef struct {
  const char *type; /* model type: "bpe" or "unigram" */
  int vocab_size;
  double character_coverage;
} TokenizerTraining;
/* Trains a model (pad 0, eos 1, bos 2, unk 3) on the lines that next() returns and writes it
 * to `path`. */
NODISCARD Err tokenizer_train(const TokenizerTraining *spec,
                              bool (*next)(void *, const char **, size_t *), void *context,
                              const char *path);

#endif
