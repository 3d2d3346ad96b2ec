#!/usr/bin/env bats
# What train and inspect print: figures that mean what they say, commands that can be copied.

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 2000 --vocab-size 400 --out "$SET" > /dev/null
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# train RUN [OPTION…]: a tiny model, a few steps.
train() {
  local run=$1
  shift
  "$TRIREME" train --data "$SET" --run "$run" --preset tiny --width 16 --feed-width 16 --heads 2 --encoder-layers 1 \
    --decoder-layers 1 --batch-tokens 256 --warmup 10 --log-every 5 --threads 1 --device cpu "$@"
}

@test "too few --batch-tokens are answered with the number that the longest sentence needs" {
  need=$("$TRIREME" inspect "$SET" --json |
    perl -MJSON::PP -e 'undef $/; $l = decode_json(<>)->{splits}{train}{longest}; $m = $l->{source} > $l->{target} ? $l->{source} : $l->{target}; print $m + 1')
  [ "$need" -gt 20 ]
  for tokens in 16 20 $((need - 1)); do
    run "$TRIREME" inspect "$SET" --batch-tokens $tokens
    [ "$status" -eq 2 ]
    [[ "$output" == *"the longest sentence, $need tokens with its end mark; give --batch-tokens $need or more"* ]]
  done
  "$TRIREME" inspect "$SET" --batch-tokens "$need" > /dev/null
}

@test "the command that continues a stopped run can be copied, blanks and quotes included" {
  run_dir="$T/my run's"
  train "$run_dir" --steps 1000000 --valid-every 0 --save-every 1000000 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  for _ in $(seq 600); do [ -s "$run_dir/metrics.jsonl" ] && break; sleep 0.1; done
  kill -INT "$(pgrep -P $child trireme || echo $child)"
  wait $child || true
  command=$(sed -n 's/^continue with: trireme //p' "$T/out")
  [ -n "$command" ]
  eval "set -- $command"
  run "$TRIREME" "$@" --time 1s --average 0 --valid-every 0
  [ "$status" -eq 0 ]
  [[ "$output" == *"resume   step "* ]]
}
