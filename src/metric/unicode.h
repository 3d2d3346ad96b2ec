/* Text as Python's str treats it: white space, lower case, general categories. Depends on
 * base/utf8 and utf8proc. */
#ifndef METRIC_UNICODE_H
#define METRIC_UNICODE_H

#include "metric/metric.h"

/* A byte buffer that each line overwrites. */
typedef struct {
  char *s;
  size_t len, cap;
} MetricBuffer;

typedef enum { METRIC_OTHER, METRIC_NUMBER, METRIC_PUNCTUATION, METRIC_SYMBOL } MetricClass;

/* An error where this program was built without utf8proc. */
NODISCARD Err metric_unicode(void);
/* str.isspace(): White_Space and the four separators U+001C … U+001F. */
bool metric_is_space(uint32_t code);
MetricText metric_rstrip(MetricText text);
/* General category N, P or S. */
MetricClass metric_class(uint32_t code);
/* str.lower(): full mappings, with the final sigma. */
NODISCARD Err metric_lower(MetricText text, MetricBuffer *out);

#endif
