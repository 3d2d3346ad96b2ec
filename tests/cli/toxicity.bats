#!/usr/bin/env bats
# The script recipes/toxicity, with a table and models small enough for a test; no GPU.

bats_require_minimum_version 1.5.0

# A table whose classes can be read from one word; texts have commas, quotes and line breaks.
setup() {
  cd "$BATS_TEST_TMPDIR"
  export OUT="$PWD/out" OMP_NUM_THREADS=1 DEVICE=cpu PRECISION=fp32 PREPARE='--vocab-size 60'
  export PRESET=bert-tiny PRETRAIN='--d-model 16 --ffn-dim 32 --heads 2 --layers 1 --epochs 1 --batch-tokens 512 --save-every 1 --threads 1 --log-every 1'
  export TRAIN='--epochs 1 --batch-tokens 512 --save-every 1 --valid-every 3 --threads 1 --log-every 1'
  recipe="$BATS_TEST_DIRNAME/../../recipes/toxicity"
  perl -e 'srand 5; print "class,text\n"; for my $i (0 .. 299) {
    my @w = map { join "", map { chr 97 + int rand 6 } 1 .. 1 + int rand 3 } 1 .. 3 + int rand 5;
    print $i % 3, ",\"", join(" ", @w[0, 1], ("idiot", "rubbish, \"\"you\"\"", "nice\nday")[$i % 3], @w[2 .. $#w]), "\"\n" }' > table.csv
}

# times of all files but the scores, which every call prints again
files() { find out -type f -printf '%p %T@\n' | grep -v '[.]score ' | sort; }

@test "one command pretrains, trains and scores; a second call finds it done" {
  SEEDS='1 2' run -0 "$recipe/run" table.csv
  echo "$output"
  for seed in 1 2; do
    [ "$(wc -l < out/run-$seed.jsonl)" -eq 30 ]
    [ "$(grep -c '^\(F1 macro\|ROC AUC\) .* (μ = .* ± .*)$' out/run-$seed.score)" -eq 2 ]
    grep -q '^30 texts, 3 classes$' out/run-$seed.score
  done
  [[ "$output" == *"F1 macro   mean "*", standard deviation "*"ROC AUC    mean "* ]]
  for part in prepare pretrain train classify; do grep -q "^$part *[0-9]* min [0-9][0-9] s$" <<< "$output"; done
  # The classifiers start from the encoder that was pretrained.
  grep -q 'init .* weights are those of .*/out/pretrain' out/run-1/log.txt
  grep -q '"head": "mlm"' out/pretrain/checkpoints/latest/model.json
  before=$(files)
  SEEDS='1 2' run -0 "$recipe/run" table.csv
  [[ "$output" != *"done at step"* ]]
  [ "$(grep -c '^ROC AUC .*±' <<< "$output")" -eq 2 ]
  [ "$(files)" = "$before" ]
}

@test "a training that was killed continues" {
  TRIREME_FAULT=die:4:0 run "$recipe/run" table.csv
  [ "$status" -ne 0 ]
  [ ! -e out/pretrain.done ]
  run -0 "$recipe/run" table.csv
  echo "$output"
  [[ "$output" == *"resume   step "[1-4]* ]]
  [[ "$output" == *"ROC AUC "* ]]
}

@test "steps instead of the epochs of the recipe" {
  PRETRAIN=${PRETRAIN/--epochs 1/--steps 2} TRAIN=${TRAIN/--epochs 1/--steps 3} run -0 "$recipe/run" table.csv
  echo "$output"
  [[ "$output" == *"done at step 2 "*"done at step 3 "*"ROC AUC "* ]]
}

@test "a prepare that was killed continues; another table is refused" {
  TRIREME_FAULT=die:prepare-tokenizer run "$recipe/run" table.csv
  [ "$status" -ne 0 ]
  [ -d out/data.partial ]
  # stops at the pretraining, which has no part in this test
  PRETRAIN='--no-such-option' run "$recipe/run" table.csv
  echo "$output"
  [[ "$output" == *"no-such-option"* ]]
  [ -f out/data/dataset.json ]
  before=$(files)
  head -n 100 table.csv > other.csv
  run -2 "$recipe/run" other.csv
  echo "$output"
  [[ "$output" == *"other.csv"*"set OUT to another folder"* ]]
  [ "$(files)" = "$before" ]
}

@test "from a BERT directory" {
  TEXT_COLUMN=comment run "$recipe/run" table.csv "$BATS_TEST_DIRNAME/../golden/bert_import/bert"
  [ "$status" -ne 0 ]
  [[ "$output" == *"comment"* ]]
  unset PREPARE
  run -0 "$recipe/run" table.csv "$BATS_TEST_DIRNAME/../golden/bert_import/bert"
  echo "$output"
  cmp out/bert/model/vocab.txt out/bert/data/vocab.txt
  grep -q 'init .* weights are those of .*/out/bert/model' out/bert/run-1/log.txt
  [ ! -e out/bert/pretrain ]
  [[ "$output" == *"ROC AUC "* ]]
  run -2 "$recipe/run" table.csv "$BATS_TEST_DIRNAME/../golden/bert_import/roberta"
  echo "$output"
  [[ "$output" == *"out/bert/model is imported from "*"bert_import/bert, not from "*"set OUT to another folder"* ]]
}

@test "from a RoBERTa directory" {
  unset PREPARE
  run -0 "$recipe/run" table.csv "$BATS_TEST_DIRNAME/../golden/bert_import/roberta"
  echo "$output"
  cmp out/bert/model/tokenizer.json out/bert/data/tokenizer.json
  [[ "$output" == *"ROC AUC "* ]]
}

@test "wrong calls say what is expected" {
  run -2 "$recipe/run"
  [[ "$output" == *"TABLE [BERT]"* ]]
  TRIREME="$PWD/nowhere" run -2 "$recipe/run" table.csv
  [[ "$output" == *"TRIREME"* ]]
}
