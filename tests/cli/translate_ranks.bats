#!/usr/bin/env bats
# translate on several ranks: they divide the lines, and the output is the same as of one process.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  make_set
  export MODEL_DIR="$BATS_FILE_TMPDIR/run/checkpoints/latest"
  train 1 "$BATS_FILE_TMPDIR/run" --device cpu --steps 40 > /dev/null 2>&1
}

setup() {
  T=$BATS_TEST_TMPDIR
  (head -n 30 "$SET/test.src"; echo; head -n 15 "$SET/valid.src"; echo; echo) > "$T/in"
}

# translate N [OPTION…]: translates on N ranks.
translate() {
  local n=$1
  shift
  with "$n" timeout -k 5 200 "$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1 "$@"
}

@test "2, 3 and 4 ranks print the bytes of one process, each line once" {
  need_mpi
  translate 1 --beam-size 2 < "$T/in" > "$T/one"
  [ "$(wc -l < "$T/one")" -eq 48 ]
  for n in $(fewer '2 3 4' 3); do
    translate "$n" --beam-size 2 < "$T/in" > "$T/$n"
    cmp "$T/one" "$T/$n"
  done
  # Only rank 0 has standard input under mpirun, although every rank could read a file.
  translate 2 --beam-size 2 --input "$T/in" > "$T/file"
  cmp "$T/one" "$T/file"
}

@test "n-best lists, scores and samples on 3 ranks are those of one process" {
  need_mpi
  for way in "--beam-size 3 --nbest 3" "--beam-size 2 --scores" "--sample --nbest 2 --seed 7" "--sample --scores --top-k 5" "--max-length 3 --batch-tokens 64"; do
    translate 1 $way < "$T/in" > "$T/one"
    translate 3 $way < "$T/in" > "$T/three"
    cmp "$T/one" "$T/three"
  done
}

@test "more ranks than lines, one line and no line give the output of one process" {
  need_mpi
  head -n 2 "$T/in" > "$T/two"
  translate 1 --beam-size 2 < "$T/two" > "$T/one"
  translate 4 --beam-size 2 < "$T/two" > "$T/four"
  cmp "$T/one" "$T/four"
  translate 2 --beam-size 2 < /dev/null > "$T/none"
  [ -f "$T/none" ]
  [ ! -s "$T/none" ]
}

@test "many blocks of lines keep their order and numbers on 2 ranks" {
  need_mpi
  for i in $(seq 20); do cat "$SET/test.src" "$SET/valid.src"; done | head -n 2500 > "$T/many"
  [ "$(wc -l < "$T/many")" -gt 1100 ]  # enough lines for more than one block on both ranks
  translate 1 --sample --max-length 4 < "$T/many" > "$T/one"
  translate 2 --sample --max-length 4 < "$T/many" > "$T/two"
  cmp "$T/one" "$T/two"
}

@test "--input is read by rank 0 alone" {
  need_mpi
  cp "$T/in" "$T/alone"
  translate 1 --beam-size 2 < "$T/in" > "$T/one"
  both=("$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1 --beam-size 2 --input)
  mpirun -n 1 "${both[@]}" "$T/alone" : -n 1 "${both[@]}" "$T/nowhere" > "$T/two"
  cmp "$T/one" "$T/two"
}

@test "a line from a slow writer is translated by 2 ranks before the next is written" {
  need_mpi
  coproc WORK { translate 2 --beam-size 2 2> "$T/err"; }
  local work=$WORK_PID
  for i in 1 2 3; do
    sed -n "${i}p" "$T/in" >&"${WORK[1]}"
    IFS= read -r -t 120 line <&"${WORK[0]}"
    [ -n "$line" ]
  done
  eval "exec ${WORK[1]}>&-"
  wait "$work"
}

@test "bytes that are not UTF-8: the lines before are translated, and the error ends all ranks" {
  need_mpi
  translate 1 --beam-size 2 < <(head -n 5 "$T/in") > "$T/five"
  code=0
  (head -n 5 "$T/in"; printf 'a\xff\n') | translate 2 --beam-size 2 > "$T/out" 2> "$T/err" || code=$?
  [ "$code" -ne 0 ]
  [ "$code" -lt 124 ]
  cmp "$T/five" "$T/out"
  [ "$(grep -c '^trireme: ' "$T/err")" -eq 1 ]
  grep -q 'byte 2 of the line is not UTF-8' "$T/err"
}

@test "an error on one rank ends all, and names the rank" {
  need_mpi
  mkdir "$T/whole" "$T/damaged"
  cp -RL "$MODEL_DIR" "$T/whole/model"
  cp -RL "$MODEL_DIR" "$T/damaged/model"
  truncate -s -4 "$T/damaged/model/weights.safetensors"
  both=(timeout -k 5 200 "$TRIREME" translate --quiet --device cpu --threads 1 --model model)
  run mpirun -n 1 --wdir "$T/whole" "${both[@]}" : -n 1 --wdir "$T/damaged" "${both[@]}" < "$T/in"
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "trireme: rank 1 on "[^\ ]*": model/weights.safetensors" ]]
}

@test "ranks with other options are refused, with the difference" {
  need_mpi
  both=(timeout -k 5 200 "$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1)
  run mpirun -n 1 "${both[@]}" --beam-size 2 : -n 1 "${both[@]}" --beam-size 3 < "$T/in"
  [ "$status" -ne 0 ] # mpirun returns the status of the first rank that ends
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "rank 1 on "[^\ ]*" has other options than rank 0: --beam-size is 3 and on rank 0 2" ]]
}

@test "a rank that is killed is named, and the others end" {
  need_mpi
  mkfifo "$T/pipe"
  mpirun -n 3 "$OUTLIVE" "$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1 --beam-size 2 \
    < "$T/pipe" > "$T/out" 2> "$T/err" 3>&- &
  local child=$! pid code=0
  exec 8> "$T/pipe"
  head -n 3 "$T/in" >&8
  until_there "$T/out"
  for pid in $(pgrep -f "^$TRIREME translate --quiet --model $MODEL_DIR"); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=2"; then kill -9 "$pid"; fi
  done
  wait "$child" || code=$?
  exec 8>&-
  [ "$code" -ne 0 ]
  grep -qE "rank 2 on $(hostname): process [0-9]+ died; last reported: .* Run stopped; start it again" "$T/err" || { cat "$T/err"; false; }
}

@test "a rank whose search hangs is named, and the others end" {
  need_mpi
  both=(timeout -k 5 200 "$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1 --beam-size 2)
  for rank in 0 1; do  # in parallel, because the shortest time limit is six seconds
    faults=(rank-limit:1 rank-limit:1)
    faults[rank]+=,hang:translate-step:3
    {
      code=0
      mpirun -n 1 env TRIREME_FAULT="${faults[0]}" "${both[@]}" : -n 1 env TRIREME_FAULT="${faults[1]}" "${both[@]}" \
        < "$T/in" > "$T/out$rank" 2> "$T/err$rank" || code=$?
      echo $code > "$T/code$rank"
    } 3>&- &
  done
  wait
  for rank in 0 1; do
    code=$(cat "$T/code$rank")
    [ "$code" -ne 0 ]
    [ "$code" -lt 124 ]
    grep -q "waiting at translate-step" "$T/err$rank"
    grep -qE "rank $rank on $(hostname): alive, but no progress for [0-9]+ s .*; last reported: translating lines from [0-9]+ on" "$T/err$rank" ||
      { cat "$T/err$rank"; false; }
  done
}

@test "rank 0 that waits for a slow reader of its output does not count as hung, even beyond every limit" {
  need_mpi
  for i in $(seq 20); do cat "$SET/test.src" "$SET/valid.src"; done | head -n 2500 > "$T/many"
  mkfifo "$T/pipe"  # not standard output, which mpirun reads without waiting for the test
  TRIREME_FAULT=rank-limit:1 translate 2 --beam-size 2 --nbest 2 --scores --output "$T/pipe" < "$T/many" > /dev/null 2> "$T/err" 3>&- &
  local child=$! lines
  exec 8< "$T/pipe"
  IFS= read -r -t 100 line <&8  # the pipe then fills up
  sleep 10
  lines=$(wc -l <&8)
  exec 8<&-
  wait "$child" || { cat "$T/err"; false; }
  [ "$lines" -eq 4999 ]
}

@test "each rank uses the next GPU" {
  need_mpi
  make_gpu
  translate 1 --beam-size 2 < "$T/in" > "$T/one"
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins" FAKE_GPUS=2 FAKE_DEVICES="$T/devices"
  mpirun -n 2 "$TRIREME" translate --model "$MODEL_DIR" --beam-size 2 < "$T/in" > "$T/two" 2> "$T/err"
  cmp "$T/one" "$T/two"
  grep -q 'device   cuda:0' "$T/err"
  [ "$(sort "$T/devices" | tr '\n' ' ')" = "0 1 " ]
}

@test "ranks that write to a full disk fail" {
  run mpirun -n 2 "$TRIREME" translate --quiet --model "$MODEL_DIR" --device cpu --threads 1 --beam-size 2 --input "$T/in" --output /dev/full
  [ "$status" -ne 0 ]
  [[ "$output" == *"cannot write /dev/full: No space left on device"* ]]
}
