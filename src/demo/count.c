/* Draws sentences of the demo corpus with numbers: bare numbers, sums, prices, ages, clock times,
 * dates, years. Depends on demo/grammar. */
#include "demo/grammar.h"

static void say_np(const Scene *s, const Np *np) {
  demo_np_en(s->en, np, false);
  demo_np_de(s->de, np, NOM);
}

static void say_number(const Scene *s, uint32_t n) {
  demo_number_en(s->en, n);
  demo_number_de(s->de, n, "eins");
}

/* Draws a number; small numbers are more frequent than large ones. */
static uint32_t draw_number(const Scene *s) {
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 30) return 2 + demo_below(s->d, 98);
  if (roll < 75) return 100 + demo_below(s->d, 900);
  if (roll < 94) return 1000 + demo_below(s->d, 9000);
  return 10000 + demo_below(s->d, 990000);
}

/* Draws a number of objects. Excludes numbers such as 101 and 201, for which German usage
 * varies. */
static uint32_t draw_amount(const Scene *s) {
  uint32_t n;
  do n = draw_number(s);
  while (n % 100 == 1);
  return n;
}

static void draw_bare_number(const Scene *s) {
  uint32_t n;
  do n = draw_number(s);
  while (n < 100 || n % 100 == 0);
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 40) {
    say_number(s, n);
  } else if (roll < 70) {
    demo_both(s, "the number is", "die Zahl ist");
    say_number(s, n);
  } else {
    n = n % 1000 ? n % 1000 : 342;
    demo_both(s, "the", "der");
    demo_ordinal_en(s->en, n);
    demo_ordinal_de(s->de, n, "e");
    if (roll < 85) {
      demo_both(s, "day", "Tag");
    } else {
      demo_both(s, "guest", "Gast");
    }
    demo_both(s, "was", "war");
    static const Twin how[] = {{"very important", "sehr wichtig"},
                               {"the best", "der beste"},
                               {"the last", "der letzte"}};
    const Twin *t = &how[demo_below(s->d, 3)];
    demo_both(s, t->en, t->de);
  }
  demo_stop(s, '.');
}

static void draw_sum(const Scene *s) {
  uint32_t a = 1 + demo_below(s->d, 60), b = 1 + demo_below(s->d, 60);
  if (a == b) a++;
  bool plus = demo_chance(s->d, 60);
  if (!plus && a < b) {
    uint32_t t = a;
    a = b;
    b = t;
  }
  say_number(s, a);
  demo_both(s, plus ? "plus" : "minus", plus ? "plus" : "minus");
  say_number(s, b);
  demo_both(s, "is", "ist");
  say_number(s, plus ? a + b : a - b);
  demo_stop(s, '.');
}

static void draw_price(const Scene *s, Price *p, int row) {
  uint32_t is = demo_nouns[row].is;
  *p = (Price){0};
  p->figures = demo_chance(s->d, 40);
  if (is & N_HOUSE) {
    p->euros = 1000 * (50 + demo_below(s->d, 850));
  } else if (is & (N_CAR | N_FURN | N_FIX)) {
    p->euros = 10 * (5 + demo_below(s->d, is & N_CAR && is & N_WASH ? 1500 : 90));
  } else if (is & (N_FOOD | N_DRINK) || (is & N_READ && !(is & N_PAGES)) ||
             demo_nouns[row].looks & L_FRESH) {
    p->euros = 1 + demo_below(s->d, 9);
    p->cents = 5 * demo_below(s->d, 20);
  } else {
    p->euros = 5 + demo_below(s->d, is & N_PAGES ? 60 : 300);
    p->cents = demo_chance(s->d, 30) ? 2 + demo_below(s->d, 98) : 0;
  }
  if (p->euros > 1 && p->euros % 100 == 1) p->euros++;
  if (p->figures && p->euros >= 1000) p->cents = 0;
}

static void draw_price_sentence(const Scene *s) {
  Np thing;
  Price p;
  demo_draw_np(s->d, &thing, N_SHOPPED, NULL, HOW_DEFINITE | HOW_NOUN | HOW_SINGULAR);
  draw_price(s, &p, thing.id);
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 4) {
    demo_both(s, "how much", "wie viel");
    demo_word(s->en, thing.plural ? "do" : "does");
    demo_word(s->de, thing.plural ? "kosten" : "kostet");
    say_np(s, &thing);
    demo_word(s->en, "cost");
    demo_end(s->en, '?');
    demo_end(s->de, '?');
    return;
  }
  if (roll < 65) {
    say_np(s, &thing);
    demo_word(s->en, thing.plural ? "cost" : "costs");
    demo_word(s->de, thing.plural ? "kosten" : "kostet");
    demo_price_en(s->en, &p);
    demo_price_de(s->de, &p);
  } else {
    static const Verb pay = {"pay",   "pays",     "paying",        "paid",    "paid",    0,
                             "",      "bezahlen", "bezahle",       "bezahlt", "bezahlt", 0,
                             V_PLAIN, 0,          N_HUMAN | N_KIN, 0,         0,         0};
    Clause c = {.verb = &pay, .tense = roll < 85 ? T_PAST : T_MODAL, .modal = M_MUST};
    demo_draw_np(s->d, &c.subject, N_HUMAN | N_KIN, NULL,
                 HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT);
    thing.adj = 0;
    demo_clause_en(s->en, &c, SAY_MAIN);
    demo_price_en(s->en, &p);
    demo_word(s->en, "for");
    demo_np_en(s->en, &thing, true);
    /* In German the participle or infinitive follows the price: "hat zehn Euro bezahlt". */
    Agr agr = demo_agr(&c.subject);
    demo_np_de(s->de, &c.subject, NOM);
    if (c.tense == T_PAST) {
      demo_word(s->de, agr == AGR_I ? "habe" : agr == AGR_HE ? "hat" : "haben");
    } else {
      demo_word(s->de, agr == AGR_PL ? "müssen" : "muss");
    }
    demo_price_de(s->de, &p);
    demo_pp_de(s->de, P_FOR, &thing);
    demo_word(s->de, c.tense == T_PAST ? "bezahlt" : "bezahlen");
  }
  demo_stop(s, '.');
}

static const char *is_en(const Np *who) {
  Agr agr = demo_agr(who);
  return agr == AGR_I ? "am" : agr == AGR_HE ? "is" : "are";
}
static const char *is_de(const Np *who) {
  Agr agr = demo_agr(who);
  return agr == AGR_I ? "bin" : agr == AGR_HE ? "ist" : "sind";
}

static void draw_age(const Scene *s) {
  Np who;
  demo_draw_np(s->d, &who, N_HUMAN | N_KIN | N_BEAST, NULL,
               HOW_SUBJECT | HOW_DEFINITE | HOW_SINGULAR);
  uint32_t looks = who.kind == NP_NOUN ? demo_nouns[who.id].looks : L_YOUNG;
  if (who.kind == NP_NOUN) who.adj = 0;
  uint32_t n = looks & L_BEAST   ? 2 + demo_below(s->d, 14)
               : looks & L_KID   ? 2 + demo_below(s->d, 16)
               : looks & L_YOUNG ? 18 + demo_below(s->d, 60)
                                 : 35 + demo_below(s->d, 60);
  say_np(s, &who);
  demo_both(s, is_en(&who), is_de(&who));
  say_number(s, n);
  demo_both(s, "years old", "Jahre alt");
  demo_stop(s, '.');
}

static int draw_hour(const Scene *s) {
  return 1 + (int)demo_below(s->d, 12);
}

static int draw_minute(const Scene *s) {
  return 5 * (int)demo_below(s->d, 12);
}

static void say_clock(const Scene *s, int h, int m) {
  demo_clock_en(s->en, h, m);
  demo_clock_de(s->de, h, m);
}

static void time_of_day(const Scene *s) {
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 6) {
    static const Twin starts[] = {{"it is", "es ist"},
                                  {"it is already", "es ist schon"},
                                  {"it is almost", "es ist fast"}};
    const Twin *t = &starts[demo_below(s->d, 3)];
    demo_both(s, t->en, t->de);
    say_clock(s, draw_hour(s), draw_minute(s));
  } else if (roll < 60) {
    Np place = {.kind = NP_NOUN, .det = D_THE};
    do place.id = (int)demo_below(s->d, (uint32_t)demo_noun_count);
    while (!(demo_nouns[place.id].spots & S_HOURS));
    if (demo_chance(s->d, 40)) place.adj = demo_draw_adj(s->d, demo_nouns[place.id].looks);
    say_np(s, &place);
    demo_both(s, "is open", "ist");
    demo_both(s, "from", "von");
    say_clock(s, 7 + (int)demo_below(s->d, 5), 15 * (int)demo_below(s->d, 4));
    demo_both(s, "until", "bis");
    say_clock(s, 4 + (int)demo_below(s->d, 7), 15 * (int)demo_below(s->d, 4));
    demo_word(s->de, "geöffnet");
  } else {
    Np what = {.kind = NP_NOUN, .det = D_THE, .id = demo_draw_noun(s->d, N_BUS, -1)};
    bool leaves = demo_chance(s->d, 50);
    if (demo_chance(s->d, 30)) {
      what.det = D_MY + (demo_chance(s->d, 50) ? PRO_WE : PRO_YOU);
    } else if (demo_chance(s->d, 30)) {
      what.ordinal = 1 + demo_below(s->d, 5);
    }
    When w = {W_DAYCLOCK, draw_hour(s), draw_minute(s), (int)demo_below(s->d, 7)};
    if (roll < 75) {
      w = (When){W_CLOCK24, (int)demo_below(s->d, 24), (int)demo_below(s->d, 60), 0};
    }
    say_np(s, &what);
    demo_both(s, leaves ? "leaves" : "arrives", leaves ? "fährt" : "kommt");
    demo_when_en(s->en, &w);
    demo_when_de(s->de, &w);
    demo_word(s->de, leaves ? "ab" : "an");
  }
  demo_stop(s, '.');
}

/* Draws a sentence with a date: "Today is Monday, the third of May." */
static void draw_date(const Scene *s) {
  static const Twin starts[] = {{"today is", "heute ist"},
                                {"tomorrow is", "morgen ist"},
                                {"yesterday was", "gestern war"}};
  const Twin *t = &starts[demo_below(s->d, 3)];
  int day = (int)demo_below(s->d, 7), month = (int)demo_below(s->d, 12);
  uint32_t of = 1 + demo_below(s->d, (uint32_t)demo_month_days(month));
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 70) {
    demo_both(s, t->en, t->de);
    if (roll < 50) {
      demo_both(s, demo_days[day].en, demo_days[day].de);
      s->en->comma = s->de->comma = true;
    }
  }
  demo_both(s, "the", "der");
  demo_ordinal_en(s->en, of);
  demo_ordinal_de(s->de, of, "e");
  demo_word(s->en, "of");
  demo_both(s, demo_months[month].en, demo_months[month].de);
  if (roll >= 70) {
    demo_both(s, "is a", "ist ein");
    demo_both(s, demo_days[day].en, demo_days[day].de);
  }
  demo_stop(s, '.');
}

static void draw_birth(const Scene *s) {
  Np who;
  demo_draw_np(s->d, &who, N_HUMAN | N_KIN, NULL,
               HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT | HOW_SINGULAR);
  Agr agr = demo_agr(&who);
  bool young = who.kind == NP_NOUN && demo_nouns[who.id].looks & L_KID;
  int year = young ? 2000 + (int)demo_below(s->d, 20) : 1930 + (int)demo_below(s->d, 70);
  When w = {demo_chance(s->d, 50) ? W_YEAR : W_YEARWORDS, year, 0, 0};
  if (demo_chance(s->d, 35)) {
    int month = (int)demo_below(s->d, 12);
    int day = 1 + (int)demo_below(s->d, (uint32_t)demo_month_days(month));
    w = (When){demo_chance(s->d, 50) ? W_FIGDATE : W_DATE, day, month, w.a};
  }
  say_np(s, &who);
  demo_both(s, agr == AGR_PL ? "were born" : "was born", agr == AGR_PL ? "wurden" : "wurde");
  demo_when_en(s->en, &w);
  demo_when_de(s->de, &w);
  demo_word(s->de, "geboren");
  demo_stop(s, '.');
}

/* Draws a sentence with a number of pages, inhabitants, metres or floors. */
static void draw_amount_sentence(const Scene *s) {
  uint32_t roll = demo_below(s->d, 100);
  Np place = {.kind = NP_NOUN, .det = D_THE};
  if (roll < 25) {
    demo_draw_np(s->d, &place, N_PAGES, NULL, HOW_DEFINITE | HOW_NOUN | HOW_SINGULAR);
    uint32_t n;
    do n = 20 + demo_below(s->d, 900);
    while (n % 100 == 1);
    say_np(s, &place);
    demo_both(s, "has", "hat");
    say_number(s, n);
    demo_both(s, "pages", "Seiten");
  } else if (roll < 50) {
    uint32_t n;
    do n = draw_amount(s);
    while (n < 100);
    place.id = demo_noun(n >= 5000 ? "city" : "village");
    if (demo_chance(s->d, 40)) place.adj = demo_draw_adj(s->d, demo_nouns[place.id].looks);
    place.det = demo_chance(s->d, 50) ? D_THE : D_THIS;
    say_number(s, n);
    demo_both(s, "people live", "Menschen wohnen");
    demo_word(s->en, "in");
    demo_np_en(s->en, &place, true);
    demo_pp_de(s->de, P_IN, &place);
  } else if (roll < 75) {
    do place.id = (int)demo_below(s->d, (uint32_t)demo_noun_count);
    while (!(demo_nouns[place.id].spots & S_DRIVE));
    if (demo_chance(s->d, 35)) place.adj = demo_draw_adj(s->d, demo_nouns[place.id].looks);
    bool far = demo_chance(s->d, 50);
    say_np(s, &place);
    demo_both(s, "is", "ist");
    say_number(s, far ? 2 + demo_below(s->d, 98) : 10 * (5 + demo_below(s->d, 95)));
    demo_both(s, far ? "kilometres away" : "metres away",
              far ? "Kilometer entfernt" : "Meter entfernt");
  } else {
    Np who;
    demo_draw_np(s->d, &who, N_HUMAN | N_KIN, NULL, HOW_SUBJECT | HOW_DEFINITE | HOW_SHORT);
    Agr agr = demo_agr(&who);
    uint32_t n = 1 + demo_below(s->d, 24);
    bool work = demo_chance(s->d, 50);
    say_np(s, &who);
    if (work) {
      demo_word(s->en, agr == AGR_HE ? "works" : "work");
      demo_word(s->de, agr == AGR_I ? "arbeite" : agr == AGR_HE ? "arbeitet" : "arbeiten");
    } else {
      demo_word(s->en, agr == AGR_HE ? "lives" : "live");
      demo_word(s->de, agr == AGR_I ? "wohne" : agr == AGR_HE ? "wohnt" : "wohnen");
    }
    demo_both(s, "on the", "im");
    demo_ordinal_en(s->en, n);
    demo_ordinal_de(s->de, n, "en");
    demo_both(s, "floor", "Stock");
  }
  demo_stop(s, '.');
}

void demo_draw_count(const Scene *s) {
  uint32_t roll = demo_below(s->d, 100);
  if (roll < 9) {
    draw_bare_number(s);
  } else if (roll < 13) {
    draw_sum(s);
  } else if (roll < 42) {
    draw_price_sentence(s);
  } else if (roll < 52) {
    draw_age(s);
  } else if (roll < 66) {
    time_of_day(s);
  } else if (roll < 74) {
    draw_date(s);
  } else if (roll < 83) {
    draw_birth(s);
  } else {
    draw_amount_sentence(s);
  }
}
