#!/usr/bin/env bats
# What goes wrong in long runs, on purpose: ranks that die, hang or stop, numbers that
# are none, a process killed anywhere, a disk that is full. To be run alone: it has ten
# seconds for what it finds.

load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# last_step RUN: the last that its record shows; 0 before the first.
last_step() {
  local line
  line=$(tail -n 1 "$1/metrics.jsonl" 2> /dev/null || true)
  line=${line##*\"step\":}
  echo "${line%%[!0-9]*}" | sed 's/^$/0/'
}

# start NAME [OPTION…]: three ranks that never end, in the background; their output in
# NAME.out, mpirun's number in $child.
start() {
  local name=$1
  shift
  mpirun -n 3 "$TRIREME" train --data "$SET" --run "$T/$name" "${MODEL[@]}" --quiet --steps 1000000 --log-every 5 "$@" \
    > "$T/$name.out" 2>&1 3>&- &
  child=$!
}

# until_step NAME STEP: until that step is done, however slow this machine is.
until_step() {
  local i
  for i in $(seq 1200); do
    [ "$(last_step "$T/$1")" -ge "$2" ] && return 0
    sleep 0.1
  done
  return 1
}

# until_known NAME: until every rank has told the others that it is at work.
until_known() {
  until_step "$1" 20
  sleep 1 # notes are sent five times a second
}

# ended NAME CHILD RANK WORDS: within ten seconds, not with 0, and with one line that
# names the rank, its host, what became of it and where it was.
ended() {
  local name=$1 child=$2 rank=$3 words=$4 begin=$SECONDS code=0
  wait "$child" || code=$?
  [ $((SECONDS - begin)) -le 10 ] || { echo "it took $((SECONDS - begin)) s"; return 1; }
  [ "$code" -ne 0 ]
  [ "$(grep -c '^trireme: ' "$T/$name.out")" -eq 1 ] || { cat "$T/$name.out"; return 1; }
  grep -qE "^trireme: rank [0-2] on $(hostname): rank $rank on $(hostname) .*$words.*; it was at step [0-9]+, .*--resume" "$T/$name.out" ||
    { cat "$T/$name.out"; return 1; }
  [ -z "$(pgrep -f "$T/$name" || true)" ] # nobody is left behind
}

# pid_of NAME RANK
pid_of() {
  local pid
  for pid in $(pgrep -f "train --data $SET --run $T/$1 "); do
    tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
  done
}

@test "a rank that dies is named, whichever it is" {
  need_mpi
  for rank in 0 1 2; do
    TRIREME_FAULT=die:100:$rank start "die$rank"
    until_step "die$rank" 100
    ended "die$rank" $child $rank "has died"
  done
  start killed
  until_known killed
  kill -9 "$(pid_of killed 0)"
  ended killed $child 0 "has died"
}

@test "a rank that hangs or is stopped is named within ten seconds" {
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
  start=$SECONDS
  ended hang1 $hang1 1 "has not moved"
  ended hang0 $hang0 0 "has not moved"
  ended stop2 $stop2 2 "has not been heard of"
  [ $((SECONDS - start)) -le 12 ]
}

@test "an error on one rank ends all, and is said once" {
  need_mpi
  cp -R "$SET" "$T/other"
  rm "$T"/other/train-00000.tok
  both=("$TRIREME" train "${MODEL[@]}" --quiet --run "$T/run")
  run timeout 20 mpirun -n 1 "${both[@]}" --data "$SET" : -n 1 "${both[@]}" --data "$T/other"
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "rank 1 on" && "$output" =~ "train-00000.tok" ]]
}

@test "a gradient that is no number: back to the last checkpoint at half the rate" {
  for n in 1 2; do
    if [ $n -eq 2 ]; then need_mpi; fi
    TRIREME_FAULT=nan:7:$((n - 1)) train $n "$T/$n" --steps 20 --save-every 5 2> "$T/err"
    grep -q 'step 7: the gradient is not finite .* back to step 5, with the learning rate times 0.5 from now on (roll-back 1 of 3)' "$T/err"
    [ "$(figures rolled_back_from "$T/$n")" = 7 ]
    [ "$(figures step "$T/$n" | tail -n 1)" = 20 ]
    [ "$(figures lr "$T/$n" | tail -n 1)" = 0.0015 ]
    [ -z "$(figures loss "$T/$n" | grep -i nan)" ]
  done
}

@test "before the first checkpoint it goes back to the beginning, and remembers after a stop" {
  TRIREME_FAULT=nan:3:0 train 1 "$T/run" --steps 12 2> "$T/err"
  grep -q 'back to step 0' "$T/err"
  train 1 "$T/run" --steps 14 --resume
  [ "$(figures lr "$T/run" | tail -n 1)" = 0.0015 ]
}

@test "a gradient that never becomes a number ends the run, with advice" {
  TRIREME_FAULT='nan*:7:0' run train 1 "$T/run" --steps 20 --save-every 5 --max-rollbacks 2
  [ "$status" -eq 1 ]
  [ "$(grep -c 'back to step 5' <<< "$output")" -eq 2 ]
  [[ "$output" =~ "after 2 roll-backs" && "$output" =~ "lower --lr" ]]
  [[ "$(readlink "$T/run/checkpoints/latest")" =~ ^step-0*5$ ]]
  # on two ranks the same end, said once, for all
  need_mpi
  TRIREME_FAULT='nan*:4:1' run train 2 "$T/two" --steps 20 --save-every 3 --max-rollbacks 1
  [ "$status" -ne 0 ]
  [ "$(grep -c '^trireme: .*after 1 roll-backs' <<< "$output")" -eq 1 ]
}

@test "a loss that runs away is seen, and its checkpoints are not kept" {
  train 1 "$T/run" --steps 40 --save-every 10
  run train 1 "$T/run" --resume --steps 200 --save-every 10 --lr 1000 --max-rollbacks 1
  [ "$status" -eq 1 ]
  [[ "$output" =~ "ran away" || "$output" =~ "not finite" ]]
  [[ "$output" =~ "back to step" ]]
  run train 1 "$T/run" --resume --steps 60 --save-every 10 --max-rollbacks 5
  [ "$status" -eq 0 ]
  perl -e 'exit !($ARGV[0] < 6)' "$(figures loss "$T/run" | tail -n 1)"
}

@test "killed fifty times, anywhere, it always goes on, and ends with the bits of a run never killed" {
  RANDOM=7
  options=(--save-every 1 --keep 2 --micro-batches 1)
  inside=0 lived=0 times=$(fewer 50 10)
  for i in $(seq "$times"); do
    if [ -d "$T/run" ]; then more=--resume before=$(last_step "$T/run"); else more='' before=0; fi
    "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" "${options[@]}" $more --steps 1000000 > /dev/null 2> "$T/err" 3>&- &
    child=$!
    alive=no
    if [ $((i % 10)) -ne 0 ]; then # the tenth dies while it starts
      for k in $(seq 1000); do
        if [ "$(last_step "$T/run")" -gt "$before" ]; then
          alive=yes lived=$((lived + 1))
          break
        fi
        kill -0 $child || { cat "$T/err"; false; }
      done
    fi
    perl -e 'select undef, undef, undef, $ARGV[0] / 32768 * 0.04' $RANDOM
    kill -9 $child
    wait $child || true
    # Lost are at most the two steps whose saving was under way.
    resumed=$(sed -n 's/^resume  *step \([0-9]*\),.*/\1/p' "$T/err")
    if [ $alive = yes ]; then [ "${resumed:-0}" -ge $((before - 2)) ]; fi
    if ls "$T/run/checkpoints" | grep -vqxE 'step-[0-9]+|latest|best'; then inside=$((inside + 1)); fi
  done
  [ "$lived" -ge $((times * 4 / 5)) ]
  [ "$inside" -gt 0 ] # some died while they wrote
  steps=$(($(last_step "$T/run") + 3))
  train 1 "$T/run" "${options[@]}" --resume --steps $steps
  train 1 "$T/whole" --micro-batches 1 --steps $steps
  same_state "$T/whole" "$T/run"
}

@test "a full disk while saving: it goes on, says so, and the last checkpoint serves" {
  [ "$(id -u)" -eq 0 ] || skip "only root can make a small disk"
  mkdir "$T/disk"
  mount -t tmpfs -o size=8m tmpfs "$T/disk" 2> /dev/null || skip "no disk can be mounted here"
  code=0
  full_disk || code=$?
  umount "$T/disk"
  [ $code -eq 0 ]
}

full_disk() {
  local run="$T/disk/run" child i steps
  "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --save-every 10 --log-every 1000 --steps 100000 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_there "$run/checkpoints/latest/training.json" || return 1
  head -c 20m /dev/zero > "$T/disk/filler" 2> /dev/null
  for i in $(seq 600); do # two that failed: it went on after the first
    [ "$(grep -c '^warning: .*No space left' "$T/err")" -ge 2 ] && break
    sleep 0.05
  done
  kill -USR1 $child
  wait $child || { cat "$T/err"; return 1; }
  cat "$T/err"
  [ "$(grep -c '^warning: .*No space left' "$T/err")" -ge 2 ] || return 1
  grep -q '^stopped at step' "$T/out" || return 1
  "$TRIREME" translate --model "$run/checkpoints/latest" <<< "The dog sleeps." > /dev/null || return 1
  rm "$T/disk/filler"
  steps=$(readlink "$run/checkpoints/latest")
  steps=$((10#${steps#step-} + 2))
  train 1 "$run" --resume --steps $steps || return 1
  train 1 "$T/whole" --steps $steps || return 1
  same_state "$T/whole" "$run"
}
