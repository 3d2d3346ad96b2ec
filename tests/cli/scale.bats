#!/usr/bin/env bats
# Loss scaling: steps whose gradients overflow are skipped, not rolled back, and checkpoints store
# the scale. The CPU has no fp16, so loss scaling is turned on with an option. Scales are powers
# of two, so weights can be compared bit for bit.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`
load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# counter NAME RUN: prints a counter of its last checkpoint.
counter() {
  perl -MJSON::PP -e '$n = shift; undef $/; print decode_json(<>)->{$n}' "$1" "$2/checkpoints/latest/training.json"
}

@test "loss scaling gives the same bits as no loss scaling" {
  train 1 "$T/plain" --steps 12 --clip-norm 0.5
  train 1 "$T/scaled" --steps 12 --clip-norm 0.5 --loss-scale dynamic
  same_state "$T/plain" "$T/scaled"
  [ "$(figures loss_scale "$T/plain" | sort -u)" = 1 ]
  [ "$(figures loss_scale "$T/scaled" | sort -u)" = 16384 ]
  cmp <(figures grad_norm "$T/plain") <(figures grad_norm "$T/scaled")
  [ "$(counter loss_scale "$T/scaled")" -eq 16384 ]
  [ "$(counter clean_steps "$T/scaled")" -eq 12 ]
}

@test "an overflow skips the update and halves the loss scale; it is no divergence" {
  for n in 1 2; do
    if [ $n -eq 2 ]; then need_mpi; fi
    TRIREME_FAULT=nan:3:$((n - 1)),nan:8:0 train $n "$T/$n" --steps 12 --loss-scale dynamic 2> "$T/err"
    run -1 grep -q 'roll-back' "$T/err"
    [ "$(figures step "$T/$n" | tail -n 1)" = 12 ]
    [ "$(figures skipped "$T/$n" | tr -d '\n')" = 000100001000 ]
    [ "$(figures loss_scale "$T/$n" | uniq | tr '\n' ' ')" = "16384 8192 4096 " ]
    [ -z "$(figures grad_norm "$T/$n" | grep -iE 'nan|inf')" ]
    [ "$(counter clean_steps "$T/$n")" -eq 3 ]
  done
  # The step was skipped: it did not change the weights, but the next step does.
  TRIREME_FAULT=nan:5:0 train 1 "$T/left" --steps 6 --save-every 1 --loss-scale dynamic
  weights="$T/left/checkpoints/step-0000000"
  cmp "${weights}5/weights.safetensors" "${weights}6/weights.safetensors"
  run -1 cmp -s "${weights}4/weights.safetensors" "${weights}5/weights.safetensors"
  run "$TRIREME" train --data "$SET" --run "$T/said" "${MODEL[@]}" --steps 3 --loss-scale dynamic
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "overflowed" ]]
  TRIREME_FAULT=nan:1:0 run "$TRIREME" train --data "$SET" --run "$T/said2" "${MODEL[@]}" --steps 3 --loss-scale dynamic
  [[ "$output" =~ "step 1: update skipped, the gradient overflowed; the loss scale is 8192" ]]
}

@test "the loss scale is saved: a resumed run continues with it" {
  fault=nan:2:0,nan:9:0
  TRIREME_FAULT=$fault train 1 "$T/whole" --steps 14 --loss-scale dynamic
  TRIREME_FAULT=$fault train 1 "$T/parts" --steps 6 --loss-scale dynamic
  TRIREME_FAULT=$fault train 1 "$T/parts" --steps 14 --resume
  same_state "$T/whole" "$T/parts"
  for name in loss_scale clean_steps; do [ "$(counter $name "$T/whole")" = "$(counter $name "$T/parts")" ]; done
  [ "$(counter loss_scale "$T/parts")" -eq 4096 ]
  # If loss scaling is turned off, the scale is dropped.
  train 1 "$T/parts" --steps 15 --resume --loss-scale none
  [ "$(counter loss_scale "$T/parts")" -eq 0 ]
  [ "$(figures loss_scale "$T/parts" | tail -n 1)" = 1 ]
}

@test "an overflow at every loss scale counts as divergence" {
  fault=$(for i in $(seq 4 31); do printf 'nan*:%d:0,' "$i"; done)
  TRIREME_FAULT=${fault%,} run train 1 "$T/run" --steps 40 --loss-scale dynamic --max-rollbacks 0 --save-every 2
  [ "$status" -eq 1 ]
  [[ "$output" =~ "step 28: the gradient is not finite" ]]  # 25 halvings from 2^14 to 2^-11
}
