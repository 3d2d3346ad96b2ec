/* SentencePiece models as hostile bytes: the facts read from them are in range.
 * Relies on text/sp_facts. */
#include "fuzz_file.h"
#include "text/sp_facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SpFacts f;
  if (sp_facts(&f, (const char *)data, size, "fuzz")) return 0;
  REQUIRE(f.pieces > 0 && (size_t)f.pieces <= size / 2); /* a piece takes two bytes */
  const int id[] = {f.pad, f.bos, f.eos, f.unk};
  for (size_t i = 0; i < sizeof id / sizeof *id; i++) REQUIRE(id[i] >= -1 && id[i] < f.pieces);
  REQUIRE(!f.by_word || strcmp(f.type, "bpe") == 0);
  return 0;
}
