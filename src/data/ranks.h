/* The ranks that prepare one data set together. Their collectives are passed in as functions, since
 * this module comes before comm; one process passes NULL. Every rank calls the same functions in the
 * same order. Depends on base. */
#ifndef DATA_RANKS_H
#define DATA_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  int rank, count;
  bool
      has_agreed_error; /* set by ranks_agree: every rank has the error, and rank 0 reports it */
  void *context;        /* of the functions, which do what those of comm/comm.h do */
  const char *(*host)(void *context, int rank);
  void (*report)(void *context, const char *place);
  void (*broadcast)(void *context, const char *name, void *bytes, size_t n);
  void (*allgather)(void *context, const char *name, void *all, const size_t *off);
  void (*exchange)(void *context, const char *name, const void *const *send,
                   const size_t *send_n, void *const *recv, const size_t *recv_n);
} Ranks;

int ranks_count(const Ranks *r);     /* 1 for NULL */
bool ranks_is_first(const Ranks *r); /* Is this rank 0, or one process? */
/* Reports what this rank does, for the errors of others; it may take any time. */
void ranks_report(const Ranks *r, const char *place);
/* Copies rank 0's bytes to every rank. */
void ranks_broadcast(const Ranks *r, const char *name, void *bytes, size_t n);
/* Gathers n bytes of each rank; all: (count * n) in the order of the ranks. */
NODISCARD Err ranks_gather(const Ranks *r, const char *name, const void *mine, size_t n,
                           void *all);
/* Returns the error of the lowest rank that passes one, on all ranks and with that rank's name. A
 * rank that fails calls this instead of returning, so that no other waits for it. */
NODISCARD Err ranks_agree(Ranks *r, Err err);

#endif
