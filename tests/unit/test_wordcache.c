/* The word cache, filled and read by several threads at the same time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/rng.h"
#include "support.h"
#include "text/wordcache.h"

enum { WORDS = 4000, THREADS = 4 };

static WordCache *cache;
static atomic_uint wrong, found;

/* Creates word i and its ids; the number and values of the ids depend on i. */
static size_t make_word(uint32_t i, char text[16], uint64_t *hash) {
  int len = snprintf(text, 16, "w%x", i);
  /* Reduces the hashes to few slots, so that threads compete for them. */
  *hash = rng_hash(text, (size_t)len, 0) & ~(uint64_t)0x3ff00;
  return (size_t)len;
}

static size_t make_ids(uint32_t i, int32_t ids[8]) {
  size_t n = i % 8;
  for (size_t k = 0; k < n; k++) ids[k] = (int32_t)(i * 8 + k);
  return n;
}

static bool is_right(uint32_t i, const int32_t *there, size_t n) {
  int32_t ids[8];
  return n == make_ids(i, ids) && memcmp(there, ids, n * sizeof *ids) == 0;
}

/* Every thread adds every word, each in a different order, and looks up all others. */
static void *fill(void *argument) {
  uint32_t start = *(const uint32_t *)argument;
  for (uint32_t k = 0; k < WORDS; k++) {
    uint32_t i = (start + k) % WORDS, other = (uint32_t)rng_mix(start, k) % WORDS;
    char text[16];
    int32_t ids[8];
    uint64_t hash;
    size_t n, len = make_word(i, text, &hash), count = make_ids(i, ids);
    wordcache_add(cache, text, len, hash, ids, count);
    const int32_t *there = wordcache_find(cache, text, len, hash, &n);
    if (!there || !is_right(i, there, n)) atomic_fetch_add(&wrong, 1);
    len = make_word(other, text, &hash);
    there = wordcache_find(cache, text, len, hash, &n);
    if (there) atomic_fetch_add(&found, 1);
    if (there && !is_right(other, there, n)) atomic_fetch_add(&wrong, 1);
  }
  return NULL;
}

static void test_wordcache_threads_find_what_others_added(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  uint32_t start[THREADS];
  OK(wordcache_new(&cache));
  for (uint32_t t = 0; t < THREADS; t++) {
    start[t] = t * (WORDS / THREADS);
    assert_int_equal(pthread_create(&thread[t], NULL, fill, &start[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
  assert_true(atomic_load(&found) > 0);
  for (uint32_t i = 0; i < WORDS; i++) {
    char text[16];
    uint64_t hash;
    size_t n, len = make_word(i, text, &hash);
    const int32_t *there = wordcache_find(cache, text, len, hash, &n);
    assert_non_null(there);
    assert_true(is_right(i, there, n));
  }
  wordcache_free(cache);
}

static void test_wordcache_unknown_word_is_not_found(void **state) {
  (void)state;
  size_t n;
  OK(wordcache_new(&cache));
  wordcache_add(cache, "there", 5, 77, &(int32_t){9}, 1);
  assert_non_null(wordcache_find(cache, "there", 5, 77, &n));
  assert_null(wordcache_find(cache, "other", 5, 77, &n)); /* another word with the same hash */
  assert_null(wordcache_find(cache, "there", 5, 78, &n));
  wordcache_free(cache);
}

static void test_wordcache_beginning_of_a_word_is_another_word(void **state) {
  (void)state;
  size_t n;
  OK(wordcache_new(&cache));
  wordcache_add(cache, "therefore", 9, 77, &(int32_t){9}, 1);
  assert_null(wordcache_find(cache, "there", 5, 77, &n)); /* another word with the same hash */
  wordcache_free(cache);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wordcache_threads_find_what_others_added),
      cmocka_unit_test(test_wordcache_unknown_word_is_not_found),
      cmocka_unit_test(test_wordcache_beginning_of_a_word_is_another_word),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
