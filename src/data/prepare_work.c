/* Functions used by several steps of prepare. Depends on pipeline. */
#include "data/prepare_work.h"

#include "base/fault.h"

/* Lines of a stretch, the unit of work of a rank. The results of 8,192 lines take about 2 MB, and
 * exchanging them takes much less time than encoding them. */
#define STRETCH_LINES 8192u

PipelineSpec prepare_pipeline(const Prepare *p) {
  const Ranks *r = p->spec.ranks;
  PipelineSpec spec = {.input = p->spec.train,
                       .inputs = p->spec.trains,
                       .rules = &p->spec.rules,
                       .max_tokens = p->spec.max_tokens,
                       .drop_bad_utf8 = p->spec.drop_bad_utf8,
                       .threads = p->spec.threads};
  if (ranks_count(r) > 1) {
    spec.part.stretch = fault_number("stretch", STRETCH_LINES);
    spec.part.index = (uint32_t)r->rank;
    spec.part.count = (uint32_t)r->count;
    spec.part.lines = p->lines;
  }
  return spec;
}

Err prepare_too_many_pairs(const Prepare *p) {
  char most[32];
  return err_set(
      ERR_WORK,
      "the training text has more than %s pairs, the most that one window holds: add "
      "--window-pairs N to make several windows, and --resume to keep what is done",
      str_of_count(most, p->most_pairs));
}
