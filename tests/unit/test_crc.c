/* CRC-32 computed with CPU instructions, compared with zlib. */
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "base/crc.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support.h"

#define ROOM ((size_t)1 << 20)

static uint8_t *make_random_bytes(Rng *rng) {
  uint8_t *bytes;
  OK(mem_alloc(&bytes, ROOM, 1));
  for (size_t i = 0; i < ROOM; i++) bytes[i] = (uint8_t)rng_next(rng);
  return bytes;
}

static void test_crc_of_check_string_equals_published_value(void **state) {
  (void)state;
  assert_int_equal(crc_add(0, "123456789", 9), 0xcbf43926u);
  assert_int_equal(crc_add(0, "", 0), 0);
}

static void test_crc_short_lengths_at_every_alignment_equal_zlib(void **state) {
  (void)state;
  Rng rng = {.key = 1};
  uint8_t *bytes = make_random_bytes(&rng);
  for (size_t align = 0; align < 17; align++) {
    for (size_t len = 0; len < 300; len++)
      assert_int_equal(crc_add(0, bytes + align, len), crc32_z(0, bytes + align, len));
  }
  mem_free(bytes);
}

static void test_crc_random_ranges_and_beginnings_equal_zlib(void **state) {
  (void)state;
  Rng rng = {.key = 2};
  uint8_t *bytes = make_random_bytes(&rng);
  for (int i = 0; i < 300; i++) {
    size_t begin = rng_below(&rng, ROOM);
    size_t len = rng_below(&rng, ROOM - begin + 1);
    uint32_t first = (uint32_t)rng_next(&rng);
    assert_int_equal(crc_add(first, bytes + begin, len), crc32_z(first, bytes + begin, len));
  }
  mem_free(bytes);
}

static void test_crc_of_parts_continues_and_joins(void **state) {
  (void)state;
  Rng rng = {.key = 3};
  uint8_t *bytes = make_random_bytes(&rng);
  uint32_t whole = crc_add(0, bytes, ROOM);
  for (int i = 0; i < 50; i++) {
    size_t cut = rng_below(&rng, ROOM);
    uint32_t first = crc_add(0, bytes, cut);
    assert_int_equal(crc_add(first, bytes + cut, ROOM - cut), whole);
    assert_int_equal(crc_join(first, crc_add(0, bytes + cut, ROOM - cut), ROOM - cut), whole);
  }
  mem_free(bytes);
}

int main(void) {
  print_message("crc_add uses %s\n", crc_method());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc_of_check_string_equals_published_value),
      cmocka_unit_test(test_crc_short_lengths_at_every_alignment_equal_zlib),
      cmocka_unit_test(test_crc_random_ranges_and_beginnings_equal_zlib),
      cmocka_unit_test(test_crc_of_parts_continues_and_joins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
