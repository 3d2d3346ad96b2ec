/* Creates and maps the shared segment, and implements its barrier. A waiting rank polls for
 * a short time and then sleeps (futex) until another rank arrives at the barrier. It wakes
 * after at most NAP seconds to run the watchdog. Depends on watchdog, sequence. */
#include "comm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"

#ifndef SHARED_SLOT
#define SHARED_SLOT \
  ((size_t)1 << 18) /* bytes of a slot; small, so that slots stay in the CPU cache */
#endif
#define ALIGN ((size_t)64)
#define NAP   0.05 /* longest sleep in seconds between two runs of the watchdog */
/* Polls before a thread sleeps, if the main thread computes on the same core. */
#define POLLS      200
#define SPIN_POLLS 20000 /* polls before a thread sleeps, if it has a core of its own */

typedef struct {
  /* Number of the last phase whose barrier this rank has reached. */
  _Alignas(128) _Atomic uint64_t arrived;
  _Alignas(128) Op op[2]; /* the rank's last two collectives; collective n is op[n % 2] */
  uint64_t more[2]; /* whether the rank's exchange has more phases; phase k is more[k % 2] */
} Line;

struct SegmentHeader {
  uint64_t token;
  _Alignas(128) _Atomic uint32_t bell; /* futex word, incremented at each wake-up */
  _Alignas(128) _Atomic uint32_t sleepers;
  Line line[]; /* (size) state of each rank */
};

static size_t round_up(size_t n) {
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

void segment_init(Segment *s, Messages *m) {
  size_t n = (size_t)m->group->size;
  *s = (Segment){.messages = m, .rank = m->group->rank, .size = m->group->size};
  s->share = SHARED_SLOT / n / ALIGN * ALIGN;
  if (s->share < ALIGN) s->share = ALIGN;
  s->slot = round_up(s->share * n > SHARED_SLOT ? s->share * n : SHARED_SLOT);
  s->sizes = round_up(sizeof(SegmentHeader) + n * sizeof(Line));
  s->slots = round_up(s->sizes + 2 * n * n * sizeof(uint64_t));
  s->sums = s->slots + 2 * n * s->slot;
  s->bytes = s->sums + 2 * n * s->share;
}

/* Index of a rank's entry for a phase in an array of shape (2, size). */
static size_t find_entry(const Segment *s, int rank, uint64_t phase) {
  return phase % 2 * (size_t)s->size + (size_t)rank;
}

char *segment_slot(const Segment *s, int rank, uint64_t phase) {
  return (char *)s->header + s->slots + find_entry(s, rank, phase) * s->slot;
}

char *segment_sums(const Segment *s, int rank, uint64_t phase) {
  return (char *)s->header + s->sums + find_entry(s, rank, phase) * s->share;
}

uint64_t *segment_sizes(const Segment *s, int rank, uint64_t phase) {
  uint64_t *all = (uint64_t *)(void *)((char *)s->header + s->sizes);
  return all + find_entry(s, rank, phase) * (size_t)s->size;
}

uint64_t *segment_more(const Segment *s, int rank, uint64_t phase) {
  return &s->header->line[rank].more[phase % 2];
}

static void relax_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  /* `isb` delays longer than `yield`, which is a no-op on most aarch64 cores */
  __asm__ volatile("isb" ::: "memory");
#endif
}

/* Sleeps until a rank arrives at the barrier, for at most NAP seconds. No arrival is missed:
 * a sleeper increments `sleepers`, reads `bell` and then checks `arrived` again; an arriving
 * rank sets `arrived`, then reads `sleepers` and, if it is not 0, increments `bell`, which
 * ends FUTEX_WAIT. */
static void sleep_until_bell(SegmentHeader *h, const Line *other, uint64_t phase) {
  struct timespec longest = {.tv_nsec = (long)(NAP * 1e9)};
  atomic_fetch_add(&h->sleepers, 1);
  uint32_t bell = atomic_load(&h->bell);
  if (atomic_load(&other->arrived) < phase)
    syscall(SYS_futex, &h->bell, FUTEX_WAIT, bell, &longest, NULL, 0);
  atomic_fetch_sub(&h->sleepers, 1);
}

static void arrive_at_phase(SegmentHeader *h, Line *mine, uint64_t phase) {
  atomic_store(&mine->arrived, phase);
  if (!atomic_load(&h->sleepers)) return;
  atomic_fetch_add(&h->bell, 1);
  syscall(SYS_futex, &h->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static unsigned choose_polls(const Messages *m) {
  /* With more ranks than cores, polling would occupy the core that the awaited rank needs. */
  if (m->group->is_oversubscribed) return 0;
  return m->may_spin ? SPIN_POLLS : POLLS;
}

void segment_meet(Segment *s) {
  SegmentHeader *h = s->header;
  uint64_t phase = ++s->phase;
  unsigned polls = choose_polls(s->messages);
  arrive_at_phase(h, &h->line[s->rank], phase);
  for (int i = 1; i < s->size; i++) {
    const Line *other = &h->line[(s->rank + i) % s->size];
    unsigned turn = 0;
    while (atomic_load_explicit(&other->arrived, memory_order_acquire) < phase) {
      if (turn++ < polls) {
        relax_cpu();
        continue;
      }
      sleep_until_bell(h, other, phase);
      watchdog_look(s->messages->watchdog);
    }
  }
  s->messages->sequence->progress++;
}

void segment_meet_first(Segment *s) {
  const Sequence *sequence = s->messages->sequence;
  size_t at = sequence->seq % 2;
  s->header->line[s->rank].op[at] = *sequence_current(sequence);
  segment_meet(s);
  for (int i = 1; i < s->size; i++) {
    int r = (s->rank + i) % s->size;
    watchdog_compare(s->messages->watchdog, r, &s->header->line[r].op[at]);
  }
}

static bool map_segment(Segment *s, int fd) {
  void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return false;
  s->header = at;
  return true;
}

/* Returns a file descriptor, or -1 with errno. Allocates all pages now, because a write to a
 * page that cannot be allocated raises SIGBUS. */
static int create_memory(Segment *s, uint64_t token) {
  int fd = memfd_create("trireme", MFD_CLOEXEC);
  if (fd < 0) return -1;
  int wrong = posix_fallocate(fd, 0, (off_t)s->bytes);
  if (wrong || !map_segment(s, fd)) {
    if (wrong) errno = wrong;
    close(fd);
    return -1;
  }
  s->header->token = token;
  return fd;
}

SegmentOffer segment_create(Segment *s) {
  const Identity *self = &s->messages->group->identity[s->rank];
  SegmentOffer offer = {.token =
                            rng_mix((uint64_t)self->pid, (uint64_t)(progress_clock() * 1e9))};
  offer.fd = create_memory(s, offer.token);
  offer.problem = offer.fd < 0 ? errno : 0;
  return offer;
}

int segment_join(Segment *s, const SegmentOffer *offer) {
  char path[64];
  struct stat info;
  if (offer->problem) return offer->problem;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)s->messages->group->identity[0].pid,
           (int)offer->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno;
  int wrong = fstat(fd, &info) ? errno : (size_t)info.st_size != s->bytes ? ESTALE : 0;
  if (!wrong && !map_segment(s, fd)) wrong = errno;
  if (!wrong && s->header->token != offer->token) wrong = ESTALE;
  close(fd);
  return wrong;
}

void segment_close_offer(const SegmentOffer *offer) {
  if (offer->fd >= 0) close(offer->fd);
}

void segment_free(Segment *s) {
  if (s->header) munmap(s->header, s->bytes);
  s->header = NULL;
}

bool segment_is_possible(const Group *g) {
  const Identity *a = &g->identity[0];
  bool possible = a->pid_space != 0;
  if (g->local_size < g->size) return false;
  for (int r = 1; r < g->size; r++)
    possible = possible && g->identity[r].pid_space == a->pid_space;
  if (!possible && g->rank == 0)
    log_warn(
        "the ranks on %s are in different process namespaces and cannot share memory: "
        "gradients "
        "are summed through MPI, which is slower; run the ranks of a host in one container",
        a->host);
  return possible;
}
