/* Sentences of the demo corpus as data: noun phrases and clauses, drawn once and then
 * rendered in both languages. Depends on demo/lexicon, demo/number. */
#ifndef DEMO_GRAMMAR_H
#define DEMO_GRAMMAR_H

#include "base/rng.h"
#include "demo/demo.h"
#include "demo/lexicon.h"
#include "demo/number.h"

/* Persons of pronouns and possessives. PRO_YOU is the formal "Sie". */
typedef enum { PRO_I, PRO_YOU, PRO_HE, PRO_SHE, PRO_WE, PRO_THEY, PRO_COUNT } Pro;

typedef enum {
  D_BARE, /* no article: "coffee", "books" */
  D_THE,
  D_A,
  D_THIS,
  D_EVERY,
  D_SOME,
  D_MANY,
  D_ALL,
  D_NUMBER,
  D_NAMES, /* possessive of a name: "Anna's" */
  D_MY,    /* D_MY + Pro is a possessive: "my", "his" */
} Det;

typedef enum { NP_NONE, NP_NOUN, NP_PRO, NP_NAME, NP_WHO } NpKind;

struct Clause;
typedef struct Np {
  NpKind kind;
  int id;  /* row of demo_nouns or demo_names, or a Pro for a pronoun */
  int det; /* determiner: a Det, or D_MY + Pro */
  int adj; /* row of the adjective + 1; 0: none */
  uint32_t number, ordinal;
  bool plural;
  /* Genitive: row of the owner's noun + 1 and its determiner; with D_NAMES: row of the owner's
   * name + 1. */
  int owner, owner_det;
  bool owner_plural;
  /* Relative clause; `rel->gap` is the role of this noun phrase in it. */
  const struct Clause *rel;
} Np;

typedef enum { T_PRESENT, T_ING, T_PAST, T_PERFECT, T_MODAL } Tense;
typedef enum {
  M_CAN,
  M_MUST,
  M_HAVE_TO,
  M_WANT,
  M_SHOULD,
  M_LIKE,
  M_WILL,
  M_ALLOWED,
  M_COUNT,
} Modal;
/* Adverbs in the middle of the English sentence. */
typedef enum {
  A_NONE,
  A_OFTEN,
  A_ALWAYS,
  A_SOMETIMES,
  A_USUALLY,
  A_NEVER,
  A_ALREADY,
  A_JUST,
  A_COUNT,
} Mid;
typedef enum { GAP_NONE, GAP_SUBJECT, GAP_OBJECT, GAP_PLACE } Gap;

typedef struct Clause {
  const Verb *verb;
  Np subject, object, person; /* `person`: the dative object of verbs with the frame V_BOTH */
  PrepId place_prep;
  Np place; /* place, or goal of a movement */
  Np ride;  /* vehicle: "by bus" */
  Tense tense;
  Modal modal;
  bool no; /* the clause is negated */
  Mid mid;
  const Twin *manner;
  When when;
  bool front; /* The time is at the beginning of the sentence. */
  Gap gap;
  /* Predicate of "to be": an adjective or a noun phrase, possibly compared with another noun
   * phrase. */
  const Twin *degree; /* adverb before the adjective: "very", "too" */
  int adj;            /* row of the adjective + 1; 0: none */
  enum { LIKE_NONE, LIKE_MORE, LIKE_SAME } like;
  Np other;
} Clause;

/* Form of a clause: statement, question (in German also the word order after a fronted time),
 * subordinate clause, infinitive with to / zu. */
typedef enum { SAY_MAIN, SAY_ASK, SAY_SUB, SAY_INF } Say;

Agr demo_agr(const Np *np);
void demo_np_en(Out *out, const Np *np, bool object);
void demo_np_de(Out *out, const Np *np, Case as);
/* Like demo_np_de, after a preposition, which may be contracted with the article: "im", "zum". */
void demo_pp_de(Out *out, PrepId prep, const Np *np);
void demo_clause_en(Out *out, const Clause *c, Say say);
void demo_clause_de(Out *out, const Clause *c, Say say);

/* The state shared by the functions that draw sentences: random numbers and the output in both
 * languages. */
typedef struct {
  Rng *d;
  Out *en, *de;
} Scene;
void demo_both(const Scene *s, const char *en, const char *de);
void demo_say(const Scene *s, const Clause *c, Say en, Say de);
void demo_stop(const Scene *s, char mark);
bool demo_is_askable(const Clause *c);
/* Adds a time, place or reason to the clause and sets `word` to the matching question word, as in
 * "when …?" or "I know when …". */
void demo_draw_circumstance(const Scene *s, Clause *c, Twin *word, bool asked);

/* Restrictions on a drawn noun phrase. */
#define HOW_DEFINITE   (1u << 0)
#define HOW_INDEFINITE (1u << 1)
#define HOW_NOUN       (1u << 2) /* no pronoun, no name */
#define HOW_SHORT      (1u << 3) /* no adjective, no owner */
#define HOW_NEGATED    (1u << 4) /* only noun phrases that "kein" can negate */
#define HOW_NOMY       (1u << 5)
#define HOW_SUBJECT    (1u << 6)
#define HOW_SINGULAR   (1u << 7)
#define HOW_NOPRO      (1u << 8)
/* Restrictions on a drawn clause. */
#define HOW_POSITIVE (1u << 9)
#define HOW_TIMELESS (1u << 10) /* no time and no adverb */
#define HOW_PRESENT  (1u << 11)
#define HOW_PAST     (1u << 12)
#define HOW_GENDERED (1u << 13) /* only subjects that a pronoun can refer to */
#define HOW_PLURAL   (1u << 15)
/* an object that differs each time: "a letter", not "the letter" */
#define HOW_HABITUAL (1u << 16)
#define HOW_SETTLED  (1u << 17) /* a definite object */
/* past tense instead of the simple present, for verbs such as finds and forgets */
#define HOW_HAPPENING (1u << 14)

extern const uint32_t demo_folk; /* the noun properties (N_…) of people */
uint32_t demo_below(Rng *d, uint32_t n);
bool demo_chance(Rng *d, uint32_t percent);
/* Draws a noun that has one of the properties `is` and is not row `except`. */
int demo_draw_noun(Rng *d, uint32_t is, int except);
/* Returns the row of an adjective + 1, or 0 if none fits. */
int demo_draw_adj(Rng *d, uint32_t looks);
/* Draws a noun phrase. `subject`, if not NULL, selects the possessive: "he … his". */
void demo_draw_np(Rng *d, Np *np, uint32_t is, const Np *subject, uint32_t how);
void demo_draw_place(Rng *d, Clause *c);
void demo_draw_when(Rng *d, Clause *c);
Tense demo_draw_tense(Rng *d, const Verb *verb, uint32_t how);
const Verb *demo_draw_verb(Rng *d, uint32_t frames);
/* Draws the parts of a clause that are not set yet. Keeps a verb, subject or negation that is
 * set. */
void demo_draw_clause(Rng *d, Clause *c, uint32_t how);
/* Finds the pronoun that refers to a noun phrase; returns false if the pronoun would be
 * ambiguous. */
bool demo_pronoun(const Np *np, Pro *pro);

/* Draw a sentence: of any type; with several clauses; with numbers. */
void demo_draw_sentence(const Scene *s);
void demo_draw_complex(const Scene *s);
void demo_draw_count(const Scene *s);

/* For tests: demo_write with another source of pairs, so that a test can exhaust the source. */
typedef Err DemoSource(uint64_t seed, uint64_t i, Str *en, Str *de);
NODISCARD Err demo_write_from(DemoSource *source, const char *en_path, const char *de_path,
                              Split split, uint64_t pairs, uint64_t seed);

#endif
