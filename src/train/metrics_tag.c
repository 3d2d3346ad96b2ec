/* Names of values for TensorBoard and Weights & Biases. Depends on base. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "train/metrics_sink.h"

void metrics_make_tag(char tag[METRICS_TAG], const char *name) {
  static const char *const groups[] = {"valid_", "average_"};
  if (strchr(name, '/')) {
    snprintf(tag, METRICS_TAG, "%s", name);
    return;
  }
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    size_t n = strlen(groups[i]);
    if (!str_starts(name, groups[i])) continue;
    snprintf(tag, METRICS_TAG, "%.*s/%s", (int)n - 1, name, name + n);
    return;
  }
  snprintf(tag, METRICS_TAG, "%s/%s", str_ends(name, "_ms") ? "time" : "train", name);
}
