/* The grid of characters of `watch`: texts, clipping, dots. */
#include <locale.h>
#include <stdio.h>

#include "base/mem.h"
#include "monitor/canvas.h"
#include "support.h"

/* Returns a row as text; valid until the next call. */
static const char *row(const Canvas *c, int i) {
  static char text[512];
  canvas_row(c, i, text);
  return text;
}

static void test_canvas_text_is_clipped_at_the_edges(void **state) {
  (void)state;
  Canvas c;
  OK(canvas_open(&c, 2, 5, false));
  assert_int_equal(canvas_put(&c, 0, 3, STYLE_PLAIN, "abc"), 6);
  canvas_put(&c, 1, -2, STYLE_PLAIN, "xyz %d", 7);
  canvas_put(&c, 2, 0, STYLE_PLAIN, "below");
  canvas_put(&c, -1, 0, STYLE_PLAIN, "above");
  assert_string_equal(row(&c, 0), "   ab");
  assert_string_equal(row(&c, 1), "z 7");
  canvas_close(&c);
}

static void test_canvas_controls_and_broken_bytes_become_question_marks(void **state) {
  (void)state;
  Canvas c;
  OK(canvas_open(&c, 1, 40, true));
  canvas_put(&c, 0, 0, STYLE_PLAIN, "a\033[2Jb\xff\tc\x7f");
  assert_string_equal(row(&c, 0), "a?[2Jb??c?");
  canvas_close(&c);
}

static void test_canvas_other_characters_need_utf8_and_one_column(void **state) {
  (void)state;
  Canvas c;
  if (!setlocale(LC_CTYPE, "C.UTF-8")) skip();
  OK(canvas_open(&c, 1, 40, true));
  canvas_put(&c, 0, 0, STYLE_PLAIN, "\u00fc \u6f22 \u0301.");
  assert_string_equal(row(&c, 0), "\u00fc ? ?.");
  canvas_close(&c);
  OK(canvas_open(&c, 1, 40, false));
  canvas_put(&c, 0, 0, STYLE_PLAIN, "\u00fc.");
  assert_string_equal(row(&c, 0), "?.");
  assert_int_equal(canvas_width("\u00fc."), 2);
  canvas_close(&c);
}

static void test_canvas_braille_has_two_by_four_dots_in_a_cell(void **state) {
  (void)state;
  Canvas c;
  CanvasBox box = {0, 1, 1, 1};
  OK(canvas_open(&c, 1, 3, true));
  canvas_dot(&c, &box, 0, 0, STYLE_CURVE);
  assert_int_equal(c.code[1], 0x2801);
  canvas_bar(&c, &box, 1, 3, 0, STYLE_CURVE);
  assert_int_equal(c.code[1], 0x2800 | 0x01 | 0x08 | 0x10 | 0x20 | 0x80);
  assert_int_equal(c.style[1], STYLE_CURVE);
  canvas_close(&c);
}

static void test_canvas_ascii_has_two_halves_in_a_cell(void **state) {
  (void)state;
  Canvas c;
  CanvasBox box = {0, 0, 1, 3};
  OK(canvas_open(&c, 1, 3, false));
  canvas_dot(&c, &box, 0, 0, STYLE_CURVE);
  canvas_dot(&c, &box, 1, 1, STYLE_CURVE);
  canvas_bar(&c, &box, 2, 0, 1, STYLE_CURVE);
  assert_string_equal(row(&c, 0), "'.:");
  canvas_close(&c);
}

static void test_canvas_dots_outside_the_box_are_ignored(void **state) {
  (void)state;
  Canvas c;
  CanvasBox box = {0, 1, 1, 1}, beyond = {5, 5, 3, 3};
  OK(canvas_open(&c, 1, 3, true));
  canvas_dot(&c, &box, 2, 0, STYLE_CURVE);
  canvas_dot(&c, &box, -1, 0, STYLE_CURVE);
  canvas_dot(&c, &box, 0, 4, STYLE_CURVE);
  canvas_dot(&c, &beyond, 0, 0, STYLE_CURVE);
  assert_string_equal(row(&c, 0), "");
  canvas_close(&c);
}

static void test_canvas_without_memory_fails(void **state) {
  (void)state;
  for (uint64_t n = 1; n <= 2; n++) {
    Canvas c;
    mem_fail_after(n);
    Err err = canvas_open(&c, 10, 10, true);
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_canvas_text_is_clipped_at_the_edges),
      cmocka_unit_test(test_canvas_controls_and_broken_bytes_become_question_marks),
      cmocka_unit_test(test_canvas_other_characters_need_utf8_and_one_column),
      cmocka_unit_test(test_canvas_braille_has_two_by_four_dots_in_a_cell),
      cmocka_unit_test(test_canvas_ascii_has_two_halves_in_a_cell),
      cmocka_unit_test(test_canvas_dots_outside_the_box_are_ignored),
      cmocka_unit_test(test_canvas_without_memory_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
