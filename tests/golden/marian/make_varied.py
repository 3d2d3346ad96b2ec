"""Trains a small MarianMT model for a minute and writes what transformers' generate makes of it. Outputs of
random weights (make_golden.py) repeat a few tokens; those of a trained model differ from sentence to
sentence, and those of greedy search from those of beam search.

Needs PyTorch, transformers, sentencepiece, and hf/ and source.txt of make_golden.py. Argument: directory with
train.en and train.de of Multi30k (plain or .gz). The result depends on the version of PyTorch and on the
processor.

  varied/config.json, varied/model.safetensors   the model; its tokenizer is that of hf/
  varied/ids.tsv   50 sentences, columns as in ../ids.tsv. Only sentences whose ids are the same in fp64 and
                   with weights that are changed by 1e-5, so that no search depends on the order of additions"""

import gzip
import pathlib
import random
import sys

import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

here = pathlib.Path(__file__).parent
hf, out = here / "hf", here / "varied"
LIMIT, STEPS, BATCH, LONGEST, SENTENCES = 40, 900, 32, 32, 50
SEARCHES = (dict(num_beams=1), dict(num_beams=4, length_penalty=0.0), dict(num_beams=4, length_penalty=1.0))
torch.manual_seed(3)
random.seed(3)
config = MarianConfig.from_pretrained(hf)
pad = config.pad_token_id
tokenizer = MarianTokenizer(vocab=str(hf / "vocab.json"), source_spm=str(hf / "source.spm"), target_spm=str(hf / "target.spm"),
                            source_lang="en", target_lang="de")


def read(name):
    path = sorted(pathlib.Path(sys.argv[1]).glob(name + "*"))[0]
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
    return [line.rstrip("\n") for line in opened][:6000]


def padded(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def train():
    source, target = tokenizer(read("train.en")).input_ids, tokenizer(text_target=read("train.de")).input_ids
    pairs = sorted(((t, s) for s, t in zip(source, target) if len(s) < LONGEST and len(t) < LONGEST), key=lambda p: len(p[0]))
    batches = [pairs[i:i + BATCH] for i in range(0, len(pairs), BATCH)]
    model = MarianMTModel(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "positions" not in name: torch.nn.init.normal_(p, std=.25 if "shared" in name else .2)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=8e-3, betas=(.9, .98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=STEPS)
    for _ in range(STEPS):
        batch = random.choice(batches)
        x, y = padded([s for _, s in batch], pad), padded([t for t, _ in batch], -100)
        begun = torch.full_like(y, pad)
        begun[:, 1:] = y[:, :-1].masked_fill(y[:, :-1] == -100, pad)
        logits = model(input_ids=x, attention_mask=(x != pad).long(), decoder_input_ids=begun).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
    return model.eval()


def search(model, batch):
    """For each sentence: source ids and the ids of each search."""
    columns = [[[t for t in ids if t != pad] for ids in batch.input_ids.tolist()]]
    for options in SEARCHES:
        with torch.no_grad():
            made = model.generate(**batch, do_sample=False, bad_words_ids=[[pad]], max_new_tokens=LIMIT, **options).tolist()
        columns.append([m[1:m.index(0)] if 0 in m else m[1:] for m in made])
    return list(zip(*columns))


def load(change=None):
    model = MarianMTModel.from_pretrained(out).eval()
    torch.manual_seed(change or 0)
    with torch.no_grad():
        for p in model.parameters() if change else []: p.mul_(1 + 1e-5 * torch.randn_like(p))
    return model


train().save_pretrained(out)
(out / "generation_config.json").unlink(missing_ok=True)
batch = tokenizer((here / "source.txt").read_text().splitlines(), return_tensors="pt", padding=True)
rows = search(load(), batch)
others = [search(model, batch) for model in (load().double(), load(1), load(2))]
stable = [row for i, row in enumerate(rows) if all(other[i] == row for other in others)]
with open(out / "ids.tsv", "w") as file:
    for row in stable[:SENTENCES]: file.write("\t".join(" ".join(map(str, ids)) for ids in row) + "\n")
