#!/usr/bin/env bats
# trireme launch by ssh on test hosts with a decoy card that is not connected: which network is
# selected, where ranks run, the error for each failure of ssh, and that no process is left on any
# host.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  make_hosts 3 --decoy isolated
  make_set
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  need_mpi
  T=$BATS_TEST_TMPDIR
  RUN=$T/run
  cd "$T"
  SSH=(--ssh-port "$SSH_PORT" --ssh-key "$LAB/key")
}

# launch HOST [OPTION of launch…] -- [OPTION of train…]: runs the command on HOST.
launch() {
  local host=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  on "$host" "$TRIREME" launch "${SSH[@]}" "${options[@]}" -- \
    train --data "$SET" --run "$RUN" "${MODEL[@]}" --steps 3 "$@"
}

nothing_runs() {
  local host
  for host in h1 h2 h3; do
    [ -z "$(processes_on $host)" ] || return 1
  done
}

# worker_on HOST: prints the process id of a rank there.
worker_on() { processes_on "$1" | grep "trireme train" | head -n 1 | cut -d ' ' -f 1; }
has_worker() { [ -n "$(worker_on "$1")" ]; }
variable_of() { tr '\0' '\n' < "/proc/$1/environ" | sed -n "s/^$2=//p"; }

@test "ranks on three hosts train over the network that connects them, with the bits of one host" {
  run launch h1 --hosts h1:1,h2,10.7.0.3:1 -- --reproducible
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"3 ranks on 3 machines over 10.7.0.0/24"* ]]
  until_true nothing_runs
  train 1 "$T/alone" --steps 3 --reproducible
  same_state "$RUN" "$T/alone"
}

@test "a machine that is not in the list can start ranks on others; each has the card of its host" {
  printf '# two hosts\nh2 slots=1\nroot@h3 slots=1 max_slots=2\n' > hosts
  launch h1 --hostfile hosts -- --steps 1000000 > out 2>&1 3>&- &
  head=$!
  until_true has_worker h2 || { cat out; false; }
  until_true has_worker h3 || { cat out; false; }
  run ! has_worker h1
  [ "$(variable_of "$(worker_on h2)" NCCL_SOCKET_IFNAME)" = "=lan2" ]
  [ "$(variable_of "$(worker_on h3)" NCCL_SOCKET_IFNAME)" = "=lan3" ]
  [ "$(variable_of "$(worker_on h3)" MASTER_ADDR)" = "$(host_address h2)" ]
  kill_all_on h1  # kills the head without a message to the agents
  wait $head || true
  until_true nothing_runs
}

@test "--network that leads nowhere is an error that names the connection" {
  run launch h1 --hosts h1,h2 --network 10.6.0.0/24 --
  echo "$output"
  [ "$status" -eq 1 ]
  [[ "$output" == *"no network connects all machines: 10.6.0.0/24: "* ]]
  [[ "$output" == *" cannot connect to "* ]]
  until_true nothing_runs
}

@test "a network card that the hosts do not share is an error that lists their addresses" {
  run launch h1 --hosts h1,h2 --network lan1 --
  echo "$output"
  [ "$status" -eq 1 ]
  [[ "$output" == *"do not share a network that fits --network lan1: h1 has "*"10.7.0.1/24 (lan1)"* ]]
  [[ "$output" == *"; h2 has "*"10.7.0.2/24 (lan2)"* ]]
  until_true nothing_runs
}

# refused TEXT [OPTION…]: a launch on h1 and h2 fails with this text.
refused() {
  local text=$1
  shift
  run launch h1 --hosts h1,h2 "$@" --
  echo "$output"
  [ "$status" -eq 1 ]
  [[ "$output" == *"$text"* ]]
  until_true nothing_runs
}

@test "a key that the host refuses is named" {
  ssh-keygen -q -t ed25519 -N '' -f other
  SSH=(--ssh-port "$SSH_PORT" --ssh-key "$T/other")
  refused "host h2 refuses your ssh key"
}

@test "a key file that others may read is named" {
  cp "$LAB/key" open
  chmod 644 open
  SSH=(--ssh-port "$SSH_PORT" --ssh-key "$T/open")
  refused "cannot use the private key"
}

@test "a port without an ssh daemon is named" {
  SSH=(--ssh-port 4445 --ssh-key "$LAB/key")
  refused "host h2 refuses the connection"
}

@test "a program that is not on the host is named" {
  refused "host h2 has no /opt/none/trireme" --remote-program /opt/none/trireme
}

@test "a file on the host that is not a program is named" {
  echo text > data
  refused "host h2 cannot execute $T/data" --remote-program "$T/data"
}

@test "another version on the host is named" {
  printf '#!/bin/sh\necho trireme-agent 99.0\nexec cat\n' > old
  chmod 755 old
  refused "host h2 has another version of trireme than this machine at $T/old (trireme-agent 99.0)" --remote-program "$T/old"
}

@test "every host that fails is reported, and one that answers is not used alone" {
  run launch h1 --hosts h1,h2,no-such-host,10.7.0.99 --
  echo "$output"
  [ "$status" -eq 1 ]
  [[ "$output" == *"host no-such-host has an unknown name"* ]]
  [[ "$output" == *"10.7.0.99"* ]]
  [[ "$output" == *"2 of 4 hosts cannot be used: no-such-host, 10.7.0.99"* ]]
  until_true nothing_runs
}

# with_known_hosts FILE [SETTING]: launches from h3, with this file of known host keys.
with_known_hosts() {
  on h3 cp /etc/ssh/ssh_config /run/kept
  printf 'GlobalKnownHostsFile %s\nUserKnownHostsFile /dev/null\n%s\n' "$1" "${2:-}" > config
  on h3 cp config /etc/ssh/ssh_config
  run launch h3 --hosts h3,h2 --
  on h3 cp /run/kept /etc/ssh/ssh_config
  echo "$output"
  [ "$status" -eq 1 ]
  until_true nothing_runs
}

@test "a host key that is not known is refused" {
  with_known_hosts /dev/null
  [[ "$output" == *"host h2 has a host key that is not known here"*"compare the fingerprint: ssh -p $SSH_PORT -i $LAB/key h2"* ]]
}

@test "a host key that is not known is refused also where the user has switched the check off" {
  with_known_hosts /dev/null "StrictHostKeyChecking no"
  [[ "$output" == *"host h2 has a host key that is not known here"* ]]
}

@test "a host key that has changed is named" {
  echo "[h2]:$SSH_PORT $(cut -d ' ' -f 1,2 "$LAB/h1/host_key.pub")" > keys
  with_known_hosts "$T/keys"
  [[ "$output" == *"host h2 has another host key than the one known here"* ]]
}
