#!/usr/bin/env bats
# train --trace: RUN/trace.json with what every rank did in some steps, checked by
# tests/tools/check_trace.c.

load ../ranks/support
bats_require_minimum_version 1.5.0

setup_file() {
  make_set
  make_gpu -DFAKE_COMM "$BATS_TEST_DIRNAME/../device/fake_comm.c" -lrt
}

setup() {
  T=$BATS_TEST_TMPDIR
  CHECK=$TRIREME_TOOLS/check_trace
  # Many small buckets.
  options=(--steps 9 --bucket-size 16k --save-every 5 --trace 4 --trace-from 3)
}

# names RANK FILE: prints the names of the rank's spans, each once.
names() { grep "^{\"ph\":\"X\",\"pid\":$1," "$2" | sed 's/.*"name":"\([^"]*\)".*/\1/' | sort -u; }

@test "two ranks: the trace is valid, spans nest, every bucket is reduced in every step on both ranks" {
  need_mpi
  for way in "" "--reproducible" "--shard-optimizer --overlap no"; do
    rm -rf "${T:?}/run"
    train 2 "$T/run" "${options[@]}" $way
    "$CHECK" "$T/run/trace.json" > "$T/out"
    grep -q '^2 ranks, steps 4 to 7, ' "$T/out"
    run ! grep -q ', 0 buckets per step' "$T/out"
  done
}

@test "two ranks of one machine: the all-reduces prove that their clocks differ by less than 100 us" {
  need_mpi
  for attempt in 1 2 3 4 5; do
    rm -rf "${T:?}/run"
    train 2 "$T/run" "${options[@]}"
    run "$CHECK" "$T/run/trace.json" 100
    if [ "$status" -eq 0 ]; then return 0; fi
    [ "$status" -eq 3 ]
  done
  skip "too busy a machine: its all-reduces take longer than 100 us"
}

@test "two machines: a clock that is ahead is corrected, within the error that the file states" {
  need_mpi
  one=("$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet "${options[@]}")
  # env, because Open MPI does not take -x together with the variables of the sanitizers.
  mpirun -n 1 env TRIREME_HOST=a "${one[@]}" : \
    -n 1 env TRIREME_HOST=b TRIREME_FAULT=trace-clock:7000 "${one[@]}"
  "$CHECK" "$T/run/trace.json" > "$T/out"
  sed -n 's/^{"rank":1,"host":"b","clock_offset_us":\([-0-9.]*\),"clock_error_us":\([0-9.]*\),.*/\1 \2/p' \
    "$T/run/trace.json" > "$T/clock"
  awk '{ off = $1 + 7000; if (off < 0) off = -off; exit !(NF == 2 && $2 > 0 && off <= $2 + 0.001) }' "$T/clock"
}

@test "the trace of one process names its host" {
  TRIREME_HOST=alpha train 1 "$T/run" "${options[@]}"
  grep -q '"name":"rank 0 on alpha"' "$T/run/trace.json"
  grep -q '^{"rank":0,"host":"alpha",' "$T/run/trace.json"
}

@test "the parts of a step, checkpoints and validations are spans of the ranks that do them" {
  need_mpi
  train 2 "$T/run" "${options[@]}" --valid-every 5 --trace-from 0 --trace 9 --beam-size 1
  for rank in 0 1; do
    names $rank "$T/run/trace.json" > "$T/names"
    for name in "step 5" "wait for data" "micro-batch $rank" forward backward "wait for all-reduce" "gradient norm" \
      "wait for losses" update "agree to go on" checkpoint validation "GEMM wgrad" "attention backward" \
      optimizer "all-reduce bucket 0" "all-reduce: losses"; do
      grep -qx "$name" "$T/names"
    done
  done
  names 0 "$T/run/trace.json" | grep -qx "log and metrics"
}

@test "a trace does not change the weights, is not part of the config and ends when the run ends" {
  train 1 "$T/plain" --steps 9 --save-every 5
  train 1 "$T/run" "${options[@]}" --trace 100
  same_state "$T/plain" "$T/run"
  run ! grep -q trace "$T/run/config"
  "$CHECK" "$T/run/trace.json" | grep -q '^1 ranks, steps 4 to 9, '
}

@test "a run that ends before the trace begins says so" {
  run with 1 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 3 --trace 2
  [ "$status" -eq 0 ]
  [[ "$output" =~ "--trace 2 recorded nothing: this process ended after 3 steps, and the trace begins after 10" ]]
  [ ! -e "$T/run/trace.json" ]
}

@test "a full buffer: what is missing is counted in the file and in a warning" {
  TRIREME_FAULT=trace-spans:50 run with 1 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" "${options[@]}"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "the buffers of the trace were full: "[0-9,]+" spans are missing from its end" ]]
  grep -q '"dropped":[1-9]' "$T/run/trace.json"
}

@test "a trace that cannot be written is a warning, and training goes on" {
  train 1 "$T/plain" --steps 9
  train 1 "$T/run" --steps 2
  mkdir "$T/run/trace.json.part"
  run with 1 "$TRIREME" train --run "$T/run" --resume --steps 9 --trace 2 --trace-from 1
  [ "$status" -eq 0 ]
  [[ "$output" =~ "the trace was not written, training goes on: cannot create" ]]
  same_state "$T/plain" "$T/run"
}

@test "a device: operations are on a track of their own, with the device's times, and the bits stay" {
  train 1 "$T/plain" --steps 9 --save-every 5
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins"
  train 1 "$T/run" --device cuda "${options[@]}"
  same_state "$T/plain" "$T/run"
  "$CHECK" "$T/run/trace.json"
  grep -q '"pid":0,"tid":1,"name":"thread_name","args":{"name":"GPU"}' "$T/run/trace.json"
  grep -q '"pid":0,"tid":1,.*"name":"GEMM wgrad"' "$T/run/trace.json"
  run ! grep -q '"pid":0,"tid":0,.*"name":"GEMM wgrad"' "$T/run/trace.json"
}

@test "two devices: every bucket that is queued for NCCL is a span" {
  need_mpi
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins" FAKE_GPUS=2
  for way in "" "--shard-optimizer"; do
    rm -rf "${T:?}/run"
    train 2 "$T/run" --device cuda --allreduce-transport nccl "${options[@]}" $way
    "$CHECK" "$T/run/trace.json" > "$T/out"
    run ! grep -q ', 0 buckets per step' "$T/out"
    names 1 "$T/run/trace.json" | grep -q '^queue .* bucket 0$'
  done
}

@test "the checker refuses a missing all-reduce, spans that overlap, and clocks that are wrong" {
  need_mpi
  train 2 "$T/run" "${options[@]}"
  file=$T/run/trace.json
  grep -v '"pid":1,.*"all-reduce bucket 3".*"collective":[0-9]*' "$file" > "$T/missing.json"
  run -1 "$CHECK" "$T/missing.json"
  awk '/"pid":1,.*"name":"update"/ && !done { sub(/"dur":/, "\"dur\":99"); done = 1 } { print }' "$file" > "$T/overlap.json"
  run -1 "$CHECK" "$T/overlap.json"
  [[ "$output" =~ "begins inside" ]]
  # Ten seconds are longer than any all-reduce here.
  awk '/"ph":"X","pid":1,/ { match($0, /"ts":[0-9.]*/); t = substr($0, RSTART + 5, RLENGTH - 5)
    $0 = substr($0, 1, RSTART + 4) sprintf("%.3f", t + 10000000) substr($0, RSTART + RLENGTH) } { print }' "$file" > "$T/clock.json"
  run -1 "$CHECK" "$T/clock.json"
  [[ "$output" =~ "contradicts the order of the all-reduces" ]]
  head -c 1000 "$file" > "$T/cut.json"
  run -1 "$CHECK" "$T/cut.json"
}
