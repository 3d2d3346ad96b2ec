/* Collectives by messages (MPI). No rank sends or receives more bytes than in a ring
 * algorithm. Depends on watchdog. */
#include "comm/message.h"

#include <sched.h>
#include <time.h>

#include "base/mem.h"

Err message_init(Messages *m, const Group *group, Sequence *sequence, Watchdog *watchdog) {
  *m = (Messages){.group = group, .sequence = sequence, .watchdog = watchdog};
  return mem_alloc(&m->request, MESSAGE_REQUESTS * (size_t)group->size, sizeof *m->request);
}

void message_free(Messages *m) {
  mem_free(m->request);
}

static void check_transport(Messages *m, const char *wrong) {
  if (wrong)
    heartbeat_fail(
        m->watchdog->heartbeats, "MPI failed in collective '%s': %s. Run stopped; %s",
        sequence_current(m->sequence)->name, wrong, heartbeat_remedy(m->watchdog->heartbeats));
}

void message_send(Messages *m, int to, const void *bytes, size_t n, TransportRequest *request) {
  int tag = sequence_tag(m->sequence, n);
  m->sent += n;
  check_transport(m, m->group->transport->send(to, tag, bytes, n, request));
}

void message_receive(Messages *m, int from, void *bytes, size_t n, TransportRequest *request) {
  int tag = sequence_tag(m->sequence, n);
  m->received += n;
  check_transport(m, m->group->transport->recv(from, tag, bytes, n, request));
}

/* Pauses between two polls of a request: first short, then longer, to leave the cores to the
 * threads that compute and, with more ranks than cores, to the rank that is waited for. A
 * thread with a core of its own spins without sched_yield, which on a busy machine costs a
 * whole time slice. */
static void pause_polling(const Messages *m, unsigned turn) {
  bool is_alone = m->may_spin && !m->group->is_oversubscribed;
  unsigned spins = is_alone ? 2000 : 20;
  long nanoseconds = turn < spins + 180 ? 20000 : 100000;
  if (turn >= spins)
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
  else if (!is_alone)
    sched_yield();
}

void message_wait(Messages *m, TransportRequest *request, size_t n) {
  size_t done = 0;
  for (unsigned turn = 0; done < n; turn++) {
    bool is_complete = false;
    check_transport(m, m->group->transport->test(&request[done], &is_complete));
    if (is_complete) {
      done++;
      turn = 0;
      m->sequence->progress++;
      continue;
    }
    watchdog_look(m->watchdog);
    pause_polling(m, turn);
  }
}

/* Returns the size of part k of n bytes, which are split into messages of MESSAGE_MAX bytes. */
static size_t part_size(size_t n, size_t k) {
  size_t begin = k * MESSAGE_MAX;
  if (begin >= n) return 0;
  return n - begin < MESSAGE_MAX ? n - begin : MESSAGE_MAX;
}

/* Binomial tree: rank r receives from the rank whose number is r without its lowest set bit. */
void message_broadcast(Messages *m, char *bytes, size_t n) {
  int rank = m->group->rank, size = m->group->size;
  for (size_t k = 0; part_size(n, k); k++) {
    char *at = bytes + k * MESSAGE_MAX;
    int bit = 1;
    while (bit < size && !(rank & bit)) bit <<= 1;
    if (rank) {
      message_receive(m, rank & ~bit, at, part_size(n, k), m->request);
      message_wait(m, m->request, 1);
    }
    size_t sends = 0;
    for (bit >>= 1; bit; bit >>= 1) {
      if (rank + bit >= size) continue;
      message_send(m, rank + bit, at, part_size(n, k), &m->request[sends++]);
    }
    message_wait(m, m->request, sends);
  }
}

void message_exchange(Messages *m, const void *const *send, const size_t *send_n,
                      void *const *recv, const size_t *recv_n) {
  int rank = m->group->rank, size = m->group->size;
  bool more = true;
  for (size_t k = 0; more; k++) {
    size_t n = 0, skip = k * MESSAGE_MAX;
    more = false;
    /* Begin with the next rank, so that not all ranks send to rank 0 first. */
    for (int i = 1; i < size; i++) {
      int to = (rank + i) % size, from = (rank - i + size) % size;
      size_t in = part_size(recv_n[from], k), out = part_size(send_n[to], k);
      if (in) message_receive(m, from, (char *)recv[from] + skip, in, &m->request[n++]);
      if (out) message_send(m, to, (const char *)send[to] + skip, out, &m->request[n++]);
      more = more || part_size(recv_n[from], k + 1) || part_size(send_n[to], k + 1);
    }
    message_wait(m, m->request, n);
  }
}

void message_allgather(Messages *m, char *all, const size_t *off) {
  int rank = m->group->rank, size = m->group->size;
  size_t longest = 0, mine = off[rank + 1] - off[rank];
  for (int r = 0; r < size; r++)
    if (off[r + 1] - off[r] > longest) longest = off[r + 1] - off[r];
  for (size_t k = 0; part_size(longest, k); k++) {
    size_t n = 0, skip = k * MESSAGE_MAX;
    for (int i = 1; i < size; i++) {
      int to = (rank + i) % size, from = (rank - i + size) % size;
      size_t in = part_size(off[from + 1] - off[from], k), out = part_size(mine, k);
      if (in) message_receive(m, from, all + off[from] + skip, in, &m->request[n++]);
      if (out) message_send(m, to, all + off[rank] + skip, out, &m->request[n++]);
    }
    message_wait(m, m->request, n);
  }
}
