/* All-reduce of a bucket by messages, by one of two algorithms:
 *   direct   Each rank sends its whole bucket to all others, and each adds all of them. Used
 *            for small buckets: one message latency instead of two. With two ranks it sends
 *            no more bytes than `pieces`, so the size limit is higher.
 *   pieces   Each rank receives the contributions to its piece, adds them, and sends the sum
 *            to all (reduce-scatter, then all-gather), pipelined in segments.
 * Both add in rank order and compute the same bits. Depends on message. */
#include "comm/reduce_message.h"

/* Largest bucket in bytes that is summed directly by two ranks. */
#define DIRECT_TWO ((size_t)1 << 19)
/* Largest bucket in bytes that is summed directly by more than two ranks. */
#define DIRECT_MANY ((size_t)1 << 15)
/* Largest message in bytes that Open MPI sends eagerly over TCP (its limit is 64 kB with the
 * header). A longer message waits for an answer of the receiver, so messages of up to 2 *
 * EAGER bytes are sent in two halves. */
#define EAGER ((size_t)60 << 10)
#ifndef SEGMENT
#define SEGMENT ((size_t)1 << 20) /* bytes of a segment of the pipeline; at most MESSAGE_MAX */
#endif

static size_t max_direct(int ranks) {
  return ranks == 2 ? DIRECT_TWO : DIRECT_MANY;
}

static bool is_direct(const CommReduce *r, int ranks) {
  bool is_whole = r->first && bucket_is_shared(r) && r->active == ranks;
  return is_whole && r->off[ranks] * bucket_width(r->bf16) <= max_direct(ranks);
}

/* Returns the number of elements of a segment. `longest`: elements of the longest piece. */
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

/* Sums a bucket directly. r->work holds the received buckets, rank i's at i * bytes, and
 * then this rank's own bucket as bf16, if it is sent as bf16. */
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
  /* Wait for the sends too: the sum overwrites the sent buffer. */
  message_wait(m, m->request, used);
  Addition a = {.term = term,
                .terms = bucket_terms(r, rank, r->g, r->work, bytes, term),
                .bf16 = r->bf16,
                .sum = r->g};
  add_terms(&a, n);
}

/* A bucket that is summed by pieces. Segment k is elements [k * length, (k + 1) * length) of
 * each piece. While segment k is added, the contributions to segment k + 1 and the sums of
 * segment k - 1 are being transferred, so the network does not idle. Segment k uses the
 * buffers and requests with index k % 2. */
typedef struct {
  Messages *messages;
  const CommReduce *reduce;
  int rank, size;
  Term *term;
  size_t width;  /* bytes of an element in a message */
  size_t length; /* largest number of elements of a segment */
  /* Number of segments of the longest piece; in shorter pieces the last ones are empty. */
  size_t segments;
  /* (elements of the bucket) send and receive buffer in bf16; NULL: fp32 is sent from `g`
   * itself */
  char *packed;
  struct {
    TransportRequest *request; /* (2 * size) a send and a receive for each rank */
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

/* Returns the number of elements of segment k in a rank's piece; *begin is its first
 * element. */
static size_t find_segment(const Pipeline *p, int rank, size_t k, size_t *begin) {
  const size_t *off = p->reduce->off + rank;
  size_t skip = k * p->length, n = off[1] - off[0];
  *begin = off[0] + skip;
  if (skip >= n) return 0;
  return n - skip < p->length ? n - skip : p->length;
}

/* Returns the buffer that receives a rank's contribution to segment k of this rank's piece. */
static char *find_input(const Pipeline *p, int rank, size_t k) {
  return p->reduce->work + (2 * (size_t)rank + k % 2) * p->length * p->width;
}

/* Returns the buffer from which the elements from `begin` on are sent, and into which their
 * sums are received. */
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

/* Sends the sums of segment k of this rank's piece to all ranks and receives theirs. The
 * received sums overwrite this rank's contributions. add_segment has waited until those were
 * sent. */
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
