/* What carries bytes between ranks: point to point, without blocking; everything
 * else (collectives, buckets, watchdog) is written once above it. A carrier is a
 * plug-in that exports `trireme_carrier`. Relies on base. */
#ifndef COMM_CARRIER_H
#define COMM_CARRIER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
  void *handle;
} CarrierRequest;

/* What `begin` finds out. */
typedef struct {
  int rank, size;
  int tag_max;     /* tags are 0 … tag_max; at least 32767 */
  bool any_thread; /* any thread may call, one at a time; false: only the one that began */
  char about[64];  /* library and version */
} CarrierInfo;

/* `begin` is called first. Calls never overlap. A failure is reported as a sentence that stays
 * valid; NULL is success. A message is received by a `recv` of its rank, tag and size. */
typedef struct {
  const char *(*begin)(CarrierInfo *info);
  const char *(*send)(int to, int tag, const void *bytes, size_t n, CarrierRequest *);
  const char *(*recv)(int from, int tag, void *bytes, size_t n, CarrierRequest *);
  const char *(*test)(CarrierRequest *, bool *done); /* moves everything that is under way */
  void (*abandon)(CarrierRequest *);                 /* a receive that nobody waits for */
  void (*abort)(int status);                         /* ends every rank */
  void (*end)(void);
} Carrier;

#define CARRIER_SYMBOL "trireme_carrier"

/* The most bytes of one message; the caller cuts longer ones. Each message that arrives counts as
 * progress, so on a slow network (10 MB/s) one must take seconds, not minutes. */
#ifndef CARRIER_MOST
#define CARRIER_MOST ((size_t)1 << 26)
#endif

#endif
