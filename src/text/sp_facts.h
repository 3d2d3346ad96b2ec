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
  int pad, bos, eos, unk; /* -1 when the model has none */
  const char *type;       /* "unigram", "bpe", "word" or "char" */
  /* Does encoding a line give the ids of encoding its words one by one? Derived from the
   * model; the conditions are in sp_facts.c. */
  bool by_word;
  /* Exception: a word that begins with one of these bytes (usually combining accents). The
   * normalizer may merge the space and the accent. */
  bool joins[256];
} SpFacts;

/* Also verifies everything that SentencePiece uses without a check (fields, pieces, special
 * ids, normalization rules, see sp_rules.h), so that these bytes can safely be passed to it. */
NODISCARD Err sp_facts(SpFacts *facts, const char *bytes, size_t len, const char *where);

#endif
