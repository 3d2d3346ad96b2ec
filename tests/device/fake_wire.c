/* A wire between GPUs that are none: arrays meet in shared memory, and are added in the
 * order of the ranks, as the host does. What is queued moves when somebody tests or joins.
 * FAKE_WIRE_MISSING: the library is not there, or only for the rank whose number it is;
 * FAKE_WIRE_FAIL=N: rank 1's wire breaks at operation N; FAKE_WIRE_STUCK=N: nothing comes
 * from operation N on; gather:N instead of N: at gather N; FAKE_WIRE_ABORTED: a file to
 * which a line is added by each abort. Relies on POSIX shared memory. */
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

typedef enum { SUM, SCATTER, GATHER } What;
typedef struct {
  What what;
  float *x;
  size_t off[RANKS + 1];
  bool written;
} Operation;

typedef struct {
  _Atomic unsigned written[RANKS], read[RANKS], opened[RANKS]; /* operations so far */
  float data[];                                                /* (ranks, most) */
} Meeting;

struct DeviceComm {
  DeviceCommSpec spec;
  Meeting *at;
  size_t bytes;
  char name[DEVICE_COMM_ID];
  Operation queue[QUEUE];
  unsigned first, count;  /* operations done; given */
  unsigned gathers;       /* given */
  unsigned joined;        /* operations that the device has been told to wait for */
  unsigned behind;        /* of them, those that the last operation is behind */
  unsigned fails, sticks; /* at these operations; UINT_MAX: never */
  atomic_bool aborted;
};

static Err look(char about[64], int *version) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *missing = getenv("FAKE_WIRE_MISSING");
  *version = 0;
  if (missing && (!*missing || (rank && strcmp(rank, missing) == 0)))
    return err_set(ERR_WORK, "it was asked to be missing");
  *version = 22803;
  snprintf(about, 64, "a wire that is none");
  return ERR_OK;
}

static Err name(char id[DEVICE_COMM_ID]) {
  snprintf(id, DEVICE_COMM_ID, "/trireme-wire-%ld", (long)getpid());
  return ERR_OK;
}

static Err open_wire(DeviceComm **out, const struct Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  DeviceComm *w;
  (void)b;
  if (spec->size > RANKS) return err_set(ERR_WORK, "the wire is for %d ranks", RANKS);
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
  shm_unlink(id); /* every rank has it: nothing is left behind, however they end */
  *out = w;
  return ERR_OK;
}

static void close_wire(DeviceComm *w) {
  munmap(w->at, w->bytes);
  mem_free(w);
}

static void abort_wire(DeviceComm *w) {
  const char *path = getenv("FAKE_WIRE_ABORTED");
  FILE *f = path ? fopen(path, "a") : NULL;
  atomic_store(&w->aborted, true);
  if (!f) return;
  fprintf(f, "%d\n", w->spec.rank);
  fclose(f);
}

/* Is the operation that is being given the one that this variable names? */
static void look_up(const DeviceComm *w, What what, const char *variable, unsigned *at) {
  static const char gathers[] = "gather:";
  const char *text = getenv(variable);
  if (!text) return;
  bool among = strncmp(text, gathers, sizeof gathers - 1) == 0;
  unsigned long n = strtoul(among ? text + sizeof gathers - 1 : text, NULL, 10);
  if (among ? what == GATHER && w->gathers == n : w->count == n) *at = w->count;
}

static void queue(DeviceComm *w, What what, float *x, const size_t *off) {
  look_up(w, what, "FAKE_WIRE_FAIL", &w->fails);
  look_up(w, what, "FAKE_WIRE_STUCK", &w->sticks);
  w->gathers += what == GATHER;
  w->behind = w->joined;
  Operation *o = &w->queue[w->count++ % QUEUE];
  *o = (Operation){.what = what, .x = x};
  memcpy(o->off, off, ((size_t)w->spec.size + 1) * sizeof *off);
}

static void sum(DeviceComm *w, float *x, size_t n) {
  size_t off[RANKS + 1] = {0};
  for (int r = 1; r <= w->spec.size; r++) off[r] = n;
  queue(w, SUM, x, off);
}

static void scatter(DeviceComm *w, float *x, const size_t *off) {
  queue(w, SCATTER, x, off);
}

static void gather(DeviceComm *w, float *x, const size_t *off) {
  queue(w, GATHER, x, off);
}

static float rounded(const DeviceComm *w, float x) {
  uint32_t u;
  if (!w->spec.bf16) return x;
  memcpy(&u, &x, sizeof u);
  u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  memcpy(&x, &u, sizeof x);
  return x;
}

static bool have_all(const DeviceComm *w, const _Atomic unsigned *count, unsigned least) {
  for (int r = 0; r < w->spec.size; r++)
    if (atomic_load(&count[r]) < least) return false;
  return true;
}

/* From the slots of all ranks to x. */
static void take(const DeviceComm *w, const Operation *o) {
  size_t first = o->off[0], begin = o->off[w->spec.rank], end = o->off[w->spec.rank + 1];
  if (o->what == SUM) begin = first, end = o->off[w->spec.size];
  for (int r = 0; o->what == GATHER && r < w->spec.size; r++)
    memcpy(o->x + o->off[r],
           w->at->data + (size_t)r * w->spec.max_elements + (o->off[r] - first),
           (o->off[r + 1] - o->off[r]) * sizeof *o->x);
  for (size_t i = begin; o->what != GATHER && i < end; i++) {
    float total = 0;
    for (int r = 0; r < w->spec.size; r++) {
      float x = rounded(w, w->at->data[(size_t)r * w->spec.max_elements + (i - first)]);
      total = r ? total + x : x;
    }
    o->x[i] = rounded(w, total);
  }
  /* What is undefined shows when somebody reads it. */
  for (size_t i = first; o->what == SCATTER && i < o->off[w->spec.size]; i++)
    if (i < begin || i >= end) o->x[i] = 1e30f;
}

/* Nothing will move any more: what one rank's wire does not do, nobody gets. */
static bool is_dead(const DeviceComm *w) {
  return w->first >= w->fails || w->first >= w->sticks;
}

/* One operation a step further, if the others let it. */
static bool move(DeviceComm *w) {
  Operation *o = &w->queue[w->first % QUEUE];
  Meeting *m = w->at;
  int me = w->spec.rank;
  if (is_dead(w)) return false;
  if (!o->written) {
    if (!have_all(w, m->read, w->first)) return false;
    memcpy(m->data + (size_t)me * w->spec.max_elements, o->x + o->off[0],
           (o->off[w->spec.size] - o->off[0]) * sizeof *o->x);
    o->written = true;
    atomic_store(&m->written[me], w->first + 1);
  }
  if (!have_all(w, m->written, w->first + 1)) return false;
  take(w, o);
  atomic_store(&m->read[me], ++w->first);
  return true;
}

static Err test(DeviceComm *w, bool *made, bool *done) {
  *made = *done = false;
  if (atomic_load(&w->aborted)) return ERR_OK;
  while (w->first < w->count && move(w)) {}
  if (w->spec.rank == 1 && w->first >= w->fails) return err_set(ERR_WORK, "the wire broke");
  *made = w->first >= w->behind;
  *done = w->first == w->count;
  return ERR_OK;
}

/* The device waits, not the program: that something does not come is told by `test`. */
static void join(DeviceComm *w) {
  w->joined = w->count;
  while (w->first < w->count && !is_dead(w) && !atomic_load(&w->aborted))
    if (!move(w)) usleep(50);
}

const DeviceCommOps fake_wire = {look, name,    open_wire, close_wire, abort_wire,
                                 sum,  scatter, gather,    join,       test};
