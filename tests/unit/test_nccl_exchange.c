/* The exchange of the stand-in for NCCL (tests/gpu/nccl_exchange.h), with processes as ranks: sums in
 * the order of the ranks, pieces for one rank, copies, more steps than slots, different calls, a
 * rank that does not come. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../gpu/nccl_exchange.h"
#include "support.h"

enum { N = 1000, STEPS = 50 };

static char path[64];

/* Runs work(rank, size) in a process per rank; each must return 0. */
static void run_ranks(int size, int (*work)(int rank, int size)) {
  pid_t pid[EXCHANGE_RANKS];
  snprintf(path, sizeof path, "%s/exchange", scratch);
  for (int r = 0; r < size; r++) {
    pid[r] = fork();
    assert_true(pid[r] >= 0);
    if (pid[r] == 0) _exit(work(r, size));
  }
  for (int r = 0; r < size; r++) {
    int status;
    assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
    if (status) fail_msg("rank %d of %d: wait status %d", r, size, status);
  }
  assert_int_equal(access(path, F_OK), -1); /* no file is left */
}

/* Numbers whose sum depends on the order in which they are added. */
static float number(int rank, int step, size_t i) {
  return (float)((int)(i * 31 + (size_t)rank * 17 + (size_t)step) % 101 - 50) *
         (rank % 2 ? 1e-6f : 1e3f);
}

static float sum_of(int size, int step, size_t i) {
  float sum = number(0, step, i);
  for (int r = 1; r < size; r++) sum += number(r, step, i);
  return sum;
}

static int add_to_all(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  float send[N], recv[N];
  int wrong = !x;
  for (int step = 0; step < STEPS && !wrong; step++) {
    ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_FP32, EXCHANGE_ALL, 0, N};
    for (size_t i = 0; i < N; i++) send[i] = number(rank, step, i);
    wrong |= exchange_run(x, &s, send, recv) != EXCHANGE_DONE;
    for (size_t i = 0; i < N; i++) wrong |= recv[i] != sum_of(size, step, i);
  }
  if (x) exchange_close(x);
  return wrong;
}

static int add_to_one(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  float send[N], recv[N];
  int wrong = !x;
  for (int step = 0; step < STEPS && !wrong; step++) {
    int root = step % size;
    ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_FP32, root, 0, N};
    for (size_t i = 0; i < N; i++) send[i] = number(rank, step, i);
    for (size_t i = 0; i < N; i++) recv[i] = -1;
    wrong |= exchange_run(x, &s, send, recv) != EXCHANGE_DONE;
    for (size_t i = 0; i < N; i++)
      wrong |= recv[i] != (root == rank ? sum_of(size, step, i) : -1);
  }
  if (x) exchange_close(x);
  return wrong;
}

static int copy_from_each(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  float send[N], recv[N];
  int wrong = !x;
  for (int step = 0; step < STEPS && !wrong; step++) {
    int root = step % size;
    ExchangeStep s = {EXCHANGE_COPY, EXCHANGE_FP32, root, 0, N};
    for (size_t i = 0; i < N; i++) send[i] = number(rank, step, i);
    wrong |= exchange_run(x, &s, root == rank ? send : NULL, recv) != EXCHANGE_DONE;
    for (size_t i = 0; i < N; i++) wrong |= recv[i] != number(root, step, i);
  }
  if (x) exchange_close(x);
  return wrong;
}

static void test_exchange_adds_in_order_of_ranks(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 4, 8};
  for (size_t i = 0; i < 4; i++) run_ranks(sizes[i], add_to_all);
}

static void test_exchange_adds_to_one_rank(void **state) {
  (void)state;
  run_ranks(1, add_to_one);
  run_ranks(8, add_to_one);
}

static void test_exchange_copies_from_one_rank(void **state) {
  (void)state;
  run_ranks(1, copy_from_each);
  run_ranks(8, copy_from_each);
}

/* The sum has digits that fp32 does not have, and depends on the order. */
static int add_fp64(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  double send[2] = {1 + rank * 0x1p-40, rank == 0 ? 0x1p60 : rank == size - 1 ? -0x1p60 : 1};
  double recv[2], sum = 0;
  ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_FP64, EXCHANGE_ALL, 0, 2};
  if (!x || exchange_run(x, &s, send, recv) != EXCHANGE_DONE) return 1;
  exchange_close(x);
  for (int r = 0; r < size; r++) sum += 1 + r * 0x1p-40;
  return recv[0] != sum || recv[1] != 0;
}

static void test_exchange_adds_fp64_in_order_of_ranks(void **state) {
  (void)state;
  run_ranks(4, add_fp64);
}

/* 256 + 1 + 1 in bf16 is 258 if the sum is rounded once, 256 if each partial sum is; NaN stays. */
static int add_bf16(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  uint16_t send[2] = {rank == 0 ? 0x4380 : 0x3f80, rank == 1 ? 0x7fff : 0x3f80}, recv[2];
  ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_BF16, EXCHANGE_ALL, 0, 2};
  if (!x || exchange_run(x, &s, send, recv) != EXCHANGE_DONE) return 1;
  exchange_close(x);
  return recv[0] != 0x4381 || (recv[1] & 0x7fff) <= 0x7f80;
}

static void test_exchange_rounds_bf16_once(void **state) {
  (void)state;
  run_ranks(3, add_bf16);
}

static int run_different_calls(int rank, int size) {
  static float send[N], recv[N];
  Exchange *x = exchange_open(path, rank, size);
  ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_FP32, EXCHANGE_ALL, 0, rank == 1 ? N - 1 : N};
  if (!x || exchange_run(x, &s, send, recv) != EXCHANGE_DIFFERS) return 1;
  exchange_close(x);
  return 0;
}

static void test_exchange_detects_different_sizes(void **state) {
  (void)state;
  run_ranks(3, run_different_calls);
}

static atomic_bool has_ended;

static void *run_alone(void *context) {
  static float send[N], recv[N];
  ExchangeStep s = {EXCHANGE_ADD, EXCHANGE_FP32, EXCHANGE_ALL, 0, N};
  ExchangeResult result = exchange_run(context, &s, send, recv);
  atomic_store(&has_ended, true);
  return result == EXCHANGE_ABORTED ? NULL : context;
}

/* Rank 1 maps the file and leaves: rank 0 waits for it until it is aborted. */
static int wait_and_abort(int rank, int size) {
  Exchange *x = exchange_open(path, rank, size);
  pthread_t thread;
  void *wrong;
  if (!x) return 1;
  if (rank == 1) return 0;
  if (pthread_create(&thread, NULL, run_alone, x)) return 1;
  usleep(10000); /* The step cannot end, however long this takes. */
  if (atomic_load(&has_ended)) return 1;
  exchange_abort(x);
  pthread_join(thread, &wrong);
  exchange_close(x);
  return wrong != NULL;
}

static void test_exchange_missing_rank_blocks_until_abort(void **state) {
  (void)state;
  run_ranks(2, wait_and_abort);
}

static void test_exchange_without_directory_fails(void **state) {
  (void)state;
  assert_null(exchange_open("/nonexistent/exchange", 0, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exchange_adds_in_order_of_ranks),
      cmocka_unit_test(test_exchange_adds_to_one_rank),
      cmocka_unit_test(test_exchange_adds_fp64_in_order_of_ranks),
      cmocka_unit_test(test_exchange_copies_from_one_rank),
      cmocka_unit_test(test_exchange_rounds_bf16_once),
      cmocka_unit_test(test_exchange_detects_different_sizes),
      cmocka_unit_test(test_exchange_missing_rank_blocks_until_abort),
      cmocka_unit_test(test_exchange_without_directory_fails),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
