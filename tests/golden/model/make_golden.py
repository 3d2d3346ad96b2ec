#!/usr/bin/env python3
"""Makes the golden files of the model from PyTorch: weights, logits, every gradient
and the losses of ten Adam steps, for a tiny Transformer in three forms. Run it with
PyTorch and NumPy installed; it writes *.safetensors beside itself.

  pre   pre-norm, no attention biases, ReLU, sin-then-cos positions, all embeddings tied
  post  post-norm, biases, GELU, interleaved positions, target embedding tied to the output
  free  post-norm, biases, SiLU, learned positions, nothing tied
"""
import json, math, os, struct
import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
D, H, FF, L, V, LONGEST = 16, 4, 24, 2, 23, 12
SRC = [[5, 6, 7, 1], [9, 1], [11, 12, 13, 14, 15, 1]]
TGT_IN = [[2, 21, 22], [2, 8, 9, 10, 11], [2, 17]]
TGT_OUT = [[21, 22, 1], [8, 9, 10, 11, 1], [17, 1]]


def names(form):
    bias = form != "pre"
    out = [("embedding.weight", (V, D))] if form == "pre" else [("embedding.source.weight", (V, D)), ("embedding.target.weight", (V, D))]
    if form == "free":
        out += [("output.weight", (V, D)), ("position.source.weight", (LONGEST, D)), ("position.target.weight", (LONGEST, D))]
    for stack in ("encoder", "decoder"):
        for i in range(L):
            parts = [("self", 3 * D)] + ([("cross", D)] if stack == "decoder" else [])
            for part, rows in parts:
                at = f"{stack}.{i}.{part}"
                out += [(f"{at}.norm.gain", (D,)), (f"{at}.norm.bias", (D,)), (f"{at}.in.weight", (rows, D))]
                out += [(f"{at}.in.bias", (rows,))] if bias else []
                out += [(f"{at}.out.weight", (D, D))] + ([(f"{at}.out.bias", (D,))] if bias else [])
            at = f"{stack}.{i}.feed"
            out += [(f"{at}.norm.gain", (D,)), (f"{at}.norm.bias", (D,)), (f"{at}.up.weight", (FF, D)), (f"{at}.up.bias", (FF,)),
                    (f"{at}.down.weight", (D, FF)), (f"{at}.down.bias", (D,))]
        if form == "pre":
            out += [(f"{stack}.norm.gain", (D,)), (f"{stack}.norm.bias", (D,))]
    out += [("decoder.cross_kv.weight", (L * 2 * D, D))] + ([("decoder.cross_kv.bias", (L * 2 * D,))] if bias else [])
    return out


class Model:
    def __init__(self, form, rng):
        self.form, self.pre = form, form == "pre"
        self.act = dict(pre=F.relu, post=F.gelu, free=F.silu)[form]
        self.p = {}
        for name, shape in names(form):
            x = rng.standard_normal(shape) * (0.1 if len(shape) == 1 else 1 / math.sqrt(D)) + (1 if name.endswith("gain") else 0)
            self.p[name] = torch.tensor(x.astype(np.float32).astype(np.float64), requires_grad=True)

    def table(self, which):
        if self.form == "pre": return self.p["embedding.weight"]
        if which == 2: return self.p["output.weight"] if self.form == "free" else self.p["embedding.target.weight"]
        return self.p["embedding.target.weight" if which else "embedding.source.weight"]

    def embed(self, ids, which):
        n, half = len(ids), D // 2
        x = self.table(which)[ids] * math.sqrt(D)
        if self.form == "free": return x + self.p[f"position.{'target' if which else 'source'}.weight"][:n]
        place, i = torch.arange(n)[:, None].double(), torch.arange(half)[None].double()
        if self.form == "pre":
            a = place * 10000.0 ** (-i / (half - 1))
            return x + torch.cat([a.sin(), a.cos()], 1)
        a = place * 10000.0 ** (-i / half)
        return x + torch.stack([a.sin(), a.cos()], 2).reshape(n, D)

    def linear(self, x, name): return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def norm(self, x, name): return F.layer_norm(x, (D,), self.p[name + ".gain"], self.p[name + ".bias"], 1e-6)

    def attend(self, q, k, v, causal):
        split = lambda t: t.view(-1, H, D // H).transpose(0, 1)
        s = split(q) @ split(k).transpose(1, 2) / math.sqrt(D // H)
        if causal: s = s.masked_fill(torch.triu(torch.ones(s.shape[1:]), 1).bool(), float("-inf"))
        return (s.softmax(-1) @ split(v)).transpose(0, 1).reshape(-1, D)

    def sublayer(self, y, at, memory, layer):
        part = at.rsplit(".", 1)[1]
        if part == "feed": return self.linear(self.act(self.linear(y, at + ".up")), at + ".down")
        if part == "self": q, k, v = self.linear(y, at + ".in").chunk(3, -1)
        else:
            q = self.linear(y, at + ".in")
            k, v = self.linear(memory, "decoder.cross_kv").chunk(L, -1)[layer].chunk(2, -1)
        return self.linear(self.attend(q, k, v, part == "self" and at.startswith("decoder")), at + ".out")

    def stack(self, x, name, memory=None):
        for i in range(L):
            for part in ["self"] + (["cross"] if memory is not None else []) + ["feed"]:
                at = f"{name}.{i}.{part}"
                if self.pre: x = x + self.sublayer(self.norm(x, at + ".norm"), at, memory, i)
                else: x = self.norm(x + self.sublayer(x, at, memory, i), at + ".norm")
        return self.norm(x, name + ".norm") if self.pre else x

    def logits(self):
        rows = []
        for s, t in zip(SRC, TGT_IN):
            memory = self.stack(self.embed(s, 0), "encoder")
            rows.append(F.linear(self.stack(self.embed(t, 1), "decoder", memory), self.table(2)))
        return torch.cat(rows)

    def loss(self): return F.cross_entropy(self.logits(), torch.tensor(sum(TGT_OUT, [])), label_smoothing=0.1, reduction="sum")


def write(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x, dtype=np.float32).tobytes()
        header[name] = dict(dtype="F32", shape=list(np.shape(x)), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f: f.write(struct.pack("<Q", len(text)) + text + data)


for form in ("pre", "post", "free"):
    model = Model(form, np.random.default_rng(len(form)))
    out = {"weight/" + n: p.detach().clone().numpy() for n, p in model.p.items()}
    out["logits"] = model.logits().detach().numpy()
    loss = model.loss()
    loss.backward()
    for n, p in model.p.items(): out["grad/" + n] = p.grad.clone().numpy()
    optimiser = torch.optim.Adam(model.p.values(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = model.loss()
        losses.append(loss.item())
        (loss / len(sum(TGT_OUT, []))).backward()
        optimiser.step()
    out["losses"] = np.array(losses)
    write(os.path.join(os.path.dirname(os.path.abspath(__file__)), form + ".safetensors"), out)
