#!/usr/bin/env python3
"""Writes src/text/byte_chars_table.h: letters and numbers as the byte-level tokenizer of Hugging Face
`tokenizers` (PyPI) distinguishes them. Every code point is passed through it.
  make_chars.py > src/text/byte_chars_table.h
"""
import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

split = ByteLevel(add_prefix_space=False)


def ranges(neighbour):
    """Characters that are in one word with `neighbour`."""
    found = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or len(split.pre_tokenize_str(neighbour + chr(code))) != 1:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, comment, found):
    print(f"\n/* {comment} */\nstatic const CharRange {name}[] = {{")
    line = "   "
    for cell in [f"{{0x{a:x}, 0x{b:x}}}," for a, b in found]:
        if len(line) + 1 + len(cell) > 95:
            print(line)
            line = "   "
        line += " " + cell
    print(line + "\n};")


print(f"/* Classes of characters for byte_words.c. Written by tests/golden/byte_bpe/make_chars.py from the\n"
      f" * behaviour of Hugging Face tokenizers {tokenizers.__version__}; do not edit. */\n"
      "#ifndef TEXT_BYTE_CHARS_TABLE_H\n#define TEXT_BYTE_CHARS_TABLE_H\n\n"
      '#include "text/char_range.h"\n\n/* clang-format off */')
table("letters", "\\p{L}", ranges("a"))
table("numbers", "\\p{N}", ranges("1"))
print("\n/* clang-format on */\n\n#endif")
