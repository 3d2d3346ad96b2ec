/* Words of a line for BLEU, by the rules of mteval-v13a (13a), mteval-v14
 * (intl), single characters (char) or white space alone (none).
 * Depends on metric/unicode. */
#ifndef METRIC_TOKENIZE_H
#define METRIC_TOKENIZE_H

#include "metric/unicode.h"

typedef struct {
  MetricText *token; /* the result; points into the line or into `text` */
  size_t tokens;
  size_t token_cap, class_cap, gap_cap, at_cap;
  uint8_t *class;    /* per character: what the rules see */
  uint8_t *gap;      /* per character: is a space put before it, by which rule */
  uint32_t *at;      /* per character: its first byte */
  MetricBuffer text; /* the line, where it had to be rewritten */
} MetricTokens;

NODISCARD Err metric_tokenize(MetricTokens *t, MetricTokenizer tokenizer, MetricText line);
void metric_tokens_free(MetricTokens *t);

#endif
