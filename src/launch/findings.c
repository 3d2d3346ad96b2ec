/* The list of findings, printed as a table or as JSON. Depends on findings.h. */
#include "launch/findings.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char *const level_names[FINDING_LEVELS] = {"OK", "warning", "problem"};

/* Formats a text and escapes terminal control characters, because parts of it come from other
 * machines. */
static void format_visible(char *out, size_t size, const char *fmt, va_list args) {
  char text[1024];
  vsnprintf(text, sizeof text, fmt, args);
  utf8_visible(text, out, size);
}

void findings_add(Findings *f, FindingLevel level, const char *host, const char *check,
                  const char *fmt, ...) {
  va_list args;
  Err err = mem_grow(&f->list, &f->cap, f->count + 1, sizeof *f->list);
  if (err) f->err = err;
  if (err) return;
  Finding *x = &f->list[f->count++];
  *x = (Finding){.level = level};
  utf8_visible(host, x->host, sizeof x->host);
  snprintf(x->check, sizeof x->check, "%s", check);
  va_start(args, fmt);
  format_visible(x->text, sizeof x->text, fmt, args);
  va_end(args);
}

void findings_remedy(Findings *f, const char *fmt, ...) {
  va_list args;
  if (f->count == 0) return;
  Finding *x = &f->list[f->count - 1];
  va_start(args, fmt);
  format_visible(x->remedy, sizeof x->remedy, fmt, args);
  va_end(args);
}

size_t findings_count(const Findings *f, FindingLevel level) {
  size_t n = 0;
  for (size_t i = 0; i < f->count; i++) n += f->list[i].level == level;
  return n;
}

void findings_free(Findings *f) {
  mem_free(f->list);
  *f = (Findings){0};
}

/* Returns the number of bytes of `text` that fit into `width` columns, cut at a space. */
static size_t cut_line(const char *text, size_t width) {
  size_t n = strlen(text), cut = width;
  if (n <= width) return n;
  while (cut > 0 && text[cut] != ' ') cut--;
  return cut ? cut : strcspn(text, " ");
}

/* Least width of a text in columns. On a terminal too narrow for it beside the other columns, texts
 * begin below them. */
#define LEAST_TEXT   20
#define NARROW_SPACE 2 /* their indent then */

/* Appends the text, wrapped; all lines except the first are indented. */
static void add_wrapped(Str *out, const char *text, size_t indent, size_t width) {
  width = width > indent + LEAST_TEXT ? width - indent : LEAST_TEXT;
  for (;;) {
    size_t n = cut_line(text, width);
    str_addn(out, text, n);
    str_addc(out, '\n');
    text += n + strspn(text + n, " ");
    if (!*text) return;
    for (size_t i = 0; i < indent; i++) str_addc(out, ' ');
  }
}

typedef struct {
  size_t host, check; /* widths of these columns */
  size_t width;       /* width of the whole table */
} Layout;

static Layout lay_out(const Findings *f, size_t hosts, size_t width) {
  Layout l = {.width = width};
  for (size_t i = 0; i < f->count; i++) {
    size_t host = strlen(f->list[i].host), check = strlen(f->list[i].check);
    if (host > l.host) l.host = host;
    if (check > l.check) l.check = check;
  }
  if ((hosts > 1 || l.host > 0) && l.host < 3) l.host = 3; /* room for "all" */
  return l;
}

static void add_row(Str *out, const Layout *l, const char *host, const Finding *x,
                    const char *text) {
  size_t indent = (l->host ? l->host + 2 : 0) + l->check + 2 + 9;
  bool is_narrow = l->width < indent + LEAST_TEXT;
  if (is_narrow) indent = NARROW_SPACE + 9;
  if (l->host) str_addf(out, "%-*s  ", (int)l->host, host);
  str_addf(out, "%-*s  ", (int)l->check, x->check);
  if (is_narrow)
    str_addf(out, "%s\n%*s", level_names[x->level], (int)indent, "");
  else
    str_addf(out, "%-9s", level_names[x->level]);
  add_wrapped(out, text, indent, l->width);
  if (!x->remedy[0]) return;
  str_addf(out, "%*s", (int)indent - 9, "");
  str_add(out, "remedy:  ");
  add_wrapped(out, x->remedy, indent, l->width);
}

/* Counts the entries of a check that are OK. *same: all of them have the same text. */
static size_t count_ok(const Findings *f, const char *check, bool *same) {
  const char *text = NULL;
  size_t n = 0;
  *same = true;
  for (size_t i = 0; i < f->count; i++) {
    const Finding *x = &f->list[i];
    if (x->level != FINDING_OK || strcmp(x->check, check) != 0) continue;
    if (text && strcmp(text, x->text) != 0) *same = false;
    text = x->text;
    n++;
  }
  return n;
}

static bool is_first_ok(const Findings *f, size_t i) {
  for (size_t k = 0; k < i; k++)
    if (f->list[k].level == FINDING_OK && strcmp(f->list[k].check, f->list[i].check) == 0)
      return false;
  return true;
}

void findings_print(const Findings *f, size_t hosts, size_t width, Str *out) {
  Layout l = lay_out(f, hosts, width);
  for (size_t i = 0; i < f->count; i++) {
    const Finding *x = &f->list[i];
    char text[64];
    bool same;
    size_t n = x->level == FINDING_OK ? count_ok(f, x->check, &same) : 0;
    if (n < 2) {
      add_row(out, &l, x->host[0] ? x->host : "all", x, x->text);
    } else if (is_first_ok(f, i)) {
      bool is_everywhere = n >= hosts;
      snprintf(text, sizeof text, "on %zu of %zu hosts", n, is_everywhere ? n : hosts);
      add_row(out, &l, is_everywhere ? "all" : "", x, same ? x->text : text);
    }
  }
}

json_t *findings_to_json(const Findings *f) {
  json_t *list = json_array();
  for (size_t i = 0; i < f->count; i++) {
    const Finding *x = &f->list[i];
    json_t *entry =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "level", level_names[x->level], "host", x->host,
                  "check", x->check, "finding", x->text, "remedy", x->remedy);
    if (json_array_append_new(list, entry) == 0) continue;
    json_decref(list);
    return NULL;
  }
  return list;
}
