/* --shard-optimizer over NCCL on three ranks, without a GPU: a thread for each rank, and a fake
 * communicator whose collectives copy between their arrays. The copy of the weights in bf16 is
 * gathered after each update, with the weights that are read in fp32; the others stay old in
 * the pieces of other ranks until state_complete_weights. The results must have the bits of one
 * rank that updates all weights.
 *
 * The files below ask for the number of a rank at set-up. comm_open has only one rank here, so
 * they are compiled with the number of the rank that is being set up.
 * run-tests: own program */
#include "comm/comm.h"

static int opening_rank, opening_size;
static int get_opening_rank(const Comm *comm) {
  (void)comm;
  return opening_rank;
}

static int get_opening_size(const Comm *comm) {
  (void)comm;
  return opening_size;
}

#define comm_rank get_opening_rank
#define comm_size get_opening_size
#include "comm/reduce.c"
#include "train/state.c"
#undef comm_rank
#undef comm_size

#include <pthread.h>

#include "comm/add.h"
#include "model/transformer.h"
#include "support.h"

enum { RANKS = 3, STEPS = 3 };

/* The fake communicator. Rank r writes only piece r of its own array in a reduce-scatter, and
 * all but that in an all-gather, so ranks need not wait between reading and writing. */

struct DeviceComm {
  int rank;
  void *array; /* argument of the current collective */
};
static DeviceComm device[RANKS];
static pthread_barrier_t meeting;

static void begin_collective(DeviceComm *c, void *array) {
  c->array = array;
  pthread_barrier_wait(&meeting);
}

static void end_collective(void) {
  pthread_barrier_wait(&meeting);
}

static void reduce_scatter(DeviceComm *c, float *x, const size_t *off) {
  begin_collective(c, x);
  for (size_t i = off[c->rank]; i < off[c->rank + 1]; i++) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += ((const float *)device[r].array)[i];
    x[i] = sum;
  }
  end_collective();
}

static void all_reduce_doubles(DeviceComm *c, double *x, size_t n) {
  begin_collective(c, x);
  for (size_t i = (size_t)c->rank; i < n; i += RANKS) {
    double sum = 0;
    for (int r = 0; r < RANKS; r++) sum += ((const double *)device[r].array)[i];
    for (int r = 0; r < RANKS; r++) ((double *)device[r].array)[i] = sum;
  }
  end_collective();
}

static void gather_range(DeviceComm *c, const size_t *off, size_t width) {
  for (int r = 0; r < RANKS; r++) {
    size_t at = off[r] * width, bytes = (off[r + 1] - off[r]) * width;
    if (r != c->rank && bytes > 0)
      memcpy((char *)c->array + at, (const char *)device[r].array + at, bytes);
  }
}

static void all_gather(DeviceComm *c, void *x, const DeviceGather *g) {
  begin_collective(c, x);
  for (size_t i = 0; i < g->ranges; i++) gather_range(c, g->off + i * (RANKS + 1), g->width);
  end_collective();
}

static void join_nothing(DeviceComm *c) {
  (void)c;
}

static Err poll_done(DeviceComm *c, bool *inputs_ready, bool *done) {
  (void)c;
  *inputs_ready = true;
  *done = true;
  return ERR_OK;
}

static const DeviceCommOps fake = {.reduce_scatter = reduce_scatter,
                                   .all_reduce_doubles = all_reduce_doubles,
                                   .all_gather = all_gather,
                                   .join = join_nothing,
                                   .poll = poll_done};

/* The reference backend as a GPU that computes in bf16. */

static Backend reference;

static void update_and_round(const Backend *b, float *w, float *m, float *v, const float *g,
                             size_t n, const AdamStep *s) {
  reference.adam(b, w, m, v, g, n, s);
  if (s->low) bf16_of_floats(s->low, w, n);
}

static Backend make_gpu(void) {
  backend_reference(&reference);
  Backend gpu = reference;
  gpu.type = TYPE_BF16;
  gpu.host = false;
  gpu.adam = update_and_round;
  return gpu;
}

typedef struct {
  World world;
  ModelState st;
  size_t off[RANKS + 1]; /* working memory of the transport */
} Rank;
static Rank rank[RANKS];
static Rank single; /* one rank, which updates all weights */

/* Buckets of four units, which three ranks cannot share evenly. */
static TrainSpec make_spec(bool is_sharded) {
  return (TrainSpec){
      .shard = is_sharded,
      .bucket = 4 * NORM_UNIT * sizeof(float),
      .ema = 0.9f,
      .optim = {.kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-9f}};
}

/* Learned positions and norms are read in fp32, matrices and biases in bf16. */
static void make_model(Rank *r) {
  TransformerConfig own = {.vocab = 300, .bos = 2, .eos = 1, .pad = 0, .max_positions = 301};
  OK(transformer_preset(&own, "tiny"));
  own.positions = POSITION_LEARNED;
  ModelConfig config = transformer_model_config(&own);
  OK(model_new(
      &r->st.model,
      &(ModelSpec){
          .config = &config, .backend = &r->world.backend, .capacity = 16, .training = true}));
}

static void open_rank(Rank *r, int number, int size, const TrainSpec *spec) {
  World *w = &r->world;
  opening_rank = number;
  opening_size = size;
  *r = (Rank){.world = {.backend = make_gpu(), .rank = number, .ranks = size}};
  OK(comm_open(&w->comm, 5));
  if (size > 1) {
    device[number] = (DeviceComm){.rank = number};
    w->allreduce = (Allreduce){.comm = w->comm,
                               .backend = &w->backend,
                               .ops = &fake,
                               .nccl = &device[number],
                               .off = r->off};
  }
  make_model(r);
  OK(state_open(&r->st, w, spec, (uint32_t)size));
}

static void close_rank(Rank *r) {
  state_close(&r->st, &r->world);
  gradients_close(&r->world.grads);
  comm_close(r->world.comm, ERR_OK);
}

/* Sets the weights that rank 0 would broadcast at the start of a run. */
static void set_weights(Rank *r) {
  const Params *p = &r->st.model->params;
  size_t owned = r->st.pieces.count ? reducer_owned(r->world.grads.reducer) : p->padded;
  memset(r->st.w, 0, p->padded * sizeof(float));
  params_init(p, 3, r->st.w);
  memcpy(r->st.e, r->st.w, p->padded * sizeof(float));
  bf16_of_floats(r->st.low, r->st.w, p->padded);
  memset(r->st.m, 0, owned * sizeof(float));
  memset(r->st.v, 0, owned * sizeof(float));
}

/* Multiples of 1/64, so that sums over the ranks are exact. */
static float get_gradient(int number, int step, size_t i) {
  return (float)((i * 37 + (size_t)number * 11 + (size_t)step * 5) % 127) / 64 - 1;
}

static int current_step;

static void update_rank(Rank *r, int number) {
  StepNumbers now = optim_numbers(r->st.pass.optim, (uint64_t)current_step, 1e-2);
  now.loss_scale = 1;
  now.max_grad_norm = 0.5;
  now.count[COUNT_PREDICTIONS] = number < 0 ? RANKS : 1;
  gradients_begin_round(&r->world.grads,
                        (GradRound){.contributors = 1, .is_first = true, .is_last = true});
  pass_begin(&r->st.pass);
  if (pass_update(&r->st.pass, &now) || pass_end(&r->st.pass, &now)) abort();
}

static void *update_in_thread(void *context) {
  Rank *r = context;
  update_rank(r, r->world.rank);
  r->st.is_partial = true;
  return NULL;
}

static void *complete_in_thread(void *context) {
  Rank *r = context;
  if (state_complete_weights(&r->st, &r->world)) abort();
  return NULL;
}

/* Runs work(rank) in a thread for each rank, because collectives wait for all ranks. */
static void run_ranks(void *(*work)(void *)) {
  pthread_t thread[RANKS];
  for (int r = 0; r < RANKS; r++)
    assert_int_equal(pthread_create(&thread[r], NULL, work, &rank[r]), 0);
  for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_join(thread[r], NULL), 0);
}

static void run_step(int step) {
  size_t n = single.st.model->params.padded;
  current_step = step;
  memset(single.world.grads.g, 0, n * sizeof(float));
  for (int r = 0; r < RANKS; r++)
    for (size_t i = 0; i < n; i++) {
      float g = get_gradient(r, step, i);
      rank[r].world.grads.g[i] = g;
      single.world.grads.g[i] += g;
    }
  update_rank(&single, -1);
  run_ranks(update_in_thread);
}

static int open_all(void **state) {
  static TrainSpec sharded, whole;
  (void)state;
  sharded = make_spec(true);
  whole = make_spec(false);
  pthread_barrier_init(&meeting, NULL, RANKS);
  open_rank(&single, 0, 1, &whole);
  set_weights(&single);
  for (int r = 0; r < RANKS; r++) {
    open_rank(&rank[r], r, RANKS, &sharded);
    set_weights(&rank[r]);
  }
  return 0;
}

static int close_all(void **state) {
  (void)state;
  for (int r = 0; r < RANKS; r++) close_rank(&rank[r]);
  close_rank(&single);
  pthread_barrier_destroy(&meeting);
  return 0;
}

static void assert_same_range(const float *got, const float *expected, size_t begin,
                              size_t end) {
  assert_memory_equal(got + begin, expected + begin, (end - begin) * sizeof(float));
}

static void test_sharded_pieces_differ_in_size_and_cover_all(void **state) {
  (void)state;
  size_t smallest = SIZE_MAX, largest = 0, sum = 0;
  for (int r = 0; r < RANKS; r++) {
    size_t n = reducer_owned(rank[r].world.grads.reducer);
    smallest = n < smallest ? n : smallest;
    largest = n > largest ? n : largest;
    sum += n;
  }
  assert_true(smallest < largest);
  assert_int_equal(sum, single.st.model->params.padded);
  assert_true(rank[0].st.pieces.full_count > 1);
}

static void test_sharded_update_gathers_what_forward_reads(void **state) {
  (void)state;
  const Params *p = &single.st.model->params;
  for (int step = 0; step < STEPS; step++) {
    run_step(step);
    for (int r = 0; r < RANKS; r++) {
      const ModelState *st = &rank[r].st;
      assert_memory_equal(st->low, single.st.low, p->padded * type_size(TYPE_BF16));
      for (size_t i = 0; i < p->count; i++) {
        const Param *q = &p->param[i];
        if (q->is_full)
          assert_same_range(st->w, single.st.w, q->offset, q->offset + q->rows * q->cols);
      }
    }
  }
}

static void test_sharded_update_writes_own_pieces_in_fp32(void **state) {
  (void)state;
  run_step(0);
  for (int r = 0; r < RANKS; r++) {
    const ModelState *st = &rank[r].st;
    for (size_t i = 0; i < st->pieces.count; i++) {
      PassPiece own = st->pieces.own[i];
      assert_same_range(st->w, single.st.w, own.begin, own.end);
      assert_same_range(st->e, single.st.e, own.begin, own.end);
    }
  }
}

/* Without this the tests of completion would prove nothing. */
static void test_sharded_update_leaves_the_rest_old_in_fp32(void **state) {
  (void)state;
  size_t bytes = single.st.model->params.padded * sizeof(float);
  run_step(0);
  for (int r = 0; r < RANKS; r++) {
    assert_memory_not_equal(rank[r].st.w, single.st.w, bytes);
    assert_memory_not_equal(rank[r].st.e, single.st.e, bytes);
  }
}

static void test_sharded_weights_are_whole_after_completion(void **state) {
  (void)state;
  size_t bytes = single.st.model->params.padded * sizeof(float);
  for (int step = 0; step < STEPS; step++) run_step(step);
  run_ranks(complete_in_thread);
  for (int r = 0; r < RANKS; r++) {
    assert_false(rank[r].st.is_partial);
    assert_memory_equal(rank[r].st.w, single.st.w, bytes);
    assert_memory_equal(rank[r].st.e, single.st.e, bytes);
  }
}

/* A step after completion continues from the same weights. */
static void test_sharded_steps_continue_after_completion(void **state) {
  (void)state;
  size_t bytes = single.st.model->params.padded * sizeof(float);
  run_step(0);
  run_ranks(complete_in_thread);
  run_step(1);
  run_ranks(complete_in_thread);
  for (int r = 0; r < RANKS; r++) assert_memory_equal(rank[r].st.w, single.st.w, bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_sharded_pieces_differ_in_size_and_cover_all),
      TEST(test_sharded_update_gathers_what_forward_reads),
      TEST(test_sharded_update_writes_own_pieces_in_fp32),
      TEST(test_sharded_update_leaves_the_rest_old_in_fp32),
      TEST(test_sharded_weights_are_whole_after_completion),
      TEST(test_sharded_steps_continue_after_completion),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
