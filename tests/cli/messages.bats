#!/usr/bin/env bats
# The output of train and inspect: correct figures, and commands that can be copied.

load ../tools/wait

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 2000 --vocab-size 400 --out "$SET" > /dev/null
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# train RUN [OPTION…]: trains a tiny model for a few steps.
train() {
  local run=$1
  shift
  "$TRIREME" train --data "$SET" --run "$run" --preset tiny --d-model 16 --ffn-dim 16 --heads 2 --encoder-layers 1 \
    --decoder-layers 1 --batch-tokens 256 --warmup-steps 10 --log-every 5 --threads 1 --device cpu "$@"
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

@test "a validation sentence that no batch can hold is an error before the run begins" {
  cut -d ' ' -f 1-3 "$SET/test.src" > "$T/train.src"
  cut -d ' ' -f 1-3 "$SET/test.ref" > "$T/train.ref"
  "$TRIREME" prepare --quiet --train "$T/train.src" "$T/train.ref" --valid "$SET/valid.src" "$SET/valid.ref" --vocab-size 100 --out "$T/short" > /dev/null
  need=$("$TRIREME" inspect "$T/short" --json |
    perl -MJSON::PP -e 'undef $/; $l = decode_json(<>)->{splits}{valid}{longest}; $m = $l->{source} > $l->{target} ? $l->{source} : $l->{target}; print $m + 1')
  SET="$T/short" run train "$T/run" --steps 2 --batch-tokens $((need - 1))
  [ "$status" -eq 2 ]
  [[ "$output" == *"the validation text, $need tokens with its end mark; give --batch-tokens $need or more"* ]]
  [ ! -e "$T/run" ]
  SET="$T/short" train "$T/run" --steps 2 --batch-tokens $((need - 1)) --valid-every 0
}

@test "the command that continues a stopped run can be copied, blanks and quotes included" {
  run_dir="$T/my run's"
  train "$run_dir" --steps 1000000 --valid-every 0 --save-every 1000000 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_true test -s "$run_dir/metrics.jsonl"
  kill -INT "$(pgrep -P $child trireme || echo $child)"
  wait $child || true
  command=$(sed -n 's/^continue with: trireme //p' "$T/out")
  [ -n "$command" ]
  eval "set -- $command"
  run "$TRIREME" "$@" --max-time 1s --average-checkpoints 0 --valid-every 0
  [ "$status" -eq 0 ]
  [[ "$output" == *"resume   step "* ]]
}

# printed WORD FILE: prints the numbers that follow a word in the lines of a log.
printed() {
  sed -n "s/.*  $1 \([0-9.e+-]*\).*/\1/p" "$2"
}

# recorded FIELD RUN: prints the values of a field of metrics.jsonl, one per line.
recorded() {
  perl -MJSON::PP -ne 'BEGIN { $f = shift } $v = decode_json($_)->{$f}; printf "%.4f\n", $v if defined $v' "$1" "$2/metrics.jsonl"
}

@test "training and validation print the negative log-likelihood, and its perplexity" {
  train "$T/run" --steps 10 --valid-every 5 --samples 0 --beam-size 1 --average-checkpoints 0 --label-smoothing 0.3 > /dev/null 2> "$T/err"
  grep '^step ' "$T/err" > "$T/steps"
  grep '^valid    step ' "$T/err" > "$T/valid"
  [ "$(wc -l < "$T/steps")" -eq 2 ]
  [ "$(wc -l < "$T/valid")" -eq 2 ]
  cmp <(printed loss "$T/steps") <(recorded nll "$T/run")
  cmp <(printed loss "$T/valid") <(recorded valid_nll "$T/run")
  # With label smoothing the training loss differs from the nll.
  run cmp -s <(recorded loss "$T/run") <(recorded nll "$T/run")
  [ "$status" -eq 1 ]
  for log in steps valid; do
    paste <(printed loss "$T/$log") <(printed ppl "$T/$log") | awk '{ e = exp($1) / $2 - 1; if (e < -1e-3 || e > 1e-3) exit 1 }'
  done
  grep -q '  gnorm [0-9]' "$T/steps"
}

@test "--valid-every 0 never validates: no best, no BLEU" {
  train "$T/run" --steps 4 --valid-every 0 --save-every 2 --average-checkpoints 2 > "$T/out" 2> "$T/err"
  [ -L "$T/run/checkpoints/latest" ]
  [ ! -e "$T/run/checkpoints/best" ]
  run grep -e '^valid' -e BLEU "$T/out" "$T/err"
  [ "$status" -eq 1 ]
  run grep valid_ "$T/run/metrics.jsonl"
  [ "$status" -eq 1 ]
  grep -qx "average of the last 2 checkpoints: in $T/run/average" "$T/out"
}

@test "--valid-every 0 with --patience is refused" {
  run train "$T/run" --steps 4 --valid-every 0 --patience 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"--patience 2 counts validations"* ]]
  [ ! -e "$T/run" ]
}

@test "the average of one checkpoint is not made" {
  train "$T/run" --steps 3 --valid-every 3 --samples 0 --beam-size 1 --average-checkpoints 5 > "$T/out" 2> "$T/err"
  [ ! -e "$T/run/average" ]
  grep -q 'average  none: the run has one checkpoint, of step 3' "$T/err"
  run grep average "$T/out"
  [ "$status" -eq 1 ]
}

# screen COLUMNS COMMAND: prints what a terminal of this width shows, one line for each rewritten
# line.
screen() {
  script -qec true /dev/null > /dev/null 2>&1 || skip "no script(1), or no terminals for it to make"
  SHELL=$BASH TERM=${SCREEN_TERM-xterm} script -qec "stty cols $1; $2" /dev/null < /dev/null | tr '\r' '\n'
}

@test "a line that is rewritten fits the terminal" {
  declare -f train > "$T/train"
  screen 40 "source '$T/train'; SET='$SET' TRIREME='$TRIREME' train '$T/run' --steps 10 --valid-every 0" > "$T/screen"
  grep -o $'^\033\\[Kstep .*' "$T/screen" > "$T/live"
  [ "$(wc -l < "$T/live")" -ge 2 ]
  awk 'length($0) > 3 + 39 { exit 1 }' "$T/live"
  grep -q '  gnorm ' "$T/run/log.txt"  # the terminal shows the whole line
}

@test "a dumb terminal gets plain lines" {
  declare -f train > "$T/train"
  SCREEN_TERM=dumb screen 80 "source '$T/train'; SET='$SET' TRIREME='$TRIREME' train '$T/run' --steps 10 --valid-every 0" > "$T/screen"
  grep -q '^step 10 ' "$T/screen"
  run grep -c $'\033' "$T/screen"
  [ "$output" -eq 0 ]
}

@test "the commands that a recipe prints can be copied, blanks included" {
  here="$BATS_TEST_DIRNAME/../../recipes/demo" OUT="$T/out" times="$T/times" NO_COLOR=1 \
    bash -euc 'source "$here/../common.bash"; timed step printf "%s|" "a b" c' > "$T/said" 2> "$T/err"
  command=$(sed -n 's/^\$ //p' "$T/err")
  [ "$(eval "$command")" = "a b|c|" ]
}

# hidden COMMAND…: the command fails and prints the URL without its password.
hidden() {
  run "$TRIREME" "$@" --quiet
  case $status:$output in
    *secret*) echo "$*: $output"; return 1 ;;
    1:*"https://***@host/"*) ;;
    *) echo "$*: status $status, $output"; return 1 ;;
  esac
}

@test "a URL where a local file or directory is wanted is shown without its password" {
  url=https://user:secret@host/t
  echo "a b c" > "$T/a"
  for command in "inspect $url" "inspect $url.partial" "train --data $url --run $T/run --steps 1 --device cpu" \
    "translate --model $url --device cpu" "prepare --train $T/a $T/a --valid $T/a $T/a --tokenizer $url --out $T/out"; do
    hidden $command
    [[ "$output" == *"only local files are supported, not https://"* ]]
  done
  hidden prepare --train $url "$T/a" --valid "$T/a" "$T/a" --vocab-size 50 --out "$T/out2"
  hidden score --ref $url --hyp "$T/a"
}

@test "a URL as --run or --out is refused before any work" {
  run "$TRIREME" prepare --quiet --train a b --valid a b --out s3://bucket/set
  [ "$status" -ne 0 ]
  [[ "$output" == *"only local files"* ]]
  run "$TRIREME" train --data nowhere --run s3://bucket/run --device cpu
  [ "$status" -ne 0 ]
  [[ "$output" == *"only local files"* ]]
}

# empty OPTION WORDS COMMAND…: the command fails because the value of OPTION is empty.
empty() {
  run "$TRIREME" "${@:3}"
  [ "$status" -eq 2 ]
  [ "$output" = "trireme: $1: the value is empty; pass $2" ]
}

@test "an empty name of a file or directory is refused, and nothing is written" {
  mkdir "$T/empty"
  cd "$T/empty"
  empty --run DIR train --data set --run '' --device cpu
  empty --out DIR prepare --recipe demo --out ''
  empty --train 'SRC TGT' prepare --train a '' --out out
  empty --train 'SRC TGT' prepare --train '' b --out out
  [ -z "$(ls -A)" ]
}
