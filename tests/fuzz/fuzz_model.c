/* SentencePiece models as hostile bytes: the facts read from an accepted model are in range.
 * SentencePiece may refuse the model, but must not crash when it loads it, encodes and decodes.
 * Depends on text/sp_facts, text/sp_shim. */
#include "fuzz_file.h"
#include "text/sp_facts.h"
#include "text/sp_shim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool put_id(void *context, int32_t id) {
  REQUIRE(id >= 0 && id < *(const int *)context);
  return true;
}

static void use_library(const char *bytes, size_t size, int pieces) {
  static const char text[] =
      "ab abc \xef\xbd\x81 aa\xcc\x81 x y \xef\xac\x81\xf0\x9f\x98\x80 ba";
  SpModel *model;
  if (sp_load(&model, bytes, size, "fuzz")) return;
  REQUIRE(sp_size(model) == pieces);
  if (sp_encode(model, text, sizeof text - 1, put_id, &pieces) == ERR_OK) {
    Str back = {0};
    int32_t ids[] = {0, pieces - 1, pieces / 2};
    (void)!sp_decode(model, ids, 3, &back);
    str_free(&back);
  }
  sp_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SpFacts f;
  if (sp_facts(&f, (const char *)data, size, "fuzz")) return 0;
  REQUIRE(f.pieces > 0 && (size_t)f.pieces <= size / 2); /* a piece needs at least two bytes */
  const int id[] = {f.pad, f.bos, f.eos, f.unk};
  for (size_t i = 0; i < sizeof id / sizeof *id; i++) REQUIRE(id[i] >= -1 && id[i] < f.pieces);
  REQUIRE(!f.by_word || strcmp(f.type, "bpe") == 0);
  use_library((const char *)data, size, f.pieces);
  return 0;
}
