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
  TransportRequest *request; /* (MESSAGE_REQUESTS, size) for those who send and receive */
  /* The runner has its core to itself and polls for long. Otherwise the main thread may be computing
   * on that core, and the runner soon sleeps between polls. */
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

/* As the functions of comm.h. */
void message_broadcast(Messages *m, char *bytes, size_t n);
void message_allgather(Messages *m, char *all, const size_t *off);
void message_exchange(Messages *m, const void *const *send, const size_t *send_n,
                      void *const *recv, const size_t *recv_n);

#endif
