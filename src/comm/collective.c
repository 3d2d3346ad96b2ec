/* Collectives: what every rank calls, and how messages do it. Each moves what a ring would move, and
 * adds in the order of the ranks, so that sums are the same on all of them. Ranks of one host
 * take shared memory instead (shared.c). Relies on comm_internal.h. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "comm/comm_internal.h"

void comm_check(Comm *c, const char *wrong) {
  if (wrong) comm_die(c, "'%s' failed: %s", c->in_op ? op_current(c)->name : "start", wrong);
}

/* One call, to be run by the runner. */
typedef struct {
  OpKind kind;
  const char *name;
  char *bytes;
  size_t n;
  const size_t *off;
  const void *const *send;
  void *const *recv;
  const size_t *send_n, *recv_n;
  double *x;
  const CommReduce *reduce;
} Call;

static void receive_from(Comm *c, int from, void *bytes, size_t n, CarrierRequest *request) {
  comm_check(c, c->carrier->recv(from, op_tag(c, n), bytes, n, request));
}

static void send_to(Comm *c, int to, const void *bytes, size_t n, CarrierRequest *request) {
  comm_check(c, c->carrier->send(to, op_tag(c, n), bytes, n, request));
}

/* Piece `k` of a message that may be longer than the carrier takes at once. */
static size_t part(size_t n, size_t k) {
  size_t begin = k * CARRIER_MOST;
  return begin >= n ? 0 : n - begin < CARRIER_MOST ? n - begin : CARRIER_MOST;
}

/* Down a tree: rank r has it from r with its lowest bit cleared. */
static void message_broadcast(Comm *c, char *bytes, size_t n) {
  for (size_t k = 0; part(n, k); k++) {
    char *at = bytes + k * CARRIER_MOST;
    int bit = 1;
    for (; bit < c->size && !(c->rank & bit); bit <<= 1) {}
    if (c->rank) {
      receive_from(c, c->rank & ~bit, at, part(n, k), c->request);
      comm_settle(c, c->request, 1);
    }
    size_t sends = 0;
    for (bit >>= 1; bit; bit >>= 1) {
      if (c->rank + bit >= c->size) continue;
      send_to(c, c->rank + bit, at, part(n, k), &c->request[sends++]);
    }
    comm_settle(c, c->request, sends);
  }
}

void message_exchange(Comm *c, const void *const *send, const size_t *send_n, void *const *recv,
                      const size_t *recv_n) {
  bool more = true;
  for (size_t k = 0; more; k++) {
    size_t n = 0, skip = k * CARRIER_MOST;
    more = false;
    for (int i = 1; i < c->size; i++) { /* each begins with its neighbour */
      int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
      size_t in = part(recv_n[from], k), out = part(send_n[to], k);
      if (in) receive_from(c, from, (char *)recv[from] + skip, in, &c->request[n++]);
      if (out) send_to(c, to, (const char *)send[to] + skip, out, &c->request[n++]);
      more = more || part(recv_n[from], k + 1) || part(send_n[to], k + 1);
    }
    comm_settle(c, c->request, n);
  }
}

void message_allgather(Comm *c, char *all, const size_t *off) {
  size_t most = 0, mine = off[c->rank + 1] - off[c->rank];
  for (int r = 0; r < c->size; r++)
    if (off[r + 1] - off[r] > most) most = off[r + 1] - off[r];
  for (size_t k = 0; part(most, k); k++) {
    size_t n = 0, skip = k * CARRIER_MOST;
    for (int i = 1; i < c->size; i++) {
      int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
      size_t in = part(off[from + 1] - off[from], k), out = part(mine, k);
      if (in) receive_from(c, from, all + off[from] + skip, in, &c->request[n++]);
      if (out) send_to(c, to, all + off[c->rank] + skip, out, &c->request[n++]);
    }
    comm_settle(c, c->request, n);
  }
}

static void gather_parts(Comm *c, char *all, const size_t *off) {
  if (c->shared)
    shared_allgather(c, all, off);
  else
    message_allgather(c, all, off);
}

static void broadcast_bytes(Comm *c, char *bytes, size_t n) {
  if (c->shared)
    shared_broadcast(c, bytes, n);
  else
    message_broadcast(c, bytes, n);
}

/* Sizes are known to each pair of ranks only, and remembered for op_check_note. */
static void exchange_parts(Comm *c, const Call *call) {
  uint64_t *sent = c->sent + c->seq % HISTORY * (size_t)c->size;
  for (int r = 0; r < c->size; r++) sent[r] = r == c->rank ? 0 : call->send_n[r];
  c->expected = call->recv_n;
  if (c->shared)
    shared_exchange(c, call->send, call->send_n, call->recv, call->recv_n);
  else
    message_exchange(c, call->send, call->send_n, call->recv, call->recv_n);
}

static void sum(Comm *c, double *x, size_t n) {
  size_t bytes = n * sizeof *x;
  for (int r = 0; r <= c->size; r++) c->offset[r] = (size_t)r * bytes;
  memcpy(c->sums + (size_t)c->rank * n, x, bytes);
  gather_parts(c, (char *)c->sums, c->offset);
  for (size_t i = 0; i < n; i++) {
    x[i] = 0;
    for (int r = 0; r < c->size; r++) x[i] += c->sums[(size_t)r * n + i];
  }
}

/* A hash of the offsets from the first, which all ranks must have alike. */
static uint64_t hash_offsets(const size_t *off, int size) {
  uint64_t hash = 0;
  for (int r = 0; r < size; r++) hash = rng_mix(hash, off[r + 1] - off[0]);
  return hash;
}

static void begin_op(Comm *c, const Call *call) {
  const CommReduce *r = call->reduce;
  uint64_t bytes = call->n, layout = 0;
  if (call->off) {
    layout = hash_offsets(call->off, c->size);
    bytes = call->off[c->size] - call->off[0];
  }
  if (r) {
    int flags = r->first | r->last << 1 | r->bf16 << 2 | r->shard << 3;
    layout =
        rng_mix(rng_mix(hash_offsets(r->off, c->size), (uint64_t)flags), (uint64_t)r->active);
    bytes = r->off[c->size] * (r->bf16 ? sizeof(uint16_t) : sizeof(float));
  }
  op_begin(c, call->kind, call->name, bytes, layout);
}

static void run_call(Comm *c, void *context) {
  Call *call = context;
  begin_op(c, call);
  switch (call->kind) {
    case OP_BROADCAST:
      broadcast_bytes(c, call->bytes, call->n);
      break;
    case OP_ALLGATHER:
      gather_parts(c, call->bytes, call->off);
      break;
    case OP_EXCHANGE:
      exchange_parts(c, call);
      break;
    case OP_SUM:
      sum(c, call->x, call->n / sizeof *call->x);
      break;
    case OP_REDUCE:
      if (c->shared)
        shared_reduce(c, call->reduce);
      else
        message_reduce(c, call->reduce);
      break;
  }
  op_end(c);
}

static void call_it(Comm *c, Call *call) {
  if (c->size == 1) return;
  if (comm_on_thread(c)) {
    run_call(c, call);
    return;
  }
  CommJob job = {.name = call->name, .run = run_call, .context = call, .awaited = true};
  comm_submit(c, &job);
  comm_wait(c, &job);
}

void comm_broadcast(Comm *c, const char *name, void *bytes, size_t n) {
  call_it(c, &(Call){.kind = OP_BROADCAST, .name = name, .bytes = bytes, .n = n});
}

void comm_allgather(Comm *c, const char *name, void *all, const size_t *off) {
  call_it(c, &(Call){.kind = OP_ALLGATHER, .name = name, .bytes = all, .off = off});
}

void comm_exchange(Comm *c, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n) {
  Call call = {.kind = OP_EXCHANGE,
               .name = name,
               .send = send,
               .recv = recv,
               .send_n = send_n,
               .recv_n = recv_n};
  call_it(c, &call);
}

void comm_sum(Comm *c, const char *name, double *x, size_t n) {
  call_it(c, &(Call){.kind = OP_SUM, .name = name, .x = x, .n = n * sizeof *x});
}

int reduce_terms(const CommReduce *r, int rank, const float *own, const char *in, size_t stride,
                 Term *term) {
  for (int i = 0; i < r->active; i++) {
    term[i].x = i == rank ? (const void *)own : in + (size_t)i * stride;
    term[i].kind = !r->bf16 ? TERM_FP32 : i == rank ? TERM_ROUNDED : TERM_BF16;
  }
  return r->active;
}

/* Nobody else contributes: the rounds are added here. */
static void reduce_alone(const CommReduce *r) {
  Term own = {r->g, r->bf16 ? TERM_ROUNDED : TERM_FP32};
  Addition a = {.term = &own,
                .terms = 1,
                .before = r->first ? NULL : r->sum,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g : r->sum};
  add_terms(&a, r->off[1]);
}

void comm_reduce(Comm *c, const char *name, const CommReduce *r) {
  if (c->size == 1)
    reduce_alone(r);
  else
    call_it(c, &(Call){.kind = OP_REDUCE, .name = name, .reduce = r});
}

/* Lengths first, then the bytes; everybody gets them all, rank 0 looks at them. */
Err comm_gather_text(Comm *c, const char *name, const char *text, size_t len, char ***list) {
  size_t ranks = (size_t)c->size;
  uint64_t *length;
  size_t *off;
  char *bytes = NULL, **out = NULL;
  *list = NULL;
  TRY(mem_alloc(&length, ranks, sizeof *length));
  Err err;
  TRY_DONE(mem_alloc(&off, ranks + 1, sizeof *off));
  for (size_t r = 0; r <= ranks; r++) off[r] = r * sizeof *length;
  length[c->rank] = len + 1;
  comm_allgather(c, name, length, off);
  off[0] = ranks * sizeof *out;
  for (size_t r = 0; r < ranks; r++) off[r + 1] = off[r] + length[r];
  TRY_DONE(mem_alloc(&bytes, off[ranks], 1));
  memcpy(bytes + off[c->rank], text, len);
  comm_allgather(c, name, bytes, off);
  out = (char **)(void *)bytes;
  for (size_t r = 0; r < ranks; r++) out[r] = bytes + off[r];
  *list = out;
done:
  mem_free(length);
  mem_free(off);
  return err;
}
