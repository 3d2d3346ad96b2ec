/* A CUDA plug-in whose GPUs are this CPU, so that the program's use of a device can be tested to
 * the bit. Environment:
 *   FAKE_GPUS=N       number of GPUs (1)
 *   FAKE_FREE=BYTES   free memory of each
 *   FAKE_GRAPH=0      no graphs
 * Files that it writes when it is closed:
 *   FAKE_WAITS=PATH   how often the program waited for enqueued work
 *   FAKE_MEMORY=PATH  peak bytes; allocations after the first update
 *   FAKE_GRAPHS=PATH  graphs captured, launched, and not freed
 *   FAKE_DEVICES=PATH the index of each GPU that was used, one line for each process
 * Depends on the program's CPU backend, fake_graph.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "base/plugin.h"
#include "base/progress.h"
#include "fake_graph.h"

#ifdef FAKE_COMM /* built with fake_comm.c */
#include "backend/device_comm.h"
extern const DeviceCommOps fake_comm;
#endif
#ifdef FAKE_NCCL /* built with fake_nccl.c */
#include "backend/device_comm.h"
const DeviceCommOps *fake_nccl(void);
#endif

extern const char trireme_plugin_version[];
const char trireme_plugin_version[] = PLUGIN_VERSION;

static Backend cpu;
static bool queued; /* work was enqueued after the last wait */
static unsigned long waits;

typedef struct {
  void *at;
  size_t bytes;
} Block;
static Block block[256];  /* memory that the program has allocated */
unsigned long fake_taken; /* sum of the bytes of all blocks */
static unsigned long peak, late;
static bool updated;

/* Returns the entry of the block at this address; for NULL, an unused entry. */
static Block *find_block(const void *at) {
  for (size_t i = 0; i < sizeof block / sizeof *block; i++)
    if (block[i].at == at) return &block[i];
  fprintf(stderr, at ? "fake GPU: unknown block\n" : "fake GPU: too many blocks\n");
  abort();
}

static Err alloc(const Backend *b, void *pointer, size_t bytes) {
  Block *x = find_block(NULL);
  fake_graph_refuses("alloc");
  TRY(cpu.alloc(b, pointer, bytes));
  memcpy(&x->at, pointer, sizeof x->at);
  x->bytes = bytes;
  fake_taken += bytes;
  late += updated;
  if (fake_taken > peak) peak = fake_taken;
  return ERR_OK;
}

static void release(const Backend *b, void *at) {
  fake_graph_refuses("release");
  if (at) {
    Block *x = find_block(at);
    fake_taken -= x->bytes;
    *x = (Block){0};
  }
  cpu.release(b, at);
}

static void put(const Backend *b, void *to, const void *from, size_t bytes) {
  fake_graph_refuses("put");
  cpu.put(b, to, from, bytes);
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  fake_graph_refuses("square_sums");
  cpu.square_sums(b, sums, x, n);
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  fake_graph_refuses("get");
  waits += queued;
  queued = false;
  return cpu.get(b, to, from, bytes);
}

static Err sync_all(const Backend *b) {
  fake_graph_refuses("sync");
  waits += queued;
  queued = false;
  return cpu.sync(b);
}

#define STAMPS 16384
static double stamped[STAMPS]; /* a clock with another origin than the program's */

static void stamp(const Backend *b, size_t i) {
  (void)b;
  queued = true;
  if (i < STAMPS) stamped[i] = progress_clock() - 1000;
}

static Err stamps(const Backend *b, double *seconds, size_t n) {
  if (n > STAMPS) return err_set(ERR_WORK, "fake GPU: more than %d stamps", STAMPS);
  TRY(b->sync(b));
  for (size_t i = 0; i < n; i++) seconds[i] = stamped[i] - stamped[0];
  return ERR_OK;
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  const char *bytes = getenv("FAKE_FREE");
  (void)b;
  *all = (uint64_t)1 << 40;
  *left = bytes ? strtoull(bytes, NULL, 10) : *all;
  return ERR_OK;
}

static void zero(const Backend *b, void *block, size_t bytes) {
  queued = true;
  cpu.zero(b, block, bytes);
}

static void loss(const Backend *b, void *logits, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  queued = true;
  cpu.loss(b, logits, sum, target, rows, vocab, smoothing, scale);
}

static void head_loss(const Backend *b, void *logits, double *sum, const float *target,
                      const HeadLoss *h) {
  queued = true;
  cpu.head_loss(b, logits, sum, target, h);
}

static void square_sums_async(const Backend *b, double *sums, const float *x, size_t n) {
  queued = true;
  cpu.square_sums_async(b, sums, x, n);
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  queued = updated = true;
  cpu.adam(b, w, m, v, g, n, s);
}

static void write_numbers(const char *name, const unsigned long *number, int n) {
  const char *path = getenv(name);
  FILE *f = path ? fopen(path, "w") : NULL;
  if (!f) return;
  for (int i = 0; i < n; i++) fprintf(f, "%lu%c", number[i], i + 1 < n ? ' ' : '\n');
  fclose(f);
}

static void write_device(int device) {
  const char *path = getenv("FAKE_DEVICES");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  fprintf(f, "%d\n", device);
  fclose(f);
}

static void close_gpu(Backend *b) {
  unsigned long count[3], memory_of[] = {peak, late};
  write_device(b->device);
  fake_graph_count(count);
  write_numbers("FAKE_WAITS", &waits, 1);
  write_numbers("FAKE_GRAPHS", count, 3);
  write_numbers("FAKE_MEMORY", memory_of, 2);
}

Err trireme_backend_cuda(Backend *b, const CudaSpec *s) {
  const char *gpus = getenv("FAKE_GPUS"), *records = getenv("FAKE_GRAPH");
  int count = gpus ? atoi(gpus) : 1, device = s->any ? s->device % count : s->device;
  if (s->table != sizeof *b) return err_set(ERR_WORK, "fake GPU: another Backend");
  if (s->type != TYPE_F32 && !s->fp8) return err_set(ERR_USAGE, "fake GPU: only fp32");
  if (device >= count) return err_set(ERR_WORK, "there is no GPU %d", device);
  TRY(backend_cpu(&cpu, 1, false));
  *b = cpu;
  b->name = "cuda";
  b->host = false;
  b->close = close_gpu;
  b->fp8 = s->fp8;
  b->device = device;
  b->device_id = (uint64_t)device + 1;
  b->get = get;
  b->sync = sync_all;
  b->zero = zero;
  b->memory = memory;
  b->stamp = stamp;
  b->stamps = stamps;
  b->alloc = alloc;
  b->release = release;
  b->put = put;
  b->square_sums = square_sums;
  b->loss = loss;
  b->head_loss = head_loss;
  b->square_sums_async = square_sums_async;
  b->adam = adam;
  b->pack = NULL; /* the CUDA backend does not pack weights */
  b->unpack = NULL;
  if (!records || strcmp(records, "0") != 0) fake_graph_fill(b);
#ifdef FAKE_COMM
  b->comm = &fake_comm;
#endif
#ifdef FAKE_NCCL
  b->comm = fake_nccl();
#endif
  snprintf(b->about, sizeof b->about, "cuda:%d: fake GPU", device);
  return ERR_OK;
}
