/* Renders the clauses of the demo corpus in English. Depends on demo/grammar. */
#include <string.h>

#include "demo/grammar.h"

static const char *const pro_subject[PRO_COUNT] = {"I", "you", "he", "she", "we", "they"};
static const char *const pro_object[PRO_COUNT] = {"me", "you", "him", "her", "us", "them"};
static const char *const pro_my[PRO_COUNT] = {"my", "your", "his", "her", "our", "their"};
static const char *const mids[A_COUNT] = {"",        "often", "always",  "sometimes",
                                          "usually", "never", "already", "just"};

Agr demo_agr(const Np *np) {
  if (np->kind == NP_NAME || np->kind == NP_WHO) return AGR_HE;
  if (np->kind == NP_PRO) {
    return np->id == PRO_I ? AGR_I : np->id == PRO_HE || np->id == PRO_SHE ? AGR_HE : AGR_PL;
  }
  return np->plural ? AGR_PL : AGR_HE;
}

static bool has_initial_vowel(const char *word) {
  return strchr("aeiou", word[0]) != NULL;
}

static void say_possessive(Out *out, const Np *np) {
  if (np->det == D_NAMES) {
    demo_word(out, demo_names[np->owner - 1].en);
    demo_glue(out, "'s");
    return;
  }
  const Noun *owner = &demo_nouns[np->owner - 1];
  demo_word(out, np->owner_det == D_THE ? "the" : pro_my[np->owner_det - D_MY]);
  const char *word = np->owner_plural ? owner->en_pl : owner->en;
  demo_word(out, word);
  demo_glue(out, word[strlen(word) - 1] == 's' ? "'" : "'s");
}

static void say_relative(Out *out, const Np *np) {
  bool human = demo_nouns[np->id].is & (N_HUMAN | N_KIN);
  if (np->rel->gap == GAP_SUBJECT) {
    demo_word(out, human ? "who" : "that");
  } else {
    demo_word(out, human ? "whom" : "that");
  }
  demo_clause_en(out, np->rel, SAY_SUB);
}

void demo_np_en(Out *out, const Np *np, bool object) {
  if (np->kind == NP_NONE) return;
  if (np->kind == NP_PRO) {
    demo_word(out, (object ? pro_object : pro_subject)[np->id]);
    return;
  }
  if (np->kind == NP_NAME) {
    demo_word(out, demo_names[np->id].en);
    return;
  }
  const char *noun = np->plural ? demo_nouns[np->id].en_pl : demo_nouns[np->id].en;
  const char *adj = np->adj ? demo_adjs[np->adj - 1].en : NULL;
  if (np->owner) {
    say_possessive(out, np);
  } else {
    switch (np->det) {
      case D_BARE:
        break;
      case D_THE:
        demo_word(out, "the");
        break;
      case D_A:
        demo_word(out, np->plural ? "" : has_initial_vowel(adj ? adj : noun) ? "an" : "a");
        break;
      case D_THIS:
        demo_word(out, np->plural ? "these" : "this");
        break;
      case D_EVERY:
        demo_word(out, "every");
        break;
      case D_SOME:
        demo_word(out, "some");
        break;
      case D_MANY:
        demo_word(out, "many");
        break;
      case D_ALL:
        demo_word(out, "all");
        break;
      case D_NUMBER:
        demo_number_en(out, np->number);
        break;
      default:
        demo_word(out, pro_my[np->det - D_MY]);
    }
  }
  if (np->ordinal) demo_ordinal_en(out, np->ordinal);
  if (adj) demo_word(out, adj);
  demo_word(out, noun);
  if (np->rel) say_relative(out, np);
}

/* Forms of the auxiliary verbs to be, to have and to do. */
static const char *form_of_be(Agr agr) {
  return agr == AGR_I ? "am" : agr == AGR_HE ? "is" : "are";
}
static const char *form_of_have(Agr agr) {
  return agr == AGR_HE ? "has" : "have";
}
static const char *form_of_do(Agr agr) {
  return agr == AGR_HE ? "does" : "do";
}

typedef struct {
  const char *aux, *tail, *verb; /* Parts of a verb group: "does" [not] | "want to" | "buy". */
} Group;

static Group modal_group(const Clause *c, Agr agr, bool needs_do) {
  const char *base = c->verb->en;
  switch (c->modal) {
    case M_CAN:
      return (Group){"can", "", base};
    case M_MUST:
      return (Group){"must", "", base};
    case M_SHOULD:
      return (Group){"should", "", base};
    case M_WILL:
      return (Group){"will", "", base};
    case M_LIKE:
      return (Group){"would", "like to", base};
    case M_ALLOWED:
      return (Group){form_of_be(agr), "allowed to", base};
    case M_WANT:
      if (needs_do) return (Group){form_of_do(agr), "want to", base};
      return (Group){"", agr == AGR_HE ? "wants to" : "want to", base};
    default:
      if (needs_do) return (Group){form_of_do(agr), "have to", base};
      return (Group){"", agr == AGR_HE ? "has to" : "have to", base};
  }
}

static Group verb_group(const Clause *c, Agr agr, bool needs_do) {
  const Verb *v = c->verb;
  if (v->frame == V_BE && c->tense == T_PRESENT) return (Group){form_of_be(agr), "", ""};
  if (v->frame == V_BE && c->tense == T_PAST) {
    return (Group){agr == AGR_PL ? "were" : "was", "", ""};
  }
  switch (c->tense) {
    case T_ING:
      return (Group){form_of_be(agr), "", v->en_ing};
    case T_PERFECT:
      return (Group){form_of_have(agr), "", v->en_part};
    case T_MODAL:
      return modal_group(c, agr, needs_do);
    case T_PAST:
      if (needs_do) return (Group){"did", "", v->en};
      return (Group){"", "", v->en_past};
    default:
      if (needs_do) return (Group){form_of_do(agr), "", v->en};
      return (Group){"", "", agr == AGR_HE ? v->en_s : v->en};
  }
}

static void say_predicate(Out *out, const Clause *c) {
  if (!c->adj) {
    demo_np_en(out, &c->other, false);
    return;
  }
  const Adj *adj = &demo_adjs[c->adj - 1];
  if (c->like == LIKE_MORE) {
    demo_word(out, adj->en_more);
    demo_word(out, "than");
  } else if (c->like == LIKE_SAME) {
    demo_word(out, "as");
    demo_word(out, adj->en);
    demo_word(out, "as");
  } else {
    if (c->degree) demo_word(out, c->degree->en);
    demo_word(out, adj->en);
  }
  demo_np_en(out, &c->other, false);
}

/* Adds everything that follows the verb. */
static void say_complements(Out *out, const Clause *c) {
  const Verb *v = c->verb;
  const char *tail = v->en_tail ? v->en_tail : "";
  bool object = c->gap != GAP_OBJECT;
  if (v->frame == V_BE) say_predicate(out, c);
  if (v->flags & VF_SPLIT && c->object.kind == NP_PRO) {
    if (object) demo_np_en(out, &c->object, true);
    demo_word(out, tail);
  } else {
    demo_word(out, tail);
    demo_np_en(out, &c->person, true);
    if (v->prep) demo_word(out, demo_preps[v->prep].en);
    if (object) demo_np_en(out, &c->object, true);
  }
  if (c->manner) demo_word(out, c->manner->en);
  if (c->place_prep && c->gap != GAP_PLACE) {
    demo_word(out, demo_preps[c->place_prep].en);
    demo_np_en(out, &c->place, true);
  }
  if (c->ride.kind) {
    demo_word(out, "by");
    demo_word(out, demo_nouns[c->ride.id].en);
  }
}

void demo_clause_en(Out *out, const Clause *c, Say say) {
  bool subject = c->gap != GAP_SUBJECT && say != SAY_INF;
  if (c->front) {
    demo_when_en(out, &c->when);
    if (c->when.kind != W_FIXED) out->comma = true;
  }
  if (say == SAY_INF) {
    demo_word(out, c->verb->en);
    say_complements(out, c);
  } else {
    bool ask = say == SAY_ASK && c->gap != GAP_SUBJECT;
    Agr agr = demo_agr(&c->subject);
    Group g = verb_group(c, agr, ask || c->no);
    if (ask) demo_word(out, g.aux);
    if (subject) demo_np_en(out, &c->subject, false);
    if (c->no && !strcmp(g.aux, "can")) {
      demo_word(out, "cannot");
    } else {
      if (!ask) demo_word(out, g.aux);
      if (c->no) demo_word(out, c->tense == T_PERFECT ? "not yet" : "not");
    }
    demo_word(out, mids[c->mid]);
    demo_word(out, g.tail);
    demo_word(out, g.verb);
    say_complements(out, c);
  }
  if (!c->front) demo_when_en(out, &c->when);
}
