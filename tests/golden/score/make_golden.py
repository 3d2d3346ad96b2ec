#!/usr/bin/env python3
"""Writes the golden files of tests/unit/test_metric.c: small inputs that are hard
to score, and their scores by sacreBLEU 2.6.0 (on NumPy 2), in full precision.

    python make_golden.py [--out DIR] [--seed N]

Requires: pip install sacrebleu==2.6.0 regex 'numpy>=2'.
"""
import argparse
import json
import os
import random
import unicodedata

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

# Each row: a hypothesis and three references.
HARD = [
    ("the cat sat on the mat .", "the cat sat on the mat .", "a cat sat on a mat .", ""),
    ("", "an empty hypothesis", "", "nothing"),
    ("an empty reference", "", "", ""),
    ("", "", "", ""),
    ("word", "word", "words", "Word"),
    ("word", "other", "word", "another"),
    ("two words", "two words", "words two", "two"),
    ("only three words", "three only words", "only three words", "x"),
    ("a a a a a a", "a a a", "a a a a", "b a"),
    ("In 1,000.50 or 1.000,50 -- e.g. 3.14, .5, 5., and 1,2,3.", "In 1,000.50 or 1.000,50 e.g. 3.14", "1,000.50.", "5."),
    ("Wait... what?! No..., yes.., 7..8 a..5 .,.,", "Wait ... what ? ! No ... , yes . . ,", "Wait...", "...."),
    ("a 10-year-old in 1990-2000, x-1-y 5--6 - 7-", "a 10 - year-old in 1990 - 2000", "10-year-old", "5 -- 6"),
    ("&quot;Tom &amp; Jerry&quot; &lt;b&gt; &amp;lt; &amp;amp;quot; &apos;", '"Tom & Jerry" <b> < &quot; \'', "&", "&amp;"),
    ("a <skipped> b &qu<skipped>ot; <skip<skipped>ped> c", "a b \" <skipped> c", "a b", "c"),
    ("tab\tbetween\twords \t and  double   spaces", "tab between words and double spaces", "tab", "words"),
    ("  leading and trailing   ", "leading and trailing", " leading", "trailing "),
    ("carriage return\r", "carriage return", "return\r", "\r"),
    ("inner\rreturn\x0bvertical\x0cform\x1cfs\x1dgs\x1ers\x1fus", "inner return vertical form fs gs rs us", "inner", "us"),
    ("no-break\u00a0space\u2003em\u3000ideographic\u0085nel\u2028ls\u202fnarrow", "no-break space em ideographic nel ls narrow", "space", "ls"),
    ("zero\u200bwidth\ufeffjoiner\u200d not \u2060 spaces \u180e", "zero\u200bwidth joiner not spaces", "zero width", "x"),
    ("\u00a0\u2003 \u3000", "only spaces", "\u3000", "x"),
    ("«Bonjour», dit-il: “oui” — ‘non’… ¿qué? 5€ £3 100%", "« Bonjour », dit-il : “ oui ” — ‘ non ’ …", "Bonjour", "5 €"),
    ("H₂O x² ½ ③ Ⅳ ٣,٤ १.२ 五.六", "H₂O x² ½ ③ Ⅳ ٣ , ٤ १ . २", "x²", "½."),
    ("C++ & C# are 3 > 2 ^ ~ `code` $5.00 | {x} [y] @home #1 50%", "C++ and C# are 3 > 2", "$ 5.00", "# 1"),
    ("(hi) \"quoted\" 'single' it's don't -dash dash- !", "(hi ) \" quoted \" ' single '", "(hi)", "it 's"),
    ("! ? . , ; : ' \" ( ) -", "! ? .", ".", "-"),
    ("!! ?? .. (( a! !a !a!", "!! ? ? .. a ! ! a", "a!", "!a"),
    ("我爱北京天安门，天安门上太阳升。", "我爱北京天安门，太阳升起。", "我 爱 北京", "北京。"),
    ("これはペンです。 カタカナ、ひらがな！", "これは鉛筆です。 カタカナ、ひらがな！", "ペン", "です"),
    ("مرحبا بالعالم، كيف حالك؟ ١٢٣٫٤٥", "مرحبا يا عالم، كيف حالك؟ ١٢٣٫٤٥", "مرحبا", "؟"),
    ("नमस्ते दुनिया। यह एक परीक्षण है॥", "नमस्ते संसार। यह परीक्षण है॥", "नमस्ते", "है"),
    ("สวัสดีชาวโลก ฿100 ๑๒๓", "สวัสดีโลก ฿100 ๑๒๓", "สวัสดี", "฿"),
    ("👍🏽 👨‍👩‍👧‍👦 ❤️ 🇩🇪 ok 🙂🙂", "👍 👨‍👩‍👧 ❤ 🇩🇪 ok 🙂", "🙂", "ok"),
    ("e\u0301 vs é, n\u0303o a\u0308\u0323", "é vs e\u0301, ño", "e\u0301", "é"),
    ("ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. ΑΣ' ΑΣΑ Α\u0301Σ 1Σ Σ1 ΑΣ\u00adΒ ªΣ ⅢΣ ⓐΣ", "οδυσσευς σας σ ας. ας' ασα ά́ς", "ΟΔΥΣΣΕΥΣ", "ΣΣ"),
    ("İstanbul ISPARTA ıı ẞ ǅ ÄÖÜ Ⱥ ΑΒΓ ДЖ ᲐᲑ Ꭰ 𐐀", "istanbul isparta i\u0307stanbul ß ǆ äöü ⱥ αβγ дж", "İ", "ǅ"),
    ("UPPER Mixed lower", "upper mixed lower", "UPPER MIXED LOWER", "Upper"),
    ("nul\x00inside and \x7f del", "nul inside and del", "\x00", "nul"),
    ("abcdefghij", "abcdefghijk", "abc", "j"),
    ("ab", "abc", "a", "b"),
    ("a", "b", "c", "d"),
    ("completely different words here", "nothing shared at all in", "none", "zero"),
    ("d c b a", "a b c d", "b a d c", "d c"),
    ("the quick brown fox jumps over the lazy dog", "over the lazy dog the quick brown fox jumps", "the lazy dog jumps", "fox"),
    ("x y z the end of the long road is here x y z", "here is the end of the long road x y z x y z", "the end", "z y x"),
    ("a b a b a b a b a b a b c", "b a b a b a b a b a b a c", "c a b", "a b c"),
    ("1.", "1.", "1 .", "1"),
    (".5", ". 5", ".5", "5"),
    ("--", "- -", "--", "-"),
    ("5-", "5 -", "5", "-"),
]

WORDS = "the of a to in cat dog sat mat on , . house 3.5 is green and ran fast tree".split()

# Blocks of scripts that Unicode assigned long ago; unassigned code points are left out.
RANGES = [(0x20, 0x7e)] * 6 + [
    (0x09, 0x0d), (0x1c, 0x20), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x45f), (0x5d0, 0x5ea),
    (0x600, 0x66f), (0x900, 0x97f), (0xe01, 0xe5b), (0x10a0, 0x10ff), (0x1680, 0x169c),
    (0x2000, 0x206f), (0x2070, 0x20b0), (0x2150, 0x218b), (0x2460, 0x24ff), (0x2600, 0x26ff),
    (0x3000, 0x30ff), (0x4e00, 0x4e40), (0xac00, 0xac40), (0xfe10, 0xfe6b), (0xff00, 0xff65),
    (0x10400, 0x10450), (0x1d7ce, 0x1d7ff), (0x1f300, 0x1f320), (0x1f130, 0x1f189), (0x300, 0x345),
]


def salad(rng):
    """Shuffled, cut, doubled and disturbed copies, for the shifts of TER."""
    rows = []
    for i in range(40):
        vocabulary = WORDS[:rng.choice([3, 6, 12, len(WORDS)])]
        n = rng.choice([1, 2, 3, 5, 8, 13, 20, 30])
        if i == 0:
            n = 120
        row = [[rng.choice(vocabulary) for _ in range(n)]]
        for _ in range(4):
            words = list(row[0])
            for _ in range(rng.randrange(4)):
                if len(words) > 2:  # move a run of words elsewhere
                    start = rng.randrange(len(words) - 1)
                    size = rng.randrange(1, min(14, len(words) - start) + 1)
                    run = words[start:start + size]
                    del words[start:start + size]
                    at = rng.randrange(len(words) + 1)
                    words[at:at] = run
            for _ in range(rng.randrange(3)):
                if words:
                    action = rng.randrange(3)
                    at = rng.randrange(len(words))
                    if action == 0:
                        del words[at]
                    elif action == 1:
                        words[at] = rng.choice(vocabulary)
                    else:
                        words.insert(at, rng.choice(vocabulary))
            row.append(words)
        rows.append([" ".join(words) for words in row])
    # Very different lengths, for which TER widens its beam: a short hypothesis, and a short
    # reference.
    long = " ".join(rng.choice(WORDS) for _ in range(130))
    rows.append(["cat", long, long, "cat dog", long])
    rows.append([long, "cat", "dog", long, "the"])
    rows.append(["cat the", long, long, "dog of cat", long])
    return [list(column) for column in zip(*rows)]


def limits():
    """Lines whose scores depend on one of TER's limits, one limit after another."""
    words = [f"w{i}" for i in range(75)]
    new = [f"x{i}" for i in range(30)]

    def moved(start, size, at):
        rest = words[:start] + words[start + size:]
        return rest[:at] + words[start:start + size] + rest[at:]

    pairs = [(new[:n] + words[:75 - n], words) for n in (24, 25, 26)]  # the width of the beam: 25
    pairs += [(moved(0, 1, n), words) for n in (49, 50, 51)]  # the distance of a shift: 50
    pairs += [(moved(2, n, 30), words) for n in (9, 10, 11, 12)]  # the length of a shift: 10
    # The number of shift candidates, 1000: 960 or 1040 would give other scores. In the last pair a
    # run of words is shifted to its own end.
    for hyp, ref in (("baaaababab" "aabbaaaaba" "baaabbaba", "bbaabbbbaa" "baabaaaabb" "aaaaaabaa"),
                     ("bbbbbbaabb" "bbaaaabaab" "aababba", "babbaababa" "ababbbbabb" "babaaba"),
                     ("ccaaabbbaa", "bbcabcaaccc")):
        pairs.append((list(hyp), list(ref)))
    rows = [[hyp, ref[::-1], ref, hyp[::2], ref[::2]] for hyp, ref in pairs]
    return [[" ".join(line) for line in column] for column in zip(*rows)]


def scripts(rng):
    """Random characters of many scripts, with common substrings, so that some match."""
    def some(n):
        out = []
        while len(out) < n:
            low, high = rng.choice(RANGES)
            c = rng.randint(low, high)
            if unicodedata.category(chr(c)) != "Cn" and c != 0x0a:
                out.append(chr(c))
        return "".join(out)

    rows = []
    for _ in range(40):
        stem = some(rng.choice([0, 1, 2, 5, 20, 40]))
        row = []
        for _ in range(5):
            cut = rng.randrange(len(stem) + 1)
            row.append(stem[:cut] + some(rng.randrange(4)) + stem[cut + rng.randrange(3):])
        rows.append(row)
    return [list(column) for column in zip(*rows)]


def punctuation(rng):
    """Runs of the characters the 13a and intl rules look at."""
    alphabet = list("0123ab.,-.,- '\"&;()/:%€…،٣²½«》。") + ["&amp;", "&quot;", "&lt;", "<skipped>", " "]
    rows = []
    for _ in range(40):
        row = ["".join(rng.choice(alphabet) for _ in range(rng.randrange(24))) for _ in range(5)]
        if rng.random() < 0.7:
            row[2] = row[0][:rng.randrange(len(row[0]) + 1)] + row[2]
        rows.append(row)
    return [list(column) for column in zip(*rows)]


def hard():
    columns = [list(column) for column in zip(*HARD)]
    other = [line[::-1] if i % 3 == 0 else columns[(1, 2)[i % 2]][i] for i, line in enumerate(columns[0])]
    return [columns[0], other] + columns[1:]


def nothing():
    """No match in the whole corpus, and no words in some of it."""
    return [["", "", "", ""], ["alpha", "beta gamma", "", "x y z u v"],
            ["one", "two three", "four", ""], ["", "", "", ""], ["one", "", "", ""]]


NAMES = ["hyp", "other", "ref0", "ref1", "ref2"]


def make(kind, references, lowercase=False, tokenize="13a", effective=False):
    if kind == "bleu":
        return BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=effective,
                    references=references, force=True)
    if kind == "ter":
        return TER(references=references)
    return CHRF(word_order=2 if kind == "chrf++" else 0, lowercase=lowercase, references=references)


def configs(refs):
    for tokenize in ("13a", "none", "intl", "char"):
        yield dict(metric="bleu", tokenize=tokenize, lowercase=False)
    for kind in ("chrf", "chrf++", "ter"):
        yield dict(metric=kind, lowercase=False)
    if refs == 1:
        for tokenize in ("13a", "none", "intl", "char"):
            yield dict(metric="bleu", tokenize=tokenize, lowercase=True)
        yield dict(metric="chrf", lowercase=True)
        yield dict(metric="chrf++", lowercase=True)


def bootstrap(columns, kind, refs, resamples, seed):
    """Interval of the hypothesis, and the paired test against the other system."""
    os.environ["SACREBLEU_SEED"] = str(seed)
    references = columns[2:2 + refs]
    metric = make(kind, references)
    out = dict(metric=kind, refs=refs, resamples=resamples, seed=seed)
    try:
        score = metric.corpus_score(columns[0], None, n_bootstrap=resamples)
        out["signature"] = str(metric.get_signature())
        out["mean"], out["ci"] = float(score._mean), float(score._ci)
    except TypeError:
        pass  # Python's mean does not take float32 and float together
    test = PairedTest([("a", columns[0]), ("b", columns[1])], {kind: make(kind, references)},
                      references=None, test_type="bs", n_samples=resamples)
    _, scores = test()
    (results,) = [v for k, v in scores.items() if k != "System"]
    out["paired"] = [dict(score=r.score, mean=float(r.mean), ci=float(r.ci),
                          **({} if r.p_value is None else {"p": r.p_value})) for r in results]
    return out


def as_read(line):
    return line.rstrip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    os.makedirs(args.out, exist_ok=True)

    sets = {"hard": hard(), "salad": salad(rng), "scripts": scripts(rng),
            "punctuation": punctuation(rng), "limits": limits(), "nothing": nothing()}
    expected = {"sacrebleu": "2.6.0", "numpy": np.__version__, "sets": {}, "pcg64": []}
    for name, columns in sets.items():
        for suffix, lines in zip(NAMES, columns):
            path = os.path.join(args.out, f"{name}.{suffix}")
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(line + "\n" for line in lines)
        columns = [[as_read(line) for line in lines] for lines in columns]
        cases, boots = [], []
        for refs in (1, 2, 3):
            references = columns[2:2 + refs]
            for config in configs(refs):
                kind, options = config["metric"], {k: v for k, v in config.items() if k != "metric"}
                metric = make(kind, references, **options)
                score = metric.corpus_score(columns[0], None)
                case = dict(config, refs=refs, score=score.score, signature=str(metric.get_signature()))
                if kind == "bleu":
                    case["verbose"] = score._verbose
                if refs < 3:
                    if kind == "bleu":
                        options["effective"] = True
                    metric = make(kind, None, **options)
                    case["sentences"] = [metric.sentence_score(h, r).score
                                         for h, *r in zip(columns[0], *references)]
                cases.append(case)
            if refs != 2:
                for kind in ("bleu", "chrf", "chrf++", "ter"):
                    boots.append(bootstrap(columns, kind, refs, 300 if refs == 1 else 1000,
                                           12345 if refs == 1 else 7 + 2**40))
        expected["sets"][name] = dict(cases=cases, bootstrap=boots)

    for seed in (0, 1, 12345, 2**32 - 1, 2**32 + 5, 2**53):
        raw = np.random.PCG64(seed).random_raw(3)
        expected["pcg64"].append(dict(
            seed=seed, raw=[str(x) for x in raw],
            below={str(n): [int(x) for x in np.random.default_rng(seed).choice(n, size=9)]
                   for n in (1, 2, 3, 1000, 3004, 3000000000)}))

    with open(os.path.join(args.out, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1, ensure_ascii=True)
        file.write("\n")


if __name__ == "__main__":
    main()
