/* Numbers, ordinals, prices, clock times and dates of the demo corpus, in words
 * and in figures, English and German. Depends on base/str. */
#ifndef DEMO_NUMBER_H
#define DEMO_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "demo/lexicon.h"

/* A sentence under construction: words are separated by blanks, and a pending comma is
 * written only if another word follows. */
typedef struct {
  Str *str;
  bool comma;
} Out;

void demo_word(Out *out, const char *word); /* empty words add nothing */
void demo_glue(Out *out, const char *part); /* appends to the last word, without a blank */
void demo_space(Out *out);                  /* writes a pending blank or comma before a word */
/* Makes the first letter a capital, and adds the end mark. */
void demo_end(Out *out, char mark);

/* Cardinals 0 … 999,999; `one` is the German form of a final 1: eins, ein, einen. */
void demo_number_en(Out *out, uint32_t n);
void demo_number_de(Out *out, uint32_t n, const char *one);
/* Ordinals 1 … 999,999; German ones take an adjective ending: e, en, er … */
void demo_ordinal_en(Out *out, uint32_t n);
void demo_ordinal_de(Out *out, uint32_t n, const char *ending);
/* 12345 -> 12,345 or 12.345 */
void demo_figures(Out *out, uint32_t n, char separator);

/* Euros and cents; cents may be 0; in figures 4.20 euros, 4,20 Euro. */
typedef struct {
  uint32_t euros, cents;
  bool figures;
} Price;
void demo_price_en(Out *out, const Price *price);
void demo_price_de(Out *out, const Price *price); /* accusative */

/* Hour 1 … 12 and minute 0, 5 … 55: half past three, halb vier. */
void demo_clock_en(Out *out, int hour, int minute);
void demo_clock_de(Out *out, int hour, int minute);

/* Years 1910 … 2029 in words. */
void demo_year_en(Out *out, int year);
void demo_year_de(Out *out, int year);
int demo_month_days(int month); /* month 0 … 11, February has 28 */

/* Kinds of times. */
typedef enum {
  W_NONE,
  W_FIXED,     /* a: row of demo_times */
  W_CLOCK,     /* a: hour, b: minute: at half past three */
  W_CLOCK24,   /* a: hour, b: minute: at 15:45 */
  W_DAY,       /* a: weekday: on Monday */
  W_EVERY,     /* a: weekday: every Monday */
  W_MONTH,     /* a: month */
  W_SEASON,    /* a: season */
  W_DATE,      /* a: day of the month, b: month: on the third of May */
  W_DAYDATE,   /* a, b, c: weekday: on Monday, the third of May */
  W_FIGDATE,   /* a, b, c: year: on 3 May 2021 */
  W_DAYCLOCK,  /* a: hour, b: minute, c: weekday: on Monday at half past three */
  W_AGO,       /* a: number, b: unit */
  W_YEAR,      /* a: year in figures: in 1984, im Jahr 1984 */
  W_YEARWORDS, /* a: year in words: in the year nineteen eighty-four */
} WhenKind;

typedef struct {
  WhenKind kind;
  int a, b, c;
} When;

/* demo_times is in this order: habits, now, future, past, long ago. */
extern const Twin demo_times[];
#define TIMES_HABIT   0
#define TIMES_NOW     8
#define TIMES_FUTURE  12
#define TIMES_PAST    17
#define TIMES_LONGAGO 21
#define TIMES_END     23
#define UNITS_COUNT   4 /* hours, days, weeks, months */

void demo_when_en(Out *out, const When *when);
void demo_when_de(Out *out, const When *when);

#endif
