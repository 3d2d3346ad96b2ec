/* The normaliser's rules in a SentencePiece model: a double-array trie and the texts it leads
 * to. The library follows both without looking, so they are verified here before it sees
 * them. Depends on err, mem. */
#ifndef TEXT_SP_RULES_H
#define TEXT_SP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Bytes that a rule may put in place of what it matches; the usual rules have 33 at most. */
#define SP_RULE_LIMIT ((size_t)1024)

typedef struct {
  const uint8_t *bytes; /* the precompiled_charsmap */
  size_t len;
  size_t offset; /* of it in the file */
  const char *where;
} SpRules;

/* Every unit that a search can reach is within the trie, no path goes in a circle or
 * matches more rules than the library has room for, every replacement ends within the bytes
 * and is no longer than SP_RULE_LIMIT. */
NODISCARD Err sp_rules_verify(const SpRules *rules);
/* Of verified rules: is a space replaced only alone (or followed by one of `joins`)? */
NODISCARD Err sp_rules_spaces(const SpRules *rules, bool *only_alone, bool joins[256]);

#endif
