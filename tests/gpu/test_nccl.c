/* NCCL with one rank: collectives leave the data unchanged and are ordered with the compute
 * stream, and abort returns. Skipped if libnccl is missing; returns 77 if there is no GPU.
 * Needs the plug-in in TRIREME_PLUGIN_PATH. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cuda/nccl_abi.h"
#include "backend/device_comm.h"
#include "base/mem.h"
#include "base/progress.h"
#include "gpu.h"
#include "train/allreduce.h"

/* If NCCL's header is installed, nccl_abi.h must agree with it. */
#ifdef __has_include
#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert((int)ncclSuccess == (int)NCCL_SUCCESS, "success");
_Static_assert((int)ncclInProgress == (int)NCCL_IN_PROGRESS, "in progress");
_Static_assert((int)ncclFloat32 == (int)NCCL_FLOAT, "float");
_Static_assert((int)ncclFloat64 == (int)NCCL_DOUBLE, "double");
_Static_assert((int)ncclBfloat16 == (int)NCCL_BF16, "bf16");
_Static_assert((int)ncclSum == (int)NCCL_ADD, "sum");
_Static_assert(offsetof(ncclConfig_t, version) == offsetof(NcclConfig, version), "version");
_Static_assert(offsetof(ncclConfig_t, maxCTAs) == offsetof(NcclConfig, max_ctas), "maxCTAs");
_Static_assert(offsetof(ncclConfig_t, netName) == offsetof(NcclConfig, net_name), "netName");
_Static_assert(NCCL_CONFIG_UNDEF_INT == NCCL_CONFIG_UNDEF, "what NCCL chooses");
_Static_assert(sizeof(ncclUniqueId) == sizeof(NcclId), "id");
_Static_assert(sizeof(ncclResult_t) == sizeof(int), "results are ints");
#endif
#endif

enum { N = 3 << 20 };

static Backend b;
static float *there, *here;

static void need_nccl(void) {
  char about[64];
  int version;
  if (b.comm->probe(about, &version) == ERR_OK) return;
  printf("skip: %s\n", err_message());
  skip();
}

static float number(size_t i) {
  return (float)(i % 8191) * 0.37f - 900;
}

/* Rounds to bf16, to nearest even. */
static float rounded(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  memcpy(&x, &u, sizeof x);
  return x;
}

static DeviceComm *open_comm(bool bf16) {
  char id[DEVICE_COMM_ID];
  DeviceComm *w;
  ok(b.comm->create_id(id));
  ok(b.comm->open(&w, &b, id, &(DeviceCommSpec){.size = 1, .max_elements = N, .bf16 = bf16}));
  return w;
}

/* Waits until the collectives are complete, at most 30 s. */
static void wait_for(DeviceComm *w) {
  double start = progress_clock();
  bool made = false, done = false;
  while (!done) {
    ok(b.comm->poll(w, &made, &done));
    assert_true(!done || made);
    assert_true(progress_clock() - start < 30);
  }
}

static void fill(void) {
  for (size_t i = 0; i < N; i++) here[i] = number(i);
  b.put(&b, there, here, N * sizeof *here);
}

static void check(size_t begin, size_t end, bool bf16, float times) {
  memset(here, 0, N * sizeof *here);
  ok(b.get(&b, here, there, N * sizeof *here));
  for (size_t i = 0; i < N; i++) {
    float x = number(i) * times, want = bf16 && i >= begin && i < end ? rounded(x) : x;
    if (here[i] != want)
      fail_msg("element %zu is %g and should be %g", i, (double)here[i], (double)want);
  }
}

static void test_collectives_one_rank_keep_data(void **state) {
  (void)state;
  need_nccl();
  for (int bf16 = 0; bf16 < 2; bf16++) {
    DeviceComm *w = open_comm(bf16);
    size_t off[2] = {4096, N - 1000};
    fill();
    b.comm->all_reduce(w, there + 4096, N - 5096);
    wait_for(w);
    check(4096, N - 1000, bf16, 1);
    fill();
    b.comm->reduce_scatter(w, there, off);
    wait_for(w);
    check(4096, N - 1000, bf16, 1);
    fill();
    b.comm->all_gather(w, there, &(DeviceGather){sizeof *there, 1, off});
    wait_for(w);
    check(0, 0, false, 1);
    b.comm->close(w);
  }
}

/* Losses are summed in fp64, also by a communicator that is limited to few CTAs and rounds to bf16. */
static void test_doubles_and_limited_ctas_one_rank_keep_data(void **state) {
  (void)state;
  need_nccl();
  char id[DEVICE_COMM_ID];
  DeviceComm *w;
  DeviceCommSpec spec = {.size = 1, .max_elements = N, .bf16 = true, .max_ctas = 2};
  ok(b.comm->create_id(id));
  ok(b.comm->open(&w, &b, id, &spec));
  fill();
  b.comm->all_reduce_doubles(w, (double *)there, N / 2);
  wait_for(w);
  check(0, 0, false, 1);
  b.comm->all_reduce(w, there, N);
  wait_for(w);
  check(0, N, true, 1);
  b.comm->close(w);
}

/* A collective runs after the compute work queued before it and before the work queued after
 * `join`; with many buckets. */
static void test_all_reduce_is_ordered_with_compute_stream(void **state) {
  (void)state;
  need_nccl();
  DeviceComm *w = open_comm(false);
  float *copy;
  ok(b.alloc(&b, &copy, N * sizeof *copy));
  for (int turn = 0; turn < 20; turn++) {
    b.zero(&b, there, N * sizeof *there);
    b.zero(&b, copy, N * sizeof *copy);
    fill();
    b.add(&b, there, there, 1, N); /* the value is doubled before the sums start */
    for (size_t at = 0; at < N; at += N / 12) b.comm->all_reduce(w, there + at, N / 12);
    b.comm->join(w);
    b.copy(&b, copy, there, N * sizeof *copy);
    b.zero(&b, there, N * sizeof *there);
    ok(b.get(&b, here, copy, N * sizeof *here));
    for (size_t i = 0; i < N; i++)
      if (here[i] != 2 * number(i))
        fail_msg("turn %d: element %zu is %g", turn, i, (double)here[i]);
    wait_for(w);
  }
  b.release(&b, copy);
  b.comm->close(w);
}

/* How often GEMM algorithms were about to be timed, and whether NCCL was idle then. */
static DeviceComm *timed_beside;
static int quiesced;

static Err wait_for_comm(void *context) {
  assert_ptr_equal(context, &quiesced);
  wait_for(timed_beside);
  quiesced++;
  return ERR_OK;
}

/* Runs a GEMM of x (64, 32) and w (out, 32), with a shape that no other test uses. */
static void multiply(size_t out) {
  float *y = there + (1 << 20), *w = there + (2 << 20);
  b.linear(&b, y, there, w, NULL, 64, 32, out);
  ok(b.sync(&b));
}

static void test_gemm_new_shape_is_timed_after_nccl_is_idle(void **state) {
  (void)state;
  need_nccl();
  char id[DEVICE_COMM_ID], cache[] = "/tmp/trireme-nccl-XXXXXX";
  Backend kept = b;
  assert_non_null(mkdtemp(cache)); /* no algorithm is known for this shape yet */
  setenv("XDG_CACHE_HOME", cache, 1);
  open_gpu(&b, "bf16");
  ok(b.comm->create_id(id));
  ok(b.comm->open(
      &timed_beside, &b, id,
      &(DeviceCommSpec){
          .size = 1, .max_elements = N, .quiesce = wait_for_comm, .context = &quiesced}));
  quiesced = 0;
  b.comm->all_reduce(timed_beside, there, N);
  multiply(104);
  assert_int_equal(quiesced, 1);
  multiply(104); /* the algorithm is cached, so quiesce is not called */
  assert_int_equal(quiesced, 1);
  multiply(112);
  assert_int_equal(quiesced, 2);
  b.comm->close(timed_beside);
  multiply(120); /* without a communicator quiesce is not called */
  assert_int_equal(quiesced, 2);
  backend_close(&b);
  b = kept;
}

static void *abort_beside(void *comm) {
  b.comm->abort(comm);
  return NULL;
}

/* An abort from another thread at any time: the communicator is not freed during a call. */
static void test_abort_from_other_thread_during_calls_is_safe(void **state) {
  (void)state;
  need_nccl();
  for (int turn = 0; turn < 20; turn++) {
    DeviceComm *w = open_comm(false);
    pthread_t thread;
    bool made, done;
    for (int i = 0; i < 5 * turn; i++) b.comm->all_reduce(w, there, 4096);
    assert_int_equal(pthread_create(&thread, NULL, abort_beside, w), 0);
    for (int i = 0; i < 200; i++) {
      b.comm->all_reduce(w, there, 4096);
      ok(b.comm->poll(w, &made, &done));
    }
    pthread_join(thread, NULL);
    b.comm->close(w);
    ok(b.sync(&b));
  }
}

static void test_abort_with_pending_collectives_returns(void **state) {
  (void)state;
  need_nccl();
  double start = progress_clock();
  bool made, done;
  DeviceComm *w = open_comm(false);
  fill();
  b.comm->all_reduce(w, there, N);
  b.comm->abort(w);
  b.comm->abort(w);
  ok(b.comm->poll(w, &made, &done)); /* the error is that of the thread that aborted */
  assert_false(done);
  b.comm->close(w);
  ok(b.sync(&b));
  w = open_comm(false); /* the GPU is still usable */
  fill();
  b.comm->all_reduce(w, there, N);
  wait_for(w);
  check(0, 0, false, 1);
  b.comm->close(w);
  assert_true(progress_clock() - start < 60);
}

static void test_allreduce_selftest_passes_on_one_gpu(void **state) {
  (void)state;
  need_nccl();
  Comm *comm;
  Allreduce x;
  AllreduceSpec spec = {
      .transport = TRANSPORT_NCCL, .bf16 = true, .is_sharded = true, .max_elements = N};
  ok(comm_open(&comm, 6));
  ok(allreduce_select(&x, comm, &b, &spec));
  print_message("%s\n", x.about);
  ok(allreduce_open(&x, &spec));
  ok(allreduce_finish(&x));
  allreduce_close(&x);
  comm_close(comm, ERR_OK);
}

int main(void) {
  int why = find_gpu(&b, "bf16");
  if (why) return why;
  if (mem_alloc_aligned(&here, N * sizeof *here) || b.alloc(&b, &there, N * sizeof *there))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives_one_rank_keep_data),
      cmocka_unit_test(test_doubles_and_limited_ctas_one_rank_keep_data),
      cmocka_unit_test(test_all_reduce_is_ordered_with_compute_stream),
      cmocka_unit_test(test_abort_with_pending_collectives_returns),
      cmocka_unit_test(test_abort_from_other_thread_during_calls_is_safe),
      cmocka_unit_test(test_gemm_new_shape_is_timed_after_nccl_is_idle),
      cmocka_unit_test(test_allreduce_selftest_passes_on_one_gpu),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  b.release(&b, there);
  mem_free(here);
  backend_close(&b);
  return failed;
}
