#!/usr/bin/env bats
# run-tests: waits
# RUN/system.jsonl of a run on two test hosts: each measures itself.

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

# samples HOST: prints the lines of this host.
samples() { grep "\"host\":\"$1\"" "$T/run/system.jsonl" 2> /dev/null || true; }
has_samples() { [ "$(samples "$1" | wc -l)" -ge "$2" ]; }
# carries_gradients HOST: a sample of it has traffic of its only card, and the card's speed.
carries_gradients() {
  samples "$1" | perl -MJSON::PP -e 'my ($card, $most) = ($ARGV[0], 0);
    for (<STDIN>) {
      my $net = decode_json($_)->{net} // next;
      "@{[sort keys %$net]}" eq $card && $net->{$card}{speed} > 0 or die "cards: @{[%$net]}\n";
      $most = $net->{$card}{sent} if $net->{$card}{sent} > $most;
    }
    exit($most > 10000 ? 0 : 1)' "$(host_card "$1")"
}
has() { grep -q "$1" "$2"; }
is_off_and_clear() { [ -z "$(processes_on h1)" ]; }

@test "each host measures itself; a host that is lost stops, the other goes on in the same file" {
  local code=0 before
  on h1 "$TRIREME" launch --hosts h1:1,h2:1 --nnodes 1:2 --ssh-key "$LAB/key" --ssh-port $SSH_PORT -- train --data "$SET" --run "$T/run" \
    "${MODEL[@]}" --micro-batches 2 --save-every 5 --steps 1000000 > log 2>&1 3>&- &
  local pid=$!
  # Every host has a card of another name; the gradients travel over it.
  until_true carries_gradients h1
  until_true carries_gradients h2
  kill_host h2
  until_true has 'restart [0-9]*: 1 rank on 1 machine' log
  before=$(samples h1 | wc -l)
  until_true has_samples h1 $((before + 2))
  on h1 pkill -TERM -f "launch --hosts"
  wait $pid || code=$?
  [ $code -eq 3 ] || { cat log; false; }
  until_true is_off_and_clear
  perl -MJSON::PP -ne 'my $line = decode_json($_); defined $line->{step} or die' "$T/run/system.jsonl"
}
