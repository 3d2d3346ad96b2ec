/* The words of the demo corpus and the properties that decide which can be combined: what a
 * noun is, where an activity takes place, which adjective fits it. Depends on nothing. */
#ifndef DEMO_LEXICON_H
#define DEMO_LEXICON_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { MASC, FEM, NEUT, PLUR } Gender;
typedef enum { NOM, ACC, DAT, GEN } Case;
/* Verb agreement: the formal "Sie" takes PL in German, "you" in English. */
typedef enum { AGR_I, AGR_HE, AGR_PL } Agr;

/* Kinds of nouns, by which verbs select subjects and objects. */
#define N_HUMAN   (1u << 0) /* people by trade or age */
#define N_KIN     (1u << 1) /* relatives: nearly always with a possessive */
#define N_BEAST   (1u << 2)
#define N_READ    (1u << 3)
#define N_WRITE   (1u << 4)
#define N_FOOD    (1u << 5)
#define N_DRINK   (1u << 6)
#define N_THING   (1u << 7) /* small enough to carry, lose and find */
#define N_CLOTH   (1u << 8)
#define N_FURN    (1u << 9) /* things can be on it or under it */
#define N_CAR     (1u << 10)
#define N_BUS     (1u << 11) /* a vehicle that departs and arrives */
#define N_OPEN    (1u << 12)
#define N_FIX     (1u << 13) /* can be repaired */
#define N_FLAT    (1u << 14) /* verbs liegen, legen */
#define N_TALL    (1u << 15) /* verbs stehen, stellen */
#define N_WASH    (1u << 16)
#define N_GIFT    (1u << 17)
#define N_SIGHT   (1u << 18) /* a place to visit */
#define N_OWN     (1u << 19) /* may be "my …" */
#define N_MASS    (1u << 20) /* no plural, no "a" */
#define N_PAIR    (1u << 21) /* plural only */
#define N_ONE     (1u << 22) /* never plural here: not "my fathers" */
#define N_TRADE   (1u << 23) /* "he is a …" */
#define N_SHOPPED (1u << 24) /* can be bought and sold */
#define N_HOUSE   (1u << 25)
#define N_PAGES   (1u << 26) /* has pages */
#define N_KID     (1u << 28) /* can play: a child, a cat */
#define N_PET     (1u << 29) /* can lie under the table */
#define N_GROWN   (1u << 30) /* an adult: sells houses, drives */
#define N_CHILD   (1u << 27) /* grammatical and natural gender differ: no pronoun is used */

/* Activities at a place: a verb and a place can be combined if they have a bit in common. */
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
#define S_TOWN  (1u << 11) /* has thousands of inhabitants */
#define S_COOK  (1u << 12)
#define S_HOURS (1u << 13) /* has opening hours */

/* Qualities: an adjective and a noun can be combined if they have a bit in common. */
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
#define L_USED  (1u << 10) /* new or old */
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
  bool weak;       /* n-declension: the same ending in accusative and dative */
  uint32_t is, spots, looks;
  PrepId at, to; /* of places */
} Noun;

typedef struct {
  const char *en, *de, *stem;    /* stem: before an ending (teuer, teur-) */
  const char *en_more, *de_more; /* comparatives; NULL for colours */
  uint32_t looks;
  bool state; /* a reason for doing or not doing something: tired */
} Adj;

typedef enum {
  V_PLAIN, /* subject, perhaps a place */
  V_ACC,
  V_DAT,
  V_BOTH,  /* a person and a thing: gives him a book */
  V_PREP,  /* object behind a preposition */
  V_WHERE, /* requires a place */
  V_GO,    /* requires a goal */
  V_PUT,   /* object and goal */
  V_BE,    /* predicate */
} Frame;

#define VF_SEIN    (1u << 0) /* perfect with sein */
#define VF_STATE   (1u << 1) /* simple present only, never -ing */
#define VF_NOING   (1u << 2)
#define VF_HABIT   (1u << 3)  /* habitual: every day, often */
#define VF_HABIT1  (1u << 4)  /* habitual, with a new object each time: "a", not "the" */
#define VF_YEAR    (1u << 5)  /* combines with a year or a month in the past */
#define VF_ANY     (1u << 6)  /* takes an indefinite object: to have */
#define VF_SPLIT   (1u << 7)  /* the English particle follows a pronoun: picks her up */
#define VF_SAME    (1u << 8)  /* English past equals the infinitive: read, put */
#define VF_DEF     (1u << 9)  /* takes a definite object: to know, to forget */
#define VF_RIDE    (1u << 10) /* always with a vehicle: to go by bus */
#define VF_POSE    (1u << 11) /* -ing only: is lying */
#define VF_NOMY    (1u << 12) /* the object does not belong to the subject: to buy */
#define VF_ONE     (1u << 13) /* one object per subject: he wears a coat, they wear coats */
#define VF_LASTS   (1u << 17) /* has no completion: not with "already", not with "tries to" */
#define VF_NOMODAL (1u << 18) /* not with "wants to": to forget */
#define VF_NONEG   (1u << 14) /* never negated: the word order would differ */
#define VF_AIM     (1u << 15) /* a purpose of going somewhere */
#define VF_POINT   (1u << 16) /* requires an adverb: the guest gets up every day at six */

typedef struct {
  const char *en, *en_s, *en_ing, *en_past, *en_part;
  const char *en_tail;                /* "up" of pick up, "home" of go home; may be NULL */
  const char *prefix, *de, *ich, *er; /* forms without the separable prefix */
  const char *de_part, *de_tail;      /* whole participle; "zu Hause" */
  Frame frame;
  uint32_t flags, by, of, spots; /* nouns as subject, nouns as object, places */
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

/* The entry with this English word, or -1; for templates and tests. */
int demo_noun(const char *en);
int demo_adj(const char *en);
int demo_verb(const char *en, const char *tail);

#endif
