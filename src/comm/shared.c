/* Collectives of ranks on one host, in a segment of shared memory.
 *
 * Segment. A memfd that rank 0 creates and the others open through /proc: it has no name in a file
 * system, so nothing is left when ranks are killed at any moment. It holds a line for each rank
 * (how far it is, what it runs) and a slot for each rank, of which there are two sets.
 *
 * Phases. A collective is a sequence of phases: write into the own slot, meet (await_all), read the
 * others' slots. Phase k uses set k % 2. A rank writes phase k + 2 only after all have met for
 * k + 1, that is after all have read phase k, so one meeting a phase suffices.
 *
 * Sums. Each rank adds its own piece of a bucket in the order of the ranks and publishes the sum,
 * which the others copy one phase later. Slots are small, so what is written there is read from
 * the cache; memory sees each gradient read and written once.
 *
 * Waiting. A rank polls for a short time and then sleeps (futex) until another arrives, for at
 * most NAP seconds, as the watchdog must look. Relies on comm_internal.h. */
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
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "comm/comm_internal.h"

#ifndef SHARED_SLOT
#define SHARED_SLOT ((size_t)1 << 18) /* bytes of a slot */
#endif
#define ALIGN   ((size_t)64)
#define NAP     0.05  /* seconds of sleep before the watchdog looks */
#define POLLS   200   /* before sleeping, while the main thread computes on this core */
#define PATIENT 20000 /* before sleeping, when nothing else is to be done here */
#define SMALL   ((size_t)1 << 14) /* bytes that every rank adds for itself: one meeting less */

typedef struct {
  _Alignas(128) _Atomic uint64_t arrived; /* phases it has met for */
  _Alignas(128) Op op[2];                 /* what it runs; number n at n % 2 */
  uint64_t more[2];                       /* phase k at k % 2: an exchange of it goes on */
} Line;

typedef struct {
  uint64_t token;                      /* that this is the segment of this run */
  _Alignas(128) _Atomic uint32_t bell; /* futex */
  _Alignas(128) _Atomic uint32_t sleepers;
  Line line[];
} Segment;

typedef struct Shared {
  Segment *segment;
  size_t bytes;
  uint64_t phase; /* the last that this rank has met for */
  size_t slot;    /* bytes of a slot; of it … */
  size_t share;   /* … for each rank */
  size_t sums;    /* where the slots of published sums begin, `share` bytes each */
  size_t sizes;   /* where the sizes of an exchange begin, (2, size) for each rank */
  size_t slots;   /* where the slots begin */
} Shared;

static size_t align_line(size_t n) {
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void lay_out(Shared *s, int ranks) {
  size_t n = (size_t)ranks;
  s->share = SHARED_SLOT / n / ALIGN * ALIGN;
  if (s->share < ALIGN) s->share = ALIGN;
  s->slot = align_line(s->share * n > SHARED_SLOT ? s->share * n : SHARED_SLOT);
  s->sizes = align_line(sizeof(Segment) + n * sizeof(Line));
  s->slots = align_line(s->sizes + 2 * n * n * sizeof(uint64_t));
  s->sums = s->slots + 2 * n * s->slot;
  s->bytes = s->sums + 2 * n * s->share;
}

static char *slot_of(const Comm *c, int rank, uint64_t phase) {
  const Shared *s = c->shared;
  return (char *)s->segment + s->slots + (phase % 2 * (size_t)c->size + (size_t)rank) * s->slot;
}

static char *sums_of(const Comm *c, int rank, uint64_t phase) {
  const Shared *s = c->shared;
  return (char *)s->segment + s->sums + (phase % 2 * (size_t)c->size + (size_t)rank) * s->share;
}

static uint64_t *sizes_of(const Comm *c, int rank, uint64_t phase) {
  const Shared *s = c->shared;
  size_t row = phase % 2 * (size_t)c->size + (size_t)rank;
  return (uint64_t *)(void *)((char *)s->segment + s->sizes) + row * (size_t)c->size;
}

static void relax_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* longer than `yield`, which does nothing here */
#endif
}

/* Sleeps until somebody arrives. The order "count the sleeper, read the bell, look again" against
 * "arrive, look for sleepers, ring" lets no arrival be missed. */
static void sleep_until_bell(Segment *s, const Line *other, uint64_t phase) {
  struct timespec most = {.tv_nsec = (long)(NAP * 1e9)};
  atomic_fetch_add(&s->sleepers, 1);
  uint32_t bell = atomic_load(&s->bell);
  if (atomic_load(&other->arrived) < phase)
    syscall(SYS_futex, &s->bell, FUTEX_WAIT, bell, &most, NULL, 0);
  atomic_fetch_sub(&s->sleepers, 1);
}

static void arrive_at_phase(Segment *s, Line *mine, uint64_t phase) {
  atomic_store(&mine->arrived, phase);
  if (!atomic_load(&s->sleepers)) return;
  atomic_fetch_add(&s->bell, 1);
  syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Meets all ranks for the next phase. Whoever has arrived wrote its slot before that. */
static void await_all(Comm *c) {
  Shared *s = c->shared;
  Segment *seg = s->segment;
  uint64_t phase = ++s->phase;
  /* With more ranks than cores, polling keeps from its core the rank that is waited for. */
  unsigned polls = c->crowded ? 0 : c->patient ? PATIENT : POLLS;
  arrive_at_phase(seg, &seg->line[c->rank], phase);
  for (int i = 1; i < c->size; i++) {
    const Line *other = &seg->line[(c->rank + i) % c->size];
    unsigned turn = 0;
    while (atomic_load_explicit(&other->arrived, memory_order_acquire) < phase) {
      if (turn++ < polls) {
        relax_cpu();
        continue;
      }
      sleep_until_bell(seg, other, phase);
      watchdog_look(c);
    }
  }
  c->progress++;
}

/* The first meeting of a collective: do all run the same one? */
static void await_first(Comm *c) {
  Segment *s = c->shared->segment;
  s->line[c->rank].op[c->seq % 2] = *op_current(c);
  await_all(c);
  for (int i = 1; i < c->size; i++) {
    int r = (c->rank + i) % c->size;
    op_compare(c, r, &s->line[r].op[c->seq % 2]);
  }
}

static void meet_ranks(Comm *c, bool first) {
  if (first)
    await_first(c);
  else
    await_all(c);
}

/* The part of n bytes that begins at `skip` and is no longer than `most`. */
static size_t part_of(size_t n, size_t skip, size_t most) {
  return skip >= n ? 0 : n - skip < most ? n - skip : most;
}

void shared_broadcast(Comm *c, char *bytes, size_t n) {
  size_t skip = 0;
  do {
    size_t m = part_of(n, skip, c->shared->slot);
    uint64_t phase = c->shared->phase + 1;
    if (c->rank == 0 && m) memcpy(slot_of(c, 0, phase), bytes + skip, m);
    meet_ranks(c, skip == 0);
    if (c->rank && m) memcpy(bytes + skip, slot_of(c, 0, phase), m);
    skip += c->shared->slot;
  } while (skip < n);
}

void shared_allgather(Comm *c, char *all, const size_t *off) {
  size_t most = 0, skip = 0, slot = c->shared->slot;
  for (int r = 0; r < c->size; r++)
    if (off[r + 1] - off[r] > most) most = off[r + 1] - off[r];
  do {
    uint64_t phase = c->shared->phase + 1;
    size_t mine = part_of(off[c->rank + 1] - off[c->rank], skip, slot);
    if (mine) memcpy(slot_of(c, c->rank, phase), all + off[c->rank] + skip, mine);
    meet_ranks(c, skip == 0);
    for (int i = 1; i < c->size; i++) {
      int r = (c->rank + i) % c->size;
      size_t m = part_of(off[r + 1] - off[r], skip, slot);
      if (m) memcpy(all + off[r] + skip, slot_of(c, r, phase), m);
    }
    skip += slot;
  } while (skip < most);
}

static void check_sizes(Comm *c, uint64_t phase, const size_t *recv_n) {
  for (int r = 0; r < c->size; r++) {
    uint64_t sent = sizes_of(c, r, phase)[c->rank];
    if (r != c->rank && sent != recv_n[r])
      op_wrong_size(c, c->seq, r, sent, c->rank, recv_n[r]);
  }
}

/* Each pair of ranks has its own size, so a rank says with each phase whether it has more. */
void shared_exchange(Comm *c, const void *const *send, const size_t *send_n, void *const *recv,
                     const size_t *recv_n) {
  Shared *s = c->shared;
  size_t skip = 0, share = s->share;
  bool more;
  do {
    uint64_t phase = s->phase + 1;
    char *out = slot_of(c, c->rank, phase);
    bool mine = false;
    for (int r = 0; r < c->size; r++) {
      if (r == c->rank) continue;
      size_t m = part_of(send_n[r], skip, share);
      if (skip == 0) sizes_of(c, c->rank, phase)[r] = send_n[r];
      if (m) memcpy(out + (size_t)r * share, (const char *)send[r] + skip, m);
      mine = mine || send_n[r] > skip + share;
    }
    s->segment->line[c->rank].more[phase % 2] = mine;
    meet_ranks(c, skip == 0);
    if (skip == 0) check_sizes(c, phase, recv_n);
    more = false;
    for (int i = 0; i < c->size; i++) {
      int r = (c->rank + i) % c->size;
      size_t m = r == c->rank ? 0 : part_of(recv_n[r], skip, share);
      if (m) memcpy((char *)recv[r] + skip, slot_of(c, r, phase) + (size_t)c->rank * share, m);
      more = more || s->segment->line[r].more[phase % 2];
    }
    skip += share;
  } while (more);
}

/* Sums. `skip` and parts are in elements. */

static void write_numbers(const CommReduce *r, char *to, size_t from, size_t n) {
  if (r->bf16)
    bf16_of_floats((uint16_t *)(void *)to, r->g + from, n);
  else
    memcpy(to, r->g + from, n * sizeof(float));
}

static void read_numbers(const CommReduce *r, const char *from, size_t to, size_t n) {
  if (r->bf16)
    floats_of_bf16(r->g + to, (const uint16_t *)(const void *)from, n);
  else
    memcpy(r->g + to, from, n * sizeof(float));
}

/* Step 1 of a part: this rank's contribution to the others' pieces. */
static void give_part(Comm *c, const CommReduce *r, size_t skip, size_t part, uint64_t phase) {
  char *out = slot_of(c, c->rank, phase);
  if (c->rank >= r->active) return;
  for (int i = 1; i < c->size; i++) {
    int to = (c->rank + i) % c->size;
    size_t n = part_of(r->off[to + 1] - r->off[to], skip, part);
    if (n) write_numbers(r, out + (size_t)to * c->shared->share, r->off[to] + skip, n);
  }
}

/* Step 2: all contributions to this rank's piece are added; the sum is published if `share`. */
static void add_part(Comm *c, const CommReduce *r, size_t skip, size_t part, uint64_t phase,
                     bool share) {
  size_t at = r->off[c->rank] + skip;
  size_t n = part_of(r->off[c->rank + 1] - r->off[c->rank], skip, part);
  size_t mine = (size_t)c->rank * c->shared->share;
  if (!n) return;
  Addition a = {.term = c->term,
                .terms = reduce_terms(r, c->rank, r->g + at, slot_of(c, 0, phase) + mine,
                                      c->shared->slot, c->term),
                .before = r->first ? NULL : r->sum + skip,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g + at : r->sum + skip,
                .copy = share ? sums_of(c, c->rank, phase) : NULL};
  add_terms(&a, n);
}

/* Step 3, one phase later: the others' sums. */
static void take_part(Comm *c, const CommReduce *r, size_t skip, size_t part, uint64_t phase) {
  for (int i = 1; i < c->size; i++) {
    int from = (c->rank + i) % c->size;
    size_t n = part_of(r->off[from + 1] - r->off[from], skip, part);
    if (n) read_numbers(r, sums_of(c, from, phase), r->off[from] + skip, n);
  }
}

/* A small bucket: everybody adds all of it, after one meeting. */
static void reduce_small(Comm *c, const CommReduce *r) {
  uint64_t phase = c->shared->phase + 1;
  size_t n = r->off[c->size];
  if (c->rank < r->active) write_numbers(r, slot_of(c, c->rank, phase), 0, n);
  await_first(c);
  Addition a = {
      .term = c->term,
      .terms = reduce_terms(r, c->rank, r->g, slot_of(c, 0, phase), c->shared->slot, c->term),
      .bf16 = r->bf16,
      .sum = r->g};
  add_terms(&a, n);
}

void shared_reduce(Comm *c, const CommReduce *r) {
  size_t wide = r->bf16 ? sizeof(uint16_t) : sizeof(float), most = 0, skip = 0;
  size_t part = c->shared->share / wide, bytes = r->off[c->size] * wide;
  bool share = r->last && !r->shard, more;
  if (share && r->first && bytes <= SMALL && bytes <= c->shared->slot) {
    reduce_small(c, r);
    return;
  }
  for (int i = 0; i < c->size; i++)
    if (r->off[i + 1] - r->off[i] > most) most = r->off[i + 1] - r->off[i];
  do {
    uint64_t phase = c->shared->phase + 1;
    if (skip < most) give_part(c, r, skip, part, phase);
    meet_ranks(c, skip == 0);
    if (skip && share) take_part(c, r, skip - part, part, phase - 1);
    if (skip < most) add_part(c, r, skip, part, phase, share);
    skip += part;
    more = skip < most || (share && skip < most + part);
  } while (more);
}

/* The segment. */

typedef struct {
  int32_t fd;      /* of rank 0; -1: it has none */
  int32_t problem; /* errno, if so */
  uint64_t token;
} Offer;

static bool map_segment(Shared *s, int fd) {
  void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return false;
  s->segment = at;
  return true;
}

/* Memory is reserved at once: later a lack of it would be a SIGBUS. */
static int create_segment(Shared *s, uint64_t token) {
  int fd = memfd_create("trireme", MFD_CLOEXEC);
  if (fd < 0) return -1;
  int wrong = posix_fallocate(fd, 0, (off_t)s->bytes);
  if (wrong || !map_segment(s, fd)) {
    if (wrong) errno = wrong;
    close(fd);
    return -1;
  }
  s->segment->token = token;
  return fd;
}

/* Returns 0 or an errno. A segment without the token belongs to another run. */
static int join_segment(Shared *s, const Identity *owner, const Offer *offer) {
  char path[64];
  struct stat info;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)owner->pid, (int)offer->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno;
  int wrong = fstat(fd, &info) ? errno : (size_t)info.st_size != s->bytes ? ESTALE : 0;
  if (!wrong && !map_segment(s, fd)) wrong = errno;
  if (!wrong && s->segment->token != offer->token) wrong = ESTALE;
  close(fd);
  return wrong;
}

/* Are all ranks on one host, and can they open each other's memory? */
static bool is_reachable(const Comm *c) {
  const Identity *a = &c->peer[0].who;
  bool reachable = a->pid_space != 0;
  if (c->local_size < c->size) return false;
  for (int r = 1; r < c->size; r++) reachable &= c->peer[r].who.pid_space == a->pid_space;
  if (!reachable && c->rank == 0)
    log_warn(
        "the ranks on %s are in different process namespaces and cannot share memory; sums "
        "go through MPI, which is slower. Run the ranks of a host in one container",
        a->host);
  return reachable;
}

Err shared_open(Comm *c) {
  Shared *s;
  if (!is_reachable(c)) return ERR_OK;
  TRY(mem_alloc(&s, 1, sizeof *s));
  lay_out(s, c->size);
  Offer offer = {.fd = -1};
  if (c->rank == 0) {
    offer.token = rng_mix((uint64_t)c->peer[0].who.pid, (uint64_t)(progress_clock() * 1e9));
    offer.fd = create_segment(s, offer.token);
    offer.problem = offer.fd < 0 ? errno : 0;
  }
  comm_broadcast(c, "shared memory", &offer, sizeof offer);
  int wrong = offer.problem;
  if (c->rank && !wrong) wrong = join_segment(s, &c->peer[0].who, &offer);
  double failures = wrong != 0;
  comm_sum(c, "shared memory", &failures, 1);
  if (c->rank == 0 && offer.fd >= 0) close(offer.fd);
  c->shared = s;
  if (failures == 0) return ERR_OK;
  shared_close(c);
  if (wrong)
    log_warn(
        "rank %d on %s cannot share memory with rank 0: %s; sums go through MPI, which is "
        "slower. Run the ranks of a host as one user, in one container",
        c->rank, comm_host(c, c->rank), strerror(wrong));
  return ERR_OK;
}

void shared_close(Comm *c) {
  if (!c->shared) return;
  if (c->shared->segment) munmap(c->shared->segment, c->shared->bytes);
  mem_free(c->shared);
  c->shared = NULL;
}
