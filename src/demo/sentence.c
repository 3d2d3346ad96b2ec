/* Draws sentences with one clause: statements, questions, requests, comparisons; and selects the
 * type of each sentence by its probability. Depends on demo/grammar. */
#include "demo/grammar.h"

#define F(frame)  (1u << (frame))
#define ANY_FRAME (~F(V_BE))

static void draw_statement(const Scene *s) {
  Clause c = {0};
  demo_draw_clause(s->d, &c, 0);
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  demo_stop(s, '.');
}

static void yes_no(const Scene *s) {
  Clause c;
  do {
    c = (Clause){0};
    demo_draw_clause(
        s->d, &c,
        HOW_POSITIVE | HOW_DEFINITE | HOW_HAPPENING | (demo_chance(s->d, 50) ? HOW_SHORT : 0));
  } while (!demo_is_askable(&c) || c.mid == A_NEVER || c.verb->flags & VF_POSE);
  c.front = false;
  demo_say(s, &c, SAY_ASK, SAY_ASK);
  demo_stop(s, '?');
}

static void ask_who(const Scene *s) {
  Clause c = {.subject = {.kind = NP_WHO}, .gap = GAP_SUBJECT};
  do c.verb = demo_draw_verb(s->d, ANY_FRAME);
  while (!(c.verb->by & demo_folk));
  demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_HAPPENING);
  c.front = false;
  demo_both(s, "who", "wer");
  demo_say(s, &c, SAY_ASK, SAY_ASK);
  demo_stop(s, '?');
}

/* Draws a question for the object: what, whom, which book, how many books. */
static void ask_object(const Scene *s) {
  static const char *const which[] = {"welchen", "welche", "welches", "welche"};
  Clause c;
  do {
    c = (Clause){.gap = GAP_OBJECT};
    c.verb = demo_draw_verb(s->d, F(V_ACC) | F(V_DAT));
    demo_draw_clause(s->d, &c, HOW_POSITIVE | HOW_DEFINITE | HOW_HAPPENING);
  } while (!demo_is_askable(&c) || c.mid == A_NEVER || c.mid == A_ALREADY);
  c.front = false;
  /* Omits the time, which would give "put on on Monday". */
  if (c.verb->en_tail) c.when.kind = W_NONE;
  if (c.tense == T_PAST && c.verb->flags & VF_SAME) c.tense = T_ING;
  bool person = c.verb->of & demo_folk;
  uint32_t roll = demo_below(s->d, 100);
  if (c.verb->frame == V_DAT) {
    demo_both(s, "whom", "wem");
  } else if (person && roll < 60) {
    demo_both(s, "whom", "wen");
  } else if (roll < 40) {
    demo_both(s, "what", "was");
  } else {
    int row;
    do row = demo_draw_noun(s->d, c.verb->of, c.subject.kind == NP_NOUN ? c.subject.id : -1);
    while (demo_nouns[row].is & N_KIN);
    const Noun *noun = &demo_nouns[row];
    bool pair = noun->is & N_PAIR;
    bool many =
        !pair && roll < 70 && !(noun->is & N_MASS) && !(c.verb->flags & (VF_ONE | VF_DEF));
    if (many) {
      demo_both(s, "how many", "wie viele");
    } else {
      demo_both(s, "which", which[noun->gender]);
    }
    many |= pair;
    demo_word(s->en, many ? noun->en_pl : noun->en);
    demo_word(s->de, many ? noun->de_pl : noun->de);
    if (!many && noun->weak) demo_glue(s->de, noun->gen);
  }
  demo_say(s, &c, SAY_ASK, SAY_ASK);
  demo_stop(s, '?');
}

static void ask_circumstance(const Scene *s) {
  Clause c;
  Twin word;
  demo_draw_circumstance(s, &c, &word, true);
  demo_both(s, word.en, word.de);
  demo_say(s, &c, SAY_ASK, SAY_ASK);
  demo_stop(s, '?');
}

static void draw_request(const Scene *s) {
  Clause c = {.subject = {.kind = NP_PRO, .id = PRO_YOU}};
  do c.verb = demo_draw_verb(s->d, ANY_FRAME & ~F(V_WHERE));
  while (!(c.verb->by & demo_folk) ||
         c.verb->flags & (VF_STATE | VF_POSE | VF_NOING | VF_POINT) ||
         (c.verb->flags & VF_YEAR && !(c.verb->flags & (VF_AIM | VF_HABIT1))));
  demo_draw_clause(s->d, &c, HOW_TIMELESS | (c.verb->flags & VF_HABIT1 ? 0 : HOW_SETTLED));
  bool timed = c.verb->flags & VF_AIM || c.verb->frame == V_GO || c.verb->frame == V_BOTH;
  if (c.verb->frame == V_ACC) c.place_prep = P_NONE;
  c.tense = T_MODAL; /* Set temporarily so that demo_draw_when draws a time in the future. */
  if (!c.no && (c.verb->frame == V_PLAIN || (timed && demo_chance(s->d, 50))))
    demo_draw_when(s->d, &c);
  c.tense = T_PRESENT;
  c.mid = A_NONE;
  demo_both(s, "please", "bitte");
  if (c.no) demo_word(s->en, "do not");
  demo_say(s, &c, SAY_INF, SAY_ASK);
  demo_stop(s, '.');
}

/* Draws "there is …". German uses a verb for the position: a letter liegt (lies) on the table, a
 * bottle steht (stands). */
static void there_is(const Scene *s) {
  static const Verb flat = {.frame = V_WHERE, .flags = VF_POSE};
  static const Verb people = {.frame = V_WHERE, .spots = S_PLAY | S_WAIT | S_EAT};
  static const Verb sights = {.frame = V_WHERE, .spots = S_TOWN};
  static const Twin verbs[] = {{"liegt", "liegen"}, {"steht", "stehen"}, {"ist", "sind"}};
  Clause c = {.verb = &flat};
  Np *np = &c.subject;
  uint32_t kind = demo_below(s->d, 4);
  if (kind < 2) {
    demo_draw_np(s->d, np, kind ? N_TALL : N_FLAT, NULL, HOW_INDEFINITE);
  } else if (kind == 2) {
    demo_draw_np(s->d, np, N_HUMAN, NULL, HOW_INDEFINITE);
    c.verb = &people;
  } else {
    do demo_draw_np(s->d, np, N_SIGHT, NULL, HOW_INDEFINITE);
    while (demo_nouns[np->id].spots & S_TOWN);
    c.verb = &sights;
  }
  if (np->det == D_BARE) np->det = D_SOME;
  demo_draw_place(s->d, &c);
  if (c.place.det < D_MY) c.place.det = D_THE;
  const Noun *place = &demo_nouns[c.place.id];
  if (!np->adj && demo_chance(s->d, 50))
    np->adj = demo_draw_adj(s->d, demo_nouns[np->id].looks);
  if (!c.place.adj && demo_chance(s->d, 50)) c.place.adj = demo_draw_adj(s->d, place->looks);
  demo_word(s->en, np->plural ? "there are" : "there is");
  demo_np_en(s->en, np, false);
  demo_word(s->en, demo_preps[c.place_prep].en);
  demo_np_en(s->en, &c.place, true);
  demo_pp_de(s->de, c.place_prep, &c.place);
  if (kind == 3) {
    demo_word(s->de, "gibt es");
    demo_np_de(s->de, np, ACC);
  } else {
    demo_word(s->de, np->plural ? verbs[kind].de : verbs[kind].en);
    demo_np_de(s->de, np, NOM);
  }
  demo_stop(s, '.');
}

static void draw_looker(const Scene *s, Np *np, uint32_t is) {
  do demo_draw_np(s->d, np, is, NULL, HOW_NOUN | HOW_DEFINITE | HOW_SHORT);
  while (!demo_nouns[np->id].looks);
  if (demo_nouns[np->id].is & N_OWN && demo_chance(s->d, 15)) {
    np->det = D_NAMES;
    np->owner = 1 + (int)demo_below(s->d, (uint32_t)demo_name_count);
  }
}

static void is_adjective(const Scene *s) {
  static const Twin degrees[] = {{"very", "sehr"}, {"really", "wirklich"}, {"too", "zu"}};
  const uint32_t measure = L_SIZE | L_PRICE | L_LONG | L_HEAVY | L_HOT | L_COLD | L_YOUNG;
  Clause c = {.verb = &demo_verbs[0]};
  if (demo_chance(s->d, 25)) {
    demo_draw_np(s->d, &c.subject, demo_folk, NULL, HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT);
  } else {
    draw_looker(s, &c.subject, ~0u);
  }
  bool noun = c.subject.kind == NP_NOUN;
  do c.adj = demo_draw_adj(s->d, noun ? demo_nouns[c.subject.id].looks : L_ALIVE);
  while (demo_adjs[c.adj - 1].looks == L_KID); /* Excludes "he is little". */
  const Adj *adj = &demo_adjs[c.adj - 1];
  c.tense = demo_chance(s->d, 35) ? T_PAST : T_PRESENT;
  c.no = demo_chance(s->d, 20);
  if (adj->en_more && demo_chance(s->d, 45)) {
    c.degree = &degrees[demo_below(s->d, c.no ? 1 : adj->looks & measure ? 3 : 2)];
  }
  bool ask = !c.no && demo_is_askable(&c) && demo_chance(s->d, 15);
  demo_say(s, &c, ask ? SAY_ASK : SAY_MAIN, ask ? SAY_ASK : SAY_MAIN);
  demo_stop(s, ask ? '?' : '.');
}

/* Returns true if two noun phrases cannot be compared: "my horse is bigger than the horse". In
 * German "your car" (Ihr Auto) and "her car" (ihr Auto) also sound the same. */
static bool sounds_alike(const Np *a, const Np *b) {
  if (a->plural != b->plural && !((demo_nouns[a->id].is | demo_nouns[b->id].is) & N_PAIR)) {
    return true;
  }
  if (a->id != b->id) return false;
  return a->det == b->det || a->det == D_THE || b->det == D_THE ||
         (a->det >= D_MY && b->det >= D_MY);
}

static void draw_comparison(const Scene *s) {
  static const uint32_t kinds[] = {N_HUMAN | N_KIN, N_BEAST, N_READ, N_CLOTH,
                                   N_CAR,           N_THING, N_FURN, N_SIGHT};
  Clause c = {.verb = &demo_verbs[0]};
  uint32_t kind;
  do {
    kind = kinds[demo_below(s->d, 8)];
    draw_looker(s, &c.subject, kind);
    draw_looker(s, &c.other, kind);
    uint32_t looks =
        demo_nouns[c.subject.id].looks & demo_nouns[c.other.id].looks & ~(uint32_t)L_COLOR;
    c.adj = looks && !sounds_alike(&c.subject, &c.other) ? demo_draw_adj(s->d, looks) : 0;
  } while (!c.adj || !demo_adjs[c.adj - 1].en_more);
  if (kind == kinds[0] && demo_chance(s->d, 30)) {
    c.subject = (Np){.kind = NP_NAME, .id = (int)demo_below(s->d, (uint32_t)demo_name_count)};
  }
  c.like = demo_chance(s->d, 65) ? LIKE_MORE : LIKE_SAME;
  if (c.like == LIKE_SAME) c.no = demo_chance(s->d, 50);
  bool ask = !c.no && demo_chance(s->d, 20);
  demo_say(s, &c, ask ? SAY_ASK : SAY_MAIN, ask ? SAY_ASK : SAY_MAIN);
  demo_stop(s, ask ? '?' : '.');
}

/* Draws "His uncle is a teacher" or "Peter was a good cook". */
static void draw_profession(const Scene *s) {
  Clause c = {.verb = &demo_verbs[0]};
  Pro pro;
  do
    demo_draw_np(s->d, &c.subject, N_KIN | N_HUMAN, NULL,
                 HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT | HOW_SINGULAR);
  while (!demo_pronoun(&c.subject, &pro) || pro != PRO_HE ||
         (c.subject.kind == NP_NOUN && demo_nouns[c.subject.id].is & N_TRADE));
  c.other = (Np){.kind = NP_NOUN, .id = demo_draw_noun(s->d, N_TRADE, -1), .det = D_A};
  if (demo_chance(s->d, 60)) {
    c.other.adj = demo_draw_adj(s->d, L_GOOD | L_YOUNG | L_ADULT | L_FAMED);
  }
  if (demo_chance(s->d, 35)) c.tense = T_PAST;
  demo_say(s, &c, SAY_MAIN, SAY_MAIN);
  demo_stop(s, '.');
}

static const struct {
  void (*make)(const Scene *);
  uint32_t weight;
} kinds[] = {
    {draw_statement, 380}, {yes_no, 80},       {ask_who, 30},          {ask_object, 40},
    {draw_request, 24},    {there_is, 12},     {draw_comparison, 26},  {ask_circumstance, 40},
    {draw_profession, 4},  {is_adjective, 20}, {demo_draw_count, 120}, {demo_draw_complex, 380},
};

void demo_draw_sentence(const Scene *s) {
  uint32_t total = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) total += kinds[i].weight;
  uint32_t roll = demo_below(s->d, total);
  size_t at = 0;
  while (roll >= kinds[at].weight) roll -= kinds[at++].weight;
  kinds[at].make(s);
}
