/* Facts about a SentencePiece model that its library does not tell, read from
 * the .model file itself (a protocol buffer; hostile bytes). Depends on base. */
#ifndef TEXT_SP_FACTS_H
#define TEXT_SP_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  int pieces;
  int pad, bos, eos, unk; /* -1 when the model has none */
  const char *type;       /* "unigram", "bpe", "word" or "char" */
  /* Does encoding a line equal encoding its words, one by one? Proved from the
   * model: see sp_facts.c. */
  bool by_word;
  /* … unless a word begins with one of these bytes (combining accents, as a
   * rule): the normaliser sees the space and the accent as one. */
  bool joins[256];
} SpFacts;

/* Also verifies all that the library takes on trust, so that it may be given these bytes:
 * the fields, the pieces, the special ids and the rules (sp_rules.h). */
NODISCARD Err sp_facts(SpFacts *facts, const char *bytes, size_t len, const char *where);

#endif
