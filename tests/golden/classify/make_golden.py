#!/usr/bin/env python3
"""Writes cases.json beside this file: labels, probabilities, and the scores that scikit-learn (PyPI)
gives them.
  make_golden.py
"""
import json
import os
import warnings

import numpy as np
import sklearn
from sklearn import metrics

here = os.path.dirname(os.path.abspath(__file__))
warnings.filterwarnings("ignore")
rng = np.random.default_rng(4)


def mean_defined(values):
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def one(texts, classes, sharp, digits, labels=None):
    """One class per text. `digits`: probabilities are rounded, so that many are equal."""
    y = rng.integers(0, classes, texts) if labels is None else np.array(labels)
    z = rng.normal(size=(texts, classes)) + sharp * np.eye(classes)[y]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    p = np.round(p, digits)
    p[:, -1] = 1 - p[:, :-1].sum(1)
    p = np.clip(p, 0, 1)
    guess = p.argmax(1)
    all_labels = list(range(classes))
    per_class = metrics.precision_recall_fscore_support(y, guess, labels=all_labels, zero_division=0)
    auc = [float(metrics.roc_auc_score(y == c, p[:, c])) if 0 < (y == c).sum() < texts else None for c in all_labels]
    ap = [float(metrics.average_precision_score(y == c, p[:, c])) if (y == c).any() else None for c in all_labels]
    top, bins, ece = p.max(1), 15, 0.0
    for b in range(bins):
        member = (top > b / bins) & (top <= (b + 1) / bins)
        if member.any():
            ece += abs((guess[member] == y[member]).mean() - top[member].mean()) * member.mean()
    return {
        "kind": "one", "texts": texts, "classes": classes, "label": y.tolist(), "probability": p.ravel().tolist(),
        "accuracy": metrics.accuracy_score(y, guess),
        "f1_macro": metrics.f1_score(y, guess, labels=all_labels, average="macro", zero_division=0),
        "f1_micro": metrics.f1_score(y, guess, average="micro"),
        "f1_weighted": metrics.f1_score(y, guess, labels=all_labels, average="weighted", zero_division=0),
        "mcc": metrics.matthews_corrcoef(y, guess), "log_loss": metrics.log_loss(y, p, labels=all_labels), "ece": ece,
        "auc": mean_defined(auc), "average_precision": mean_defined(ap),
        "precision": per_class[0].tolist(), "recall": per_class[1].tolist(), "f1": per_class[2].tolist(),
        "support": per_class[3].tolist(), "class_auc": auc, "class_average_precision": ap,
        "confusion": metrics.confusion_matrix(y, guess, labels=all_labels).ravel().tolist(),
    }


def many(texts, classes, digits):
    y = (rng.random((texts, classes)) < 0.3).astype(int)
    p = np.round(1 / (1 + np.exp(-(rng.normal(size=(texts, classes)) + 2 * y - 1))), digits)
    guess = (p > 0.5).astype(int)
    per_class = metrics.precision_recall_fscore_support(y, guess, zero_division=0)
    auc = [float(metrics.roc_auc_score(y[:, c], p[:, c])) for c in range(classes)]
    ap = [float(metrics.average_precision_score(y[:, c], p[:, c])) for c in range(classes)]
    return {
        "kind": "many", "texts": texts, "classes": classes, "has": y.ravel().tolist(), "probability": p.ravel().tolist(),
        "accuracy": metrics.accuracy_score(y, guess),
        "f1_macro": metrics.f1_score(y, guess, average="macro", zero_division=0),
        "f1_micro": metrics.f1_score(y, guess, average="micro", zero_division=0),
        "f1_weighted": metrics.f1_score(y, guess, average="weighted", zero_division=0),
        "log_loss": float(np.mean([metrics.log_loss(y[:, c], p[:, c], labels=[0, 1]) for c in range(classes)])),
        "auc": float(np.mean(auc)), "average_precision": float(np.mean(ap)),
        "precision": per_class[0].tolist(), "recall": per_class[1].tolist(), "f1": per_class[2].tolist(),
        "support": per_class[3].tolist(), "class_auc": auc, "class_average_precision": ap,
    }


cases = [one(60, 2, 1.5, 3), one(80, 3, 1.0, 2), one(50, 5, 0.5, 1), one(12, 4, 2.0, 6, [0, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1]),
         one(9, 2, 9.0, 12), one(40, 3, 1.0, 2, [1] * 40), many(60, 6, 3), many(30, 3, 1), many(25, 2, 2)]
with open(os.path.join(here, "cases.json"), "w", encoding="utf-8") as out:
    json.dump({"sklearn": sklearn.__version__, "cases": cases}, out)
    out.write("\n")
