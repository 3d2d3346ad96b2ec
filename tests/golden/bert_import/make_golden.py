#!/usr/bin/env python3
"""Writes small models as Hugging Face transformers saves them, for the tests of import. Their weights are
those of ../bert/make_golden.py, whose golden files have the logits. Needs PyTorch, transformers and
safetensors.

  bert     BertForSequenceClassification: names of labels, tokenizer.json instead of vocab.txt
  mlm      BertForMaskedLM: pytorch_model.bin, with the tied output weights; vocab.txt, cased
  roberta  RobertaForSequenceClassification: byte-level BPE with a few letters; texts.tsv has texts, their
           ids and probabilities
  distil   DistilBertForSequenceClassification: vocab.txt without tokenizer_config.json
  roberta_mlm  RobertaForMaskedLM, with a pooler, which transformers leaves out; logits.safetensors has its logits
  distil_mlm   DistilBertForMaskedLM; the same
  number       BertForSequenceClassification with one label, a number; the same
  base     BertModel in several files; hidden.safetensors has its last hidden state
"""
import importlib.util
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer, RobertaForSequenceClassification, RobertaTokenizer

here = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("golden", here / ".." / "bert" / "make_golden.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "you", "are", "kind", "rude", "good",
          "bad", "##s", "##ly", "##ness", ".", "!", "?", "I", "am", "the", "not", "##er", "##e", "un"]
LABELS = ["clean", "rude", "threat"]
MERGES = ["o u", "Ġ a", "r e", "y ou", "Ġa re", "Ġ r", "n d", "Ġr u"]
BYTE_PIECES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] + list("aeioudgknrsy'!Ġ.") + [m.replace(" ", "") for m in MERGES]
BYTE_TEXTS = ["you are rude", "you're kind!", "  a  good dog", "you <mask> and", "", "rude.", "é you", "you are a rude dog and a kind one, you are"]


def fill(model, form, cut=""):
    """Gives a model the weights of its form; `cut` is not part of its names."""
    params = dict(model.named_parameters())
    with torch.no_grad():
        for name, theirs in golden.names(form):
            theirs = [t[len(cut):] if t.startswith(cut) else t for t in theirs]
            if theirs[0] not in params: continue
            sizes = [params[t].numel() for t in theirs]
            parts = torch.tensor(golden.value(name, sum(sizes))).split(sizes)
            for t, part in zip(theirs, parts): params.pop(t).copy_(part.view(-1).view(model.get_parameter(t).shape))
    assert not params, params.keys()
    return model.eval()


def save(name, model, **more):
    shutil.rmtree(here / name, ignore_errors=True)
    model.save_pretrained(here / name, **more)


def write_vocab(name):
    (here / name / "vocab.txt").write_text("\n".join(PIECES) + "\n")


assert len(PIECES) == golden.V
model = fill(golden.build("softmax"), "softmax")
model.config.id2label = dict(enumerate(LABELS))
model.config.label2id = {label: i for i, label in enumerate(LABELS)}
save("bert", model)
write_vocab("bert")
BertTokenizer(vocab=str(here / "bert" / "vocab.txt"), do_lower_case=True).save_pretrained(here / "bert")
(here / "bert" / "vocab.txt").unlink()

model = fill(golden.build("mlm"), "mlm")
save("mlm", model)
(here / "mlm" / "model.safetensors").unlink()
(here / "mlm" / "generation_config.json").unlink(missing_ok=True)
torch.save(model.state_dict(), here / "mlm" / "pytorch_model.bin")
write_vocab("mlm")
(here / "mlm" / "tokenizer_config.json").write_text('{"do_lower_case": false, "strip_accents": true}\n')

model = fill(golden.build("roberta"), "roberta")
model.config.pad_token_id = 1
save("roberta", model)
(here / "roberta" / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(BYTE_PIECES)}))
(here / "roberta" / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{m}\n" for m in MERGES))
tokenizer = RobertaTokenizer.from_pretrained(here / "roberta")
model = RobertaForSequenceClassification.from_pretrained(here / "roberta").double().eval()
with open(here / "roberta" / "texts.tsv", "w") as out, torch.no_grad():
    for text in BYTE_TEXTS:
        ids = tokenizer(text, truncation=True, max_length=golden.POSITIONS).input_ids
        found = model(torch.tensor([ids])).logits.softmax(-1)[0]
        out.write(f"{text}\t{' '.join(map(str, ids))}\t{' '.join(f'{p:.9f}' for p in found)}\n")

save("distil", fill(golden.build("distil"), "distil"))
write_vocab("distil")

def save_logits(name, model, form):
    batch = golden.inputs(form)
    del batch["labels"]
    with torch.no_grad(): logits = golden.logits_of(form, model.double()(**batch))
    save_file({"logits": np.ascontiguousarray(logits.numpy().astype(np.float32))}, here / name / "logits.safetensors")


for form in ("roberta_mlm", "distil_mlm"):
    model = fill(golden.build(form), form)
    if form == "roberta_mlm": model.config.pad_token_id = 1
    save(form, model)
    (here / form / "generation_config.json").unlink(missing_ok=True)
    if form == "distil_mlm": write_vocab(form)
    save_logits(form, model, form)
weights = load_file(here / "roberta_mlm" / "model.safetensors")
weights["roberta.pooler.dense.weight"] = golden.value("pooler.weight", golden.D**2).reshape(golden.D, golden.D)
weights["roberta.pooler.dense.bias"] = golden.value("pooler.bias", golden.D)
save_file(weights, here / "roberta_mlm" / "model.safetensors", {"format": "pt"})

config = golden.build("square").config
config.num_labels = 1
config.problem_type = None
model = fill(BertForSequenceClassification(config), "square")
save("number", model)
write_vocab("number")
(here / "number" / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 10}\n')
save_logits("number", model, "square")

config = golden.build("softmax").config
model = fill(BertModel(BertConfig(**{**config.to_dict(), "architectures": None})), "softmax", "bert.")
save("base", model, max_shard_size="24kB")
write_vocab("base")
batch = golden.inputs("softmax")
del batch["labels"]
with torch.no_grad(): hidden = model.double()(**batch).last_hidden_state
hidden = torch.cat([h[:len(t)] for h, t in zip(hidden, golden.TEXTS)])
save_file({"hidden": np.ascontiguousarray(hidden.numpy().astype(np.float32))}, here / "base" / "hidden.safetensors")
