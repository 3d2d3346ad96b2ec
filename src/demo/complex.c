/* Draws sentences with two clauses for the demo corpus, connected by that, whether, because,
 * although, when, while, before, who or to. Depends on demo/grammar. */
#include "demo/grammar.h"

#define F(frame)  (1u << (frame))
#define ANY_FRAME (~F(V_BE))

/* Adds a conjunction and a subordinate clause. German requires a comma before the conjunction;
 * English has none. */
static void say_subordinate(const Scene *s, const char *en, const char *de, const Clause *c) {
  s->de->comma = true;
  demo_both(s, en, de);
  demo_say(s, c, SAY_SUB, SAY_SUB);
}

/* Verbs that take a clause or an infinitive instead of an object. */
enum { KNOW, BELIEVE, HOPE, SAY, THINK, HEADS };
static const Verb heads[HEADS] = {
    {"know", "knows", "", "knew", "known", 0, "", "wissen", "weiß", "weiß", "gewusst", 0,
     V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
    {"believe", "believes", "", "believed", "believed", 0, "", "glauben", "glaube", "glaubt",
     "geglaubt", 0, V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
    {"hope", "hopes", "", "hoped", "hoped", 0, "", "hoffen", "hoffe", "hofft", "gehofft", 0,
     V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
    {"say", "says", "", "said", "said", 0, "", "sagen", "sage", "sagt", "gesagt", 0, V_PLAIN,
     VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
    {"think", "thinks", "", "thought", "thought", 0, "", "denken", "denke", "denkt", "gedacht",
     0, V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
};
static const Verb asking = {
    "ask",     "asks", "",      "asked",  "asked",         0, "", "fragen", "frage", "fragt",
    "gefragt", 0,      V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0,  0};
enum { TRY, HOPE_TO, FORGET, TRYING };
static const Verb trying[TRYING] = {
    {"try", "tries", "trying", "tried", "tried", 0, "", "versuchen", "versuche", "versucht",
     "versucht", 0, V_PLAIN, 0, N_HUMAN | N_KIN, 0, 0, 0},
    {"hope", "hopes", "hoping", "hoped", "hoped", 0, "", "hoffen", "hoffe", "hofft", "gehofft",
     0, V_PLAIN, VF_STATE, N_HUMAN | N_KIN, 0, 0, 0},
    {"forget", "forgets", "forgetting", "forgot", "forgotten", 0, "", "vergessen", "vergesse",
     "vergisst", "vergessen", 0, V_PLAIN, VF_NOING, N_HUMAN | N_KIN, 0, 0, 0},
};

/* Adds a short main clause in the present tense: "The teacher knows". */
static Np say_main_clause(const Scene *s, const Verb *verb, bool no) {
  Clause c = {.verb = verb, .no = no};
  demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_DEFINITE | HOW_TIMELESS);
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  return c.subject;
}

static bool is_same_np(const Np *a, const Np *b) {
  return a->kind && a->kind == b->kind && a->kind != NP_PRO && a->id == b->id;
}

/* Returns true if `np` occurs in the clause. Two clauses must not name the same person, because
 * the second mention would have to be a pronoun. */
static bool has_np(const Clause *c, const Np *np) {
  return is_same_np(np, &c->subject) || is_same_np(np, &c->object) ||
         is_same_np(np, &c->person);
}

/* Draws a subordinate clause that does not name `on` and does not begin with a time. */
static void draw_hanging(const Scene *s, Clause *c, const Np *on, uint32_t how) {
  do {
    *c = (Clause){0};
    demo_draw_clause(s->d, c, how | HOW_SHORT | HOW_DEFINITE | HOW_HAPPENING);
  } while (has_np(c, on));
  c->front = false;
  if (!c->no || !c->when.kind) return;
  /* German places the time differently if the object is negated, so the time is omitted. */
  c->when.kind = W_NONE;
  if (c->tense == T_PAST && c->verb->flags & VF_SAME) c->tense = T_PERFECT;
}

static void draw_that(const Scene *s) {
  Clause c;
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 50) {
    uint32_t which = demo_below(s->d, HEADS);
    Np who = say_main_clause(s, &heads[which], false);
    if (which == HOPE) {
      do draw_hanging(s, &c, &who, HOW_POSITIVE | HOW_PRESENT | HOW_TIMELESS);
      while (c.verb->flags & (VF_STATE | VF_POSE | VF_NOMODAL));
      c.tense = T_MODAL;
      c.modal = demo_chance(s->d, 70) ? M_WILL : M_CAN;
      c.mid = A_NONE;
    } else {
      draw_hanging(s, &c, &who, 0);
    }
    say_subordinate(s, "that", "dass", &c);
  } else if (roll < 75) {
    bool know = demo_chance(s->d, 50);
    Np who = say_main_clause(s, know ? &heads[KNOW] : &asking, know);
    do draw_hanging(s, &c, &who, HOW_POSITIVE);
    while (c.mid == A_NEVER);
    say_subordinate(s, "whether", "ob", &c);
  } else {
    Twin word;
    Np who = say_main_clause(s, &heads[KNOW], demo_chance(s->d, 50));
    do demo_draw_circumstance(s, &c, &word, false);
    while (has_np(&c, &who));
    say_subordinate(s, word.en, word.de, &c);
  }
  demo_stop(s, '.');
}

static int draw_state(const Scene *s, bool hungry) {
  int adj;
  do adj = demo_draw_adj(s->d, L_ALIVE | (hungry ? L_KID : 0u));
  while (!demo_adjs[adj - 1].state);
  return adj;
}

/* Adds a clause with "because" or "although": he is tired, he has no time, it is raining. */
static void add_reason(const Scene *s, const Clause *main, const char *en, const char *de) {
  static const struct {
    Twin now, past;
  } facts[] = {
      {{"it is raining", "es regnet"}, {"it was raining", "es geregnet hat"}},
      {{"it is cold", "es kalt ist"}, {"it was cold", "es kalt war"}},
      {{"it is late", "es spät ist"}, {"it was late", "es spät war"}},
      {{"the weather is bad", "das Wetter schlecht ist"},
       {"the weather was bad", "das Wetter schlecht war"}},
  };
  static const Twin very = {"very", "sehr"};
  bool past = main->tense == T_PAST || main->tense == T_PERFECT;
  Pro pro;
  bool known = demo_pronoun(&main->subject, &pro);
  uint32_t roll = demo_below(s->d, 100);
  if (!known || roll < 30) {
    uint32_t fact = demo_below(s->d, 4);
    const Twin *t = past ? &facts[fact].past : &facts[fact].now;
    s->de->comma = true;
    demo_both(s, en, de);
    demo_both(s, t->en, t->de);
    return;
  }
  Np he = {.kind = NP_PRO, .id = (int)pro};
  if (roll < 70) {
    Clause c = {.verb = &demo_verbs[0], .subject = he, .tense = past ? T_PAST : T_PRESENT};
    c.adj = draw_state(s, false);
    if (demo_chance(s->d, 30)) c.degree = &very;
    say_subordinate(s, en, de, &c);
    return;
  }
  Agr agr = demo_agr(&he);
  bool time = roll < 85;
  s->de->comma = true;
  demo_both(s, en, de);
  demo_np_en(s->en, &he, false);
  demo_np_de(s->de, &he, NOM);
  demo_word(s->en, past ? "had" : agr == AGR_HE ? "has" : "have");
  demo_both(s, time ? "no time" : "a lot of work", time ? "keine Zeit" : "viel Arbeit");
  if (past) {
    demo_word(s->de, agr == AGR_PL ? "hatten" : "hatte");
  } else {
    demo_word(s->de, agr == AGR_I ? "habe" : agr == AGR_HE ? "hat" : "haben");
  }
}

/* Draws two clauses: somebody goes to a place (`c`) in order to do something there (`aim`). */
static void draw_aim(const Scene *s, Clause *c, Clause *aim) {
  Pro pro = PRO_HE;
  *aim = (Clause){0};
  do aim->verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT) | F(V_PREP));
  while (!(aim->verb->flags & VF_AIM));
  bool shop = aim->verb->spots & S_SHOP;
  do {
    *c = (Clause){0};
    do c->verb = demo_draw_verb(s->d, F(V_GO));
    while (c->verb->by & N_BEAST);
    demo_draw_clause(s->d, c, HOW_POSITIVE | HOW_GENDERED | HOW_SHORT | HOW_TIMELESS);
  } while (shop && !(demo_nouns[c->place.id].spots & S_SHOP));
  c->mid = A_NONE;
  /* Cannot fail: HOW_GENDERED draws only subjects that have a pronoun. */
  (void)demo_pronoun(&c->subject, &pro);
  aim->subject = (Np){.kind = NP_PRO, .id = (int)pro};
  demo_draw_clause(s->d, aim, HOW_POSITIVE | HOW_TIMELESS);
  aim->place_prep = P_NONE;
  aim->mid = A_NONE;
}

static void draw_because(const Scene *s) {
  Clause c = {0}, why;
  if (demo_chance(s->d, 40)) { /* "He is going to the shop because he wants to buy bread." */
    draw_aim(s, &c, &why);
    c.tense = T_ING;
    demo_say(s, &c, SAY_MAIN, SAY_MAIN);
    why.tense = T_MODAL;
    why.modal = demo_chance(s->d, 60) ? M_WANT : M_HAVE_TO;
    say_subordinate(s, "because", "weil", &why);
  } else {
    /* "He stays at home because …" or "He is not buying bread because …". */
    c.no = demo_chance(s->d, 60);
    do
      c.verb =
          demo_draw_verb(s->d, c.no ? F(V_ACC) | F(V_DAT) | F(V_PREP) | F(V_GO) : F(V_PLAIN));
    while (c.no ? c.verb->flags & (VF_STATE | VF_NOING | VF_NONEG) || c.verb->by & N_BEAST
                : !c.verb->de_tail);
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_GENDERED | HOW_SHORT);
    if (c.tense == T_PERFECT) c.tense = T_ING;
    c.mid = A_NONE;
    demo_say(s, &c, SAY_MAIN, SAY_MAIN);
    add_reason(s, &c, "because", "weil");
  }
  demo_stop(s, '.');
}

static void draw_although(const Scene *s) {
  Clause c = {0};
  do c.verb = demo_draw_verb(s->d, ANY_FRAME);
  while (c.verb->flags & (VF_STATE | VF_POSE | VF_NOING | VF_POINT) || c.verb->de_tail ||
         c.verb->by & (N_BEAST | N_KID));
  demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_GENDERED | HOW_SHORT | HOW_TIMELESS);
  c.mid = A_NONE;
  if (c.tense == T_PERFECT) c.tense = T_ING;
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  add_reason(s, &c, "although", "obwohl");
  demo_stop(s, '.');
}

/* Draws "When it rains, …" or "If your brother is tired, he …". */
static void when_if(const Scene *s) {
  static const Twin weather[] = {{"it rains", "es regnet"},
                                 {"it is cold", "es kalt ist"},
                                 {"the sun shines", "die Sonne scheint"},
                                 {"the weather is good", "das Wetter gut ist"},
                                 {"the weather is bad", "das Wetter schlecht ist"}};
  bool if_ = demo_chance(s->d, 50), tired = false;
  Clause c = {0}, main = {0};
  demo_both(s, if_ ? "if" : "when", "wenn");
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 35) {
    const Twin *w = &weather[demo_below(s->d, 5)];
    demo_both(s, w->en, w->de);
  } else if (roll < 60) {
    Pro pro = PRO_HE;
    tired = true;
    c.verb = &demo_verbs[0];
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_GENDERED | HOW_TIMELESS);
    (void)demo_pronoun(&c.subject, &pro);
    main.subject = (Np){.kind = NP_PRO, .id = (int)pro};
    c.adj = draw_state(s, false);
    demo_say(s, &c, SAY_SUB, SAY_SUB);
  } else {
    do c.verb = demo_draw_verb(s->d, F(V_PLAIN));
    while (!(c.verb->flags & VF_POINT) || !(c.verb->by & demo_folk));
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_DEFINITE | HOW_TIMELESS);
    c.tense = T_PRESENT;
    c.mid = A_NONE;
    c.place_prep = P_NONE;
    demo_say(s, &c, SAY_SUB, SAY_SUB);
  }
  s->en->comma = s->de->comma = true;
  /* The subject is a pronoun if it is already fixed; otherwise it is drawn with the clause. */
  Np subject = main.subject;
  do {
    main = (Clause){.subject = subject};
    for (bool unfit = true; unfit;) {
      main.verb = demo_draw_verb(s->d, tired ? F(V_PLAIN) : ANY_FRAME);
      uint32_t flags = main.verb->flags;
      bool rest = main.verb->de_tail || main.verb->spots & S_SLEEP;
      unfit = (tired && !rest) || !(main.verb->by & demo_folk) ||
              flags & (VF_STATE | VF_POSE | VF_NOING | VF_POINT) ||
              (!if_ && !(flags & (VF_HABIT | VF_HABIT1)));
    }
    uint32_t how = HOW_SHORT | HOW_DEFINITE | HOW_TIMELESS;
    if (tired || !if_) how |= HOW_POSITIVE;
    if (!if_) how |= HOW_HABITUAL;
    demo_draw_clause(s->d, &main, how);
  } while (has_np(&main, &c.subject));
  main.mid = !if_ && demo_chance(s->d, 50) ? (Mid)(A_OFTEN + (int)demo_below(s->d, 4)) : A_NONE;
  main.tense = if_ ? T_MODAL : T_PRESENT;
  if (main.modal == M_LIKE) main.modal = M_WILL;
  demo_say(s, &main, SAY_MAIN, SAY_ASK);
  demo_stop(s, '.');
}

static void draw_lasting(const Scene *s, Clause *c, const Clause *other) {
  do {
    *c = (Clause){0};
    do c->verb = demo_draw_verb(s->d, F(V_PLAIN) | F(V_ACC) | F(V_PREP) | F(V_DAT));
    while (c->verb->flags & (VF_STATE | VF_NOING | VF_SEIN));
    demo_draw_clause(s->d, c, HOW_POSITIVE | HOW_SHORT | HOW_DEFINITE | HOW_TIMELESS);
  } while (other && (has_np(c, &other->subject) || has_np(other, &c->subject)));
  c->mid = A_NONE;
  c->tense = T_ING;
}

static void while_(const Scene *s) {
  Clause c, other;
  draw_lasting(s, &c, NULL);
  draw_lasting(s, &other, &c);
  if (demo_chance(s->d, 50)) {
    demo_say(s, &c, SAY_MAIN, SAY_MAIN);
    say_subordinate(s, "while", "während", &other);
  } else {
    demo_both(s, "while", "während");
    demo_say(s, &c, SAY_SUB, SAY_SUB);
    s->en->comma = s->de->comma = true;
    demo_say(s, &other, SAY_MAIN, SAY_ASK);
  }
  demo_stop(s, '.');
}

static void draw_before(const Scene *s) {
  /* Excludes "before he gets up", because hardly any activity precedes getting up. */
  const Verb *getting_up = &demo_verbs[demo_verb("get", "up")];
  Clause c = {0}, next = {0};
  Pro pro = PRO_HE;
  do c.verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT) | F(V_PREP) | F(V_BOTH));
  while (c.verb->flags & (VF_STATE | VF_SAME));
  demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_GENDERED | HOW_SHORT | HOW_TIMELESS);
  c.mid = A_NONE;
  c.tense = demo_chance(s->d, 60) || !(c.verb->flags & VF_HABIT) ? T_PAST : T_PRESENT;
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  (void)demo_pronoun(&c.subject, &pro);
  next.subject = (Np){.kind = NP_PRO, .id = (int)pro};
  do next.verb = demo_draw_verb(s->d, F(V_PLAIN) | F(V_GO));
  while (!(next.verb->flags & VF_SEIN) || next.verb->flags & VF_LASTS ||
         !(next.verb->by & demo_folk) || next.verb == getting_up);
  demo_draw_clause(s->d, &next, HOW_POSITIVE | HOW_SHORT | HOW_TIMELESS);
  next.mid = A_NONE;
  next.tense = c.tense;
  say_subordinate(s, "before", "bevor", &next);
  demo_stop(s, '.');
}

/* Draws a noun phrase with a relative clause: "the man who …", "the book that …". */
static void draw_relative(const Scene *s, Np *np, Clause *rel, bool people) {
  const uint32_t plain = HOW_NOUN | HOW_DEFINITE | HOW_SHORT | HOW_NOMY;
  *rel = (Clause){0};
  if (people && demo_chance(s->d, 70)) {
    do rel->verb = demo_draw_verb(s->d, ANY_FRAME);
    while (!(rel->verb->by & (N_HUMAN | N_GROWN)));
    demo_draw_np(s->d, np, rel->verb->by & (N_HUMAN | N_GROWN), NULL, plain);
    np->det = D_THE;
    rel->subject = *np;
    demo_draw_clause(s->d, rel, HOW_POSITIVE | HOW_SHORT | HOW_HAPPENING);
    rel->gap = GAP_SUBJECT;
  } else {
    uint32_t of = people ? N_HUMAN : ~demo_folk;
    do rel->verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT));
    while (!(rel->verb->of & of) || rel->verb->flags & VF_ANY);
    do demo_draw_np(s->d, np, rel->verb->of & of, NULL, plain);
    while (demo_nouns[np->id].is & N_KIN);
    np->det = D_THE;
    rel->gap = GAP_OBJECT;
    demo_draw_np(s->d, &rel->subject, demo_folk, np, HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT);
    demo_draw_clause(s->d, rel, HOW_POSITIVE | HOW_SHORT | HOW_HAPPENING);
    rel->place_prep = P_NONE;
    if (rel->tense == T_PRESENT && rel->verb->flags & VF_HABIT1) {
      rel->tense = T_ING; /* Excludes "the apple that he eats every day". */
      rel->mid = A_NONE;
      rel->when.kind = W_NONE;
    }
  }
  rel->front = false;
  np->rel = rel;
}

static void draw_relative_sentence(const Scene *s) {
  Clause c = {0}, rel;
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 40) { /* Pattern: "I know the man who …". */
    do c.verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT));
    while (!(c.verb->of & N_HUMAN));
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_DEFINITE | HOW_TIMELESS);
    c.place_prep = P_NONE;
    c.mid = A_NONE;
    if (c.tense == T_PERFECT) c.tense = T_PRESENT;
    do draw_relative(s, &c.object, &rel, true);
    while (is_same_np(&c.subject, &c.object) || has_np(&rel, &c.subject));
  } else if (roll < 80) { /* Pattern: "The book that … is interesting." */
    c.verb = &demo_verbs[0];
    do {
      draw_relative(s, &c.subject, &rel, demo_chance(s->d, 40));
      c.adj = demo_draw_adj(s->d, demo_nouns[c.subject.id].looks);
    } while (!c.adj || demo_adjs[c.adj - 1].looks == L_KID);
    c.tense = rel.tense == T_PAST && demo_chance(s->d, 50) ? T_PAST : T_PRESENT;
  } else { /* Pattern: "The man who … lives in the city." */
    do c.verb = demo_draw_verb(s->d, F(V_WHERE) | F(V_GO));
    while (!(c.verb->by & N_HUMAN));
    do draw_relative(s, &c.subject, &rel, true);
    while (rel.verb->frame == V_WHERE || rel.verb->frame == V_GO);
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_TIMELESS);
  }
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  demo_stop(s, '.');
}

/* Draws a sentence with an infinitive: "tries to …", "hopes to …", "forgot to …", "It is
 * important to …". */
static void to_do(const Scene *s) {
  Clause c = {0}, deed;
  bool hope = false;
  if (demo_chance(s->d, 25)) {
    static const Twin judgements[] = {{"important", "wichtig"},
                                      {"easy", "leicht"},
                                      {"difficult", "schwierig"},
                                      {"possible", "möglich"}};
    const Twin *j = &judgements[demo_below(s->d, 4)];
    demo_both(s, "it is", "es ist");
    demo_both(s, j->en, j->de);
    c.subject = (Np){.kind = NP_PRO, .id = PRO_I};
  } else {
    uint32_t which = demo_below(s->d, TRYING);
    hope = which == HOPE_TO;
    c.verb = &trying[which];
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_SHORT | HOW_TIMELESS | HOW_DEFINITE);
    if (which == TRY) c.tense = demo_chance(s->d, 50) ? T_ING : T_PAST;
    if (which == FORGET) c.tense = T_PAST;
    c.mid = A_NONE;
    demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  }
  deed = (Clause){.subject = c.subject};
  do deed.verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT) | F(V_BOTH) | F(V_PREP) | F(V_PUT));
  while (deed.verb->flags & (VF_STATE | VF_NOING | VF_LASTS | (hope ? VF_SAME | VF_DEF : 0u)));
  demo_draw_clause(s->d, &deed,
                   HOW_POSITIVE | HOW_TIMELESS | (demo_chance(s->d, 60) ? HOW_SHORT : 0));
  demo_word(s->en, "to");
  s->de->comma = true;
  deed.mid = A_NONE;
  demo_say(s, &deed, SAY_INF, SAY_INF);
  demo_stop(s, '.');
}

static void in_order_to(const Scene *s) {
  Clause c, deed;
  draw_aim(s, &c, &deed);
  if (c.tense == T_PERFECT) c.tense = T_PAST;
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  s->de->comma = true;
  demo_both(s, "in order to", "um");
  demo_say(s, &deed, SAY_INF, SAY_INF);
  demo_stop(s, '.');
}

void demo_draw_complex(const Scene *s) {
  static const struct {
    void (*make)(const Scene *);
    uint32_t weight;
  } kinds[] = {
      {draw_that, 80},   {draw_because, 45}, {draw_although, 20},          {when_if, 45},
      {while_, 25},      {draw_before, 20},  {draw_relative_sentence, 60}, {to_do, 35},
      {in_order_to, 15},
  };
  uint32_t total = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) total += kinds[i].weight;
  uint32_t roll = demo_below(s->d, total);
  size_t at = 0;
  while (roll >= kinds[at].weight) roll -= kinds[at++].weight;
  kinds[at].make(s);
}
