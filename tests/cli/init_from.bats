#!/usr/bin/env bats
# train --init-from: which weights of another model a run starts from, what it logs, ranks, resume, and refused models.

bats_require_minimum_version 1.5.0
load ../ranks/support

# Options with which the weights do not change.
STILL=(--steps 1 --lr 0 --warmup-steps 1 --lr-scheduler constant --weight-decay 0 --valid-every 0 --average-checkpoints 0 --batch-tokens 256
  --threads 1 --device cpu --system-metrics no --micro-batches 2)

# prepare OUT [OPTION…]: makes a data set of labeled texts.
prepare() {
  "$TRIREME" prepare --quiet --task classify --train train.csv --text-column text --split 0.25 --out "$1" "${@:2}" > prepare.log
}

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  local golden="$BATS_TEST_DIRNAME/../golden/bert_import"
  local words=(you are kind rude good bad not) i
  echo text,class,half > train.csv
  for i in {0..59}; do
    echo "${words[i % 7]} ${words[i % 5]} ${words[i % 3]},$((i % 3)),$((i % 2))" >> train.csv
  done
  prepare classes --label-column class --vocab "$golden/mlm/vocab.txt" --casing cased --max-tokens 12
  for i in bert mlm; do
    "$TRIREME" import --quiet --from "$golden/$i" --out "$i"
  done
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# train RUN [OPTION…]
train() {
  "$TRIREME" train --data classes --run "$1" "${STILL[@]}" "${@:2}"
}

# outputs MODEL: prints the probabilities of the lines of `texts`.
outputs() {
  "$TRIREME" classify --quiet --device cpu --threads 1 --model "$1" --json < texts | sed 's/.*"probabilities": //; s/"[^"]*": //g'
}

# same_weights MODEL RUN
same_weights() {
  cmp "$1/weights.safetensors" "$2/checkpoints/latest/weights.safetensors"
}

@test "a classifier starts from a classifier: all weights and the sizes of the model are taken" {
  run -0 train whole --init-from bert
  [[ "$output" == *"33 of 33 weights are those of bert"* ]]
  if [[ "$output" == *"initialised:"* || "$output" == *"not used:"* ]]; then false; fi
  same_weights bert whole
  grep -q '^init-from = bert$' whole/config
  grep -q 'init     33 of 33' whole/log.txt
  # The labels of the model are words, those of the data set numbers.
  [[ "$output" == *"warning: --init-from bert has another "*"(labels.txt)"* ]]
}

@test "a RoBERTa classifier is trained further with its own tokenizer, from the model or from the files of Hugging Face" {
  "$TRIREME" import --quiet --from "$BATS_TEST_DIRNAME/../golden/bert_import/roberta" --out roberta
  prepare bytes --label-column class --tokenizer roberta --max-tokens 12
  cmp roberta/tokenizer.json bytes/tokenizer.json
  prepare files --label-column class --vocab "$BATS_TEST_DIRNAME/../golden/bert_import/roberta/vocab.json" --max-tokens 12
  cmp bytes/train-00000.tok files/train-00000.tok
  "$TRIREME" inspect bytes --samples 2 > inspected
  grep -q 'byte-bpe, 29 pieces; pad 1, cls 0, sep 2, unk 3, mask 4' inspected
  grep -q '<s> .* </s>' inspected
  run -0 "$TRIREME" train --data bytes --run byterun --init-from roberta "${STILL[@]}"
  [[ "$output" == *"33 of 33 weights are those of roberta"* ]]
  if [[ "$output" == *"has another tokenizer"* ]]; then false; fi
  same_weights roberta byterun
  cmp roberta/tokenizer.json byterun/checkpoints/latest/tokenizer.json
  echo 'you are kind' | "$TRIREME" classify --quiet --device cpu --model byterun > label
  [ "$(wc -l < label)" -eq 1 ]
  # The first row of the positions is another one in BERT than in RoBERTa.
  run -0 "$TRIREME" train --data bytes --run shifted --init-from roberta "${STILL[@]}" --preset bert-tiny --d-model 32 --ffn-dim 48 --heads 4
  [[ "$output" == *"initialised: embed.positions (512 x 32, there 16 x 32)"* ]]
  run -2 prepare refused --label-column class --tokenizer roberta --casing cased
  run -1 prepare refused --label-column class --tokenizer roberta/model.json
}

@test "a classifier starts with the pooler of a masked language model that was saved with one" {
  local golden="$BATS_TEST_DIRNAME/../golden/bert_import"
  "$TRIREME" import --quiet --from "$golden/roberta_mlm" --out pretrained
  prepare letters --label-column class --vocab "$golden/roberta/vocab.json" --max-tokens 12
  run -0 "$TRIREME" train --data letters --run pooled --init-from pretrained "${STILL[@]}"
  [[ "$output" == *"31 of 33 weights are those of pretrained"* ]]
  [[ "$output" == *"initialised: classifier.weight, classifier.bias"* ]]
}

@test "a classifier starts from a masked language model with a new pooler and a new head" {
  run -0 train masked --init-from mlm
  [[ "$output" == *"29 of 33 weights are those of mlm"* ]]
  [[ "$output" == *"initialised: pooler.weight, pooler.bias, classifier.weight, classifier.bias"* ]]
  [[ "$output" == *"not used: mlm.transform.weight, mlm.transform.bias, mlm.norm.gain, mlm.norm.bias, mlm.bias"* ]]
}

@test "another vocabulary leaves its embedding out" {
  prepare other --label-column class --vocab-size 40 --casing cased --max-tokens 12
  run -0 "$TRIREME" train --data other --run vocab "${STILL[@]}" --init-from bert
  [[ "$output" == *"32 of 33 weights are those of bert"* ]]
  [[ "$output" == *"initialised: embed.tokens ("*" x 32, there 29 x 32)"* ]]
  [[ "$output" != *"(vocab.txt) than the data set"* ]]
}

@test "a warning names another vocabulary or list of labels only if weights of it are taken" {
  prepare halves --label-column half --vocab bert/vocab.txt --casing cased --max-tokens 12
  run -0 "$TRIREME" train --data halves --run halves-run "${STILL[@]}" --init-from bert
  [[ "$output" == *"initialised: classifier.weight (2 x 32, there 3 x 32), classifier.bias"* ]]
  [[ "$output" != *"than the data set"* ]]
  sed 's/^a$/zz/' bert/vocab.txt > changed.txt
  prepare changed --label-column half --vocab changed.txt --casing cased --max-tokens 12
  run -0 "$TRIREME" train --data changed --run changed-run "${STILL[@]}" --init-from bert
  [[ "$output" == *"warning: --init-from bert has another "*"(vocab.txt) than the data set"* ]]
}

@test "a data set of longer texts takes the positions that the model has, and warns of the others" {
  prepare long --label-column class --vocab bert/vocab.txt --casing cased --max-tokens 50
  run -0 "$TRIREME" train --data long --run long-run "${STILL[@]}" --init-from bert
  [[ "$output" == *"33 of 33 weights are those of bert"* ]]
  [[ "$output" == *"warning: --init-from bert has 14 positions, and the data set allows texts that need 50"* ]]
  [[ "$output" == *"positions 14 to 49 start random"*"--max-tokens 14"* ]]
  # A preset has more positions than the texts need.
  run -0 train larger --init-from bert --preset bert-tiny --d-model 32 --ffn-dim 48 --heads 4
  [[ "$output" != *"start random"* ]]
  # Texts that the model can read have its outputs.
  tail -n +2 train.csv | cut -d , -f 1 > texts
  outputs bert > outputs.there
  outputs long-run | cmp - outputs.there
}

@test "all ranks start from the same weights, of a run or of its checkpoint" {
  need_mpi
  train first --init-from bert --steps 3 --lr 1e-3
  mpirun -n 2 "$TRIREME" train --data classes --run ranks "${STILL[@]}" --init-from first > ranks.log 2>&1
  same_weights first/checkpoints/latest ranks
  train one --init-from first/checkpoints/latest
  same_weights first/checkpoints/latest one
}

@test "a resumed run continues from its checkpoint, even if the model is gone" {
  cp -r bert gone
  train resumed --init-from gone --steps 2 --lr 1e-3
  rm -r gone
  run -0 "$TRIREME" train --run resumed --resume --steps 4
  [[ "$output" == *"--init-from gone is not used: the run continues from its checkpoint"* ]]
  train straight --init-from bert --steps 4 --lr 1e-3
  same_weights straight/checkpoints/latest resumed
}

@test "options that are given change the model; --preset replaces its sizes" {
  run -0 train heads --init-from bert --heads 2
  [[ "$output" == *"33 of 33 weights"*"differs: heads 2 (there 4)"* ]]
  run -0 train preset --init-from bert --preset bert-tiny
  [[ "$output" == *"1 of 33 weights"*"initialised: embed.tokens (29 x 128, there 29 x 32), "* ]]
  prepare two --label-column half --vocab bert/vocab.txt --casing cased --max-tokens 12
  run -2 "$TRIREME" train --data two --run nothing "${STILL[@]}" --init-from bert --preset bert-tiny
  [[ "$output" == *"no weight has the name and the shape"* ]]
  [ ! -e nothing/checkpoints/latest ]
}

@test "what is no model, a model of another family, and a damaged one are refused" {
  run -1 train none --init-from classes
  [[ "$output" == *"--init-from classes: it is not a model"* ]]
  run -1 train none --init-from "$BATS_TEST_DIRNAME/../golden/bert_import/bert"
  [[ "$output" == *"import it with 'trireme import --from "*"/bert --out DIR'"* ]]
  run -1 train none --init-from nowhere
  [[ "$output" == *"--init-from nowhere: there is no such directory"* ]]
  "$TRIREME" import --quiet --from "$BATS_TEST_DIRNAME/../golden/marian/hf" --out marian
  run -2 train none --init-from marian
  [[ "$output" == *"--init-from marian is a model of family "*", but --task classify trains models of family "* ]]
  cp -r bert damaged
  printf 'x' | dd of=damaged/weights.safetensors bs=1 seek=60000 conv=notrunc status=none
  run -1 train none --init-from damaged
  [[ "$output" == *"damaged/weights.safetensors"*"damaged"* ]]
  local name
  for name in vocab.txt labels.txt; do
    rm -r damaged
    cp -r bert damaged
    sed -i 2d "damaged/$name"
    run -1 train none --init-from damaged
    [[ "$output" == *"damaged/$name is damaged: it has "* ]]
    rm "damaged/$name"
    run -1 train none --init-from damaged
    [[ "$output" == *"damaged/$name"*"No such file"* ]]
  done
  [ ! -e none/checkpoints/latest ]
}

@test "a translator starts from a translator" {
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 300 --vocab-size 200 --out pairs > /dev/null
  "$TRIREME" train --data pairs --run small "${STILL[@]}" --steps 2 --lr 1e-3 --preset tiny --d-model 32 --ffn-dim 64 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --layer-norm post --quiet
  run -0 "$TRIREME" train --data pairs --run tuned "${STILL[@]}" --init-from small
  [[ "$output" == *" weights are those of small/checkpoints/"* ]]
  if [[ "$output" == *"initialised:"* ]]; then false; fi
  same_weights small/checkpoints/latest tuned
}
