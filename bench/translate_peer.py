#!/usr/bin/env python3
# Runs CTranslate2 on a model of the same shape with random weights: sources of the given lengths,
# outputs as long as the target. CTranslate2 forces one output length per call, so sentences of the
# same target length are translated together.
#   translate_peer.py LENGTHS MODEL_DIR [BATCH…]   (the model is created if it is missing)
import json, os, resource, sys, time
import ctranslate2
import numpy as np

D, FF, LAYERS, HEADS, VOCAB, BEAM = 512, 2048, 6, 8, 32768, 4
rng = np.random.default_rng(1)


def linear(spec, out, inner, bias=True):
    spec.weight = rng.uniform(-1, 1, (out, inner)).astype(np.float32) * np.float32((6 / (out + inner)) ** 0.5)
    if bias:
        spec.bias = np.zeros(out, np.float32)


def norm(spec):
    spec.gamma, spec.beta = np.ones(D, np.float32), np.zeros(D, np.float32)


def attention(spec, sizes):
    norm(spec.layer_norm)
    for part, size in zip(spec.linear, sizes):
        linear(part, size, D, bias=False)


def make_model(path):
    spec = ctranslate2.specs.TransformerSpec.from_config(LAYERS, HEADS, pre_norm=True)
    table = rng.normal(0, D**-0.5, (VOCAB, D)).astype(np.float32)
    for stack in (spec.encoder, spec.decoder):
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight = table
        norm(stack.layer_norm)
        for layer in stack.layer:
            attention(layer.self_attention, (3 * D, D))
            if stack is spec.decoder:
                attention(layer.attention, (D, 2 * D, D))
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, FF, D)
            linear(layer.ffn.linear_1, D, FF)
    spec.decoder.projection.weight = table
    words = ["<blank>", "</s>", "<s>", "<unk>"] + ["w%d" % i for i in range(4, VOCAB)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = True
    spec.validate()
    os.makedirs(path, exist_ok=True)
    spec.save(path)


def cpu():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


lengths, path = sys.argv[1], sys.argv[2]
if not os.path.exists(os.path.join(path, "model.bin")):
    make_model(path)
groups = {}
for line in open(lengths):
    source, target = map(int, line.split())
    groups.setdefault(target - 1, []).append(["w%d" % w for w in rng.integers(4, VOCAB, source - 1)])
translator = ctranslate2.Translator(path, device="cpu", compute_type="float32", inter_threads=1, intra_threads=1)
translator.translate_batch([["w5", "w6"]], beam_size=BEAM, min_decoding_length=3, max_decoding_length=3)
best = None
for batch in map(int, sys.argv[3:] or ["32"]):
    begin, begin_cpu, tokens, sentences = time.monotonic(), cpu(), 0, 0
    for target, sources in groups.items():
        results = translator.translate_batch(
            sources, beam_size=BEAM, length_penalty=0.6, max_batch_size=batch,
            min_decoding_length=target, max_decoding_length=target,
        )
        assert all(len(r.hypotheses[0]) == target for r in results)
        tokens += sum(len(s) + 1 + target for s in sources)
        sentences += len(sources)
    used, wall = cpu() - begin_cpu, time.monotonic() - begin
    result = {"batch": batch, "tok_s": tokens / wall, "tok_cpu_s": tokens / used, "seconds": wall, "cpu_s": used,
              "sentences_s": sentences / wall, "version": ctranslate2.__version__}
    print(json.dumps(result), file=sys.stderr)
    if best is None or result["cpu_s"] < best["cpu_s"]:
        best = result
print(json.dumps(best))
