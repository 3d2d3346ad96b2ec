/* The ranks that prepare one data set together. Their collectives are passed in as function
 * pointers, because data must not depend on comm; a single process passes NULL. Every rank must
 * call the same functions in the same order. Depends on base. */
#ifndef DATA_RANKS_H
#define DATA_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  int rank, count;
  /* Set by ranks_agree: every rank has the error, and rank 0 reports it. */
  bool has_agreed_error;
  /* first argument of the functions, which correspond to those of comm/comm.h */
  void *context;
  const char *(*host)(void *context, int rank);
  void (*report)(void *context, const char *place);
  void (*broadcast)(void *context, const char *name, void *bytes, size_t n);
  void (*allgather)(void *context, const char *name, void *all, const size_t *off);
  void (*exchange)(void *context, const char *name, const void *const *send,
                   const size_t *send_n, void *const *recv, const size_t *recv_n);
} Ranks;

int ranks_count(const Ranks *r);     /* Returns the number of ranks; 1 for NULL. */
bool ranks_is_first(const Ranks *r); /* Returns true on rank 0 and for a single process. */
/* Reports the current activity of this rank, for the error messages of other ranks. The activity
 * may take any time. */
void ranks_report(const Ranks *r, const char *place);
/* Broadcasts n bytes from rank 0 to every rank. */
void ranks_broadcast(const Ranks *r, const char *name, void *bytes, size_t n);
/* Gathers n bytes from each rank; all: (count * n), by rank. */
NODISCARD Err ranks_gather(const Ranks *r, const char *name, const void *mine, size_t n,
                           void *all);
/* Returns on all ranks the error of the lowest rank that passed one, with that rank's name. A
 * rank that fails must call this function instead of returning, so that the other ranks do not
 * wait for it. */
NODISCARD Err ranks_agree(Ranks *r, Err err);

#endif
