/* Processes that use the device communicator of the CUDA plug-in (NCCL or its stand-in) directly:
 *   nccl_ranks N   N ranks: many buckets between other work of the device, in fp32 and bf16; pieces
 *                  of equal and unequal size; ranges of 16 bits in one gather; then rank 0 waits for
 *                  ranks that do not come, and aborts
 * Prints what is wrong, and returns 1. Works with fake GPUs too. Depends on backend, device_comm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/device_comm.h"
#include "base/mem.h"

enum { N = 600000, BUCKETS = 12, RANKS = 16, TURNS = 5 };

static Backend b;
static DeviceComm *w;
static int rank, size;
static float *there, *copy, *here; /* (N) on the device, and on the host */

static void die(const char *what) {
  fprintf(stderr, "nccl_ranks: rank %d of %d: %s\n", rank, size, what);
  _exit(1);
}

static void must(Err err) {
  if (err) die(err_message());
}

/* Integers, so that the sum of doubled numbers is exact in fp32; small ones are exact in bf16. */
static float number(int of, size_t i, int turn) {
  return (float)((int)(i + (size_t)turn) % 5 + of);
}

static float sum_of_all(size_t i, int turn) {
  float sum = 0;
  for (int r = 0; r < size; r++) sum += number(r, i, turn);
  return sum;
}

static void wait_for_comm(void) {
  bool made = false, done = false;
  while (!done) must(b.comm->poll(w, &made, &done));
  if (!made) die("done before its inputs");
}

static void fill(int turn) {
  for (size_t i = 0; i < N; i++) here[i] = number(rank, i, turn);
  b.put(&b, there, here, N * sizeof *here);
}

static void check(const float *array, size_t begin, size_t end, int turn, float times) {
  must(b.get(&b, here, array, N * sizeof *here));
  for (size_t i = begin; i < end; i++)
    if (here[i] != times * sum_of_all(i, turn)) {
      fprintf(stderr, "element %zu is %g, not %g\n", i, (double)here[i],
              (double)(times * sum_of_all(i, turn)));
      die("wrong sum");
    }
}

/* The sums must see the doubling queued before them, and the copy queued after `join` the sums. */
static void check_order(void) {
  for (int turn = 0; turn < TURNS; turn++) {
    fill(turn);
    b.add(&b, there, there, 1, N);
    for (size_t at = 0; at < N; at += N / BUCKETS)
      b.comm->all_reduce(w, there + at, N / BUCKETS);
    b.comm->join(w);
    b.copy(&b, copy, there, N * sizeof *copy);
    b.zero(&b, there, N * sizeof *there);
    check(copy, 0, N, turn, 2);
    wait_for_comm();
  }
}

/* Numbers of fp64, also with a communicator that rounds gradients to bf16, between other work. */
static void check_numbers(void) {
  enum { NUMBERS = 300 };
  double *numbers = (double *)there, mine[NUMBERS];
  for (int i = 0; i < NUMBERS; i++) mine[i] = rank + i * 0x1p-40;
  b.put(&b, copy, mine, sizeof mine);
  b.copy(&b, numbers, copy, sizeof mine);
  b.comm->all_reduce_doubles(w, numbers, NUMBERS);
  b.comm->join(w);
  b.copy(&b, copy, numbers, sizeof mine);
  b.zero(&b, numbers, sizeof mine);
  must(b.get(&b, mine, copy, sizeof mine));
  wait_for_comm();
  for (int i = 0; i < NUMBERS; i++)
    if (mine[i] != size * (size - 1) / 2 + size * (i * 0x1p-40)) die("wrong sum of fp64");
}

/* Cuts [100, N) into pieces; if they are uneven, the last rank has no element. */
static void cut(size_t *off, bool is_even) {
  size_t each = (N - 100) / (size_t)size;
  for (int r = 0; r <= size; r++) off[r] = 100 + (size_t)r * each;
  if (!is_even && size > 1) off[size - 1] = off[size];
}

/* A reduce-scatter and an all-gather together are an all-reduce. */
static void check_pieces(void) {
  size_t off[RANKS + 1];
  for (int turn = 0; turn < TURNS; turn++) {
    cut(off, turn % 2 == 0);
    fill(turn);
    b.comm->reduce_scatter(w, there, off);
    wait_for_comm();
    check(there, off[rank], off[rank + 1], turn, 1);
    b.comm->all_gather(w, there, &(DeviceGather){sizeof *there, 1, off});
    b.comm->join(w);
    check(there, off[0], off[size], turn, 1);
    wait_for_comm();
  }
}

/* One gather of many ranges, some of them without elements for some ranks, of elements of 2
 * bytes. */
static void check_ranges(void) {
  enum { RANGES = 40, EACH = 1000 };
  size_t off[RANGES][RANKS + 1], stride = (size_t)size + 1, *packed = off[0];
  uint16_t *halves = (uint16_t *)here;
  for (size_t i = 0; i < RANGES; i++)
    for (size_t r = 0; r < stride; r++)
      packed[i * stride + r] = 2 * i * EACH + (i % 3 ? r * EACH / (size_t)size : r ? EACH : 0);
  for (size_t i = 0; i < (size_t)2 * RANGES * EACH; i++) halves[i] = 0;
  for (size_t i = 0; i < RANGES; i++)
    for (size_t k = packed[i * stride + (size_t)rank];
         k < packed[i * stride + (size_t)rank + 1]; k++)
      halves[k] = (uint16_t)(k % 60000 + 1);
  b.put(&b, copy, halves, (size_t)2 * RANGES * EACH * sizeof *halves);
  b.copy(&b, there, copy, (size_t)2 * RANGES * EACH * sizeof *halves);
  b.comm->all_gather(w, there, &(DeviceGather){sizeof *halves, RANGES, packed});
  b.comm->join(w);
  b.copy(&b, copy, there, (size_t)2 * RANGES * EACH * sizeof *halves);
  must(b.get(&b, halves, copy, (size_t)2 * RANGES * EACH * sizeof *halves));
  wait_for_comm();
  for (size_t k = 0; k < (size_t)2 * RANGES * EACH; k++)
    if (halves[k] != (k / EACH % 2 ? 0 : (uint16_t)(k % 60000 + 1)))
      die("wrong gathered range");
}

/* The other ranks do not call it. */
static void check_abort(void) {
  bool made = false, done = false;
  fill(0);
  must(b.sync(&b));
  b.comm->all_reduce(w, there, N);
  while (!made) must(b.comm->poll(w, &made, &done));
  for (int i = 0; i < 1000; i++) {
    must(b.comm->poll(w, &made, &done));
    if (done) die("a collective ended without the other ranks");
  }
  b.comm->abort(w);
  must(b.comm->poll(w, &made, &done));
  if (done) die("done after an abort");
}

static void open_comm(const char *id, bool bf16) {
  DeviceCommSpec spec = {.rank = rank, .size = size, .max_elements = N, .bf16 = bf16};
  must(b.comm->open(&w, &b, id, &spec));
}

/* `id` holds the ids of three communicators. */
static void run_rank(char (*id)[DEVICE_COMM_ID]) {
  for (int bf16 = 0; bf16 < 2; bf16++) {
    open_comm(id[bf16], bf16);
    check_order();
    check_pieces();
    check_numbers();
    check_ranges();
    b.comm->close(w);
  }
  open_comm(id[2], false);
  if (rank == 0 && size > 1) check_abort();
  b.comm->close(w);
  fill(0); /* The device is usable afterwards. */
  must(b.get(&b, here, there, N * sizeof *here));
  for (size_t i = 0; i < N; i++)
    if (here[i] != number(rank, i, 0)) die("wrong element after the end");
}

static void open_device(void) {
  must(backend_open(&b, &(BackendSpec){"cuda", "fp32", 1}));
  if (!b.comm) die("the device has no communicator");
  must(mem_alloc_aligned(&here, N * sizeof *here));
  must(b.alloc(&b, &there, N * sizeof *there));
  must(b.alloc(&b, &copy, N * sizeof *copy));
}

static void close_device(void) {
  b.release(&b, there);
  b.release(&b, copy);
  mem_free(here);
  backend_close(&b);
}

/* Rank 0 creates the ids after the fork, because CUDA does not survive it, and sends them. */
static void share_ids(char (*id)[DEVICE_COMM_ID], const int pipes[][2]) {
  size_t bytes = 3 * sizeof *id;
  if (rank > 0) {
    if (read(pipes[rank][0], id, bytes) != (ssize_t)bytes) die("no id");
    return;
  }
  for (int i = 0; i < 3; i++) must(b.comm->create_id(id[i]));
  for (int r = 1; r < size; r++)
    if (write(pipes[r][1], id, bytes) != (ssize_t)bytes) die("cannot send the id");
}

int main(int argc, char **argv) {
  char id[3][DEVICE_COMM_ID];
  int pipes[RANKS][2], failed = 0, status;
  size = argc == 2 ? atoi(argv[1]) : 0;
  if (size < 1 || size > RANKS) return 2;
  for (int r = 1; r < size; r++)
    if (pipe(pipes[r])) return 1;
  for (int r = 1; r < size && rank == 0; r++) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) rank = r;
  }
  open_device();
  share_ids(id, pipes);
  run_rank(id);
  close_device();
  if (rank > 0) return 0;
  while (wait(&status) > 0) failed |= status != 0;
  printf("%d ranks: %s\n", size, failed ? "FAILED" : "all right");
  return failed;
}
