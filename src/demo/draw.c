/* Draws random noun phrases and clauses that make sense: objects fit verbs, adjectives fit
 * nouns, times fit tenses. Depends on demo/grammar. */
#include "demo/grammar.h"

const uint32_t demo_folk = N_HUMAN | N_KIN;

/* Returns a random number below n. The generator has 64 bits, so the bias of such a small modulus
 * is negligible. */
uint32_t demo_below(Rng *d, uint32_t n) {
  return (uint32_t)(rng_next(d) % n);
}

bool demo_chance(Rng *d, uint32_t percent) {
  return demo_below(d, 100) < percent;
}

int demo_draw_noun(Rng *d, uint32_t is, int except) {
  uint8_t rows[128] = {0};
  uint32_t count = 0;
  for (int i = 0; i < demo_noun_count; i++) {
    rows[count] = (uint8_t)i;
    count += (demo_nouns[i].is & is) && i != except;
  }
  return rows[demo_below(d, count)];
}

static int draw_spot(Rng *d, uint32_t spots) {
  uint8_t rows[128] = {0};
  uint32_t count = 0;
  for (int i = 0; i < demo_noun_count; i++) {
    rows[count] = (uint8_t)i;
    count += (demo_nouns[i].spots & spots) != 0;
  }
  return rows[demo_below(d, count)];
}

int demo_draw_adj(Rng *d, uint32_t looks) {
  uint8_t rows[64];
  uint32_t count = 0;
  for (int i = 0; i < demo_adj_count; i++) {
    rows[count] = (uint8_t)i;
    count += (demo_adjs[i].looks & looks) != 0;
  }
  return count ? rows[demo_below(d, count)] + 1 : 0;
}

const Verb *demo_draw_verb(Rng *d, uint32_t frames) {
  for (;;) {
    const Verb *verb = &demo_verbs[1 + demo_below(d, (uint32_t)demo_verb_count - 1)];
    if (frames >> verb->frame & 1) return verb;
  }
}

bool demo_pronoun(const Np *np, Pro *pro) {
  if (np->kind == NP_PRO) {
    *pro = (Pro)np->id;
  } else if (np->kind == NP_NAME) {
    *pro = demo_names[np->id].woman ? PRO_SHE : PRO_HE;
  } else if (np->kind != NP_NOUN) {
    return false;
  } else {
    const Noun *noun = &demo_nouns[np->id];
    bool doubt = !(noun->is & demo_folk) || np->det == D_EVERY;
    if (doubt || (!np->plural && noun->is & N_CHILD)) return false;
    *pro = np->plural ? PRO_THEY : noun->gender == FEM ? PRO_SHE : PRO_HE;
  }
  return true;
}

/* Draws a possessive ("my", "his"); in most cases it refers to the subject. */
static int draw_my(Rng *d, const Np *subject) {
  Pro pro;
  if (subject && demo_pronoun(subject, &pro) && demo_chance(d, 65)) return D_MY + (int)pro;
  return D_MY + (int)demo_below(d, PRO_COUNT);
}

/* Draws an object pronoun. Excludes "I … me", and two of the pronouns sie (she), sie (they) and
 * Sie (you) in one clause. */
static int draw_object_pro(Rng *d, const Np *subject) {
  static const uint8_t group[PRO_COUNT] = {0, 1, 2, 1, 0, 1};
  Pro by;
  bool known = subject && demo_pronoun(subject, &by);
  for (;;) {
    int pro = (int)demo_below(d, PRO_COUNT);
    if (!known || subject->kind != NP_PRO || group[pro] != group[by] || group[pro] == 2) {
      return pro;
    }
  }
}

static void draw_owner(Rng *d, Np *np, const Np *subject) {
  bool kin = demo_nouns[np->id].is & N_KIN;
  if (demo_chance(d, 35)) {
    np->det = D_NAMES;
    np->owner = 1 + (int)demo_below(d, (uint32_t)demo_name_count);
    if (subject && subject->kind == NP_NAME && subject->id == np->owner - 1) {
      np->owner = 1 + np->owner % demo_name_count;
    }
    return;
  }
  int row;
  do {
    row = demo_draw_noun(d, kin ? N_HUMAN : demo_folk, np->id);
  } while (subject && subject->kind == NP_NOUN && subject->id == row);
  const Noun *owner = &demo_nouns[row];
  np->det = D_THE;
  np->owner = row + 1;
  np->owner_det = owner->is & N_KIN ? D_MY + (int)demo_below(d, PRO_COUNT) : D_THE;
  np->owner_plural = owner->is & N_PAIR || (!(owner->is & N_ONE) && demo_chance(d, 20));
}

static void draw_definite(Rng *d, Np *np, const Np *subject, uint32_t how) {
  uint32_t is = demo_nouns[np->id].is;
  bool own = is & N_OWN && !(how & HOW_NOMY);
  /* True for persons such as friend or neighbour, who usually have a possessive. */
  bool close = own && is & N_HUMAN && !(is & (N_TRADE | N_CHILD));
  uint32_t roll = demo_below(d, 100);
  if (own && !(how & HOW_SHORT) && demo_chance(d, 12)) {
    draw_owner(d, np, subject);
  } else if (is & N_KIN || (own && roll < (close ? 75 : 40))) {
    np->det = draw_my(d, subject);
  } else {
    np->det = roll < 85 || close ? D_THE : D_THIS;
  }
}

static void draw_indefinite(Rng *d, Np *np, uint32_t how) {
  uint32_t is = demo_nouns[np->id].is;
  uint32_t roll = demo_below(d, 100);
  if (!np->plural) {
    np->det = is & N_MASS ? D_BARE : D_A;
    if (how & HOW_SUBJECT && is & N_HUMAN && roll < 30) np->det = D_EVERY;
  } else if (is & N_PAIR || (how & HOW_NEGATED)) {
    np->det = D_BARE;
  } else if (how & HOW_SUBJECT) {
    np->det = roll < 35 ? D_SOME : roll < 60 ? D_MANY : roll < 75 ? D_ALL : D_NUMBER;
  } else {
    np->det = roll < 35 ? D_BARE : roll < 50 ? D_SOME : roll < 65 ? D_MANY : D_NUMBER;
  }
  if (np->det == D_NUMBER) np->number = 2 + demo_below(d, demo_chance(d, 80) ? 11 : 19);
}

void demo_draw_np(Rng *d, Np *np, uint32_t is, const Np *subject, uint32_t how) {
  *np = (Np){0};
  if (is & demo_folk && !(how & (HOW_NOUN | HOW_INDEFINITE))) {
    uint32_t roll = demo_below(d, 100);
    uint32_t pros = how & HOW_NOPRO ? 0 : how & HOW_SUBJECT ? 26 : 14;
    if (roll < pros) {
      np->kind = NP_PRO;
      np->id = how & HOW_SUBJECT ? (int)demo_below(d, PRO_COUNT) : draw_object_pro(d, subject);
      return;
    }
    if (roll < pros + 12) {
      np->kind = NP_NAME;
      np->id = (int)demo_below(d, (uint32_t)demo_name_count);
      if (subject && subject->kind == NP_NAME && subject->id == np->id) {
        np->id = (np->id + 1) % demo_name_count;
      }
      return;
    }
  }
  np->kind = NP_NOUN;
  if (how & HOW_INDEFINITE) is &= ~(uint32_t)N_KIN;
  np->id = demo_draw_noun(d, is, subject && subject->kind == NP_NOUN ? subject->id : -1);
  const Noun *noun = &demo_nouns[np->id];
  bool more = how & HOW_PLURAL || (!(how & HOW_SINGULAR) && demo_chance(d, 26));
  np->plural = noun->is & N_PAIR || (more && !(noun->is & (N_MASS | N_ONE)));
  bool definite = demo_chance(d, how & HOW_SUBJECT ? 78 : noun->is & N_MASS ? 40 : 58);
  if (how & HOW_DEFINITE || noun->is & N_KIN) definite = true;
  if (how & HOW_INDEFINITE) definite = false;
  if (definite) {
    draw_definite(d, np, subject, how);
  } else {
    draw_indefinite(d, np, how);
  }
  if (how & HOW_SHORT || np->det == D_EVERY) return;
  bool thing = !(noun->is & (demo_folk | N_MASS | N_BEAST));
  bool counts = thing && !np->plural && !np->owner && np->det == D_THE;
  if (counts && demo_chance(d, 5)) {
    np->ordinal = 1 + demo_below(d, 10);
  } else if (demo_chance(d, noun->is & N_KIN ? 15 : 42)) {
    np->adj = demo_draw_adj(d, noun->looks);
  }
}

void demo_draw_place(Rng *d, Clause *c) {
  const Verb *v = c->verb;
  Np *np = &c->place;
  *np = (Np){.kind = NP_NOUN, .det = D_THE};
  if (v->frame == V_PUT || v->flags & VF_POSE) {
    static const PrepId rest[6] = {P_ON, P_ON, P_UNDER, P_BESIDE, P_FRONT, P_BEHIND};
    static const PrepId goal[6] = {P_PUT_ON,     P_PUT_ON,    P_PUT_UNDER,
                                   P_PUT_BESIDE, P_PUT_FRONT, P_PUT_BEHIND};
    const Np *thing = v->frame == V_PUT ? &c->object : &c->subject;
    uint32_t is = demo_nouns[thing->id].is;
    /* True for animals and for objects such as a suitcase, which may also be in front of or
     * behind something. */
    bool about = is & N_BEAST || (is & N_TALL && is & N_OWN);
    uint32_t kinds = about ? 6 : 4;
    c->place_prep = (v->frame == V_PUT ? goal : rest)[demo_below(d, kinds)];
    bool on = c->place_prep == P_ON || c->place_prep == P_PUT_ON;
    do {
      np->id = demo_draw_noun(d, N_FURN, thing->id);
      /* Excludes tall objects on soft furniture, such as a bottle on a bed. */
    } while (on && is & N_TALL && !(demo_nouns[np->id].is & N_FIX));
  } else {
    np->id = draw_spot(d, v->spots);
    c->place_prep = v->frame == V_GO ? demo_nouns[np->id].to : demo_nouns[np->id].at;
  }
  uint32_t roll = demo_below(d, 100);
  if (demo_nouns[np->id].is & N_OWN && roll < 22) {
    np->det = draw_my(d, &c->subject);
  } else if (roll < 34) {
    bool town = demo_nouns[np->id].spots & S_TOWN && v->frame != V_WHERE;
    np->det = v->frame == V_GO || town ? D_THIS : D_A;
  } else if (roll < 40) {
    np->det = D_THIS;
  }
  if (demo_chance(d, 38)) np->adj = demo_draw_adj(d, demo_nouns[np->id].looks);
}

static void draw_clock(Rng *d, When *w) {
  if (demo_chance(d, 25)) {
    *w = (When){W_CLOCK24, 6 + (int)demo_below(d, 17), (int)demo_below(d, 60), 0};
  } else {
    *w = (When){W_CLOCK, 1 + (int)demo_below(d, 12), 5 * (int)demo_below(d, 12), 0};
  }
}

static void draw_date(Rng *d, When *w, bool past) {
  int month = (int)demo_below(d, 12);
  int day = 1 + (int)demo_below(d, (uint32_t)demo_month_days(month));
  uint32_t roll = demo_below(d, 100);
  if (roll < 45) {
    *w = (When){W_DATE, day, month, 0};
  } else if (roll < 75 || !past) {
    *w = (When){W_DAYDATE, day, month, (int)demo_below(d, 7)};
  } else {
    *w = (When){W_FIGDATE, day, month, 1990 + (int)demo_below(d, 35)};
  }
}

static void draw_fixed_time(Rng *d, When *w, int from, int to) {
  *w = (When){W_FIXED, from + (int)demo_below(d, (uint32_t)(to - from)), 0, 0};
}

void demo_draw_when(Rng *d, Clause *c) {
  When *w = &c->when;
  uint32_t roll = demo_below(d, 100);
  bool year = c->verb->flags & VF_YEAR;
  bool dated = year || c->verb->flags & VF_AIM || c->verb->by & N_BUS ||
               c->verb->frame == V_GO || c->verb->frame == V_BOTH;
  switch (c->tense) {
    case T_ING:
      draw_fixed_time(d, w, TIMES_NOW, TIMES_FUTURE);
      break;
    case T_PAST:
      if (roll < 40) {
        draw_fixed_time(d, w, TIMES_PAST, year ? TIMES_END : TIMES_LONGAGO);
      } else if (roll < 55) {
        *w = (When){W_AGO, 2 + (int)demo_below(d, 11),
                    (int)demo_below(d, year ? UNITS_COUNT : 2), 0};
      } else if (roll < 70 || !dated) {
        *w = (When){W_DAY, (int)demo_below(d, 7), 0, 0};
      } else if (year && roll < 85) {
        *w = (When){roll < 80 ? W_YEAR : W_YEARWORDS, 1970 + (int)demo_below(d, 55), 0, 0};
      } else if (year && roll < 90) {
        *w = (When){W_MONTH, (int)demo_below(d, 12), 0, 0};
      } else {
        draw_date(d, w, true);
      }
      break;
    case T_MODAL:
      if (roll < 40) {
        draw_fixed_time(d, w, TIMES_FUTURE, TIMES_PAST);
      } else if (roll < 60) {
        draw_clock(d, w);
      } else if (roll < 75) {
        *w = (When){W_DAY, (int)demo_below(d, 7), 0, 0};
      } else if (roll < 85 || !dated) {
        *w = (When){W_DAYCLOCK, 1 + (int)demo_below(d, 12), 5 * (int)demo_below(d, 12),
                    (int)demo_below(d, 7)};
      } else {
        draw_date(d, w, false);
      }
      break;
    default:
      /* These verbs take a clock time instead of "every day". */
      if (c->verb->flags & VF_POINT) roll = 45 + roll / 4;
      if (roll < 45) {
        draw_fixed_time(d, w, TIMES_HABIT, TIMES_NOW);
      } else if (roll < 70) {
        draw_clock(d, w);
      } else if (roll < 82 || !(year || c->verb->frame == V_GO)) {
        *w = (When){W_EVERY, (int)demo_below(d, 7), 0, 0};
      } else {
        *w = (When){W_SEASON, (int)demo_below(d, 4), 0, 0};
      }
  }
}

Tense demo_draw_tense(Rng *d, const Verb *v, uint32_t how) {
  if (v->flags & VF_STATE || v->frame == V_BE) return T_PRESENT;
  if (v->flags & VF_POSE) return T_ING;
  uint32_t roll = demo_below(d, 100);
  if (how & HOW_PAST) return T_PAST;
  if (how & HOW_PRESENT) roll %= 46;
  if (how & HOW_HAPPENING && v->flags & VF_NOING && roll < 46) return T_PAST;
  if (v->flags & VF_NOING && roll < 46) return T_PRESENT;
  if (roll < 28 && v->flags & (VF_HABIT | VF_HABIT1)) return T_PRESENT;
  if (roll < 46) return T_ING;
  if (roll < 66 || (roll < 76 && v->flags & VF_LASTS)) return T_PAST;
  if (roll < 76) return T_PERFECT;
  return v->flags & VF_NOMODAL ? T_PAST : T_MODAL;
}

/* Draws adverbs and times that the tense and the verb allow. Returns true if the sentence
 * describes a habit. */
static bool draw_adverbs(Rng *d, Clause *c, bool people, uint32_t how) {
  /* True for verbs that sound incomplete without an adverb or a time. */
  bool alone = c->verb->flags & VF_POINT || c->verb->de_tail;
  bool habitual = c->verb->flags & (VF_HABIT | VF_HABIT1);
  switch (c->tense) {
    case T_PRESENT:
      if (!habitual || c->no) return false;
      if (demo_chance(d, 35) && !(c->verb->flags & VF_POINT)) {
        c->mid = (Mid)(A_OFTEN + (int)demo_below(d, people ? 5 : 4));
        return true;
      }
      if (!demo_chance(d, 65) && c->verb->frame != V_PLAIN) return false;
      demo_draw_when(d, c);
      return true;
    case T_ING:
      if (demo_chance(d, alone ? 70 : 30)) demo_draw_when(d, c);
      return false;
    case T_PERFECT:
      if (c->no) return false;
      if (demo_chance(d, 75)) c->mid = demo_chance(d, 60) ? A_ALREADY : A_JUST;
      if (people && demo_chance(d, 15)) c->mid = A_NEVER;
      return false;
    case T_PAST:
      if (demo_chance(d, alone ? 90 : 75) || c->verb->flags & VF_SAME) demo_draw_when(d, c);
      return false;
    default:
      if (demo_chance(d, alone ? 80 : how & HOW_SHORT ? 20 : 45)) demo_draw_when(d, c);
      return false;
  }
}

static const Twin manners[] = {{"well", "gut"}, {"a lot", "viel"}, {"badly", "schlecht"}};

void demo_draw_clause(Rng *d, Clause *c, uint32_t how) {
  if (!c->verb) c->verb = demo_draw_verb(d, ~(1u << V_BE));
  const Verb *v = c->verb;
  c->tense = demo_draw_tense(d, v, how);
  if (how & HOW_TIMELESS && c->tense == T_PAST && v->flags & VF_SAME) c->tense = T_PERFECT;
  if (!(how & HOW_POSITIVE) && demo_chance(d, 13)) c->no = true;
  if (v->flags & VF_NONEG) c->no = false;
  if (v->flags & VF_POINT && c->tense == T_PRESENT && (c->no || how & HOW_TIMELESS)) {
    c->tense = T_ING;
  }
  uint32_t short_too = how & HOW_SHORT;
  if (!c->subject.kind) {
    uint32_t subject_how = HOW_SUBJECT | short_too | (how & (HOW_NOPRO | HOW_DEFINITE));
    if (c->no || how & HOW_GENDERED || v->flags & VF_POSE) subject_how |= HOW_DEFINITE;
    Pro pro;
    do demo_draw_np(d, &c->subject, v->by, NULL, subject_how);
    while (how & HOW_GENDERED && !demo_pronoun(&c->subject, &pro));
  }
  bool people = c->subject.kind != NP_NOUN || demo_nouns[c->subject.id].is & demo_folk;
  c->modal = people ? (Modal)demo_below(d, M_COUNT) : M_WILL;
  if (c->modal == M_MUST && !demo_chance(d, 50)) c->modal = M_WILL;
  if (v->flags & VF_NOING && c->modal != M_WANT && c->modal != M_WILL) c->modal = M_CAN;
  bool habit = how & HOW_TIMELESS ? false : draw_adverbs(d, c, people, how);

  uint32_t object_how = short_too | (c->no ? HOW_NEGATED : 0);
  if (v->flags & VF_DEF || how & HOW_SETTLED || v->frame == V_PREP || v->frame == V_PUT)
    object_how |= HOW_DEFINITE;
  if (v->flags & VF_ANY || ((habit || how & HOW_HABITUAL) && v->flags & VF_HABIT1))
    object_how |= HOW_INDEFINITE;
  if (v->flags & VF_NOMY) object_how |= HOW_NOMY;
  bool several = c->subject.kind == NP_NOUN
                     ? c->subject.plural
                     : c->subject.kind == NP_PRO && c->subject.id >= PRO_WE;
  if (v->of == N_BUS) object_how |= HOW_SINGULAR;
  if (v->flags & VF_ONE) object_how |= several ? HOW_PLURAL : HOW_SINGULAR;
  switch (v->frame) {
    case V_BOTH:
      demo_draw_np(d, &c->person, demo_folk, &c->subject, HOW_DEFINITE | HOW_SHORT);
      demo_draw_np(d, &c->object, v->of, &c->subject, object_how);
      /* Excludes "gives her books", in which "her" is ambiguous. */
      if (c->object.det == D_BARE) c->object.det = D_THE;
      break;
    case V_PUT:
      object_how |= HOW_NOUN; /* fall through */
    case V_ACC:
    case V_DAT:
    case V_PREP:
      if (c->gap != GAP_OBJECT) demo_draw_np(d, &c->object, v->of, &c->subject, object_how);
      break;
    default:
      break;
  }
  bool room = v->frame == V_PLAIN ? demo_chance(d, 55) : demo_chance(d, short_too ? 0 : 14);
  if (v->frame == V_WHERE || v->frame == V_GO || v->frame == V_PUT) room = true;
  if (v->spots || v->frame == V_PUT || v->flags & VF_POSE) {
    if (room && c->gap != GAP_PLACE) demo_draw_place(d, c);
  }
  if (v->frame == V_PLAIN && v->spots && !v->en_tail && people && !c->place_prep &&
      demo_chance(d, 45)) {
    c->manner = &manners[demo_below(d, c->tense == T_MODAL ? 2 : 3)];
  }
  if (v->flags & VF_RIDE) {
    c->ride = (Np){.kind = NP_NOUN, .id = demo_draw_noun(d, v->of, -1), .det = D_THE};
  }
  if (c->when.kind && !(how & HOW_TIMELESS)) c->front = c->no || demo_chance(d, 45);
}
