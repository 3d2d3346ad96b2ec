#!/usr/bin/env bats
# train and translate as a user calls them, with a model small enough for a test.

load ../tools/wait

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 400 --out "$SET" > /dev/null
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# train RUN [OPTION…]: trains a tiny model for a few steps.
train() {
  local run=$1
  shift
  "$TRIREME" train --quiet --device cpu --data "$SET" --run "$run" --preset tiny --d-model 32 --ffn-dim 64 --heads 2 --encoder-layers 1 \
    --decoder-layers 1 --batch-tokens 256 --micro-batches 2 --warmup-steps 10 --valid-every 0 --log-every 5 --threads 2 "$@"
}

same_weights() {
  for f in weights moment1 moment2; do cmp "$1/checkpoints/latest/$f.safetensors" "$2/checkpoints/latest/$f.safetensors"; done
}

@test "a run writes training.json, metrics and checkpoints" {
  run train "$T/run" --steps 20 --save-every 5 --keep-checkpoints 2 --average-checkpoints 0
  [ "$status" -eq 0 ]
  [[ "$output" =~ "done at step 20" ]]
  [ "$(wc -l < "$T/run/metrics.jsonl")" -eq 4 ]
  perl -MJSON::PP -ne '$j = decode_json($_); exit 1 unless $j->{loss} > 0 && $j->{target_tokens_per_s} > 0 && exists $j->{data_wait_ms}' "$T/run/metrics.jsonl"
  grep -q '^steps = 20$' "$T/run/config"
  [ "$(ls -d "$T"/run/checkpoints/step-* | wc -l)" -eq 2 ]
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<>); exit !($j->{step} == 20 && $j->{pairs} > 20 && $j->{target_tokens} > $j->{pairs})' \
    "$T/run/checkpoints/latest/training.json"
  for f in model.json weights.safetensors tokenizer.model training.json; do [ -f "$T/run/checkpoints/latest/$f" ]; done
}

@test "the loss falls" {
  train "$T/run" --steps 200 --log-every 50 --lr-scheduler constant --lr 3e-3
  perl -MJSON::PP -e '@l = map { decode_json($_)->{loss} } <>; exit !($l[-1] < 0.9 * $l[0])' "$T/run/metrics.jsonl"
}

@test "a stopped and resumed run gives the same bits as one never stopped" {
  train "$T/whole" --steps 20
  train "$T/parts" --steps 7
  train "$T/parts" --steps 20 --resume
  same_weights "$T/whole" "$T/parts"
}

@test "Ctrl-C finishes the step and saves, and the resumed run gives the same bits" {
  # So many steps that the run does not end without a signal.
  train "$T/parts" --steps 1000000 > "$T/out" 2>&1 3>&- &
  child=$!
  until_true test -s "$T/parts/metrics.jsonl"
  pkill -INT -P $child trireme
  code=0
  wait $child || code=$?
  cat "$T/out"
  [ $code -eq 3 ]
  grep -q '^stopped at step' "$T/out"
  steps=$(perl -MJSON::PP -e 'undef $/; print decode_json(<>)->{step} + 3' "$T/parts/checkpoints/latest/training.json")
  train "$T/whole" --steps "$steps"
  train "$T/parts" --steps "$steps" --resume
  same_weights "$T/whole" "$T/parts"
}

@test "the number of threads changes no bit" {
  train "$T/one" --steps 10 --threads 1
  train "$T/three" --steps 10 --threads 3
  same_weights "$T/one" "$T/three"
}

@test "validation gives a loss and a BLEU, and keeps the best" {
  run train "$T/run" --steps 6 --valid-every 3 --samples 0 --beam-size 2
  [ "$status" -eq 0 ]
  [ "$(grep -c valid_bleu "$T/run/metrics.jsonl")" -eq 2 ]
  read -r best bleu < <(perl -MJSON::PP -ne '$r = decode_json($_); $b = $r->{valid_bleu} // next;
    ($most, $step) = ($b, $r->{step}) if !defined $most || $b > $most; END { printf "%d %.2f\n", $step, $most }' "$T/run/metrics.jsonl")
  [[ "$output" == *"best: BLEU $bleu at step $best,"* ]]
  [ "$(readlink "$T/run/checkpoints/best")" = "step-0000000$best" ]
}

@test "a run directory is never overwritten, and belongs to one process" {
  train "$T/run" --steps 5
  run train "$T/run" --steps 5
  [ "$status" -eq 1 ]
  [[ "$output" =~ "exists already" && "$output" =~ "--resume" ]]
  exec 9> "$T/run/lock"
  flock 9
  run train "$T/run" --steps 6 --resume 9>&-
  [ "$status" -eq 1 ]
  [[ "$output" =~ "in use by another" ]]
}

@test "a call without a required option is an error that names it" {
  run "$TRIREME" train --run "$T/x"
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--data" ]]
  run "$TRIREME" train --data "$T/nowhere" --run "$T/x"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "there is no data set $T/nowhere" ]]
  [ ! -e "$T/x" ]
  run train "$T/x" --heads 3
  [ "$status" -eq 2 ]
  [[ "$output" =~ "does not divide" ]]
  run train "$T/x" --batch-tokens 16
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--batch-tokens" ]]
  train "$T/run" --steps 2
  for other in "--d-model 64" "--ffn-dim 32" "--activation gelu" "--layer-norm post" "--position-embedding learned" "--tie-embeddings none"; do
    run train "$T/run" --steps 4 --resume $other
    [ "$status" -eq 2 ]
    [[ "$output" =~ "a different model" ]]
  done
}

@test "a damaged checkpoint is refused with its name" {
  train "$T/run" --steps 2
  truncate -s 1000 "$T/run/checkpoints/latest/weights.safetensors"
  run train "$T/run" --steps 4 --resume
  [ "$status" -eq 1 ]
  [[ "$output" =~ "weights.safetensors" ]]
  run "$TRIREME" translate --device cpu --model "$T/run/checkpoints/latest" < /dev/null
  [ "$status" -eq 1 ]
  [[ "$output" =~ "weights.safetensors" ]]
}

@test "a run continues from the checkpoint before a damaged one, with one warning" {
  train "$T/run" --steps 4 --save-every 2
  rm "$T/run/checkpoints/latest/weights.safetensors"
  run train "$T/run" --steps 6 --save-every 2 --resume
  [ "$status" -eq 0 ]
  [ "$(grep -c "is taken instead" <<< "$output")" -eq 1 ]
  [ -d "$T/run/checkpoints/step-00000006" ]
}

@test "a run that goes back to a checkpoint before the best does not claim the best" {
  local run=$T/run/checkpoints
  train "$T/run" --steps 6 --save-every 3 --valid-every 6 --samples 0 --beam-size 1
  [ "$(readlink "$run/best")" = step-00000006 ]
  [ -s "$T/run/valid-best.txt" ]
  truncate -s 1000 "$run/step-00000006/weights.safetensors"
  run train "$T/run" --steps 4 --valid-every 0 --resume
  [ "$status" -eq 0 ]
  [[ "$output" == *"$T/run has no undamaged best checkpoint of step 3 or before: the next validation counts as the best"* ]]
  [[ "$output" != *"best: BLEU"* ]]
  [ ! -L "$run/best" ]
  [ ! -e "$T/run/valid-best.txt" ]
  "$TRIREME" translate --quiet --device cpu --model "$T/run" < /dev/null
  train "$T/run" --steps 6 --valid-every 6 --samples 0 --beam-size 1 --resume
  [ "$(readlink "$run/best")" = step-00000006 ]
  [ -s "$T/run/valid-best.txt" ]
}

@test "a run without its checkpoints begins again, and says so" {
  train "$T/run" --steps 4 --save-every 2
  rm -r "$T/run/checkpoints"
  run train "$T/run" --steps 2 --resume
  [ "$status" -eq 0 ]
  [[ "$output" == *"$T/run has no checkpoint: training begins again at step 0"* ]]
  run train "$T/run" --steps 4 --resume
  [[ "$output" != *"has no checkpoint"* ]]
}

# is_polling: does the program started by the process $pid pause, as between two attempts to lock?
is_polling() {
  local program
  program=$(pgrep -P "$pid") && grep -q poll "/proc/$program/wchan"
}

@test "a resumed run chooses its checkpoint after the process that is ending has saved its last" {
  local pid run=$T/run/checkpoints
  [ "$(cat /proc/$PPID/wchan)" != 0 ] || skip "/proc does not tell where a process waits"
  train "$T/run" --steps 6 --save-every 2
  mv "$run/step-00000006" "$T/last"
  ln -sfn step-00000004 "$run/latest"
  exec 9> "$T/run/lock"
  flock 9
  TRIREME_FAULT=lock-wait:60000 train "$T/run" --steps 8 --resume 3>&- 9>&- &
  pid=$!
  until_true is_polling
  mv "$T/last" "$run/step-00000006"
  ln -sfn step-00000006 "$run/latest"
  rm -r "$run"/step-0000000[24]
  exec 9>&-
  wait $pid
  grep -q "resume   step 6, " "$T/run/log.txt"
}

@test "translations keep the order, and do not depend on the batch" {
  train "$T/run" --steps 30 --lr-scheduler constant --lr 3e-3
  model="$T/run/checkpoints/latest"
  { head -n 60 "$SET/test.src"; echo; echo "   "; head -n 5 "$SET/test.src" | tr '\n' ' '; echo; } > "$T/in"
  "$TRIREME" translate --device cpu --model "$model" --batch-tokens 8192 < "$T/in" > "$T/large" 2> "$T/err"
  "$TRIREME" translate --device cpu --model "$model" --batch-tokens 16 --threads 1 < "$T/in" > "$T/small"
  while read -r line || [ -n "$line" ]; do echo "$line" | "$TRIREME" translate --device cpu --model "$model"; done < <(head -n 5 "$T/in") > "$T/single"
  [ "$(wc -l < "$T/large")" -eq "$(wc -l < "$T/in")" ]
  cmp "$T/large" "$T/small"
  head -n 5 "$T/large" | cmp - "$T/single"
  [ -z "$(sed -n 61p "$T/large")$(sed -n 62p "$T/large")" ]
  [ -n "$(sed -n 1p "$T/large")" ]
}

@test "n-best lists are sorted, and the best is the translation" {
  train "$T/run" --steps 30 --lr-scheduler constant --lr 3e-3
  model="$T/run/checkpoints/latest"
  head -n 3 "$SET/test.src" > "$T/in"
  "$TRIREME" translate --device cpu --model "$model" --nbest 3 --scores < "$T/in" > "$T/list"
  [ "$(wc -l < "$T/list")" -eq 9 ]
  awk -F' [|][|][|] ' '$1 == line && $4 > last { exit 1 } { line = $1; last = $4 }' "$T/list"
  "$TRIREME" translate --device cpu --model "$model" < "$T/in" > "$T/best"
  awk -F' [|][|][|] ' '$1 != last { print $2; last = $1 }' last=- "$T/list" | cmp - "$T/best"
  run "$TRIREME" translate --device cpu --model "$model" --nbest 9 --beam-size 4
  [ "$status" -eq 2 ]
}

@test "bad input and bad models are errors that name the cause" {
  train "$T/run" --steps 2
  run "$TRIREME" translate --device cpu --model "$T/run/checkpoints/latest" <<< $'ok\nbad \xff'
  [ "$status" -eq 1 ]
  [[ "$output" =~ "standard input:2" ]]
  run "$TRIREME" translate --device cpu --model "$T"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "not a model" ]]
}
