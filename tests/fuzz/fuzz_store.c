/* model.json as hostile text: the sizes of an accepted model are consistent, and if its
 * parameters can be laid out, there is at least one. Depends on model/store. */
#include "model/store.h"
#include "model/transformer.h"

#include "base/jsondoc.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the directory of model.json, which all inputs use. */
static const char *scratch_dir(void) {
  static char dir[] = "/dev/shm/fuzz-store-XXXXXX";
  static bool made;
  if (!made) REQUIRE(mkdtemp(dir) != NULL);
  made = true;
  return dir;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FILE_PATH_MAX];
  ModelConfig config;
  StoreSums sums;
  Params params;
  if (size < 1) return 0;
  Str text = {0};
  str_addn(&text, (const char *)data + 1, size - 1);
  if (data[0] & 1) jsondoc_seal(&text);
  REQUIRE(file_join(path, scratch_dir(), "model.json") == ERR_OK);
  FILE *f = fopen(path, "w");
  REQUIRE(f && fwrite(str_text(&text), 1, text.len, f) == text.len && fclose(f) == 0);
  str_free(&text);
  if (store_load_config(&config, &sums, scratch_dir())) return 0;
  const TransformerConfig *c = transformer_config(&config);
  REQUIRE(c);
  REQUIRE(c->vocab > 0 && c->eos >= 0 && c->eos < c->vocab);
  REQUIRE(c->d_model % c->heads == 0);
  if (transformer_lay_out_params(&params, c)) return 0;
  REQUIRE(params.count > 0 && params.padded >= params.total);
  params_free(&params);
  return 0;
}
