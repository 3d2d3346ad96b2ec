/* Classes of characters of BERT's tokenizer, as sorted tables of ranges. Depends on
 * bert_chars_table, char_range. */
#include "text/bert_chars.h"

#include "text/bert_chars_table.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

bool bert_is_removed(uint32_t code) {
  return char_range_has(removed, COUNT(removed), code);
}

bool bert_is_punctuation(uint32_t code) {
  return char_range_has(punctuation, COUNT(punctuation), code);
}

bool bert_is_mark(uint32_t code) {
  return char_range_has(marks, COUNT(marks), code);
}

bool bert_is_space(uint32_t code) {
  static const CharRange space[] = {
      {'\t', '\n'},     {'\r', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
  };
  return char_range_has(space, COUNT(space), code);
}

bool bert_is_cjk(uint32_t code) {
  static const CharRange cjk[] = {
      {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
      {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
  };
  return char_range_has(cjk, COUNT(cjk), code);
}
