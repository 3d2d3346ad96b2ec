#!/usr/bin/env bats
# Standard output that cannot be written: a pipe without a reader, a full disk, a closed
# descriptor.

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set" MODEL="$BATS_FILE_TMPDIR/run/checkpoints/latest"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 1000 --vocab-size 300 --out "$SET" > /dev/null
  "$TRIREME" train --quiet --data "$SET" --run "$BATS_FILE_TMPDIR/run" --preset tiny --d-model 16 --ffn-dim 16 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --valid-every 0 --steps 1 --average-checkpoints 0 --threads 1 --device cpu > /dev/null
}

setup() {
  cd "$BATS_TEST_TMPDIR"
}

# Calls of all commands that print, one per line.
calls() {
  echo "help"
  echo "help train"
  echo "--version"
  echo "inspect $SET"
  echo "inspect $SET --json"
  echo "score --ref $SET/test.ref --hyp $SET/test.ref"
  echo "translate --model $MODEL --device cpu --threads 1 --input $SET/test.src --max-length 2 --beam-size 1"
}

# into_nobody WORD…: runs the call with a closed pipe as standard output.
into_nobody() {
  local reader
  exec 9> >(exec true)
  reader=$!
  wait "$reader" || true
  "$TRIREME" "$@" >&9 2> err
}

@test "a reader that has ended gives no message, and the status of SIGPIPE" {
  while read -r call; do
    code=0
    into_nobody $call || code=$?
    echo "$call: $code, $(cat err)"
    [ "$code" -eq 141 ]
    [ ! -s err ]
  done < <(calls)
}

@test "translate | head -1 is quiet" {
  yes "$(head -n 1 "$SET/test.src")" | head -n 3000 > lines
  "$TRIREME" translate --model "$MODEL" --device cpu --threads 1 --max-length 2 --beam-size 1 --input lines 2> err | head -n 1 > first
  [ "$(wc -l < first)" -eq 1 ]
  [ ! -s err ]
}

@test "a usage error is printed even if nobody reads the output" {
  code=0
  into_nobody help xyzzy || code=$?
  [ "$code" -eq 2 ]
  grep -q "no command 'xyzzy'" err
}

@test "a full disk is an error with its reason" {
  [ -e /dev/full ] || skip "no /dev/full"
  while read -r call; do
    code=0
    "$TRIREME" $call > /dev/full 2> err || code=$?
    echo "$call: $code, $(cat err)"
    [ "$code" -eq 1 ]
    grep -q '^trireme: cannot write standard output: No space left on device; ' err
    [ "$(wc -l < err)" -eq 1 ]
  done < <(calls)
}

@test "a closed standard output is an error, and no file takes its place" {
  while read -r call; do
    code=0
    "$TRIREME" $call >&- 2> err || code=$?
    echo "$call: $code, $(cat err)"
    [ "$code" -eq 1 ]
    grep -q '^trireme: cannot write standard output: ' err
  done < <(calls)
}
