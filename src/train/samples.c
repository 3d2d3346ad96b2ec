/* Depends on samples.h. */
#include "train/samples.h"

#include <string.h>

#include "base/opt_rows.h"

const OptSpec sample_options[] = {
    COUNT("samples", "N", "3", 0, 1000, "train", "What to show",
          "Outputs to print at each validation: translations with their references, or texts "
          "with predicted and true labels"),
    {0},
};

void samples_begin(TaskSamples *samples, const char *const *names, size_t columns) {
  if (samples->rows) return;
  samples->columns = columns;
  samples->rows = 1;
  for (size_t i = 0; i < columns; i++) samples_add_cell(samples, names[i], strlen(names[i]));
}

void samples_add_cell(TaskSamples *samples, const char *text, size_t len) {
  str_addn(&samples->cells, text, strnlen(text, len));
  str_addc(&samples->cells, '\0');
}
