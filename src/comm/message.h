/* Messages between ranks, and collectives made of them. All functions return when their messages
 * have been sent and received; the watchdog looks at the other ranks meanwhile. A failure of the
 * transport ends the run. Threads: the runner. Depends on watchdog, sequence, transport. */
#ifndef COMM_MESSAGE_H
#define COMM_MESSAGE_H

#include "comm/watchdog.h"

#define MESSAGE_REQUESTS 8 /* for each rank */

typedef struct {
  const Group *group;
  Sequence *sequence;
  Watchdog *watchdog;
  TransportRequest *request; /* (MESSAGE_REQUESTS, size) working memory of the collectives */
  /* True: the runner is a thread that waits for this collective and may poll for long. False: it
   * is the communication thread, which must leave the cores to the main thread and soon sleeps. */
  bool may_spin;
} Messages;

NODISCARD Err message_init(Messages *m, const Group *group, Sequence *sequence,
                           Watchdog *watchdog);
void message_free(Messages *m);

/* Start to send or receive n bytes, MESSAGE_MAX at most, of the current collective. */
void message_send(Messages *m, int to, const void *bytes, size_t n, TransportRequest *request);
void message_receive(Messages *m, int from, void *bytes, size_t n, TransportRequest *request);
/* Waits for n requests. */
void message_wait(Messages *m, TransportRequest *request, size_t n);

/* Arguments as in comm.h. */
void message_broadcast(Messages *m, char *bytes, size_t n);
void message_allgather(Messages *m, char *all, const size_t *off);
void message_exchange(Messages *m, const void *const *send, const size_t *send_n,
                      void *const *recv, const size_t *recv_n);

#endif
