/* What a transport must offer: point-to-point messages between ranks that do not block.
 * Collectives, buckets and the watchdog are written once above it. A transport is a plug-in that
 * exports `trireme_transport` (mpi.c). Depends on base. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
  void *handle;
} TransportRequest;

/* Filled in by `begin`. */
typedef struct {
  int rank, size;
  int tag_max; /* tags are 0 … tag_max; at least 32767 */
  bool
      any_thread; /* any thread may call, one at a time; false: only the one that called `begin` */
  char about[64]; /* library and version */
} TransportInfo;

/* `begin` is called first. Calls never overlap. A function returns NULL, or what failed: a text
 * that stays valid. A message is received by the `recv` with its rank, tag and size; messages of
 * equal rank and tag arrive in the order in which they were sent. */
typedef struct {
  const char *(*begin)(TransportInfo *info);
  const char *(*send)(int to, int tag, const void *bytes, size_t n, TransportRequest *);
  const char *(*recv)(int from, int tag, void *bytes, size_t n, TransportRequest *);
  /* Is the request complete? Also moves all other requests forward. */
  const char *(*test)(TransportRequest *, bool *done);
  void (*abandon)(TransportRequest *); /* cancels a request that nobody waits for */
  void (*abort)(int status);           /* ends the processes of all ranks */
  void (*end)(void);
} Transport;

#define TRANSPORT_SYMBOL "trireme_transport"

/* Bytes of a message, at most: the caller splits longer ones. A complete message counts as
 * progress, so that on a slow network (10 MB/s) one must take seconds, not minutes. */
#ifndef MESSAGE_MAX
#define MESSAGE_MAX ((size_t)1 << 26)
#endif

#endif
