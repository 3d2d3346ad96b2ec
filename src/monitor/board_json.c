/* JSON of the board's answers. Depends on base, Jansson. */
#include "monitor/board_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/jsondoc.h"
#include "base/utf8.h"

void board_json_text(Str *out, const char *text, size_t len) {
  const char *at = text, *end = text + len;
  str_addc(out, '"');
  while (at < end) {
    uint32_t code;
    size_t bytes = utf8_decode(at, end, &code);
    if (bytes == 0 || code == 0)
      str_add(out, "\\ufffd");
    else if (code == '"' || code == '\\')
      str_addf(out, "\\%c", (char)code);
    else if (code < 0x20 || code == 0x7f)
      str_addf(out, "\\u%04x", (unsigned)code);
    else
      str_addn(out, at, bytes);
    at += bytes ? bytes : 1;
  }
  str_addc(out, '"');
}

void board_json_number(Str *out, double number) {
  if (isfinite(number))
    str_addf(out, "%.7g", number);
  else
    str_add(out, "null");
}

void board_json_exact(Str *out, double number) {
  if (isfinite(number))
    str_addf(out, "%.15g", number);
  else
    str_add(out, "null");
}

bool board_json_line(Str *out, const char *line, size_t len) {
  if (jsondoc_check(line, len, "a line")) return false;
  json_t *value = json_loadb(line, len, 0, NULL);
  char *text = json_is_object(value) ? json_dumps(value, JSON_COMPACT) : NULL;
  if (text) str_add(out, text);
  free(text);
  json_decref(value);
  return text != NULL;
}
