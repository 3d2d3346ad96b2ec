#!/usr/bin/env bats
# run-tests: waits
# `trireme launch` on several test hosts: by ssh and by rendezvous, with machines that fail and
# join. Every run has the same bits as one process and leaves no process behind.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_set
  make_hosts 4 --decoy isolated
  "$TRIREME" launch --new-key "$BATS_FILE_TMPDIR/key" 2> /dev/null
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  need_mpi
  T=$BATS_TEST_TMPDIR
  cd "$T"
  steps=20
}

teardown() {
  # Cleans up after a failed test, which must not disturb the next one.
  local host
  for host in h1 h2 h3 h4; do
    fast_link $host 2> /dev/null || true
    if is_off $host; then start_host $host; fi
    on $host pkill -9 trireme || true
  done
}

OPTIONS=(--micro-batches 4 --save-every 5 --reproducible)

# launch_on HOST LOG OPTION…: starts `launch` of the run $T/run on HOST, up to step $steps; its
# pid is in $!.
launch_on() {
  local host=$1 log=$2
  shift 2
  on "$host" "$TRIREME" launch "$@" -- train --data "$SET" --run "$T/run" "${MODEL[@]}" "${OPTIONS[@]}" --steps "$steps" > "$log" 2>&1 3>&- &
}
# join HOST NNODES: starts the rendezvous command on HOST; its log is HOST.log.
join() { launch_on "$1" "$1.log" --rdzv-endpoint "$(host_address h1):29400" --rdzv-key "$BATS_FILE_TMPDIR/key" --nnodes "$2" --nproc-per-node 1; }

has() { grep -q "$1" "$2"; }
has_step() { [ "$(last_step "$T/run")" -ge "$1" ]; }
# ended_well PID LOG: the launch exits with status 0
ended_well() { wait "$1" || { cat "$2"; false; }; }
# ended_stopped PID LOG: the launch exits with status 3
ended_stopped() {
  local code=0
  wait "$1" || code=$?
  [ "$code" -eq 3 ] || { cat "$2"; false; }
}
is_clear() {
  local host
  for host in h1 h2 h3 h4; do
    [ -z "$(processes_on $host)" ] || return 1
  done
}
# The run is complete and has the same bits as one process, and no process is left.
check_run() {
  until_true is_clear
  train 1 "$T/whole" "${OPTIONS[@]}" --steps "$steps"
  same_state "$T/whole" "$T/run"
}
# end_run PID: stops the run whose head on h1 has this pid, and continues it for a few steps on
# h1.
end_run() {
  local code=0 name
  on h1 pkill -TERM -f "launch --rdzv-endpoint"
  wait "$1" || code=$?
  [ $code -eq 3 ] || { cat h1.log; return 1; }
  until_true is_clear
  name=$(readlink "$T/run/checkpoints/latest")
  steps=$((10#${name#step-} + 3))
  join h1 1
  ended_well $! h1.log
}

@test "ssh: 4 hosts train over the card that connects them, not over the decoy" {
  launch_on h1 log --hosts h1:1,h2:1,h3:1,h4:1 --ssh-key "$LAB/key" --ssh-port $SSH_PORT
  ended_well $! log
  has "4 ranks on 4 machines" log
  check_run
}

@test "rendezvous: 3 hosts without ssh train with the same command on each" {
  local pid=()
  for host in h3 h1 h2; do
    on $host pkill sshd
    join $host 3
    pid+=($!)
  done
  for i in 0 1 2; do ended_well "${pid[i]}" h1.log; done
  has "3 ranks on 3 machines" h1.log
  check_run
  for host in h1 h2 h3; do on $host /usr/sbin/sshd -f /run/sshd_config; done
}

# bats test_tags=slow
@test "4 hosts, 3 after a power failure, 4 when it is back" {
  local pid=()
  steps=1000000  # so many steps that only the test ends the run
  slow_link h1 10mbit  # a slow link, so that there are fewer steps to compare
  for host in h1 h2 h3 h4; do
    join $host 2:4
    pid+=($!)
  done
  until_true has "4 ranks on 4 machines" h1.log
  until_true has_step 6
  kill_host h4
  until_true has "3 ranks on 3 machines" h1.log
  until_true has_step 12
  start_host h4
  join h4 2:4
  pid[3]=$!
  until_true has "restart .*4 ranks on 4 machines" h1.log
  until_true has_step $(($(last_step "$T/run") + 4))
  fast_link h1
  end_run "${pid[0]}"
  for i in 1 2 3; do ended_stopped "${pid[i]}" "h$((i + 1)).log"; done
  check_run
}

@test "2 hosts, 1 after a power failure" {
  local pid=()
  steps=1000000  # so many steps that only the test ends the run
  for host in h1 h2; do
    join $host 1:2
    pid+=($!)
  done
  until_true has "2 ranks on 2 machines" h1.log
  until_true has_step 6
  kill_host h2
  until_true has "1 rank on 1 machine" h1.log
  until_true has_step $(($(last_step "$T/run") + 4))
  end_run "${pid[0]}"
  check_run
}
