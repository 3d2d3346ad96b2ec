/* Recipe files as hostile bytes: names in an accepted recipe contain no '/' or '..', and
 * its config has as many lines as the recipe. Depends on data/recipe. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count_lines(const char *text, size_t len) {
  size_t lines = len > 0 && text[len - 1] != '\n';
  for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
  return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Recipe r;
  if (recipe_parse(&r, (const char *)data, size, "fuzz") == ERR_OK) {
    if (count_lines((const char *)data, size) != count_lines(str_text(&r.config), r.config.len))
      abort();
    for (size_t i = 0; i < r.items; i++) {
      if (strchr(r.item[i].name, '/') || strstr(r.item[i].name, "..")) abort();
    }
    recipe_free(&r);
  }
  return 0;
}
