#!/usr/bin/env bats
# run-tests: waits
# Runs of `trireme launch` survive each kind of fault once (tests/fault/soak). `make
# test-fault FAULTS=30` is the long version.

# soak OPTION…: runs the soak; prints its output if it fails.
soak() {
  local code=0
  "$BATS_TEST_DIRNAME/soak" --seed "$RANDOM" --faults each "$@" > "$BATS_TEST_TMPDIR/out" 3>&- || code=$?
  if [ $code -eq 77 ]; then skip "$(sed -n 's/^skipped: //p' "$BATS_TEST_TMPDIR/out")"; fi
  cat "$BATS_TEST_TMPDIR/out"
  return $code
}

@test "one machine: killed and stopped ranks, agents, mpirun and head, and a full disk" {
  soak --hosts 1
}

@test "three machines: a killed machine, a power failure, a cut link, a killed head" {
  soak --hosts 3 --kinds "kill-host power cut-link kill-head"
}
