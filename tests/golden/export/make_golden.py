"""Writes what the classes of CTranslate2 serialize for the model of ../marian/hf and for a pre-norm model.

Needs ctranslate2, numpy, safetensors.

  ct2_marian.sha256   hash of model.bin of ../marian/hf, post-norm with all biases
  ct2_prenorm.tsv     name, type and shape of each variable of a pre-norm model without attention biases,
                      and its aliases; tests/unit/test_export.c has the same sizes

Two properties differ from those of CTranslate2's own converter: the decoder begins with the embedding of
<pad> instead of zeros, and <pad> stays in the vocabulary with an output bias of -30000."""

import hashlib
import pathlib
import tempfile

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file

here = pathlib.Path(__file__).parent
TYPES = {"float32": 0, "int8": 1, "int16": 2}


def positions(count, d):
    """As transformers computes those of MarianMT: in double precision, rounded to fp32."""
    table = np.array([[p / np.power(10000, 2 * (j // 2) / d) for j in range(d)] for p in range(count)])
    out = np.zeros((count, d), np.float32)
    out[:, : d // 2] = np.sin(table[:, 0::2])
    out[:, d // 2:] = np.cos(table[:, 1::2])
    return out


def set_linear(spec, weights, *names):
    spec.weight = np.concatenate([weights[n + ".weight"] for n in names])
    spec.bias = np.concatenate([weights[n + ".bias"] for n in names])


def set_norm(spec, weights, name):
    spec.gamma = weights[name + ".weight"]
    spec.beta = weights[name + ".bias"]


def set_stack(spec, w, stack, table):
    at = f"model.{stack}."
    spec.position_encodings.encodings = table
    for i, layer in enumerate(spec.layer):
        p = f"{at}layers.{i}."
        set_linear(layer.self_attention.linear[0], w, *(f"{p}self_attn.{k}_proj" for k in "qkv"))
        set_linear(layer.self_attention.linear[1], w, p + "self_attn.out_proj")
        set_norm(layer.self_attention.layer_norm, w, p + "self_attn_layer_norm")
        if stack == "decoder":
            set_linear(layer.attention.linear[0], w, p + "encoder_attn.q_proj")
            set_linear(layer.attention.linear[1], w, *(f"{p}encoder_attn.{k}_proj" for k in "kv"))
            set_linear(layer.attention.linear[2], w, p + "encoder_attn.out_proj")
            set_norm(layer.attention.layer_norm, w, p + "encoder_attn_layer_norm")
        set_linear(layer.ffn.linear_0, w, p + "fc1")
        set_linear(layer.ffn.linear_1, w, p + "fc2")
        set_norm(layer.ffn.layer_norm, w, p + "final_layer_norm")


def finish(spec, vocab):
    tokens = [str(i) for i in range(vocab)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as to:
        spec.save(to)
        return (pathlib.Path(to) / "model.bin").read_bytes()


def marian():
    w = load_file(here / "../marian/hf/model.safetensors")
    spec = transformer_spec.TransformerSpec.from_config(
        (2, 2), 2, pre_norm=False, activation=common_spec.Activation.SWISH)
    embedding = w["model.shared.weight"]
    table = positions(96, embedding.shape[1])
    set_stack(spec.encoder, w, "encoder", table)
    set_stack(spec.decoder, w, "decoder", table)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    bias = w["final_logits_bias"][0].copy()
    bias[len(bias) - 1] = -30000
    spec.decoder.projection.bias = bias
    return finish(spec, len(bias))


def fill(spec, sizes):
    """Fills a pre-norm specification with random arrays of these sizes."""
    vocab, d, ffn, longest = sizes
    rng = np.random.default_rng(1)

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def linear(s, rows, cols, bias):
        s.weight = draw(rows, cols)
        if bias:
            s.bias = draw(rows)

    def norm(s):
        s.gamma, s.beta = draw(d), draw(d)

    table, embedding = draw(longest, d), draw(vocab, d)
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = table
        norm(stack.layer_norm)
        for layer in stack.layer:
            norm(layer.self_attention.layer_norm)
            linear(layer.self_attention.linear[0], 3 * d, d, False)
            linear(layer.self_attention.linear[1], d, d, False)
            if stack is spec.decoder:
                norm(layer.attention.layer_norm)
                linear(layer.attention.linear[0], d, d, False)
                linear(layer.attention.linear[1], 2 * d, d, False)
                linear(layer.attention.linear[2], d, d, False)
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, ffn, d, True)
            linear(layer.ffn.linear_1, d, ffn, True)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    linear(spec.decoder.projection, vocab, d, True)
    spec.decoder.projection.weight = embedding


(here / "ct2_marian.sha256").write_text(hashlib.sha256(marian()).hexdigest() + "  model.bin\n")
spec = transformer_spec.TransformerSpec.from_config((2, 1), 2, pre_norm=True)
fill(spec, (378, 16, 32, 64))
finish(spec, 378)
with open(here / "ct2_prenorm.tsv", "w") as out:
    for name, value in spec.variables(ordered=True):
        if not isinstance(value, str):
            out.write(f"{name}\t{TYPES[value.dtype]}\t{' '.join(map(str, value.shape))}\n")
    for name, value in spec.variables(ordered=True):
        if isinstance(value, str):
            out.write(f"{name}\t{value}\n")
