#!/usr/bin/env bats
# launch --peer-checkpoint on one machine: after a failure the run continues from the in-memory
# copy.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
  RUN=$T/run
}

# marked: prints the processes of this test's launch, found by an environment variable that all
# inherit.
marked() {
  local file pid
  for file in /proc/[0-9]*/environ; do
    pid=${file#/proc/}
    pid=${pid%/environ}
    if grep -qzx "LAUNCH_TEST_MARK=$T" "$file" 2> /dev/null && [ "$pid" != "$BASHPID" ]; then echo "$pid"; fi
  done
}

teardown() {
  local pid
  for pid in $(marked); do kill -9 "$pid" 2> /dev/null || true; done
}

# worker RANK: prints the pid of a rank.
worker() {
  local pid
  for pid in $(marked); do
    grep -qzx "RANK=$1" "/proc/$pid/environ" 2> /dev/null || continue
    if [ "$(tr '\0' ' ' < "/proc/$pid/cmdline" | cut -d ' ' -f 2)" = train ]; then echo "$pid"; fi
  done
}

# Prints the copy directory of the running workers.
copies() { tr '\0' '\n' < "/proc/$(worker 0)/environ" | sed -n 's/^TRIREME_PEER_DIR=//p'; }
has_copy() { [ "$(readlink "$(copies 2> /dev/null)"/run-*/checkpoints/latest 2> /dev/null)" = step-00000006 ]; }

@test "a rank that is killed costs the steps since the last copy in memory, and no bit" {
  need_mpi
  train 1 "$T/whole" --reproducible --steps 12 --save-every 100
  # The first process stops at step 7; after a restart the fault is not injected.
  LAUNCH_TEST_MARK=$T TRIREME_FAULT=hang:7:1 "$TRIREME" launch --nproc-per-node 2 --peer-checkpoint 6 -- train --data "$SET" \
    --run "$RUN" "${MODEL[@]}" --quiet --reproducible --steps 12 --save-every 100 --rank-timeout 120 > "$T/out" 2>&1 3>&- &
  child=$!
  until_true has_copy || { cat "$T/out"; false; }
  memory=$(copies)
  kill -9 "$(worker 1)"
  wait $child || { cat "$T/out"; false; }
  grep -q 'resume   step 6 (in-memory copy)' "$RUN/log.txt"
  [ "$(figures event "$RUN")" = restart ]
  same_state "$T/whole" "$RUN"
  [ ! -e "$memory" ]  # the copies have been removed from memory
}

# with_memory BYTES COMMAND…: runs the command with a /dev/shm of this size.
with_memory() { unshare --mount sh -c 'mount -t tmpfs -o size="$0" none /dev/shm && exec "$@"' "$@"; }

# The pid of launch itself, not of the shell that started it.
head_of_run() { pgrep -f "^$TRIREME launch .*--run $RUN "; }
has_warned() { grep -q 'the in-memory copy of step .* was not written' "$T/out"; }
has_done() { [ "$(last_step "$RUN")" -ge "$1" ]; }

@test "memory without room for two copies: one warning with the remedy, and the run goes on" {
  with_memory 1M true 2> /dev/null || skip "mounting a tmpfs needs root"
  train 1 "$T/whole" --steps 2
  bytes=$(du -sb "$T/whole/checkpoints/step-00000002" | cut -f 1)
  with_memory $((bytes * 7 / 4)) env LAUNCH_TEST_MARK="$T" bash -c '"$@"; echo "status $?"; ls -A /dev/shm' bash \
    "$TRIREME" launch --nproc-per-node 1 --peer-checkpoint 2 -- train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 1000000 \
    --log-every 5 > "$T/out" 2>&1 3>&- &
  child=$!
  until_true has_warned || { cat "$T/out"; false; }
  until_true has_done $(($(last_step "$RUN") + 20))
  kill -TERM "$(head_of_run)"
  wait $child || { cat "$T/out"; false; }
  [ "$(tail -n 1 "$T/out")" = "status 3" ] || { cat "$T/out"; false; }  # no copy is left in memory
  grep -qE 'warning: the in-memory copy .* training goes on: .* do not fit into /dev/shm/.*--shm-size SIZE' "$T/out"
  [ "$(grep -c 'was not written' "$T/out")" -eq 1 ]
  grep -qE 'copies   1 in memory, [0-9]+ skipped while another was written, [1-9][0-9]* failed' "$RUN/log.txt"
}

@test "--peer-checkpoint of launch is for train alone" {
  run "$TRIREME" launch --peer-checkpoint 5 -- bench allreduce
  [ "$status" -eq 2 ]
  [[ "$output" == *"--peer-checkpoint is for train, not for bench"* ]]
}
