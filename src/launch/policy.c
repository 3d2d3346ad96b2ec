/* Decides whether a launch is restarted after a failure, and which machines are excluded. */
#include "launch/policy.h"

Decision policy_judge(Policy *p, Outcome outcome) {
  switch (outcome) {
    case OUTCOME_DONE:
    case OUTCOME_STATUS:
    case OUTCOME_USER:
      return POLICY_END;
    case OUTCOME_NOT_BEGUN:
    case OUTCOME_FINAL:
      return POLICY_FAIL;
    case OUTCOME_MEMBERS:
      return POLICY_RESTART;
    case OUTCOME_FAILED:
    case OUTCOME_NO_RANK:
      break;
  }
  int allowed = p->max_restarts;
  if (outcome == OUTCOME_NO_RANK && allowed < POLICY_NO_RANK_RESTARTS)
    allowed = POLICY_NO_RANK_RESTARTS;
  p->failures++;
  return p->failures > allowed ? POLICY_FAIL : POLICY_RESTART;
}

void policy_note_step(Policy *p, uint64_t step) {
  if (step > p->last_step && p->last_step) p->failures = 0;
  if (step > p->last_step) p->last_step = step;
}

bool policy_sets_aside(int failures, int others, int min) {
  return failures >= 2 && others >= min && others > 0;
}

GatherDecision policy_gather(const Gathering *g) {
  bool is_enough = g->ready >= g->min && g->ready > 0;
  if (g->ready >= g->max) return GATHER_BEGIN;
  if (is_enough && !g->is_first) return GATHER_BEGIN;
  if (is_enough && g->since_change >= GATHER_LAST_CALL) return GATHER_BEGIN;
  if (g->waited < g->join_timeout) return GATHER_WAIT;
  return is_enough ? GATHER_BEGIN : GATHER_GIVE_UP;
}
