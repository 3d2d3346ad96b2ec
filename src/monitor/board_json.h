/* Writes JSON to a Str: what answers of the board are made of. Depends on base/str, base/utf8. */
#ifndef MONITOR_BOARD_JSON_H
#define MONITOR_BOARD_JSON_H

#include "base/str.h"

/* Appends a text in quotes. Bytes that are not UTF-8, and NUL, become U+FFFD. */
void board_json_text(Str *out, const char *text, size_t len);
/* Appends a number with 7 digits, or null if it is not finite. */
void board_json_number(Str *out, double number);
/* Appends a number with all its digits: steps, times. */
void board_json_exact(Str *out, double number);
/* Appends an object from a line of a file. Returns false, and appends nothing, if the line is not
 * a JSON object. */
bool board_json_line(Str *out, const char *line, size_t len);

#endif
