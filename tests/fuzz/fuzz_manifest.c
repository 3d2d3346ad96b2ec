/* shards.manifest as hostile text: accepted entries name files without a directory, and are
 * the same after printing and parsing again. Depends on data/manifest. */
#include "data/manifest.h"

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Err print_entry(void *context, const ManifestEntry *e) {
  REQUIRE(e->file.name[0] && e->file.name[0] != '.' && !strchr(e->file.name, '/'));
  REQUIRE(strlen(e->file.sha256) == 64);
  REQUIRE(e->split < SPLITS && e->file.pairs > 0);
  manifest_print(e, context);
  return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Str first = {0}, second = {0};
  ManifestEnd end, again;
  Err err = manifest_parse((const char *)data, size, "fuzz", &end, print_entry, &first);
  REQUIRE(end.bytes <= size);
  REQUIRE(end.is_damaged == (err != ERR_OK));
  REQUIRE(err || end.bytes == size);
  REQUIRE(manifest_parse(str_text(&first), first.len, "again", &again, print_entry, &second) ==
          ERR_OK);
  REQUIRE(first.len == second.len && strcmp(str_text(&first), str_text(&second)) == 0);
  str_free(&first);
  str_free(&second);
  return 0;
}
