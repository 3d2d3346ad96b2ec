#!/usr/bin/env bats
# run-tests: waits
# trireme doctor on test hosts: first without problems, then with one simulated problem at a time.
#

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_hosts 3
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  cd "$BATS_TEST_TMPDIR"
  mkdir shared
  key=$LAB/key
}

# doctor HOSTS [OPTION…]: calls doctor on h1; its JSON is in the file `json`, its exit status in
# $status.
doctor() {
  local hosts=$1
  shift
  run on h1 sh -c '"$0" "$@" > json 2> messages' "$TRIREME" doctor --quiet --json --preset bert-tiny --vocab-size 1000 \
    --hosts "$hosts" --ssh-port $SSH_PORT --ssh-key "$key" --run "$PWD/shared/run" "$@"
  cat messages
  table
}

# table: prints the findings that are not OK.
table() {
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>);
    print map { "$_->{host} $_->{check} $_->{level}: $_->{finding} -> $_->{remedy}\n" } grep { $_->{level} ne "OK" } @{$j->{findings}}'
}

# level HOST CHECK: prints the levels of the findings of a host; HOST "" stands for findings about
# all hosts.
level() {
  perl -MJSON::PP -e 'undef $/; ($host, $check) = @ARGV; open F, "<", "json"; $j = decode_json(<F>);
    print join " ", map { $_->{level} } grep { $_->{check} eq $check && $_->{host} eq $host } @{$j->{findings}}' "$1" "$2"
}

# problem HOST CHECK WORDS REMEDY: there is such a problem, and its text and remedy contain these
# words.
problem() {
  perl -MJSON::PP -e 'undef $/; ($host, $check, $words, $remedy) = @ARGV; open F, "<", "json"; $j = decode_json(<F>);
    exit 0 if grep { $_->{check} eq $check && $_->{host} eq $host && $_->{level} eq "problem" &&
      index($_->{finding}, $words) >= 0 && index($_->{remedy}, $remedy) >= 0 } @{$j->{findings}};
    exit 1' "$@"
}

# host_checks_ok HOST CHECK…: each check is OK on the host.
host_checks_ok() {
  local host=$1 check
  shift
  for check in "$@"; do
    [ "$(level "$host" "$check")" = OK ] || { echo "$host: $check is $(level "$host" "$check")"; return 1; }
  done
}

# doctor_without_fault: `json` is the result on three hosts without a fault, which several tests look
# at.
doctor_without_fault() {
  if [ ! -e "$BATS_FILE_TMPDIR/json" ]; then
    doctor h1,h2,h3
    [ -z "$(ls -A shared)" ]
    for host in h1 h2 h3; do until_true has_no_process $host; done
    cp json "$BATS_FILE_TMPDIR/"
  fi
  cp "$BATS_FILE_TMPDIR/json" .
  table
}
has_no_process() { [ -z "$(processes_on "$1")" ]; }

@test "doctor on three hosts without a fault: every host is OK, every pair is measured" {
  doctor_without_fault
  for host in h1 h2 h3; do host_checks_ok $host ssh "clock skew" "same program" ports "shared dir"; done
  [ "$(level "" "network used")" = OK ]
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>);
    die "machines" unless join(",", map { $_->{host} } @{$j->{machines}}) eq "h1,h2,h3";
    die "network $j->{network}" unless $j->{network} eq "10.7.0.0/24";
    die "pairs" unless join(",", map { "$_->{a}-$_->{b}" } @{$j->{pairs}}) eq "h1-h2,h1-h3,h2-h3";
    for (@{$j->{pairs}}) { die "$_->{a}-$_->{b}" unless $_->{latency} > 0 && $_->{rate_ab} > 0 && $_->{rate_ba} > 0 && $_->{problem} eq "" }
    for (@{$j->{machines}}) { die "clock of $_->{name}" unless abs($_->{clock_offset}) < 1 + $_->{clock_error} }'
}

@test "doctor runs an all-reduce of the gradient over all hosts" {
  need_mpi
  if is_sanitized; then skip "mpirun does not pass the sanitizers' options to other hosts"; fi
  doctor_without_fault
  [ "$(level "" all-reduce)" = OK ]
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>); $a = $j->{allreduce};
    die "ranks" unless $a->{ranks} == 3 && $a->{hosts} == 3 && $a->{transport} =~ /3 hosts/;
    die "bytes" unless $a->{bytes} == $j->{needs}{gradient};
    die "seconds" unless $a->{seconds} > 0'
}

@test "doctor prints a table that joins what is OK on all hosts" {
  run on h1 "$TRIREME" doctor --quiet --preset bert-tiny --vocab-size 1000 --hosts h1,h2,h3 --ssh-port $SSH_PORT \
    --ssh-key "$key" --run "$PWD/shared/run"
  echo "$output"
  grep -q '^all  same program *OK *the same everywhere$' <<< "$output"
  grep -q '^all  ports *OK ' <<< "$output"
}

@test "doctor reads a host file" {
  printf 'h1 slots=1\nh2 slots=1 # second\n' > hostfile
  run on h1 sh -c '"$0" "$@" > json' "$TRIREME" doctor --quiet --json --preset bert-tiny --vocab-size 1000 \
    --hostfile "$PWD/hostfile" --ssh-port $SSH_PORT --ssh-key "$key" --run "$PWD/shared/run"
  host_checks_ok h2 ssh ports "shared dir"
  [ -z "$(level h3 ssh)" ]
}

@test "a machine that only starts the run needs no way back to it" {
  on h1 ip rule add priority 1 ipproto tcp sport 1024-30000 blackhole  # ssh's own ports are above
  doctor h2,h3
  on h1 ip rule delete priority 1 ipproto tcp sport 1024-30000 blackhole
  host_checks_ok h1 ssh "clock skew" "same program"
  for check in ports memory MPI "shared dir"; do
    [ -z "$(level h1 "$check")" ]
    host_checks_ok h2 "$check"
  done
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $j = decode_json(<F>);
    die "pairs" unless join(",", map { "$_->{a}-$_->{b}" } @{$j->{pairs}}) eq "h2-h3"'
}

@test "doctor starts --remote-program on the other hosts, and names it where it is missing" {
  mkdir there
  cp "$TRIREME" there/
  if has_mpi; then cp "$TRIREME_PLUGIN_PATH/libtrireme-mpi.so" there/; fi
  on h3 mount -t tmpfs none "$PWD/there"
  doctor h1,h2,h3 --remote-program "$PWD/there/trireme"
  on h3 umount "$PWD/there"
  [ "$status" -eq 1 ]
  problem h3 ssh "has no $PWD/there/trireme" "install trireme there"
  host_checks_ok h2 ssh "same program"
  perl -MJSON::PP -e 'undef $/; open F, "<", "json"; $m = decode_json(<F>)->{machines}[1];
    die $m->{program} unless $m->{program} =~ m{/there/trireme$}'
}

@test "doctor finds a wrong key" {
  ssh-keygen -q -t ed25519 -N '' -f wrong
  key=$PWD/wrong doctor h1,h2
  [ "$status" -eq 1 ]
  problem h2 ssh "refuses your ssh key" authorized_keys
  [ "$(level h1 ssh)" = OK ]
}

@test "doctor finds a host that does not listen for ssh" {
  on h3 bash -c 'kill "$(cat /run/sshd.pid)"'
  doctor h1,h2,h3
  on h3 /usr/sbin/sshd -f /run/sshd_config
  [ "$status" -eq 1 ]
  problem h3 ssh "refuses the connection" --ssh-port
  host_checks_ok h2 ssh ports
}

@test "doctor finds a blocked port" {
  block_port h2 1024-4000
  doctor h1,h2,h3
  unblock_port h2 1024-4000
  [ "$status" -eq 1 ]
  problem h2 ports "TCP connections to 10.7.0.2 fail (no answer" "1024-65535"
  problem h2 ports "from h1 to port 1" "on h2"
  host_checks_ok h1 ports
  host_checks_ok h3 ports
}

# bats test_tags=slow
@test "doctor finds a missing directory" {
  on h3 mount -t tmpfs none "$PWD/shared"
  mkdir shared/deep
  for run in shared/deep/run shared/run; do
    doctor h1,h2,h3 --run "$PWD/$run"
    [ "$status" -eq 1 ]
    problem h3 "shared dir" "a file that h1 writes in $PWD/${run%/run} is not seen here" "mount"
    host_checks_ok h2 "shared dir"
  done
  on h3 umount "$PWD/shared"
  [ -z "$(ls -A shared/deep)" ]
}

@test "doctor finds a directory that a host cannot write" {
  on h2 mount --bind "$PWD/shared" "$PWD/shared"
  on h2 mount -o remount,bind,ro "$PWD/shared"
  doctor h1,h2
  on h2 umount "$PWD/shared"
  [ "$status" -eq 1 ]
  problem h2 "shared dir" "cannot be written: Read-only file system" "for writing"
}

@test "doctor finds a data set that is missing on a host, and one that differs" {
  make_set
  mkdir data
  cp "$SET/dataset.json" data/
  mkdir h2 h3
  echo '{}' > h3/dataset.json
  on h2 mount --bind "$PWD/h2" "$PWD/data"
  on h3 mount --bind "$PWD/h3" "$PWD/data"
  doctor h1,h2,h3 --data "$PWD/data"
  on h2 umount "$PWD/data"
  on h3 umount "$PWD/data"
  [ "$status" -eq 1 ]
  problem h2 "data set" "cannot be read" "same path"
  problem h3 "data set" "another data set than on h1" "same path"
  host_checks_ok h1 "data set"
}

@test "doctor finds a different program" {
  cp "$TRIREME" other
  echo >> other
  on h2 mount --bind "$PWD/other" "$TRIREME"
  doctor h1,h2,h3
  on h2 umount -l "$TRIREME"  # a process of the session may not have ended yet
  [ "$status" -eq 1 ]
  problem h2 "same program" "there is another program (version" "install the same file"
  host_checks_ok h3 "same program"
  [ "$(level "" all-reduce)" = warning ]
}

@test "doctor finds a slow link and names the host that causes it" {
  slow_link h2 20mbit
  doctor h1,h2,h3
  fast_link h2
  [ "$status" -eq 1 ]
  problem h2 "link speed" "all its links are slow" "ethtool lan2"
  [ "$(level h1 "link speed")" != problem ]
  [ "$(level h3 "link speed")" != problem ]
}

@test "doctor finds a slow link between two hosts by the speed of the card" {
  slow_link h2 200mbit  # the card says 10 Gbit/s
  doctor h1,h2
  fast_link h2
  [ "$status" -eq 1 ]
  problem h2 "link speed" "slow link:" "ethtool"
}

@test "doctor reports a host that is lost on the way, and ends" {
  # The agent runs mpirun to read its version; this mpirun kills the agent.
  printf '#!/bin/sh\nkill -9 $PPID\n' > mpirun
  chmod +x mpirun
  on h3 mount --bind "$PWD/mpirun" "$(readlink -f "$(command -v mpirun)")"
  doctor h1,h2,h3
  on h3 umount -l "$(readlink -f "$(command -v mpirun)")"  # likewise
  [ "$status" -eq 1 ]
  problem h3 agent "closed the connection" "call doctor again"
  host_checks_ok h2 ports "shared dir"
}

# The last test, because h3 keeps its wrong clock.
@test "doctor finds a wrong clock" {
  if is_sanitized; then  # libfaketime must be loaded before any other library
    on h3 bash -c 'sed -i "s|^SetEnv .*|& TRIREME_FAULT=clock-ahead:90|" /run/sshd_config; kill -HUP "$(cat /run/sshd.pid)"'
  else
    set_clock h3 +90s
  fi
  until_true is_clock_found
  problem h3 "clock skew" "s ahead of the other hosts" "timedatectl"
  host_checks_ok h1 "clock skew"
  host_checks_ok h2 "clock skew"
}
# sshd needs some time to reload its configuration.
is_clock_found() {
  doctor h1,h2,h3
  [ "$status" -eq 1 ] && problem h3 "clock skew" 0 ""
}
