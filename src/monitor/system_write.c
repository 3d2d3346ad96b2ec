/* Writes a sample as a line of system.jsonl, into memory that the caller provides. Depends on
 * system_gpu. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "monitor/system.h"
#include "monitor/system_gpu.h"

typedef struct {
  char *text;
  size_t len, size;
  bool is_full;     /* the line does not fit; nothing more is added */
  bool needs_comma; /* a value stands before the next one */
} Line;

static void add(Line *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add(Line *l, const char *fmt, ...) {
  va_list args;
  if (l->is_full) return;
  va_start(args, fmt);
  int n = vsnprintf(l->text + l->len, l->size - l->len, fmt, args);
  va_end(args);
  l->is_full = n < 0 || (size_t)n >= l->size - l->len;
  if (!l->is_full) l->len += (size_t)n;
}

static void add_comma(Line *l) {
  if (l->needs_comma) add(l, ",");
  l->needs_comma = true;
}

/* Opens or closes an object or a list. */
static void open_group(Line *l, char bracket) {
  add(l, "%c", bracket);
  l->needs_comma = false;
}
static void close_group(Line *l, char bracket) {
  add(l, "%c", bracket);
  l->needs_comma = true;
}

static void add_string(Line *l, const char *text) {
  add(l, "\"");
  for (; *text; text++) {
    bool is_plain = *text >= ' ' && *text <= '~' && *text != '"' && *text != '\\';
    add(l, "%c", is_plain ? *text : '_');
  }
  add(l, "\"");
}

static void add_key(Line *l, const char *key) {
  add_comma(l);
  add_string(l, key);
  add(l, ":");
}

static void add_text(Line *l, const char *key, const char *text) {
  add_key(l, key);
  add_string(l, text);
}

/* Adds a number with at most `digits` digits after the point, unless it is not known. */
static void add_number(Line *l, const char *key, double value, int digits) {
  if (!isfinite(value) || fabs(value) > 1e18) return;
  double unit = pow(10, digits), rounded = round(value * unit) / unit;
  bool is_whole = rounded == floor(rounded);
  add_key(l, key);
  add(l, "%.*f", is_whole ? 0 : digits, rounded);
}

static void add_cores(Line *l, const SystemSample *s) {
  if (!s->cores) return;
  add_key(l, "cpu");
  open_group(l, '[');
  for (size_t i = 0; i < s->cores; i++) {
    add_comma(l);
    add(l, "%.1f", (double)s->core[i]);
  }
  close_group(l, ']');
}

static void add_cards(Line *l, const SystemSample *s) {
  if (!s->cards) return;
  add_key(l, "net");
  open_group(l, '{');
  for (size_t i = 0; i < s->cards; i++) {
    const SystemCard *c = &s->card[i];
    add_key(l, c->name);
    open_group(l, '{');
    add_number(l, "received", c->received, 0);
    add_number(l, "sent", c->sent, 0);
    add_number(l, "speed", c->speed, 0);
    close_group(l, '}');
  }
  close_group(l, '}');
}

static void add_throttle(Line *l, uint64_t bits) {
  const char *last = NULL; /* several bits may be called "other" */
  add_key(l, "throttle");
  open_group(l, '[');
  for (int bit = 0; bit < 64; bit++) {
    const char *name = bits >> bit & 1 ? gpu_throttle_name(bit) : NULL;
    if (!name || name == last) continue;
    add_comma(l);
    add_string(l, name);
    last = name;
  }
  close_group(l, ']');
}

static void add_gpus(Line *l, const SystemSample *s) {
  if (!s->gpus) return;
  add_key(l, "gpu");
  open_group(l, '[');
  for (size_t i = 0; i < s->gpus; i++) {
    const SystemGpu *g = &s->gpu[i];
    add_comma(l);
    open_group(l, '{');
    add_number(l, "index", g->index, 0);
    if (g->name[0]) add_text(l, "name", g->name);
    add_number(l, "busy", g->busy, 1);
    add_number(l, "memory_used", g->memory_used, 0);
    add_number(l, "memory_total", g->memory_total, 0);
    add_number(l, "watts", g->watts, 1);
    add_number(l, "watts_limit", g->watts_limit, 1);
    add_number(l, "sm_mhz", g->sm_mhz, 0);
    add_number(l, "memory_mhz", g->memory_mhz, 0);
    add_number(l, "celsius", g->celsius, 0);
    if (g->has_throttle) add_throttle(l, g->throttle);
    close_group(l, '}');
  }
  close_group(l, ']');
}

size_t system_write(const SystemSample *s, char *line, size_t size) {
  Line l = {.text = line, .size = size};
  open_group(&l, '{');
  add_number(&l, "time", s->time, 3);
  add_text(&l, "host", s->host);
  add_number(&l, "step", s->step, 0);
  add_number(&l, "dropped", s->dropped, 0);
  add_cores(&l, s);
  add_number(&l, "memory_used", s->memory_used, 0);
  add_number(&l, "memory_total", s->memory_total, 0);
  add_number(&l, "process_memory", s->process_memory, 0);
  add_number(&l, "disk_read", s->disk_read, 0);
  add_number(&l, "disk_written", s->disk_written, 0);
  add_number(&l, "disk_free", s->disk_free, 0);
  add_number(&l, "watts_cpu", s->watts_cpu, 1);
  add_cards(&l, s);
  add_gpus(&l, s);
  close_group(&l, '}');
  add(&l, "\n");
  return l.is_full ? 0 : l.len;
}
