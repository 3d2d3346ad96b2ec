#!/usr/bin/env python3
"""Writes, beside this file, tables for `trireme score --task classify` and what scikit-learn and NumPy (PyPI)
give for them: labels.csv, first.csv, second.jsonl (one class per text), many-labels.tsv, many.csv (several labels
per text) and tables.json. Confidence intervals and p-values follow `sacrebleu --paired-bs`: 200 samples, seed 12345.
  make_tables.py
"""
import csv
import json
import os

import numpy as np
from sklearn import metrics

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)
texts, samples, seed = 120, 200, 12345
names = ["hate", "neither", "offensive, rude"]


def path(name):
    return os.path.join(here, name)


def classifier(y, sharp):
    z = rng.normal(size=(texts, len(names))) + sharp * np.eye(len(names))[y]
    p = np.round(np.exp(z) / np.exp(z).sum(1, keepdims=True), 4)
    p[:, -1] = np.round(1 - p[:, :-1].sum(1), 4)
    return np.clip(p, 0, 1)


def scores(y, p):
    guess, labels = p.argmax(1), list(range(len(names)))
    auc = [metrics.roc_auc_score(y == c, p[:, c]) for c in labels if 0 < (y == c).sum() < len(y)]
    return {"accuracy": metrics.accuracy_score(y, guess),
            "f1_macro": metrics.f1_score(y, guess, labels=labels, average="macro", zero_division=0),
            "auc": float(np.mean(auc)), "log_loss": metrics.log_loss(y, p, labels=labels)}


def resample(y, p):
    draw = np.random.default_rng(seed).choice(texts, size=(samples, texts), replace=True)
    return [scores(y[d], p[d]) for d in draw]


def interval(values):
    s = np.sort(values)
    low = samples // 40
    return float(np.mean(s)), float((s[samples - low - 1] - s[low]) / 2)


y = rng.choice(len(names), texts, p=[0.2, 0.5, 0.3])
first, second = classifier(y, 1.0), classifier(y, 1.6)
with open(path("labels.csv"), "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id", "text", "class"])
    w.writerows([i, f"text {i}\nsecond line", names[c]] for i, c in enumerate(y))
with open(path("first.csv"), "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id"] + names)
    w.writerows([i, *p] for i, p in enumerate(first))
with open(path("second.jsonl"), "w") as f:
    for p in second:
        f.write(json.dumps({"label": names[p.argmax()], "probabilities": dict(zip(names, p.tolist()))}) + "\n")

result = {}
drawn = [resample(y, p) for p in (first, second)]
for which, p, sample in (("first", first, drawn[0]), ("second", second, drawn[1])):
    result[which] = {}
    for key, value in scores(y, p).items():
        mean, ci = interval([s[key] for s in sample])
        result[which][key] = {"score": value, "mean": mean, "ci": ci}
for key in result["second"]:
    difference = np.abs(np.array([b[key] - a[key] for a, b in zip(*drawn)]))
    observed = abs(result["second"][key]["score"] - result["first"][key]["score"])
    result["second"][key]["p_value"] = float(((difference - difference.mean()) > observed).sum() + 1) / (samples + 1)

labels = ["toxic", "obscene"]
has = rng.random((texts, 2)) < 0.3
p = np.round(1 / (1 + np.exp(-(rng.normal(size=(texts, 2)) + 2 * has - 1))), 3)
with open(path("many-labels.tsv"), "w") as f:
    f.write("\t".join(labels) + "\n")
    f.writelines("\t".join(str(0.7 if x else 0.2) for x in row) + "\n" for row in has)
with open(path("many.csv"), "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(labels)
    w.writerows(p)
result["many"] = {"accuracy": {"score": metrics.accuracy_score(has, p > 0.5)},
                  "f1_macro": {"score": metrics.f1_score(has, p > 0.5, average="macro")},
                  "auc": {"score": metrics.roc_auc_score(has, p)}}
with open(path("tables.json"), "w") as f:
    json.dump(result, f, indent=1)
    f.write("\n")
