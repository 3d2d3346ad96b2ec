/* The words of the demo corpus and the properties that decide which words can be combined: what a
 * noun denotes, where an activity takes place, which adjective fits a noun. No dependencies. */
#ifndef DEMO_LEXICON_H
#define DEMO_LEXICON_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { MASC, FEM, NEUT, PLUR } Gender;
typedef enum { NOM, ACC, DAT, GEN } Case;
/* Verb agreement: the formal "Sie" takes AGR_PL in German, "you" takes AGR_PL in English. */
typedef enum { AGR_I, AGR_HE, AGR_PL } Agr;

/* Noun properties, by which verbs select subjects and objects. */
#define N_HUMAN   (1u << 0) /* people by profession or age */
#define N_KIN     (1u << 1) /* relatives; nearly always with a possessive */
#define N_BEAST   (1u << 2)
#define N_READ    (1u << 3)
#define N_WRITE   (1u << 4)
#define N_FOOD    (1u << 5)
#define N_DRINK   (1u << 6)
#define N_THING   (1u << 7) /* objects small enough to carry, lose and find */
#define N_CLOTH   (1u << 8)
#define N_FURN    (1u << 9) /* furniture that objects can be on or under */
#define N_CAR     (1u << 10)
#define N_BUS     (1u << 11) /* vehicles that depart and arrive */
#define N_OPEN    (1u << 12)
#define N_FIX     (1u << 13) /* objects that can be repaired */
#define N_FLAT    (1u << 14) /* flat objects: German verbs liegen, legen */
#define N_TALL    (1u << 15) /* upright objects: German verbs stehen, stellen */
#define N_WASH    (1u << 16)
#define N_GIFT    (1u << 17)
#define N_SIGHT   (1u << 18) /* places that tourists visit */
#define N_OWN     (1u << 19) /* nouns that can have a possessive: "my …" */
#define N_MASS    (1u << 20) /* mass nouns: no plural, no "a" */
#define N_PAIR    (1u << 21) /* nouns that have only a plural */
#define N_ONE     (1u << 22) /* nouns used only in the singular: not "my fathers" */
#define N_TRADE   (1u << 23) /* professions: "he is a …" */
#define N_SHOPPED (1u << 24) /* objects that can be bought and sold */
#define N_HOUSE   (1u << 25)
#define N_PAGES   (1u << 26) /* objects with pages */
#define N_KID     (1u << 28) /* nouns that can play: a child, a cat */
#define N_PET     (1u << 29) /* animals that can lie under a table */
#define N_GROWN   (1u << 30) /* adults: may sell houses and drive */
/* Nouns whose grammatical and natural gender differ; no pronoun is used for them. */
#define N_CHILD (1u << 27)

/* Activities at a place. A verb and a place can be combined if they have a bit in common. */
#define S_WORK  (1u << 0)
#define S_PLAY  (1u << 1)
#define S_SHOP  (1u << 2)
#define S_EAT   (1u << 3)
#define S_READ  (1u << 4)
#define S_SLEEP (1u << 5)
#define S_WAIT  (1u << 6)
#define S_LIVE  (1u << 7)
#define S_WALK  (1u << 8) /* goals of go, run, drive */
#define S_RUN   (1u << 9)
#define S_DRIVE (1u << 10)
#define S_TOWN  (1u << 11) /* places with thousands of inhabitants */
#define S_COOK  (1u << 12)
#define S_HOURS (1u << 13) /* places with opening hours */

/* Qualities. An adjective and a noun can be combined if they have a bit in common. */
#define L_ADULT (1u << 0)
#define L_YOUNG (1u << 1)
#define L_KID   (1u << 2)
#define L_ALIVE (1u << 3)
#define L_BEAST (1u << 4)
#define L_TEXT  (1u << 5)
#define L_LONG  (1u << 6)
#define L_FRESH (1u << 7)
#define L_COLD  (1u << 8)
#define L_HOT   (1u << 9)
#define L_USED  (1u << 10) /* objects that can be new or old */
#define L_SIZE  (1u << 11)
#define L_PRICE (1u << 12)
#define L_COLOR (1u << 13)
#define L_NICE  (1u << 14)
#define L_HEAVY (1u << 15)
#define L_BUILT (1u << 16)
#define L_FAMED (1u << 17)
#define L_QUIET (1u << 18)
#define L_CLEAN (1u << 19)
#define L_EMPTY (1u << 20)
#define L_GOOD  (1u << 21)

typedef enum {
  P_NONE,
  P_IN,
  P_INTO,
  P_TO_IN,
  P_TO_ZU,
  P_TO_AN,
  P_AT_AN,
  P_AT_IN,
  P_AT_AUF,
  P_ON_AN,
  P_ON,
  P_UNDER,
  P_BESIDE,
  P_BEHIND,
  P_FRONT,
  P_PUT_ON,
  P_PUT_UNDER,
  P_PUT_BESIDE,
  P_PUT_BEHIND,
  P_PUT_FRONT,
  P_WITH,
  P_BY,
  P_FOR_AUF,
  P_TO_MIT,
  P_FOR,
} PrepId;

typedef struct {
  const char *en, *de;
  Case of;
} Prep;

typedef struct {
  const char *en, *en_pl, *de, *de_pl;
  Gender gender;
  const char *gen; /* ending of the genitive singular */
  /* n-declension: accusative and dative have the same ending as the genitive */
  bool weak;
  uint32_t is, spots, looks;
  PrepId at, to; /* prepositions of a place: at it, to it */
} Noun;

typedef struct {
  const char *en, *de, *stem;    /* `stem`: German form before an ending ("teuer", "teur-") */
  const char *en_more, *de_more; /* comparatives; NULL for colours */
  uint32_t looks;
  bool state; /* a state that can be a reason for an action: "tired" */
} Adj;

typedef enum {
  V_PLAIN, /* verb with a subject only; a place is optional */
  V_ACC,
  V_DAT,
  V_BOTH,  /* verb with a person and an object: "gives him a book" */
  V_PREP,  /* verb whose object follows a preposition */
  V_WHERE, /* verb that requires a place */
  V_GO,    /* verb that requires a goal */
  V_PUT,   /* verb that requires an object and a goal */
  V_BE,    /* the verb "to be" with a predicate */
} Frame;

#define VF_SEIN   (1u << 0) /* forms the German perfect with sein */
#define VF_STATE  (1u << 1) /* simple present only, never -ing */
#define VF_NOING  (1u << 2)
#define VF_HABIT  (1u << 3)  /* habitual: "every day", "often" */
#define VF_HABIT1 (1u << 4)  /* habitual with a different object each time: "a", not "the" */
#define VF_YEAR   (1u << 5)  /* combines with a year or a month in the past */
#define VF_ANY    (1u << 6)  /* takes an indefinite object: "to have" */
#define VF_SPLIT  (1u << 7)  /* the English particle follows a pronoun: "picks her up" */
#define VF_SAME   (1u << 8)  /* the English past equals the infinitive: read, put */
#define VF_DEF    (1u << 9)  /* takes a definite object: to know, to forget */
#define VF_RIDE   (1u << 10) /* always with a vehicle: "to go by bus" */
#define VF_POSE   (1u << 11) /* only with -ing: "is lying" */
#define VF_NOMY   (1u << 12) /* the object does not belong to the subject: to buy */
#define VF_ONE    (1u << 13) /* one object per subject: "he wears a coat, they wear coats" */
/* an activity without completion: not with "already" or "tries to" */
#define VF_LASTS   (1u << 17)
#define VF_NOMODAL (1u << 18) /* not combined with "wants to": to forget */
#define VF_NONEG   (1u << 14) /* never negated, because the German word order would differ */
#define VF_AIM     (1u << 15) /* can be the purpose of going to a place */
#define VF_POINT   (1u << 16) /* requires an adverb: "the guest gets up every day at six" */

typedef struct {
  const char *en, *en_s, *en_ing, *en_past, *en_part;
  /* English particle: "up" of pick up, "home" of go home; or NULL */
  const char *en_tail;
  const char *prefix, *de, *ich, *er; /* German forms without the separable prefix */
  /* complete participle; German addition such as "zu Hause" */
  const char *de_part, *de_tail;
  Frame frame;
  uint32_t flags, by, of, spots; /* flags; noun properties of subject and object; activities */
  PrepId prep;
} Verb;

typedef struct {
  const char *en, *de;
  bool woman;
} Name;

typedef struct {
  const char *en, *de;
} Twin;

extern const Prep demo_preps[];
extern const Noun demo_nouns[];
extern const Adj demo_adjs[];
extern const Verb demo_verbs[];
extern const Name demo_names[];
extern const Twin demo_days[7], demo_months[12], demo_seasons[4];
extern const int demo_noun_count, demo_adj_count, demo_verb_count, demo_name_count;

/* Returns the row of the English word, or -1; for sentence templates and tests. */
int demo_noun(const char *en);
int demo_adj(const char *en);
int demo_verb(const char *en, const char *tail);

#endif
