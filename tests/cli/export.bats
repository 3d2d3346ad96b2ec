#!/usr/bin/env bats
# export on the command line: files for Hugging Face and CTranslate2, and calls that are refused.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`

setup() {
  T=$BATS_TEST_TMPDIR
  MARIAN=$BATS_TEST_DIRNAME/../golden/marian/hf
  GOLDEN=$BATS_TEST_DIRNAME/../golden/export
  "$TRIREME" import --quiet --from "$MARIAN" --out "$T/model"
}

@test "an imported model is exported to the files it was imported from" {
  run -0 "$TRIREME" export "$T/model" --to hf --out "$T/hf/"
  [[ "$output" == *"exported $T/hf/ for hf: post-norm Transformer"* ]]
  for file in model.safetensors source.spm target.spm vocab.json; do cmp "$T/hf/$file" "$MARIAN/$file"; done
  for file in config.json generation_config.json tokenizer_config.json; do diff "$GOLDEN/hf/$file" "$T/hf/$file"; done
  [ "$(find "$T/hf" -type f | wc -l)" -eq 7 ]
  [ ! -e "$T/hf.partial" ]
}

@test "an export to CTranslate2 has the bytes that CTranslate2 writes" {
  "$TRIREME" export "$T/model" --quiet --to ctranslate2 --out "$T/ct2"
  (cd "$T/ct2" && sha256sum --check --quiet "$GOLDEN/ct2_marian.sha256")
  diff "$GOLDEN/ct2/config.json" "$T/ct2/config.json"
  for file in source.spm target.spm vocab.json; do cmp "$T/ct2/$file" "$MARIAN/$file"; done
  # tokens of shared_vocabulary.json in the order of their ids in vocab.json
  sed -n 's/^  \(".*"\),\{0,1\}$/\1/p' "$T/ct2/shared_vocabulary.json" > "$T/tokens"
  sed -n 's/^\(".*"\): [0-9]*,\{0,1\}$/\1/p' "$MARIAN/vocab.json" | cmp - "$T/tokens"
  [ "$(wc -l < "$T/tokens")" -eq 378 ]
}

@test "a run is exported to CTranslate2 with its tokenizer, and to hf is refused with the reason" {
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 1000 --vocab-size 300 --out "$T/set" > /dev/null
  "$TRIREME" train --quiet --device cpu --data "$T/set" --run "$T/run" --preset tiny --d-model 16 --ffn-dim 32 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --valid-every 0 --steps 2 --threads 1 > /dev/null 2>&1
  "$TRIREME" export "$T/run" --quiet --to ctranslate2 --out "$T/ct2"
  cmp "$T/ct2/tokenizer.model" "$T/run/checkpoints/latest/tokenizer.model"
  grep -q '"decoder_start_token": "<s>"' "$T/ct2/config.json"
  grep -q '"layer_norm_epsilon": 1e-6' "$T/ct2/config.json"
  run -1 "$TRIREME" export "$T/run" --to hf --out "$T/hf"
  [[ "$output" == *"pre-norm"*"pass --to ctranslate2"* ]]
  [ ! -e "$T/hf" ]
}

@test "models of the BERT family are exported to the files they were imported from" {
  local bert=$BATS_TEST_DIRNAME/../golden/bert_import
  for form in bert mlm roberta distil base roberta_mlm distil_mlm number; do
    "$TRIREME" import --quiet --from "$bert/$form" --out "$T/$form"
    "$TRIREME" export "$T/$form" --quiet --to hf --out "$T/$form-hf"
    "$TRIREME" import --quiet --from "$T/$form-hf" --out "$T/$form-back"
    for file in model.json weights.safetensors; do cmp "$T/$form/$file" "$T/$form-back/$file"; done
  done
  cmp "$bert/bert/model.safetensors" "$T/bert-hf/model.safetensors"
  for file in config.json tokenizer_config.json; do diff "$GOLDEN/bert/$file" "$T/bert-hf/$file"; done
  cmp "$bert/distil/vocab.txt" "$T/distil-hf/vocab.txt"
  grep -q '"pad_token_id": 1' "$T/roberta-hf/config.json"
  cmp "$bert/roberta/merges.txt" "$T/roberta-hf/merges.txt"
  cmp "$T/roberta/tokenizer.json" "$T/roberta-hf/tokenizer.json"
  grep -q '"tokenizer_class": "RobertaTokenizer"' "$T/roberta-hf/tokenizer_config.json"
  perl -MJSON::PP -0777 -e 'my ($a, $b) = map { open my $f, "<", $_ or die; decode_json(<$f>) } @ARGV; die unless JSON::PP->new->canonical->encode($a) eq JSON::PP->new->canonical->encode($b)' \
    "$bert/roberta/vocab.json" "$T/roberta-hf/vocab.json"
  run -1 "$TRIREME" export "$T/bert" --to ctranslate2 --out "$T/ct2"
  [[ "$output" == *"only translation models"*"pass --to hf"* ]]
}

# wordpiece_roberta VOCAB NAME: trains a RoBERTa further on texts of a WordPiece vocabulary, as $T/NAME.
wordpiece_roberta() {
  local golden=$BATS_TEST_DIRNAME/../golden/bert_import i
  [ -e "$T/start" ] || "$TRIREME" import --quiet --from "$golden/roberta" --out "$T/start"
  printf 'text,class\n' > "$T/texts.csv"
  for i in 0 1 2 0 1 2 0 1 2; do echo "you are not kind $i,$i" >> "$T/texts.csv"; done
  "$TRIREME" prepare --quiet --task classify --train "$T/texts.csv" --text-column text --label-column class --vocab "$1" --casing cased \
    --max-tokens 12 --out "$T/$2-set" > /dev/null
  "$TRIREME" train --quiet --device cpu --data "$T/$2-set" --run "$T/$2" --init-from "$T/start" --steps 1 --batch-tokens 256 --threads 1 \
    --system-metrics no > /dev/null 2>&1
}

@test "a model of RoBERTa's form with a WordPiece vocabulary has BertTokenizer, and its positions begin after [PAD]" {
  local vocab=$BATS_TEST_DIRNAME/../golden/bert_import/mlm/vocab.txt model
  wordpiece_roberta "$vocab" pieces
  "$TRIREME" export "$T/pieces" --quiet --to hf --out "$T/pieces-hf"
  cmp "$vocab" "$T/pieces-hf/vocab.txt"
  grep -q '"tokenizer_class": "BertTokenizer"' "$T/pieces-hf/tokenizer_config.json"
  # There is one segment, so that the tokenizer must not number the texts of a pair.
  tr -d ' \n' < "$T/pieces-hf/tokenizer_config.json" | grep -qF '"model_input_names":["input_ids","attention_mask"]'
  # [PAD] is 0: the first row of the positions, which no token has, is left out.
  grep -q '"pad_token_id": 0' "$T/pieces-hf/config.json"
  grep -q '"max_position_embeddings": 15' "$T/pieces-hf/config.json"
  "$TRIREME" import --quiet --from "$T/pieces-hf" --out "$T/pieces-back"
  cmp "$vocab" "$T/pieces-back/vocab.txt"
  for model in pieces pieces-back; do
    printf 'you are kind\nrude [UNK] you\n' | "$TRIREME" classify --quiet --device cpu --threads 1 --model "$T/$model" --json > "$T/$model.out"
  done
  grep -q probabilities "$T/pieces.out"
  cmp "$T/pieces.out" "$T/pieces-back.out"
}

@test "a model of RoBERTa's form whose WordPiece vocabulary has no early [PAD] is refused" {
  local vocab=$BATS_TEST_DIRNAME/../golden/bert_import/mlm/vocab.txt
  sed 's/^\[PAD\]$/zzz/' "$vocab" > "$T/without.txt"
  { grep -vxF '[PAD]' "$vocab"; echo '[PAD]'; } > "$T/late.txt"
  local name
  for name in without late; do
    wordpiece_roberta "$T/$name.txt" "$name"
    run -1 "$TRIREME" export "$T/$name" --to hf --out "$T/$name-hf"
    [[ "$output" == *"needs a token for padding ([PAD]) among the first of the vocabulary"* ]]
    [ ! -e "$T/$name-hf" ]
    [ ! -e "$T/$name-hf.partial" ]
  done
}

@test "special tokens that a vocabulary does not have are null" {
  cp -R "$BATS_TEST_DIRNAME/../golden/bert_import/roberta" "$T/maskless"
  sed -i 's/"<mask>"/"zz"/; s/"<pad>"/"qq"/' "$T/maskless/vocab.json"
  "$TRIREME" import --quiet --from "$T/maskless" --out "$T/maskless-model"
  "$TRIREME" export "$T/maskless-model" --quiet --to hf --out "$T/maskless-hf"
  grep -q '"mask_token": null' "$T/maskless-hf/tokenizer_config.json"
  grep -q '"pad_token": null' "$T/maskless-hf/tokenizer_config.json"
  grep -q '"unk_token": "<unk>"' "$T/maskless-hf/tokenizer_config.json"
  "$TRIREME" import --quiet --from "$T/maskless-hf" --out "$T/maskless-back"
  cmp "$T/maskless-model/tokenizer.json" "$T/maskless-back/tokenizer.json"
}

@test "a full disk is an error and leaves nothing behind" {
  local small='mount -t tmpfs -o size=64k none "$0" && "$@"; code=$?; ls -A "$0"; exit $code'
  mkdir "$T/disk"
  unshare --mount sh -c "$small" "$T/disk" true 2> /dev/null || skip "mounting a tmpfs needs root"
  run -1 unshare --mount sh -c "$small" "$T/disk" "$TRIREME" export "$T/model" --to hf --out "$T/disk/hf"
  [[ "$output" == *"o space left"* ]]
  [[ "$output" != *$'\n'hf* ]]
}

@test "damaged weights, existing outputs and incomplete calls are refused" {
  mkdir "$T/there"
  run -2 "$TRIREME" export "$T/model" --to hf --out "$T/there"
  [[ "$output" == *"exists; pass the path of a new directory"* ]]
  run -2 "$TRIREME" export "$T/model" --out "$T/new"
  [[ "$output" == *"pass --to hf or --to ctranslate2"* ]]
  run -2 "$TRIREME" export "$T/model" --to hf
  [[ "$output" == *"pass --out DIR"* ]]
  run -2 "$TRIREME" export "$T/model" --to onnx --out "$T/new"
  [[ "$output" == *"ctranslate2"* ]]
  run -1 "$TRIREME" export "$T/none" --to hf --out "$T/new"
  [[ "$output" == *"$T/none: there is no such directory"* ]]
  printf 'x' | dd of="$T/model/weights.safetensors" bs=1 seek=9000 conv=notrunc status=none
  run -1 "$TRIREME" export "$T/model" --to hf --out "$T/new"
  [[ "$output" == *"weights.safetensors"* ]]
  [ ! -e "$T/new" ]
  [ ! -e "$T/new.partial" ]
}
