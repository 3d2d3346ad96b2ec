/* Reads lines of metrics.jsonl. Depends on scan. */
#include "monitor/board_line.h"

#include <string.h>

#include "monitor/scan.h"

static bool has_prefix(const Scan *s, const char *prefix) {
  size_t len = strlen(prefix);
  return s->key_len > len && memcmp(s->key, prefix, len) == 0;
}

static void take_number(Line *line, const Scan *s) {
  if (scan_key_is(s, "step")) {
    line->step = s->number;
  } else if (scan_key_is(s, "seconds")) {
    line->seconds = s->number;
  } else if (scan_key_is(s, "undone_after")) {
    line->undoes_later = true;
    line->undone_after = s->number;
  } else if (line->values < LINE_VALUES) {
    line->value[line->values].name = s->key;
    line->value[line->values].name_len = s->key_len;
    line->value[line->values].number = s->number;
    line->values++;
    if (has_prefix(s, "valid_")) line->kind = LINE_VALID;
    if (has_prefix(s, "average_")) line->kind = LINE_AVERAGE;
  }
}

bool line_read(Line *line, const char *text, size_t len) {
  line->kind = LINE_TRAIN;
  line->step = -1;
  line->seconds = 0;
  line->undoes_later = false;
  line->event[0] = '\0';
  line->values = 0;
  Scan s = scan_begin(text, len);
  ScanKind kind;
  while ((kind = scan_next(&s)) != SCAN_END) {
    if (kind == SCAN_ERROR) return false;
    if (s.depth != 1 || !s.key) continue;
    if (kind == SCAN_NUMBER) take_number(line, &s);
    if (kind == SCAN_TEXT && scan_key_is(&s, "event"))
      scan_unescape(s.text, s.text_len, line->event, sizeof line->event);
  }
  return line->step >= 0;
}
