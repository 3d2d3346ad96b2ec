/* What several steps of prepare need. Depends on pipeline. */
#include "data/prepare_work.h"

PipelineSpec prepare_pipeline(const Prepare *p) {
  return (PipelineSpec){.input = p->spec.train,
                        .inputs = p->spec.trains,
                        .rules = &p->spec.rules,
                        .max_tokens = p->spec.max_tokens,
                        .drop_bad_utf8 = p->spec.drop_bad_utf8,
                        .threads = p->spec.threads};
}

Err prepare_too_many_pairs(const Prepare *p) {
  char most[32];
  return err_set(
      ERR_WORK,
      "the training text has more than %s pairs, the most that one window holds: add "
      "--window-pairs N to make several windows, and --resume to keep what is done",
      str_of_count(most, p->most_pairs));
}
