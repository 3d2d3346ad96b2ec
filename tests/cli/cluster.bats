#!/usr/bin/env bats
# trireme cluster with an ssh, or a host, that does not behave as expected. tests/cluster tests the
# work on hosts.
bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_TMPDIR"
  mkdir bin
  PATH=$PWD/bin:$PATH
}

# fake_ssh COMMAND: makes an ssh whose remote host runs COMMAND instead of what it was sent.
fake_ssh() {
  printf '#!/bin/sh\nif [ "$1" = -G ]; then echo "port 22"; exit; fi\n%s\n' "$1" > bin/ssh
  chmod 755 bin/ssh
}

@test "a host that accepts the connection but runs no command has failed" {
  fake_ssh "echo welcome"
  for verb in up status down; do
    run -1 --separate-stderr "$TRIREME" cluster $verb --hosts elsewhere
    [[ $output == *"1 elsewhere: "*" FAILED: host elsewhere accepted the connection, but ran no command"* ]]
  done
  run -1 --separate-stderr "$TRIREME" cluster run --hosts elsewhere -- true
  [[ $stderr == *"elsewhere: host elsewhere accepted the connection, but ran no command"* ]]
}

@test "a host that prints notes without end is ended, and few of them are printed" {
  fake_ssh 'echo trireme-begin; exec yes "note $(head -c 3000 /dev/zero | tr "\\0" n)"'
  run -1 --separate-stderr "$TRIREME" cluster status --hosts elsewhere
  [[ $output == *"FAILED: host elsewhere prints without end (more than 16 MB)"* ]]
  [ "${#output}" -lt 200000 ]
}

@test "an ssh that closes its output and stays is ended when the call is interrupted, exit status 3" {
  mkfifo started
  fake_ssh "exec >&- 2>&-; echo > '$PWD/started'; exec sleep 1000"
  "$TRIREME" cluster status --hosts elsewhere --host-timeout 3600 > out 2>&1 3>&- &
  read -r < started
  kill -TERM $!
  code=0
  wait $! || code=$?
  [ $code -eq 3 ]
}
