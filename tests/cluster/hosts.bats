#!/usr/bin/env bats
# The test hosts behave as hosts.bash describes, and plain mpirun trains on three of them.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_hosts 3 --decoy isolated
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  T=$BATS_TEST_TMPDIR
  cd "$T"
}

has_process() { processes_on "$1" | grep -q "$2"; }

# reaches HOST ADDRESS [PORT]: HOST can connect within two seconds. On a slow machine one attempt
# may fail, so callers repeat it until it succeeds.
reaches() { on "$1" timeout 2 bash -c 'exec 9<> "/dev/tcp/$1/$2"' - "$2" "${3:-$SSH_PORT}" 2> /dev/null; }

@test "a host has its own name, cards, processes and /tmp, and shares the test's directory" {
  [ "$(on h2 hostname)" = h2 ]
  [ "$(on h2 ls /sys/class/net | sort | tr '\n' ' ')" = "eth0 lan2 lo " ]
  on h2 touch /tmp/of-h2 of-all
  [ ! -e /tmp/of-h2 ]
  run ! on h1 test -e /tmp/of-h2
  on h1 test -e "$T/of-all"
  [ -e of-all ]
  [ -z "$(processes_on h2)" ]
  on h2 sleep 1234 3>&- &
  until_true has_process h2 "sleep 1234"
  run ! has_process h1 "sleep 1234"
  run ! on h1 pgrep -f "sleep 1234"
  on h2 pkill -f "sleep 1234"
  wait $! || true
  [ -z "$(processes_on h2)" ]
}

@test "ssh between hosts checks host keys, and the decoy card leads nowhere" {
  ssh=(ssh -o BatchMode=yes -i "$LAB/key" -p $SSH_PORT)
  [ "$(on h1 "${ssh[@]}" h3 hostname)" = h3 ]
  run ! reaches h1 "$DECOY.3"
  # Maps the name h3 to the address of h2.
  on h1 bash -c 'sed -i "s/.* h3$/$(getent ahostsv4 h2 | head -n 1 | cut -d " " -f 1) h3/" /etc/hosts'
  run on h1 "${ssh[@]}" h3 hostname
  [ "$status" -eq 255 ]
  [[ "$output" == *"HOST IDENTIFICATION HAS CHANGED"* ]]
  on h1 sed -i "s/.* h3$/$(host_address h3) h3/" /etc/hosts
}

@test "a cut link loses packets until it is healed" {
  until_true reaches h1 h3
  cut_link h3
  run ! reaches h1 h3
  until_true reaches h1 h2
  heal_link h3
  until_true reaches h1 h3
}

@test "a blocked port does not answer, and others do" {
  block_port h3 4000
  on h3 perl -MIO::Socket::INET -e 'my @s = map { IO::Socket::INET->new(Listen => 9, LocalPort => $_) // die } 4000, 4001; open F, ">", "listening"; sleep 100' 3>&- &
  until_true test -e listening
  until_true reaches h1 h3 4001
  run ! reaches h1 h3 4000
  unblock_port h3 4000
  until_true reaches h1 h3 4000
  on h3 pkill perl
  wait $! || true
}

@test "a slow link takes the time that its rate demands" {
  slow_link h2 8mbit  # a rate of 1 MB/s
  head -c 3000000 /dev/zero > data
  SECONDS=0
  on h1 ssh -o BatchMode=yes -i "$LAB/key" -p $SSH_PORT h2 'cat > /dev/null' < data
  fast_link h2
  [ "$SECONDS" -ge 2 ]
}

@test "a host's clock can be wrong" {
  set_clock h2 +2h
  local here there
  there=$(on h2 date +%s)
  here=$(on h1 date +%s)
  [ $((there - here)) -gt 7100 ]
  [ $((there - here)) -lt 7300 ]
  there=$(on h1 ssh -o BatchMode=yes -i "$LAB/key" -p $SSH_PORT h2 date +%s)
  [ $((there - here)) -gt 7100 ]
}

@test "a killed host is gone without a word, and comes back when it is started" {
  on h3 perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Listen => 9, LocalPort => 4000) // die; open F, ">", "listening"; $c = $s->accept; sleep 100' 3>&- &
  until_true test -e listening
  # Ends when the connection is closed, which does not happen at a power failure.
  on h1 perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new("h3:4000") // die; open F, ">", "connected"; <$s>' 3>&- &
  local client=$!
  until_true test -e connected
  kill_host h3
  [ -z "$(processes_on h3)" ]
  run ! reaches h1 h3
  kill -0 "$client"
  on h1 pkill perl
  wait "$client" || true
  start_host h3
  until_true reaches h1 h3
  [ "$(on h3 hostname)" = h3 ]
}

@test "hosts end with the process that made them, even if it is killed" {
  cat > maker <<'END'
. "$1/../tools/wait.bash"
. "$1/hosts.bash"
make_hosts 1
host_init_of h1 > pid.new
mv pid.new pid
sleep 1000
END
  BATS_FILE_TMPDIR=$T bash maker "$BATS_TEST_DIRNAME" 3>&- &
  local maker=$!
  until_true test -s pid
  kill -0 "$(cat pid)"
  kill -9 "$maker"
  until_true is_gone "$(cat pid)"
}
is_gone() { ! kill -0 "$1" 2> /dev/null; }

@test "training with mpirun over three hosts has the bits of one host" {
  need_mpi
  make_set
  train 1 "$T/one" --steps 6 --reproducible
  export OMPI_MCA_plm_rsh_agent="ssh -o BatchMode=yes -i $LAB/key -p $SSH_PORT"
  export OMPI_MCA_btl_tcp_if_include=$LAN.0/24 OMPI_MCA_oob_tcp_if_include=$LAN.0/24
  # env, because mpirun passes no variables on to other hosts.
  on h1 mpirun --host h1,h2,h3 \
    env ${TRIREME_PLUGIN_PATH+"TRIREME_PLUGIN_PATH=$TRIREME_PLUGIN_PATH"} ${OMP_WAIT_POLICY+"OMP_WAIT_POLICY=$OMP_WAIT_POLICY"} \
    "$TRIREME" train --data "$SET" --run "$T/three" "${MODEL[@]}" --steps 6 --reproducible > out 2>&1 || { cat out; false; }
  grep -q "rank 2 on h3" out || grep -q "3 hosts" out || { cat out; false; }
  same_state "$T/one" "$T/three"
  for host in h1 h2 h3; do
    [ -z "$(processes_on $host)" ]
  done
}
