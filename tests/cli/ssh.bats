#!/usr/bin/env bats
# trireme launch --hosts with an agent that fails. tests/cluster/ssh.bats tests launch on hosts.
bats_require_minimum_version 1.5.0
load ../tools/wait

setup() {
  cd "$BATS_TEST_TMPDIR"
  mkdir bin
  PATH=$PWD/bin:$PATH
}

@test "an agent that ends after its greeting, without a message, is reported" {
  printf '#!/bin/sh\nif [ "$1" = -G ]; then echo "port 22"; else echo "trireme-agent %s"; fi\n' \
    "$("$TRIREME" --version | sed 's/^trireme \([0-9.]*\).*/\1/')" > bin/ssh
  chmod 755 bin/ssh
  "$TRIREME" launch --hosts elsewhere -- bench allreduce > out 2>&1 3>&- &
  until_true grep -q "elsewhere is lost: host elsewhere closed the connection" out || { cat out; false; }
  kill -TERM $!
  code=0
  wait $! || code=$?
  [ $code -eq 3 ]
}
