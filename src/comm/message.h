/* Point-to-point messages between ranks, and collectives made of them. The collectives block
 * until this rank's messages are sent and received; meanwhile the watchdog checks the other
 * ranks. An error of the transport ends the run. Threads: only the queue's current runner
 * (queue.h). Depends on watchdog, sequence, transport. */
#ifndef COMM_MESSAGE_H
#define COMM_MESSAGE_H

#include "comm/watchdog.h"

#define MESSAGE_REQUESTS 8 /* requests that can be pending per rank */

typedef struct {
  const Group *group;
  Sequence *sequence;
  Watchdog *watchdog;
  TransportRequest *request; /* (MESSAGE_REQUESTS, size) working memory of the collectives */
  /* True while the runner is a thread that waits for this collective: it may poll for a long
   * time. False while it is the communication thread, which must leave the cores to the main
   * thread and therefore sleeps early. */
  bool may_spin;
  /* Bytes of all messages so far, without heartbeats. Any thread may read them. */
  _Atomic uint64_t sent, received;
} Messages;

NODISCARD Err message_init(Messages *m, const Group *group, Sequence *sequence,
                           Watchdog *watchdog);
void message_free(Messages *m);

/* Start to send or to receive n <= MESSAGE_MAX bytes of the current collective. They do not
 * block. */
void message_send(Messages *m, int to, const void *bytes, size_t n, TransportRequest *request);
void message_receive(Messages *m, int from, void *bytes, size_t n, TransportRequest *request);
/* Blocks until n requests are complete. */
void message_wait(Messages *m, TransportRequest *request, size_t n);

/* Blocking collectives; for the arguments see comm.h. */
void message_broadcast(Messages *m, char *bytes, size_t n);
void message_allgather(Messages *m, char *all, const size_t *off);
void message_exchange(Messages *m, const void *const *send, const size_t *send_n,
                      void *const *recv, const size_t *recv_n);

#endif
