/* Sentences of the demo corpus as data: noun phrases and clauses, drawn once and then
 * rendered in both languages. Depends on demo/lexicon, demo/number. */
#ifndef DEMO_GRAMMAR_H
#define DEMO_GRAMMAR_H

#include "base/rng.h"
#include "demo/demo.h"
#include "demo/lexicon.h"
#include "demo/number.h"

/* Pronouns and possessives have these numbers in common; YOU is the formal Sie. */
typedef enum { PRO_I, PRO_YOU, PRO_HE, PRO_SHE, PRO_WE, PRO_THEY, PRO_COUNT } Pro;

typedef enum {
  D_BARE, /* no article: coffee, books */
  D_THE,
  D_A,
  D_THIS,
  D_EVERY,
  D_SOME,
  D_MANY,
  D_ALL,
  D_NUMBER,
  D_NAMES, /* Anna's */
  D_MY,    /* D_MY + Pro */
} Det;

typedef enum { NP_NONE, NP_NOUN, NP_PRO, NP_NAME, NP_WHO } NpKind;

struct Clause;
typedef struct Np {
  NpKind kind;
  int id;  /* row of demo_nouns or demo_names, or a pronoun (Pro) */
  int det; /* Det, or D_MY + Pro */
  int adj; /* row + 1; 0 is none */
  uint32_t number, ordinal;
  bool plural;
  int owner, owner_det; /* genitive: noun row + 1, article; with D_NAMES name row + 1 */
  bool owner_plural;
  const struct Clause
      *rel; /* relative clause; its `gap` tells which part of it this noun phrase is */
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
  Np subject, object, person; /* person in the dative, of V_BOTH */
  PrepId place_prep;
  Np place; /* or goal */
  Np ride;  /* by bus */
  Tense tense;
  Modal modal;
  bool no; /* negated */
  Mid mid;
  const Twin *manner;
  When when;
  bool front; /* the time stands first */
  Gap gap;
  /* With to be: an adjective or a noun phrase, possibly compared with another. */
  const Twin *degree; /* very, too */
  int adj;            /* row + 1 */
  enum { LIKE_NONE, LIKE_MORE, LIKE_SAME } like;
  Np other;
} Clause;

/* Form of a clause: statement, question (in German also after a fronted time), subordinate
 * clause, infinitive with to / zu. */
typedef enum { SAY_MAIN, SAY_ASK, SAY_SUB, SAY_INF } Say;

Agr demo_agr(const Np *np);
void demo_np_en(Out *out, const Np *np, bool object);
void demo_np_de(Out *out, const Np *np, Case as);
/* As demo_np_de, with the article contracted with the preposition: im, zum. */
void demo_pp_de(Out *out, PrepId prep, const Np *np);
void demo_clause_en(Out *out, const Clause *c, Say say);
void demo_clause_de(Out *out, const Clause *c, Say say);

/* What the functions that make sentences share: random numbers and the output in both
 * languages. */
typedef struct {
  Rng *d;
  Out *en, *de;
} Scene;
void demo_both(const Scene *s, const char *en, const char *de);
void demo_say(const Scene *s, const Clause *c, Say en, Say de);
void demo_stop(const Scene *s, char mark);
bool demo_is_askable(const Clause *c);
/* Adds a time, place or reason to the clause and sets `word` to the question word for it: "when
 * …?", or in "I know when …". */
void demo_draw_circumstance(const Scene *s, Clause *c, Twin *word, bool asked);

/* Restrictions on a drawn noun phrase. */
#define HOW_DEFINITE   (1u << 0)
#define HOW_INDEFINITE (1u << 1)
#define HOW_NOUN       (1u << 2) /* no pronoun, no name */
#define HOW_SHORT      (1u << 3) /* no adjective, no owner */
#define HOW_NEGATED    (1u << 4) /* nothing that cannot be combined with kein */
#define HOW_NOMY       (1u << 5)
#define HOW_SUBJECT    (1u << 6)
#define HOW_SINGULAR   (1u << 7)
#define HOW_NOPRO      (1u << 8)
/* Restrictions on a drawn clause. */
#define HOW_POSITIVE  (1u << 9)
#define HOW_TIMELESS  (1u << 10) /* no time, no adverb */
#define HOW_PRESENT   (1u << 11)
#define HOW_PAST      (1u << 12)
#define HOW_GENDERED  (1u << 13) /* a subject that a pronoun can refer to */
#define HOW_PLURAL    (1u << 15)
#define HOW_HABITUAL  (1u << 16) /* an object that is new each time: a letter, not the letter */
#define HOW_SETTLED   (1u << 17) /* a definite object */
#define HOW_HAPPENING (1u << 14) /* past tense instead of the simple present: finds, forgets */

extern const uint32_t demo_folk; /* nouns for people */
uint32_t demo_below(Rng *d, uint32_t n);
bool demo_chance(Rng *d, uint32_t percent);
/* Draws a noun with one of the properties `is`, but not row `except`. */
int demo_draw_noun(Rng *d, uint32_t is, int except);
int demo_draw_adj(Rng *d, uint32_t looks); /* row + 1, or 0 */
/* `subject`, if not NULL, determines the possessive: he … his. */
void demo_draw_np(Rng *d, Np *np, uint32_t is, const Np *subject, uint32_t how);
void demo_draw_place(Rng *d, Clause *c);
void demo_draw_when(Rng *d, Clause *c);
Tense demo_draw_tense(Rng *d, const Verb *verb, uint32_t how);
const Verb *demo_draw_verb(Rng *d, uint32_t frames);
/* Fills in a clause; a verb, subject or negation that is set already is kept. */
void demo_draw_clause(Rng *d, Clause *c, uint32_t how);
/* The pronoun that refers to a noun phrase; false where it would be ambiguous. */
bool demo_pronoun(const Np *np, Pro *pro);

/* Draws a sentence: of any kind; with several clauses; with numbers. */
void demo_draw_sentence(const Scene *s);
void demo_draw_complex(const Scene *s);
void demo_draw_count(const Scene *s);

/* demo_write with another source of pairs, so that a test can exhaust it. */
typedef Err DemoSource(uint64_t seed, uint64_t i, Str *en, Str *de);
NODISCARD Err demo_write_from(DemoSource *source, const char *en_path, const char *de_path,
                              Split split, uint64_t pairs, uint64_t seed);

#endif
