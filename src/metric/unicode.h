/* Text properties as in Python's str: white space, lower case, general categories. Depends on
 * base/utf8 and utf8proc. */
#ifndef METRIC_UNICODE_H
#define METRIC_UNICODE_H

#include "metric/metric.h"

/* A growable byte buffer that is reused for every line. */
typedef struct {
  char *s;
  size_t len, cap;
} MetricBuffer;

typedef enum { METRIC_OTHER, METRIC_NUMBER, METRIC_PUNCTUATION, METRIC_SYMBOL } MetricClass;

/* Fails if the program was built without utf8proc. */
NODISCARD Err metric_unicode(void);
/* Python's str.isspace(): White_Space and the four separators U+001C … U+001F. */
bool metric_is_space(uint32_t code);
MetricText metric_rstrip(MetricText text);
/* Returns whether the general category is N (number), P (punctuation) or S (symbol). */
MetricClass metric_class(uint32_t code);
/* Python's str.lower(): full case mappings, including the final sigma. */
NODISCARD Err metric_lower(MetricText text, MetricBuffer *out);

#endif
