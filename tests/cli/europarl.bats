#!/usr/bin/env bats
# The script recipes/europarl-en-de, with texts and models small enough for a test; no network, no
# GPU.

# Texts in two directories, speeches and news.
setup() {
  cd "$BATS_TEST_TMPDIR"
  export XDG_CACHE_HOME="$PWD/xdg" OUT="$PWD/out" OMP_NUM_THREADS=1
  export DEVICE=cpu PRECISION=fp32 PREPARE='--vocab-size 64'
  export TRAIN='--preset tiny --d-model 16 --ffn-dim 16 --heads 2 --encoder-layers 1 --decoder-layers 1
    --batch-tokens 128 --steps 6 --warmup-steps 2 --valid-every 3 --save-every 1 --average-checkpoints 2 --log-every 1 --samples 0'
  TRAIN=$(echo $TRAIN)
  recipe="$BATS_TEST_DIRNAME/../../recipes/europarl-en-de"
  mkdir speeches news
  text 400 1 > speeches/train.en
  text 20 2 > speeches/dev.en
  text 12 3 > news/newstest2013.en
  text 11 4 > news/newstest2014.en
  for file in speeches/train speeches/dev news/newstest2013 news/newstest2014; do tr a-l l-za-k < $file.en > $file.de; done
  gzip speeches/train.en
  zstd -q --rm speeches/train.de
}

text() {  # arguments: LINES SEED
  perl -e 'srand $ARGV[1]; print join(" ", map { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 4 } 1 .. 2 + int rand 4), "\n" for 1 .. $ARGV[0]' "$1" "$2"
}

files() { find out -type f -printf '%p %T@\n' | grep -v '^out/run-1.times ' | sort; }

@test "one command prepares, trains and scores from folders; a second call finds it done" {
  run "$recipe/run" speeches news
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"done at step 6"* ]]
  # Two models translate three texts.
  [ "$(grep -c '^BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:.* = ' <<< "$output")" -eq 6 ]
  [ "$(grep -c '^chrF2|nrefs:1|.* = ' <<< "$output")" -eq 6 ]
  for name in average best; do
    [ "$(wc -l < out/run-1/$name.newstest2013)" -eq 12 ]
    [ "$(wc -l < out/run-1/$name.newstest2014)" -eq 11 ]
    [ "$(wc -l < out/run-1/$name.europarl-dev)" -eq 20 ]
  done
  cmp out/data/valid.src news/newstest2013.en
  cmp out/data/test.ref news/newstest2014.de
  cmp out/dev.de speeches/dev.de
  for part in prepare train translate; do grep -q "^$part *[0-9]* min [0-9][0-9] s$" <<< "$output"; done
  # The score printed for a text equals the score of its translation.
  bleu=$("$TRIREME" score --ref news/newstest2014.de --hyp out/run-1/average.newstest2014)
  grep -A 1 '^newstest2014, average:' <<< "$output" | grep -qF "$bleu"
  before=$(files)
  run "$recipe/run"
  [ "$status" -eq 0 ]
  [[ "$output" != *"at step 6"* ]]
  [ "$(grep -c '^BLEU|' <<< "$output")" -eq 6 ]
  [ "$(files)" = "$before" ]
}

@test "train.conf applies except for what TRAIN changes" {
  run "$recipe/run" speeches news
  [ "$status" -eq 0 ]
  for line in 'lr-scheduler = cosine' 'lr = 1.5e-3' 'beta2 = 0.98' 'clip-norm = 1' 'steps = 6' 'average-checkpoints = 2'; do
    grep -qx "$line" out/run-1/config || { echo "no $line"; cat out/run-1/config; false; }
  done
}

@test "without dev.en and dev.de of Europarl it prints that they are missing" {
  rm speeches/dev.en speeches/dev.de
  run "$recipe/run" speeches news
  [ "$status" -eq 0 ]
  [ "$(grep -c '^BLEU|' <<< "$output")" -eq 4 ]
  [[ "$output" == *"no dev.en and dev.de in any of the folders"* ]]
}

@test "a training that was killed continues" {
  TRIREME_FAULT=die:4:0 run "$recipe/run" speeches news
  [ "$status" -ne 0 ]
  [ -f out/data/dataset.json ]
  [ ! -e out/run-1/average ]
  run "$recipe/run"
  [ "$status" -eq 0 ]
  [[ "$output" == *"resume   step "[34]* ]]
  [[ "$output" == *"done at step 6"* ]]
}

@test "without a checkpoint average the best checkpoint is scored" {
  export TRAIN="$TRAIN --average-checkpoints 0"
  run "$recipe/run" speeches news
  [ "$status" -eq 0 ]
  [ "$(grep -c '^BLEU|' <<< "$output")" -eq 3 ]
  [ ! -e out/run-1/average ]
  run "$recipe/run"
  [ "$status" -eq 0 ]
  [[ "$output" == *"run-1 is trained"* ]]
}

@test "a run that ends before its last step is complete, and one without validation has a last checkpoint" {
  export TRAIN="${TRAIN/--steps 6/--epochs 1} --average-checkpoints 0"
  export TRAIN="${TRAIN/--valid-every 3/--valid-every 0}"
  run "$recipe/run" speeches news
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(grep -c '^newst.*, checkpoints/latest:' <<< "$output")" -eq 2 ]
}

@test "a model that has changed is translated again" {
  run "$recipe/run" speeches news
  [ "$status" -eq 0 ]
  touch -d '1 hour ago' out/run-1/average.*
  before=$(stat -c %y out/run-1/best.*)
  run "$recipe/run"
  [ "$status" -eq 0 ]
  [ "$(find out/run-1 -name 'average.*' -mmin -30 | wc -l)" -eq 3 ]
  [ "$(stat -c %y out/run-1/best.*)" = "$before" ]
}

@test "a missing file is an error that names it" {
  run "$recipe/run" speeches elsewhere
  [ "$status" -ne 0 ]
  [[ "$output" == *"there is no folder elsewhere"* ]]
  TRIREME="$PWD/nowhere" run "$recipe/run" speeches news
  [ "$status" -eq 2 ]
  [[ "$output" == *"TRIREME"* ]]
}

@test "the real texts from their folders" {
  data="$BATS_TEST_DIRNAME/../../../shared/data"
  [ -d "$data/europarl-en-de" ] || skip "no ../shared/data/europarl-en-de"
  [ -d "$data/newstest" ] || skip "no ../shared/data/newstest"
  # A few lines of each file show that names and languages are right.
  mkdir real
  for side in en de; do
    { zstd -dcq --long=27 "$data/europarl-en-de/train.$side.zst" 2> /dev/null || true; } | head -2000 > real/train.$side
    for name in newstest/newstest2013 newstest/newstest2014 europarl-en-de/dev; do head -5 "$data/$name.$side" > "real/${name#*/}.$side"; done
  done
  PREPARE='--vocab-size 1000' TRAIN="${TRAIN/-tokens 128/-tokens 512}" run "$recipe/run" real
  [ "$status" -eq 0 ]
  [[ "$output" == *"read "*"2,000"* ]]
  cmp out/data/test.src real/newstest2014.en
  cmp out/data/valid.ref real/newstest2013.de
}

@test "without a GPU nothing is prepared for training on one" {
  [ ! -e /dev/nvidiactl ] || skip "this machine has a GPU"
  DEVICE=cuda run "$recipe/run" speeches news
  [ "$status" -eq 1 ]
  [[ "$output" == "trireme: --device cuda is not available: "* ]]
  [ ! -e out/data ]
  [ ! -e out/data.partial ]
}
