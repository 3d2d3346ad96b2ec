#!/usr/bin/env python3
"""Writes src/text/bert_chars_table.h: the classes of characters that BERT's tokenizer uses, as Hugging
Face `tokenizers` (PyPI) implements them. Its tables are those of several Unicode versions, so every code
point is passed through it.
  make_chars.py > src/text/bert_chars_table.h
"""
import unicodedata

import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

clean = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
strip = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
split = BertPreTokenizer()


def is_removed(char):
    return clean.normalize_str(f"a{char}b") == "ab"


def is_mark(char):
    return strip.normalize_str(char) == "" and unicodedata.normalize("NFD", char) == char


def is_punctuation(char):
    return [piece for piece, _ in split.pre_tokenize_str(f"a{char}b")] == ["a", char, "b"]


def ranges(is_member):
    found = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or not is_member(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, comment, found):
    print(f"\n/* {comment} */\nstatic const CharRange {name}[] = {{")
    cells = [f"{{0x{a:x}, 0x{b:x}}}," for a, b in found]
    line = "   "
    for cell in cells:
        if len(line) + 1 + len(cell) > 95:
            print(line)
            line = "   "
        line += " " + cell
    print(line + "\n};")


print(f"/* Classes of characters for bert_chars.c. Written by tests/golden/wordpiece/make_chars.py from the\n"
      f" * behaviour of Hugging Face tokenizers {tokenizers.__version__}; do not edit. */\n"
      "#ifndef TEXT_BERT_CHARS_TABLE_H\n#define TEXT_BERT_CHARS_TABLE_H\n\n"
      '#include "text/char_range.h"\n\n/* clang-format off */')
table("removed", "control and format characters, private use, and U+FFFD", ranges(is_removed))
table("punctuation", "each of these is a word of its own", ranges(is_punctuation))
table("marks", "combining marks that are removed with the accents", ranges(is_mark))
print("\n/* clang-format on */\n\n#endif")
