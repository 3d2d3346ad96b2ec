#!/usr/bin/env python3
"""The baseline for classifiers: PyTorch and transformers fine-tune the same encoder on the same split.

  trireme export RUN/pretrain --to hf --out hf
  peer_toxicity.py --table tweets.csv.gz --data DATA --model hf --seed 1 --steps 228 --out peer-1.jsonl
  trireme score --task classify --ref DATA/test.csv --label-column class --hyp peer-1.jsonl

DATA is the data set that `trireme prepare --task classify --split 0.1 0.1` made of the table; its valid.csv and
test.csv have the rows that are not trained on. Optimizer, schedule, clipping, dropout and the tokens of a step are
the defaults of `trireme train`; pooler and classifier are initialised from the seed. Requires torch and transformers.
"""
import argparse, collections, csv, gzip, json, random, sys, time
import torch
from transformers import BertForSequenceClassification, BertTokenizerFast

def rows(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as file:
        return [(row["text"], row["class"]) for row in csv.DictReader(file)]

def training_rows(table, data):
    """Returns the rows of the table that are neither in valid.csv nor in test.csv."""
    out = collections.Counter(rows(data + "/valid.csv") + rows(data + "/test.csv"))
    train = []
    for row in rows(table):
        if out[row]: out[row] -= 1
        else: train.append(row)
    assert not +out, "valid.csv and test.csv are not parts of the table"
    return train

def batches(lengths, tokens, rng):
    """Yields lists of texts in random order, of at most `tokens` tokens, for ever."""
    while True:
        order, batch, used = rng.sample(range(len(lengths)), len(lengths)), [], 0
        for i in order:
            if used + lengths[i] > tokens:
                yield batch
                batch, used = [], 0
            batch.append(i)
            used += lengths[i]
        yield batch

def pad(ids, which):
    width = max(len(ids[i]) for i in which)
    id = torch.tensor([ids[i] + [0] * (width - len(ids[i])) for i in which])
    mask = torch.tensor([[1] * len(ids[i]) + [0] * (width - len(ids[i])) for i in which])
    return {"input_ids": id, "attention_mask": mask}

def decay_groups(model):
    """Weight decay for matrices alone, not for biases and norms."""
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    return [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]

def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("table", "data", "model", "out"): a.add_argument("--" + name, required=True)
    for name, value in (("seed", 1), ("steps", 228), ("batch-tokens", 2048), ("max-tokens", 128), ("threads", 2)):
        a.add_argument("--" + name, type=int, default=value)
    a.add_argument("--lr", type=float, default=5e-4)
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    names = [line.rstrip("\n") for line in open(a.data + "/labels.txt")]
    tokenizer = BertTokenizerFast.from_pretrained(a.model)
    encode = lambda part: tokenizer([t for t, _ in part], truncation=True, max_length=a.max_tokens)["input_ids"]
    train, test = training_rows(a.table, a.data), rows(a.data + "/test.csv")
    ids, label = encode(train), torch.tensor([names.index(c) for _, c in train])
    print(f"{len(train)} texts, {sum(map(len, ids))} tokens", file=sys.stderr)

    model = BertForSequenceClassification.from_pretrained(a.model, num_labels=len(names)).train()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=a.lr, betas=(0.9, 0.999), eps=1e-8)
    warm, start = a.steps // 10, time.time()
    source = batches([len(x) for x in ids], a.batch_tokens, random.Random(a.seed))
    for step in range(a.steps):
        rate = (step + 1) / warm if step < warm else 1 - (step - warm) / (a.steps - warm)
        for group in optimizer.param_groups: group["lr"] = a.lr * rate
        optimizer.zero_grad()
        which, loss = sorted(next(source), key=lambda i: len(ids[i])), 0
        for i in range(0, len(which), 16):  # texts of similar length, so that there is little padding
            part = which[i:i + 16]
            piece = torch.nn.functional.cross_entropy(model(**pad(ids, part)).logits, label[part], reduction="sum") / len(which)
            piece.backward()
            loss += piece.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        if (step + 1) % 50 == 0: print(f"step {step + 1} loss {loss:.4f} {time.time() - start:.0f} s", file=sys.stderr)

    model.eval()
    ids = encode(test)
    with torch.no_grad(), open(a.out, "w") as out:
        for i in range(0, len(ids), 64):
            part = range(i, min(i + 64, len(ids)))
            for p in model(**pad(ids, part)).logits.double().softmax(-1).tolist():
                out.write(json.dumps({"probabilities": dict(zip(names, p))}) + "\n")

main()
