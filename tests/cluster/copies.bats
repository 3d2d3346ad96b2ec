#!/usr/bin/env bats
# In-memory copies on a second machine: the machine of rank 0 fails, and the run continues from
# the copy on the other one.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_hosts 3
  make_set
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  need_mpi
  T=$BATS_TEST_TMPDIR
  cd "$T"
}

# worker_on HOST: prints the process id of a rank there.
worker_on() { processes_on "$1" | grep "trireme train" | head -n 1 | cut -d ' ' -f 1; }
has_worker() { [ -n "$(worker_on "$1")" ]; }
# copy_on HOST: prints the copy that its agent stores.
copy_on() { enter "$1" bash -c 'readlink /dev/shm/trireme-*/copies/run-*/checkpoints/latest' 2> /dev/null || true; }
has_copy() { [ "$(copy_on "$1")" = step-00000006 ]; }
nothing_runs() { [ -z "$(for host in h1 h2 h3; do processes_on $host; done)" ]; }

@test "the machine of rank 0 fails: the other continues from its copy in memory, to the same bits" {
  train 1 "$T/whole" --reproducible --steps 12 --save-every 100
  # Rank 0 stops at step 7; after a restart the fault is not injected.
  TRIREME_FAULT=hang:7:0 on h1 "$TRIREME" launch --ssh-port "$SSH_PORT" --ssh-key "$LAB/key" --hosts h2:1,h3:1 --nnodes 1:2 \
    --peer-checkpoint 6 -- train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet --reproducible --steps 12 --save-every 100 \
    --rank-timeout 300 > out 2>&1 3>&- &
  head=$!
  until_true has_worker h2 || { cat out; false; }
  until_true has_worker h3 || { cat out; false; }
  victim=h2 other=h3
  if tr '\0' '\n' < "/proc/$(worker_on h3)/environ" | grep -qx RANK=0; then victim=h3 other=h2; fi
  until_true has_copy $victim || { cat out; false; }
  until_true has_copy $other || { cat out; false; }
  kill_host $victim
  wait $head || { cat out; false; }
  grep -q 'resume   step 6 (in-memory copy)' "$T/run/log.txt" || { cat out "$T/run/log.txt"; false; }
  same_state "$T/whole" "$T/run"
  until_true nothing_runs
  [ -z "$(copy_on $other)" ]  # the copies have been removed from memory
}
