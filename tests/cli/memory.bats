#!/usr/bin/env bats
# Commands whose n-th allocation and all later ones fail, for many n (TRIREME_FAULT=memory:N): those that start processes.
# The others are called in one process by test_faults_memory.c.

bats_require_minimum_version 1.5.0
load ../ranks/support

# walk LEAST DENSE COMMAND…: runs the command with n = 1 to DENSE, then every 23rd, until it succeeds. Every failure has
# status 1 and a reason; LEAST of them or more say that memory is short.
walk() {
  local least=$1 dense=$2 n status short=0
  shift 2
  for ((n = 1; n < 2000; n += n < dense ? 1 : 23)); do
    rm -rf run
    status=0
    TRIREME_FAULT=memory:$n timeout 60 "$TRIREME" "$@" > out 2> err < /dev/null || status=$?
    if [ "$status" -eq 0 ]; then break; fi
    if [ "$status" -ne 1 ] || ! grep -q '^trireme: ' err; then
      echo "allocation $n: status $status: $(cat err)"
      return 1
    fi
    if grep -q 'out of memory' err; then short=$((short + 1)); fi
  done
  echo "$short times out of memory, success at $n"
  [ "$n" -lt 2000 ]
  [ "$short" -ge "$least" ]
}

setup() {
  cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "launch without memory ends with an error, and its ranks with it" {
  printf 'a b c\nd e f\ng h a\n' > a
  for _ in {1..20}; do cat a; done | nl -s ' ' > text
  "$TRIREME" prepare --quiet --train text text --valid a a --vocab-size 40 --out set > /dev/null
  walk 24 24 launch --nproc-per-node 1 -- train --data set --run run --steps 1 --preset tiny --d-model 8 --ffn-dim 8 \
    --heads 1 --encoder-layers 1 --decoder-layers 1 --batch-tokens 64 --device cpu --threads 1 --valid-every 0 --quiet \
    --system-metrics no
  [ -e run/checkpoints/latest/training.json ]
}

@test "cluster without memory ends with an error" {
  walk 24 200 cluster run --hosts localhost --quiet -- echo reached
  grep -q reached out
}
