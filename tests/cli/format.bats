#!/usr/bin/env bats
bats_require_minimum_version 1.5.0
# Data sets of format 1 and 2. A set of format 1, written by the previous version
# (tests/golden/dataset1), gives the same ids, batches and training results. Format 2 has a
# manifest, windows and conversion.

load ../ranks/support

setup() {
  cd "$BATS_TEST_TMPDIR"
  golden="$BATS_TEST_DIRNAME/../golden/dataset1"
  cp -r "$golden/set" one
}

# prepare OUT [OPTION…]: prepares the golden text in format 2.
prepare() {
  local out=$1
  shift
  "$TRIREME" prepare --quiet --train "$golden/train.a" "$golden/train.b" --valid "$golden/valid.a" "$golden/valid.b" \
    --tokenizer one/tokenizer.model --shard-size 4k --source-lang aa --target-lang bb --out "$out" "$@" > /dev/null
}

# ids SET: prints all token ids of both sides.
ids() {
  local split side
  for split in train valid; do
    for side in source target; do "$TRIREME_TOOLS/dump_ids" "$1" $split $side; done
  done
}

# train SET RUN [OPTION…]: trains a few reproducible steps.
train() {
  local set=$1 run=$2
  shift 2
  "$TRIREME" train --device cpu --data "$set" --run "$run" --preset tiny --batch-tokens 128 --micro-batches 2 --threads 1 --steps 12 \
    --valid-every 6 --save-every 6 --seed 3 --reproducible --quiet "$@" > /dev/null
}

same_weights() {
  cmp "$1/checkpoints/latest/weights.safetensors" "$2/checkpoints/latest/weights.safetensors"
}

@test "format 1 is read and verified" {
  run "$TRIREME" inspect one --verify
  [ "$status" -eq 0 ]
  [[ "$output" == *"300 pairs of 300 lines"* ]]
}

@test "format 1 gives the batches that the version before read from it" {
  "$TRIREME_TOOLS/dump_batches" one 128 7 2 > batches
  cmp batches "$golden/batches.txt"
}

@test "format 2 has the ids, the order and the batches of format 1" {
  prepare two
  grep -q '"version": 2' two/dataset.json
  cmp <(ids one) <(ids two)
  "$TRIREME_TOOLS/dump_batches" two 128 7 2 > batches
  cmp batches "$golden/batches.txt"
}

@test "training on format 1 and on format 2 gives the same weights, to the bit" {
  prepare two
  train one run1
  train two run2
  same_weights run1 run2
}

@test "a flipped bit in a format 1 shard is refused with its place" {
  perl -e 'open F, "+<", "one/train-00001.tok"; seek F, 2000, 0; print F "\xff"'
  run "$TRIREME" inspect one --quiet
  [ "$status" -eq 1 ]
  [[ "$output" == *"one/train-00001.tok is damaged between bytes 0 and"* ]]
}

@test "a damaged list of shards in a format 1 dataset.json is refused with the key that is wrong" {
  for edit in 's/"file": "train-00001.tok"/"file": "..\/train-00001.tok"/' 's/"file": "train-00001.tok"/"file": 5/'; do
    sed "$edit" "$golden/set/dataset.json" > one/dataset.json
    run ! cmp -s "$golden/set/dataset.json" one/dataset.json
    run "$TRIREME" inspect one --quiet
    [ "$status" -eq 1 ]
    [[ "$output" == *"one/dataset.json"*"'file'"* ]]
  done
  sed 's/"shards"/"shades"/' "$golden/set/dataset.json" > one/dataset.json
  run "$TRIREME" inspect one --quiet
  [ "$status" -eq 1 ]
  [[ "$output" == *"one/dataset.json"*"'shards'"* ]]
}

@test "the manifest has a line for each shard, and dataset.json its length and hash" {
  prepare two
  [ "$(wc -l < two/shards.manifest)" -eq "$(ls two/*.tok | wc -l)" ]
  grep -q "$(sha256sum two/shards.manifest | cut -d' ' -f1)" two/dataset.json
  perl -MJSON::PP -ne '$j = decode_json($_); $j->{bytes} == -s "two/$j->{file}" or die; $pairs += $j->{pairs} if $j->{split} eq "train";
    END { $pairs == 300 or die }' two/shards.manifest
  for file in two/*.tok; do grep -q "$(sha256sum "$file" | cut -d' ' -f1)" two/shards.manifest; done
}

@test "shards that exceed the limit of mappings are closed and opened again, with the same batches" {
  prepare two
  TRIREME_FAULT=mapped-shards:1 "$TRIREME_TOOLS/dump_batches" two 128 7 2 > batches
  cmp batches "$golden/batches.txt"
  train two many
  TRIREME_FAULT=mapped-shards:1 train two few
  same_weights many few
}

# warned COMMAND…: the command works although only two shards may be mapped at once, and warns
# once about a window with more shards.
warned() {
  TRIREME_FAULT=mapped-shards:2 run "$@"
  [ "$status" -eq 0 ]
  [ "$(grep -c "a window of the training order has [0-9]* shards, and at most 2 are mapped at once: .*--window-pairs" <<< "$output")" -eq 1 ]
}

@test "prepare, inspect and train warn once of a window with more shards than are mapped at once" {
  warned prepare two
  warned "$TRIREME" inspect two --quiet
  warned train two run
  prepare narrow --window-pairs 1  # each window is one shard
  for command in "$TRIREME inspect narrow --quiet" "train narrow run2" "prepare again --window-pairs 1"; do
    TRIREME_FAULT=mapped-shards:2 run $command
    [ "$status" -eq 0 ]
    [[ "$output" != *"mapped at once"* ]]
  done
}

@test "two ranks warn once of a window with more shards than are mapped at once" {
  need_mpi
  prepare two
  warned mpirun -n 2 "$TRIREME" train --device cpu --data two --run run --preset tiny --batch-tokens 128 --micro-batches 2 \
    --threads 1 --steps 2 --warmup-steps 1 --valid-every 0 --quiet
}

@test "3,000 shards open and are read, 100 mapped at once" {
  prepare two
  "$TRIREME_TOOLS/many_shards" make two many 3000
  [ "$(ls many/train-*.tok | wc -l)" -eq 3000 ]
  "$TRIREME_TOOLS/many_shards" open many > /dev/null
  run "$TRIREME" inspect many --quiet --samples 0
  [ "$status" -eq 0 ]
  TRIREME_FAULT=mapped-shards:100 run "$TRIREME" inspect many --quiet --samples 0
  [ "$status" -eq 0 ]
  [[ "$output" == *" in 3000 shards"* ]]
  pairs=$(sed -n 's/^train *\([0-9,]*\) pairs .*/\1/p' <<< "$output" | tr -d ,)
  [ "$(TRIREME_FAULT=mapped-shards:100 "$TRIREME_TOOLS/dump_batches" many 4096 1 1 | tr ' ' '\n' | sort -un | wc -l)" -eq "$pairs" ]
  rm "many/train-02017.tok"
  # Detected when the data set is opened, not when the shard is read.
  run "$TRIREME_TOOLS/many_shards" open many
  [ "$status" -eq 1 ]
  [[ "$output" == *"many/train-02017.tok"* ]]
}

@test "--window-pairs cuts the shards into windows of about that size" {
  prepare two --window-pairs 120
  run "$TRIREME" inspect two --quiet --verify --batch-tokens 128
  [ "$status" -eq 0 ]
  [[ "$output" == *"windows: 3 of 100 pairs on average"* ]]
  prepare one-window --window-pairs 400
  prepare plain
  diff -r one-window plain
  cmp <(ids one) <(ids two)
}

@test "with windows every pair comes once in an epoch, one window after the other" {
  prepare two --window-pairs 120
  "$TRIREME_TOOLS/dump_batches" two 128 7 2 > batches
  [ "$(tr ' ' '\n' < batches | sort -n | uniq -c | awk '$1 == 2' | wc -l)" -eq 300 ]
  run ! cmp -s batches "$golden/batches.txt"
  # Pairs 0 to 112 are the first shard; within an epoch they fill consecutive batches.
  borders=$(perl -MJSON::PP -ne '$j = decode_json($_); if ($j->{split} eq "train") { $n += $j->{pairs}; print "$n " }' two/shards.manifest)
  perl -e '@border = split " ", shift; for (<>) { %w = (); for (split) { $p = $_; $w{(grep { $p < $border[$_] } 0 .. $#border)[0]} = 1 }
    keys %w == 1 or die "two windows in a batch"; push @turn, keys %w if !@turn || $turn[-1] != (keys %w)[0] } @turn == 6 or @turn == 5 or die "turns @turn"' "$borders" batches
}

@test "with windows a run resumes on another number of ranks to the same bits" {
  need_mpi
  prepare two --window-pairs 120
  train two whole
  "$TRIREME" train --device cpu --data two --run parts --preset tiny --batch-tokens 128 --micro-batches 2 --threads 1 --steps 5 \
    --valid-every 6 --save-every 6 --seed 3 --reproducible --quiet > /dev/null
  mpirun -n 2 "$TRIREME" train --run parts --resume --steps 12 --quiet > /dev/null
  same_weights whole parts
}

@test "an order whose windows are not those of the shards is refused" {
  prepare two --window-pairs 120
  prepare other --window-pairs 120 --shard-size 5k
  cp other/train.order two/train.order
  run "$TRIREME" inspect two --quiet
  [ "$status" -eq 1 ]
  [[ "$output" == *"two/train.order does not belong to two/dataset.json"* ]]
}

@test "--convert gives the shards, the order and the counts of format 2, and the same training" {
  prepare two
  run "$TRIREME" prepare --quiet --convert one --out converted
  [ "$status" -eq 0 ]
  [ ! -e converted.partial ]
  # Format 1 does not store the lines from which a shard was made; everything else equals a newly
  # prepared set.
  diff -r -x dataset.json -x shards.manifest two converted
  diff <(grep -v '"bytes"\|"sha256"' two/dataset.json) <(grep -v '"bytes"\|"sha256"' converted/dataset.json)
  diff <(sed 's/"text_bytes":[^]]*//' two/shards.manifest) <(sed 's/"text_bytes":[^]]*//' converted/shards.manifest)
  "$TRIREME" inspect converted --verify --quiet > /dev/null
  "$TRIREME_TOOLS/dump_batches" converted 128 7 2 > batches
  cmp batches "$golden/batches.txt"
  train one run1
  train converted run2
  same_weights run1 run2
}

@test "--convert can cut windows" {
  "$TRIREME" prepare --quiet --convert one --out converted --window-pairs 120 > /dev/null
  prepare two --window-pairs 120
  cmp converted/train.order two/train.order
}

@test "--convert refuses format 2, an existing --out, and options for text" {
  prepare two
  run "$TRIREME" prepare --quiet --convert two --out three
  [ "$status" -eq 1 ]
  [[ "$output" == *"two has format 2 already"* ]]
  [ ! -e three.partial ]
  run "$TRIREME" prepare --quiet --convert one --out two
  [ "$status" -eq 1 ]
  [[ "$output" == *"two exists already"* ]]
  run "$TRIREME" prepare --quiet --convert one --out three --vocab-size 100
  [ "$status" -eq 2 ]
  [[ "$output" == *"--convert does not use --vocab-size"* ]]
}

@test "--convert of a damaged data set names the damage and leaves nothing" {
  perl -e 'open F, "+<", "one/train-00002.tok"; seek F, 2000, 0; print F "\xff"'
  run "$TRIREME" prepare --quiet --convert one --out two
  [ "$status" -eq 1 ]
  [[ "$output" == *"one/train-00002.tok is damaged between bytes 0 and"* ]]
  [ ! -e two ]
  [ ! -e two.partial ]
}

@test "a conversion that was killed anywhere leaves no data set, and the same command does it again" {
  "$TRIREME" prepare --quiet --convert one --out whole > /dev/null
  for ((n = 1; ; n++)); do
    TRIREME_FAULT=die:file:$n run "$TRIREME" prepare --quiet --convert one --out two
    [ "$status" -eq 137 ] || break
    # If `two` exists without the file `conversion`, it is complete: at most the last fsync is
    # missing.
    if [ ! -e two ] || [ -e two/conversion ]; then "$TRIREME" prepare --quiet --convert one --out two > /dev/null; fi
    diff -r two whole
    rm -r two
  done
  [ "$n" -gt 15 ]
  [ "$status" -eq 0 ]
}

@test "a conversion killed after its rename is completed by the same command, and not by that for another data set" {
  "$TRIREME" prepare --quiet --convert one --out whole > whole.table
  TRIREME_FAULT=die:prepare-renamed run "$TRIREME" prepare --quiet --convert one --out two
  [ "$status" -eq 137 ]
  [ -e two/conversion ]
  cp -R two three
  "$TRIREME" prepare --quiet --convert one --out two > table
  diff -r two whole
  diff <(sed s/whole/two/ whole.table) table
  cp -R one other
  sed -i '0,/"lines": [0-9]*/s//"lines": 7/' other/dataset.json
  run "$TRIREME" prepare --quiet --convert other --out three
  [ "$status" -eq 1 ]
  [ -e three/conversion ]
}

@test "prepare --resume refuses what a killed conversion left, and says to repeat it" {
  TRIREME_FAULT=die:convert-shard:2 run "$TRIREME" prepare --quiet --convert one --out two
  [ "$status" -eq 137 ]
  [ ! -e two ]
  run "$TRIREME" inspect two.partial --quiet
  [ "$status" -eq 1 ]
  run prepare two --resume
  [ "$status" -eq 1 ]
  [[ "$output" == *"two.partial is left from a conversion"*"--convert"* ]]
  "$TRIREME" prepare --quiet --convert one --out two > /dev/null
  "$TRIREME" inspect two --verify --quiet > /dev/null
}

@test "a conversion stopped by a signal exits with 3, leaves nothing, and is repeated by the same command" {
  TRIREME_FAULT=hang:convert-shard:2 "$TRIREME" prepare --quiet --convert one --out two > out 2>&1 3>&- &
  until_true grep -q "waiting at convert-shard" out
  kill -TERM $!
  code=0
  wait $! || code=$?
  [ $code -eq 3 ]
  grep -q "stopped by a signal; what was converted is removed: the same command begins" out
  [ ! -e two ]
  [ ! -e two.partial ]
  "$TRIREME" prepare --quiet --convert one --out two > /dev/null
  "$TRIREME" inspect two --verify --quiet > /dev/null
}

@test "--convert does not remove what a stopped prepare left" {
  TRIREME_FAULT=die:prepare-shard:1 run prepare two
  [ "$status" -eq 137 ]
  run "$TRIREME" prepare --quiet --convert one --out two
  [ "$status" -eq 1 ]
  [[ "$output" == *"two.partial is left from a run that was stopped"* ]]
  [ -e two.partial/state ]
}

@test "windows that large shards make larger than asked for are a warning, and inspect shows their number" {
  TRIREME_RECIPES=$BATS_TEST_DIRNAME/../../recipes run "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 800 \
    --window-pairs 500 --out large
  [ "$status" -eq 0 ]
  [[ "$output" == *"warning: --window-pairs 500: the largest of 1 windows has 3,000 pairs"*"smaller --shard-size"* ]]
  run "$TRIREME" inspect large
  [[ "$output" == *"windows: 1, all pairs are shuffled together"* ]]
}
