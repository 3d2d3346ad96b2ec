#!/usr/bin/env python3
"""Makes cases.txt, beside this script: losses and gradients of classification heads by
PyTorch in double precision. Run it with PyTorch and NumPy installed. All inputs are floats
of single precision, so that both sides begin with the same numbers.

  case KIND ROWS LABELS SMOOTHING SCALE WEIGHTS   (KIND softmax, sigmoid, square; WEIGHTS 0 or 1)
  weight W…       (LABELS)
  logits X…       (ROWS, LABELS)
  target T…       softmax: (ROWS), -1: no loss; others: (ROWS, LABELS), nan: no loss
  loss SUM PLAIN CORRECT
  grad G…         of SCALE * SUM
"""
import os
import numpy as np
import torch
import torch.nn.functional as F

f32 = lambda x: np.asarray(x, dtype=np.float32).astype(np.float64)
KINDS = ["softmax", "sigmoid", "square"]
SHAPES = [(1, 1), (5, 2), (7, 6), (3, 20), (64, 3), (65, 1)]


def softmax(x, target, weight, smoothing):
    t = torch.tensor(target, dtype=torch.long)
    loss = F.cross_entropy(x, t, weight, reduction="sum", ignore_index=-1,
                           label_smoothing=smoothing)
    plain = F.cross_entropy(x, t, reduction="sum", ignore_index=-1)
    correct = ((x.argmax(1) == t) & (t >= 0)).sum()
    return loss, plain, correct


def sigmoid(x, target, weight, smoothing):
    t = torch.tensor(target)
    known = ~torch.isnan(t)
    t = torch.where(known, t, 0.0)
    smooth = t * (1 - smoothing) + smoothing / 2
    loss = F.binary_cross_entropy_with_logits(x, smooth, pos_weight=weight, reduction="none")
    plain = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    right = ((x >= 0) == (t >= 0.5)) | ~known
    return loss[known].sum(), plain[known].sum(), (right.all(1) & known.any(1)).sum()


def square(x, target, weight, smoothing):
    t = torch.tensor(target)
    known = ~torch.isnan(t)
    errors = F.mse_loss(x, torch.where(known, t, 0.0), reduction="none")
    weighted = errors if weight is None else errors * weight
    return weighted[known].sum(), errors[known].sum(), torch.tensor(0)


def draw_target(rng, kind, rows, labels):
    if kind == "softmax":
        return np.where(rng.random(rows) < 0.2, -1, rng.integers(0, labels, rows))
    target = rng.integers(0, 2, (rows, labels)).astype(np.float64)
    if kind == "square":
        target = f32(rng.normal(size=(rows, labels)) * 2)
    else:
        target = np.where(rng.random(target.shape) < 0.2, f32(rng.random(target.shape)), target)
    return np.where(rng.random(target.shape) < 0.15, np.nan, target)


def line(word, numbers):
    return " ".join([word] + [f"{x:.17g}" for x in np.ravel(numbers)]) + "\n"


def main():
    rng = np.random.default_rng(16)
    with open(os.path.join(os.path.dirname(__file__), "cases.txt"), "w") as out:
        for kind in KINDS:
            for i, (rows, labels) in enumerate(SHAPES):
                for weighted in (0, 1):
                    smoothing = float(f32([0, 0.1, 0.3][(i + weighted) % 3]))
                    scale = float(f32([1, 0.25][i % 2]))
                    # Large logits in some rows: exponentials must not overflow.
                    logits = f32(rng.normal(size=(rows, labels)) * (100 if i == 2 else 3))
                    weight = f32(rng.random(labels) * 3 + 0.1)
                    target = draw_target(rng, kind, rows, labels)
                    x = torch.tensor(logits, requires_grad=True)
                    w = torch.tensor(weight) if weighted else None
                    sums = globals()[kind](x, target, w, smoothing)
                    (sums[0] * scale).backward()
                    out.write(f"case {kind} {rows} {labels} {smoothing:.17g} {scale:g} {weighted}\n")
                    out.write(line("weight", weight) + line("logits", logits))
                    out.write(line("target", target))
                    out.write(line("loss", [s.item() for s in sums]))
                    out.write(line("grad", x.grad.numpy()))


main()
