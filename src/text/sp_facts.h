/* Facts about a SentencePiece model that the library does not report, read from the .model
 * file itself (a protocol buffer; the bytes are not trusted). Depends on base. */
#ifndef TEXT_SP_FACTS_H
#define TEXT_SP_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  int pieces;
  int pad, bos, eos, unk; /* special ids; -1 if the model has none */
  const char *type;       /* "unigram", "bpe", "word" or "char" */
  /* True if encoding a line gives the same ids as encoding its words one by one. Derived from the
   * model; sp_facts.c lists the conditions. */
  bool by_word;
  /* joins[b] is true if by_word does not hold for words that begin with byte b, usually a
   * combining accent: the normalizer may merge the space and the accent. */
  bool joins[256];
} SpFacts;

/* Reads the facts from the bytes of a .model file; `where` names the file in errors. Also
 * verifies everything that SentencePiece uses without a check (fields, pieces, special ids,
 * normalization rules, see sp_rules.h), so that the bytes can safely be passed to it. */
NODISCARD Err sp_facts(SpFacts *facts, const char *bytes, size_t len, const char *where);

#endif
