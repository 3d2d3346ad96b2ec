/* Sums of a bucket by messages.
 *   direct   Each rank sends all of its numbers to all others and adds everything itself. For small
 *            buckets: half as many messages follow each other. With two ranks no more bytes are
 *            sent than by pieces, so longer buckets are summed directly too.
 *   pieces   Each rank receives the contributions to its piece, adds them, and sends the sum to all
 *            (reduce-scatter, all-gather), one segment of the pieces after the other.
 * Both add in the order of the ranks, so they give the same bits. Depends on message. */
#include "comm/reduce_message.h"

#define DIRECT_TWO  ((size_t)1 << 19) /* bytes of a bucket, at most, with two ranks … */
#define DIRECT_MANY ((size_t)1 << 15) /* the same with more ranks */
/* A longer message, with its header, is above Open MPI's eager limit for TCP (64 kB): it is sent
 * only after the receiver has answered. Up to twice that, two messages that need no answer are
 * sent. */
#define EAGER ((size_t)60 << 10)
#ifndef SEGMENT
#define SEGMENT ((size_t)1 << 20) /* bytes; at most MESSAGE_MAX */
#endif

static size_t max_direct(int ranks) {
  return ranks == 2 ? DIRECT_TWO : DIRECT_MANY;
}

static bool is_direct(const CommReduce *r, int ranks) {
  bool is_whole = r->first && bucket_is_shared(r) && r->active == ranks;
  return is_whole && r->off[ranks] * bucket_width(r->bf16) <= max_direct(ranks);
}

/* Elements of a segment, where the longest piece has `longest`. */
static size_t choose_segment(size_t longest, size_t width) {
  size_t most = SEGMENT / width;
  return longest < most ? longest : most;
}

size_t message_reduce_work(int ranks, size_t bucket, size_t piece, bool bf16) {
  size_t width = bucket_width(bf16), n = (size_t)ranks, bytes = bucket * width;
  size_t pieces = 2 * n * choose_segment(piece, width) * width + (bf16 ? bytes : 0);
  size_t direct = (n + 1) * (bytes < max_direct(ranks) ? bytes : max_direct(ranks));
  return pieces > direct ? pieces : direct;
}

/* The numbers of rank r lie at work + r * bytes; bf16 numbers of this rank behind those of all. */
static void reduce_direct(Messages *m, const CommReduce *r, Term *term) {
  int rank = m->group->rank, size = m->group->size;
  size_t n = r->off[size], bytes = n * bucket_width(r->bf16), used = 0;
  const char *out = (const char *)r->g;
  if (r->bf16) {
    char *packed = r->work + (size_t)size * bytes;
    bf16_of_floats((uint16_t *)(void *)packed, r->g, n);
    out = packed;
  }
  bool is_halved = bytes > EAGER && bytes <= 2 * EAGER;
  size_t part = is_halved ? bytes / 2 : bytes, rest = bytes - part;
  for (int i = 1; i < size && n; i++) {
    int to = (rank + i) % size, from = (rank - i + size) % size;
    char *in = r->work + (size_t)from * bytes;
    message_receive(m, from, in, part, &m->request[used++]);
    message_send(m, to, out, part, &m->request[used++]);
    if (!is_halved) continue;
    message_receive(m, from, in + part, rest, &m->request[used++]);
    message_send(m, to, out + part, rest, &m->request[used++]);
  }
  message_wait(m, m->request, used); /* for sends too: the sum overwrites what was sent */
  Addition a = {.term = term,
                .terms = bucket_terms(r, rank, r->g, r->work, bytes, term),
                .bf16 = r->bf16,
                .sum = r->g};
  add_terms(&a, n);
}

/* A bucket that is summed by pieces. Segment k is elements [k * length, (k + 1) * length) of each
 * piece. While segment k is added, the contributions to k + 1 and the sums of k - 1 are under way,
 * so that the network does not wait for additions. Segment k uses buffers and requests k % 2. */
typedef struct {
  Messages *messages;
  const CommReduce *reduce;
  int rank, size;
  Term *term;
  size_t width;    /* bytes of a number as it is sent */
  size_t length;   /* elements of a segment, at most */
  size_t segments; /* of the longest piece; shorter pieces have empty ones */
  char *
      packed; /* (bucket) numbers as bf16, sent and received here; NULL: fp32, straight from g */
  struct {
    TransportRequest *request; /* (2 * size) */
    size_t n;
  } contributions[2], sums[2];
} Pipeline;

static Pipeline open_pipeline(Messages *m, const CommReduce *r, Term *term) {
  size_t ranks = (size_t)m->group->size, longest = bucket_longest_piece(r, m->group->size);
  Pipeline p = {.messages = m,
                .reduce = r,
                .rank = m->group->rank,
                .size = m->group->size,
                .term = term,
                .width = bucket_width(r->bf16)};
  p.length = choose_segment(longest, p.width);
  p.segments = longest ? (longest + p.length - 1) / p.length : 0;
  if (r->bf16) p.packed = r->work + 2 * ranks * p.length * p.width;
  _Static_assert(MESSAGE_REQUESTS == 8, "four sets of a send and a receive for each rank");
  for (size_t i = 0; i < 2; i++) {
    p.contributions[i].request = m->request + 2 * i * ranks;
    p.sums[i].request = m->request + 2 * (i + 2) * ranks;
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

/* Where the contribution of a rank to this rank's segment k is received. */
static char *find_input(const Pipeline *p, int rank, size_t k) {
  return p->reduce->work + (2 * (size_t)rank + k % 2) * p->length * p->width;
}

/* Where numbers from element `begin` of the bucket on are sent from, and where sums are received. */
static char *find_numbers(const Pipeline *p, size_t begin) {
  return p->packed ? p->packed + begin * p->width : (char *)(p->reduce->g + begin);
}

static void start_contributions(Pipeline *p, size_t k) {
  const CommReduce *r = p->reduce;
  TransportRequest *request = p->contributions[k % 2].request;
  size_t n = 0, begin, mine = find_segment(p, p->rank, k, &begin) * p->width;
  for (int i = 1; i < p->size; i++) {
    int to = (p->rank + i) % p->size, from = (p->rank - i + p->size) % p->size;
    size_t out = p->rank < r->active ? find_segment(p, to, k, &begin) : 0;
    if (mine && from < r->active)
      message_receive(p->messages, from, find_input(p, from, k), mine, &request[n++]);
    if (!out) continue;
    char *numbers = find_numbers(p, begin);
    if (p->packed) bf16_of_floats((uint16_t *)(void *)numbers, r->g + begin, out);
    message_send(p->messages, to, numbers, out * p->width, &request[n++]);
  }
  p->contributions[k % 2].n = n;
}

/* Adds all contributions to segment k of this rank's piece, in the order of the ranks. */
static void add_segment(Pipeline *p, size_t k) {
  const CommReduce *r = p->reduce;
  size_t begin, n = find_segment(p, p->rank, k, &begin), skip = k * p->length;
  message_wait(p->messages, p->contributions[k % 2].request, p->contributions[k % 2].n);
  if (!n) return;
  Addition a = {.term = p->term,
                .terms = bucket_terms(r, p->rank, r->g + begin, find_input(p, 0, k),
                                      2 * p->length * p->width, p->term),
                .before = r->first ? NULL : r->sum + skip,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g + begin : r->sum + skip,
                .copy = bucket_is_shared(r) && r->bf16 ? find_numbers(p, begin) : NULL};
  add_terms(&a, n);
}

/* Sends the sums of this rank's segment k to all and receives theirs. The others' sums overwrite
 * this rank's contributions, which have been sent: add_segment has waited for that. */
static void start_sums(Pipeline *p, size_t k) {
  TransportRequest *request = p->sums[k % 2].request;
  size_t n = 0, begin, mine = find_segment(p, p->rank, k, &begin) * p->width;
  const char *out = find_numbers(p, begin);
  for (int i = 1; i < p->size; i++) {
    int to = (p->rank + i) % p->size, from = (p->rank - i + p->size) % p->size;
    size_t in = find_segment(p, from, k, &begin) * p->width;
    if (in) message_receive(p->messages, from, find_numbers(p, begin), in, &request[n++]);
    if (mine) message_send(p->messages, to, out, mine, &request[n++]);
  }
  p->sums[k % 2].n = n;
}

static void finish_sums(Pipeline *p, size_t k) {
  message_wait(p->messages, p->sums[k % 2].request, p->sums[k % 2].n);
  for (int r = 0; r < p->size && p->packed; r++) {
    size_t begin, n = find_segment(p, r, k, &begin);
    const void *numbers = find_numbers(p, begin);
    if (n && r != p->rank) floats_of_bf16(p->reduce->g + begin, numbers, n);
  }
}

static void reduce_pieces(Messages *m, const CommReduce *r, Term *term) {
  Pipeline p = open_pipeline(m, r, term);
  bool is_shared = bucket_is_shared(r);
  if (p.segments) start_contributions(&p, 0);
  for (size_t k = 0; k < p.segments; k++) {
    if (k + 1 < p.segments) start_contributions(&p, k + 1);
    add_segment(&p, k);
    if (!is_shared) continue;
    if (k) finish_sums(&p, k - 1);
    start_sums(&p, k);
  }
  if (is_shared && p.segments) finish_sums(&p, p.segments - 1);
}

void message_reduce(Messages *m, const CommReduce *r, Term *term) {
  if (is_direct(r, m->group->size))
    reduce_direct(m, r, term);
  else
    reduce_pieces(m, r, term);
}
