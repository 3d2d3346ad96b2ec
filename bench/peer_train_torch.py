#!/usr/bin/env python3
"""The baseline for `trireme train`: PyTorch trains the same model on the same data set.

Reads a data set of Trireme (shards of format 1) and a config file of `trireme train`. Trains a
pre-norm Transformer with tied embeddings and the same distribution of initial weights, dropout,
loss, Adam, schedule, clipping and tokens per step. Writes model directories that `trireme
translate` loads, so that both models are scored with the same beam search. Batches are the
usual ones in PyTorch: padded sentences of similar length, on average batch-tokens target tokens
without padding.

  peer_train_torch.py --data DIR --out DIR --config recipes/europarl-en-de/train.conf
  peer_train_torch.py --data DIR --out DIR --config FILE preset=tiny steps=200 precision=fp32
  peer_train_torch.py --data DIR --check RUN/checkpoints/best   # is it the same model?

--check computes the validation loss of a model that Trireme trained and compares it with the
one in the run's metrics.jsonl. Requires torch and numpy; docs/formats.md has the file formats.
"""
import argparse, collections, contextlib, glob, itertools, json, math, os, shutil, sys, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PRESETS = {"tiny": (128, 512, 3, 4, 0.1), "small": (256, 1024, 4, 4, 0.1),
           "base": (512, 2048, 6, 8, 0.1), "big": (1024, 4096, 6, 16, 0.3)}
WIDTHS = [16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096]  # widths of padded batches
# Options of `trireme train` that change what is learnt, with their defaults; None: the default of
# the preset.
OPTIONS = {
    "preset": "base", "d-model": None, "ffn-dim": None, "heads": None, "encoder-layers": None, "decoder-layers": None,
    "dropout": None, "embed-dropout": None, "attention-dropout": None, "activation-dropout": None, "residual-dropout": None,
    "batch-tokens": 4096, "micro-batches": 1, "steps": 100000, "lr-scheduler": "noam", "lr": None, "min-lr": 0.0,
    "warmup-steps": 8000, "beta1": 0.9, "beta2": 0.997, "epsilon": 1e-9, "clip-norm": 0.0, "label-smoothing": 0.1,
    "valid-every": 1000, "save-every": 1000, "average-checkpoints": 5, "log-every": 50, "precision": "fp32", "seed": 1,
}
# options of Trireme without effect in this script
ELSEWHERE = {"beam-size", "length-penalty", "device", "keep-checkpoints", "samples", "max-time"}

# ---- options ----
def number(text):
    try:
        value = float(text.replace("k", "e3").replace("M", "e6"))
    except ValueError:
        return text
    return int(value) if value == int(value) else value

def read_options(path, pairs):
    given = dict(pairs)
    for line in open(path) if path else []:
        key, equals, value = line.split("#")[0].partition("=")
        if equals:
            given.setdefault(key.strip(), value.strip())
    unknown = sorted(set(given) - set(OPTIONS) - ELSEWHERE)
    if unknown:
        sys.exit("the peer does not know " + ", ".join(unknown) + ": leave it out on both sides")
    o = dict(OPTIONS, **{k: number(v) for k, v in given.items() if k in OPTIONS})
    if o["lr-scheduler"] not in ("cosine", "noam"):
        sys.exit("the peer knows lr-scheduler cosine and noam only")
    if o["lr"] is None: o["lr"] = 2.0 if o["lr-scheduler"] == "noam" else 1e-3
    return o

def config_of(o, dataset):
    d, ff, layers, heads, drop = PRESETS[o["preset"]]
    pick = lambda key, value: value if o[key] is None else o[key]
    attention, drop = pick("dropout", 0.1), pick("dropout", drop)
    t = dataset["tokenizer"]
    return {
        "format": "trireme-transformer", "version": 1,
        "vocab": t["vocab"], "d": pick("d-model", d), "ff": pick("ffn-dim", ff), "heads": pick("heads", heads),
        "encoder_layers": pick("encoder-layers", layers), "decoder_layers": pick("decoder-layers", layers),
        "longest": dataset["cleaning"]["max_tokens"] + 1, "norm": "pre", "attention_bias": False,
        "activation": "relu", "positions": "halves", "tied": "all", "norm_epsilon": 1e-6,
        "drop_embed": pick("embed-dropout", drop), "drop_attention": pick("attention-dropout", attention),
        "drop_activation": pick("activation-dropout", drop), "drop_residual": pick("residual-dropout", drop),
        "bos": t["bos"], "eos": t["eos"], "pad": t["pad"],
    }

def rate(o, d, step):
    now, warm = step + 1, max(o["warmup-steps"], 1)
    if o["lr-scheduler"] == "noam":
        return o["lr"] * d**-0.5 * min(now * warm**-1.5, now**-0.5)
    done = max(step - o["warmup-steps"], 0) / max(o["steps"] - o["warmup-steps"], 1)
    lr = o["min-lr"] + (o["lr"] - o["min-lr"]) * 0.5 * (1 + math.cos(math.pi * min(done, 1)))
    return lr * now / o["warmup-steps"] if step < o["warmup-steps"] else lr

# ---- data ----
class Pairs:
    """The ids of all shards, in device memory; batches are gathered from them on the device."""

    def __init__(s, paths, config, device):
        ids, first, length, base = [], [], [], 0
        for path in paths:
            raw = np.fromfile(path, np.uint8)
            head = raw[:128].view(np.uint64)
            assert raw[:8].tobytes() == b"TRITOK\r\n" and raw[8:12].view(np.uint32)[0] == 1, path
            wide, pairs, tokens, index = int(raw[12:16].view(np.uint32)[0]), int(head[2]), int(head[3]), int(head[6])
            entry = raw[index:index + 8 * pairs].view(np.uint16).reshape(pairs, 4)
            ids.append(raw[128:128 + wide * tokens].view({2: np.uint16, 4: np.uint32}[wide]).astype(np.int32))
            first.append(entry[:, :2].copy().view(np.uint32)[:, 0].astype(np.int64) + base)
            length.append(entry[:, 2:].astype(np.int64))
            base += tokens
        s.length = np.concatenate(length)  # (pairs, 2), without eos
        s.ids = torch.from_numpy(np.concatenate(ids)).to(device)
        s.first = torch.from_numpy(np.concatenate(first)).to(device)
        s.lengths = torch.from_numpy(s.length).to(device)
        s.eos, s.bos = config["eos"], config["bos"] if config["bos"] >= 0 else config["eos"]

    def side(s, which, side, width):
        start = s.first[which] + (s.lengths[which, 0] if side else 0)
        n, at = s.lengths[which, side][:, None], torch.arange(width, device=s.ids.device)[None]
        id = s.ids[(start[:, None] + at).clamp_(max=len(s.ids) - 1)].long()
        return id.where(at < n, torch.where(at == n, s.eos, 0)), at <= n

    def batch(s, which, width):
        """Returns source, source mask, decoder input, labels (-100: padding); (sentences, width) each."""
        which = torch.from_numpy(np.ascontiguousarray(which)).to(s.ids.device)
        source, real = s.side(which, 0, width)
        target, there = s.side(which, 1, width)
        begin = torch.full_like(target[:, :1], s.bos)
        return source, real, torch.cat([begin, target[:, :-1]], 1), target.where(there, -100)

def stream(pairs, tokens, seed):
    """Yields batches (pair numbers, width) without end. An epoch has every pair once, except those
    left over after the last full batch of their width, which the next epoch has first. All batches
    of a width have the same shape."""
    rng = np.random.default_rng(seed)
    bucket = np.searchsorted(WIDTHS, pairs.length.max(1) + 1)
    members = {b: np.flatnonzero(bucket == b) for b in np.unique(bucket)}
    size = {b: max(1, round(tokens / (pairs.length[m, 1].mean() + 1))) for b, m in members.items()}
    left = {b: np.empty(0, np.int64) for b in members}
    while True:
        batches = []
        for b, m in members.items():
            order, n = np.concatenate([left[b], rng.permutation(m)]), size[b]
            full = len(order) // n * n
            batches += [(order[i:i + n], WIDTHS[b]) for i in range(0, full, n)]
            left[b] = order[full:]
        rng.shuffle(batches)
        yield from batches

# ---- the model; its modules have the names of Trireme's parameters ----
class Norm(nn.Module):
    def __init__(s, d, epsilon):
        super().__init__()
        s.gain, s.bias, s.epsilon = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d)), epsilon

    def forward(s, x):
        return F.layer_norm(x, x.shape[-1:], s.gain, s.bias, s.epsilon)

def linear(inner, outer, bias, limit):
    m = nn.Linear(inner, outer, bias)
    nn.init.uniform_(m.weight, -limit, limit)
    if bias: nn.init.zeros_(m.bias)
    return m

class Transformer(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.c, d, ff = c, c["d"], c["ff"]
        square, wide = math.sqrt(6 / (d + d)), math.sqrt(6 / (d + ff))  # limits of Glorot's initialization
        norm = lambda: Norm(d, c["norm_epsilon"])
        attention = lambda rows: nn.ModuleDict({"norm": norm(), "in": linear(d, rows, False, square),
                                                "out": linear(d, d, False, square)})
        feed = lambda: nn.ModuleDict({"norm": norm(), "up": linear(d, ff, True, wide), "down": linear(ff, d, True, wide)})
        s.embedding = nn.Embedding(c["vocab"], d)
        nn.init.normal_(s.embedding.weight, std=d**-0.5)
        s.encoder, s.decoder = nn.ModuleDict(), nn.ModuleDict()
        for i in range(c["encoder_layers"]):
            s.encoder[str(i)] = nn.ModuleDict({"self": attention(3 * d), "feed": feed()})
        for i in range(c["decoder_layers"]):
            s.decoder[str(i)] = nn.ModuleDict({"self": attention(3 * d), "cross": attention(d), "feed": feed()})
        s.encoder["norm"], s.decoder["norm"] = norm(), norm()
        s.decoder["cross_kv"] = linear(d, 2 * d * c["decoder_layers"], False, square)
        half = d // 2
        angle = torch.arange(c["longest"] + WIDTHS[-1]).double()[:, None] * 10000.0 ** (-torch.arange(half) / max(half - 1, 1))
        s.register_buffer("place", torch.cat([angle.sin(), angle.cos()], 1).float(), persistent=False)

    def drop(s, x, kind):
        return F.dropout(x, s.c["drop_" + kind], s.training)

    def embed(s, id):
        return s.drop(s.embedding(id) * math.sqrt(s.c["d"]) + s.place[: id.shape[1]], "embed")

    def attend(s, q, k, v, mask=None, causal=False):
        heads = lambda t: t.unflatten(-1, (s.c["heads"], -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask=mask, is_causal=causal,
                                           dropout_p=s.c["drop_attention"] if s.training else 0.0)
        return y.transpose(1, 2).flatten(2)

    def attention(s, m, x, causal=False, mask=None, kv=None):
        x = m["in"](m["norm"](x))
        q, k, v = (x, *kv) if kv is not None else x.chunk(3, -1)
        return s.drop(m["out"](s.attend(q, k, v, mask, causal)), "residual")

    def feed(s, m, x):
        return s.drop(m["down"](s.drop(F.relu(m["up"](m["norm"](x))), "activation")), "residual")

    def forward(s, source, real, target_in, target_out, smoothing):
        """Returns the loss, summed over the target tokens."""
        x, mask = s.embed(source), real[:, None, None, :]
        for i in range(s.c["encoder_layers"]):
            layer = s.encoder[str(i)]
            x = x + s.attention(layer["self"], x, mask=mask)
            x = x + s.feed(layer["feed"], x)
        kv = s.decoder["cross_kv"](s.encoder["norm"](x)).chunk(2 * s.c["decoder_layers"], -1)
        y = s.embed(target_in)
        for i in range(s.c["decoder_layers"]):
            layer = s.decoder[str(i)]
            y = y + s.attention(layer["self"], y, causal=True)
            y = y + s.attention(layer["cross"], y, mask=mask, kv=kv[2 * i:2 * i + 2])
            y = y + s.feed(layer["feed"], y)
        logits = F.linear(s.decoder["norm"](y), s.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), target_out.flatten(), ignore_index=-100,
                               label_smoothing=smoothing, reduction="sum")

# ---- model directories ----
def load(model, path):
    with open(path + "/weights.safetensors", "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        raw = f.read()
    array = lambda t: np.frombuffer(raw[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]).copy()
    # Loads by name: a missing or an additional parameter is an error.
    model.load_state_dict({name: torch.from_numpy(array(t)) for name, t in head.items() if name != "__metadata__"})

def save(weights, config, path, data):
    os.makedirs(path, exist_ok=True)
    head, at = {}, 0
    for name, w in weights.items():
        head[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [at, at + 4 * w.numel()]}
        at += 4 * w.numel()
    text = json.dumps(head).encode()
    with open(path + "/weights.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for w in weights.values():
            f.write(w.numpy().tobytes())
    json.dump(config, open(path + "/model.json", "w"), indent=1)
    shutil.copy(data + "/tokenizer.model", path)

# ---- training ----
def say(**what):
    print(json.dumps(what), flush=True)

@torch.no_grad()
def valid_nll(model, pairs, tokens, cast):
    """Returns the mean loss per target token, without label smoothing and dropout."""
    model.eval()
    longest = pairs.length.max(1) + 1
    order, total, at = np.argsort(longest, kind="stable"), 0.0, 0
    while at < len(order):
        width = int(longest[order[min(at + 255, len(order) - 1)]])
        take = order[at:at + max(1, min(256, tokens // width))]
        with cast():
            total += float(model(*pairs.batch(take, int(longest[take[-1]])), 0.0))
        at += len(take)
    model.train()
    return total / float((pairs.length[:, 1] + 1).sum())

def check(a):
    config = json.load(open(a.check + "/model.json"))
    assert config["norm"] == "pre" and config["tied"] == "all" and config["positions"] == "halves", config
    model = Transformer(config).to(a.device)
    load(model, a.check)
    valid = Pairs([a.data + "/valid.tok"], config, a.device)
    mine = valid_nll(model, valid, 8192, contextlib.nullcontext)
    print("PyTorch, fp32: validation loss %.6f" % mine)
    path = os.path.realpath(a.check)  # a checkpoint, or an average of checkpoints
    one = os.path.exists(path + "/training.json")
    log, key = path + ("/../../" if one else "/../") + "metrics.jsonl", "valid_nll" if one else "average_nll"
    step = json.load(open(path + "/training.json"))["step"] if one else None
    known = [l[key] for l in map(json.loads, open(log)) if key in l and step in (None, l["step"])][-1]
    off = abs(mine / known - 1)
    print("trireme:       validation loss %.6f, a difference of %.1e of it" % (known, off))
    sys.exit(0 if off <= a.tolerance else "that is more than %g: not the same model" % a.tolerance)

def train(a, o, dataset):
    config, cuda = config_of(o, dataset), a.device.startswith("cuda")
    torch.manual_seed(o["seed"])
    torch.backends.cuda.matmul.allow_tf32 = o["precision"] != "fp32"
    model = Transformer(config).to(a.device)
    if a.init: load(model, a.init)
    step_of = torch.compile(model, dynamic=False) if a.compile else model
    torch._dynamo.config.cache_size_limit = 64  # one compiled graph for each width
    cast = lambda: torch.autocast(a.device.split(":")[0], torch.bfloat16, enabled=o["precision"] == "bf16")
    opt = torch.optim.Adam(model.parameters(), betas=(o["beta1"], o["beta2"]), eps=o["epsilon"], fused=cuda or None)
    pairs = Pairs(sorted(glob.glob(a.data + "/train-*.tok")), config, a.device)
    valid = Pairs([a.data + "/valid.tok"], config, a.device)
    os.makedirs(a.out, exist_ok=True)
    batches, tokens = stream(pairs, o["batch-tokens"] * o["micro-batches"], o["seed"]), 0
    recent, done, seconds, state = collections.deque(maxlen=max(1, o["average-checkpoints"])), 0, 0.0, a.out + "/state.pt"
    if os.path.exists(state):
        saved = torch.load(state, map_location=a.device)
        model.load_state_dict(saved["model"]), opt.load_state_dict(saved["opt"])
        done, tokens, seconds = saved["step"], saved["tokens"], saved["seconds"]
        recent.extend({k: v.cpu() for k, v in w.items()} for w in saved["recent"])
        torch.manual_seed(o["seed"] + done)  # After a resume, dropout uses other random numbers.
        next(itertools.islice(batches, done - 1, done))
        say(resumed=done)
    last, since, opened = [0.0, 0], time.time(), time.time()
    begin, aside = since - seconds, 0.0
    for step in range(done + 1, o["steps"] + 1):
        which, width = next(batches)
        real = int((pairs.length[which, 1] + 1).sum())
        with cast():
            loss = step_of(*pairs.batch(which, width), o["label-smoothing"]) / real
        loss.backward()
        if o["clip-norm"] > 0: nn.utils.clip_grad_norm_(model.parameters(), o["clip-norm"])
        opt.param_groups[0]["lr"] = lr = rate(o, config["d"], step - 1)
        opt.step()
        opt.zero_grad(set_to_none=True)
        last, tokens = [last[0] + loss.detach() * real, last[1] + real], tokens + real
        if step % o["log-every"] == 0:
            value, now = float(last[0]) / last[1], time.time()  # converting to float waits for the device
            say(step=step, loss=round(value, 5), lr=lr, target_tokens=tokens,
                target_tokens_per_s=round(last[1] / (now - since)), seconds=round(now - begin - aside, 2))
            last, since = [0.0, 0], now
        if step % o["save-every"] == 0 or step == o["steps"]:
            recent.append({k: w.to("cpu", torch.float32, copy=True) for k, w in model.state_dict().items()})
        if (o["valid-every"] and step % o["valid-every"] == 0) or step == o["steps"]:
            if cuda: torch.cuda.synchronize()
            start = time.time()
            say(step=step, valid_nll=round(valid_nll(model, valid, 8192, cast), 6), seconds=round(start - begin - aside, 2))
            took = time.time() - start  # the time of validations is not counted
            aside, since = aside + took, since + took
        if a.minutes and time.time() - opened > 60 * a.minutes and step < o["steps"]:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step, "tokens": tokens,
                        "seconds": time.time() - begin - aside, "recent": list(recent)}, state)
            return say(stopped=step, seconds=round(time.time() - begin - aside, 2), target_tokens=tokens)
    seconds = time.time() - begin - aside
    save(recent[-1], config, a.out + "/last", a.data)
    mean = {k: torch.stack([w[k] for w in recent]).mean(0) for k in recent[-1]}
    save(mean, config, a.out + "/average", a.data)
    say(peer="torch " + torch.__version__, compiled=a.compile, steps=o["steps"], target_tokens=tokens, seconds=round(seconds, 2),
        target_tokens_per_s=round(tokens / seconds), models=[a.out + "/last", a.out + "/average"])

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--data", "--out", "--config"): ap.add_argument(name, metavar="PATH", required=name == "--data")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--threads", type=int, default=0)
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--minutes", type=float, default=0, help="stop then; the same call goes on")
    ap.add_argument("--init", help="a model directory to begin with, in place of chance")
    ap.add_argument("--check", help="a model directory whose validation loss is compared with ours")
    ap.add_argument("--tolerance", type=float, default=1e-4, help="of --check; 3e-3 for a run in bf16")
    ap.add_argument("option", nargs="*", help="key=value, as in the config file")
    a = ap.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    dataset = json.load(open(a.data + "/dataset.json"))
    if a.check: check(a)
    elif not a.out: ap.error("say where the models shall lie: --out DIR")
    else: train(a, read_options(a.config, [p.split("=", 1) for p in a.option]), dataset)

if __name__ == "__main__":
    main()
