#!/usr/bin/env python3
"""Writes vocab.txt and cases.jsonl beside this file: texts and the ids that Hugging Face `tokenizers`
(PyPI) gives them, for an uncased and a cased tokenizer with the same vocabulary.
  make_golden.py [PATH OF bert-base-uncased/vocab.txt] [CSV FILE]   also prints a checksum of the CSV's texts
"""
import csv
import gzip
import hashlib
import json
import os
import random
import struct
import sys

from tokenizers import BertWordPieceTokenizer

here = os.path.dirname(os.path.abspath(__file__))
vocab_path = os.path.join(here, "vocab.txt")

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
pieces += list("abcdefghijklmnopqrstuvwxyz0123456789")
pieces += ["##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
pieces += list("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~¿«»…–—’“”€")
pieces += "the of and un ##aff ##able hello world cafe uber naive cat ##s dog Hello World Über Café".split()
pieces += ["中", "国", "日", "か", "##な", "ß", "ss", "##ß", "é", "##é", "ё", "е", "##е", "н", "##н", "ا", "##ل", "ᄒ", "##ᅡ",
           "##ᆫ", "i̇", "##i̇", "😀", "##😀", "ｆ", "##ｆ", "¹", "##¹", "Ⅷ"]

texts = [
    "", " ", "Hello, world!", "unaffable", "the cats and the dog", "Café NAÏVE Über", "中国か", "ab\u200bcd", "a\u00a0b\u3000c",
    "a\x00b\ufffdc\ue000d", "a\tb\nc\rd\x0be\x0cf\x85g", "[CLS] a [SEP] b[MASK]c [unused0] [mask]", "[[MASK]]", "#$%^`~|<=>+",
    "x" * 100, "x" * 101, "é" * 100, "e\u0301" * 60, "İstanbul", "ΣΑΣ", "straße", "한", "Ёлка не", "😀😀 hello😀", "ｆｕｌｌ",
    "Ⅷ¹", "a\u0327\u0301\u0323b", "\u0301a \u0301", "\u302e\u302fa", "1\u06602", "don't—stop…", "¿qué?", "\u1680x\u2028y",
    "\u166d\U000111c9", "\u0e01\u0e33", "豈更", "##a ## #", "\ud7ff\ue000\uffff\U0010ffff", "Ǆ ǅ ﬁ ŉ", "a\u034fb", "\u07fd\u0898z",
]
random.seed(5)
pool = [chr(c) for c in range(32, 127)] + [chr(c) for c in range(0xA0, 0x530)] + list("中国か\u0301\u0327\u200b\u3000😀[MASK]")
texts += ["".join(random.choice(pool) for _ in range(random.randrange(1, 30))) for _ in range(120)]


def tokenizer(path, is_lower):
    return BertWordPieceTokenizer(path, lowercase=is_lower, strip_accents=is_lower, clean_text=True,
                                  handle_chinese_chars=True)


with open(vocab_path, "w", encoding="utf-8", newline="\n") as out:
    out.write("\n".join(pieces) + "\n")
uncased, cased = tokenizer(vocab_path, True), tokenizer(vocab_path, False)
with open(os.path.join(here, "cases.jsonl"), "w", encoding="utf-8", newline="\n") as out:
    for text in texts:
        case = {"text": text}
        for name, kind in (("uncased", uncased), ("cased", cased)):
            case[name] = kind.encode(text, add_special_tokens=False).ids
        out.write(json.dumps(case) + "\n")

if len(sys.argv) > 2:
    for is_lower in (True, False):
        kind, digest, count = tokenizer(sys.argv[1], is_lower), hashlib.sha256(), 0
        with gzip.open(sys.argv[2], "rt", newline="", encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                ids = kind.encode(row["text"], add_special_tokens=False).ids
                digest.update(struct.pack(f"<{len(ids) + 1}i", len(ids), *ids))
                count += len(ids)
        print("uncased" if is_lower else "cased", count, "ids", digest.hexdigest())
