/* The word cache and what a tokenizer's file must be before SentencePiece sees it.
 * Relies on text, cmocka. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "support.h"
#include "text/wordcache.h"

/* wordcache */

static void test_wordcache_word_is_found_again(void **state) {
  (void)state;
  WordCache *cache;
  const int32_t ids[] = {4, 5, 6};
  size_t n = 0;
  OK(wordcache_new(&cache));
  wordcache_add(cache, "word", 4, 7, ids, 3);
  const int32_t *found = wordcache_find(cache, "word", 4, 7, &n);
  assert_non_null(found);
  assert_int_equal(n, 3);
  assert_memory_equal(found, ids, sizeof ids);
  wordcache_free(cache);
}

static void test_wordcache_300000_ids_are_not_remembered(void **state) {
  (void)state;
  enum { MANY = 300000 };
  WordCache *cache;
  int32_t *ids;
  size_t n = 0;
  OK(wordcache_new(&cache));
  OK(mem_alloc(&ids, MANY, sizeof *ids));
  wordcache_add(cache, "a", 1, 7, ids, MANY); /* more than a block of the cache holds */
  assert_null(wordcache_find(cache, "a", 1, 7, &n));
  mem_free(ids);
  wordcache_free(cache);
}

static void test_wordcache_65537_ids_are_not_remembered_as_1(void **state) {
  (void)state;
  enum { MANY = UINT16_MAX + 2 };
  WordCache *cache;
  int32_t *ids;
  size_t n = 0;
  OK(wordcache_new(&cache));
  OK(mem_alloc(&ids, MANY, sizeof *ids));
  wordcache_add(cache, "a", 1, 7, ids, MANY);
  const int32_t *found = wordcache_find(cache, "a", 1, 7, &n);
  assert_true(!found || n == MANY);
  mem_free(ids);
  wordcache_free(cache);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wordcache_word_is_found_again),
      cmocka_unit_test(test_wordcache_300000_ids_are_not_remembered),
      cmocka_unit_test(test_wordcache_65537_ids_are_not_remembered_as_1),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
