/* Which micro-batches a rank computes, and when their gradients are reduced, for simulated
 * ranks. tests/cli/ranks.bats uses real ranks. */
#include "support.h"
#include "train/world.h"

#define MOST 64 /* largest number of micro-batches */

static World make_world(int rank, int ranks, GradPath path, bool each_round) {
  return (World){
      .rank = rank, .ranks = ranks, .grads = {.path = path, .each_round = each_round}};
}

typedef struct {
  int computed[MOST]; /* how often each micro-batch is computed, over all ranks */
  int reductions;     /* number of reductions on rank 0 */
  int last_reductions;
  int fresh;
} Tally;

static Tally tally_step(int ranks, uint32_t micro_batches, GradPath path, bool each_round) {
  Tally tally = {0};
  for (int rank = 0; rank < ranks; rank++) {
    World w = make_world(rank, ranks, path, each_round);
    RoundIterator it = {0};
    Round r;
    int reductions = 0;
    while (world_next_round(&w, micro_batches, &it, &r)) {
      if (r.has_micro_batch) tally.computed[r.micro_batch]++;
      if (r.is_reduced) reductions++;
      if (r.is_reduced && r.grads.is_last) tally.last_reductions++;
      if (rank == 0 && r.is_fresh) tally.fresh++;
    }
    if (rank == 0) tally.reductions = reductions;
    /* All ranks must run the same number of collectives. */
    assert_int_equal(reductions, tally.reductions);
  }
  return tally;
}

static void assert_each_computed_once(const Tally *tally, uint32_t micro_batches) {
  for (uint32_t i = 0; i < MOST; i++)
    assert_int_equal(tally->computed[i], i < micro_batches ? 1 : 0);
}

static void test_world_rounds_reduced_once_compute_every_micro_batch_once(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= 7; ranks++)
    for (uint32_t n = (uint32_t)ranks; n <= 20; n++) {
      Tally tally = tally_step(ranks, n, GRADS_HOST, false);
      assert_each_computed_once(&tally, n);
      assert_int_equal(tally.reductions, 1);
      assert_int_equal(tally.last_reductions, ranks);
      assert_int_equal(tally.fresh, 0);
    }
}

static void test_world_rounds_reduced_each_compute_every_micro_batch_once(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= 7; ranks++)
    for (uint32_t n = (uint32_t)ranks; n <= 20; n++) {
      Tally tally = tally_step(ranks, n, GRADS_HOST, true);
      int rounds = (int)world_rounds(&(World){.ranks = ranks}, n);
      assert_each_computed_once(&tally, n);
      assert_int_equal(tally.reductions, rounds);
      assert_int_equal(tally.last_reductions, ranks);
      assert_int_equal(tally.fresh, rounds - 1);
    }
}

static void test_world_rounds_of_gradients_that_stay_are_never_reduced(void **state) {
  (void)state;
  Tally tally = tally_step(1, 5, GRADS_STAY, false);
  assert_each_computed_once(&tally, 5);
  assert_int_equal(tally.reductions, 0);
}

static void test_world_last_round_has_fewer_contributors(void **state) {
  (void)state;
  World w = make_world(2, 3, GRADS_HOST, true);
  RoundIterator it = {0};
  Round r;
  assert_true(world_next_round(&w, 5, &it, &r));
  assert_true(r.has_micro_batch);
  assert_int_equal(r.grads.contributors, 3);
  assert_true(world_next_round(&w, 5, &it, &r));
  assert_false(r.has_micro_batch);
  assert_int_equal(r.grads.contributors, 2);
  assert_true(r.grads.is_last);
  assert_false(world_next_round(&w, 5, &it, &r));
}

static void test_world_loader_gets_the_micro_batches_of_the_rounds(void **state) {
  (void)state;
  World w = make_world(1, 3, GRADS_HOST, false);
  LoaderSpec spec = world_loader_spec(&w, 7, 40, 8);
  RoundIterator it = {0};
  Round r;
  uint32_t next = spec.begin;
  while (world_next_round(&w, 8, &it, &r)) {
    assert_int_equal(r.micro_batch, next);
    next += spec.stride;
  }
  assert_true(next >= spec.end);
  assert_int_equal(spec.group, 8);
  assert_int_equal(spec.step, 40);
  assert_int_equal(spec.seed, 7);
}

static void test_world_traffic_of_one_rank_is_nothing(void **state) {
  (void)state;
  World w = make_world(0, 1, GRADS_STAY, false);
  TrainSpec spec = {0};
  assert_true(world_traffic(&w, &spec, 4, &(Params){.padded = 1000}) == 0);
}

/* 1000 elements, of which 100 are read in fp32; two ranks, each of which sends half of what is
 * reduced and of what is gathered. */
static double count_sharded_traffic(Type type, const DeviceCommOps *ops) {
  Param list[] = {{.rows = 30, .cols = 30}, {.rows = 100, .cols = 1, .is_full = true}};
  Params params = {.param = list, .count = 2, .total = 1000, .padded = 1000};
  World w = make_world(0, 2, ops ? GRADS_NCCL : GRADS_HOST, false);
  TrainSpec spec = {.shard = true};
  w.backend.type = type;
  w.allreduce.ops = ops;
  return world_traffic(&w, &spec, 2, &params);
}

static void test_world_traffic_nccl_gathers_weights_in_16_bits(void **state) {
  (void)state;
  const DeviceCommOps nccl = {0};
  assert_true(count_sharded_traffic(TYPE_BF16, &nccl) == 2000 + 1000 + 200);
  assert_true(count_sharded_traffic(TYPE_F16, &nccl) == 2000 + 1000 + 200);
  assert_true(count_sharded_traffic(TYPE_F32, &nccl) == 2000 + 2000);
}

static void test_world_traffic_host_gathers_weights_in_fp32(void **state) {
  (void)state;
  assert_true(count_sharded_traffic(TYPE_BF16, NULL) == 2000 + 2000);
}

static void test_world_timeout_follows_the_longest_gap_after_the_first_step(void **state) {
  (void)state;
  World w = make_world(0, 2, GRADS_HOST, false);
  w.first_timeout = 600;
  w.longest_gap = 2;
  assert_true(world_timeout(&w) == 600);
  w.is_warm = true;
  assert_true(world_timeout(&w) == 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_world_rounds_reduced_once_compute_every_micro_batch_once),
      cmocka_unit_test(test_world_rounds_reduced_each_compute_every_micro_batch_once),
      cmocka_unit_test(test_world_rounds_of_gradients_that_stay_are_never_reduced),
      cmocka_unit_test(test_world_last_round_has_fewer_contributors),
      cmocka_unit_test(test_world_loader_gets_the_micro_batches_of_the_rounds),
      cmocka_unit_test(test_world_traffic_of_one_rank_is_nothing),
      cmocka_unit_test(test_world_traffic_nccl_gathers_weights_in_16_bits),
      cmocka_unit_test(test_world_traffic_host_gathers_weights_in_fp32),
      cmocka_unit_test(test_world_timeout_follows_the_longest_gap_after_the_first_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
