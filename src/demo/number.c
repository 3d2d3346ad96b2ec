/* Numbers, prices, times and dates of the demo corpus in words and in figures. Depends on
 * demo/lexicon for the names of days and months. */
#include "demo/number.h"

#include <string.h>

const Twin demo_times[] = {
    [TIMES_HABIT] = {"every day", "jeden Tag"},
    {"every morning", "jeden Morgen"},
    {"every evening", "jeden Abend"},
    {"every week", "jede Woche"},
    {"in the morning", "am Morgen"},
    {"in the afternoon", "am Nachmittag"},
    {"in the evening", "am Abend"},
    {"at the weekend", "am Wochenende"},
    [TIMES_NOW] = {"today", "heute"},
    {"now", "jetzt"},
    {"at the moment", "im Moment"},
    {"this morning", "heute Morgen"},
    [TIMES_FUTURE] = {"tomorrow", "morgen"},
    {"this evening", "heute Abend"},
    {"tomorrow evening", "morgen Abend"},
    {"next week", "nächste Woche"},
    {"today", "heute"},
    [TIMES_PAST] = {"yesterday", "gestern"},
    {"yesterday evening", "gestern Abend"},
    {"the day before yesterday", "vorgestern"},
    {"last week", "letzte Woche"},
    [TIMES_LONGAGO] = {"last month", "letzten Monat"},
    {"last year", "letztes Jahr"},
};

static const Twin ago_units[UNITS_COUNT] = {
    {"hours", "Stunden"}, {"days", "Tagen"}, {"weeks", "Wochen"}, {"months", "Monaten"}};

static const Twin small[20] = {
    {"zero", "null"},         {"one", "ein"},           {"two", "zwei"},
    {"three", "drei"},        {"four", "vier"},         {"five", "fünf"},
    {"six", "sechs"},         {"seven", "sieben"},      {"eight", "acht"},
    {"nine", "neun"},         {"ten", "zehn"},          {"eleven", "elf"},
    {"twelve", "zwölf"},      {"thirteen", "dreizehn"}, {"fourteen", "vierzehn"},
    {"fifteen", "fünfzehn"},  {"sixteen", "sechzehn"},  {"seventeen", "siebzehn"},
    {"eighteen", "achtzehn"}, {"nineteen", "neunzehn"},
};
static const Twin tens[10] = {
    {"", ""},
    {"ten", "zehn"},
    {"twenty", "zwanzig"},
    {"thirty", "dreißig"},
    {"forty", "vierzig"},
    {"fifty", "fünfzig"},
    {"sixty", "sechzig"},
    {"seventy", "siebzig"},
    {"eighty", "achtzig"},
    {"ninety", "neunzig"},
};
static const char *const small_th[20] = {
    "",          "first",     "second",      "third",      "fourth",
    "fifth",     "sixth",     "seventh",     "eighth",     "ninth",
    "tenth",     "eleventh",  "twelfth",     "thirteenth", "fourteenth",
    "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
};

void demo_space(Out *out) {
  if (out->str->len) {
    if (out->comma) str_addc(out->str, ',');
    str_addc(out->str, ' ');
  }
  out->comma = false;
}

void demo_word(Out *out, const char *word) {
  if (!*word) return;
  demo_space(out);
  str_add(out->str, word);
}

void demo_glue(Out *out, const char *part) {
  str_add(out->str, part);
}

void demo_end(Out *out, char mark) {
  str_addc(out->str, mark);
  char *s = out->str->s;
  if (!s) return;
  if (s[0] >= 'a' && s[0] <= 'z') {
    s[0] = (char)(s[0] - 32);
  } else if ((unsigned char)s[0] == 0xC3 && (unsigned char)s[1] >= 0xA0) {
    s[1] = (char)((unsigned char)s[1] - 32); /* Upper case of ä, ö, ü in UTF-8. */
  }
}

static void add_digits(Out *out, uint32_t n, int width) {
  char text[12];
  int at = 12;
  for (int w = 0; w < width || n; w++, n /= 10) text[--at] = (char)('0' + n % 10);
  str_addn(out->str, text + at, (size_t)(12 - at));
}

static void two_digits_en(Out *out, uint32_t n) {
  if (n < 20) {
    demo_word(out, small[n].en);
    return;
  }
  demo_word(out, tens[n / 10].en);
  if (n % 10) {
    demo_glue(out, "-");
    demo_glue(out, small[n % 10].en);
  }
}

/* Adds the words for all digits except the last two, and "and" if these are not zero. */
static void upper_en(Out *out, uint32_t n) {
  if (n >= 1000) {
    demo_number_en(out, n / 1000);
    demo_word(out, "thousand");
  }
  uint32_t hundreds = n % 1000 / 100;
  if (hundreds) {
    demo_word(out, small[hundreds].en);
    demo_word(out, "hundred");
  }
  if (n % 100 && n >= 100) demo_word(out, "and");
}

void demo_number_en(Out *out, uint32_t n) {
  upper_en(out, n);
  if (n % 100 || n == 0) two_digits_en(out, n % 100);
}

void demo_ordinal_en(Out *out, uint32_t n) {
  upper_en(out, n);
  uint32_t low = n % 100;
  if (low == 0) {
    demo_glue(out, "th"); /* Forms "hundredth" and "thousandth". */
  } else if (low < 20) {
    demo_word(out, small_th[low]);
  } else if (low % 10) {
    demo_word(out, tens[low / 10].en);
    demo_glue(out, "-");
    demo_glue(out, small_th[low % 10]);
  } else {
    const char *ten = tens[low / 10].en;
    demo_space(out);
    str_addn(out->str, ten, strlen(ten) - 1);
    demo_glue(out, "ieth");
  }
}

static void upper_de(Out *out, uint32_t n) {
  if (n >= 1000) {
    demo_number_de(out, n / 1000, "ein");
    demo_glue(out, "tausend");
  } else {
    demo_space(out);
  }
  uint32_t hundreds = n % 1000 / 100;
  if (hundreds) {
    demo_glue(out, small[hundreds].de);
    demo_glue(out, "hundert");
  }
}

void demo_number_de(Out *out, uint32_t n, const char *one) {
  upper_de(out, n);
  uint32_t low = n % 100;
  if (low == 1) {
    demo_glue(out, one);
  } else if (low < 20) {
    if (low || n == 0) demo_glue(out, small[low].de);
  } else {
    if (low % 10) {
      demo_glue(out, small[low % 10].de);
      demo_glue(out, "und");
    }
    demo_glue(out, tens[low / 10].de);
  }
}

void demo_ordinal_de(Out *out, uint32_t n, const char *ending) {
  uint32_t low = n % 100;
  const char *odd = low == 1 ? "erst" : low == 3 ? "dritt" : low == 7 ? "siebt" : NULL;
  if (odd || low == 8) {
    upper_de(out, n);
    demo_glue(out, odd ? odd : "acht");
  } else {
    demo_number_de(out, n, "ein");
    demo_glue(out, low >= 1 && low < 20 ? "t" : "st");
  }
  demo_glue(out, ending);
}

void demo_figures(Out *out, uint32_t n, char separator) {
  demo_space(out);
  if (n < 1000) {
    add_digits(out, n, 1);
    return;
  }
  add_digits(out, n / 1000, 1);
  str_addc(out->str, separator);
  add_digits(out, n % 1000, 3);
}

static void price_figures(Out *out, const Price *price, char thousands, char point) {
  demo_figures(out, price->euros, thousands);
  if (!price->cents) return;
  str_addc(out->str, point);
  add_digits(out, price->cents, 2);
}

void demo_price_en(Out *out, const Price *price) {
  if (price->figures) {
    price_figures(out, price, ',', '.');
    demo_word(out, price->euros == 1 && !price->cents ? "euro" : "euros");
    return;
  }
  if (price->euros) {
    demo_number_en(out, price->euros);
    demo_word(out, price->euros == 1 ? "euro" : "euros");
    if (price->cents) demo_word(out, "and");
  }
  if (price->cents) {
    demo_number_en(out, price->cents);
    demo_word(out, price->cents == 1 ? "cent" : "cents");
  }
}

void demo_price_de(Out *out, const Price *price) {
  if (price->figures) {
    price_figures(out, price, '.', ',');
    demo_word(out, "Euro");
    return;
  }
  if (price->euros) {
    demo_number_de(out, price->euros, "einen");
    demo_word(out, "Euro");
    if (price->cents) demo_word(out, "und");
  }
  if (price->cents) {
    demo_number_de(out, price->cents, "einen");
    demo_word(out, "Cent");
  }
}

void demo_clock_en(Out *out, int hour, int minute) {
  int next = hour % 12 + 1;
  if (minute == 0) {
    demo_word(out, small[hour].en);
    demo_word(out, "o'clock");
    return;
  }
  int away = minute <= 30 ? minute : 60 - minute;
  if (away == 30) {
    demo_word(out, "half");
  } else if (away == 15) {
    demo_word(out, "quarter");
  } else {
    two_digits_en(out, (uint32_t)away);
  }
  demo_word(out, minute <= 30 ? "past" : "to");
  demo_word(out, small[minute <= 30 ? hour : next].en);
}

void demo_clock_de(Out *out, int hour, int minute) {
  int next = hour % 12 + 1;
  /* German names of the minutes, relative to the hour, to half past, and to the next hour. */
  static const char *const parts[12] = {
      "",     "fünf nach",      "zehn nach",   "Viertel nach", "zwanzig nach", "fünf vor halb",
      "halb", "fünf nach halb", "zwanzig vor", "Viertel vor",  "zehn vor",     "fünf vor",
  };
  int shown = minute <= 20 ? hour : next;
  demo_word(out, parts[minute / 5]);
  if (minute == 0) {
    demo_word(out, small[hour].de); /* One o'clock is "ein Uhr", not "eins Uhr". */
    demo_word(out, "Uhr");
  } else {
    demo_word(out, shown == 1 ? "eins" : small[shown].de);
  }
}

static void say_clock24(Out *out, int hour, int minute) {
  demo_space(out);
  add_digits(out, (uint32_t)hour, 1);
  str_addc(out->str, ':');
  add_digits(out, (uint32_t)minute, 2);
}

void demo_year_en(Out *out, int year) {
  uint32_t y = (uint32_t)year;
  if (y / 100 == 20 && y % 100 < 10) {
    demo_number_en(out, y);
    return;
  }
  two_digits_en(out, y / 100);
  two_digits_en(out, y % 100);
}

void demo_year_de(Out *out, int year) {
  uint32_t y = (uint32_t)year;
  if (y >= 2000) {
    demo_number_de(out, y, "eins");
    return;
  }
  demo_space(out);
  demo_glue(out, small[y / 100].de);
  demo_glue(out, "hundert");
  uint32_t low = y % 100;
  if (low < 20) {
    demo_glue(out, small[low].de);
    return;
  }
  if (low % 10) {
    demo_glue(out, small[low % 10].de);
    demo_glue(out, "und");
  }
  demo_glue(out, tens[low / 10].de);
}

int demo_month_days(int month) {
  static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return days[month];
}

void demo_when_en(Out *out, const When *w) {
  switch (w->kind) {
    case W_NONE:
      break;
    case W_FIXED:
      demo_word(out, demo_times[w->a].en);
      break;
    case W_DAYCLOCK:
      demo_word(out, "on");
      demo_word(out, demo_days[w->c].en);
      demo_word(out, "at");
      demo_clock_en(out, w->a, w->b);
      break;
    case W_CLOCK:
      demo_word(out, "at");
      demo_clock_en(out, w->a, w->b);
      break;
    case W_CLOCK24:
      demo_word(out, "at");
      say_clock24(out, w->a, w->b);
      break;
    case W_DAY:
    case W_EVERY:
      demo_word(out, w->kind == W_DAY ? "on" : "every");
      demo_word(out, demo_days[w->a].en);
      break;
    case W_MONTH:
      demo_word(out, "in");
      demo_word(out, demo_months[w->a].en);
      break;
    case W_SEASON:
      demo_word(out, "in");
      demo_word(out, demo_seasons[w->a].en);
      break;
    case W_DAYDATE:
    case W_DATE:
      demo_word(out, "on");
      if (w->kind == W_DAYDATE) {
        demo_word(out, demo_days[w->c].en);
        out->comma = true;
      }
      demo_word(out, "the");
      demo_ordinal_en(out, (uint32_t)w->a);
      demo_word(out, "of");
      demo_word(out, demo_months[w->b].en);
      out->comma = w->kind == W_DAYDATE;
      break;
    case W_FIGDATE:
      demo_word(out, "on");
      demo_space(out);
      add_digits(out, (uint32_t)w->a, 1);
      demo_word(out, demo_months[w->b].en);
      demo_space(out);
      add_digits(out, (uint32_t)w->c, 4);
      break;
    case W_AGO:
      demo_number_en(out, (uint32_t)w->a);
      demo_word(out, ago_units[w->b].en);
      demo_word(out, "ago");
      break;
    case W_YEAR:
      demo_word(out, "in");
      demo_space(out);
      add_digits(out, (uint32_t)w->a, 4);
      break;
    case W_YEARWORDS:
      demo_word(out, "in the year");
      demo_year_en(out, w->a);
      break;
  }
}

void demo_when_de(Out *out, const When *w) {
  switch (w->kind) {
    case W_NONE:
      break;
    case W_FIXED:
      demo_word(out, demo_times[w->a].de);
      break;
    case W_DAYCLOCK:
      demo_word(out, "am");
      demo_word(out, demo_days[w->c].de);
      demo_word(out, "um");
      demo_clock_de(out, w->a, w->b);
      break;
    case W_CLOCK:
      demo_word(out, "um");
      demo_clock_de(out, w->a, w->b);
      break;
    case W_CLOCK24:
      demo_word(out, "um");
      say_clock24(out, w->a, w->b);
      demo_word(out, "Uhr");
      break;
    case W_DAY:
    case W_EVERY:
      demo_word(out, w->kind == W_DAY ? "am" : "jeden");
      demo_word(out, demo_days[w->a].de);
      break;
    case W_MONTH:
      demo_word(out, "im");
      demo_word(out, demo_months[w->a].de);
      break;
    case W_SEASON:
      demo_word(out, "im");
      demo_word(out, demo_seasons[w->a].de);
      break;
    case W_DAYDATE:
    case W_DATE:
      demo_word(out, "am");
      if (w->kind == W_DAYDATE) {
        demo_word(out, demo_days[w->c].de);
        out->comma = true;
        demo_word(out, "dem");
      }
      demo_ordinal_de(out, (uint32_t)w->a, "en");
      demo_word(out, demo_months[w->b].de);
      out->comma = w->kind == W_DAYDATE;
      break;
    case W_FIGDATE:
      demo_word(out, "am");
      demo_space(out);
      add_digits(out, (uint32_t)w->a, 1);
      str_addc(out->str, '.');
      demo_word(out, demo_months[w->b].de);
      demo_space(out);
      add_digits(out, (uint32_t)w->c, 4);
      break;
    case W_AGO:
      demo_word(out, "vor");
      demo_number_de(out, (uint32_t)w->a, "einer");
      demo_word(out, ago_units[w->b].de);
      break;
    case W_YEAR:
      demo_word(out, "im Jahr");
      demo_space(out);
      add_digits(out, (uint32_t)w->a, 4);
      break;
    case W_YEARWORDS:
      demo_word(out, "im Jahr");
      demo_year_de(out, w->a);
      break;
  }
}
