/* The formulas of `plan`: values computed by hand, and properties that hold for all inputs. */
#include <math.h>
#include <string.h>

#include "model/presets.h"
#include "monitor/plan.h"
#include "monitor/plan_machine.h"
#include "support.h"

static void assert_near(double a, double b, double tolerance) {
  if (fabs(a - b) > tolerance * (fabs(b) + 1e-300)) fail_msg("%.9g, expected %.9g", a, b);
}

/* 1 GB/s and 1 ms between machines, 10 GB/s and 0.1 ms inside. */
static PlanNetwork make_net(int nodes, int gpus, bool is_nccl) {
  return (PlanNetwork){.nodes = nodes,
                       .gpus = gpus,
                       .is_nccl = is_nccl,
                       .link = {1e9, 1e-3},
                       .local = {10e9, 1e-4}};
}

static void test_allreduce_one_rank_takes_no_time(void **state) {
  (void)state;
  PlanNetwork net = make_net(1, 1, true);
  for (int a = PLAN_RING; a <= PLAN_SHARED; a++)
    assert_true(plan_allreduce(&net, (PlanAlgorithm)a, 1e9) == 0);
}

/* 2 * 3 messages of 1 ms, and 6/4 of 1 GB at 1 GB/s. */
static void test_allreduce_ring_of_four_machines(void **state) {
  (void)state;
  PlanNetwork net = make_net(4, 1, true);
  assert_near(plan_allreduce(&net, PLAN_RING, 1e9), 0.006 + 1.5, 1e-12);
}

/* 14 hops of 0.1 ms, and 14/8 of 1 GB at 10 GB/s. */
static void test_allreduce_ring_inside_a_machine(void **state) {
  (void)state;
  PlanNetwork net = make_net(1, 8, true);
  assert_near(plan_allreduce(&net, PLAN_RING, 1e9), 0.0014 + 0.175, 1e-12);
}

/* Two machines of two: 6 hops, half of them over the link: 3 ms + 0.3 ms; 6/4 of 1 GB over the
 * link. */
static void test_allreduce_ring_over_machines_and_gpus(void **state) {
  (void)state;
  PlanNetwork net = make_net(2, 2, true);
  assert_near(plan_allreduce(&net, PLAN_RING, 1e9), 0.0033 + 1.5, 1e-12);
}

/* 3 levels up and down; 2 GB at 1 GB/s. */
static void test_allreduce_tree_of_eight_machines(void **state) {
  (void)state;
  PlanNetwork net = make_net(8, 1, true);
  assert_near(plan_allreduce(&net, PLAN_TREE, 1e9), 0.006 + 2, 1e-12);
}

/* Two messages; 2 ranks of a machine send 2 * 2/4 of 1 GB each to the other machine. */
static void test_allreduce_direct_ranks_share_the_link(void **state) {
  (void)state;
  PlanNetwork net = make_net(2, 2, false);
  assert_near(plan_node_traffic(&net, PLAN_DIRECT, 1e9), 2e9, 1e-12);
  assert_near(plan_allreduce(&net, PLAN_DIRECT, 1e9), 0.002 + 2, 1e-12);
}

static void test_nccl_algorithm_is_ring_for_large_and_tree_for_small_buckets(void **state) {
  (void)state;
  PlanNetwork net = make_net(16, 1, true);
  assert_int_equal(plan_choose_algorithm(&net, 1e9), PLAN_RING);
  assert_int_equal(plan_choose_algorithm(&net, 1e3), PLAN_TREE);
  net.nccl_algo = PLAN_NCCL_TREE;
  assert_int_equal(plan_choose_algorithm(&net, 1e9), PLAN_TREE);
}

static void test_host_algorithm_is_shared_memory_on_one_machine(void **state) {
  (void)state;
  PlanNetwork one = make_net(1, 4, false), two = make_net(2, 4, false);
  assert_int_equal(plan_choose_algorithm(&one, 1e6), PLAN_SHARED);
  assert_int_equal(plan_choose_algorithm(&two, 1e6), PLAN_DIRECT);
}

static void test_allreduce_more_bandwidth_or_less_latency_is_never_slower(void **state) {
  (void)state;
  for (int nodes = 1; nodes <= 64; nodes *= 2)
    for (int gpus = 1; gpus <= 8; gpus *= 2)
      for (double bytes = 1; bytes < 1e10; bytes *= 10)
        for (int is_nccl = 0; is_nccl < 2; is_nccl++) {
          PlanNetwork net = make_net(nodes, gpus, is_nccl), fast = net;
          fast.link.bandwidth *= 2;
          fast.local.bandwidth *= 1.5;
          fast.link.latency /= 3;
          double a = plan_allreduce(&net, plan_choose_algorithm(&net, bytes), bytes);
          double b = plan_allreduce(&fast, plan_choose_algorithm(&fast, bytes), bytes);
          assert_true(b <= a && a >= 0);
          assert_true(plan_allreduce(&net, PLAN_RING, bytes) <=
                      plan_allreduce(&net, PLAN_RING, 2 * bytes));
        }
}

/* Four buckets of 100 elements, ready at 1/4, 1/2, 3/4 and the end of backward. */
static double quarter_ready[] = {0.25, 0.5, 0.75, 1};
static size_t hundreds[] = {100, 100, 100, 100};
static const PlanSchedule quarters = {400, 4, quarter_ready, hundreds};

/* Two machines at 400 bytes/s without latency: a bucket of 400 bytes takes 1 s. */
static PlanNetwork make_slow_net(void) {
  return (PlanNetwork){.nodes = 2, .gpus = 1, .is_nccl = true, .link = {400, 0}};
}

static void test_reduce_fast_link_exposes_the_last_bucket(void **state) {
  (void)state;
  PlanNetwork net = make_slow_net();
  PlanReduce r = plan_reduce(&quarters, &net, 4, /*backward=*/8, /*overlaps=*/true, 1);
  assert_near(r.total, 4, 1e-12);
  assert_near(r.exposed, 1, 1e-12);
}

/* The first bucket begins at 0.5 s and the last ends at 4.5 s; backward at 2 s. */
static void test_reduce_slow_link_queues_the_buckets(void **state) {
  (void)state;
  PlanNetwork net = make_slow_net();
  PlanReduce r = plan_reduce(&quarters, &net, 4, /*backward=*/2, /*overlaps=*/true, 1);
  assert_near(r.exposed, 2.5, 1e-12);
}

static void test_reduce_without_overlap_exposes_everything(void **state) {
  (void)state;
  PlanNetwork net = make_slow_net();
  PlanReduce r = plan_reduce(&quarters, &net, 4, 8, /*overlaps=*/false, 1);
  assert_near(r.exposed, 4, 1e-12);
}

static void test_reduce_bf16_halves_the_time(void **state) {
  (void)state;
  PlanNetwork net = make_slow_net();
  assert_near(plan_reduce(&quarters, &net, 2, 8, /*overlaps=*/true, 1).total, 2, 1e-12);
}

/* Known values of the expected maximum of normal variables: 1/sqrt(pi) for two, 3/(2 sqrt(pi)) for
 * three; 2.5076 for 100 (tables of order statistics). */
static void test_expected_max_matches_known_values(void **state) {
  (void)state;
  double pi = acos(-1);
  assert_true(plan_expected_max(1) == 0);
  assert_near(plan_expected_max(2), 1 / sqrt(pi), 1e-9);
  assert_near(plan_expected_max(3), 1.5 / sqrt(pi), 1e-9);
  assert_near(plan_expected_max(100), 2.50759, 1e-5);
}

/* Checkpoint 50 s, a failure every 10,000 s: Young's interval is 1,000 s; Daly's 1000 (1 + 0.05 / 3
 * + 0.0025 / 9) - 50. */
static void test_best_interval_is_dalys(void **state) {
  (void)state;
  assert_near(plan_best_interval(50, 10000), 1000 * (1 + 0.05 / 3 + 0.0025 / 9) - 50, 1e-12);
  assert_true(isinf(plan_best_interval(50, INFINITY)));
  assert_near(plan_best_interval(100, 10), 10, 1e-12);
}

/* Without restart time and checkpoints of 0 s an interval of one mean time between failures costs e - 1. */
static void test_fault_factor_by_hand(void **state) {
  (void)state;
  PlanFaults f = {.checkpoint = 10};
  assert_near(plan_fault_factor(&f, INFINITY, 100), 1.1, 1e-12);
  assert_near(plan_fault_factor(&f, INFINITY, INFINITY), 1, 1e-12);
  f.checkpoint = 0;
  assert_near(plan_fault_factor(&f, 100, 100), exp(1) - 1, 1e-12);
}

static void test_best_interval_loses_less_than_its_neighbours(void **state) {
  (void)state;
  for (double mtbf = 1e3; mtbf < 1e8; mtbf *= 10)
    for (double checkpoint = 0.01; checkpoint < 100; checkpoint *= 10) {
      PlanFaults f = {.checkpoint = checkpoint, .restart = 60};
      double best = plan_best_interval(checkpoint, mtbf);
      double least = plan_fault_factor(&f, mtbf, best);
      assert_true(least <= plan_fault_factor(&f, mtbf, 1.2 * best));
      assert_true(least <= plan_fault_factor(&f, mtbf, best / 1.2));
    }
}

/* Forward 1 s, backward 2 s, update 0.5 s; 100 tokens in a micro-batch. */
static PlanInput make_input(void) {
  return (PlanInput){.compute = {.forward = 1, .backward = 2, .update = 0.5},
                     .tokens = 100,
                     .schedule = &quarters,
                     .link = {400, 0},
                     .local = {1e9, 0},
                     .is_nccl = true,
                     .bytes_per_element = 4,
                     .weight_bytes = 4,
                     .overlaps = true,
                     .total_tokens = 36000,
                     .price = 2};
}

static void test_predict_one_gpu_is_the_sum_of_its_parts(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.jitter = 0.1;
  plan_predict(&in, 1, 1, &p);
  assert_near(p.step, 3.5, 1e-12);
  assert_true(p.allreduce == 0 && p.exposed == 0 && p.straggler == 0 && p.traffic == 0);
  assert_near(p.efficiency, 1, 1e-12);
  assert_near(p.rate, 100 / 3.5, 1e-12);
  /* 360 steps of 3.5 s at 2 an hour */
  assert_near(p.hours, 0.35, 1e-12);
  assert_near(p.cost, 0.7, 1e-12);
}

/* 360 steps of 3.5 s; a failure in 1e6 days. */
static void test_predict_checkpoint_interval_is_a_step_to_the_run(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.faults = (PlanFaults){.failures_per_node_day = 1e-6, .checkpoint = 2};
  plan_predict(&in, 1, 1, &p);
  assert_near(p.best_interval, 360 * 3.5, 1e-12);
  in.faults.save_every = 1000; /* the checkpoint at the end is the only one */
  plan_predict(&in, 1, 1, &p);
  assert_near(p.interval, 360 * 3.5, 1e-12);
  assert_near(p.lost, 2 / (360 * 3.5 + 2), 1e-5);
  in.faults.failures_per_node_day = 86400;
  in.faults.checkpoint = 1e-6;
  plan_predict(&in, 1, 1, &p);
  assert_near(p.best_interval, 3.5, 1e-12);
}

/* Two machines: 2.5 s of the all-reduce are exposed, see above. 180 steps of 6 s. */
static void test_predict_two_machines_by_hand(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  plan_predict(&in, 2, 1, &p);
  assert_near(p.step, 6, 1e-12);
  assert_near(p.hidden, 1.5, 1e-12);
  assert_near(p.traffic, 1600, 1e-12);
  assert_near(p.speedup, 2 * 3.5 / 6, 1e-12);
  assert_near(p.hours, 0.3, 1e-12);
  assert_near(p.cost, 1.2, 1e-12);
}

/* Eight ranks share 8 kB/s: 2 * 7/8 of 1,600 bytes at 1,000 bytes/s, and two ranks 1,600 at 4,000. */
static void test_predict_ranks_share_host_memory(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.is_nccl = false;
  in.is_local_shared = true;
  in.local = (PlanLink){8000, 0};
  plan_predict(&in, 1, 8, &p);
  assert_near(p.allreduce, 2.8, 1e-12);
  plan_predict(&in, 1, 2, &p);
  assert_near(p.allreduce, 0.4, 1e-12);
}

/* Four micro-batches on two ranks are two rounds; the straggler waits 0.1 * 6 s / sqrt(pi). */
static void test_predict_rounds_and_stragglers(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.micro_batches = 4;
  in.jitter = 0.1;
  plan_predict(&in, 2, 1, &p);
  assert_int_equal(p.rounds, 2);
  assert_near(p.straggler, 0.6 / sqrt(acos(-1)), 1e-9);
  assert_near(p.step, 6 + p.straggler + 2.5 + 0.5, 1e-12);
  /* one GPU computes all four: 12.5 s for 400 tokens */
  assert_near(p.speedup, 12.5 / p.step, 1e-12);
}

/* A reduce-scatter of 2 s in all, of which 0.5 s remain after backward, and an all-gather of 2 s. */
static void test_predict_sharded_optimizer_gathers_weights(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.is_sharded = true;
  plan_predict(&in, 2, 1, &p);
  assert_near(p.allreduce, 2, 1e-12);
  assert_near(p.exposed, 0.5, 1e-12);
  assert_near(p.gather, 2, 1e-12);
  assert_near(p.traffic, 1600, 1e-12);
  assert_near(p.update, 0.25, 1e-12); /* each rank updates its half */
}

/* Half of the all-gather of 2 s above, and 0.5 s for 100 elements that are sent in fp32 too. */
static void test_predict_sharded_optimizer_gathers_16_bits(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint p;
  in.is_sharded = true;
  in.weight_bytes = 2;
  in.full_elements = 100;
  plan_predict(&in, 2, 1, &p);
  assert_near(p.gather, 1 + 0.5, 1e-12);
  assert_near(p.traffic, 800 + 400 + 200, 1e-12);
  assert_near(p.exposed, 0.5, 1e-12);
}

/* NCCL reduces and gathers pieces by rings, even where a tree would be the faster all-reduce. */
static void test_predict_sharded_optimizer_uses_rings(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint tree, ring;
  in.nccl_algo = PLAN_NCCL_TREE;
  plan_predict(&in, 2, 2, &tree);
  in.is_sharded = true;
  plan_predict(&in, 2, 2, &ring);
  assert_int_equal(tree.algorithm, PLAN_TREE);
  assert_int_equal(ring.algorithm, PLAN_RING);
  assert_near(ring.traffic, 1.5 * tree.traffic, 1e-12);
}

static void test_predict_failures_cost_time(void **state) {
  (void)state;
  PlanInput in = make_input();
  PlanPoint calm, rough;
  plan_predict(&in, 4, 1, &calm);
  in.faults = (PlanFaults){.failures_per_node_day = 24, .checkpoint = 1, .restart = 60};
  plan_predict(&in, 4, 1, &rough);
  assert_true(isinf(calm.mtbf) && calm.lost == 0);
  assert_near(rough.mtbf, 900, 1e-12); /* 96 failures in a day */
  assert_true(rough.hours > calm.hours && rough.lost > 0 && rough.lost < 1);
  in.faults.save_every = 1;
  plan_predict(&in, 4, 1, &calm);
  assert_near(calm.interval, calm.step, 1e-12);
  assert_true(calm.lost > rough.lost); /* the best interval is better than every step */
}

static void test_predict_efficiency_never_grows_with_machines(void **state) {
  (void)state;
  PlanInput in = make_input();
  in.jitter = 0.02;
  double before = 1 + 1e-12;
  for (int nodes = 1; nodes <= 512; nodes *= 2) {
    PlanPoint p;
    plan_predict(&in, nodes, 1, &p);
    assert_true(p.efficiency > 0 && p.efficiency <= before);
    before = p.efficiency * (1 + 1e-12);
  }
}

static Model *plan_preset(const char *preset) {
  static Backend stand_in = {.name = "plan", .type = TYPE_BF16};
  ModelConfig config;
  Model *model;
  ModelSpec spec = {
      .config = &config, .backend = &stand_in, .capacity = 1024, .training = true};
  assert_int_equal(presets_configure(&config, preset, 32768), ERR_OK);
  assert_int_equal(model_plan(&model, &spec), ERR_OK);
  return model;
}

/* The gradients of base are 243.5 MB, of which a ring of four machines sends 365 MB. */
static void test_schedule_of_base_covers_all_gradients_in_order(void **state) {
  (void)state;
  Model *model = plan_preset("base");
  PlanSchedule s;
  size_t sum = 0;
  double last = 0;
  assert_int_equal(plan_schedule_make(&s, model, 8 << 20), ERR_OK);
  assert_int_equal(s.buckets, 30);
  for (size_t i = 0; i < s.buckets; i++) {
    sum += s.size[i];
    assert_true(s.ready[i] >= last && s.ready[i] <= 1);
    last = s.ready[i];
  }
  assert_int_equal(sum, model->params.padded);
  assert_true(last == 1 && s.ready[0] < 0.2);
  PlanNetwork net = make_net(4, 1, true);
  assert_near(plan_node_traffic(&net, PLAN_RING, 4.0 * (double)model->params.total), 365.3e6,
              1e-3);
  plan_schedule_free(&s);
  model_free(model);
}

/* A quarter of base's gradients is the embedding, complete only when backward ends. */
static void test_schedule_embedding_is_complete_last(void **state) {
  (void)state;
  Model *model = plan_preset("base");
  PlanSchedule s;
  size_t at_end = 0;
  assert_int_equal(plan_schedule_make(&s, model, 8 << 20), ERR_OK);
  for (size_t i = 0; i < s.buckets; i++)
    if (s.ready[i] == 1) at_end += s.size[i];
  double share = (double)at_end / (double)s.elements;
  assert_true(share > 0.27 && share < 0.37); /* 16.8 of 60.9 million, and the first layer */
  plan_schedule_free(&s);
  model_free(model);
}

static void test_machine_measured_steps_are_reproduced(void **state) {
  (void)state;
  static const struct {
    const char *preset;
    PlanPrecision precision;
    double tokens, seconds;
  } steps[] = {{"base", PLAN_BF16, 25552, 20.6e-3}, {"base", PLAN_BF16, 8173, 6.2e-3},
               {"big", PLAN_BF16, 25566, 57.9e-3},  {"big", PLAN_FP8, 25574, 51.2e-3},
               {"small", PLAN_BF16, 25479, 7.8e-3}, {"tiny", PLAN_BF16, 25460, 5.4e-3}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    Model *model = plan_preset(steps[i].preset);
    PlanCompute c;
    PlanBatch batch = {{steps[i].tokens, steps[i].tokens}};
    assert_int_equal(plan_machine_compute(plan_machine_find("h200"), steps[i].precision,
                                          steps[i].preset, model, &batch, &c),
                     ERR_OK);
    assert_near(c.forward + c.backward + c.update, steps[i].seconds, 1e-9);
    assert_true(c.is_measured);
    model_free(model);
  }
}

/* By hand, base on a T4 in fp32, 1,000 tokens: 6 * 1000 * 60.8e6 FLOP at 0.6 * 8.1 TFLOP/s, and
 * 4 * (4.3 * 86,016 + 4 * 32,768) * 1000 bytes and 32 * 60.9e6 bytes at 320 GB/s. */
static void test_machine_roofline_by_hand(void **state) {
  (void)state;
  Model *model = plan_preset("base");
  PlanBatch batch = {{1000, 1000}};
  PlanRoofline r = plan_roofline(plan_machine_find("t4"), PLAN_FP32, model, &batch);
  double layers = 18874368 + 25165824, output = 32768.0 * 512;
  assert_near(r.layers, 6e3 * layers / 4.86e12 + 4e3 * 4.3 * layers / 512 / 320e9, 1e-9);
  assert_near(r.output, 6e3 * output / 4.86e12 + 4e3 * 4 * 32768 / 320e9, 1e-9);
  assert_near(r.update, 60880896.0 * 32 / 320e9, 1e-9);
  model_free(model);
}

static void test_machine_without_the_precision_lists_those_it_has(void **state) {
  (void)state;
  assert_int_equal(plan_machine_check(plan_machine_find("v100"), PLAN_BF16), ERR_USAGE);
  assert_string_equal(err_message(),
                      "--machine v100 has no --precision bf16; it has fp32, fp16");
  assert_int_equal(plan_machine_precision(plan_machine_find("v100")), PLAN_FP16);
  assert_null(plan_machine_find("v10"));
}

#define BENCH_START                                                           \
  "{\"bench\": \"train\", \"backend\": \"cpu: neon\", \"preset\": \"base\", " \
  "\"precision\": \"fp32\", \"batch_tokens\": 1024, \"tgt_tok_s\": 1000, \"step_ms\": 1000"

static Err parse(const char *text, PlanMeasurement *m) {
  return plan_measurement_parse(text, strlen(text), "file", m);
}

/* A step of 1 s for 1,000 tokens; the timed step took 2 s, of which 0.4 s the gradients, 0.2 s the
 * rest of backward, 0.1 s the optimizer. The output layer has 16.8 of 60.8 million weights. */
static void test_measurement_parts_are_scaled_to_the_step(void **state) {
  (void)state;
  PlanMeasurement m;
  PlanCompute c;
  Model *model = plan_preset("base");
  PlanBatch batch = {{2000, 2000}};
  assert_int_equal(
      parse(
          BENCH_START
          ", \"parts\": {\"copy_gb_s\": 20, \"step\": {\"ms\": 2000}, \"work\": ["
          "{\"name\": \"GEMMs, input grads\", \"ms\": 300}, {\"name\": \"GEMMs, weight grads\","
          " \"ms\": 100}, {\"name\": \"norms backward\", \"ms\": 200},"
          "{\"name\": \"optimizer\", \"ms\": 100}, {\"name\": \"loss\", \"ms\": 7}]}}",
          &m),
      ERR_OK);
  assert_true(m.is_host && m.has_parts);
  plan_measurement_compute(&m, "file", model, &batch, &c);
  double layers = 1 - 32768.0 * 512 / (18874368 + 25165824 + 32768.0 * 512);
  double backward = 0.5 * (0.4 * layers + 0.2);
  assert_near(c.update, 0.05, 1e-9);
  assert_near(c.backward, 2 * backward, 1e-9);
  assert_near(c.forward, 2 * (1 - 0.05 - backward), 1e-9);
  assert_true(c.is_measured);
  model_free(model);
}

/* A step of 1 s for 1,000 tokens of texts: there is no output layer, so two thirds are backward. */
static void test_measurement_of_texts_has_no_output_layer(void **state) {
  (void)state;
  PlanMeasurement m;
  PlanCompute c;
  Model *model = plan_preset("bert-tiny");
  PlanBatch batch = {{2000, 2000}};
  assert_int_equal(
      parse("{\"bench\": \"train\", \"backend\": \"cpu: neon\", \"preset\": \"bert-tiny\", "
            "\"precision\": \"fp32\", \"batch_tokens\": 1024, \"tok_s\": 1000, "
            "\"step_ms\": 1000}",
            &m),
      ERR_OK);
  assert_true(m.has_texts);
  plan_measurement_compute(&m, "file", model, &batch, &c);
  assert_near(c.backward, 2 * 2 / 3.0, 1e-9);
  assert_near(c.forward, 2 / 3.0, 1e-9);
  assert_non_null(strstr(c.source, "1000.0 ms for 1000 tokens, scaled"));
  PlanRoofline r = plan_roofline(plan_machine_find("h200"), PLAN_BF16, model, &batch);
  assert_true(r.output == 0 && r.layers > 0);
  model_free(model);
}

static void test_link_units(void **state) {
  (void)state;
  PlanLink link;
  assert_int_equal(plan_parse_link("400Gbit,5us", &link), ERR_OK);
  assert_near(link.bandwidth, 50e9, 1e-12);
  assert_near(link.latency, 5e-6, 1e-12);
  assert_int_equal(plan_parse_link("200Mbit/s,0.2ms", &link), ERR_OK);
  assert_near(link.bandwidth, 25e6, 1e-12);
  assert_near(link.latency, 2e-4, 1e-12);
  assert_int_equal(plan_parse_link("12.5GB", &link), ERR_OK);
  assert_near(link.bandwidth, 12.5e9, 1e-12);
  assert_true(link.latency == 0);
}

static void test_link_wrong_values_are_errors(void **state) {
  (void)state;
  PlanLink link;
  const char *wrong[] = {"",           "1",           "Gbit",      "1Gbit,",  "1Gbit,5",
                         "0Gbit",      "-1Gbit",      "nanGbit",   "infGbit", "1Gbits",
                         "1Gbit,5us,", "1Gbit,5us,1", "1 furlong", "5us",     "1Gbit;5us"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    if (plan_parse_link(wrong[i], &link) != ERR_USAGE) fail_msg("accepted: '%s'", wrong[i]);
}

static void test_sizes_lists_and_ranges(void **state) {
  (void)state;
  PlanSizes s;
  assert_int_equal(plan_parse_sizes("nodes", "1..6,9", &s), ERR_OK);
  int expected[] = {1, 2, 4, 6, 9};
  assert_int_equal(s.count, 5);
  assert_memory_equal(s.size, expected, sizeof expected);
  assert_int_equal(plan_parse_sizes("nodes", "65536", &s), ERR_OK);
  assert_int_equal(s.size[0], 65536);
}

static void test_sizes_wrong_values_are_errors(void **state) {
  (void)state;
  PlanSizes s;
  const char *wrong[] = {"",     "0",        "1,",      "1..",
                         "4..2", "1...4",    "x",       "1 2",
                         "-1",   "1..70000", "65537",   "99999999999999999999",
                         "1.5",  ",1",       "1..2..4", "1..65536,1..65536,1..65536,1..65536"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    if (plan_parse_sizes("nodes", wrong[i], &s) != ERR_USAGE)
      fail_msg("accepted: '%s'", wrong[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allreduce_one_rank_takes_no_time),
      cmocka_unit_test(test_allreduce_ring_of_four_machines),
      cmocka_unit_test(test_allreduce_ring_inside_a_machine),
      cmocka_unit_test(test_allreduce_ring_over_machines_and_gpus),
      cmocka_unit_test(test_allreduce_tree_of_eight_machines),
      cmocka_unit_test(test_allreduce_direct_ranks_share_the_link),
      cmocka_unit_test(test_nccl_algorithm_is_ring_for_large_and_tree_for_small_buckets),
      cmocka_unit_test(test_host_algorithm_is_shared_memory_on_one_machine),
      cmocka_unit_test(test_allreduce_more_bandwidth_or_less_latency_is_never_slower),
      cmocka_unit_test(test_reduce_fast_link_exposes_the_last_bucket),
      cmocka_unit_test(test_reduce_slow_link_queues_the_buckets),
      cmocka_unit_test(test_reduce_without_overlap_exposes_everything),
      cmocka_unit_test(test_reduce_bf16_halves_the_time),
      cmocka_unit_test(test_expected_max_matches_known_values),
      cmocka_unit_test(test_best_interval_is_dalys),
      cmocka_unit_test(test_fault_factor_by_hand),
      cmocka_unit_test(test_best_interval_loses_less_than_its_neighbours),
      cmocka_unit_test(test_predict_one_gpu_is_the_sum_of_its_parts),
      cmocka_unit_test(test_predict_checkpoint_interval_is_a_step_to_the_run),
      cmocka_unit_test(test_predict_two_machines_by_hand),
      cmocka_unit_test(test_predict_ranks_share_host_memory),
      cmocka_unit_test(test_predict_rounds_and_stragglers),
      cmocka_unit_test(test_predict_sharded_optimizer_gathers_weights),
      cmocka_unit_test(test_predict_sharded_optimizer_gathers_16_bits),
      cmocka_unit_test(test_predict_sharded_optimizer_uses_rings),
      cmocka_unit_test(test_predict_failures_cost_time),
      cmocka_unit_test(test_predict_efficiency_never_grows_with_machines),
      cmocka_unit_test(test_schedule_of_base_covers_all_gradients_in_order),
      cmocka_unit_test(test_schedule_embedding_is_complete_last),
      cmocka_unit_test(test_machine_measured_steps_are_reproduced),
      cmocka_unit_test(test_machine_roofline_by_hand),
      cmocka_unit_test(test_machine_without_the_precision_lists_those_it_has),
      cmocka_unit_test(test_measurement_parts_are_scaled_to_the_step),
      cmocka_unit_test(test_measurement_of_texts_has_no_output_layer),
      cmocka_unit_test(test_link_units),
      cmocka_unit_test(test_link_wrong_values_are_errors),
      cmocka_unit_test(test_sizes_lists_and_ranges),
      cmocka_unit_test(test_sizes_wrong_values_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
