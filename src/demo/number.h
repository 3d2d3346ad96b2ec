/* Numbers, ordinals, prices, clock times and dates of the demo corpus, in words and in figures,
 * in English and German. Depends on base/str. */
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

void demo_word(Out *out, const char *word); /* Adds a word; does nothing for an empty word. */
/* Appends text to the last word, without a blank. */
void demo_glue(Out *out, const char *part);
/* Writes a pending blank or comma before a word. */
void demo_space(Out *out);
/* Capitalizes the first letter of the sentence and adds the punctuation mark. */
void demo_end(Out *out, char mark);

/* Adds a cardinal number from 0 to 999,999. `one` is the German form of a final 1: eins, ein,
 * einen. */
void demo_number_en(Out *out, uint32_t n);
void demo_number_de(Out *out, uint32_t n, const char *one);
/* Adds an ordinal number from 1 to 999,999; `ending` is the German adjective ending: e, en,
 * er. */
void demo_ordinal_en(Out *out, uint32_t n);
void demo_ordinal_de(Out *out, uint32_t n, const char *ending);
/* Adds a number in figures with separators: 12345 as 12,345 or 12.345. */
void demo_figures(Out *out, uint32_t n, char separator);

/* A price in euros and cents; cents may be 0. In figures: 4.20 euros, 4,20 Euro. */
typedef struct {
  uint32_t euros, cents;
  bool figures;
} Price;
void demo_price_en(Out *out, const Price *price);
void demo_price_de(Out *out, const Price *price); /* Adds the price in the accusative. */

/* Adds a clock time, hour 1 to 12 and minute 0, 5, … 55: "half past three", "halb vier". */
void demo_clock_en(Out *out, int hour, int minute);
void demo_clock_de(Out *out, int hour, int minute);

/* Adds a year from 1910 to 2029 in words. */
void demo_year_en(Out *out, int year);
void demo_year_de(Out *out, int year);
int demo_month_days(int month); /* Returns the days of a month (0 to 11); February has 28. */

/* Types of time expressions. a, b and c are fields of When. */
typedef enum {
  W_NONE,
  W_FIXED,     /* a: row of demo_times */
  W_CLOCK,     /* a: hour, b: minute; "at half past three" */
  W_CLOCK24,   /* a: hour, b: minute; "at 15:45" */
  W_DAY,       /* a: weekday; "on Monday" */
  W_EVERY,     /* a: weekday; "every Monday" */
  W_MONTH,     /* a: month; "in May" */
  W_SEASON,    /* a: season; "in summer" */
  W_DATE,      /* a: day of the month, b: month; "on the third of May" */
  W_DAYDATE,   /* a: day of the month, b: month, c: weekday; "on Monday, the third of May" */
  W_FIGDATE,   /* a: day of the month, b: month, c: year; "on 3 May 2021" */
  W_DAYCLOCK,  /* a: hour, b: minute, c: weekday; "on Monday at half past three" */
  W_AGO,       /* a: number, b: unit; "two weeks ago" */
  W_YEAR,      /* a: year in figures; "in 1984", "im Jahr 1984" */
  W_YEARWORDS, /* a: year in words; "in the year nineteen eighty-four" */
} WhenKind;

typedef struct {
  WhenKind kind;
  int a, b, c;
} When;

/* demo_times is sorted by group: habits, now, future, past, long ago. */
extern const Twin demo_times[];
#define TIMES_HABIT   0
#define TIMES_NOW     8
#define TIMES_FUTURE  12
#define TIMES_PAST    17
#define TIMES_LONGAGO 21
#define TIMES_END     23
#define UNITS_COUNT   4 /* units of W_AGO: hours, days, weeks, months */

void demo_when_en(Out *out, const When *when);
void demo_when_de(Out *out, const When *when);

#endif
