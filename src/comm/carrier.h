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

/* All functions are called from one thread, `begin` first. A failure is reported
 * as a sentence that stays valid; NULL is success. */
typedef struct {
  const char *(*begin)(int *rank, int *size, char about[64]);
  const char *(*send)(int to, int tag, const void *bytes, size_t n, CarrierRequest *);
  const char *(*recv)(int from, int tag, void *bytes, size_t n, CarrierRequest *);
  const char *(*test)(CarrierRequest *, bool *done); /* moves everything that is under way */
  void (*abandon)(CarrierRequest *);                 /* a receive that nobody waits for */
  void (*abort)(int status);                         /* ends every rank */
  void (*end)(void);
} Carrier;

#define CARRIER_SYMBOL "trireme_carrier"

/* The most bytes of one message; longer ones are cut by the caller. */
#ifndef CARRIER_MOST
#define CARRIER_MOST ((size_t)1 << 30)
#endif

#endif
