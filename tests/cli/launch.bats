#!/usr/bin/env bats
# trireme launch on one machine: output, environment, exit statuses, signals and restarts; no
# process is left, however the launch ends.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
  RUN=$T/run
}

teardown() {
  local pid
  for pid in $(marked); do kill -9 "$pid" 2> /dev/null || true; done
}

# launch N [OPTION of launch…] -- [OPTION of train…]: trains a tiny model on N ranks.
launch() {
  local n=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  # Restore SIGHUP: under nohup all programs, including launch, would ignore it.
  LAUNCH_TEST_MARK=$T env --default-signal=HUP "$TRIREME" launch --nproc-per-node "$n" "${options[@]}" -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" "$@"
}

# start N [OPTION…] -- [OPTION…]: launches a training without end in the background; output in
# $T/out, pid of the head in $head.
start() {
  launch "$@" --steps 1000000 --save-every 20 --log-every 5 > "$T/out" 2>&1 3>&- &
  head=$!
  # the function runs in a subshell, whose child is the head
  until_true has_head
  head=$(pgrep -P "$head" -f "launch --nproc-per-node" | head -n 1)
}
has_head() { pgrep -P "$head" -f "launch --nproc-per-node" > /dev/null; }

# with_variable NAME=VALUE: prints the processes that have this environment variable.
with_variable() { grep -lzx "$1" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3; }
# marked: prints the processes of this test's launch, found by an environment variable that all
# inherit.
marked() { with_variable "LAUNCH_TEST_MARK=$T" | grep -vx "$BASHPID" || true; }
is_clear() { [ -z "$(marked)" ]; }

# process WORDS [PIDS]: prints the first process of this launch whose command line contains the
# words.
process() {
  local pid
  for pid in ${2:-$(marked)}; do
    if tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qE -- "$1"; then
      echo "$pid"
      return
    fi
  done
}
# worker RANK: prints the pid of a rank.
worker() { process "^[^ ]* train .*--run $RUN " "$(with_variable "RANK=$1")"; }
# variable PID NAME: prints the value of an environment variable
variable() { tr '\0' '\n' < "/proc/$1/environ" | sed -n "s/^$2=//p"; }

has_done() { [ "$(last_step "$RUN")" -ge "$1" ]; }
until_step() { until_true has_done "$1"; }
has_line() { grep -qE -- "$1" "$T/out"; }
has_gone() { ! kill -0 "$1" 2> /dev/null; }

# continued WORDS: the output names the fault, and training continues after the step that was
# reached.
continued() {
  until_true has_line "^launch   $1"
  until_true has_line "^launch   restart 1: 2 ranks on 1 machine"
  until_true has_line "^launch   training again at step [0-9]+, [0-9.]+ s after"
  until_step $(($(last_step "$RUN") + 10))
}

# stopped: SIGTERM ends the launch normally, and no process is left.
stopped() {
  kill -TERM "$head"
  until_true has_gone "$head"
  until_true is_clear
  [ -L "$RUN/checkpoints/latest" ]
  has_line "^stopped at step"
}

@test "two ranks: the weights of mpirun's, rank 0 alone on the console, a log file per rank" {
  need_mpi
  launch 2 -- --steps 20 > "$T/out" 2> "$T/err"
  RUN=$T/bare with 2 "$TRIREME" train --data "$SET" --run "$T/bare" "${MODEL[@]}" --steps 20 > /dev/null 2>&1
  same_state "$RUN" "$T/bare"
  [ "$(grep -c '^step 20 ' "$T/err")" -eq 1 ]
  [ "$(grep -c '^done at step 20 ' "$T/out")" -eq 1 ]
  [ "$(wc -l < "$T/out")" -eq 1 ]
  grep -q "^launch   2 ranks on 1 machine (.*)$" "$T/err"
  [ "$(grep -c "^launch   log files in $RUN/launch$" "$T/err")" -eq 1 ]
  run ! grep -qiE "mpi(run|exec)|orte|primary job" "$T/err"
  grep -q '^step 20 ' "$RUN/launch/rank-0.log"
  [ -f "$RUN/launch/rank-1.log" ]
  grep -q "launch   2 ranks on 1 machine" "$RUN/launch/launch.log"
  until_true is_clear
}

# A terminal after Ctrl-S, or a stopped pager: writes block for ever.
@test "a terminal that takes nothing: the exit status is the run's, and the log files are complete" {
  mkfifo "$T/terminal"
  exec 7<> "$T/terminal"
  # Fill the pipe, so that further writes block.
  dd if=/dev/zero of="$T/terminal" oflag=nonblock bs=4096 2> /dev/null || true
  export TRIREME_FAULT=console-wait:1 LAUNCH_TEST_MARK=$T
  timeout 300 "$TRIREME" launch --nproc-per-node 1 -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 4 > "$T/terminal" 2>&1 3>&- 7>&-
  run timeout 300 sh -c 'exec "$@" > "$0" 2>&1 7>&-' "$T/terminal" \
    "$TRIREME" launch --nproc-per-node 1 -- train --data "$SET" --run "$T/none" --preset tiny --resume
  [ "$status" -eq 2 ]
  exec 7>&-
  grep -q '^step 4 ' "$RUN/launch/rank-0.log"
  grep -q '^done at step 4 ' "$RUN/launch/rank-0.log"
  grep -qE 'warning: [0-9]+ lines were not shown, as the terminal took none for a while; the log files in ' \
    "$RUN/launch/launch.log"
}

@test "one rank needs no mpirun" {
  mkdir "$T/bin"
  PATH="$T/bin:/bin" launch 1 -- --steps 3 > "$T/out" 2>&1
  has_line "^done at step 3"
  has_line "^launch   1 rank on 1 machine"
}

@test "two ranks without mpirun are an error with the remedy, and are not tried again" {
  mkdir "$T/bin"
  local tool
  for tool in sh bash; do ln -s "$(command -v "$tool")" "$T/bin/"; done
  run env PATH="$T/bin" LAUNCH_TEST_MARK="$T" "$TRIREME" launch --nproc-per-node 2 -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 3
  [ "$status" -eq 1 ]
  [[ "$output" =~ "cannot start mpirun: No such file or directory; install Open MPI" ]]
  [ "$(grep -c "restart" <<< "$output")" -eq 1 ] # "not restarted"
  [ ! -e "$RUN" ]
}

@test "limits that are too low for MPI are errors that name them, not MPI's" {
  need_mpi
  (ulimit -n 24 && launch 2 -- --steps 3) > "$T/out" 2>&1 && status=0 || status=$?
  [ "$status" -eq 1 ]
  has_line "^trireme: .*: the limit of open files is 24, too low for 2 ranks with MPI; raise it to 48 or more \(ulimit -n"
  local small='mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
  unshare --mount sh -c "$small" sh true 2> /dev/null || skip "mounting a tmpfs needs root"
  LAUNCH_TEST_MARK=$T run -1 unshare --mount sh -c "$small" sh "$TRIREME" launch --nproc-per-node 2 -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 3
  [[ "$output" =~ "are free in /dev/shm/trireme-".*", but MPI needs 16.8 MB there; remove what fills it, or enlarge it (mount -o remount,size=SIZE /dev/shm" ]]
  [[ ! "$output" =~ (PMIX|OPAL|ORTE) ]]
}

@test "a soft limit of open files that is too low for MPI is raised" {
  need_mpi
  (ulimit -S -n 24 && launch 2 -- --steps 3) > "$T/out" 2>&1
  has_line "^done at step 3 "
}

@test "an mpirun that starts no rank is ended after --start-timeout, with what it printed" {
  mkdir "$T/bin"
  printf '#!/bin/sh\necho "waiting for a license" >&2\nexec sleep 100000\n' > "$T/bin/mpirun"
  chmod +x "$T/bin/mpirun"
  PATH="$T/bin:$PATH" run launch 2 --start-timeout 2s -- --steps 3
  [ "$status" -eq 1 ]
  [[ "$output" =~ "| waiting for a license" ]]
  [[ "$output" =~ "rank 0 on "[^\ ]+" has not begun within 2 s (--start-timeout); mpirun or its daemon hangs; not restarted" ]]
  until_true is_clear
}

@test "workers have torchrun's variables and cores of their own" {
  need_mpi
  start 2 --
  until_step 5
  local r pid
  for r in 0 1; do
    pid=$(worker "$r")
    [ "$(variable "$pid" LOCAL_RANK)" = "$r" ]
    [ "$(variable "$pid" WORLD_SIZE)" = 2 ]
    [ "$(variable "$pid" LOCAL_WORLD_SIZE)" = 2 ]
    [ "$(variable "$pid" GROUP_RANK)" = 0 ]
    [ "$(variable "$pid" MASTER_ADDR)" = localhost ]
    [ "$(variable "$pid" MASTER_PORT)" -gt 1023 ]
    [ "$(variable "$pid" TORCHELASTIC_RESTART_COUNT)" = 0 ]
    [ "$(variable "$pid" TRIREME_RESTART_COUNT)" = 0 ]
    [ "$(variable "$pid" TRIREME_MAX_RANKS)" = 2 ]
  done
  if [ "$(nproc)" -ge 2 ]; then
    run ! cmp <(grep Cpus_allowed: "/proc/$(worker 0)/status") <(grep Cpus_allowed: "/proc/$(worker 1)/status")
  fi
  local dir
  dir=$(dirname "$(variable "$(worker 0)" TRIREME_AGENT)")
  [ "$(stat -c %a "$dir")" = 700 ]
  stopped
  [ ! -e "$dir" ]
}

@test "--all-output prints every rank with its number; --log-dir holds the log files" {
  need_mpi
  launch 2 --all-output --log-dir "$T/logs" -- --steps 3 > "$T/out" 2> "$T/err"
  grep -q '^\[0\] step 3 ' "$T/err"
  grep -q '^\[0\] done at step 3 ' "$T/out"
  [ -s "$T/logs/rank-0.log" ]
  [ -f "$T/logs/rank-1.log" ]
  [ ! -e "$RUN/launch" ]
}

@test "wrong options of the command pass through with status 2 and one message" {
  need_mpi
  run launch 2 -- --steps 3 --no-such-option
  [ "$status" -eq 2 ]
  [ "$(grep -c "has no option --no-such-option" <<< "$output")" -eq 1 ]
  [[ ! "$output" =~ "restart" ]]
  [ ! -e "$RUN" ]
  until_true is_clear
}

@test "an error before the first step is not repeated" {
  need_mpi
  SET=$T/no-set run launch 2 -- --steps 3
  [ "$status" -eq 1 ]
  [[ "$output" =~ "not restarted, as no step was completed" ]]
  [ "$(grep -c "no-set" <<< "$output")" -ge 1 ]
  [[ ! "$output" =~ "log files in" ]]
  [ ! -e "$RUN" ]
  until_true is_clear
}

@test "log files that cannot be written are reported once, also by a launch that fails" {
  mkdir "$T/logs"
  head -c 1024 /dev/zero > "$T/logs/launch.log"
  launch_limited() {
    trap '' XFSZ # a file that is too large is an error, not a signal
    ulimit -S -f 1 # in units of 1,024 bytes: launch.log takes no line
    launch "$@"
  }
  run -1 launch_limited 1 --log-dir "$T/logs" -- --init-from "$T/none"
  [[ "$output" =~ "$T/none" ]]
  [ "$(grep -c "^warning: .*log files.* lost: .*launch.log" <<< "$output")" = 1 ]
  until_true is_clear
}

@test "wrong options of launch are errors" {
  run -2 "$TRIREME" launch --nproc-per-node 0 -- train
  [[ "$output" =~ "--nproc-per-node 0: pass auto, cpu, gpu or 1 to 4096" ]]
  run -2 "$TRIREME" launch --nnodes 3:2 -- train
  [[ "$output" =~ "--nnodes 3:2: pass a number of machines, or MIN:MAX" ]]
  for nodes in "1: 2" " 1" "1:" ":2" "+1" "1:2:3" 1x 1025; do
    run -2 "$TRIREME" launch --nnodes "$nodes" -- train
    [[ "$output" =~ "--nnodes $nodes: pass a number of machines, or MIN:MAX" ]]
  done
  for option in --rdzv-backend --master-addr --master-port --node-rank; do
    run -2 "$TRIREME" launch $option x -- train
    [[ "$output" =~ "$option is an option of torchrun: ".*--rdzv-endpoint ]]
  done
  for option in -np --np -n; do
    run -2 "$TRIREME" launch $option 2 -- train
    [[ "$output" =~ "$option is an option of mpirun: pass --nproc-per-node N" ]]
  done
  run -2 "$TRIREME" launch
  [[ "$output" =~ "no command given: trireme launch [options] -- train" ]]
  run -2 "$TRIREME" launch -- score
  [[ "$output" =~ "launch starts train, translate, classify, prepare or bench, not 'score'" ]]
  run -2 "$TRIREME" launch --worker
  [[ "$output" =~ "TRIREME_AGENT names no socket" ]]
  run -2 "$TRIREME" launch --standalone --nnodes 2 -- train
  [[ "$output" =~ "--nnodes asks for 2 machines, but only this one is known: list machines with --hosts" ]]
  run -2 env SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 "$TRIREME" launch --nnodes 3 -- train --data "$T/set" --run "$T/run"
  [[ "$output" == *"--nnodes asks for 3 machines, but the allocation of Slurm has 2; request more nodes or lower --nnodes"* ]]
  run -2 "$TRIREME" launch --rdzv-id x -- train
  [[ "$output" =~ "--rdzv-id works only with --rdzv-endpoint: pass --rdzv-endpoint HOST:PORT too" ]]
  touch "$T/file"
  run -1 "$TRIREME" launch --log-dir "$T/file" -- train --data "$T/set" --run "$T/run"
  [[ "$output" =~ "$T/file/ exists and is not a directory" ]]
}

@test "a loopback address is no endpoint for several machines" {
  grep -q sodium <(ldd "$TRIREME") || skip "built without libsodium"
  "$TRIREME" launch --quiet --new-key "$T/key"
  for host in localhost 127.0.0.1; do
    run -2 timeout 60 "$TRIREME" launch --rdzv-endpoint $host:29477 --rdzv-key "$T/key" --nnodes 1:2 -- train --data "$T/set" --run "$T/run"
    [[ "$output" == *"--rdzv-endpoint $host: other machines cannot reach this loopback address; pass an address"* ]]
  done
}

@test "the batch file of Slurm names a program that is not found, and ends with its status" {
  batch=$BATS_TEST_DIRNAME/../../deploy/slurm/train.sbatch
  run -127 env TRIREME="$T/none" bash "$batch" --data x --run y
  [[ "$output" == *"$T/none is not found on "*"set TRIREME=/path/to/trireme"* ]]
  # as a program whose libraries are missing
  printf '#!/bin/sh\nexit 127\n' > "$T/broken"
  chmod 755 "$T/broken"
  run -127 env TRIREME="$T/broken" bash "$batch" --data x --run y
  [ -z "$output" ]
}

# is_continued COPY DIR: DIR has the files of its earlier COPY, which may have grown, and no others.
is_continued() {
  local file
  [ "$(cd "$1" && find . -type f | sort)" = "$(cd "$2" && find . -type f | sort)" ]
  (cd "$1" && find . -type f) | while read -r file; do cmp -n "$(stat -c %s "$1/$file")" "$1/$file" "$2/$file"; done
}

@test "a run that another launch uses is refused, and none of its log files is changed" {
  TRIREME_FAULT=hang:micro-batch:20 start 1 --
  until_true grep -q "^step 5 " "$RUN/launch/rank-0.log"
  until_true grep -q "log files in" "$RUN/launch/launch.log"
  cp -r "$RUN/launch" "$T/before"
  run -1 launch 1 -- --steps 5
  [[ "$output" =~ "another launch is writing its log files to $RUN/launch; wait for its end, or choose another --run or --log-dir" ]]
  run -1 launch 1 -- --steps 5 --resume
  [[ "$output" =~ "another launch is writing its log files to" ]]
  is_continued "$T/before" "$RUN/launch"
  run -1 launch 1 --log-dir "$T/logs" -- --steps 5
  [[ "$output" =~ "$RUN is in use by another trireme process" ]]
  [ ! -e "$T/logs" ]
  is_continued "$T/before" "$RUN/launch"
  run ! grep -rqE "another launch is writing|in use by another" "$RUN/launch"
}

@test "of three launches of one new run at the same time exactly one trains" {
  local i codes=() pids=()
  for i in 1 2 3; do
    # The one that trains waits for a signal, so that it outlives the others.
    TRIREME_FAULT=hang:micro-batch:5 launch 1 -- --steps 3 > "$T/out$i" 2>&1 3>&- &
    pids+=($!)
  done
  until_true has_one_left "${pids[@]}" || { cat "$T"/out?; false; }
  until_true grep -q "waiting at micro-batch" "$T"/out?
  kill -TERM "$(worker 0)"
  for i in 0 1 2; do
    wait "${pids[i]}" || codes+=($?)
  done
  cat "$T"/out?
  [ "$(printf '%s\n' "${codes[@]}" | sort | tr '\n' ' ')" = "1 1 3 " ]
  [ "$(cat "$T"/out? | grep -c "^stopped at step ")" -eq 1 ]
  [ "$(grep -c "^== generation 1" "$RUN/launch/rank-0.log")" -eq 1 ]
}
has_one_left() {
  local pid left=0
  for pid in "$@"; do
    if ! has_gone "$pid"; then left=$((left + 1)); fi
  done
  [ $left -eq 1 ]
}

@test "launch.log ends with the status of the launch" {
  launch 1 -- --steps 3
  tail -n 1 "$RUN/launch/launch.log" | grep -q "ended with status 0$"
}

@test "an option of train before its name, or the program's name, is an error with a hint" {
  run -2 "$TRIREME" launch --steps 3 -- train
  [ "$output" = "trireme: 'launch' has no option --steps, which belongs to train: trireme launch [options] -- train --steps" ]
  run -2 "$TRIREME" launch -- trireme train
  [[ "$output" =~ "leave out the program's name" ]]
}

@test "help of the command, and its wrong options, start nothing and leave no directory" {
  cd "$T"
  run -0 "$TRIREME" launch -- train --help
  [ "$output" = "$("$TRIREME" train --help)" ]
  run -2 "$TRIREME" launch -- bench --no-such-option
  [[ "$output" =~ "has no option --no-such-option" ]]
  [[ ! "$output" =~ "launch   " ]]
  run -2 "$TRIREME" launch -- train --data "$SET"
  [[ ! "$output" =~ "log files in" ]]
  [ ! -e trireme-launch ]
}

@test "a command that would read standard input is refused" {
  run -2 "$TRIREME" launch -- translate --model m < /dev/null
  [[ "$output" =~ "translate reads standard input, which launched ranks do not have; name a file with --input FILE" ]]
  run -2 "$TRIREME" launch -- prepare --train - --out x < /dev/null
  [[ "$output" =~ "prepare reads standard input" ]]
}

@test "launch under mpirun is refused" {
  need_mpi
  run mpirun -n 2 "$TRIREME" launch -- train --data "$SET" --run "$RUN"
  [ "$status" -ne 0 ]
  [ "$(grep -c 'launch runs as one process, but 2 ranks were started' <<< "$output")" -eq 1 ]
}

@test "internal options are in no help" {
  run -0 "$TRIREME" help launch
  [[ "$output" =~ "--nproc-per-node" ]]
  [[ ! "$output" =~ "--agent" ]]
  [[ ! "$output" =~ "--rsh" ]]
}

@test "SIGINT: the ranks save, the status is 3, and the same command continues" {
  need_mpi
  start 2 --
  until_step 5
  kill -INT "$head"
  until_true has_gone "$head"
  until_true is_clear
  has_line "^stopped at step"
  local step
  step=$(last_step "$RUN")
  launch 2 -- --steps $((step + 10)) > "$T/out" 2>&1
  has_line "^resume   step "
  has_line "^done at step $((step + 10))"
}

@test "the command that continues a stopped launch can be copied, blanks and quotes included" {
  local command child code=0
  RUN="$T/my run's"
  TRIREME_FAULT=hang:micro-batch:20 launch 1 -- --steps 1000000 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_step 1
  kill -TERM "$(pgrep -P $child -f "launch --nproc" | head -n 1)"
  wait $child || code=$?
  [ "$code" -eq 3 ]
  grep -q "^stopping: finishing this step, then saving$" "$T/err"
  command=$(sed -n 's/^continue with: //p' "$T/out")
  [ "$(grep -c '^continue with: ' "$T/out")" -eq 1 ]
  eval "set -- $command"
  [ "$2" = launch ]
  "$@" --steps $(($(last_step "$RUN") + 3)) > "$T/out" 2>&1
  has_line "^resume   step "
  has_line "^done at step "
}

@test "the run of a config file has the log files" {
  printf 'run = "%s"\ndata = "%s"\nsteps = 3\n' "$RUN" "$SET" > "$T/config"
  cd "$T"
  "$TRIREME" launch -- train "${MODEL[@]}" --config config > out 2>&1
  has_line "^launch   log files in $RUN/launch$"
  grep -q '^done at step 3 ' "$RUN/launch/rank-0.log"
  [ ! -e trireme-launch ]
}

@test "a prepare that dies continues where it was" {
  cd "$T"
  export TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes}
  local options=(--recipe demo --demo-pairs 3000 --vocab-size 800 --shard-size 8k)
  TRIREME_FAULT=die:prepare-shard:2 run -0 "$TRIREME" launch --nproc-per-node 1 --max-restarts 1 -- \
    prepare "${options[@]}" --out set
  [[ "$output" =~ "restart 1" ]]
  TRIREME_FAULT=die:prepare-shard:2 run -1 "$TRIREME" launch --nproc-per-node 1 -- prepare "${options[@]}" --out other
  [[ "$output" =~ "the same command continues" ]]
  run -0 "$TRIREME" launch --nproc-per-node 1 -- prepare "${options[@]}" --out other
  cmp set/train-00001.tok other/train-00001.tok
}

@test "a stopped prepare passes status 3 through and is not started again" {
  local child code=0
  cd "$T"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} TRIREME_FAULT=hang:prepare-shard:2 \
    LAUNCH_TEST_MARK=$T "$TRIREME" launch --nproc-per-node 1 --max-restarts 2 -- \
    prepare --recipe demo --demo-pairs 3000 --vocab-size 800 --shard-size 8k --out set > out 2>&1 3>&- &
  child=$!
  until_true has_line 'TRIREME_FAULT: waiting at prepare-shard'
  kill -TERM "$(process '^[^ ]* prepare ')"
  wait $child || code=$?
  [ "$code" -eq 3 ]
  has_line "^trireme: stopped by a signal; continue with --resume, which uses what is finished in set.partial"
  run ! has_line "^launch   restart"
  run ! has_line "nothing to resume"
  has_line "^continue with: .*launch .*-- prepare "
}

@test "max_slots of a host file is the upper bound of its ranks" {
  cd "$T"
  echo "localhost max_slots=1" > hosts
  run -2 "$TRIREME" launch --hostfile hosts --nproc-per-node 2 -- train --data "$SET" --run "$RUN" "${MODEL[@]}"
  [[ "$output" == *"--nproc-per-node 2 is more than max_slots=1 of host localhost; pass at most 1"* ]]
  "$TRIREME" launch --hostfile hosts --nproc-per-node cpu -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 2 > out 2>&1
  has_line "^launch   1 rank on 1 machine"
}

@test "a stop passes status 3 through" {
  need_mpi
  # The ranks pause at micro-batch 20 until a signal arrives, so that the test does not depend on
  # timing.
  TRIREME_FAULT=hang:micro-batch:20 launch 2 -- --steps 1000000 > "$T/out" 2>&1 3>&- &
  local child=$! code=0
  until_step 1
  kill -TERM "$(pgrep -P $child -f "launch --nproc" | head -n 1)"
  wait $child || code=$?
  [ "$code" -eq 3 ]
  until_true is_clear
}

@test "SIGHUP and SIGUSR1 stop the ranks in order, also with SIGTERM, however often SIGUSR1 comes" {
  need_mpi
  local signal
  for signal in HUP USR1 TERM; do
    start 2 --
    until_step $(($(last_step "$RUN") + 5))
    if [ "$signal" = TERM ]; then kill -STOP "$head"; kill -HUP "$head"; fi
    kill -"$signal" "$head"
    kill -CONT "$head"
    if [ "$signal" = USR1 ]; then
      until_true has_line "a second signal ends them at once"
      kill -USR1 "$head" || true
    fi
    until_true has_gone "$head"
    until_true is_clear
    has_line "^stopped at step"
  done
}

@test "a stop that comes while mpirun starts the ranks ends them as they start" {
  need_mpi
  mkdir "$T/bin"
  printf '#!/bin/sh\ntouch "%s"\nuntil [ -e "%s" ]; do sleep 0.05; done\nexec "%s" "$@"\n' "$T/waits" "$T/go" "$(command -v mpirun)" > "$T/bin/mpirun"
  chmod +x "$T/bin/mpirun"
  PATH=$T/bin:$PATH start 2 --
  until_true test -e "$T/waits"
  kill -TERM "$head"
  until_true has_line "a second signal ends them at once"
  touch "$T/go"
  until_true has_gone "$head"
  until_true is_clear
}

@test "a command that is too long, or not UTF-8, is an error at once" {
  need_mpi
  local long
  long=$(printf '%070000d' 1)
  run launch 2 -- --data "$long"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "the command line or an environment variable is too long; put options into a --config file" ]]
  run launch 2 -- --data $'d\xe9mo'
  [ "$status" -eq 2 ]
  [[ "$output" =~ "in the command is not UTF-8" ]]
  is_clear
}

@test "SIGHUP, SIGUSR1 and SIGTERM to all processes of a launch stop the ranks in order" {
  need_mpi
  local signal pid
  for signal in HUP USR1 TERM; do
    start 2 --
    until_step $(($(last_step "$RUN") + 5))
    for pid in $(marked); do kill -"$signal" "$pid" 2> /dev/null || true; done
    until_true has_gone "$head"
    until_true is_clear
    has_line "^stopped at step" || { cat "$T/out"; false; }
    if has_line "killed by"; then cat "$T/out"; false; fi
  done
}

@test "a second signal ends hung ranks at once" {
  need_mpi
  TRIREME_FAULT=hang:8:1 start 2 -- --rank-timeout 10m
  until_step 5
  kill -INT "$head"
  until_true has_line "a second signal ends them at once"
  kill -INT "$head"
  until_true has_gone "$head"
  until_true is_clear
}

has_answers() { [ "$(grep -c "a second signal ends them at once" "$T/out")" -eq "$1" ]; }

@test "SIGINT after SIGUSR1 is answered too, and the next one ends hung ranks at once" {
  need_mpi
  TRIREME_FAULT=hang:8:1 start 2 -- --rank-timeout 10m
  until_step 5
  kill -USR1 "$head"
  until_true has_answers 1
  kill -INT "$head"
  until_true has_answers 2
  kill -INT "$head"
  until_true has_gone "$head"
  until_true is_clear
}

@test "a rank killed: all ranks are restarted and training continues" {
  need_mpi
  start 2 --
  until_step 25
  kill -9 "$(worker 1)"
  continued "rank 1 on .*: killed by SIGKILL"
  [ "$(variable "$(worker 0)" TRIREME_RESTART_COUNT)" = 1 ]
  [[ "$(variable "$(worker 0)" TRIREME_RESTART_REASON)" =~ "rank 1 on "[^\ ]*": killed by SIGKILL" ]]
  grep -q "== generation 2: 2 ranks; rank 1 on .*: killed by SIGKILL" "$RUN/launch/rank-1.log"
  stopped
}

@test "a run directory moved during training: the restart does not begin a new run, and launch ends" {
  need_mpi
  local code=0
  launch 2 -- --steps 1000000 --save-every 10 --log-every 5 > "$T/out" 2>&1 3>&- &
  head=$!
  until_step 25
  mv "$RUN" "$T/moved"
  until_true has_gone "$head"  # a new run would train without end
  wait "$head" || code=$?
  [ "$code" -eq 2 ] || { cat "$T/out"; false; }
  has_line "^launch   restart 1: "
  [ "$(grep -c "trireme: .*$RUN is gone: this launch has trained it" "$T/out")" -eq 1 ]
  [ ! -e "$RUN/config" ]
  until_true is_clear
  # Put back, the run continues.
  [ ! -e "$RUN" ] || mv "$RUN" "$T/left"
  mv "$T/moved" "$RUN"
  launch 2 -- --steps $(($(last_step "$RUN") + 5)) --save-every 10 --log-every 5 > "$T/out" 2>&1
  has_line "^resume   step [1-9]"
}

@test "the agent killed: its ranks end, and training continues under another" {
  need_mpi
  start 2 --
  until_step 25
  local dir
  dir=$(dirname "$(variable "$(worker 0)" TRIREME_AGENT)")
  kill -9 "$(process 'launch --agent-fd')"
  continued ".* is lost: the agent of this machine closed the connection"
  [ ! -e "$dir" ]  # the next agent removes the directory
  stopped
}

@test "an agent that cannot start is tried a few times, then the launch ends with the reason" {
  # A file system with room for a directory, but not for a file in it.
  local full='mount -t tmpfs -o nr_inodes=2 none /dev/shm && exec "$@"'
  unshare --mount sh -c "$full" sh true 2> /dev/null || skip "mounting a tmpfs needs root"
  LAUNCH_TEST_MARK=$T run -1 unshare --mount sh -c "$full" sh "$TRIREME" launch --nproc-per-node 1 -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 3
  [[ "$output" =~ "trireme: the agent of this machine ended 5 times soon after its start: cannot create /dev/shm/trireme-"[^:]*": No space left on device" ]]
  [ "$(grep -c 'warning: .*No space left' <<< "$output")" -le 5 ]
  until_true is_clear
}

@test "mpirun killed: training continues" {
  need_mpi
  start 2 --
  until_step 25
  kill -9 "$(process '^mpirun ')"
  continued "mpirun ended before its ranks: killed by SIGKILL"
  stopped
}

@test "a disk without room for the last checkpoint ends the launch, and is not filled again by a restart" {
  local disk=$T/disk
  mkdir "$disk"
  mount -t tmpfs -o size=400k none "$disk" 2> /dev/null || skip "mounting a tmpfs needs root"
  RUN=$disk/run
  launch 1 -- --steps 10 > "$T/out" 2>&1 && status=0 || status=$?
  umount "$disk"
  [ "$status" -eq 1 ]
  has_line "^trireme: the last checkpoint, of step 10 \(.*\), was not saved: .*: No space left on device; free some space or choose another disk; not restarted"
  run ! grep -q "restart 1" "$T/out"
  [ "$(grep -c "^step 10 " "$T/out")" -eq 1 ]
}

@test "a rank that stops answering is named, and training continues" {
  need_mpi
  start 2 --
  until_step 25
  kill -STOP "$(worker 1)"
  continued "rank 1 on .*: no heartbeat for [0-9]+ s"
  stopped
}

@test "--stall-timeout: a single rank that stops answering is ended, and training continues" {
  start 1 --stall-timeout 15s --
  until_step 10
  kill -STOP "$(worker 0)"
  until_true has_line "^launch   no rank has printed or reported anything for [0-9]+ s \(--stall-timeout\)"
  until_true has_line "^launch   restart 1: 1 rank on 1 machine"
  until_true has_line "^launch   training again at step"
  stopped
}

@test "the head killed: everything ends, and the same command continues" {
  need_mpi
  start 2 --
  until_step 25
  local dir
  dir=$(dirname "$(variable "$(worker 0)" TRIREME_AGENT)")
  kill -9 "$head"
  until_true is_clear
  [ ! -e "$dir" ]
  local step
  step=$(last_step "$RUN")
  launch 2 -- --steps $((step + 10)) > "$T/out" 2>&1
  has_line "^resume   step "
  has_line "^done at step $((step + 10))"
}

@test "a run that lost a rank has the weights of one that did not" {
  need_mpi
  train 1 "$T/plain" --steps 30 --reproducible > /dev/null
  TRIREME_FAULT=die:15:1 launch 2 -- --steps 30 --reproducible --save-every 10 > "$T/out" 2>&1
  has_line "^launch   restart 1: "
  same_state "$T/plain" "$RUN"
}

@test "failures without progress end the launch after --max-restarts" {
  need_mpi
  TRIREME_FAULT='die:5:1' run launch 2 --max-restarts 0 -- --steps 30
  [ "$status" -eq 1 ]
  [[ "$output" =~ "trireme: rank 1 on "[^\ ]*": killed by SIGKILL; failed 1 time without progress, --max-restarts is 0" ]]
  [[ ! "$output" =~ "launch   restart" ]]
  until_true is_clear
}

@test "on a terminal rank 0 draws its status line, and the log file has whole lines" {
  need_mpi
  command -v script > /dev/null || skip "script is not installed"
  LAUNCH_TEST_MARK=$T TERM=xterm script -qec "'$TRIREME' launch --nproc-per-node 2 -- train --data '$SET' --run '$RUN' ${MODEL[*]} --steps 10" "$T/typescript" > /dev/null < /dev/null
  grep -q $'\r\033\\[K.*step 10 ' "$T/typescript"
  grep -q '^step 10 ' "$RUN/launch/rank-0.log"
  run ! grep -q $'\r' "$RUN/launch/rank-0.log"
}
