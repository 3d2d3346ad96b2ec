#!/usr/bin/env python3
"""Writes error_rates.json beside this file: the word and character error rates of jiwer (PyPI), in per
cent, of the texts in this directory against their first reference.
  make_error_rates.py
"""
import importlib.metadata
import json
import os

import jiwer

here = os.path.dirname(os.path.abspath(__file__))


def lines(name):
    with open(os.path.join(here, name), encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


result = {"jiwer": importlib.metadata.version("jiwer"), "sets": {}}
for name in sorted(file[:-4] for file in os.listdir(here) if file.endswith(".hyp")):
    ref = lines(name + ".ref0")
    result["sets"][name] = {
        system: {"wer": 100 * jiwer.wer(ref, lines(f"{name}.{system}")),
                 "cer": 100 * jiwer.cer(ref, lines(f"{name}.{system}"))}
        for system in ("hyp", "other")}
with open(os.path.join(here, "error_rates.json"), "w", encoding="utf-8") as out:
    json.dump(result, out, indent=1)
    out.write("\n")
