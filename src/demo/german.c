/* Renders the clauses of the demo corpus in German: declension, position of the verb, word order
 * between the two parts of the verb. Depends on demo/grammar. */
#include <string.h>

#include "demo/grammar.h"

static const char *const article[4][4] = {
    /* Columns: masculine, feminine, neuter, plural. Rows: nominative, accusative, dative,
     * genitive. */
    {"der", "die", "das", "die"},
    {"den", "die", "das", "die"},
    {"dem", "der", "dem", "den"},
    {"des", "der", "des", "der"},
};
static const char *const ein_ending[4][4] = {
    {"", "e", "", "e"},
    {"en", "e", "", "e"},
    {"em", "er", "em", "en"},
    {"es", "er", "es", "er"},
};
static const char *const dies_ending[4][4] = {
    {"er", "e", "es", "e"},
    {"en", "e", "es", "e"},
    {"em", "er", "em", "en"},
    {"es", "er", "es", "er"},
};
/* Endings of adjectives. weak: after der and dies-. mixed: after ein-, kein- and possessives.
 * strong: without an article. */
static const char *const weak[4][4] = {
    {"e", "e", "e", "en"},
    {"en", "e", "e", "en"},
    {"en", "en", "en", "en"},
    {"en", "en", "en", "en"},
};
static const char *const mixed[4][4] = {
    {"er", "e", "es", "en"},
    {"en", "e", "es", "en"},
    {"en", "en", "en", "en"},
    {"en", "en", "en", "en"},
};
static const char *const strong[4][4] = {
    {"er", "e", "es", "e"},
    {"en", "e", "es", "e"},
    {"em", "er", "em", "en"},
    {"en", "er", "en", "er"},
};
static const char *const pro[PRO_COUNT][3] = {
    {"ich", "mich", "mir"}, {"Sie", "Sie", "Ihnen"}, {"er", "ihn", "ihm"},
    {"sie", "sie", "ihr"},  {"wir", "uns", "uns"},   {"sie", "sie", "ihnen"},
};
static const char *const my[PRO_COUNT] = {"mein", "Ihr", "sein", "ihr", "unser", "ihr"};
static const char *const mids[A_COUNT] = {"",         "oft", "immer", "manchmal",
                                          "meistens", "nie", "schon", "gerade"};

static Gender gender_of(const Np *np) {
  return np->plural ? PLUR : demo_nouns[np->id].gender;
}

static void say_noun(Out *out, const Noun *n, bool plural, Case as) {
  demo_word(out, plural ? n->de_pl : n->de);
  if (plural) {
    char last = n->de_pl[strlen(n->de_pl) - 1];
    if (as == DAT && last != 'n' && last != 's') demo_glue(out, "n");
  } else if (as == GEN || (n->weak && as != NOM)) {
    demo_glue(out, n->gen);
  }
}

/* Writes the article, unless the preposition contains it ("im" = in dem). Returns the table of
 * adjective endings that apply after this article. */
static const char *const (*write_determiner(Out *out, const Np *np, Case as, bool no,
                                            bool swallowed))[4] {
  Gender g = gender_of(np);
  const char *stem;
  if (no) {
    demo_word(out, "kein");
    demo_glue(out, ein_ending[as][g]);
    return mixed;
  }
  switch (np->det) {
    case D_BARE:
      return strong;
    case D_NAMES:
      demo_word(out, demo_names[np->owner - 1].de);
      demo_glue(out, "s");
      return strong;
    case D_THE:
      if (!swallowed) demo_word(out, article[as][g]);
      return weak;
    case D_A:
      if (np->plural) return strong;
      demo_word(out, "ein");
      demo_glue(out, ein_ending[as][g]);
      return mixed;
    case D_NUMBER:
      demo_number_de(out, np->number, "ein");
      return strong;
    case D_THIS:
      stem = "dies";
      break;
    case D_EVERY:
      stem = "jed";
      break;
    case D_ALL:
      stem = "all";
      break;
    case D_SOME:
      stem = "einig";
      break;
    case D_MANY:
      stem = "viel";
      break;
    default:
      demo_word(out, my[np->det - D_MY]);
      demo_glue(out, ein_ending[as][g]);
      return mixed;
  }
  demo_word(out, stem);
  demo_glue(out, dies_ending[as][g]);
  return np->det == D_SOME || np->det == D_MANY ? strong : weak;
}

static void say_phrase(Out *out, const Np *np, Case as, bool no, bool swallowed) {
  if (np->kind == NP_NONE) return;
  if (np->kind == NP_PRO) {
    demo_word(out, pro[np->id][as]);
    return;
  }
  if (np->kind == NP_NAME) {
    demo_word(out, demo_names[np->id].de);
    return;
  }
  const char *const(*endings)[4] = write_determiner(out, np, as, no, swallowed);
  const char *ending = endings[as][gender_of(np)];
  if (np->ordinal) demo_ordinal_de(out, np->ordinal, ending);
  if (np->adj) {
    demo_word(out, demo_adjs[np->adj - 1].stem);
    demo_glue(out, ending);
  }
  say_noun(out, &demo_nouns[np->id], np->plural, as);
  if (np->owner && np->det != D_NAMES) {
    Np owner = {
        .kind = NP_NOUN, .id = np->owner - 1, .det = np->owner_det, .plural = np->owner_plural};
    say_phrase(out, &owner, GEN, false, false);
  }
}

static void say_relative(Out *out, const Np *np) {
  const Clause *rel = np->rel;
  if (!rel) return;
  Case gap = rel->gap == GAP_SUBJECT ? NOM : rel->verb->frame == V_DAT ? DAT : ACC;
  out->comma = true;
  demo_word(out, gap == DAT && np->plural ? "denen" : article[gap][gender_of(np)]);
  demo_clause_de(out, rel, SAY_SUB);
  out->comma = true;
}

void demo_np_de(Out *out, const Np *np, Case as) {
  say_phrase(out, np, as, false, false);
}

void demo_pp_de(Out *out, PrepId id, const Np *np) {
  const Prep *prep = &demo_preps[id];
  bool plain = np->kind == NP_NOUN && np->det == D_THE && !np->plural && !np->rel;
  bool in = !strcmp(prep->de, "in"), an = !strcmp(prep->de, "an"), zu = !strcmp(prep->de, "zu");
  Gender g = np->kind == NP_NOUN ? gender_of(np) : MASC;
  const char *joined = NULL;
  if (plain && prep->of == DAT && g != FEM) {
    joined = in ? "im" : an ? "am" : zu ? "zum" : NULL;
  } else if (plain && prep->of == DAT && zu) {
    joined = "zur";
  } else if (plain && prep->of == ACC && g == NEUT) {
    joined = in ? "ins" : an ? "ans" : NULL;
  }
  demo_word(out, joined ? joined : prep->de);
  say_phrase(out, np, prep->of, false, joined != NULL);
}

/* Selects the verb form by agreement: first person singular, third person singular, or plural. */
static const char *pick_form(Agr agr, const char *ich, const char *er, const char *sie) {
  return agr == AGR_I ? ich : agr == AGR_HE ? er : sie;
}

static const char *modal_form(const Clause *c, Agr agr) {
  switch (c->modal) {
    case M_CAN:
      return pick_form(agr, "kann", "kann", "können");
    case M_MUST: /* "must not" expresses a prohibition, in German "darf nicht". */
      if (c->no) return pick_form(agr, "darf", "darf", "dürfen");
      return pick_form(agr, "muss", "muss", "müssen");
    case M_HAVE_TO:
      return pick_form(agr, "muss", "muss", "müssen");
    case M_WANT:
      return pick_form(agr, "will", "will", "wollen");
    case M_SHOULD:
      return pick_form(agr, "sollte", "sollte", "sollten");
    case M_LIKE:
      return pick_form(agr, "möchte", "möchte", "möchten");
    case M_WILL:
      return pick_form(agr, "werde", "wird", "werden");
    default:
      return pick_form(agr, "darf", "darf", "dürfen");
  }
}

static const char *finite_form(const Clause *c, Agr agr) {
  const Verb *v = c->verb;
  bool is = v->frame == V_BE;
  switch (c->tense) {
    case T_MODAL:
      return modal_form(c, agr);
    case T_PAST:
      if (is) return pick_form(agr, "war", "war", "waren");
      /* fall through */
    case T_PERFECT:
      if (v->flags & VF_SEIN) return pick_form(agr, "bin", "ist", "sind");
      return pick_form(agr, "habe", "hat", "haben");
    default:
      return pick_form(agr, v->ich, v->er, is ? "sind" : v->de);
  }
}

static bool is_bracketed(const Clause *c) {
  if (c->tense == T_MODAL || c->tense == T_PERFECT) return true;
  return c->tense == T_PAST && c->verb->frame != V_BE;
}

static bool is_definite(const Np *np) {
  return np->kind != NP_NOUN || !(np->det == D_BARE || np->det == D_A || np->det == D_NUMBER ||
                                  np->det == D_SOME || np->det == D_MANY);
}

static void say_predicate(Out *out, const Clause *c) {
  if (!c->adj) {
    /* A profession without an adjective has no article in German: er ist Lehrer. */
    if (c->other.kind == NP_NOUN && !c->other.adj && c->other.det == D_A) {
      say_noun(out, &demo_nouns[c->other.id], c->other.plural, NOM);
    } else {
      demo_np_de(out, &c->other, NOM);
    }
    return;
  }
  const Adj *adj = &demo_adjs[c->adj - 1];
  if (c->like == LIKE_MORE) {
    demo_word(out, adj->de_more);
    demo_word(out, "als");
  } else if (c->like == LIKE_SAME) {
    demo_word(out, c->no ? "so" : "genauso");
    demo_word(out, adj->de);
    demo_word(out, "wie");
  } else {
    if (c->degree) demo_word(out, c->degree->de);
    demo_word(out, adj->de);
  }
  demo_np_de(out, &c->other, NOM);
}

/* Writes the German middle field, the words between the two parts of the verb, except `said`,
 * which is already written: pronouns, persons, time, objects, negation, manner, place. "nie",
 * "schon" and "nicht" follow a definite object and precede an indefinite one; "kein" already
 * contains the negation. */
static void say_middle_field(Out *out, const Clause *c, const Np *said) {
  const Verb *v = c->verb;
  Case as = v->frame == V_DAT ? DAT : ACC;
  bool object = c->object.kind && c->gap != GAP_OBJECT && !v->prep && &c->object != said;
  bool pronoun = object && c->object.kind == NP_PRO;
  bool indefinite = object && !is_definite(&c->object);
  bool kein = c->no && indefinite && (c->object.det == D_A || c->object.det == D_BARE);
  bool late = c->mid == A_NEVER || c->mid == A_ALREADY || c->mid == A_JUST;

  if (pronoun) demo_np_de(out, &c->object, as);
  if (&c->person != said) demo_np_de(out, &c->person, DAT);
  if (!late) demo_word(out, mids[c->mid]);
  if (!c->front) demo_when_de(out, &c->when);
  if (object && !pronoun && !indefinite) demo_np_de(out, &c->object, as);
  if (late) demo_word(out, mids[c->mid]);
  if (c->no) {
    if (c->tense == T_PERFECT) demo_word(out, "noch");
    if (!kein) demo_word(out, "nicht");
  }
  bool place = c->place_prep && c->gap != GAP_PLACE;
  if (place && indefinite && v->frame != V_PUT) {
    /* A place precedes an indefinite object: "kauft in der Stadt Milch". */
    demo_pp_de(out, c->place_prep, &c->place);
    place = false;
  }
  if (indefinite) say_phrase(out, &c->object, as, kein, false);
  if (v->frame == V_BE) say_predicate(out, c);
  if (c->manner) demo_word(out, c->manner->de);
  if (c->ride.kind) demo_pp_de(out, P_BY, &c->ride);
  if (v->prep && c->gap != GAP_OBJECT && c->object.kind) demo_pp_de(out, v->prep, &c->object);
  if (place) demo_pp_de(out, c->place_prep, &c->place);
  if (v->de_tail) demo_word(out, v->de_tail);
}

/* Returns the object pronoun that precedes a noun subject after the verb, as in "Heute hilft ihm
 * die Frau". Returns NULL for sie and Sie, which could be read as the subject. */
static const Np *early_pronoun(const Clause *c) {
  const Verb *v = c->verb;
  if (c->gap == GAP_SUBJECT || c->subject.kind == NP_PRO || v->prep) return NULL;
  if (c->person.kind == NP_PRO) return &c->person;
  if (c->object.kind != NP_PRO || c->gap == GAP_OBJECT) return NULL;
  int id = c->object.id;
  bool clear = v->frame == V_DAT || id == PRO_I || id == PRO_HE || id == PRO_WE;
  return clear ? &c->object : NULL;
}

void demo_clause_de(Out *out, const Clause *c, Say say) {
  const Verb *v = c->verb;
  bool subject = c->gap != GAP_SUBJECT && say != SAY_INF;
  Agr agr = demo_agr(&c->subject);
  if (c->front) {
    demo_when_de(out, &c->when);
    if (say == SAY_MAIN) say = SAY_ASK;
  }
  const Np *early = say == SAY_ASK ? early_pronoun(c) : NULL;
  if (say == SAY_ASK) demo_word(out, finite_form(c, agr));
  if (early) demo_np_de(out, early, early == &c->person || v->frame == V_DAT ? DAT : ACC);
  if (subject) {
    demo_np_de(out, &c->subject, NOM);
    say_relative(out, &c->subject);
  }
  if (say == SAY_MAIN) demo_word(out, finite_form(c, agr));
  say_middle_field(out, c, early);
  if (say == SAY_INF) {
    if (*v->prefix) {
      demo_word(out, v->prefix);
      demo_glue(out, "zu");
    } else {
      demo_word(out, "zu");
      demo_space(out);
    }
    demo_glue(out, v->de);
    return;
  }
  bool two = is_bracketed(c);
  if (two && c->tense != T_MODAL) {
    demo_word(out, v->de_part);
  } else if (two) {
    demo_word(out, v->prefix);
    *v->prefix ? demo_glue(out, v->de) : demo_word(out, v->de);
  }
  if (say == SAY_SUB) {
    if (!two && *v->prefix) {
      demo_word(out, v->prefix);
      demo_glue(out, finite_form(c, agr));
    } else {
      demo_word(out, finite_form(c, agr));
    }
  } else if (!two) {
    demo_word(out, v->prefix);
  }
  /* The relative clause of the object follows the whole verb: "Er ruft den Mann an, der …". */
  say_relative(out, &c->object);
}
