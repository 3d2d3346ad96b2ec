/* Collectives over the carrier's messages. Each moves what a ring would move, and
 * adds in the order of the ranks, so that sums are the same on all of them.
 * Relies on comm_internal.h. */
#include <string.h>

#include "base/mem.h"
#include "comm/comm_internal.h"

static void check(Comm *c, const char *wrong) {
  if (wrong) comm_die(c, "'%s' failed: %s", c->doing ? c->doing : "start", wrong);
}

/* One call, to be run on the communication thread. */
typedef enum { BROADCAST, ALLGATHER, EXCHANGE, SUM } What;
typedef struct {
  What what;
  char *bytes;
  size_t n;
  const size_t *off;
  const void *const *send;
  void *const *recv;
  const size_t *send_n, *recv_n;
  double *x;
} Call;

/* Piece `k` of a message that may be longer than the carrier takes at once. */
static size_t part(size_t n, size_t k) {
  size_t begin = k * CARRIER_MOST;
  return begin >= n ? 0 : n - begin < CARRIER_MOST ? n - begin : CARRIER_MOST;
}

/* Down a tree: rank r has it from r with its lowest bit cleared. */
static void broadcast(Comm *c, char *bytes, size_t n) {
  for (size_t k = 0; part(n, k); k++) {
    char *at = bytes + k * CARRIER_MOST;
    int bit = 1;
    for (; bit < c->size && !(c->rank & bit); bit <<= 1) {}
    if (c->rank) {
      check(c, c->carrier->recv(c->rank & ~bit, TAG_DATA, at, part(n, k), c->request));
      comm_settle(c, c->request, 1);
    }
    size_t sends = 0;
    for (bit >>= 1; bit; bit >>= 1) {
      if (c->rank + bit >= c->size) continue;
      check(c, c->carrier->send(c->rank + bit, TAG_DATA, at, part(n, k), &c->request[sends++]));
    }
    comm_settle(c, c->request, sends);
  }
}

static void exchange(Comm *c, const Call *call) {
  bool more = true;
  for (size_t k = 0; more; k++) {
    size_t n = 0;
    more = false;
    for (int i = 1; i < c->size; i++) { /* each begins with its neighbour */
      int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
      size_t in = part(call->recv_n[from], k), out = part(call->send_n[to], k);
      if (in)
        check(c, c->carrier->recv(from, TAG_DATA, (char *)call->recv[from] + k * CARRIER_MOST,
                                  in, &c->request[n++]));
      if (out)
        check(c, c->carrier->send(to, TAG_DATA, (const char *)call->send[to] + k * CARRIER_MOST,
                                  out, &c->request[n++]));
      more = more || part(call->recv_n[from], k + 1) || part(call->send_n[to], k + 1);
    }
    comm_settle(c, c->request, n);
  }
}

static void allgather(Comm *c, char *all, const size_t *off) {
  size_t most = 0, mine = off[c->rank + 1] - off[c->rank];
  for (int r = 0; r < c->size; r++)
    if (off[r + 1] - off[r] > most) most = off[r + 1] - off[r];
  for (size_t k = 0; part(most, k); k++) {
    size_t n = 0, skip = k * CARRIER_MOST;
    for (int i = 1; i < c->size; i++) {
      int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
      size_t in = part(off[from + 1] - off[from], k), out = part(mine, k);
      if (in)
        check(c,
              c->carrier->recv(from, TAG_DATA, all + off[from] + skip, in, &c->request[n++]));
      if (out)
        check(c,
              c->carrier->send(to, TAG_DATA, all + off[c->rank] + skip, out, &c->request[n++]));
    }
    comm_settle(c, c->request, n);
  }
}

static void sum(Comm *c, double *x, size_t n) {
  size_t bytes = n * sizeof *x;
  for (int r = 0; r <= c->size; r++) c->offset[r] = (size_t)r * bytes;
  memcpy(c->sums + (size_t)c->rank * n, x, bytes);
  allgather(c, (char *)c->sums, c->offset);
  for (size_t i = 0; i < n; i++) {
    x[i] = 0;
    for (int r = 0; r < c->size; r++) x[i] += c->sums[(size_t)r * n + i];
  }
}

static void run(Comm *c, void *context) {
  Call *call = context;
  switch (call->what) {
    case BROADCAST:
      broadcast(c, call->bytes, call->n);
      break;
    case ALLGATHER:
      allgather(c, call->bytes, call->off);
      break;
    case EXCHANGE:
      exchange(c, call);
      break;
    case SUM:
      sum(c, call->x, call->n);
      break;
  }
}

static void call_it(Comm *c, const char *name, Call *call) {
  if (c->size == 1) return;
  if (comm_on_thread(c)) {
    const char *before = c->doing;
    c->doing = name;
    run(c, call);
    c->doing = before;
    return;
  }
  CommJob job = {.name = name, .run = run, .context = call};
  comm_submit(c, &job);
  comm_wait(c, &job);
}

void comm_broadcast(Comm *c, const char *name, void *bytes, size_t n) {
  call_it(c, name, &(Call){.what = BROADCAST, .bytes = bytes, .n = n});
}

void comm_allgather(Comm *c, const char *name, void *all, const size_t *off) {
  call_it(c, name, &(Call){.what = ALLGATHER, .bytes = all, .off = off});
}

void comm_exchange(Comm *c, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n) {
  call_it(
      c, name,
      &(Call){
          .what = EXCHANGE, .send = send, .recv = recv, .send_n = send_n, .recv_n = recv_n});
}

void comm_sum(Comm *c, const char *name, double *x, size_t n) {
  call_it(c, name, &(Call){.what = SUM, .x = x, .n = n});
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
