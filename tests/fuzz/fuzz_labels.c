/* labels.txt of a classifier as hostile bytes: what is accepted is a list of different, visible names. The
 * first byte is the number of labels that the model has. Depends on model/classifier. */
#include <stdint.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz_file.h"
#include "model/classifier.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Str names = {0};
  const char **label;
  if (size == 0) return 0;
  size_t labels = (size_t)data[0] + 1;
  if (size > 1) str_addn(&names, (const char *)data + 1, size - 1);
  if (classifier_split_labels(&names, labels, "labels.txt", &label) == ERR_OK) {
    for (size_t i = 0; i < labels; i++) {
      REQUIRE(label[i][0] && utf8_valid(label[i], strlen(label[i])) == strlen(label[i]));
      REQUIRE(i == 0 || strcmp(label[i - 1], label[i]) != 0);
    }
    mem_free(label);
  } else {
    REQUIRE(!label);
  }
  str_free(&names);
  return 0;
}
