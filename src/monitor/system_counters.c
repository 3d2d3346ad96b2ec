/* Parsers of /proc. Depends on str. */
#include "monitor/system_counters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define SECTOR 512 /* bytes; the unit of /proc/diskstats on every device */

/* Reads a decimal number after blanks and advances *at. Returns false, and leaves *at, if there is
 * none or it does not fit. */
static bool read_number(const char **at, uint64_t *number) {
  const char *p = *at + strspn(*at, " \t");
  uint64_t n = 0;
  if (*p < '0' || *p > '9') return false;
  for (; *p >= '0' && *p <= '9'; p++) {
    unsigned digit = (unsigned)(*p - '0');
    if (n > (UINT64_MAX - digit) / 10) return false;
    n = 10 * n + digit;
  }
  *at = p;
  *number = n;
  return true;
}

/* Reads up to `max` numbers of the line and returns how many there are. */
static size_t read_numbers(const char *at, uint64_t *number, size_t max) {
  size_t n = 0;
  while (n < max && read_number(&at, &number[n])) n++;
  return n;
}

/* Returns the beginning of the next line; NULL if there is none, or if it has no line break because
 * the text was cut there. */
static const char *next_line(const char *at) {
  const char *end = strchr(at, '\n');
  return end && strchr(end + 1, '\n') ? end + 1 : NULL;
}

/* Returns the first line; NULL if it has no line break. */
static const char *first_line(const char *text) {
  return strchr(text, '\n') ? text : NULL;
}

/* cpuN user nice system idle iowait irq softirq steal …: time that another virtual machine took
 * (steal) is neither busy nor idle. Time of guests is part of user. */
size_t counters_parse_cores(const char *text, CoreTime *core, size_t max) {
  enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, FIELDS };
  size_t n = 0;
  for (const char *at = first_line(text); at && n < max; at = next_line(at)) {
    uint64_t number, t[FIELDS] = {0};
    const char *p = at + 3;
    if (!str_starts(at, "cpu") || *p == ' ' || !read_number(&p, &number)) continue;
    if (number > UINT32_MAX || read_numbers(p, t, FIELDS) <= IDLE) continue;
    uint64_t busy = t[USER] + t[NICE] + t[SYSTEM] + t[IRQ] + t[SOFTIRQ];
    core[n++] = (CoreTime){.number = (unsigned)number,
                           .busy = busy,
                           .total = busy + t[IDLE] + t[IOWAIT] + t[STEAL]};
  }
  return n;
}

/* Finds the line "KEY: 123 kB" and sets *bytes. */
static bool find_kilobytes(const char *text, const char *key, uint64_t *bytes) {
  for (const char *at = first_line(text); at; at = next_line(at)) {
    uint64_t kilobytes;
    if (!str_starts(at, key)) continue;
    at += strlen(key);
    if (!read_number(&at, &kilobytes) || kilobytes > UINT64_MAX / 1024) return false;
    *bytes = kilobytes * 1024;
    return true;
  }
  return false;
}

bool counters_parse_memory(const char *text, uint64_t *total, uint64_t *available) {
  return find_kilobytes(text, "MemTotal:", total) &&
         find_kilobytes(text, "MemAvailable:", available) && *available <= *total;
}

/* Copies a word that ends with one of the bytes in `ends`. Returns false if it is empty or too
 * long. */
static bool copy_word(const char *at, const char *ends, char word[SYSTEM_NAME]) {
  size_t n = strcspn(at, ends);
  if (!n || n >= SYSTEM_NAME) return false;
  memcpy(word, at, n);
  word[n] = '\0';
  return true;
}

/* MAJOR MINOR NAME reads merged sectors ms writes merged sectors … */
bool counters_parse_disks(const char *text, bool (*is_disk)(const char *name, void *context),
                          void *context, DiskBytes *sum) {
  enum {
    READS,
    READ_MERGED,
    READ_SECTORS,
    READ_MS,
    WRITES,
    WRITE_MERGED,
    WRITE_SECTORS,
    FIELDS
  };
  bool is_found = false;
  *sum = (DiskBytes){0};
  for (const char *at = first_line(text); at; at = next_line(at)) {
    uint64_t skipped, value[FIELDS];
    char name[SYSTEM_NAME];
    const char *p = at;
    if (!read_number(&p, &skipped) || !read_number(&p, &skipped)) continue;
    p += strspn(p, " ");
    if (!copy_word(p, " \n", name)) continue;
    if (read_numbers(p + strlen(name), value, FIELDS) < FIELDS) continue;
    if (!is_disk(name, context)) continue;
    sum->read += value[READ_SECTORS] * SECTOR;
    sum->written += value[WRITE_SECTORS] * SECTOR;
    is_found = true;
  }
  return is_found;
}

/* NAME: bytes packets errs drop fifo frame compressed multicast bytes packets … */
size_t counters_parse_cards(const char *text, CardBytes *card, size_t max) {
  enum { RECEIVED = 0, SENT = 8, FIELDS };
  size_t n = 0;
  for (const char *at = first_line(text); at && n < max; at = next_line(at)) {
    uint64_t value[FIELDS];
    CardBytes c;
    const char *p = at + strspn(at, " ");
    if (!copy_word(p, ": \n", c.name) || p[strlen(c.name)] != ':') continue;
    if (strcmp(c.name, "lo") == 0) continue;
    if (read_numbers(p + strlen(c.name) + 1, value, FIELDS) < FIELDS) continue;
    c.received = value[RECEIVED];
    c.sent = value[SENT];
    if (c.received || c.sent) card[n++] = c;
  }
  return n;
}

bool counters_parse_resident(const char *text, uint64_t *pages) {
  uint64_t size;
  return read_number(&text, &size) && read_number(&text, pages);
}

bool counters_parse_number(const char *text, uint64_t *number) {
  return read_number(&text, number);
}

double counters_parse_rate(const char *text) {
  char *end;
  double gigabits = strtod(text, &end);
  bool is_rate = end != text && str_starts(end, " Gb/sec") && gigabits > 0 && gigabits < 1e6;
  return is_rate ? gigabits * 1e3 : NAN;
}
