/* SGM files as hostile bytes: the output of an accepted file ends with a line feed and
 * contains no CR and no NUL. Depends on data/unpack. */
#include <stdint.h>
#include <stdlib.h>

#include "data/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Str out = {0};
  if (unpack_sgm_text((const char *)data, size, "fuzz", &out) == ERR_OK) {
    if (out.len == 0 || out.s[out.len - 1] != '\n') abort();
    for (size_t i = 0; i < out.len; i++) {
      if (out.s[i] == '\r' || out.s[i] == '\0') abort();
    }
  }
  str_free(&out);
  return 0;
}
