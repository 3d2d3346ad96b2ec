#!/usr/bin/env bats
# A run is a transaction: what a refused call, a full disk or a signal leaves behind, and
# what the exit status says of it.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

step_of() {
  local name
  name=$(readlink "$1/checkpoints/latest")
  echo $((10#${name#step-}))
}

@test "--time counts this call, not the run's past" {
  train 1 "$T/run" --steps 1000000 --time 1s
  before=$(step_of "$T/run")
  train 1 "$T/run" --resume --time 0.2s
  [ "$(step_of "$T/run")" -gt "$before" ]
}

@test "a warm-up longer than the run is a warning" {
  run train 1 "$T/run" --steps 4 --warmup 5
  [ "$status" -eq 0 ]
  [[ "$output" =~ "warning: --warmup 5 is longer than the run of 4 steps" ]]
}

@test "a warm-up as long as the run is no warning" {
  run train 1 "$T/run" --steps 5 --warmup 5
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "--warmup" ]]
}
