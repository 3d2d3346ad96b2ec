/* Parts of the demo grammar compared with German and English sentences that were checked by hand:
 * numbers, times, dates, declension, position of the verb. Depends on demo/grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* must come after the headers that it needs */
#include <cmocka.h>

#include "demo/grammar.h"

/* The output in both languages; `check` compares and clears it. */
static Str en_text, de_text;
static Out en = {.str = &en_text}, de = {.str = &de_text};

static void check(const char *want_en, const char *want_de) {
  assert_string_equal(str_text(&en_text), want_en);
  assert_string_equal(str_text(&de_text), want_de);
  str_clear(&en_text);
  str_clear(&de_text);
  en.comma = de.comma = false;
}

static int free_texts(void **state) {
  (void)state;
  str_free(&en_text);
  str_free(&de_text);
  return 0;
}

static void test_grammar_cardinals_are_spelt(void **state) {
  (void)state;
  static const struct {
    uint32_t n;
    const char *en, *de;
  } rows[] = {
      {0, "zero", "null"},
      {1, "one", "eins"},
      {7, "seven", "sieben"},
      {12, "twelve", "zwölf"},
      {16, "sixteen", "sechzehn"},
      {17, "seventeen", "siebzehn"},
      {21, "twenty-one", "einundzwanzig"},
      {30, "thirty", "dreißig"},
      {66, "sixty-six", "sechsundsechzig"},
      {77, "seventy-seven", "siebenundsiebzig"},
      {100, "one hundred", "einhundert"},
      {101, "one hundred and one", "einhunderteins"},
      {342, "three hundred and forty-two", "dreihundertzweiundvierzig"},
      {1000, "one thousand", "eintausend"},
      {3005, "three thousand and five", "dreitausendfünf"},
      {9816, "nine thousand eight hundred and sixteen", "neuntausendachthundertsechzehn"},
      {21000, "twenty-one thousand", "einundzwanzigtausend"},
      {101000, "one hundred and one thousand", "einhunderteintausend"},
      {999999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
       "neunhundertneunundneunzigtausendneunhundertneunundneunzig"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    demo_number_en(&en, rows[i].n);
    demo_number_de(&de, rows[i].n, "eins");
    check(rows[i].en, rows[i].de);
  }
}

static void test_grammar_ordinals_are_spelt(void **state) {
  (void)state;
  static const struct {
    uint32_t n;
    const char *en, *de;
  } rows[] = {
      {1, "first", "erste"},
      {2, "second", "zweite"},
      {3, "third", "dritte"},
      {7, "seventh", "siebte"},
      {8, "eighth", "achte"},
      {12, "twelfth", "zwölfte"},
      {19, "nineteenth", "neunzehnte"},
      {20, "twentieth", "zwanzigste"},
      {21, "twenty-first", "einundzwanzigste"},
      {100, "one hundredth", "einhundertste"},
      {101, "one hundred and first", "einhunderterste"},
      {307, "three hundred and seventh", "dreihundertsiebte"},
      {342, "three hundred and forty-second", "dreihundertzweiundvierzigste"},
      {1000, "one thousandth", "eintausendste"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    demo_ordinal_en(&en, rows[i].n);
    demo_ordinal_de(&de, rows[i].n, "e");
    check(rows[i].en, rows[i].de);
  }
}

static void test_grammar_prices_are_spelt(void **state) {
  (void)state;
  static const struct {
    Price price;
    const char *en, *de;
  } rows[] = {
      {{4, 20, false}, "four euros and twenty cents", "vier Euro und zwanzig Cent"},
      {{4, 20, true}, "4.20 euros", "4,20 Euro"},
      {{1, 1, false}, "one euro and one cent", "einen Euro und einen Cent"},
      {{1, 0, false}, "one euro", "einen Euro"},
      {{21, 5, false}, "twenty-one euros and five cents", "einundzwanzig Euro und fünf Cent"},
      {{3, 5, true}, "3.05 euros", "3,05 Euro"},
      {{250000, 0, true}, "250,000 euros", "250.000 Euro"},
      {{0, 99, false}, "ninety-nine cents", "neunundneunzig Cent"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    demo_price_en(&en, &rows[i].price);
    demo_price_de(&de, &rows[i].price);
    check(rows[i].en, rows[i].de);
  }
}

static void test_grammar_times_and_dates_are_spelt(void **state) {
  (void)state;
  static const struct {
    When when;
    const char *en, *de;
  } rows[] = {
      {{W_CLOCK, 7, 0, 0}, "at seven o'clock", "um sieben Uhr"},
      {{W_CLOCK, 1, 0, 0}, "at one o'clock", "um ein Uhr"},
      {{W_CLOCK, 3, 30, 0}, "at half past three", "um halb vier"},
      {{W_CLOCK, 12, 30, 0}, "at half past twelve", "um halb eins"},
      {{W_CLOCK, 4, 45, 0}, "at quarter to five", "um Viertel vor fünf"},
      {{W_CLOCK, 9, 15, 0}, "at quarter past nine", "um Viertel nach neun"},
      {{W_CLOCK, 6, 10, 0}, "at ten past six", "um zehn nach sechs"},
      {{W_CLOCK, 6, 20, 0}, "at twenty past six", "um zwanzig nach sechs"},
      {{W_CLOCK, 6, 25, 0}, "at twenty-five past six", "um fünf vor halb sieben"},
      {{W_CLOCK, 6, 35, 0}, "at twenty-five to seven", "um fünf nach halb sieben"},
      {{W_CLOCK, 12, 55, 0}, "at five to one", "um fünf vor eins"},
      {{W_CLOCK24, 15, 5, 0}, "at 15:05", "um 15:05 Uhr"},
      {{W_DAYCLOCK, 8, 40, 4}, "on Friday at twenty to nine", "am Freitag um zwanzig vor neun"},
      {{W_DAY, 0, 0, 0}, "on Monday", "am Montag"},
      {{W_EVERY, 2, 0, 0}, "every Wednesday", "jeden Mittwoch"},
      {{W_MONTH, 2, 0, 0}, "in March", "im März"},
      {{W_SEASON, 0, 0, 0}, "in spring", "im Frühling"},
      {{W_DATE, 3, 4, 0}, "on the third of May", "am dritten Mai"},
      {{W_DAYDATE, 3, 4, 0}, "on Monday, the third of May", "am Montag, dem dritten Mai"},
      {{W_FIGDATE, 3, 4, 2021}, "on 3 May 2021", "am 3. Mai 2021"},
      {{W_AGO, 3, 1, 0}, "three days ago", "vor drei Tagen"},
      {{W_AGO, 2, 3, 0}, "two months ago", "vor zwei Monaten"},
      {{W_YEAR, 1984, 0, 0}, "in 1984", "im Jahr 1984"},
      {{W_YEARWORDS, 1984, 0, 0},
       "in the year nineteen eighty-four",
       "im Jahr neunzehnhundertvierundachtzig"},
      {{W_YEARWORDS, 1916, 0, 0},
       "in the year nineteen sixteen",
       "im Jahr neunzehnhundertsechzehn"},
      {{W_YEARWORDS, 2005, 0, 0},
       "in the year two thousand and five",
       "im Jahr zweitausendfünf"},
      {{W_YEARWORDS, 2024, 0, 0},
       "in the year twenty twenty-four",
       "im Jahr zweitausendvierundzwanzig"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    demo_when_en(&en, &rows[i].when);
    demo_when_de(&de, &rows[i].when);
    check(rows[i].en, rows[i].de);
  }
}

/* The days of all months must add up to a year without a leap day. */
static void test_grammar_months_sum_to_365_days(void **state) {
  (void)state;
  int days = 0;
  for (int m = 0; m < 12; m++) days += demo_month_days(m);
  assert_int_equal(days, 365);
}

static int must_find(int row, const char *word) {
  if (row < 0) fail_msg("not in the lexicon: %s", word);
  return row;
}

static Np noun(int det, const char *adj, const char *word, bool plural) {
  Np np = {.kind = NP_NOUN, .det = det, .plural = plural};
  np.id = must_find(demo_noun(word), word);
  if (adj) np.adj = 1 + must_find(demo_adj(adj), adj);
  return np;
}

static void test_grammar_nouns_are_declined(void **state) {
  (void)state;
  static const struct {
    int det;
    const char *adj, *noun;
    bool plural;
    Case as;
    const char *en, *de;
  } rows[] = {
      /* weak declension of adjectives */
      {D_THE, "old", "teacher", 0, NOM, "the old teacher", "der alte Lehrer"},
      {D_THE, "old", "teacher", 0, ACC, "the old teacher", "den alten Lehrer"},
      {D_THE, "old", "teacher", 0, DAT, "the old teacher", "dem alten Lehrer"},
      {D_THE, "old", "teacher", 0, GEN, "the old teacher", "des alten Lehrers"},
      {D_THE, "old", "woman", 0, DAT, "the old woman", "der alten Frau"},
      {D_THE, "new", "house", 1, DAT, "the new houses", "den neuen Häusern"},
      {D_THIS, "big", "garden", 0, ACC, "this big garden", "diesen großen Garten"},
      {D_EVERY, NULL, "student", 0, DAT, "every student", "jedem Studenten"},
      {D_ALL, "young", "man", 1, NOM, "all young men", "alle jungen Männer"},
      /* mixed declension of adjectives */
      {D_A, "expensive", "coat", 0, NOM, "an expensive coat", "ein teurer Mantel"},
      {D_A, "expensive", "coat", 0, ACC, "an expensive coat", "einen teuren Mantel"},
      {D_A, "interesting", "book", 0, ACC, "an interesting book", "ein interessantes Buch"},
      {D_A, "small", "bag", 0, DAT, "a small bag", "einer kleinen Tasche"},
      {D_MY + PRO_WE, "tired", "child", 0, NOM, "our tired child", "unser müdes Kind"},
      {D_MY + PRO_WE, "tired", "child", 1, DAT, "our tired children", "unseren müden Kindern"},
      {D_MY + PRO_YOU, NULL, "sister", 0, ACC, "your sister", "Ihre Schwester"},
      {D_MY + PRO_SHE, NULL, "brother", 0, GEN, "her brother", "ihres Bruders"},
      /* strong declension of adjectives */
      {D_BARE, "hot", "coffee", 0, ACC, "hot coffee", "heißen Kaffee"},
      {D_BARE, "cold", "water", 0, DAT, "cold water", "kaltem Wasser"},
      {D_BARE, "fresh", "milk", 0, NOM, "fresh milk", "frische Milch"},
      {D_BARE, "beautiful", "picture", 1, DAT, "beautiful pictures", "schönen Bildern"},
      {D_SOME, "old", "man", 1, DAT, "some old men", "einigen alten Männern"},
      {D_MANY, "new", "book", 1, ACC, "many new books", "viele neue Bücher"},
      /* nouns of the n-declension */
      {D_THE, NULL, "boy", 0, ACC, "the boy", "den Jungen"},
      {D_A, NULL, "student", 0, DAT, "a student", "einem Studenten"},
      {D_THE, NULL, "neighbour", 0, GEN, "the neighbour", "des Nachbarn"},
      {D_THE, NULL, "bus", 0, GEN, "the bus", "des Busses"},
      {D_THE, NULL, "car", 1, DAT, "the cars", "den Autos"},
      {D_THE, NULL, "girl", 1, DAT, "the girls", "den Mädchen"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    Np np = noun(rows[i].det, rows[i].adj, rows[i].noun, rows[i].plural);
    demo_np_en(&en, &np, false);
    demo_np_de(&de, &np, rows[i].as);
    check(rows[i].en, rows[i].de);
  }
}

static void test_grammar_owners_and_counts_agree_with_noun(void **state) {
  (void)state;
  Np np = noun(D_THE, "new", "car", false);
  np.owner = 1 + demo_noun("doctor");
  np.owner_det = D_THE;
  demo_np_en(&en, &np, true);
  demo_np_de(&de, &np, ACC);
  check("the doctor's new car", "das neue Auto des Arztes");

  np.owner = 1 + demo_noun("brother");
  np.owner_det = D_MY + PRO_I;
  np.owner_plural = true;
  demo_np_en(&en, &np, true);
  demo_np_de(&de, &np, DAT);
  check("my brothers' new car", "dem neuen Auto meiner Brüder");

  np = noun(D_NAMES, "white", "cat", false);
  np.owner = 1; /* row of "Anna" in demo_names + 1 */
  demo_np_en(&en, &np, true);
  demo_np_de(&de, &np, DAT);
  check("Anna's white cat", "Annas weißer Katze");

  np = noun(D_NUMBER, "big", "apple", true);
  np.number = 12;
  demo_np_en(&en, &np, true);
  demo_np_de(&de, &np, DAT);
  check("twelve big apples", "zwölf großen Äpfeln");

  np = noun(D_THE, NULL, "letter", false);
  np.ordinal = 3;
  demo_np_en(&en, &np, true);
  demo_np_de(&de, &np, ACC);
  check("the third letter", "den dritten Brief");
}

static void test_grammar_prepositions_take_their_case(void **state) {
  (void)state;
  static const struct {
    PrepId prep;
    int det;
    const char *adj, *noun, *de;
  } rows[] = {
      {P_IN, D_THE, NULL, "garden", "im Garten"},
      {P_INTO, D_THE, NULL, "garden", "in den Garten"},
      {P_INTO, D_THE, NULL, "house", "ins Haus"},
      {P_IN, D_THE, "old", "house", "im alten Haus"},
      {P_IN, D_A, "old", "house", "in einem alten Haus"},
      {P_TO_ZU, D_THE, NULL, "school", "zur Schule"},
      {P_TO_ZU, D_THE, NULL, "station", "zum Bahnhof"},
      {P_TO_ZU, D_THIS, NULL, "station", "zu diesem Bahnhof"},
      {P_AT_AN, D_THE, NULL, "lake", "am See"},
      {P_TO_AN, D_THE, NULL, "lake", "an den See"},
      {P_ON, D_THE, NULL, "table", "auf dem Tisch"},
      {P_PUT_ON, D_THE, NULL, "table", "auf den Tisch"},
      {P_PUT_ON, D_THE, NULL, "bed", "auf das Bett"},
      {P_BESIDE, D_MY + PRO_HE, NULL, "bed", "neben seinem Bett"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    Np np = noun(rows[i].det, rows[i].adj, rows[i].noun, false);
    demo_pp_de(&de, rows[i].prep, &np);
    check("", rows[i].de);
  }
}

static Clause clause(const char *verb, const char *tail, Tense tense) {
  return (Clause){.verb = &demo_verbs[must_find(demo_verb(verb, tail), verb)], .tense = tense};
}

static void say(const Clause *c, Say in_english, Say in_german, char mark) {
  demo_clause_en(&en, c, in_english);
  demo_clause_de(&de, c, in_german);
  demo_end(&en, mark);
  demo_end(&de, mark);
}

static void test_grammar_verb_has_its_position(void **state) {
  (void)state;
  Clause c = clause("call", NULL, T_ING);
  c.subject = noun(D_THE, NULL, "man", false);
  c.object = noun(D_THE, NULL, "woman", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The man is calling the woman.", "Der Mann ruft die Frau an.");
  say(&c, SAY_SUB, SAY_SUB, '.');
  check("The man is calling the woman.", "Der Mann die Frau anruft.");
  say(&c, SAY_ASK, SAY_ASK, '?');
  check("Is the man calling the woman?", "Ruft der Mann die Frau an?");
  say(&c, SAY_INF, SAY_INF, '.');
  check("Call the woman.", "Die Frau anzurufen.");
  c.tense = T_PAST;
  c.when = (When){W_FIXED, TIMES_PAST, 0, 0};
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The man called the woman yesterday.", "Der Mann hat gestern die Frau angerufen.");
  c.front = true;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("Yesterday the man called the woman.", "Gestern hat der Mann die Frau angerufen.");
  c.no = true;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("Yesterday the man did not call the woman.",
        "Gestern hat der Mann die Frau nicht angerufen.");
  c.no = c.front = false;
  c.when.kind = W_NONE;
  c.tense = T_MODAL;
  c.modal = M_WANT;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The man wants to call the woman.", "Der Mann will die Frau anrufen.");
  say(&c, SAY_SUB, SAY_SUB, '.');
  check("The man wants to call the woman.", "Der Mann die Frau anrufen will.");
  say(&c, SAY_ASK, SAY_ASK, '?');
  check("Does the man want to call the woman?", "Will der Mann die Frau anrufen?");
}

static void test_grammar_negation_has_its_position(void **state) {
  (void)state;
  Clause c = clause("buy", NULL, T_PRESENT);
  c.no = true;
  c.subject = (Np){.kind = NP_PRO, .id = PRO_HE};
  c.object = noun(D_A, "new", "car", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He does not buy a new car.", "Er kauft kein neues Auto.");
  c.object = noun(D_THE, "new", "car", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He does not buy the new car.", "Er kauft das neue Auto nicht.");
  c.tense = T_PERFECT;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He has not yet bought the new car.", "Er hat das neue Auto noch nicht gekauft.");
  c.object = noun(D_BARE, NULL, "milk", false);
  c.tense = T_MODAL;
  c.modal = M_MUST;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He must not buy milk.", "Er darf keine Milch kaufen.");
  c.modal = M_CAN;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He cannot buy milk.", "Er kann keine Milch kaufen.");
  c = clause("wait", NULL, T_ING);
  c.no = true;
  c.subject = (Np){.kind = NP_PRO, .id = PRO_I};
  c.object = noun(D_THE, NULL, "train", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("I am not waiting for the train.", "Ich warte nicht auf den Zug.");
}

static void test_grammar_pronouns_have_their_order(void **state) {
  (void)state;
  Clause c = clause("pick", "up", T_PAST);
  c.subject = noun(D_MY + PRO_SHE, NULL, "parents", true);
  c.object = (Np){.kind = NP_PRO, .id = PRO_SHE};
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("Her parents picked her up.", "Ihre Eltern haben sie abgeholt.");
  c = clause("help", NULL, T_PRESENT);
  c.subject = noun(D_THE, NULL, "woman", false);
  c.object = (Np){.kind = NP_PRO, .id = PRO_HE};
  c.when = (When){W_EVERY, 6, 0, 0};
  c.front = true;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("Every Sunday, the woman helps him.", "Jeden Sonntag hilft ihm die Frau.");
  c = clause("give", NULL, T_ING);
  c.subject = noun(D_THE, NULL, "boy", false);
  c.person = noun(D_MY + PRO_HE, NULL, "neighbour", false);
  c.object = noun(D_A, NULL, "flower", false);
  c.when = (When){W_FIXED, TIMES_NOW, 0, 0};
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The boy is giving his neighbour a flower today.",
        "Der Junge gibt seinem Nachbarn heute eine Blume.");
  c = clause("go", "home", T_PERFECT);
  c.subject = (Np){.kind = NP_PRO, .id = PRO_YOU};
  c.mid = A_ALREADY;
  say(&c, SAY_ASK, SAY_ASK, '?');
  check("Have you already gone home?", "Sind Sie schon nach Hause gegangen?");
  c = clause("open", NULL, T_PRESENT);
  c.subject = (Np){.kind = NP_PRO, .id = PRO_YOU};
  c.object = noun(D_THE, NULL, "door", false);
  say(&c, SAY_INF, SAY_ASK, '.');
  check("Open the door.", "Machen Sie die Tür auf.");
}

static void test_grammar_place_and_goal_take_their_case(void **state) {
  (void)state;
  Clause c = clause("put", NULL, T_ING);
  c.subject = (Np){.kind = NP_NAME, .id = 0};
  c.object = noun(D_THE, NULL, "book", false);
  c.place_prep = P_PUT_ON;
  c.place = noun(D_THE, NULL, "table", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("Anna is putting the book on the table.", "Anna legt das Buch auf den Tisch.");
  c = clause("lie", NULL, T_ING);
  c.subject = noun(D_THE, NULL, "book", false);
  c.place_prep = P_ON;
  c.place = noun(D_THE, NULL, "table", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The book is lying on the table.", "Das Buch liegt auf dem Tisch.");
  c = clause("eat", NULL, T_PAST);
  c.subject = (Np){.kind = NP_PRO, .id = PRO_THEY};
  c.object = noun(D_A, NULL, "apple", false);
  c.place_prep = P_IN;
  c.place = noun(D_THE, NULL, "park", false);
  c.when = (When){W_DAYDATE, 3, 4, 0};
  c.front = true;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("On Monday, the third of May, they ate an apple in the park.",
        "Am Montag, dem dritten Mai, haben sie im Park einen Apfel gegessen.");
}

static void test_grammar_relative_clause_agrees_with_noun(void **state) {
  (void)state;
  Clause rel = clause("repair", NULL, T_ING), c = clause("call", NULL, T_ING);
  Np man = noun(D_THE, NULL, "man", false);
  rel.gap = GAP_SUBJECT;
  rel.subject = man;
  rel.object = noun(D_THE, NULL, "car", false);
  c.subject = (Np){.kind = NP_PRO, .id = PRO_I};
  c.object = man;
  c.object.rel = &rel;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("I am calling the man who is repairing the car.",
        "Ich rufe den Mann an, der das Auto repariert.");
  rel = clause("thank", NULL, T_PAST);
  rel.gap = GAP_OBJECT;
  rel.subject = (Np){.kind = NP_PRO, .id = PRO_WE};
  c = (Clause){.verb = &demo_verbs[0], .adj = 1 + demo_adj("friendly")};
  c.subject = noun(D_THE, NULL, "child", true);
  c.subject.rel = &rel;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("The children whom we thanked are friendly.",
        "Die Kinder, denen wir gedankt haben, sind freundlich.");
}

static void test_grammar_adjectives_are_compared(void **state) {
  (void)state;
  Clause c = {.verb = &demo_verbs[0], .adj = 1 + demo_adj("old"), .like = LIKE_MORE};
  c.subject = noun(D_MY + PRO_I, NULL, "brother", false);
  c.other = noun(D_THE, NULL, "student", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("My brother is older than the student.", "Mein Bruder ist älter als der Student.");
  c.like = LIKE_SAME;
  c.no = true;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("My brother is not as old as the student.",
        "Mein Bruder ist nicht so alt wie der Student.");
  c = (Clause){.verb = &demo_verbs[0], .subject = {.kind = NP_PRO, .id = PRO_HE}};
  c.other = noun(D_A, NULL, "teacher", false);
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He is a teacher.", "Er ist Lehrer.");
  c.other = noun(D_A, "famous", "cook", false);
  c.tense = T_PAST;
  say(&c, SAY_MAIN, SAY_MAIN, '.');
  check("He was a famous cook.", "Er war ein berühmter Koch.");
}

/* Checks the consistency of the word tables, to find typing errors. */
static void test_grammar_tables_are_consistent(void **state) {
  (void)state;
  for (int i = 1; i < demo_verb_count; i++) {
    const Verb *v = &demo_verbs[i];
    size_t len = strlen(v->de), prefix = strlen(v->prefix);
    if (v->de[len - 1] != 'n') fail_msg("%s: no infinitive", v->de);
    if (v->ich[strlen(v->ich) - 1] != 'e') fail_msg("%s: %s", v->de, v->ich);
    if (v->er[strlen(v->er) - 1] != 't') fail_msg("%s: %s", v->de, v->er);
    if (strncmp(v->de_part, v->prefix, prefix)) fail_msg("%s: %s", v->de, v->de_part);
    if (prefix && strncmp(v->de_part + prefix, "ge", 2)) fail_msg("%s", v->de_part);
    if (strncmp(v->ich, v->de, len - 1)) fail_msg("%s: %s", v->de, v->ich);
    if (strcmp(v->en_ing + strlen(v->en_ing) - 3, "ing")) fail_msg("%s", v->en_ing);
    if (v->en_s[strlen(v->en_s) - 1] != 's') fail_msg("%s", v->en_s);
    bool alike = !strcmp(v->en, v->en_past);
    if (alike != !!(v->flags & VF_SAME)) fail_msg("%s: past", v->en);
  }
  for (int i = 0; i < demo_noun_count; i++) {
    const Noun *n = &demo_nouns[i];
    bool takes = n->gender == MASC || n->gender == NEUT;
    if (takes != !!*n->gen) fail_msg("%s: genitive", n->de);
    if (!(n->is & N_MASS) != !!*n->de_pl) fail_msg("%s: plural", n->de);
    if (n->spots && (!n->at || !n->to)) fail_msg("%s: no way there", n->en);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grammar_cardinals_are_spelt),
      cmocka_unit_test(test_grammar_ordinals_are_spelt),
      cmocka_unit_test(test_grammar_prices_are_spelt),
      cmocka_unit_test(test_grammar_times_and_dates_are_spelt),
      cmocka_unit_test(test_grammar_months_sum_to_365_days),
      cmocka_unit_test(test_grammar_nouns_are_declined),
      cmocka_unit_test(test_grammar_owners_and_counts_agree_with_noun),
      cmocka_unit_test(test_grammar_prepositions_take_their_case),
      cmocka_unit_test(test_grammar_verb_has_its_position),
      cmocka_unit_test(test_grammar_negation_has_its_position),
      cmocka_unit_test(test_grammar_pronouns_have_their_order),
      cmocka_unit_test(test_grammar_place_and_goal_take_their_case),
      cmocka_unit_test(test_grammar_relative_clause_agrees_with_noun),
      cmocka_unit_test(test_grammar_adjectives_are_compared),
      cmocka_unit_test(test_grammar_tables_are_consistent),
  };
  return cmocka_run_group_tests(tests, NULL, free_texts);
}
