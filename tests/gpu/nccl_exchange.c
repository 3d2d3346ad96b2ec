/* Ranks exchange elements through slots in a mapped file. Each rank counts the steps that it has
 * written and read; the counters are the only synchronization. Depends on POSIX. */
#include "nccl_exchange.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  _Atomic uint64_t opened[EXCHANGE_RANKS];
  /* steps whose elements this rank has written to its slot, and whose results it has read */
  _Atomic uint64_t written[EXCHANGE_RANKS], read[EXCHANGE_RANKS];
  ExchangeStep step[EXCHANGE_RANKS]; /* the step that each rank wrote last */
  char slot[];                       /* (size, EXCHANGE_SLOT) */
} Shared;

struct Exchange {
  Shared *shared;
  size_t bytes;
  int rank, size;
  uint64_t steps; /* steps that this rank has completed */
  atomic_bool is_aborted;
};

/* Waits are short while all ranks run; ranks without a core must get one. */
static void back_off(unsigned turns) {
  if (turns < 200)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Waits until every rank's counter has reached `least`. Returns false after an abort. */
static bool wait_for(Exchange *x, _Atomic uint64_t *count, uint64_t least) {
  for (int r = 0; r < x->size; r++)
    for (unsigned turns = 0; atomic_load(&count[r]) < least; turns++) {
      if (atomic_load(&x->is_aborted)) return false;
      back_off(turns);
    }
  return !atomic_load(&x->is_aborted);
}

static Shared *map_file(const char *path, size_t bytes) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  void *at = ftruncate(fd, (off_t)bytes) == 0
                 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                 : MAP_FAILED;
  close(fd);
  return at == MAP_FAILED ? NULL : at;
}

Exchange *exchange_open(const char *path, int rank, int size) {
  Exchange *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  x->rank = rank;
  x->size = size;
  x->bytes = sizeof *x->shared + (size_t)size * EXCHANGE_SLOT;
  x->shared = map_file(path, x->bytes);
  if (!x->shared) {
    free(x);
    return NULL;
  }
  atomic_store(&x->shared->opened[rank], 1);
  wait_for(x, x->shared->opened, 1);
  /* Every rank removes it: nothing is left if one of them is killed now. */
  unlink(path);
  return x;
}

void exchange_close(Exchange *x) {
  munmap(x->shared, x->bytes);
  free(x);
}

void exchange_abort(Exchange *x) {
  atomic_store(&x->is_aborted, true);
}

size_t exchange_width(int type) {
  if (type == EXCHANGE_FP64) return sizeof(double);
  return type == EXCHANGE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static float read_element(const char *slot, int type, size_t i) {
  float value;
  uint16_t half;
  uint32_t bits;
  if (type == EXCHANGE_FP32) {
    memcpy(&value, slot + i * sizeof value, sizeof value);
    return value;
  }
  memcpy(&half, slot + i * sizeof half, sizeof half);
  bits = (uint32_t)half << 16;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds to bf16, ties to even; NaN stays NaN. */
static uint16_t round_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void write_element(char *to, int type, size_t i, float value) {
  uint16_t half;
  if (type == EXCHANGE_FP32) {
    memcpy(to + i * sizeof value, &value, sizeof value);
    return;
  }
  half = round_to_bf16(value);
  memcpy(to + i * sizeof half, &half, sizeof half);
}

static const char *find_slot(const Exchange *x, int rank) {
  return x->shared->slot + (size_t)rank * EXCHANGE_SLOT;
}

static double read_double(const Exchange *x, int rank, size_t i) {
  double value;
  memcpy(&value, find_slot(x, rank) + i * sizeof value, sizeof value);
  return value;
}

static void add_doubles(const Exchange *x, const ExchangeStep *s, char *to) {
  for (size_t i = 0; i < s->n; i++) {
    double sum = read_double(x, 0, i);
    for (int r = 1; r < x->size; r++) sum += read_double(x, r, i);
    memcpy(to + i * sizeof sum, &sum, sizeof sum);
  }
}

static void add_slots(const Exchange *x, const ExchangeStep *s, char *to) {
  for (size_t i = 0; i < s->n; i++) {
    float sum = read_element(find_slot(x, 0), s->type, i);
    for (int r = 1; r < x->size; r++) sum += read_element(find_slot(x, r), s->type, i);
    write_element(to, s->type, i, sum);
  }
}

static void write_slot(Exchange *x, const ExchangeStep *s, const void *send) {
  bool is_sender = s->kind == EXCHANGE_ADD || s->root == x->rank;
  x->shared->step[x->rank] = *s;
  if (is_sender)
    memcpy(x->shared->slot + (size_t)x->rank * EXCHANGE_SLOT, send,
           s->n * exchange_width(s->type));
  atomic_store(&x->shared->written[x->rank], x->steps + 1);
}

static bool is_same_everywhere(const Exchange *x, const ExchangeStep *s) {
  for (int r = 0; r < x->size; r++) {
    const ExchangeStep *theirs = &x->shared->step[r];
    if (theirs->kind != s->kind || theirs->type != s->type || theirs->root != s->root ||
        theirs->call != s->call || theirs->n != s->n)
      return false;
  }
  return true;
}

static void read_result(const Exchange *x, const ExchangeStep *s, void *recv) {
  bool is_receiver = s->kind == EXCHANGE_COPY || s->root == EXCHANGE_ALL || s->root == x->rank;
  if (!is_receiver) return;
  if (s->kind == EXCHANGE_COPY)
    memcpy(recv, find_slot(x, s->root), s->n * exchange_width(s->type));
  else if (s->type == EXCHANGE_FP64)
    add_doubles(x, s, recv);
  else
    add_slots(x, s, recv);
}

ExchangeResult exchange_run(Exchange *x, const ExchangeStep *step, const void *send,
                            void *recv) {
  /* The slot may be overwritten when every rank has read it. */
  if (!wait_for(x, x->shared->read, x->steps)) return EXCHANGE_ABORTED;
  write_slot(x, step, send);
  if (!wait_for(x, x->shared->written, x->steps + 1)) return EXCHANGE_ABORTED;
  if (!is_same_everywhere(x, step)) return EXCHANGE_DIFFERS;
  read_result(x, step, recv);
  atomic_store(&x->shared->read[x->rank], ++x->steps);
  return EXCHANGE_DONE;
}
