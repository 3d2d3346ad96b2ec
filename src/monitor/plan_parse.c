/* Parses the values of --link, --nodes and --gpus. Depends on plan.h. */
#include <stdlib.h>
#include <string.h>

#include "monitor/plan.h"

typedef struct {
  const char *name;
  double factor;
} Unit;

static const Unit rates[] = {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"Tbit", 1e12 / 8},
                             {"GB", 1e9},       {"MB", 1e6},       {"TB", 1e12}};
static const Unit times[] = {{"us", 1e-6}, {"ms", 1e-3}, {"ns", 1e-9}, {"s", 1}};

/* Parses a positive number with one of the units; *rest is what follows. */
static bool parse_unit(const char *text, const Unit *unit, size_t units, double *value,
                       const char **rest) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || !(number > 0) || number > 1e15) return false;
  for (size_t i = 0; i < units; i++) {
    if (!str_starts(end, unit[i].name)) continue;
    *value = number * unit[i].factor;
    *rest = end + strlen(unit[i].name);
    if (str_starts(*rest, "/s")) *rest += 2;
    if (**rest == '\0' || **rest == ',') return true;
  }
  return false;
}

Err plan_parse_link(const char *text, PlanLink *link) {
  const char *rest;
  *link = (PlanLink){0};
  bool is_good = parse_unit(text, rates, sizeof rates / sizeof *rates, &link->bandwidth, &rest);
  if (is_good && *rest == ',')
    is_good =
        parse_unit(rest + 1, times, sizeof times / sizeof *times, &link->latency, &rest) &&
        *rest == '\0';
  if (is_good) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "--link '%s' is not a bandwidth and a latency; pass for example 400Gbit,5us, "
      "with the units Mbit, Gbit, Tbit, MB, GB or TB (per second) and ns, us, ms or s",
      text);
}

static Err refuse_sizes(const char *option, const char *text) {
  return err_set(ERR_USAGE,
                 "--%s '%s' is not a list of at most %d numbers from 1 to 65536; pass for "
                 "example 8, 1,2,6 or 1..64, which doubles from 1 to 64",
                 option, text, PLAN_SIZES);
}

static bool parse_size(const char *text, int *size, const char **rest) {
  char *end;
  if (*text < '0' || *text > '9') return false;
  long value = strtol(text, &end, 10);
  *rest = end;
  *size = (int)value;
  return value >= 1 && value <= 65536;
}

/* Returns false if the range does not fit. */
static bool add_range(PlanSizes *s, int last) {
  int size = s->size[s->count - 1];
  while (size < last && s->count < PLAN_SIZES) {
    size = size > last / 2 ? last : 2 * size;
    s->size[s->count++] = size;
  }
  return size == last;
}

Err plan_parse_sizes(const char *option, const char *text, PlanSizes *s) {
  const char *rest = text;
  int last;
  *s = (PlanSizes){0};
  do {
    if (rest != text) rest++; /* the comma */
    if (s->count == PLAN_SIZES || !parse_size(rest, &s->size[s->count], &rest))
      return refuse_sizes(option, text);
    s->count++;
    if (!str_starts(rest, "..")) continue;
    if (!parse_size(rest + 2, &last, &rest) || last < s->size[s->count - 1] ||
        !add_range(s, last))
      return refuse_sizes(option, text);
  } while (*rest == ',');
  return *rest ? refuse_sizes(option, text) : ERR_OK;
}
