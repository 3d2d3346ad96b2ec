#!/usr/bin/env bats
# run-tests: waits
# A transport between GPUs that stalls or breaks: the run ends with one error line. These tests
# mostly wait and use no core.

load ../ranks/transport

@test "a rank that dies or hangs while others wait for its gradients is reported in one line, soon" {
  need_mpi
  # The last heartbeat of a rank that dies may have been sent before step 3.
  for what in die hang; do
    rm -f "$T/aborted"
    FAKE_COMM_ABORTED=$T/aborted TRIREME_FAULT=$what:3:1 run say 2 "$T/$what" --steps 20 --rank-timeout 2s
    failed_in_time
    one_error "rank 1 on .*: process [0-9]* died; .*\|rank 1 on .*: alive, but no progress for .* last reported: step 3"
    [ "$(head -n 1 "$T/aborted")" -eq 0 ]  # rank 0 has aborted its NCCL operations
  done
}

# bats test_tags=slow
@test "a transport that fails or delivers nothing ends the run with one line" {
  need_mpi
  FAKE_COMM_FAIL=20 run say 2 "$T/fail" --steps 200
  failed_in_time
  one_error "rank 1 on .*fake NCCL: link down"
  FAKE_COMM_STUCK=20 run say 2 "$T/stuck" --steps 200 --rank-timeout 2s
  failed_in_time
  one_error "every rank has been waiting for the others for [2-9][0-9] s; rank . last reported: step [0-9]*, micro-batch"
}

# bats test_tags=slow
@test "an all-gather of the weights that fails or stalls is reported, and no healthy rank is blamed" {
  need_mpi
  # The transport stalls in the first step, before a step has been timed; in the third; in the
  # checkpoint at the end, which gathers the moving average. The self-test has done four all-gathers.
  ways=("--steps 200 --bucket-size 16k" "--steps 200" "--steps 3 --ema-decay 0.9")
  at=(4 6 7)
  noticed=("0, micro-batch ., waiting for the others' gradients and weights"
    "2, micro-batch ., waiting for the others' gradients and weights" "3, waiting for the others' weights")
  where=("0, adding gradients and gathering weights" "2, adding gradients and gathering weights" "3, gathering the weights")
  for i in 0 1 2; do
    { FAKE_COMM_STUCK=gather:${at[i]} say 2 "$T/stuck$i" --shard-optimizer ${ways[i]} --rank-timeout 2s > "$T/said$i" || echo $? > "$T/status$i"; } &
  done
  wait  # The three cases run in parallel, because each takes ten times the rank timeout.
  for i in 0 1 2; do
    status=$(cat "$T/status$i") output=$(cat "$T/said$i")
    failed_in_time
    one_error "every rank has been waiting for the others for [2-9][0-9] s; rank . last reported: step ${noticed[i]}"
    [ ! -e "$T/stuck$i/checkpoints/latest" ]
    FAKE_COMM_FAIL=gather:${at[i]} run say 2 "$T/fail$i" --shard-optimizer ${ways[i]}
    failed_in_time
    one_error "rank 1 on .*: step ${where[i]}: fake NCCL: link down"
  done
}
