/* Functions shared by all sentences of the demo corpus: output in both languages at once, and
 * expressions of time, reason and place. Depends on demo/grammar. */
#include "demo/grammar.h"

void demo_both(const Scene *s, const char *en, const char *de) {
  demo_word(s->en, en);
  demo_word(s->de, de);
}

void demo_stop(const Scene *s, char mark) {
  demo_end(s->en, mark);
  demo_end(s->de, mark);
}

void demo_say(const Scene *s, const Clause *c, Say en, Say de) {
  demo_clause_en(s->en, c, en);
  demo_clause_de(s->de, c, de);
}

/* Returns true if the clause can become a question. With the subject "I" or "we" this requires
 * the modal can, should or have to: "should I go?", not "do I go?". */
bool demo_is_askable(const Clause *c) {
  if (c->subject.kind != NP_PRO) return true;
  if (c->subject.id != PRO_I && c->subject.id != PRO_WE) return true;
  return c->tense == T_MODAL &&
         (c->modal == M_CAN || c->modal == M_SHOULD || c->modal == M_HAVE_TO);
}

void demo_draw_circumstance(const Scene *s, Clause *c, Twin *word, bool asked) {
  static const Twin words[] = {{"when", "wann"}, {"why", "warum"}, {"where", "wo"}};
  uint32_t kind = demo_below(s->d, 3);
  bool unfit;
  do {
    *c = (Clause){.gap = kind == 2 ? GAP_PLACE : GAP_NONE};
    uint32_t how = HOW_POSITIVE | HOW_DEFINITE | HOW_HAPPENING | (kind == 0 ? HOW_TIMELESS : 0);
    demo_draw_clause(s->d, c, how);
    c->front = false;
    uint32_t flags = c->verb->flags;
    unfit = (asked && !demo_is_askable(c)) || c->manner || c->tense == T_PERFECT;
    if (kind == 0) unfit |= c->tense == T_ING || flags & (VF_STATE | VF_POSE);
    if (kind == 1)
      unfit |= flags & (VF_NOING | VF_POSE) || (flags & VF_STATE && flags & VF_DEF);
    if (kind == 2) {
      bool spot = c->verb->spots || flags & VF_POSE;
      unfit |= !spot || flags & VF_RIDE || c->mid == A_NEVER;
    }
  } while (unfit);
  *word = words[kind];
  if (kind == 2 && c->verb->frame == V_GO) word->de = "wohin";
}
