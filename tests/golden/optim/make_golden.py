#!/usr/bin/env python3
"""Makes steps.txt, beside this script: ten steps of PyTorch's optimisers in double
precision on a small vector, with given gradients and changing learning rates. Run it
with PyTorch and NumPy installed. Coefficients, rates, weights and gradients are floats
of single precision, so that both sides begin with the same numbers.

  kind NAME BETA1 BETA2 EPSILON DECAY
  start W…
  then ten times:
  step LR
  grad G…
  want W…
"""
import os
import numpy as np
import torch

N, STEPS = 8, 10
f32 = lambda x: np.asarray(x, dtype=np.float32).astype(np.float64)
KINDS = [
    ("adam", 0.9, 0.98, 1e-9, 0.0),
    ("adam", 0.9, 0.999, 1e-8, 0.1),
    ("adamw", 0.9, 0.98, 1e-9, 0.1),
    ("adamw", 0.5, 0.9, 1e-2, 0.3),
    ("sgd", 0.0, 0.0, 0.0, 0.0),
    ("sgd", 0.9, 0.0, 0.0, 0.05),
]


def optimiser(kind, w, beta1, beta2, epsilon, decay):
    if kind == "sgd":
        return torch.optim.SGD([w], lr=1, momentum=beta1, weight_decay=decay)
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return make([w], lr=1, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)


def line(word, numbers):
    return " ".join([word] + [f"{x:.17g}" for x in numbers]) + "\n"


rng = np.random.default_rng(1)
out = f"# made by make_golden.py with PyTorch {torch.__version__.split('+')[0]}\n"
for kind, *numbers in KINDS:
    numbers = [float(x) for x in f32(numbers)]
    # Gradients of very different sizes, and one weight that never has any.
    size = 10.0 ** np.arange(-4, N - 4)
    size[3] = 0
    start = f32(rng.standard_normal(N))
    w = torch.tensor(start, requires_grad=True)
    o = optimiser(kind, w, *numbers)
    out += line("kind " + kind, numbers) + line("start", start)
    for step in range(STEPS):
        lr = float(f32(0.01 * (step + 1) if step < 4 else 0.04 / (step - 2)))
        grad = f32(size * rng.standard_normal(N))
        o.param_groups[0]["lr"] = lr
        w.grad = torch.tensor(grad)
        o.step()
        out += line("step", [lr]) + line("grad", grad) + line("want", w.detach().numpy())
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "steps.txt"), "w") as f:
    f.write(out)
