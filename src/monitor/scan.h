/* A scanner for one line of JSON from an untrusted file. It reads values one after another, without
 * building a tree and without allocating memory: a line of metrics is scanned at some hundred MB/s.
 * Depends on utf8.
 *
 *   Scan s = scan_begin(line, len);
 *   for (ScanKind kind; (kind = scan_next(&s)) != SCAN_END && kind != SCAN_ERROR;)
 *     if (kind == SCAN_NUMBER && scan_key_is(&s, "step")) step = s.number; */
#ifndef MONITOR_SCAN_H
#define MONITOR_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#define SCAN_DEPTH 8 /* deepest nesting of objects and arrays */

typedef enum {
  SCAN_END,    /* the line is complete */
  SCAN_ERROR,  /* the line is not JSON: `why` and `at` */
  SCAN_NUMBER, /* `number` */
  SCAN_TEXT,   /* `text`, `text_len`: as in the file, with its escapes; see scan_unescape */
  SCAN_OTHER,  /* true, false or null */
  SCAN_OPEN,   /* an object or array begins; `depth` counts it already */
  SCAN_CLOSE,  /* an object or array ends; `depth` no longer counts it */
} ScanKind;

typedef struct {
  const char *at, *end; /* the rest of the line */
  const char *begin;
  const char *why; /* after SCAN_ERROR: the reason */
  const char *key; /* name of the value, in an object; NULL in an array. Raw, as in the file */
  size_t key_len;
  double number;
  const char *text;
  size_t text_len;
  int depth;                   /* 0 outside the outermost object */
  bool is_array[SCAN_DEPTH];   /* what is open at each depth */
  bool has_values[SCAN_DEPTH]; /* a comma must come before the next value */
  bool is_done;                /* the outermost object has ended */
} Scan;

/* Begins to scan a line; the outermost value must be an object. */
Scan scan_begin(const char *line, size_t len);
/* Reads the next value. After SCAN_ERROR or SCAN_END it must not be called again. */
ScanKind scan_next(Scan *s);
/* Skips the rest of the object or array that the last call opened. Returns false after an error. */
bool scan_skip(Scan *s);
/* Returns true if the last value has this name. */
bool scan_key_is(const Scan *s, const char *name);
/* Copies the text of SCAN_TEXT (or a key) without its escapes, as UTF-8 that ends with NUL. Text
 * that does not fit is cut at a whole character. Control characters and marks of direction become blanks, and bytes that
 * are not UTF-8 become '?'. */
void scan_unescape(const char *text, size_t len, char *out, size_t room);

/* Copies a name that consists of letters, digits and "_-./:" alone and fits; returns false for any
 * other, so that names can be printed anywhere. */
bool scan_copy_name(char *out, size_t room, const char *name, size_t len);

#endif
