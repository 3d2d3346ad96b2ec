"""Writes a small random MarianMT model and what transformers' generate makes of 200 sentences.

Needs PyTorch, transformers, sentencepiece. Arguments: directory with train.en, train.de and test_2016_flickr.en
of Multi30k (plain or .gz).

  hf/            the model: config.json, model.safetensors, source.spm, target.spm, vocab.json
  bin/           the same weights as pytorch_model.bin
  source.txt     200 sentences
  ids.tsv        for each sentence: source ids, ids of greedy search, of beam search without length
                 penalty (4 beams), of beam search with length penalty 1 (4 beams)

The weights are large, so that the scores of two hypotheses are rarely close. The output bias favours
</s>, so that many outputs end before the limit, and the gains have random signs, because tied
embeddings would otherwise repeat one token for ever."""

import gzip
import io
import json
import pathlib
import shutil
import sys

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

here = pathlib.Path(__file__).parent
data = pathlib.Path(sys.argv[1])
hf = here / "hf"
LIMIT = 40  # tokens of an output, including </s>


def read(name):
    for path in sorted(data.glob(name + "*")):
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        return [line.rstrip("\n") for line in opened]
    raise SystemExit(f"no {name} in {data}")


def train(lines, size, to):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type="unigram",
        character_coverage=1.0, normalization_rule_name="identity", num_threads=1, minloglevel=2)
    to.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


shutil.rmtree(hf, ignore_errors=True)
hf.mkdir()
train_en, train_de = read("train.en")[:3000], read("train.de")[:3000]
source = train(train_en, 220, hf / "source.spm")
target = train(train_de, 240, hf / "target.spm")
pieces = ["</s>", "<unk>"]
for model in (source, target):
    for i in range(model.get_piece_size()):
        piece = model.id_to_piece(i)
        if piece not in pieces and piece not in ("<s>",):
            pieces.append(piece)
pieces += [">>deu<<", "<pad>"]
vocab = {piece: i for i, piece in enumerate(pieces)}
(hf / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, indent=0) + "\n")

torch.manual_seed(7)
pad = vocab["<pad>"]
config = MarianConfig(
    vocab_size=len(vocab), d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=32,
    decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2,
    max_position_embeddings=96, activation_function="swish", scale_embedding=True,
    eos_token_id=0, pad_token_id=pad, decoder_start_token_id=pad, forced_eos_token_id=None)
model = MarianMTModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if "embed_positions" in name:
            continue
        if "norm" in name:
            gain = torch.randn_like(p).sign() if name.endswith("weight") else 0
            p.copy_(torch.randn_like(p) * 0.2 + gain)
        else:
            p.copy_(torch.randn_like(p) * (1.5 if "shared" in name else 0.35))
    model.model.shared.weight[pad] = 0
    model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.final_logits_bias[0, 0] = 8
model.save_pretrained(hf)
for extra in ("generation_config.json",):
    (hf / extra).unlink(missing_ok=True)
(here / "bin").mkdir(exist_ok=True)
torch.save(model.state_dict(), here / "bin" / "pytorch_model.bin")

tokenizer = MarianTokenizer(
    vocab=str(hf / "vocab.json"), source_spm=str(hf / "source.spm"), target_spm=str(hf / "target.spm"),
    source_lang="en", target_lang="de")
lines = [line for line in read("test_2016_flickr.en") if 3 < len(line.split()) < 15][:197]
lines += [">>deu<< A man is here.", "Ein Mädchen läuft über die Straße.", "Snow ☃ and $5 ¿"]
(here / "source.txt").write_text("".join(line + "\n" for line in lines))

batch = tokenizer(lines, return_tensors="pt", padding=True)
columns = [[[t for t in ids if t != pad] for ids in batch.input_ids.tolist()]]
for options in (dict(num_beams=1), dict(num_beams=4, length_penalty=0.0),
                dict(num_beams=4, length_penalty=1.0)):
    with torch.no_grad():
        made = model.generate(**batch, do_sample=False, bad_words_ids=[[pad]],
                              max_new_tokens=LIMIT, **options).tolist()
    assert all(m[0] == pad for m in made)
    columns.append([m[1:m.index(0)] if 0 in m else m[1:] for m in made])
with open(here / "ids.tsv", "w") as out:
    for row in zip(*columns):
        out.write("\t".join(" ".join(map(str, ids)) for ids in row) + "\n")
