/* The grid of characters. Depends on base/mem, base/utf8. */
#include "monitor/canvas.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"

#define TEXT_MAX 1024

Err canvas_open(Canvas *c, int rows, int cols, bool has_utf8) {
  size_t cells = (size_t)rows * (size_t)cols;
  *c = (Canvas){.rows = rows, .cols = cols, .has_utf8 = has_utf8};
  TRY(mem_alloc(&c->code, cells + 1, sizeof *c->code));
  Err err = mem_alloc(&c->style, cells + 1, sizeof *c->style);
  if (err) {
    canvas_close(c);
    return err;
  }
  for (size_t i = 0; i < cells; i++) c->code[i] = ' ';
  return ERR_OK;
}

void canvas_close(Canvas *c) {
  mem_free(c->code);
  mem_free(c->style);
  *c = (Canvas){0};
}

/* Returns the next character of a text as it is shown, and its length in bytes. */
static uint32_t next_character(const char *at, const char *end, bool has_utf8, size_t *bytes) {
  uint32_t code;
  *bytes = utf8_decode(at, end, &code);
  if (*bytes == 0) {
    *bytes = 1;
    return '?';
  }
  if (code < 0x80) return code >= ' ' && code < 0x7f ? code : '?';
  return has_utf8 && wcwidth((wchar_t)code) == 1 ? code : '?';
}

static void set_cell(Canvas *c, int row, int col, uint32_t code, Style style) {
  if (row < 0 || row >= c->rows || col < 0 || col >= c->cols) return;
  size_t i = (size_t)row * (size_t)c->cols + (size_t)col;
  c->code[i] = code;
  c->style[i] = (uint8_t)style;
}

int canvas_put(Canvas *c, int row, int col, Style style, const char *fmt, ...) {
  char text[TEXT_MAX];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  const char *end = text + strlen(text);
  size_t bytes;
  for (const char *at = text; at < end; at += bytes)
    set_cell(c, row, col++, next_character(at, end, c->has_utf8, &bytes), style);
  return col;
}

int canvas_width(const char *text) {
  const char *end = text + strlen(text);
  int width = 0;
  size_t bytes;
  for (const char *at = text; at < end; at += bytes) {
    next_character(at, end, false, &bytes);
    width++;
  }
  return width;
}

void canvas_row(const Canvas *c, int row, char *out) {
  const uint32_t *code = c->code + (size_t)row * (size_t)c->cols;
  int last = c->cols;
  while (last && code[last - 1] == ' ') last--;
  for (int i = 0; i < last; i++) out += utf8_encode(code[i], out);
  *out = '\0';
}

int canvas_dots_x(const Canvas *c) {
  return c->has_utf8 ? 2 : 1;
}

int canvas_dots_y(const Canvas *c) {
  return c->has_utf8 ? 4 : 2;
}

/* Adds a dot to a Braille character: U+2800 and a bit for each dot (Unicode, Braille Patterns). */
static uint32_t add_braille(uint32_t code, int x, int y) {
  static const uint32_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  uint32_t dots = code >= 0x2800 && code <= 0x28ff ? code : 0x2800;
  return dots | bit[y][x];
}

/* Adds the upper or lower half: ' for the upper, . for the lower, : for both. */
static uint32_t add_half(uint32_t code, int y) {
  bool has_upper = y == 0 || code == '\'' || code == ':';
  bool has_lower = y == 1 || code == '.' || code == ':';
  return has_upper && has_lower ? ':' : has_upper ? '\'' : '.';
}

void canvas_dot(Canvas *c, const CanvasBox *box, int x, int y, Style style) {
  int dots_x = canvas_dots_x(c), dots_y = canvas_dots_y(c);
  if (x < 0 || y < 0 || x >= box->cols * dots_x || y >= box->rows * dots_y) return;
  int row = box->row + y / dots_y, col = box->col + x / dots_x;
  if (row < 0 || row >= c->rows || col < 0 || col >= c->cols) return;
  uint32_t code = c->code[(size_t)row * (size_t)c->cols + (size_t)col];
  code = c->has_utf8 ? add_braille(code, x % dots_x, y % dots_y) : add_half(code, y % dots_y);
  set_cell(c, row, col, code, style);
}

void canvas_bar(Canvas *c, const CanvasBox *box, int x, int y0, int y1, Style style) {
  int from = y0 < y1 ? y0 : y1, to = y0 < y1 ? y1 : y0;
  for (int y = from; y <= to; y++) canvas_dot(c, box, x, y, style);
}
