/* Splits a line into words for BLEU by the rules of mteval-v13a (13a), mteval-v14 (intl),
 * into single characters (char) or at white space only (none). Depends on metric/unicode. */
#ifndef METRIC_TOKENIZE_H
#define METRIC_TOKENIZE_H

#include "metric/unicode.h"

typedef struct {
  MetricText *token; /* the tokens; they point into the line or into `text` */
  size_t tokens;
  size_t token_cap, class_cap, gap_cap, at_cap;
  uint8_t *class;    /* per character: class bits for the rules */
  uint8_t *gap;      /* per character: bits of the rules that insert a space before it */
  uint32_t *at;      /* per character: offset of its first byte */
  MetricBuffer text; /* copy of the line, if it had to be changed */
} MetricTokens;

NODISCARD Err metric_tokenize(MetricTokens *t, MetricTokenizer tokenizer, MetricText line);
void metric_tokens_free(MetricTokens *t);

#endif
