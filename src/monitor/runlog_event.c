/* Fields of an event's record. The line was checked when it was read. Depends on scan. */
#include "monitor/runlog.h"
#include "monitor/scan.h"

/* Finds a field of the record. Returns its kind, or SCAN_END if it is missing. */
static ScanKind find_field(const RunEvent *event, const char *name, Scan *scan) {
  *scan = scan_begin(event->line, event->len);
  for (;;) {
    ScanKind kind = scan_next(scan);
    if (kind == SCAN_ERROR || kind == SCAN_END) return SCAN_END;
    if (scan_key_is(scan, name)) return kind;
    if (kind == SCAN_OPEN && scan->depth > 1 && !scan_skip(scan)) return SCAN_END;
  }
}

bool runlog_event_number(const RunEvent *event, const char *name, double *value) {
  Scan scan;
  if (find_field(event, name, &scan) != SCAN_NUMBER) return false;
  *value = scan.number;
  return true;
}

bool runlog_event_text(const RunEvent *event, const char *name, char *out, size_t room) {
  Scan scan;
  if (find_field(event, name, &scan) != SCAN_TEXT) return false;
  scan_unescape(scan.text, scan.text_len, out, room);
  return true;
}

size_t runlog_event_numbers(const RunEvent *event, const char *name, double *out, size_t most) {
  Scan scan;
  size_t count = 0;
  if (find_field(event, name, &scan) != SCAN_OPEN) return 0;
  while (count < most && scan_next(&scan) == SCAN_NUMBER && scan.depth == 2)
    out[count++] = scan.number;
  return count;
}

bool runlog_event_item(const RunEvent *event, const char *name, size_t index, char *out,
                       size_t room) {
  Scan scan;
  if (find_field(event, name, &scan) != SCAN_OPEN) return false;
  for (size_t i = 0; scan_next(&scan) == SCAN_TEXT; i++) {
    if (i < index) continue;
    scan_unescape(scan.text, scan.text_len, out, room);
    return true;
  }
  return false;
}
