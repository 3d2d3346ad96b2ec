/* Collectives in the phases of a shared segment (segment.h).
 *
 * Sums. Each rank adds the contributions to its own piece of a bucket in rank order and
 * publishes the sum, which the others copy in the next phase. Slots are small and stay in the
 * cache, so each gradient is read from and written to main memory once. Depends on segment,
 * add. */
#include "comm/shared.h"

#include <string.h>

/* Largest bucket in bytes that every rank adds completely, which needs one barrier instead of
 * two. Two ranks read as many bytes of each other as they would by pieces, so their limit is
 * higher. */
#define WHOLE_TWO  ((size_t)1 << 17)
#define WHOLE_MANY ((size_t)1 << 14)

static void meet_ranks(Segment *s, bool is_first) {
  if (is_first)
    segment_meet_first(s);
  else
    segment_meet(s);
}

/* Returns the size of the part of n that begins at `skip` and has at most `most` elements. */
static size_t part_size(size_t n, size_t skip, size_t most) {
  if (skip >= n) return 0;
  return n - skip < most ? n - skip : most;
}

void shared_broadcast(Segment *s, char *bytes, size_t n) {
  size_t skip = 0;
  do {
    size_t m = part_size(n, skip, s->slot);
    uint64_t phase = s->phase + 1;
    if (s->rank == 0 && m) memcpy(segment_slot(s, 0, phase), bytes + skip, m);
    meet_ranks(s, skip == 0);
    if (s->rank && m) memcpy(bytes + skip, segment_slot(s, 0, phase), m);
    skip += s->slot;
  } while (skip < n);
}

void shared_allgather(Segment *s, char *all, const size_t *off) {
  size_t most = 0, skip = 0, slot = s->slot;
  for (int r = 0; r < s->size; r++)
    if (off[r + 1] - off[r] > most) most = off[r + 1] - off[r];
  do {
    uint64_t phase = s->phase + 1;
    size_t mine = part_size(off[s->rank + 1] - off[s->rank], skip, slot);
    if (mine) memcpy(segment_slot(s, s->rank, phase), all + off[s->rank] + skip, mine);
    meet_ranks(s, skip == 0);
    for (int i = 1; i < s->size; i++) {
      int r = (s->rank + i) % s->size;
      size_t m = part_size(off[r + 1] - off[r], skip, slot);
      if (m) memcpy(all + off[r] + skip, segment_slot(s, r, phase), m);
    }
    skip += slot;
  } while (skip < most);
}

/* Ends the run if a rank sends this rank another number of bytes than this rank expects. */
static void check_sizes(Segment *s, uint64_t phase, const size_t *recv_n) {
  for (int r = 0; r < s->size; r++) {
    uint64_t sent = segment_sizes(s, r, phase)[s->rank];
    if (r != s->rank && sent != recv_n[r])
      watchdog_fail_size(s->messages->watchdog, s->messages->sequence->seq, r, sent, s->rank,
                         recv_n[r]);
  }
}

/* A rank knows only its own sizes, so each rank publishes in every phase whether it has more
 * to send. The exchange ends when no rank has. */
void shared_exchange(Segment *s, const void *const *send, const size_t *send_n,
                     void *const *recv, const size_t *recv_n) {
  size_t skip = 0, share = s->share;
  bool more;
  do {
    uint64_t phase = s->phase + 1;
    char *out = segment_slot(s, s->rank, phase);
    bool has_more = false;
    for (int r = 0; r < s->size; r++) {
      if (r == s->rank) continue;
      size_t m = part_size(send_n[r], skip, share);
      if (skip == 0) segment_sizes(s, s->rank, phase)[r] = send_n[r];
      if (m) memcpy(out + (size_t)r * share, (const char *)send[r] + skip, m);
      has_more = has_more || send_n[r] > skip + share;
    }
    *segment_more(s, s->rank, phase) = has_more;
    meet_ranks(s, skip == 0);
    if (skip == 0) check_sizes(s, phase, recv_n);
    more = false;
    for (int i = 0; i < s->size; i++) {
      int r = (s->rank + i) % s->size;
      size_t m = r == s->rank ? 0 : part_size(recv_n[r], skip, share);
      if (m)
        memcpy((char *)recv[r] + skip, segment_slot(s, r, phase) + (size_t)s->rank * share, m);
      more = more || *segment_more(s, r, phase);
    }
    skip += share;
  } while (more);
}

/* All-reduce. `skip` and the sizes of parts are in elements. */

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

/* An all-reduce in parts. Part j is the elements [skip, skip + length) of each piece, with
 * skip = j * length; `length` elements fill the `share` bytes of a slot. */
typedef struct {
  Segment *segment;
  const CommReduce *reduce;
  Term *term;
  size_t length;
} SharedSum;

/* Step 1 of a part: publishes this rank's contributions to the other ranks' pieces. */
static void publish_contributions(const SharedSum *q, size_t skip, uint64_t phase) {
  const Segment *s = q->segment;
  const CommReduce *r = q->reduce;
  char *out = segment_slot(s, s->rank, phase);
  if (s->rank >= r->active) return;
  for (int i = 1; i < s->size; i++) {
    int to = (s->rank + i) % s->size;
    size_t n = part_size(r->off[to + 1] - r->off[to], skip, q->length);
    if (n) write_numbers(r, out + (size_t)to * s->share, r->off[to] + skip, n);
  }
}

/* Step 2 of a part: adds all contributions to this rank's piece and publishes the sum. */
static void add_contributions(const SharedSum *q, size_t skip, uint64_t phase) {
  const Segment *s = q->segment;
  const CommReduce *r = q->reduce;
  size_t begin = r->off[s->rank] + skip;
  size_t n = part_size(r->off[s->rank + 1] - r->off[s->rank], skip, q->length);
  const char *in = segment_slot(s, 0, phase) + (size_t)s->rank * s->share;
  if (!n) return;
  Addition a = {.term = q->term,
                .terms = bucket_terms(r, s->rank, r->g + begin, in, s->slot, q->term),
                .before = r->first ? NULL : r->sum + skip,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g + begin : r->sum + skip,
                .copy = bucket_is_shared(r) ? segment_sums(s, s->rank, phase) : NULL};
  add_terms(&a, n);
}

/* Step 3 of a part, in the phase after steps 1 and 2: copies the sums that the other ranks have
 * published. `phase`: that of steps 1 and 2. */
static void copy_sums(const SharedSum *q, size_t skip, uint64_t phase) {
  const Segment *s = q->segment;
  const CommReduce *r = q->reduce;
  for (int i = 1; i < s->size; i++) {
    int from = (s->rank + i) % s->size;
    size_t n = part_size(r->off[from + 1] - r->off[from], skip, q->length);
    if (n) read_numbers(r, segment_sums(s, from, phase), r->off[from] + skip, n);
  }
}

/* Sums a small bucket: every rank adds all of it, after one barrier. */
static void reduce_whole(const SharedSum *q) {
  Segment *s = q->segment;
  const CommReduce *r = q->reduce;
  uint64_t phase = s->phase + 1;
  size_t n = r->off[s->size];
  if (s->rank < r->active) write_numbers(r, segment_slot(s, s->rank, phase), 0, n);
  segment_meet_first(s);
  Addition a = {
      .term = q->term,
      .terms = bucket_terms(r, s->rank, r->g, segment_slot(s, 0, phase), s->slot, q->term),
      .bf16 = r->bf16,
      .sum = r->g};
  add_terms(&a, n);
}

/* Phase j publishes and adds part j, and copies the sums of part j - 1. */
static void reduce_parts(const SharedSum *q) {
  Segment *s = q->segment;
  size_t longest = bucket_longest_piece(q->reduce, s->size), skip = 0;
  bool is_shared = bucket_is_shared(q->reduce), more;
  do {
    uint64_t phase = s->phase + 1;
    if (skip < longest) publish_contributions(q, skip, phase);
    meet_ranks(s, skip == 0);
    if (skip && is_shared) copy_sums(q, skip - q->length, phase - 1);
    if (skip < longest) add_contributions(q, skip, phase);
    skip += q->length;
    more = skip < longest || (is_shared && skip < longest + q->length);
  } while (more);
}

void shared_reduce(Segment *s, const CommReduce *r, Term *term) {
  size_t width = bucket_width(r->bf16), bytes = r->off[s->size] * width;
  SharedSum q = {.segment = s, .reduce = r, .term = term, .length = s->share / width};
  size_t most = s->size == 2 ? WHOLE_TWO : WHOLE_MANY;
  if (bucket_is_shared(r) && r->first && bytes <= most && bytes <= s->slot)
    reduce_whole(&q);
  else
    reduce_parts(&q);
}
