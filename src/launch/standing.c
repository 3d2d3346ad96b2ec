/* Counts failures by machine. Depends on policy. */
#include "launch/standing.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/policy.h"

#define REFUSALS_MAX 3

static Standing *find_machine(const StandingList *l, const char *name) {
  for (size_t i = 0; i < l->count; i++)
    if (strcmp(l->machine[i].name, name) == 0) return &l->machine[i];
  return NULL;
}

static Err get_machine(StandingList *l, const char *name, Standing **m) {
  *m = find_machine(l, name);
  if (*m) return ERR_OK;
  TRY(mem_grow(&l->machine, &l->capacity, l->count + 1, sizeof *l->machine));
  *m = &l->machine[l->count++];
  **m = (Standing){0};
  snprintf((*m)->name, sizeof(*m)->name, "%s", name);
  return ERR_OK;
}

Err standing_note_failure(StandingList *l, const char *name, int others, int min,
                          bool *is_aside) {
  Standing *m;
  *is_aside = false;
  TRY(get_machine(l, name, &m));
  m->failures++;
  m->is_set_aside = m->is_set_aside || policy_sets_aside(m->failures, others, min);
  *is_aside = m->is_set_aside;
  return ERR_OK;
}

Err standing_note_proven(StandingList *l, const char *name) {
  Standing *m;
  TRY(get_machine(l, name, &m));
  m->is_proven = true;
  return ERR_OK;
}

bool standing_is_proven(const StandingList *l, const char *name) {
  const Standing *m = find_machine(l, name);
  return m && m->is_proven;
}

void standing_note_step(StandingList *l, const char *name, uint32_t generation) {
  Standing *m = find_machine(l, name);
  if (m) m->last_good = generation;
}

uint32_t standing_last_good(const StandingList *l, const char *name) {
  const Standing *m = find_machine(l, name);
  return m ? m->last_good : 0;
}

Err standing_note_refusal(StandingList *l, const char *name) {
  Standing *m;
  TRY(get_machine(l, name, &m));
  m->refusals++;
  m->is_set_aside = m->is_set_aside || m->refusals >= REFUSALS_MAX;
  return ERR_OK;
}

void standing_forgive(StandingList *l) {
  for (size_t i = 0; i < l->count; i++) l->machine[i].failures = 0;
}

bool standing_is_aside(const StandingList *l, const char *name) {
  const Standing *m = find_machine(l, name);
  return m && m->is_set_aside;
}

void standing_free(StandingList *l) {
  mem_free(l->machine);
  *l = (StandingList){0};
}
