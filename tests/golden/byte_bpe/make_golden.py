#!/usr/bin/env python3
"""Writes vocab.json, merges.txt, tokenizer.json and cases.jsonl beside this file: texts and the ids that
Hugging Face `tokenizers` (PyPI) gives them.
  plain   vocab.json and merges.txt
  prefix  the same with add_prefix_space
  added   tokenizer.json: as plain, but <mask> takes the white space before it, and there are other added
          tokens
"""
import json
import os
import random

from tokenizers import AddedToken, ByteLevelBPETokenizer

here = os.path.dirname(os.path.abspath(__file__))
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
corpus = [
    "Hello world, you're a kind person and I'm glad that you've come; they'll say she's right, he'd agree, don't they?",
    "The quick brown fox jumps over the lazy dog 1234567890 times in 2023 and 2024.",
    "Die Bürger über den größeren Straßen hören schöne Lieder, naïve cafés und Übungen.",
    "the theory of the other thing is that there is nothing there; this and that and those and these",
    "    indented\n\tline   with   spaces\n\n", "中国 日本 中国人 日本人", "Привет мир, как дела сегодня", "😀😀😀 🎉🎉",
] * 20
texts = [
    "", " ", "  ", "\n", "a", " a", "  a", "\ta", " \ta", "\t a", "a ", "a  ", "a\n", "a \n b", "Hello, world!", "you're they'll he'd I'm we've it's don't",
    "YOU'RE IT'S", "'s", " 's", "!'s", "''s", "'re're", "'r", "x'sx", "can't123've", "1's", "abc123def 456ghi", "1,234.56", "²³¼ⅷ½x", "a\u00a0b\u3000c\u2028d\u0085e",
    "\u200bx\ufeffy", "\x00\x01\x7f", "Straße über naïve", "e\u0301cole", "中国か 日本人", "Привет, мир", "😀 😀😀", "👩‍👩‍👧", "\u0e01\u0e33", "한국어",
    "<s> a </s>", "a <mask> b", "a<mask>b", "a  <mask>  b", "<mask>", " <mask>", "<mask><mask>", "<pad><unk>", "<S> <mask", "a\u3000<mask>", "new token", "anew tokens  here",
    "x<|sep|>  y", "<|sep|><mask>", "  leading", "trailing  ", "a\r\nb", "\U0010ffff\ue000", "ǅ ʰ ª º ٣ 〇 ⅳ", "____ ---- ....", "#hashtag @user https://t.co/abc",
    "the " * 30, "a" * 300, "theory of everything else",
]
random.seed(7)
pool = [chr(c) for c in range(0, 0x250)] + list("    \n\t\u00a0\u2003''''srevlmdt中国人дел😀") + [chr(c) for c in range(0x300, 0x2000, 3)]
texts += ["".join(random.choice(pool) for _ in range(random.randrange(1, 30))) for _ in range(150)]
letters = list("'''   \n\tsrevlmdtxyz019.,!") + [" \t", "  "]
texts += ["".join(random.choice(letters) for _ in range(random.randrange(1, 30))) for _ in range(150)]

trained = ByteLevelBPETokenizer()
trained.train_from_iterator(corpus, vocab_size=520, special_tokens=SPECIALS, show_progress=False)
trained.save_model(here)


def load(prefix):
    t = ByteLevelBPETokenizer(os.path.join(here, "vocab.json"), os.path.join(here, "merges.txt"), add_prefix_space=prefix)
    t.add_special_tokens(SPECIALS)
    return t


kinds = {"plain": load(False), "prefix": load(True)}
added = ByteLevelBPETokenizer(os.path.join(here, "vocab.json"), os.path.join(here, "merges.txt"))
added.add_special_tokens(SPECIALS[:-1] + [AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
added.add_special_tokens([AddedToken("<|sep|>", rstrip=True, normalized=False, special=True)])
added.add_tokens([AddedToken("new token", normalized=True), AddedToken("new tokens", normalized=True)])
added.save(os.path.join(here, "tokenizer.json"), pretty=False)
kinds["added"] = added
with open(os.path.join(here, "cases.jsonl"), "w", encoding="utf-8", newline="\n") as out:
    for text in texts:
        case = {"text": text}
        for name, kind in kinds.items():
            case[name] = kind.encode(text, add_special_tokens=False).ids
        out.write(json.dumps(case) + "\n")
