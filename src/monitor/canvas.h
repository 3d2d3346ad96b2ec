/* A grid of characters with styles, onto which `trireme watch` draws. It is shown by ncurses or
 * printed as text. Without UTF-8 it holds ASCII only. Texts may be untrusted: what is not
 * printable, or not one column wide, becomes '?'. Depends on base. */
#ifndef MONITOR_CANVAS_H
#define MONITOR_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  STYLE_PLAIN,
  STYLE_TITLE,
  STYLE_CURVE,
  STYLE_MARK, /* points of a second curve */
  STYLE_GOOD,
  STYLE_WARN,
  STYLE_DIM, /* axes, help */
  STYLES,
} Style;

typedef struct {
  int rows, cols;
  bool has_utf8;
  uint32_t *code; /* (rows, cols) code points; blanks where nothing was drawn */
  uint8_t *style; /* (rows, cols) */
} Canvas;

NODISCARD Err canvas_open(Canvas *c, int rows, int cols, bool has_utf8);
void canvas_close(Canvas *c); /* does nothing if not open */

/* Writes a text. What is outside the grid is cut off. Returns the column after the text. */
int canvas_put(Canvas *c, int row, int col, Style style, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
/* Returns the number of columns of a text, as canvas_put writes it. */
int canvas_width(const char *text);
/* Copies a row as UTF-8, without blanks at its end. `out` has room for 4 * cols + 1 bytes. */
void canvas_row(const Canvas *c, int row, char *out);

/* A rectangle for curves. A cell has `canvas_dots_x` by `canvas_dots_y` dots: 2 by 4 (Braille)
 * with UTF-8, else 1 by 2. */
typedef struct {
  int row, col, rows, cols;
} CanvasBox;
int canvas_dots_x(const Canvas *c);
int canvas_dots_y(const Canvas *c);
/* Sets a dot; x from the left, y from the top of the box. Dots outside are ignored. */
void canvas_dot(Canvas *c, const CanvasBox *box, int x, int y, Style style);
/* Sets the dots from y0 to y1, in any order, of one column of dots. */
void canvas_bar(Canvas *c, const CanvasBox *box, int x, int y0, int y1, Style style);

#endif
