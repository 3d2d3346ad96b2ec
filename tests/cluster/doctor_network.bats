#!/usr/bin/env bats
# run-tests: waits
# trireme doctor on hosts with two network cards, one of which is not connected.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_hosts 2 --decoy isolated
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  cd "$BATS_TEST_TMPDIR"
}

# doctor [OPTION…]: calls doctor on h1; its JSON is in the file `json`.
doctor() {
  run on h1 sh -c '"$0" "$@" > json 2> messages' "$TRIREME" doctor --quiet --json --preset tiny --vocab-size 1000 \
    --hosts h1,h2 --ssh-port $SSH_PORT --ssh-key "$LAB/key" --run "$PWD/run" "$@"
  cat messages
}

@test "doctor uses the network that really connects the hosts" {
  doctor
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>);
    die "network $j->{network}" unless $j->{network} eq "10.7.0.0/24";
    die "addresses" unless join(",", map { $_->{address_used} } @{$j->{machines}}) eq "10.7.0.1,10.7.0.2";
    die "pairs" unless @{$j->{pairs}} == 1 && $j->{pairs}[0]{rate_ab} > 0;
    ($used) = grep { $_->{check} eq "network used" } @{$j->{findings}};
    die $used->{finding} unless $used->{level} eq "OK" && $used->{finding} =~ /h1 10\.7\.0\.1 \(lan1\), h2 10\.7\.0\.2 \(lan2\)/;
    ($cards) = grep { $_->{check} eq "network" && $_->{host} eq "h2" } @{$j->{findings}};
    die $cards->{finding} unless $cards->{finding} =~ m{eth0 10\.6\.0\.2/24} && $cards->{finding} =~ m{lan2 10\.7\.0\.2/24}'
}

@test "doctor --network with a card that leads nowhere is a problem" {
  doctor --network eth0
  [ "$status" -eq 1 ]
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>);
    die "network $j->{network}" unless $j->{network} eq "10.6.0.0/24";
    die "ports" unless 2 == grep { $_->{check} eq "ports" && $_->{level} eq "problem" && $_->{remedy} ne "" } @{$j->{findings}}'
}
