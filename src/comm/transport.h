/* The interface of a transport: non-blocking point-to-point messages between ranks.
 * Collectives, buckets and the watchdog use only this interface. A transport is a plug-in
 * that exports `trireme_transport` (mpi.c). Depends on base. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
  void *handle;
} TransportRequest;

/* What `begin` reports. */
typedef struct {
  int rank, size;
  int tag_max; /* largest message tag; at least 32767 */
  /* true: any thread may call the functions of Transport, one thread at a time; false: only
   * the thread that called `begin` may call them. */
  bool any_thread;
  char about[64]; /* name and version of the library */
} TransportInfo;

/* `begin` must be called first. Calls must not overlap. A function returns NULL, or an error
 * text that stays valid. `recv` receives a message of the given rank, tag and size; messages
 * of equal rank and tag arrive in the order in which they were sent. */
typedef struct {
  const char *(*begin)(TransportInfo *info);
  /* Separates the messages from those of other users of the library in this process. All ranks
   * call it; it waits for them without a limit, so the ranks must be connected (connect.h). */
  const char *(*separate)(void);
  const char *(*send)(int to, int tag, const void *bytes, size_t n, TransportRequest *);
  const char *(*recv)(int from, int tag, void *bytes, size_t n, TransportRequest *);
  /* Sets *done if the request is complete. Also makes progress on all other requests. */
  const char *(*test)(TransportRequest *, bool *done);
  void (*abandon)(TransportRequest *); /* cancels a request */
  void (*abort)(int status);           /* kills the processes of all ranks */
  void (*end)(void);
} Transport;

#define TRANSPORT_SYMBOL "trireme_transport"

/* Largest message in bytes; the caller splits longer ones. The watchdog counts each complete
 * message as progress, so even at 10 MB/s a message must take seconds, not minutes. */
#ifndef MESSAGE_MAX
#define MESSAGE_MAX ((size_t)1 << 26)
#endif

#endif
