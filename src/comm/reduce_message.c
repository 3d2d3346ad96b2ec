/* A bucket of gradients summed by messages.
 *   direct       Each rank sends all of its numbers to all others, and adds all of them itself: half
 *                the messages one after the other. For small buckets; two ranks move no more bytes
 *                by it, so there it is taken for longer ones.
 *   two phases   Each rank receives its piece from the others, adds, and sends the sum to all.
 * Both add in the order of the ranks, so the bits are the same. Relies on comm_internal.h. */
#include "comm/comm_internal.h"

#define DIRECT_TWO  ((size_t)1 << 19) /* bytes of a bucket, at most: of two ranks … */
#define DIRECT_MANY ((size_t)1 << 15) /* … of more */
/* A longer message, with its header, is above Open MPI's eager limit for TCP (64 kB) and waits for an
 * answer of the receiver. Up to twice that, it is sent as two messages that do not wait. */
#define EAGER ((size_t)60 << 10)

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

size_t comm_reduce_work(const Comm *c, size_t bucket, size_t piece, bool bf16) {
  if (c->size == 1 || c->shared) return 0;
  size_t wide = width_of(bf16), ranks = (size_t)c->size, bytes = bucket * wide;
  size_t phases = ranks * piece * wide + (bf16 ? bytes : 0);
  size_t direct = (ranks + 1) * (bytes < direct_most(c) ? bytes : direct_most(c));
  return phases > direct ? phases : direct;
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

/* Phase 1: every rank's contribution to this rank's piece into `work`, piece after piece. */
static void collect_pieces(Comm *c, const CommReduce *r, size_t mine, char *out) {
  size_t wide = width_of(r->bf16);
  bool gives = c->rank < r->active;
  const char *from = (const char *)r->g;
  if (r->bf16 && gives) bf16_of_floats((uint16_t *)(void *)out, r->g, r->off[c->size]);
  if (r->bf16) from = out;
  for (int i = 0; i < c->size; i++) {
    bool other = i != c->rank;
    c->pair.send[i] = from + r->off[i] * wide;
    c->pair.send_n[i] = gives && other ? (r->off[i + 1] - r->off[i]) * wide : 0;
    c->pair.recv[i] = r->work + (size_t)i * mine * wide;
    c->pair.recv_n[i] = i < r->active && other ? mine * wide : 0;
  }
  message_exchange(c, c->pair.send, c->pair.send_n, c->pair.recv, c->pair.recv_n);
}

/* Phase 2: every rank's sums to all. */
static void share_sums(Comm *c, const CommReduce *r, char *out) {
  for (int i = 0; i <= c->size; i++) c->offset[i] = r->off[i] * width_of(r->bf16);
  message_allgather(c, r->bf16 ? out : (char *)r->g, c->offset);
  if (r->bf16) floats_of_bf16(r->g, (const uint16_t *)(const void *)out, r->off[c->size]);
}

static void reduce_in_phases(Comm *c, const CommReduce *r) {
  size_t begin = r->off[c->rank], mine = r->off[c->rank + 1] - begin, wide = width_of(r->bf16);
  char *out = r->work + (size_t)c->size * mine * wide;
  bool share = r->last && !r->shard;
  collect_pieces(c, r, mine, out);
  Addition a = {.term = c->term,
                .terms = reduce_terms(r, c->rank, r->g + begin, r->work, mine * wide, c->term),
                .before = r->first ? NULL : r->sum,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g + begin : r->sum,
                .copy = share && r->bf16 ? out + begin * wide : NULL};
  add_terms(&a, mine);
  if (share) share_sums(c, r, out);
}

void message_reduce(Comm *c, const CommReduce *r) {
  if (is_direct(c, r))
    reduce_direct(c, r);
  else
    reduce_in_phases(c, r);
}
