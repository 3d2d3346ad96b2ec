/* Decides which thread frees a resource that one thread uses and another thread ends, such as a
 * connection that is aborted when its peer is lost. The using thread takes the lease around each
 * use; the ending thread waits until the lease is returned. Depends on thread. */
#ifndef BASE_LEASE_H
#define BASE_LEASE_H

#include <pthread.h>
#include <stdbool.h>

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t returned;
  bool taken;       /* A use of the resource is in progress. */
  bool ended;       /* The resource has been ended; no further use is allowed. */
  bool handed_over; /* The using thread must free the resource when it returns the lease. */
} Lease;

void lease_open(Lease *l);
void lease_close(Lease *l);
/* Starts a use of the resource, which lasts until lease_return. Returns false if the resource has
 * been ended. Only one thread takes leases, one at a time. */
bool lease_take(Lease *l);
/* Ends a use of the resource. Returns true if the resource was ended during the use; the caller
 * must then free the resource. */
bool lease_return(Lease *l);
/* Ends the resource: forbids further uses and waits up to `seconds` for a use in progress. Any
 * thread may call it. Returns true if the caller must free the resource, false if the resource
 * was ended before or the using thread will free it. Of all calls of lease_end and lease_return,
 * exactly one returns true. */
bool lease_end(Lease *l, double seconds);

#endif
