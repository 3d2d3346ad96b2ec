/* Squeezing of white space. UTF-8 text must stay UTF-8 and keep all characters that are not
 * spaces; the result has no space at either end and no two in a row, and squeezing it again
 * changes nothing. For other bytes the result must not be longer. Depends on data/clean,
 * base/utf8. */
#include "data/clean.h"

#include "base/utf8.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the next character that is not a space, plus 1; 0 at the end. */
static uint32_t next_black(const char **at, const char *end) {
  while (*at < end) {
    uint32_t code;
    size_t n = utf8_decode(*at, end, &code);
    REQUIRE(n > 0);
    *at += n;
    if (!utf8_is_space(code)) return code + 1;
  }
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1), *once = malloc(size + 1), *twice = malloc(size + 1);
  REQUIRE(text && once && twice);
  if (size) memcpy(text, data, size);
  size_t valid = utf8_valid(text, size);
  REQUIRE(valid <= size && utf8_valid(text, valid) == valid);
  CleanLine broken = clean_squeeze(text, size, once);
  REQUIRE(broken.len <= size);
  CleanLine line = clean_squeeze(text, valid, once);
  REQUIRE(line.len <= valid && utf8_valid(once, line.len) == line.len);
  const char *a = text, *b = once;
  for (uint32_t x = 1; x;) {
    x = next_black(&a, text + valid);
    REQUIRE(x == next_black(&b, once + line.len));
  }
  uint32_t blanks = 0;
  bool before = true; /* so that a leading space is an error */
  for (const char *at = once; at < once + line.len;) {
    uint32_t code;
    at += utf8_decode(at, once + line.len, &code);
    bool space = utf8_is_space(code);
    REQUIRE(!space || (code == ' ' && !before));
    before = space;
    blanks += space;
  }
  REQUIRE(line.len == 0 || !before);
  REQUIRE(line.words <= blanks + 1);
  CleanLine again = clean_squeeze(once, line.len, twice);
  REQUIRE(again.len == line.len && memcmp(once, twice, line.len) == 0);
  REQUIRE(again.words == line.words && again.longest_word == line.longest_word);
  clean_squeeze(text, valid, text); /* in place */
  REQUIRE(memcmp(once, text, line.len) == 0);
  free(text);
  free(once);
  free(twice);
  return 0;
}
