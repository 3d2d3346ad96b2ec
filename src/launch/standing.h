/* How often each machine has failed, by name, so that a machine that is lost and returns is
 * recognized. Depends on policy. */
#ifndef LAUNCH_STANDING_H
#define LAUNCH_STANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/source.h"

typedef struct {
  char name[SOURCE_NAME_MAX];
  int failures; /* number of generations in a row that failed because of it */
  bool is_set_aside;
  bool is_proven;     /* the machine has taken part in a generation */
  int refusals;       /* how often the machine could not be used */
  uint32_t last_good; /* last generation with it that completed a step; 0: none */
} Standing;

typedef struct {
  Standing *machine;
  size_t count, capacity;
} StandingList;

/* Counts a failure of the machine. `others`: number of machines that are ready without it;
 * `min`: number that is needed. Sets *is_aside if the machine has failed too often and must be
 * excluded. */
NODISCARD Err standing_note_failure(StandingList *l, const char *name, int others, int min,
                                    bool *is_aside);
/* Records that the machine could take part in a generation. */
NODISCARD Err standing_note_proven(StandingList *l, const char *name);
bool standing_is_proven(const StandingList *l, const char *name);
/* Records that a generation in which the machine takes part has completed a step. */
void standing_note_step(StandingList *l, const char *name, uint32_t generation);
/* Returns the last generation that was recorded for the machine; 0: none. */
uint32_t standing_last_good(const StandingList *l, const char *name);
/* Counts one refusal: the machine cannot be used together with the others (no GPU, no common
 * network, ranks that refuse to run with it). Its agent may connect again after a repair. After
 * the third refusal the machine is excluded, because each attempt interrupts the run. */
NODISCARD Err standing_note_refusal(StandingList *l, const char *name);
/* Resets the failure counts, because training has advanced; refusals still count. Excluded
 * machines stay excluded. */
void standing_forgive(StandingList *l);
bool standing_is_aside(const StandingList *l, const char *name);
void standing_free(StandingList *l);

#endif
