#!/usr/bin/env bats
# run-tests: waits
# trireme report of a run over a slow link between test hosts: the link is the bottleneck. That equal ranks
# are not blamed is in tests/unit/test_report.c: here other programs may slow a rank down.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_set
  make_hosts 2
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  need_mpi
  T=$BATS_TEST_TMPDIR
  cd "$T"
}

# field PATH: a value of r.json, for example runs/0/answers/network/headline.
field() { perl -MJSON::PP -e 'my $v = decode_json(do { local (@ARGV, $/) = "r.json"; <> }); for (split m{/}, shift) { $v = ref $v eq "ARRAY" ? $v->[$_] : $v->{$_} } print defined $v ? $v : "unknown"' "$1"; }

# A gradient of 1.9 MB needs 3.8 s at 4 Mbit/s. The computation of 48 tokens takes milliseconds, so the link limits the run also
# where other programs make computation a hundred times slower. A larger model makes computation and transfer longer alike, so the test
# changes tokens and rate.
# bats test_tags=slow
@test "a report finds that a slow link limited the run, and compares the bytes with the ring formula" {
  slow_link h2 4mbit
  on h1 "$TRIREME" launch --hosts h1:1,h2:1 --ssh-key "$LAB/key" --ssh-port $SSH_PORT -- train --data "$SET" --run "$T/run" "${MODEL[@]}" \
    --d-model 128 --ffn-dim 256 --micro-batches 2 --batch-tokens 48 --steps 5 --rank-timeout 200 > log 2>&1 || { cat log; false; }
  fast_link h2
  "$TRIREME" report run --json > r.json
  [[ "$(field runs/0/answers/network/headline)" =~ ^"Yes: "[0-9.]+" % of a step waits for it" ]]
  [[ "$(field runs/0/answers/devices/headline)" =~ "all-reduce wait" ]]
  [[ "$(field runs/0/changes/0/what)" =~ "gradients in bf16" ]]
  [ "$(field runs/0/answers/network/figures/sent_bytes)" != unknown ]
  perl -e 'exit !(abs($ARGV[0] - 1) < 0.05)' "$(field runs/0/answers/traffic/figures/ratio_to_ring)"
  [[ "$(field runs/0/answers/network/sentence)" =~ "busiest card (lan"[12]" on h"[12]")" ]]
}
