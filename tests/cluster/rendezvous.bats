#!/usr/bin/env bats
# trireme launch without ssh: hosts meet at an endpoint with a shared key, in any order. Peers
# without the key are refused and get no information.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  local host
  make_hosts 3
  make_set
  # Disables ssh.
  [ -n "${LAB_MISSING-not made}" ] || for host in h1 h2 h3; do on "$host" pkill -x sshd; done
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  need_mpi
  grep -q sodium <(ldd "$TRIREME") || skip "built without libsodium"
  T=$BATS_TEST_TMPDIR
  cd "$T"
  "$TRIREME" launch --quiet --new-key key
  ENDPOINT=$(host_address h1):29400
}

teardown() {
  local host
  [ -z "${LAB_PID:-}" ] || for host in h1 h2 h3; do kill_all_on "$host"; done
}

# meet HOST [OPTION of launch…] -- [OPTION of train…]: runs the command of every host in the
# background; its output is in the file HOST, its exit status in HOST.status.
meet() {
  local host=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  {
    on "$host" "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-id demo --rdzv-key key --nproc-per-node 1 \
      "${options[@]}" -- train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 6 --reproducible "$@" \
      > "$host" 2>&1 && echo 0 > "$host.status" || echo $? > "$host.status"
  } 3>&- &
}
has_ended() { [ -s "$1.status" ]; }
status_of() {
  until_true has_ended "$1" || cat "$1"
  cat "$1.status"
}
has_lines() { [ "$(grep -cE -- "$3" "$1")" -ge "$2" ]; }
has_trained() { [ "$(last_step run)" -ge "$1" ]; }
has_line() { grep -qE -- "$2" "$1"; }
listens() { on h1 grep -q ":72D8 00000000:0000 0A" /proc/net/tcp; }  # port 29400 in hexadecimal
is_empty() { [ -z "$(processes_on "$1")" ]; }

# wait_for_strangers: starts a head on h1 that waits for a second machine.
wait_for_strangers() {
  meet h1 --nnodes 2 --
  until_true listens
}
head_pid() { processes_on h1 | sed -n 's/^\([0-9]*\) .*launch --rdzv-endpoint.*/\1/p' | head -n 1; }
# memory: prints the peak memory of the head so far, in kB.
memory() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$(head_pid)/status"; }

# stranger HOST PROGRAM: runs a perl program on a host. connect_to() connects to the endpoint;
# rest($s) reads until the connection ends.
stranger() {
  on "$1" perl -MIO::Socket::INET -MSocket=MSG_DONTWAIT -e 'use strict;
    $SIG{PIPE} = "IGNORE"; alarm 120;
    my $endpoint = shift;
    sub connect_to { my $s = IO::Socket::INET->new($endpoint) // die "$!\n"; binmode $s; $s }
    sub rest { my $s = shift; my ($all, $part) = (""); $all .= $part while sysread $s, $part, 4096; $all }
    '"$2" "$ENDPOINT"
}

@test "three hosts meet and train, with the bits of one process" {
  train 1 "$T/one" --steps 6 --reproducible
  meet h2 --nnodes 3 --  # started before the head
  until_true has_line h2 "waiting for the head at .* Connection refused"
  meet h1 --nnodes 3 --
  meet h3 --nnodes 3 --
  [ "$(status_of h1)" -eq 0 ] || { cat h1 h2 h3; false; }
  [ "$(status_of h2)" -eq 0 ]
  [ "$(status_of h3)" -eq 0 ]
  has_line h1 "this machine is the head"
  has_line h2 "joined the head"
  same_state "$T/one" "$T/run"
  until_true is_empty h1
  until_true is_empty h2
  until_true is_empty h3
}

# bats test_tags=slow
@test "a host joins while the others train, is lost without a word, and the others go on" {
  meet h1 --nnodes 2:3 -- --steps 1000000 --save-every 10
  meet h2 --nnodes 2:3 -- --steps 1000000 --save-every 10
  until_true has_line h1 "2 ranks on 2 machines"
  until_true has_trained 20
  meet h3 --nnodes 2:3 -- --steps 1000000 --save-every 10
  until_true has_line h1 "h3 \(10\.7\.0\.3\) joined"
  until_true has_line h1 "3 ranks on 3 machines"
  until_true has_trained $(($(last_step run) + 20))
  kill_host h3
  until_true has_line h1 "h3 \(10\.7\.0\.3\) is lost"
  until_true has_lines h1 2 "2 ranks on 2 machines"
  until_true has_trained $(($(last_step run) + 20))
  kill -TERM "$(head_pid)"
  [ "$(status_of h1)" -eq 3 ] || { cat h1; false; }
  [ "$(status_of h2)" -eq 3 ] || { cat h2; false; }
  has_line h2 "the run was stopped; the same command on every machine continues it"
  until_true is_empty h1
  until_true is_empty h2
  start_host h3
  on h3 pkill -x sshd
}

@test "a stranger gets 32 random bytes, then the end, whatever it sends" {
  wait_for_strangers
  stranger h2 'for my $bytes ("\0" x 88, "\xff" x 88, pack("C*", map { int rand 256 } 1 .. 88), "GET / HTTP/1.1\r\nHost: a\r\n\r\n" x 9) {
      my $s = connect_to(); syswrite $s, $bytes; print length rest($s), "\n" }
    my %seen;
    for (1 .. 5) { my $s = connect_to(); sysread $s, my $hello, 32; $seen{$hello} = 1; close $s }
    print scalar keys %seen, "\n"' > sizes
  [ "$(sed -n 5p sizes)" -eq 5 ]
  # The connection may end before all bytes have been sent.
  run ! grep -vxE "0|32" <(head -n 4 sizes)
  kill -0 "$(head_pid)"
  until_true has_line h1 "refused 10.7.0.2: the peer did not prove that it knows the key"
}

@test "a stranger that sends a gigabyte is cut off, and the head's memory does not grow" {
  wait_for_strangers
  local before
  before=$(memory)
  stranger h2 'my ($s, $sent, $chunk) = (connect_to(), 0, "x" x 65536);
    while ($sent < 2**30) { my $n = syswrite $s, $chunk; last unless $n; $sent += $n }
    print "$sent\n"' > sent
  [ "$(cat sent)" -lt $((64 << 20)) ]  # at most what fits into the socket buffers of both ends
  # In kB. The head is still starting and allocates some memory, under the sanitizers more.
  [ $(($(memory) - before)) -lt 16384 ]
}

@test "a stranger that says nothing, and one that sends a byte now and then, are cut off after 5 s" {
  wait_for_strangers
  SECONDS=0
  stranger h2 'print length rest(connect_to()), "\n"' > silent 3>&- &
  local silent=$!
  stranger h3 'my ($s, $n) = (connect_to(), 0);
    while (1) { syswrite $s, "x"; last if ++$n > 87; my $in = ""; vec($in, fileno $s, 1) = 1;
      next unless select $in, undef, undef, 0.5; last unless sysread $s, my $part, 4096 }
    print "$n\n"' > slow
  wait $silent
  [ "$SECONDS" -ge 4 ]
  [ "$(cat silent)" -eq 32 ]
  [ "$(cat slow)" -lt 88 ]
}

@test "100 silent strangers hold 8 connections, and a host with the key still joins" {
  # A handshake limit so long that no connection times out, even on a slow machine.
  TRIREME_FAULT=handshake-limit:600 wait_for_strangers
  stranger h3 'my @s = map { connect_to() } 1 .. 100; open F, ">", "connected"; close F;
    my $held = 0;
    for my $s (@s) { sysread $s, my $hello, 32; $held++ if length $hello }
    print "$held\n"' > held 3>&- &
  local strangers=$!
  until_true test -e connected
  meet h2 --nnodes 2 --
  until_true has_line h2 "joined the head"
  wait $strangers
  [ "$(cat held)" -eq 8 ]
}

@test "a recorded handshake is of no use to whoever replays it" {
  meet h1 --nnodes 3 --
  until_true listens
  # h3 relays what h2 and the head send each other, and stores both directions.
  on h3 perl -MIO::Socket::INET -e 'my $l = IO::Socket::INET->new(Listen => 1, LocalPort => 29400) // die; open F, ">", "ready"; close F;
    my $a = $l->accept; my $b = IO::Socket::INET->new($ARGV[0]) // die;
    open my $of_a, ">", "of-agent"; open my $of_b, ">", "of-head"; $_->autoflush for $of_a, $of_b;
    while (1) { my $in = ""; vec($in, fileno $_, 1) = 1 for $a, $b; select $in, undef, undef, undef;
      for ([$a, $b, $of_a], [$b, $a, $of_b]) { my ($from, $to, $file) = @$_; next unless vec $in, fileno $from, 1;
        exit unless sysread $from, my $part, 65536; syswrite $to, $part; print $file $part } }' "$ENDPOINT" 3>&- &
  until_true test -e ready
  ENDPOINT=$(host_address h3):29400 meet h2 --nnodes 3 --
  until_true has_line h2 "joined the head"
  on h3 pkill perl
  [ "$(wc -c < of-agent)" -gt 88 ]
  [ "$(wc -c < of-head)" -gt 88 ]
  run ! grep -a demo of-agent of-head  # the id, which h2 sent
  stranger h3 'open my $f, "<", "of-agent"; my $s = connect_to(); local $/; syswrite $s, <$f>; print length rest($s), "\n"' > answer
  grep -qxE "0|32" answer
  # a false head replays the messages of the real one
  on h3 perl -MIO::Socket::INET -e 'my $l = IO::Socket::INET->new(Listen => 1, LocalPort => 29401) // die; open F, ">", "again"; close F;
    my $a = $l->accept; open my $f, "<", "of-head"; local $/; syswrite $a, <$f>; my ($all, $part) = (""); $all .= $part while sysread $a, $part, 4096;
    print length $all, "\n"' > got 3>&- &
  until_true test -e again
  until_true has_ended h2  # the connection of h2 passed through h3
  rm h2.status
  ENDPOINT=$(host_address h3):29401 meet h2 --nnodes 3 --
  until_true has_line h2 "did not prove that it knows the key"
  [ "$(status_of h2)" -eq 1 ]
  until_true test -s got
  [ "$(cat got)" -eq 88 ]
}

@test "another key, id and command are refused with the reason, and the head goes on waiting" {
  wait_for_strangers
  "$TRIREME" launch --quiet --new-key other
  on h2 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-id demo --rdzv-key other --nnodes 2 -- train > wrong-key 2>&1 || echo $? >> wrong-key
  grep -q "refused our key: its key file" wrong-key
  [ "$(tail -n 1 wrong-key)" -eq 1 ]
  on h2 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-id other --rdzv-key key --nnodes 2 -- train > wrong-id 2>&1 || echo $? >> wrong-id
  grep -q "the head's rendezvous is 'demo', the joining machine's 'other'" wrong-id
  [ "$(tail -n 1 wrong-id)" -eq 1 ]
  on h2 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-id demo --rdzv-key key --nnodes 2 -- bench train > wrong-command 2>&1 || echo $? >> wrong-command
  grep -q "the head's command is 'train --data .*', the joining machine's 'bench train'" wrong-command
  [ "$(tail -n 1 wrong-command)" -eq 1 ]
  kill -0 "$(head_pid)"
  meet h2 --nnodes 2 --
  until_true has_line h2 "joined the head"
}

@test "the same command twice on the head's machine makes the second an agent" {
  wait_for_strangers
  mv h1 first
  meet h1 --nnodes 2 --
  until_true has_line h1 "joined the head"
}

@test "an agent that cannot be used, a second one on the head's machine, is set aside, and training goes on" {
  meet h1 --nnodes 1:3 -- --steps 1000000 --save-every 10
  until_true has_line h1 "1 rank on 1 machine"
  until_true has_trained 10
  local head
  head=$(head_pid) # before there is a second process with the same command
  mv h1 first
  meet h1 --nnodes 1:3 -- --steps 1000000 --save-every 10
  until_true has_line first "h1 \(10\.7\.0\.1\) is set aside: .* has the addresses of h1; does the command run twice"
  until_true has_trained $(($(last_step run) + 20))
  kill -TERM "$head"
  until_true is_empty h1
  has_line first "stopped at step"
}

@test "a host that joins a run with too few micro-batches for its rank is set aside, and training goes on" {
  meet h1 --nnodes 1:3 -- --steps 1000000 --save-every 10 --micro-batches 2
  meet h2 --nnodes 1:3 -- --steps 1000000 --save-every 10 --micro-batches 2
  until_true has_line h1 "2 ranks on 2 machines"
  until_true has_trained 10
  meet h3 --nnodes 1:3 -- --steps 1000000 --save-every 10 --micro-batches 2
  until_true has_line h1 "the run has 2 micro-batches per step, too few for 3 ranks"
  until_true has_line h1 "h3 \(10\.7\.0\.3\) is set aside: the ranks ended with status 2 when it joined"
  until_true has_line h3 "warning: the head has set this machine aside: the ranks ended with status 2 when it joined"
  until_true has_lines h1 2 "2 ranks on 2 machines"
  until_true has_trained $(($(last_step run) + 20))
  kill -TERM "$(head_pid)"
  [ "$(status_of h1)" -eq 3 ] || { cat h1; false; }
  [ "$(status_of h2)" -eq 3 ] || { cat h2; false; }
  [ "$(status_of h3)" -eq 3 ] || { cat h3; false; }
}

@test "a host that joins and cannot reach all others is set aside, and they go on" {
  meet h1 --nnodes 2:3 -- --steps 1000000 --save-every 10
  meet h2 --nnodes 2:3 -- --steps 1000000 --save-every 10
  until_true has_line h1 "2 ranks on 2 machines"
  until_true has_trained 10
  on h3 ip route add blackhole "$(host_address h2)/32"
  meet h3 --nnodes 2:3 -- --steps 1000000 --save-every 10
  until_true has_line h1 "h3 \(10\.7\.0\.3\) is set aside: no network connects all machines: 10\.7\.0\.0/24: h"
  until_true has_lines h1 2 "2 ranks on 2 machines"
  until_true has_trained $(($(last_step run) + 20))
  kill -TERM "$(head_pid)"
  on h3 ip route del blackhole "$(host_address h2)/32"
  [ "$(status_of h1)" -eq 3 ] || { cat h1; false; }
  [ "$(status_of h2)" -eq 3 ] || { cat h2; false; }
  [ "$(status_of h3)" -eq 3 ] || { cat h3; false; }
}

@test "an agent of a head that is killed ends with an error, and leaves nothing" {
  meet h1 --nnodes 3 --
  until_true listens
  meet h2 --nnodes 3 --
  until_true has_line h2 "joined the head"
  kill -9 "$(head_pid)"
  [ "$(status_of h2)" -eq 1 ]
  until_true is_empty h1
  until_true is_empty h2
  has_line h2 "the head .* closed the connection|lost the connection to the head"
}

agent_pid() { processes_on h2 | sed -n 's/^\([0-9]*\) .*launch --rdzv-endpoint.*/\1/p' | head -n 1; }
@test "an agent that was stopped is lost, and says when it continues that it was stopped" {
  meet h1 --nnodes 1:2 -- --steps 1000000 --save-every 10
  meet h2 --nnodes 1:2 -- --steps 1000000 --save-every 10
  until_true has_line h1 "2 ranks on 2 machines"
  until_true has_trained 10
  local agent parent
  agent=$(agent_pid)
  parent=$(sed 's/.*) . \([0-9]*\).*/\1/' "/proc/$agent/stat")  # nsenter, which stops with its child
  kill -STOP "$agent"
  until_true has_line h1 "h2 \(10\.7\.0\.2\) is lost: .* no message for [0-9]+ s \(its process is stopped"
  until_true has_line h1 "restart 1: 1 rank on 1 machine"
  kill -CONT "$parent" "$agent"
  [ "$(status_of h2)" -eq 1 ] || { cat h2; false; }
  has_line h2 "closed the connection: this process was stopped, or could not run, for [0-9]+ s"
  kill -TERM "$(head_pid)"
  [ "$(status_of h1)" -eq 3 ] || { cat h1; false; }
}

@test "a key that others can read, and a rendezvous without key or number of machines, are errors" {
  chmod 640 key
  run -1 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-key key --nnodes 2 -- train
  [[ "$output" == *"key can be read or written by other users (mode 0640)"* ]]
  chmod 600 key
  run -2 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --rdzv-key key -- train
  [[ "$output" == *"--rdzv-endpoint needs the number of machines to wait for; pass --nnodes"* ]]
  run -2 "$TRIREME" launch --rdzv-endpoint "$ENDPOINT" --nnodes 2 -- train
  [[ "$output" == *"--rdzv-endpoint needs --rdzv-key FILE"* ]]
  run -1 "$TRIREME" launch --new-key key
  [[ "$output" == *"key exists: a key is not overwritten"* ]]
}

# add_address HOST, delete_address HOST: a second address on the card of the chosen network. Open
# MPI's TCP transport publishes one of the two, and the kernel connects from the other.
add_address() { on "$1" ip address add "10.7.0.10${1#h}/24" dev "$(host_card "$1")"; }
delete_address() { on "$1" ip address delete "10.7.0.10${1#h}/24" dev "$(host_card "$1")"; }

@test "one host with two addresses on the card of the chosen network trains" {
  add_address h2
  meet h1 --nnodes 2 --
  meet h2 --nnodes 2 --
  status_of h1 > status
  delete_address h2
  [ "$(cat status)" -eq 0 ] || { cat h1 h2; false; }
  [ "$(status_of h2)" -eq 0 ]
}

@test "two hosts with two addresses each, which MPI cannot connect, end with an error that says so" {
  add_address h1
  add_address h2
  export TRIREME_FAULT=connect-limit:5
  meet h1 --nnodes 2 --
  meet h2 --nnodes 2 --
  status_of h1 > status
  delete_address h1
  delete_address h2
  [ "$(cat status)" -eq 1 ] || { cat h1 h2; false; }
  has_line h1 "MPI does not connect rank [01] on h[12] with rank [01]: no message within 5 s"
  [ "$(status_of h2)" -eq 1 ]
  [ "$(grep -c "the run has failed: " h2)" -eq 1 ]
  until_true is_empty h1
  until_true is_empty h2
}

# add_network HOST, delete_network HOST: a second network that both hosts have, 10.9.0.0/24. On h2 its
# address comes before the other one.
add_network() {
  local card
  card=$(host_card "$1")
  if [ "$1" = h2 ]; then on h2 ip address delete "$(host_address h2)/24" dev "$card"; fi
  on "$1" ip address add "10.9.0.${1#h}/24" dev "$card"
  if [ "$1" = h2 ]; then on h2 ip address add "$(host_address h2)/24" dev "$card"; fi
}
delete_network() { on "$1" ip address delete "10.9.0.${1#h}/24" dev "$(host_card "$1")"; }

@test "two hosts whose cards have two networks in different order end with an error that says so" {
  add_network h1
  add_network h2
  export TRIREME_FAULT=connect-limit:5
  meet h1 --nnodes 2 --
  meet h2 --nnodes 2 --
  status_of h1 > status
  delete_network h1
  delete_network h2
  [ "$(cat status)" -eq 1 ] || { cat h1 h2; false; }
  has_line h1 "Open MPI knows only the first address of a network card .* make that of the same network the first"
  [ "$(status_of h2)" -eq 1 ]
}
