/* A fake NCCL for fake GPUs: ranks exchange arrays in shared memory and add them in the order of
 * the ranks, as the host does. Collectives progress when `poll` or `join` is called. Environment:
 *   FAKE_COMM_MISSING=[R]     the library is missing, or only on rank R
 *   FAKE_COMM_FAIL=N          rank 1 reports an error at collective N
 *   FAKE_COMM_STUCK=N         no collective from N on completes
 *                             (gather:N instead of N counts all-gathers only)
 *   FAKE_COMM_ABORTED=PATH    each abort appends a line with its rank
 * Depends on POSIX shared memory. */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/device_comm.h"
#include "base/mem.h"

#define RANKS 8
#define QUEUE 1024

typedef enum { SUM, SUM_DOUBLES, SCATTER, GATHER } What;
typedef struct {
  What what;
  float *x;
  size_t width; /* bytes of an element */
  size_t off[RANKS + 1];
  bool written;
} Operation;

typedef struct {
  _Atomic unsigned written[RANKS], read[RANKS], opened[RANKS]; /* collectives so far */
  float data[];                                                /* (ranks, max_elements) */
} Exchange;

struct DeviceComm {
  DeviceCommSpec spec;
  Exchange *at;
  size_t bytes;
  char name[DEVICE_COMM_ID];
  Operation queue[QUEUE];
  unsigned first, count;  /* numbers of collectives done and enqueued */
  unsigned gathers;       /* number of all-gathers enqueued */
  unsigned joined;        /* number of collectives enqueued before the last `join` */
  unsigned behind;        /* `joined` when the last collective was enqueued */
  unsigned fails, sticks; /* first collective that fails, stalls; UINT_MAX: none */
  atomic_bool aborted;
};

static Err probe_library(char about[64], int *version) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *missing = getenv("FAKE_COMM_MISSING");
  *version = 0;
  if (missing && (!*missing || (rank && strcmp(rank, missing) == 0)))
    return err_set(ERR_WORK, "disabled by FAKE_COMM_MISSING");
  *version = 22803;
  snprintf(about, 64, "fake NCCL");
  return ERR_OK;
}

static Err create_id(char id[DEVICE_COMM_ID]) {
  snprintf(id, DEVICE_COMM_ID, "/trireme-fake-comm-%ld", (long)getpid());
  return ERR_OK;
}

static Err open_comm(DeviceComm **out, const struct Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  DeviceComm *w;
  (void)b;
  if (spec->size > RANKS) return err_set(ERR_WORK, "fake NCCL: at most %d ranks", RANKS);
  TRY(mem_alloc(&w, 1, sizeof *w));
  w->spec = *spec;
  w->fails = w->sticks = UINT_MAX;
  memcpy(w->name, id, DEVICE_COMM_ID);
  w->bytes = sizeof *w->at + (size_t)spec->size * spec->max_elements * sizeof(float);
  int fd = shm_open(id, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)w->bytes) != 0) return err_errno("cannot open", id);
  w->at = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (w->at == MAP_FAILED) return err_errno("cannot map", id);
  atomic_store(&w->at->opened[spec->rank], 1);
  for (int r = 0; r < spec->size; r++)
    while (!atomic_load(&w->at->opened[r])) usleep(1000);
  shm_unlink(id); /* every rank has mapped it: nothing is left behind, however they end */
  *out = w;
  return ERR_OK;
}

static void close_comm(DeviceComm *w) {
  munmap(w->at, w->bytes);
  mem_free(w);
}

static void abort_comm(DeviceComm *w) {
  const char *path = getenv("FAKE_COMM_ABORTED");
  FILE *f = path ? fopen(path, "a") : NULL;
  atomic_store(&w->aborted, true);
  if (!f) return;
  fprintf(f, "%d\n", w->spec.rank);
  fclose(f);
}

/* Sets *at to the collective being enqueued if `variable` names it. */
static void read_fault(const DeviceComm *w, What what, const char *variable, unsigned *at) {
  static const char gathers[] = "gather:";
  const char *text = getenv(variable);
  if (!text) return;
  bool among = strncmp(text, gathers, sizeof gathers - 1) == 0;
  unsigned long n = strtoul(among ? text + sizeof gathers - 1 : text, NULL, 10);
  if (among ? what == GATHER && w->gathers == n : w->count == n) *at = w->count;
}

static void enqueue(DeviceComm *w, What what, float *x, size_t width, const size_t *off) {
  read_fault(w, what, "FAKE_COMM_FAIL", &w->fails);
  read_fault(w, what, "FAKE_COMM_STUCK", &w->sticks);
  if (what == SUM || what == SCATTER) w->behind = w->joined;
  if (w->count - w->first == QUEUE) abort(); /* would overwrite an operation that has to run */
  Operation *o = &w->queue[w->count++ % QUEUE];
  *o = (Operation){.what = what, .x = x, .width = width};
  memcpy(o->off, off, ((size_t)w->spec.size + 1) * sizeof *off);
}

static void all_reduce(DeviceComm *w, float *x, size_t n) {
  size_t off[RANKS + 1] = {0};
  for (int r = 1; r <= w->spec.size; r++) off[r] = n;
  enqueue(w, SUM, x, sizeof *x, off);
}

/* The array is exchanged as 2 n floats. */
static void all_reduce_doubles(DeviceComm *w, double *x, size_t n) {
  size_t off[RANKS + 1] = {0};
  for (int r = 1; r <= w->spec.size; r++) off[r] = 2 * n;
  enqueue(w, SUM_DOUBLES, (float *)x, sizeof(float), off);
}

static void reduce_scatter(DeviceComm *w, float *x, const size_t *off) {
  enqueue(w, SCATTER, x, sizeof *x, off);
}

static void all_gather(DeviceComm *w, void *x, const DeviceGather *g) {
  for (size_t i = 0; i < g->ranges; i++)
    enqueue(w, GATHER, x, g->width, g->off + i * ((size_t)w->spec.size + 1));
  w->gathers++;
}

/* x, rounded to bf16 if the collective is in bf16. */
static float round_element(const DeviceComm *w, float x) {
  uint32_t u;
  if (!w->spec.bf16) return x;
  memcpy(&u, &x, sizeof u);
  u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  memcpy(&x, &u, sizeof x);
  return x;
}

static bool all_reached(const DeviceComm *w, const _Atomic unsigned *count, unsigned least) {
  for (int r = 0; r < w->spec.size; r++)
    if (atomic_load(&count[r]) < least) return false;
  return true;
}

static void add_doubles(const DeviceComm *w, const Operation *o) {
  double *to = (double *)o->x;
  for (size_t i = 0; i < o->off[w->spec.size] / 2; i++) {
    double total = 0, x;
    for (int r = 0; r < w->spec.size; r++) {
      memcpy(&x, w->at->data + (size_t)r * w->spec.max_elements + 2 * i, sizeof x);
      total = r ? total + x : x;
    }
    to[i] = total;
  }
}

/* Computes the result from the arrays of all ranks into o->x. */
static void reduce_arrays(const DeviceComm *w, const Operation *o) {
  size_t first = o->off[0], begin = o->off[w->spec.rank], end = o->off[w->spec.rank + 1];
  if (o->what == SUM_DOUBLES) {
    add_doubles(w, o);
    return;
  }
  if (o->what == SUM) {
    begin = first;
    end = o->off[w->spec.size];
  }
  for (int r = 0; o->what == GATHER && r < w->spec.size; r++) {
    const char *from = (const char *)(w->at->data + (size_t)r * w->spec.max_elements);
    memcpy((char *)o->x + o->off[r] * o->width, from + (o->off[r] - first) * o->width,
           (o->off[r + 1] - o->off[r]) * o->width);
  }
  for (size_t i = begin; o->what != GATHER && i < end; i++) {
    float total = 0;
    for (int r = 0; r < w->spec.size; r++) {
      float x = round_element(w, w->at->data[(size_t)r * w->spec.max_elements + (i - first)]);
      total = r ? total + x : x;
    }
    o->x[i] = round_element(w, total);
  }
  /* Pieces of other ranks are undefined: they become NaN, so that reading one is noticed. */
  for (size_t i = first; o->what == SCATTER && i < o->off[w->spec.size]; i++)
    if (i < begin || i >= end) o->x[i] = 1e30f;
}

/* Whether no collective completes any more. */
static bool is_dead(const DeviceComm *w) {
  return w->first >= w->fails || w->first >= w->sticks;
}

/* Advances the first pending collective; false if it has to wait for other ranks. */
static bool advance(DeviceComm *w) {
  Operation *o = &w->queue[w->first % QUEUE];
  Exchange *m = w->at;
  int me = w->spec.rank;
  if (is_dead(w)) return false;
  if (!o->written) {
    if (!all_reached(w, m->read, w->first)) return false;
    memcpy(m->data + (size_t)me * w->spec.max_elements,
           (const char *)o->x + o->off[0] * o->width,
           (o->off[w->spec.size] - o->off[0]) * o->width);
    o->written = true;
    atomic_store(&m->written[me], w->first + 1);
  }
  if (!all_reached(w, m->written, w->first + 1)) return false;
  reduce_arrays(w, o);
  atomic_store(&m->read[me], ++w->first);
  return true;
}

static Err poll_comm(DeviceComm *w, bool *inputs_ready, bool *done) {
  *inputs_ready = false;
  *done = false;
  if (atomic_load(&w->aborted)) return ERR_OK;
  while (w->first < w->count && advance(w)) {}
  if (w->spec.rank == 1 && w->first >= w->fails)
    return err_set(ERR_WORK, "fake NCCL: link down");
  *inputs_ready = w->first >= w->behind;
  *done = w->first == w->count;
  return ERR_OK;
}

/* On a GPU the device would wait, not the program; errors are returned by `poll`. */
static void join_streams(DeviceComm *w) {
  w->joined = w->count;
  while (w->first < w->count && !is_dead(w) && !atomic_load(&w->aborted))
    if (!advance(w)) usleep(50);
}

const DeviceCommOps fake_comm = {.probe = probe_library,
                                 .create_id = create_id,
                                 .open = open_comm,
                                 .close = close_comm,
                                 .abort = abort_comm,
                                 .all_reduce = all_reduce,
                                 .all_reduce_doubles = all_reduce_doubles,
                                 .reduce_scatter = reduce_scatter,
                                 .all_gather = all_gather,
                                 .join = join_streams,
                                 .poll = poll_comm};
