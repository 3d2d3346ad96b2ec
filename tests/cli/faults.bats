#!/usr/bin/env bats
# run-tests: idle
# How a run of several ranks ends if ranks die, hang, stop or fail. Needs an idle machine: a rank
# that gets no core looks like one that hangs.

load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# start NAME [OPTION…]: starts three ranks that train without end, in the background; output in
# NAME.out, pid of mpirun in $child.
start() {
  local name=$1
  shift
  mpirun -n 3 "$OUTLIVE" "$TRIREME" train --data "$SET" --run "$T/$name" "${MODEL[@]}" --steps 1000000 --log-every 5 "$@" \
    > "$T/$name.out" 2>&1 3>&- &
  child=$!
}

# until_step NAME STEP: waits until the step is complete.
until_step() {
  has_done() { [ "$(last_step "$T/$1")" -ge "$2" ]; }
  until_true has_done "$1" "$2"
}

# until_known NAME: waits until every rank has reported a step to the others: heartbeats are sent
# five times a second, so one second of further steps is enough.
until_known() {
  until_step "$1" 20
  sleep 1
  until_step "$1" $(($(last_step "$T/$1") + 10))
}

# ended NAME CHILD RANK WORDS: the run ends by itself with a status other than 0, and one line
# names the rank, its host, the reason and what it last reported.
ended() {
  local name=$1 child=$2 rank=$3 words=$4 code=0
  has_gone() { ! kill -0 "$child" 2> /dev/null; }
  until_true has_gone || { kill "$child"; return 1; }
  wait "$child" || code=$?
  [ "$code" -ne 0 ]
  [ "$(grep -c "^stopping: " "$T/$name.out")" -eq 0 ]
  [ "$(grep -c '^trireme: ' "$T/$name.out")" -eq 1 ] || { cat "$T/$name.out"; return 1; }
  grep -qE "^trireme: rank [0-2] on $(hostname): rank $rank on $(hostname): $words.*; last reported: step [0-9]+, .*Run stopped; continue .*--resume" "$T/$name.out" ||
    { cat "$T/$name.out"; return 1; }
  has_left() { [ -z "$(pgrep -f "$T/$name" || true)" ]; }
  until_true has_left  # no process is left
}

# places NAME RANK STATE: before the error the output has a line for each rank, with its host,
# what it last reported and for how long; RANK is in this state and the others wait for it.
places() {
  local name=$1 rank=$2 state=$3 r words
  for r in 0 1 2; do
    words="waiting for other ranks"
    if [ $r -eq "$rank" ]; then words=$state; fi
    [ "$(grep -cE "^place    rank $r on $(hostname): step [0-9]+, .*, for [0-9]+ s, $words\$" "$T/$name.out")" -eq 1 ] ||
      { cat "$T/$name.out"; return 1; }
  done
  [ "$(grep -E '^(place |trireme: )' "$T/$name.out" | tail -n 1 | cut -c 1-9)" = "trireme: " ]
}

# pid_of NAME RANK: prints its process id
pid_of() {
  local pid
  for pid in $(pgrep -f "train --data $SET --run $T/$1 "); do
    [ "/proc/$pid/exe" -ef "$TRIREME" ] || continue
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then echo "$pid"; fi
  done
}

@test "a rank that dies is named, whichever it is" {
  need_mpi
  for rank in 0 1 2; do
    start "die$rank"
    until_known "die$rank"
    kill -9 "$(pid_of "die$rank" $rank)"
    ended "die$rank" $child $rank "process [0-9]+ died"
  done
}

@test "a rank that hangs or is stopped is named" {
  need_mpi
  TRIREME_FAULT=hang:6:1 start hang1
  hang1=$child
  TRIREME_FAULT=hang:6:0 start hang0
  hang0=$child
  until_step hang1 5
  until_step hang0 5
  start stop2
  until_known stop2
  victim=$(pid_of stop2 2)
  kill -STOP "$victim"
  stop2=$child
  ended hang1 $hang1 1 "alive, but no progress for"
  ended hang0 $hang0 0 "alive, but no progress for"
  ended stop2 $stop2 2 "no heartbeat for [0-9]+ s"
  places hang1 1 "working"
  places hang0 0 "working"
  places stop2 2 "no heartbeat for [0-9]+ s"
}

@test "a rank that waits for a slow disk does not count as hung, even beyond --rank-timeout" {
  need_mpi
  for rank in 0 1; do
    TRIREME_FAULT=stall:6:$rank run mpirun -n 2 "$TRIREME" train --data "$SET" --run "$T/stall$rank" "${MODEL[@]}" --quiet --steps 9 --rank-timeout 3
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    [ "$(last_step "$T/stall$rank")" -eq 9 ]
    # Shows that the fault was injected.
    figures data_wait_ms "$T/stall$rank" | awk '$1 > 7000 { n++ } END { exit n != '$((1 - rank))' }'
  done
}

@test "rank 0 that waits for a disk to save does not count as hung, even beyond every limit" {
  need_mpi
  # The first checkpoint never completes, so the second save waits for it.
  TRIREME_FAULT=rank-limit:1,hang:save mpirun -n 3 "$TRIREME" train --data "$SET" --run "$T/save" "${MODEL[@]}" --quiet \
    --steps 1000000 --save-every 1 --rank-timeout 8 > "$T/save.out" 2>&1 3>&- &
  child=$!
  until_true grep -q 'waiting at save' "$T/save.out"
  sleep 12  # longer than --rank-timeout and every other limit
  kill -0 $child
  kill -USR1 $child  # mpirun forwards the signal to the ranks
  code=0
  wait $child || code=$?
  [ $code -eq 3 ] || { cat "$T/save.out"; false; }
  grep -q '^stopped at step' "$T/save.out"
}

@test "an error on one rank ends all, and is printed once" {
  need_mpi
  cp -R "$SET" "$T/other"
  rm "$T"/other/train-00000.tok
  both=("$TRIREME" train "${MODEL[@]}" --run "$T/run")
  run timeout 200 mpirun -n 1 "${both[@]}" --data "$SET" : -n 1 "${both[@]}" --data "$T/other"
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [ "$(grep -c '^stopping: ' <<< "$output")" -eq 0 ] # mpirun sends SIGTERM to rank 0
  [[ "$output" =~ "rank 1 on" && "$output" =~ "train-00000.tok" ]]
}
