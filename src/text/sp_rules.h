/* The normalization rules in a SentencePiece model: a double-array trie and the replacement texts
 * that it points to. SentencePiece reads both without checking bounds, so they are verified
 * before they are passed to it. Depends on err, mem. */
#ifndef TEXT_SP_RULES_H
#define TEXT_SP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Longest replacement text in bytes; SentencePiece's own rules have at most 33. */
#define SP_RULE_LIMIT ((size_t)1024)

typedef struct {
  const uint8_t *bytes; /* the field precompiled_charsmap of the model */
  size_t len;
  size_t offset; /* offset of `bytes` in the file */
  const char *where;
} SpRules;

/* Checks that every unit a search can reach is within the trie, that no path is a cycle or
 * matches more rules than SentencePiece's array can hold, and that every replacement ends within
 * the bytes and is no longer than SP_RULE_LIMIT. */
NODISCARD Err sp_rules_verify(const SpRules *rules);
/* For verified rules: sets *only_alone to true if every rule whose pattern contains a space
 * matches the space alone or a space followed by a byte b; sets joins[b] for these bytes. */
NODISCARD Err sp_rules_spaces(const SpRules *rules, bool *only_alone, bool joins[256]);

#endif
