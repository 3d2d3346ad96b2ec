#!/usr/bin/env bats
# train --auto-resume: one command that begins a run or continues it, no matter when it was
# killed. Also: restarts in the log and in the metrics.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
  unset TRIREME_RESTART_COUNT TRIREME_RESTART_REASON SLURM_RESTART_COUNT TRIREME_MAX_RANKS
}

# auto RUN [OPTION…]: trains with --auto-resume, in one process.
auto() {
  local run=$1
  shift
  train 1 "$run" --auto-resume "$@"
}

latest_step() {
  local name
  name=$(readlink "$1/checkpoints/latest")
  echo $((10#${name#step-}))
}

@test "--auto-resume begins a run, continues it, and ends when it is complete" {
  auto "$T/run" --steps 4
  [ "$(latest_step "$T/run")" -eq 4 ]
  auto "$T/run" --steps 6
  [ "$(latest_step "$T/run")" -eq 6 ]
  run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --autoresume --steps 6
  [ "$status" -eq 0 ]
  [[ "$output" =~ "nothing is left to train" ]]
  train 1 "$T/whole" --steps 6
  same_state "$T/whole" "$T/run"
  run ! grep -q 'resume' "$T/run/config"
}

# bats test_tags=slow
@test "a run killed at any file operation up to its first checkpoint is continued to the same bits" {
  train 1 "$T/whole" --steps 3 --save-every 2
  for n in $(seq "$(fewer 60 12)"); do
    run env TRIREME_FAULT=die:file:$((n * $(fewer 1 5))) "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet \
      --steps 3 --save-every 2 --auto-resume
    if [ "$status" -eq 0 ]; then break; fi
    [ "$status" -eq 137 ] || { echo "$output"; false; }
    run auto "$T/run" --steps 3 --save-every 2
    [ "$status" -eq 0 ] || { echo "killed at file operation $n: $output"; false; }
    same_state "$T/whole" "$T/run"
    rm -r "${T:?}/run"
  done
  [ "$n" -gt "$(fewer 10 2)" ]
}

@test "a directory that a run or launch made before anything else is begun in" {
  train 1 "$T/whole" --steps 2
  mkdir "$T/empty" "$T/locked" "$T/logs" "$T/logs/launch" "$T/half"
  touch "$T/locked/lock" "$T/logs/launch/rank-0.log"
  mkdir "$T/half/checkpoints"
  for run in empty locked logs half; do
    auto "$T/$run" --steps 2
    same_state "$T/whole" "$T/$run"
  done
}

@test "a config without a checkpoint is begun again" {
  auto "$T/run" --steps 2
  rm -r "${T:?}/run/checkpoints"
  auto "$T/run" --steps 2
  [ "$(latest_step "$T/run")" -eq 2 ]
}

@test "a directory with other files is refused and stays as it is" {
  mkdir "$T/home"
  echo mine > "$T/home/thesis.txt"
  run auto "$T/home" --steps 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"$T/home is no run and holds other files (thesis.txt)"*"choose another --run"* ]]
  [ "$(ls -A "$T/home")" = thesis.txt ]
  run auto "$T/home/thesis.txt" --steps 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"is no directory; choose another --run"* ]]
}

@test "--auto-resume refuses what --resume refuses" {
  auto "$T/run" --steps 2
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 800 --seed 5 --out "$T/other" > /dev/null
  run auto "$T/run" --steps 4 --seed 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"cannot be resumed with other options: --seed is 2"* ]]
  run auto "$T/run" --steps 4 --data "$T/other"
  [ "$status" -eq 2 ]
  [[ "$output" == *"trained on another data set"* ]]
  run auto "$T/run" --steps 4 --d-model 64
  [ "$status" -eq 2 ]
  [[ "$output" == *"a different model"* ]]
  [ "$(latest_step "$T/run")" -eq 2 ]
}

@test "with --resume too, the run must exist" {
  run auto "$T/none" --steps 2 --resume
  [ "$status" -eq 2 ]
  [[ "$output" == *"there is no run $T/none to resume"* ]]
}

@test "--auto-resume with --dry-run makes nothing" {
  auto "$T/run" --steps 2 --dry-run
  [ ! -e "$T/run" ]
}

@test "rank 0 decides: a host that does not see the run gets its options from rank 0" {
  need_mpi
  mkdir "$T/a" "$T/b"
  on_two() {
    mpirun -n 1 --wdir "$T/a" env TRIREME_HOST=a "$TRIREME" train --data "$SET" --run run --quiet "$@" \
      : -n 1 --wdir "$T/b" env TRIREME_HOST=b "$TRIREME" train --data "$SET" --run run --quiet "$@"
  }
  on_two "${MODEL[@]}" --auto-resume --steps 4 --rank-timeout 20
  [ ! -e "$T/b/run" ]
  on_two --auto-resume --steps 6
  on_two --resume --steps 8
  [ ! -e "$T/b/run" ]
  [ "$(latest_step "$T/a/run")" -eq 8 ]
  [ "$(grep -c 'other options' "$T/a/run/log.txt")" -eq 0 ]
  grep -qx 'rank-timeout = 20' "$T/a/run/config"
}

@test "a run killed before its first checkpoint keeps its micro-batches on fewer ranks" {
  need_mpi
  model=(--preset tiny --d-model 32 --ffn-dim 64 --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 256
    --lr-scheduler constant --lr 3e-3 --warmup-steps 10 --valid-every 0 --average-checkpoints 0 --device cpu --threads 1
    --reproducible --steps 5 --save-every 5 --quiet)
  mpirun -n 3 "$TRIREME" train --data "$SET" --run "$T/whole" "${model[@]}"
  TRIREME_FAULT=die:3:0 run mpirun -n 3 "$OUTLIVE" "$TRIREME" train --data "$SET" --run "$T/run" "${model[@]}" --auto-resume
  [ "$status" -ne 0 ]
  [ ! -e "$T/run/checkpoints/latest" ]
  "$TRIREME" train --data "$SET" --run "$T/run" "${model[@]}" --auto-resume
  same_state "$T/whole" "$T/run"
}

@test "the restart count and reason are in log.txt and in metrics.jsonl" {
  auto "$T/run" --steps 2
  TRIREME_RESTART_COUNT=3 TRIREME_RESTART_REASON='rank 1 on b: process 7 died' auto "$T/run" --steps 4
  grep -q 'restart  number 3, at step 2: rank 1 on b: process 7 died' "$T/run/log.txt"
  [ "$(figures event "$T/run")" = restart ]
  [ "$(figures restart_reason "$T/run")" = 'rank 1 on b: process 7 died' ]
  [ "$(figures restart_count "$T/run" | xargs)" = "3 3 3" ]
}

@test "a restart count of 0 is a metric and no event" {
  TRIREME_RESTART_COUNT=0 auto "$T/run" --steps 2
  [ "$(figures restart_count "$T/run" | xargs)" = "0 0" ]
  [ -z "$(figures event "$T/run")" ]
  run ! grep -q 'restart ' "$T/run/log.txt"
}

@test "control characters in the restart reason are escaped, and its length is bounded" {
  TRIREME_RESTART_COUNT=1 TRIREME_RESTART_REASON=$'a\n{"step":9}\e[2J\xff'"$(head -c 100000 /dev/zero | tr '\0' x)" auto "$T/run" --steps 2
  [ "$(figures event "$T/run" | wc -l)" -eq 1 ]
  reason=$(figures restart_reason "$T/run")
  [[ "$reason" == 'a\n{"step":9}\x1b[2J\xffxxx'* ]]
  [ "${#reason}" -lt 512 ]
  [ "$(grep -c 'restart  number 1' "$T/run/log.txt")" -eq 1 ]
  [ "$(grep -c '^{' "$T/run/log.txt")" -eq 0 ]
}

@test "a job that Slurm requeued counts its restarts" {
  SLURM_RESTART_COUNT=2 auto "$T/run" --steps 2
  [ "$(figures restart_reason "$T/run")" = 'requeued by Slurm' ]
  [ "$(figures restart_count "$T/run" | head -1)" = 2 ]
}

@test "a restart count that is not a number is a warning" {
  TRIREME_RESTART_COUNT=often run auto "$T/run" --steps 2
  [ "$status" -eq 0 ]
  [[ "$output" == *"warning: the environment has TRIREME_RESTART_COUNT=often, which is not a number of restarts"* ]]
}

# ranks N RUN [OPTION…]: trains on N ranks, without --micro-batches.
ranks() {
  local n=$1 run=$2 options=("${MODEL[@]/--micro-batches/--seed}")
  shift 2
  with "$n" "$TRIREME" train --data "$SET" --run "$run" "${options[@]}" --auto-resume "$@"
}

@test "a run that launch may let grow begins with a micro-batch for each later rank" {
  need_mpi
  TRIREME_MAX_RANKS=2 ranks 1 "$T/run" --steps 2 > /dev/null 2> "$T/err"
  grep -q "2 micro-batches per step, because the run may grow to 2 ranks; --micro-batches N chooses" "$T/err"
  grep -qx 'micro-batches = 2' "$T/run/config"
  TRIREME_MAX_RANKS=2 ranks 2 "$T/run" --steps 4
  TRIREME_MAX_RANKS=2 ranks 2 "$T/two" --steps 4
  ranks 2 "$T/ordinary" --steps 4
  same_state "$T/two" "$T/ordinary"
  grep -qx 'micro-batches = 2' "$T/two/config"
}

@test "a run that began on few ranks says why it cannot grow, and what can" {
  need_mpi
  ranks 1 "$T/run" --steps 2
  run ranks 2 "$T/run" --steps 4
  [ "$status" -eq 2 ]
  [[ "$output" == *"the run has 1 micro-batches per step, too few for 2 ranks: each rank needs one; start at most 1 ranks. A new run can grow to N ranks if it begins with --micro-batches N, or under launch with --nnodes MIN:MAX"* ]]
}
