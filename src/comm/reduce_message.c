/* A bucket of gradients summed by messages.
 *   direct       Each rank sends all of its numbers to all others, and adds all of them itself: half
 *                the messages one after the other. For small buckets; two ranks move no more bytes
 *                by it, so there it is taken for longer ones.
 *   pieces       Each rank receives its piece from the others, adds, and sends the sum to all, one
 *                segment of the piece after the other.
 * Both add in the order of the ranks, so the bits are the same. Relies on comm_internal.h. */
#include "comm/comm_internal.h"

#define DIRECT_TWO  ((size_t)1 << 19) /* bytes of a bucket, at most: of two ranks … */
#define DIRECT_MANY ((size_t)1 << 15) /* … of more */
/* A longer message, with its header, is above Open MPI's eager limit for TCP (64 kB) and waits for an
 * answer of the receiver. Up to twice that, it is sent as two messages that do not wait. */
#define EAGER ((size_t)60 << 10)
#ifndef SEGMENT
#define SEGMENT ((size_t)1 << 20) /* bytes; no more than CARRIER_MOST */
#endif

static size_t width_of(bool bf16) {
  return bf16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t direct_most(const Comm *c) {
  return c->size == 2 ? DIRECT_TWO : DIRECT_MANY;
}

static bool is_direct(const Comm *c, const CommReduce *r) {
  bool whole = r->first && r->last && !r->shard && r->active == c->size;
  return whole && r->off[c->size] * width_of(r->bf16) <= direct_most(c);
}

/* Elements of a segment: pieces are no longer than `longest`. */
static size_t choose_segment(size_t longest, size_t width) {
  size_t most = SEGMENT / width;
  return longest < most ? longest : most;
}

size_t comm_reduce_work(const Comm *c, size_t bucket, size_t piece, bool bf16) {
  if (c->size == 1 || c->shared) return 0;
  size_t width = width_of(bf16), ranks = (size_t)c->size, bytes = bucket * width;
  size_t pieces = 2 * ranks * choose_segment(piece, width) * width + (bf16 ? bytes : 0);
  size_t direct = (ranks + 1) * (bytes < direct_most(c) ? bytes : direct_most(c));
  return pieces > direct ? pieces : direct;
}

static void reduce_direct(Comm *c, const CommReduce *r) {
  size_t n = r->off[c->size], bytes = n * width_of(r->bf16), used = 0;
  char *out = r->work + (size_t)c->size * bytes;
  const void *mine = r->g;
  if (r->bf16) {
    bf16_of_floats((uint16_t *)(void *)out, r->g, n);
    mine = out;
  }
  int tag = op_tag(c, bytes);
  bool halved = bytes > EAGER && bytes <= 2 * EAGER; /* of two ranks: DIRECT_MANY is less */
  size_t part = halved ? bytes / 2 : bytes;
  for (int i = 1; i < c->size && n; i++) {
    int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
    char *there = r->work + (size_t)from * bytes;
    const char *here = mine;
    comm_check(c, c->carrier->recv(from, tag, there, part, &c->request[used++]));
    comm_check(c, c->carrier->send(to, tag, here, part, &c->request[used++]));
    if (!halved) continue;
    size_t rest = bytes - part;
    comm_check(c, c->carrier->recv(from, tag, there + part, rest, &c->request[used++]));
    comm_check(c, c->carrier->send(to, tag, here + part, rest, &c->request[used++]));
  }
  comm_settle(c, c->request,
              used); /* the sends too: the sum takes the place of what was sent */
  Addition a = {.term = c->term,
                .terms = reduce_terms(r, c->rank, r->g, r->work, bytes, c->term),
                .bf16 = r->bf16,
                .sum = r->g};
  add_terms(&a, n);
}

/* One bucket on its way. Segment k is elements [k * length, (k + 1) * length) of each piece. While
 * segment k is added, the contributions to k + 1 and the sums of k - 1 travel, so that the network
 * does not wait for the additions. Of each kind two segments are under way at most: segment k uses
 * buffers and requests k % 2. */
typedef struct {
  Comm *comm;
  const CommReduce *reduce;
  size_t width;    /* bytes of a number as it is sent */
  size_t length;   /* elements of a segment, at most */
  size_t segments; /* of the longest piece; a shorter piece has empty ones */
  char *
      packed; /* (bucket) bf16 numbers that are sent or received; NULL: fp32, straight from g */
  struct {
    CarrierRequest *request; /* (2 * size) */
    size_t n;
  } contributions[2], sums[2];
} Pipeline;

static size_t find_longest_piece(const CommReduce *r, int size) {
  size_t longest = 0;
  for (int i = 0; i < size; i++)
    if (r->off[i + 1] - r->off[i] > longest) longest = r->off[i + 1] - r->off[i];
  return longest;
}

static Pipeline open_pipeline(Comm *c, const CommReduce *r) {
  size_t longest = find_longest_piece(r, c->size);
  Pipeline p = {.comm = c, .reduce = r, .width = width_of(r->bf16)};
  p.length = choose_segment(longest, p.width);
  p.segments = longest ? (longest + p.length - 1) / p.length : 0;
  if (r->bf16) p.packed = r->work + 2 * (size_t)c->size * p.length * p.width;
  for (size_t i = 0; i < 2; i++) {
    p.contributions[i].request = c->request + 2 * i * (size_t)c->size;
    p.sums[i].request = c->request + 2 * (i + 2) * (size_t)c->size;
  }
  return p;
}

/* Elements of segment k in the piece of a rank, and the first of them in the bucket. */
static size_t find_segment(const Pipeline *p, int rank, size_t k, size_t *begin) {
  const size_t *off = p->reduce->off + rank;
  size_t skip = k * p->length, n = off[1] - off[0];
  *begin = off[0] + skip;
  if (skip >= n) return 0;
  return n - skip < p->length ? n - skip : p->length;
}

static char *find_input(const Pipeline *p, int rank, size_t k) {
  return p->reduce->work + (2 * (size_t)rank + k % 2) * p->length * p->width;
}

/* Where the numbers from `begin` on are sent from, and where sums are received. */
static char *find_numbers(const Pipeline *p, size_t begin) {
  return p->packed ? p->packed + begin * p->width : (char *)(p->reduce->g + begin);
}

static void start_contributions(Pipeline *p, size_t k) {
  Comm *c = p->comm;
  const CommReduce *r = p->reduce;
  CarrierRequest *request = p->contributions[k % 2].request;
  size_t n = 0, begin, mine = find_segment(p, c->rank, k, &begin) * p->width;
  for (int i = 1; i < c->size; i++) {
    int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
    size_t out = c->rank < r->active ? find_segment(p, to, k, &begin) : 0;
    if (mine && from < r->active)
      comm_check(c, c->carrier->recv(from, op_tag(c, mine), find_input(p, from, k), mine,
                                     &request[n++]));
    if (!out) continue;
    size_t bytes = out * p->width;
    char *numbers = find_numbers(p, begin);
    if (p->packed) bf16_of_floats((uint16_t *)(void *)numbers, r->g + begin, out);
    comm_check(c, c->carrier->send(to, op_tag(c, bytes), numbers, bytes, &request[n++]));
  }
  p->contributions[k % 2].n = n;
}

/* Adds all contributions to segment k of this rank's piece, in the order of the ranks. */
static void add_segment(Pipeline *p, size_t k, bool share) {
  Comm *c = p->comm;
  const CommReduce *r = p->reduce;
  size_t begin, n = find_segment(p, c->rank, k, &begin), skip = k * p->length;
  comm_settle(c, p->contributions[k % 2].request, p->contributions[k % 2].n);
  if (!n) return;
  Addition a = {.term = c->term,
                .terms = reduce_terms(r, c->rank, r->g + begin, find_input(p, 0, k),
                                      2 * p->length * p->width, c->term),
                .before = r->first ? NULL : r->sum + skip,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g + begin : r->sum + skip,
                .copy = share && r->bf16 ? find_numbers(p, begin) : NULL};
  add_terms(&a, n);
}

/* Sends the sums of this rank's segment k to all and receives theirs. The others' sums take the
 * place of this rank's contributions, which have been sent (add_segment waits for that). */
static void start_sums(Pipeline *p, size_t k) {
  Comm *c = p->comm;
  CarrierRequest *request = p->sums[k % 2].request;
  size_t n = 0, begin, mine = find_segment(p, c->rank, k, &begin) * p->width;
  const char *out = find_numbers(p, begin);
  for (int i = 1; i < c->size; i++) {
    int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
    size_t in = find_segment(p, from, k, &begin) * p->width;
    char *numbers = find_numbers(p, begin);
    if (in) comm_check(c, c->carrier->recv(from, op_tag(c, in), numbers, in, &request[n++]));
    if (mine) comm_check(c, c->carrier->send(to, op_tag(c, mine), out, mine, &request[n++]));
  }
  p->sums[k % 2].n = n;
}

static void finish_sums(Pipeline *p, size_t k) {
  comm_settle(p->comm, p->sums[k % 2].request, p->sums[k % 2].n);
  for (int r = 0; r < p->comm->size && p->packed; r++) {
    size_t begin, n = find_segment(p, r, k, &begin);
    const void *numbers = find_numbers(p, begin);
    if (n && r != p->comm->rank) floats_of_bf16(p->reduce->g + begin, numbers, n);
  }
}

static void reduce_pieces(Comm *c, const CommReduce *r) {
  Pipeline p = open_pipeline(c, r);
  bool share = r->last && !r->shard;
  if (p.segments) start_contributions(&p, 0);
  for (size_t k = 0; k < p.segments; k++) {
    if (k + 1 < p.segments) start_contributions(&p, k + 1);
    add_segment(&p, k, share);
    if (!share) continue;
    if (k) finish_sums(&p, k - 1);
    start_sums(&p, k);
  }
  if (share && p.segments) finish_sums(&p, p.segments - 1);
}

void message_reduce(Comm *c, const CommReduce *r) {
  if (is_direct(c, r))
    reduce_direct(c, r);
  else
    reduce_pieces(c, r);
}
