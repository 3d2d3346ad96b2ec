/* How often machines have failed, by name, so that one which is lost and comes back is known.
 * Depends on policy. */
#ifndef LAUNCH_STANDING_H
#define LAUNCH_STANDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "launch/source.h"

typedef struct {
  char name[SOURCE_NAME_MAX];
  int failures; /* generations in a row that failed because of it */
  bool is_set_aside;
} Standing;

typedef struct {
  Standing *machine;
  size_t count, capacity;
} StandingList;

/* Counts a failure of the machine; `others` are ready without it, `min` are needed. *is_aside: it
 * has failed too often and is not to be used any more. */
NODISCARD Err standing_note_failure(StandingList *l, const char *name, int others, int min,
                                    bool *is_aside);
/* Training has advanced: earlier failures no longer count. Machines set aside stay so. */
void standing_forgive(StandingList *l);
bool standing_is_aside(const StandingList *l, const char *name);
void standing_free(StandingList *l);

#endif
