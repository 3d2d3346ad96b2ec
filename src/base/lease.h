/* Who may free a resource that one thread uses and another thread ends, such as a connection
 * that is aborted when its peer is lost. The user takes the lease around each use; the one that
 * ends it waits until the lease is back. Depends on thread. */
#ifndef BASE_LEASE_H
#define BASE_LEASE_H

#include <pthread.h>
#include <stdbool.h>

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t returned;
  bool taken;       /* the user is inside */
  bool ended;       /* nobody may enter any more */
  bool handed_over; /* the user frees the resource when it returns the lease */
} Lease;

void lease_open(Lease *l);
void lease_close(Lease *l);
/* Whether the resource may be used until lease_return; false once it was ended. One thread takes
 * leases, one at a time. */
bool lease_take(Lease *l);
/* True: the resource was ended meanwhile, and the caller must free it now. */
bool lease_return(Lease *l);
/* From any thread: allows no use from now on, and waits up to `seconds` for one that is under way.
 * True: the caller must free the resource now. False: it was ended before, or its user is still
 * inside and frees it. Exactly one of all these calls must free it. */
bool lease_end(Lease *l, double seconds);

#endif
