/* Files of /proc as hostile text: whatever is parsed is within its limits. The first byte selects the
 * parser. Depends on monitor/system_counters. */
#include <math.h>

#include "fuzz_file.h"
#include "monitor/system_counters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_even(const char *name, void *context) {
  (void)context;
  REQUIRE(*name && strlen(name) < SYSTEM_NAME);
  return strlen(name) % 2 == 0;
}

static void parse_text(int parser, const char *text) {
  enum { MAX = 3 };
  CoreTime core[MAX];
  CardBytes card[MAX];
  DiskBytes disks;
  uint64_t a, b;
  if (parser == 0) REQUIRE(counters_parse_cores(text, core, MAX) <= MAX);
  if (parser == 1 && counters_parse_memory(text, &a, &b)) REQUIRE(b <= a);
  if (parser == 2) (void)counters_parse_disks(text, is_even, NULL, &disks);
  if (parser == 3) {
    size_t n = counters_parse_cards(text, card, MAX);
    REQUIRE(n <= MAX);
    for (size_t i = 0; i < n; i++) REQUIRE(strnlen(card[i].name, SYSTEM_NAME) < SYSTEM_NAME);
  }
  if (parser == 4) (void)counters_parse_resident(text, &a);
  if (parser == 5) (void)counters_parse_number(text, &a);
  if (parser == 6) REQUIRE(!(counters_parse_rate(text) <= 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  char *text = malloc(size);
  REQUIRE(text);
  memcpy(text, data + 1, size - 1);
  text[size - 1] = '\0';
  parse_text(data[0] % 7, text);
  free(text);
  return 0;
}
