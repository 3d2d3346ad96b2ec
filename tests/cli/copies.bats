#!/usr/bin/env bats
# train --peer-checkpoint: in-memory copies of the training state, and runs that continue from
# them.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_small_set
}

setup() {
  T=$BATS_TEST_TMPDIR
  mkdir "$T/mem"
  export TRIREME_PEER_DIR=$T/mem
}

teardown() {
  if [ -n "${child:-}" ]; then kill -9 "$child" 2> /dev/null || true; fi
}

# copy_step: prints the step of the copy; 0 if there is none.
copy_step() {
  local name
  name=$(readlink "$T"/mem/run-*/checkpoints/latest 2> /dev/null || true)
  name=${name#step-}
  echo $((10#${name:-0}))
}

has_copy_of() { [ "$(copy_step)" -ge "$1" ]; }

# kill_run RUN: kills its ranks, mpirun first, so that no rank learns that another has ended.
kill_run() {
  kill -9 "$child"
  wait "$child" 2> /dev/null || true
  child=
  local pid
  for pid in $(pgrep -f -- "--run $1 " || true); do kill -9 "$pid" 2> /dev/null || true; done
  has_gone() { [ -z "$(pgrep -f -- "--run $1 " || true)" ]; }
  until_true has_gone "$1"
}

# lose N RUN STEP FAULT [OPTION…]: trains on N ranks with a fault that stops the run, waits for a
# copy of STEP or a later step, and kills all ranks.
lose() {
  local n=$1 run=$2 step=$3 fault=$4
  shift 4
  TRIREME_FAULT=$fault with "$n" "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --quiet --auto-resume \
    --rank-timeout 60 "$@" > "$T/lost.out" 2>&1 3>&- &
  child=$!
  until_true has_copy_of "$step" || { cat "$T/lost.out"; return 1; }
  kill_run "$run"
}

# member NAME DIR: prints a value of DIR/training.json.
member() {
  perl -MJSON::PP -0777 -ne 'BEGIN { $f = shift } print decode_json($_)->{$f}' "$1" "$2/training.json"
}

@test "a run that is lost continues from its in-memory copy, to the bits of one that was not, on any number of ranks" {
  need_mpi
  options=(--reproducible --steps 12 --save-every 100 --ema-decay 0.9)
  train 1 "$T/whole" "${options[@]}"
  for ways in "1 2" "2 3 --shard-optimizer" "3 1"; do
    read -r before after way <<< "$ways"
    # shellcheck disable=SC2086
    lose "$before" "$T/run$before" 6 hang:7:0 "${options[@]}" --peer-checkpoint 6 $way
    [ ! -e "$T/run$before/checkpoints/latest" ]
    # shellcheck disable=SC2086
    train "$after" "$T/run$before" --auto-resume "${options[@]}" --peer-checkpoint 6 $way
    grep -q "resume   step 6 (in-memory copy)" "$T/run$before/log.txt"
    same_state "$T/whole" "$T/run$before"
    [ "$(counted loss "$T/run$before" | wc -l)" -eq 12 ]
    [ "$(counted step "$T/run$before" | sort -n | uniq -d | grep -vxc 6)" -eq 0 ]
    run ! grep -q peer-checkpoint "$T/run$before/config"
    rm -r "$T"/mem/*
  done
}

@test "the best score is that of a run that was not lost" {
  options=(--save-every 10 --valid-every 10 --beam-size 1 --samples 0)
  train 1 "$T/whole" "${options[@]}" --steps 40
  train 1 "$T/run" "${options[@]}" --steps 10
  lose 1 "$T/run" 11 hang:18:0 "${options[@]}" --steps 40 --peer-checkpoint 1
  train 1 "$T/run" "${options[@]}" --auto-resume --steps 40
  grep -q "(in-memory copy), best BLEU" "$T/run/log.txt"
  same_state "$T/whole" "$T/run"
  for name in best_score best_step worse validated; do
    [ "$(member $name "$T/whole/checkpoints/latest")" = "$(member $name "$T/run/checkpoints/latest")" ]
  done
  [ "$(readlink "$T/whole/checkpoints/best")" = "$(readlink "$T/run/checkpoints/best")" ]
  [ "$(ls "$T/whole/checkpoints")" = "$(ls "$T/run/checkpoints")" ]
  [ "$(counted valid_bleu "$T/whole")" = "$(counted valid_bleu "$T/run")" ]
}

@test "a checkpoint that was due at the step of the copy is written, and its validation counts" {
  options=(--save-every 100 --valid-every 6 --beam-size 1 --samples 0 --steps 8)
  train 1 "$T/whole" "${options[@]}"
  # The checkpoint of step 6 never completes, and neither does its validation.
  lose 1 "$T/run" 6 hang:save:1 "${options[@]}" --peer-checkpoint 6
  [ ! -e "$T/run/checkpoints/latest" ]
  train 1 "$T/run" "${options[@]}" --auto-resume
  same_state "$T/whole" "$T/run"
  [ "$(ls "$T/whole/checkpoints")" = "$(ls "$T/run/checkpoints")" ]
  for name in best_score best_step worse validated; do
    [ "$(member $name "$T/whole/checkpoints/latest")" = "$(member $name "$T/run/checkpoints/latest")" ]
  done
}

@test "a roll-back is not undone by copies of the steps before it" {
  options=(--save-every 5 --steps 14)
  TRIREME_FAULT=nan:7:0 train 1 "$T/whole" "${options[@]}"
  has_rolled_back() { [ "$(member rollbacks "$T"/mem/run-*/checkpoints/latest 2> /dev/null || true)" = 1 ]; }
  # No other copy is due, so this copy was made by the roll-back.
  TRIREME_FAULT=nan:7:0,hang:9:0 train 1 "$T/run" "${options[@]}" --auto-resume --peer-checkpoint 100 > "$T/lost.out" 2>&1 3>&- &
  child=$!
  until_true has_rolled_back
  kill_run "$T/run"
  train 1 "$T/run" --auto-resume "${options[@]}"
  grep -q "(in-memory copy)" "$T/run/log.txt"
  same_state "$T/whole" "$T/run"
  [ "$(member lr_scale "$T/run/checkpoints/latest")" = 0.5 ]
}

@test "a copy is used although no checkpoint of the run is complete" {
  options=(--reproducible --steps 12 --save-every 4)
  train 1 "$T/whole" "${options[@]}"
  lose 1 "$T/run" 6 hang:7:0 "${options[@]}" --peer-checkpoint 6
  truncate -s 1000 "$T/run/checkpoints/step-00000004/weights.safetensors"
  train 1 "$T/run" --auto-resume "${options[@]}" > "$T/said" 2>&1
  grep -q "no checkpoint of $T/run is complete" "$T/said"
  grep -q "resume   step 6 (in-memory copy)" "$T/run/log.txt"
  same_state "$T/whole" "$T/run"
}

@test "a copy that is older than the run's checkpoint is not used" {
  lose 1 "$T/run" 4 hang:5:0 --steps 8 --save-every 100 --peer-checkpoint 4
  train 1 "$T/run" --resume --steps 6
  run ! grep -q "resume   step" "$T/run/log.txt"  # --resume does not use copies
  train 1 "$T/run" --auto-resume --steps 8
  grep -q "resume   step 6, no best" "$T/run/log.txt"
}

@test "a copy of another run is not used" {
  lose 1 "$T/run" 4 hang:5:0 --steps 8 --save-every 100 --peer-checkpoint 4
  rm -r "${T:?}/run"
  train 1 "$T/run" --auto-resume --steps 8 --save-every 100
  run ! grep -q "resume   " "$T/run/log.txt"
  mv "$T"/mem/run-* "$T/mem/run-$(cat "$T/run/id")"
  rm -r "${T:?}/run/checkpoints"
  train 1 "$T/run" --auto-resume --steps 8
  grep -q "resume   step 4 (in-memory copy)" "$T/run/log.txt"
}

@test "a damaged copy is a warning, and the run continues from its checkpoint" {
  train 1 "$T/run" --steps 2
  lose 1 "$T/run" 4 hang:5:0 --steps 8 --save-every 100 --peer-checkpoint 4
  printf x | dd of="$(echo "$T"/mem/run-*/checkpoints/latest/moment1.safetensors)" bs=1 seek=2000 conv=notrunc 2> /dev/null
  run train 1 "$T/run" --auto-resume --steps 8
  [ "$status" -eq 0 ]
  [[ "$output" == *"warning: the in-memory copy is not used: "*moment1.safetensors* ]]
  grep -q "resume   step 2, no best" "$T/run/log.txt"
  train 1 "$T/whole" --steps 8
  same_state "$T/whole" "$T/run"
}

@test "a copy on other data is a warning" {
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --seed 5 --tokenizer "$SET/tokenizer.model" --out "$T/other" > /dev/null
  lose 1 "$T/run" 4 hang:5:0 --steps 8 --save-every 100 --peer-checkpoint 4
  run train 1 "$T/run" --auto-resume --steps 8 --data "$T/other"
  [ "$status" -eq 0 ]
  [[ "$output" == *"warning: the in-memory copy is not used: "*"trained on another data set"* ]]
  run ! grep -q "in-memory copy)" "$T/run/log.txt"
}

@test "training does not wait for a copy that is being written: the next ones are skipped and counted" {
  # On a busy machine copies are also skipped while the first one is written: only those after it count.
  has_copy() { [ "$(figures peer_copies "$T/run" 2> /dev/null | tail -n 1)" = 1 ]; }
  has_skipped() { [ "$(figures peer_copies_skipped "$T/run" | tail -n 1)" -ge $((before + 5)) ]; }
  TRIREME_FAULT=hang:copy:2 train 1 "$T/run" --steps 1000000 --peer-checkpoint 1 --save-every 1000000 > "$T/lost.out" 2>&1 3>&- &
  child=$!
  until_true has_copy
  before=$(figures peer_copies_skipped "$T/run" | tail -n 1)
  until_true has_skipped
  kill_run "$T/run"
  [ "$(figures peer_copies "$T/run" | tail -n 1)" -eq 1 ]
  [ "$(figures peer_copies_failed "$T/run" | tail -n 1)" -eq 0 ]
}

@test "copies that cannot be written are one warning, and counted" {
  touch "$T/file"
  TRIREME_PEER_DIR=$T/file run train 1 "$T/run" --steps 6 --peer-checkpoint 1
  [ "$status" -eq 0 ]
  [ "$(grep -c 'warning: the in-memory copy of step .* was not written, training goes on' <<< "$output")" -eq 1 ]
  [ "$(figures peer_copies "$T/run" | tail -n 1)" -eq 0 ]
  grep -qE 'copies   0 in memory, [0-9]+ skipped while another was written, [1-6] failed' "$T/run/log.txt"
}

@test "--peer-checkpoint without a directory in memory is an error with the remedy" {
  unset TRIREME_PEER_DIR
  run train 1 "$T/run" --steps 6 --peer-checkpoint 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"--peer-checkpoint 2 needs a directory in memory, TRIREME_PEER_DIR: start the ranks with 'trireme launch --peer-checkpoint 2"* ]]
  [ ! -e "$T/run" ]
}

@test "the launcher is told of each complete copy" {
  TRIREME_EVENT_FD=7 train 1 "$T/run" --steps 4 --peer-checkpoint 4 7> "$T/events"
  grep '"copy"' "$T/events" > "$T/copies"
  [ "$(cat "$T/copies")" = "{\"event\": \"copy\", \"step\": 4, \"dir\": \"$T/mem/run-$(cat "$T/run/id")\"}" ]
  [ "$(ls "$T"/mem/run-*/checkpoints)" = "$(printf 'latest\nstep-00000004')" ]
}
