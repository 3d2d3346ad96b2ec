/* A vocabulary and a text, both hostile: the bytes before the first NUL are lines that follow the
 * special pieces, the rest is encoded. Every id is in the vocabulary, and the second encoding, which
 * the cache answers, equals the first. Depends on text/wordpiece. */
#include "text/wordpiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) ((condition) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char specials[] = "[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  const uint8_t *end = memchr(data, 0, size);
  size_t lines = end ? (size_t)(end - data) : size, used = end ? lines + 1 : size;
  BertRules rules = {.is_lower = size & 1, .strips_accents = size & 1};
  Wordpiece w;
  Str vocab = {0};
  IdList ids = {0};
  str_add(&vocab, specials);
  str_addn(&vocab, (const char *)data, lines);
  if (wordpiece_read(&w, str_text(&vocab), vocab.len, "fuzz", rules) == ERR_OK) {
    const char *text = (const char *)data + used;
    REQUIRE(wordpiece_encode(&w, text, size - used, &ids) == ERR_OK);
    size_t n = ids.len;
    REQUIRE(wordpiece_encode(&w, text, size - used, &ids) == ERR_OK);
    REQUIRE(ids.len == 2 * n);
    for (size_t i = 0; i < n; i++)
      REQUIRE(wordpiece_piece(&w, ids.id[i]) && ids.id[i] == ids.id[n + i]);
    wordpiece_close(&w);
  }
  ids_free(&ids);
  str_free(&vocab);
  return 0;
}
