/* Facts of a machine as hostile JSON: accepted facts must be the same after facts_to_json
 * and parsing again. Depends on launch/facts. */
#include "launch/facts.h"

#include "base/jsondoc.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MachineFacts first, second;
  if (jsondoc_check((const char *)data, size, "fuzz")) return 0;
  json_t *json = json_loadb((const char *)data, size, 0, NULL);
  if (!json) return 0;
  if (facts_from_json(&first, json, "fuzz") == ERR_OK) {
    json_t *again = facts_to_json(&first);
    REQUIRE(again && facts_from_json(&second, again, "again") == ERR_OK);
    REQUIRE(memcmp(&first, &second, sizeof first) == 0);
    json_decref(again);
  }
  json_decref(json);
  return 0;
}
