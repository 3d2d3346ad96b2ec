/* Tests collectives and the reducer between real ranks, started by mpirun. Exits with a message
 * and status 1 at the first wrong value. `check_comm few` runs one case of the reducer for each size,
 * for tests with many ranks on one core. Includes files of src/comm with small limits, so that
 * messages and slots of shared memory are split. Depends on comm. */
#define MESSAGE_MAX ((size_t)1000)
#include "comm/message.c"
#define SEGMENT ((size_t)1000)
#include "comm/reduce_message.c"
#define SHARED_SLOT ((size_t)1000)
#include "comm/segment.c"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/rng.h"
#include "comm/reduce.h"

static Comm *comm;
static int rank, size;

#define CHECK(ok, ...) check_that(ok, __LINE__, __VA_ARGS__)
static void check_that(bool ok, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void check_that(bool ok, int line, const char *fmt, ...) {
  if (ok) return;
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  fprintf(stderr, "check_comm: line %d, rank %d of %d: %s\n", line, rank, size, text);
  _exit(1);
}

static void *alloc_bytes(size_t bytes) {
  void *block;
  CHECK(mem_alloc(&block, bytes + 1, 1) == ERR_OK, "no memory");
  return block;
}

static unsigned char make_byte(int from, int to, size_t i) {
  return (unsigned char)rng_mix(rng_mix((uint64_t)from, (uint64_t)to), i);
}

static void check_broadcast(void) {
  static const size_t sizes[] = {0, 1, 999, 1000, 1001, 2000, 5003};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    size_t n = sizes[k];
    unsigned char *b = alloc_bytes(n);
    for (size_t i = 0; i < n; i++) b[i] = rank == 0 ? make_byte(0, 0, i + k) : 0xee;
    b[n] = 0x5a;
    comm_broadcast(comm, "broadcast", b, n);
    for (size_t i = 0; i < n; i++)
      CHECK(b[i] == make_byte(0, 0, i + k), "broadcast of %zu bytes: byte %zu", n, i);
    CHECK(b[n] == 0x5a, "broadcast of %zu bytes wrote behind them", n);
    mem_free(b);
  }
}

/* Returns byte i of rank r in pattern k. */
static size_t block_size(int k, int r) {
  size_t n = (size_t)r;
  return k == 0   ? 0
         : k == 1 ? n % 2
         : k == 2 ? (n % 2 ? 0 : 3001)
         : k == 3 ? 1000 * n
         : k == 4 ? (r == 0 ? 0 : 7 + 1300 * n)
                  : (r == size - 1 ? 2500 : 0);
}

static void check_allgather(void) {
  size_t *off = alloc_bytes((size_t)(size + 1) * sizeof *off);
  for (int k = 0; k < 6; k++) {
    off[0] = 3; /* the first block need not begin at 0 */
    for (int r = 0; r < size; r++) off[r + 1] = off[r] + block_size(k, r);
    unsigned char *all = alloc_bytes(off[size]);
    for (size_t i = off[rank]; i < off[rank + 1]; i++) all[i] = make_byte(rank, k, i);
    comm_allgather(comm, "allgather", all, off);
    for (int r = 0; r < size; r++)
      for (size_t i = off[r]; i < off[r + 1]; i++)
        CHECK(all[i] == make_byte(r, k, i), "allgather %d: byte %zu, of rank %d", k, i, r);
    CHECK(!all[0] && !all[2], "allgather %d wrote before the first block", k);
    mem_free(all);
  }
  mem_free(off);
}

static size_t exchange_size(int from, int to) {
  /* Some sizes are 0, some are large. */
  return from == to ? 0 : (size_t)((from * 7 + to * 3) % 5) * 613;
}

static void check_exchange(void) {
  size_t ranks = (size_t)size;
  const void **send = alloc_bytes(ranks * sizeof *send);
  void **recv = alloc_bytes(ranks * sizeof *recv);
  size_t *send_n = alloc_bytes(ranks * sizeof *send_n),
         *recv_n = alloc_bytes(ranks * sizeof *recv_n);
  for (int r = 0; r < size; r++) {
    send_n[r] = exchange_size(rank, r);
    recv_n[r] = exchange_size(r, rank);
    unsigned char *out = alloc_bytes(send_n[r]);
    for (size_t i = 0; i < send_n[r]; i++) out[i] = make_byte(rank, r, i);
    send[r] = out;
    recv[r] = alloc_bytes(recv_n[r]);
  }
  comm_exchange(comm, "exchange", send, send_n, recv, recv_n);
  for (int r = 0; r < size; r++) {
    const unsigned char *in = recv[r];
    for (size_t i = 0; i < recv_n[r]; i++)
      CHECK(in[i] == make_byte(r, rank, i), "exchange: byte %zu from rank %d", i, r);
    mem_free((void *)(uintptr_t)send[r]);
    mem_free(recv[r]);
  }
  mem_free(send);
  mem_free(recv);
  mem_free(send_n);
  mem_free(recv_n);
}

/* Numbers whose sum depends on the order of the additions. */
static double make_term(int r, size_t i) {
  double x = (double)(rng_mix((uint64_t)r, i) >> 11);
  return (r + (int)i) % 3 == 0 ? x * 0x1p40 : (r + (int)i) % 3 == 1 ? -x * 0x1p40 : x * 0x1p-9;
}

static void check_sum(void) {
  for (size_t n = 1; n <= COMM_SUM_MAX; n += COMM_SUM_MAX - 1) {
    double x[COMM_SUM_MAX], want;
    for (size_t i = 0; i < COMM_SUM_MAX; i++) x[i] = make_term(rank, i);
    comm_sum(comm, "sum", x, n);
    CHECK(n == COMM_SUM_MAX || x[n] == make_term(rank, n), "a sum wrote behind its array");
    for (size_t i = 0; i < n; i++) {
      want = 0;
      for (int r = 0; r < size; r++) want += make_term(r, i);
      CHECK(x[i] == want, "sum %zu of %zu: %.17g, not %.17g", i, n, x[i], want);
    }
  }
}

static void check_text(void) {
  size_t len = (size_t)rank * 777; /* rank 0 has an empty text */
  char *text = alloc_bytes(len), **list;
  memset(text, 'a' + rank, len);
  CHECK(comm_gather_text(comm, "text", text, len, &list) == ERR_OK, "%s", err_message());
  for (int r = 0; r < size && rank == 0; r++) {
    CHECK(strlen(list[r]) == (size_t)r * 777, "text of rank %d: %zu bytes", r, strlen(list[r]));
    for (const char *c = list[r]; *c; c++) CHECK(*c == 'a' + r, "text of rank %d: '%c'", r, *c);
  }
  mem_free(list);
  mem_free(text);
}

/* Returns how often the other threads of this process have gone to sleep. */
static long count_sleeps(void) {
  long sleeps = 0;
  DIR *threads = opendir("/proc/self/task");
  CHECK(threads != NULL, "/proc/self/task cannot be read");
  for (struct dirent *d; (d = readdir(threads));) {
    char path[300], line[256];
    if (d->d_name[0] == '.' || atol(d->d_name) == (long)getpid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
    FILE *f = fopen(path, "r");
    for (long n; f && fgets(line, sizeof line, f);)
      if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1) sleeps += n;
    if (f) fclose(f);
  }
  closedir(threads);
  return sleeps;
}

/* A thread that waits for its own sum runs it itself. If each sum woke the communication
 * thread, that thread would sleep again SUMS times. Otherwise threads sleep only some times a
 * second, on a busy machine more often. */
static void check_wakeups(void) {
  enum { SUMS = 10000, A_SECOND = 400 };
  double x = 1, start = progress_clock();
  if (size == 1) return;
  long before = count_sleeps();
  for (int i = 0; i < SUMS; i++) comm_sum(comm, "wake-ups", &x, 1);
  long sleeps = count_sleeps() - before;
  double allowed = SUMS / 2 + A_SECOND * (progress_clock() - start);
  CHECK((double)sleeps <= allowed, "%ld sleeps of other threads in %d sums", sleeps, SUMS);
}

typedef struct {
  size_t n, unit, bucket;
  bool bf16, shard;
  int rounds;
  int order;
} Case;

static float round_to_bf16(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  u += 0x7fffu + (u >> 16 & 1u);
  u &= 0xffff0000u;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* Element i of rank r's gradient. Magnitudes differ, so that the sum depends on the order of
 * additions. */
static float make_gradient(int step, int round, int r, size_t i) {
  uint64_t h = rng_mix(rng_mix((uint64_t)(step * 100 + round), (uint64_t)r), i);
  return ((float)(h & 0xffffff) - 8388608.0f) * ((h >> 30 & 3) ? 0x1p-23f : 0x1p-10f);
}

static int count_active(const Case *c, int round) {
  return round + 1 == c->rounds && c->rounds > 1 && size > 1 ? size - 1 : size;
}

static float expected_sum(const Case *c, int step, size_t i) {
  float acc = 0;
  for (int round = 0; round < c->rounds; round++)
    for (int r = 0; r < count_active(c, round); r++) {
      float x = make_gradient(step, round, r, i);
      /* With one rank and one round nothing is sent or rounded to bf16. */
      if (size == 1 && c->rounds == 1) return x;
      if (c->bf16) x = round_to_bf16(x);
      acc = round == 0 && r == 0 ? x : acc + x;
    }
  return c->bf16 ? round_to_bf16(acc) : acc;
}

/* Marks the gradient ready as a backward pass might: in ranges of any size, in any order,
 * differently on each rank. */
static void mark_ready(Reducer *q, const Case *c) {
  static const size_t cut[] = {1, 37, 500, 3, 1111};
  size_t n = c->n, at = 0;
  switch ((c->order + rank) % 5) {
    case 0:
      reducer_mark_ready(q, 0, n);
      break;
    case 1: /* marks ranges from the end to the beginning, as backward completes layers */
      for (int k = 0; n > 0; k++) {
        size_t m = cut[k % 5] < n ? cut[k % 5] : n;
        reducer_mark_ready(q, n - m, n);
        n -= m;
      }
      break;
    case 2:
      for (int k = 0; at < n; k++) {
        size_t m = cut[k % 5] < n - at ? cut[k % 5] : n - at;
        reducer_mark_ready(q, at, at + m);
        at += m;
      }
      break;
    case 3: /* the middle, the end, the beginning; reducer_finish sends the rest */
      reducer_mark_ready(q, n / 3, n / 2);
      reducer_mark_ready(q, n / 2, n);
      reducer_mark_ready(q, 0, n / 5);
      break;
    default: /* reducer_finish sends everything */
      break;
  }
}

static void check_steps(const Case *c, Reducer *q, float *g) {
  for (int step = 0; step < 2; step++) {
    for (int round = 0; round < c->rounds; round++) {
      int active = count_active(c, round);
      for (size_t i = 0; i < c->n; i++)
        g[i] = rank < active ? make_gradient(step, round, rank, i) : 12345;
      reducer_begin_round(
          q, (ReduceRound){
                 .active = active, .is_first = round == 0, .is_last = round + 1 == c->rounds});
      if (rank < active) mark_ready(q, c);
      reducer_finish(q);
    }
    for (size_t p = 0; p < (c->shard ? reducer_pieces(q) : 1); p++) {
      size_t begin = 0, end = c->n;
      if (c->shard) reducer_piece(q, p, &begin, &end);
      for (size_t i = begin; i < end; i++) {
        float want = expected_sum(c, step, i);
        CHECK(memcmp(&g[i], &want, sizeof want) == 0,
              "n %zu, bucket %zu, bf16 %d, shard %d, rounds %d, order %d, step %d: element %zu "
              "is %.9g, not %.9g",
              c->n, c->bucket, c->bf16, c->shard, c->rounds, c->order, step, i, (double)g[i],
              (double)want);
      }
    }
  }
}

/* The pieces of all ranks must cover the array without gap or overlap. */
static void check_pieces(const Case *c, Reducer *q) {
  size_t pieces = reducer_pieces(q), owned = 0, at = 0;
  size_t ranks = (size_t)size, *all = alloc_bytes(2 * ranks * pieces * sizeof *all);
  size_t *off = alloc_bytes((ranks + 1) * sizeof *off), *mine = all + 2 * pieces * (size_t)rank;
  for (size_t r = 0; r <= ranks; r++) off[r] = r * 2 * pieces * sizeof *all;
  for (size_t p = 0; p < pieces; p++) {
    reducer_piece(q, p, &mine[2 * p], &mine[2 * p + 1]);
    owned += mine[2 * p + 1] - mine[2 * p];
    CHECK(mine[2 * p] % c->unit == 0 || mine[2 * p] == c->n, "piece %zu cuts a unit", p);
  }
  CHECK(owned == reducer_owned(q), "owns %zu, reports %zu", owned, reducer_owned(q));
  comm_allgather(comm, "pieces", all, off);
  for (size_t p = 0; p < pieces; p++)
    for (size_t r = 0; r < ranks; r++) {
      const size_t *piece = all + 2 * (r * pieces + p);
      CHECK(piece[0] == at && piece[1] >= at, "piece %zu of rank %zu begins at %zu, not %zu", p,
            r, piece[0], at);
      at = piece[1];
    }
  CHECK(at == c->n, "the pieces end at %zu of %zu", at, c->n);
  mem_free(all);
  mem_free(off);
}

/* The units of a bucket are distributed evenly. The working memory must suffice for the largest
 * bucket and for the longest piece. */
static void check_memory(const Case *c, const Reducer *q) {
  size_t largest = 0, longest = 0, *off = alloc_bytes((size_t)(size + 1) * sizeof *off);
  for (size_t i = 0; i < reducer_pieces(q); i++) {
    size_t fewest = c->n, most = 0; /* units of a piece */
    reducer_bucket(q, i, off);
    if (off[size] - off[0] > largest) largest = off[size] - off[0];
    for (int r = 0; r < size; r++) {
      size_t n = off[r + 1] - off[r], units = (n + c->unit - 1) / c->unit;
      if (n > longest) longest = n;
      if (units > most) most = units;
      if (units < fewest) fewest = units;
    }
    CHECK(most <= fewest + 1, "pieces of %zu to %zu units in bucket %zu", fewest, most, i);
  }
  size_t bytes = comm_reduce_work(comm, largest, longest, c->bf16);
  if (c->rounds > 1) bytes += reducer_owned(q) * sizeof(float);
  if (size > 1) bytes += (c->n + c->unit - 1) / c->unit * sizeof(double);
  CHECK(reducer_bytes(q) == bytes, "%zu bytes of working memory, not %zu", reducer_bytes(q),
        bytes);
  mem_free(off);
}

static void count_event(void *context, const CommEvent *event) {
  int *count = context;
  (void)event;
  ++*count;
}

/* Gathers one number per unit, and checks that one collective does it, however many buckets there
 * are. */
static void gather_units(Reducer *q, double *unit) {
  int count = 0;
  comm_set_observer(comm, count_event, &count);
  reducer_allgather_units(q, "units", unit);
  comm_set_observer(comm, NULL, NULL);
  CHECK(count == (size > 1), "%d collectives for %zu buckets", count, reducer_pieces(q));
}

static void check_moves(const Case *c, Reducer *q) {
  size_t n = c->n, owned = reducer_owned(q), units = (n + c->unit - 1) / c->unit, k = 0;
  float *whole = alloc_bytes(n * sizeof *whole), *mine = alloc_bytes(owned * sizeof *mine);
  double *unit = alloc_bytes(units * sizeof *unit);
  for (size_t p = 0; p < reducer_pieces(q); p++) {
    size_t begin, end;
    reducer_piece(q, p, &begin, &end);
    for (size_t i = begin; i < end; i++) whole[i] = mine[k++] = (float)i + 0.5f;
    for (size_t i = begin; i < end; i += c->unit) unit[i / c->unit] = 1 / ((double)i + 3);
  }
  reducer_allgather(q, "gather", whole);
  gather_units(q, unit);
  for (size_t i = 0; i < n; i++) CHECK(whole[i] == (float)i + 0.5f, "gathered element %zu", i);
  for (size_t i = 0; i < units; i++)
    CHECK(unit[i] == 1 / ((double)(i * c->unit) + 3), "gathered unit %zu", i);
  memset(whole, 0, n * sizeof *whole);
  reducer_gather(q, "collect", mine, whole);
  for (size_t i = 0; i < n && rank == 0; i++)
    CHECK(whole[i] == (float)i + 0.5f, "collected element %zu", i);
  for (size_t i = 0; i < n && rank == 0; i++) whole[i] += 1;
  memset(mine, 0, owned * sizeof *mine);
  reducer_scatter(q, "deal", mine, whole);
  k = 0;
  for (size_t p = 0; p < reducer_pieces(q); p++) {
    size_t begin, end;
    reducer_piece(q, p, &begin, &end);
    for (size_t i = begin; i < end; i++)
      CHECK(mine[k++] == (float)i + 1.5f, "dealt element %zu", i);
  }
  mem_free(whole);
  mem_free(mine);
  mem_free(unit);
}

static void check_case(const Case *c) {
  float *g = alloc_bytes(c->n * sizeof *g);
  ReduceSpec spec = {.unit = c->unit,
                     .bucket = c->bucket,
                     .bf16 = c->bf16,
                     .shard = c->shard,
                     .rounds = c->rounds > 1};
  Reducer *q;
  CHECK(reducer_new(&q, comm, g, c->n, &spec) == ERR_OK, "%s", err_message());
  check_steps(c, q, g);
  check_pieces(c, q);
  check_memory(c, q);
  check_moves(c, q);
  reducer_free(q);
  mem_free(g);
}

static void check_reducer(bool few) {
  /* Elements, unit, bucket: a bucket smaller than a unit, one that divides the array, an odd
   * one, one larger than the array; fewer units than ranks; a bucket of 80 kB, which is sent in
   * two messages. */
  static const size_t sizes[][3] = {{10000, 64, 10},    {8192, 64, 1024}, {9999, 64, 2500},
                                    {5000, 64, 100000}, {100, 64, 64},    {4097, 1, 999},
                                    {20001, 64, 20001}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (int bits = 0; bits < 8; bits++) {
      if (few && bits != (int)k) continue;
      Case c = {sizes[k][0],     sizes[k][1],        sizes[k][2],        (bits & 1) != 0,
                (bits & 2) != 0, (bits & 4) ? 3 : 1, ((int)k + bits) % 5};
      check_case(&c);
      if (few || c.order == 2) continue;
      c.order = 4 - c.order;
      check_case(&c);
    }
}

int main(int count, char **argument) {
  if (comm_open(&comm, 20) != ERR_OK) {
    fprintf(stderr, "check_comm: %s\n", err_message());
    return 1;
  }
  rank = comm_rank(comm);
  size = comm_size(comm);
  /* The test gives the ranks different host names. */
  bool spread = getenv("TRIREME_HOST") != NULL;
  if (!spread && (comm_local_size(comm) != size || comm_local_rank(comm) != rank)) {
    fprintf(stderr, "check_comm: rank %d is not the same on its host\n", rank);
    return 1;
  }
  CommTraffic before = comm_traffic(comm);
  check_broadcast();
  check_allgather();
  check_exchange();
  check_sum();
  check_wakeups();
  check_text();
  check_reducer(count == 2 && strcmp(argument[1], "few") == 0);
  CommTraffic after = comm_traffic(comm);
  bool has_sent = after.sent != before.sent || after.received != before.received;
  bool is_shared = size == 1 || strstr(comm_about(comm), "shared memory") != NULL;
  CHECK(has_sent != is_shared, "messages although the ranks share memory, or none");
  if (rank == 0) printf("all right on %d: %s\n", size, comm_about(comm));
  comm_close(comm, ERR_OK);
  return 0;
}
