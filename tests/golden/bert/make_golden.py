#!/usr/bin/env python3
"""Makes the golden files of the BERT family from Hugging Face transformers: logits, every gradient,
the losses of ten AdamW steps and the logits after them, for small models with each head. Run it with
PyTorch, transformers and safetensors installed; it writes *.safetensors beside itself.

  softmax  BertForSequenceClassification, one of 3 classes; one text has no label
  sigmoid  the same, multi-label
  square   the same, regression of 3 numbers
  mlm      BertForMaskedLM
  roberta  RobertaForSequenceClassification: positions begin at 2, one segment
  distil   DistilBertForSequenceClassification: no segments, a ReLU pooler

The weights are not stored: value() makes them from name and index, here and in test_bert.c. The
models compute in float64. All gradients are those of the mean loss."""
import os
import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, DistilBertConfig, DistilBertForMaskedLM,
                          DistilBertForSequenceClassification, RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification)

D, H, FF, L, V, POSITIONS, LABELS = 32, 4, 48, 2, 29, 14, 3
PAD, MASK = 0, 4
# [CLS] is 2 and [SEP] is 3; the third and the fifth text are pairs.
TEXTS = [[2, 7, 8, 9, 3], [2], [2, 10, 11, 3, 12, 3], [2, 3], [2, 13, 14, 15, 16, 3, 17, 18, 19, 20, 21, 3], [2, 5, 5, 5, 3]]
FIRST = [5, 1, 4, 2, 6, 5]  # tokens of the first segment
CLASSES = [2, 0, 1, -100, 1, 0]
TRUTHS = [[1, 0, 0], [0, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]]
NUMBERS = [[0.5, -1, 2], [0, 0.25, 1], [-0.75, 1.5, 0], [1, 1, 1], [-2, 0, 0.125], [0.5, 0.5, -0.5]]
MASKED = {0: [1, 3], 2: [2], 4: [1, 5, 10, 11], 5: [4]}  # text: positions that are masked


def value(name, n):
    """n pseudo-random weights of this name, exact in float32."""
    h = 2166136261
    for c in name.encode(): h = (h ^ c) * 16777619 % 2**32
    x = (h + np.arange(n, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32)
    x ^= x >> np.uint64(16)
    x = x * np.uint64(0x45D9F3B) % np.uint64(2**32)
    x ^= x >> np.uint64(16)
    u = (x >> np.uint64(8)).astype(np.float64) / 2**23 - 1  # in [-1, 1)
    if name.endswith(".gain"): return (1 + u / 8).astype(np.float32)
    return (u / (8 if name.endswith("bias") else 4)).astype(np.float32)


def names(form):
    """Pairs of our name and the names of Hugging Face whose tensors it holds, one below the other. Of the
    forms roberta_mlm and distil_mlm, which have no golden file here, ../bert_import has models."""
    distil, roberta = form.startswith("distil"), form.startswith("roberta")
    base = "distilbert." if distil else "roberta." if roberta else "bert."
    e = base + "embeddings."
    both = lambda ours, theirs, parts: [(f"{ours}.{a}", [f"{t}.{b}" for t in theirs]) for a, b in parts]
    linear, norm = [("weight", "weight"), ("bias", "bias")], [("gain", "weight"), ("bias", "bias")]
    out = [("embed.tokens", [e + "word_embeddings.weight"]), ("embed.positions", [e + "position_embeddings.weight"])]
    out += [] if distil else [("embed.segments", [e + "token_type_embeddings.weight"])]
    out += both("embed.norm", [e + "LayerNorm"], norm)
    for i in range(L):
        ours = f"layer.{i}"
        if distil:
            l = f"{base}transformer.layer.{i}."
            parts = [[l + "attention." + x for x in ("q_lin", "k_lin", "v_lin")], [l + "attention.out_lin"], [l + "sa_layer_norm"],
                     [l + "ffn.lin1"], [l + "ffn.lin2"], [l + "output_layer_norm"]]
        else:
            l = f"{base}encoder.layer.{i}."
            parts = [[l + "attention.self." + x for x in ("query", "key", "value")], [l + "attention.output.dense"],
                     [l + "attention.output.LayerNorm"], [l + "intermediate.dense"], [l + "output.dense"], [l + "output.LayerNorm"]]
        for part, theirs in zip(["attention.in", "attention.out", "attention.norm", "feed.up", "feed.down", "feed.norm"], parts):
            out += both(f"{ours}.{part}", theirs, norm if "norm" in part else linear)
    if form.endswith("mlm"):
        t = "cls.predictions.transform."
        dense, layer_norm, bias = (("vocab_transform", "vocab_layer_norm", "vocab_projector.bias") if distil else
                                   ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias") if roberta else
                                   (t + "dense", t + "LayerNorm", "cls.predictions.bias"))
        return out + both("mlm.transform", [dense], linear) + both("mlm.norm", [layer_norm], norm) + [("mlm.bias", [bias])]
    out += both("pooler", ["pre_classifier" if distil else "classifier.dense" if roberta else "bert.pooler.dense"], linear)
    return out + both("classifier", ["classifier.out_proj" if roberta else "classifier"], linear)


def build(form):
    common = dict(vocab_size=V, pad_token_id=PAD)
    sizes = dict(hidden_size=D, num_hidden_layers=L, num_attention_heads=H, intermediate_size=FF, hidden_dropout_prob=0,
                 attention_probs_dropout_prob=0, num_labels=LABELS, layer_norm_eps=1e-12)
    kind = dict(sigmoid="multi_label_classification", square="regression").get(form, "single_label_classification")
    if form == "mlm": return BertForMaskedLM(BertConfig(max_position_embeddings=POSITIONS, **common, **sizes))
    if form.startswith("roberta"):
        config = RobertaConfig(max_position_embeddings=POSITIONS + 2, type_vocab_size=1, problem_type=kind, **common, **sizes)
        return RobertaForMaskedLM(config) if form.endswith("mlm") else RobertaForSequenceClassification(config)
    if form.startswith("distil"):
        config = DistilBertConfig(max_position_embeddings=POSITIONS, dim=D, n_layers=L, n_heads=H, hidden_dim=FF, dropout=0,
                                  attention_dropout=0, seq_classif_dropout=0, num_labels=LABELS, problem_type=kind, **common)
        return DistilBertForMaskedLM(config) if form.endswith("mlm") else DistilBertForSequenceClassification(config)
    return BertForSequenceClassification(BertConfig(max_position_embeddings=POSITIONS, problem_type=kind, **common, **sizes))


def inputs(form):
    longest = max(map(len, TEXTS))
    pad = lambda rows, rest: torch.tensor([r + [rest] * (longest - len(r)) for r in rows])
    ids = [list(t) for t in TEXTS]
    labels = dict(sigmoid=torch.tensor(TRUTHS).double(), square=torch.tensor(NUMBERS).double()).get(form, torch.tensor(CLASSES))
    if form.endswith("mlm"):
        truth = [[-100] * len(t) for t in TEXTS]
        for t, places in MASKED.items():
            for p in places: truth[t][p], ids[t][p] = TEXTS[t][p], MASK
        labels = pad(truth, -100)
    out = dict(input_ids=pad(ids, PAD), attention_mask=pad([[1] * len(t) for t in TEXTS], 0), labels=labels)
    if form.startswith("roberta"): out["position_ids"] = torch.arange(longest)[None].expand(len(TEXTS), -1) + 2
    elif not form.startswith("distil"):
        out["token_type_ids"] = pad([[0] * n + [1] * (len(t) - n) for t, n in zip(TEXTS, FIRST)], 0)
    return out


def logits_of(form, result):
    if not form.endswith("mlm"): return result.logits.detach()
    return torch.cat([result.logits[t, places].detach() for t, places in MASKED.items()])


def make(form):
    model, table, batch = build(form).double().eval(), names(form), inputs(form)
    params = dict(model.named_parameters())
    listed = [t for _, theirs in table for t in theirs]
    assert sorted(listed) == sorted(params), set(listed) ^ set(params)
    with torch.no_grad():
        for name, theirs in table:
            n = sum(params[t].numel() for t in theirs)
            parts = torch.tensor(value(name, n).astype(np.float64)).split([params[t].numel() for t in theirs])
            for t, part in zip(theirs, parts): params[t].copy_(part.view(params[t].shape))
    decayed = [p for p in params.values() if p.dim() > 1]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=.01),
                                   dict(params=[p for p in params.values() if p.dim() == 1], weight_decay=0)], lr=1e-3)
    out, losses = {}, []
    for step in range(10):
        optimizer.zero_grad()
        result = model(**batch)
        result.loss.backward()
        losses.append(result.loss.item())
        if step == 0:
            out["logits"] = logits_of(form, result)
            for name, theirs in table: out["grad/" + name] = torch.cat([params[t].grad for t in theirs])
        optimizer.step()
    out["losses"], out["logits10"] = torch.tensor(losses), logits_of(form, model(**batch))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), form + ".safetensors")
    save_file({k: np.ascontiguousarray(v.numpy().astype(np.float32)) for k, v in out.items()}, path)
    print(form, [round(x, 4) for x in losses], os.path.getsize(path), "bytes")


if __name__ == "__main__":
    torch.manual_seed(1)
    for form in ("softmax", "sigmoid", "square", "mlm", "roberta", "distil"): make(form)
