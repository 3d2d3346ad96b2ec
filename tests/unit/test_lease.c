/* Lease (base/lease.h): one thread uses a resource while another ends it. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/lease.h"
#include "base/mem.h"
#include "support.h"

static void test_lease_ended_cannot_be_taken(void **state) {
  (void)state;
  Lease l;
  lease_open(&l);
  assert_true(lease_take(&l));
  assert_false(lease_return(&l));
  assert_true(lease_end(&l, 0));
  assert_false(lease_take(&l));
  lease_close(&l);
}

static void test_lease_ended_twice_is_freed_once(void **state) {
  (void)state;
  Lease l;
  lease_open(&l);
  assert_true(lease_end(&l, 0));
  assert_false(lease_end(&l, 0));
  lease_close(&l);
}

static void test_lease_end_timeout_leaves_freeing_to_the_user(void **state) {
  (void)state;
  Lease l;
  lease_open(&l);
  assert_true(lease_take(&l));
  assert_false(lease_end(&l, 0.01));
  assert_true(lease_return(&l));
  assert_false(lease_end(&l, 0));
  lease_close(&l);
}

typedef struct {
  Lease lease;
  atomic_bool freed;
} Ended;

static void *end_it(void *context) {
  Ended *e = context;
  bool mine = lease_end(&e->lease, 600);
  atomic_store(&e->freed, mine);
  return NULL;
}

static bool has_begun_to_end(Lease *l) {
  pthread_mutex_lock(&l->lock);
  bool ended = l->ended;
  pthread_mutex_unlock(&l->lock);
  return ended;
}

static void test_lease_end_waits_for_the_user(void **state) {
  (void)state;
  Ended e = {0};
  pthread_t thread;
  lease_open(&e.lease);
  assert_true(lease_take(&e.lease));
  assert_int_equal(pthread_create(&thread, NULL, end_it, &e), 0);
  while (!has_begun_to_end(&e.lease)) sched_yield();
  assert_false(atomic_load(&e.freed));
  assert_false(lease_return(&e.lease));
  pthread_join(thread, NULL);
  assert_true(atomic_load(&e.freed));
  lease_close(&e.lease);
}

/* A resource whose contents change when it is freed, to detect that it is freed during a use. */
typedef struct {
  Lease lease;
  int *resource;
  atomic_int frees;
  double patience;
} Shared;

static void free_it(Shared *s) {
  *s->resource = -1;
  mem_free(s->resource);
  atomic_fetch_add(&s->frees, 1);
}

static void *end_shared(void *context) {
  Shared *s = context;
  if (lease_end(&s->lease, s->patience)) free_it(s);
  return NULL;
}

static void test_lease_ended_during_use_is_freed_once_after_the_use(void **state) {
  (void)state;
  for (int turn = 0; turn < 400; turn++) {
    Shared s = {.patience = turn % 2 ? 60 : 0};
    pthread_t thread;
    lease_open(&s.lease);
    OK(mem_alloc(&s.resource, 1, sizeof *s.resource));
    assert_int_equal(pthread_create(&thread, NULL, end_shared, &s), 0);
    for (int uses = 0; lease_take(&s.lease); uses++) {
      *s.resource = uses;
      if (turn % 3 == 0) sched_yield();
      assert_int_equal(*s.resource, uses);
      if (lease_return(&s.lease)) free_it(&s);
    }
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&s.frees), 1);
    lease_close(&s.lease);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lease_ended_cannot_be_taken),
      cmocka_unit_test(test_lease_ended_twice_is_freed_once),
      cmocka_unit_test(test_lease_end_timeout_leaves_freeing_to_the_user),
      cmocka_unit_test(test_lease_end_waits_for_the_user),
      cmocka_unit_test(test_lease_ended_during_use_is_freed_once_after_the_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
