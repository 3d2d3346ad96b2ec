#!/usr/bin/env bats
# translate on the command line: sampling, lengths, slow writers, invalid bytes.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set" MODEL="$BATS_FILE_TMPDIR/run/checkpoints/latest"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 400 --out "$SET" > /dev/null
  "$TRIREME" train --quiet --device cpu --data "$SET" --run "$BATS_FILE_TMPDIR/run" --preset tiny --d-model 32 --ffn-dim 64 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --warmup-steps 10 --valid-every 0 --steps 40 --lr-scheduler constant --lr 3e-3 \
    --threads 1 > /dev/null 2>&1
}

setup() {
  T=$BATS_TEST_TMPDIR
  head -n 40 "$SET/test.src" > "$T/in"
}

translate() {
  "$TRIREME" translate --quiet --model "$MODEL" --device cpu --threads 1 "$@"
}

# The score with --length-penalty 1 is the sum of the log probabilities divided by (5 + tokens + 1) / 6.
@test "--max-length bounds every output" {
  translate --beam-size 1 < "$T/in" > "$T/free"
  for penalty in 0 1; do
    translate --beam-size 1 --max-length 3 --scores --length-penalty $penalty < "$T/in" > "$T/$penalty"
  done
  cut -f 2- "$T/0" > "$T/short"
  cut -f 2- "$T/1" | cmp - "$T/short"
  [ "$(wc -l < "$T/short")" -eq 40 ]
  run -1 cmp -s "$T/free" "$T/short"
  paste "$T/0" "$T/1" | awk -F '\t' '{ printf "%.0f\n", 6 * $1 / $3 - 6 }' | sort -n | uniq -c > "$T/lengths"
  cat "$T/lengths"
  [ "$(tail -n 1 "$T/lengths" | awk '{ print $2 }')" -eq 3 ]
}

@test "samples depend on seed and line, not on batches" {
  translate --sample --nbest 3 --scores < "$T/in" > "$T/a"
  translate --sample --nbest 3 --scores --batch-tokens 16 < "$T/in" > "$T/b"
  cmp "$T/a" "$T/b"
  [ "$(wc -l < "$T/a")" -eq 120 ]
  while read -r line; do echo "$line"; sleep 0.05; done < "$T/in" | translate --sample --nbest 3 --scores > "$T/c"
  cmp "$T/a" "$T/c"
  translate --sample --nbest 3 --scores --seed 2 < "$T/in" > "$T/d"
  run -1 cmp -s "$T/a" "$T/d"
  translate --sample < "$T/in" > "$T/one"
  awk -F' [|][|][|] ' '$1 != last { print $2; last = $1 }' last=- "$T/a" | cmp - "$T/one"
  # The same sentence on two lines gets independent samples.
  yes "$(head -n 1 "$T/in")" | head -n 20 | translate --sample | sort -u > "$T/unlike"
  [ "$(wc -l < "$T/unlike")" -gt 1 ]
}

@test "--top-k 1 samples the output of greedy search" {
  translate --beam-size 1 < "$T/in" > "$T/greedy"
  translate --sample --top-k 1 < "$T/in" | cmp - "$T/greedy"
}

# Prints how much lower the log probability of the worst sampled first word is than that of the
# best.
worst_first_word() {  # argument: temperature
  translate --beam-size 1 --length-penalty 0 --max-length 1 --scores < "$T/in" > "$T/best"
  translate --sample --temperature "$1" --seed 3 --max-length 1 --scores < "$T/in" > "$T/drawn"
  [ "$(wc -l < "$T/drawn")" -eq 40 ]
  paste "$T/best" "$T/drawn" | awk -F '\t' '{ gap = $1 - $3; if (gap > worst) worst = gap } END { print worst + 0 }'
}

# At temperature 0.01 a word whose log probability is 0.25 lower has e^-25 of the probability of
# the best one, for any model; at temperature 1 three quarters of it.
@test "a temperature near 0 samples only the most probable words, a high one others too" {
  cold=$(worst_first_word 0.01)
  warm=$(worst_first_word 1)
  echo "cold $cold, warm $warm"
  awk -v cold="$cold" -v warm="$warm" 'BEGIN { exit !(cold < 0.25 && warm > 0.25) }'
}

@test "options that exclude each other are an error with the remedy" {
  for call in "--temperature 2" "--top-k 5" "--seed 2"; do
    run translate $call < "$T/in"
    [ "$status" -eq 2 ]
    [[ "$output" =~ "add --sample" ]]
  done
  for call in "--beam-size 2" "--length-penalty 1"; do
    run translate --sample $call < "$T/in"
    [ "$status" -eq 2 ]
    [[ "$output" =~ "leave out one of the two" ]]
  done
  run translate --nbest 5 < "$T/in"
  [ "$status" -eq 2 ]
  [[ "$output" =~ "raise --beam-size" ]]
  run translate --max-length 0 < "$T/in"
  [ "$status" -eq 2 ]
}

@test "a line from a slow writer is translated before the next is written" {
  coproc WORK { translate --beam-size 2 --scores 2> "$T/err"; }
  local work=$WORK_PID  # bash no longer knows the pid after the process has ended
  for i in 1 2 3; do
    sed -n "${i}p" "$T/in" >&"${WORK[1]}"
    IFS= read -r -t 120 line <&"${WORK[0]}"
    [ -n "$line" ]
    echo "$line" >> "$T/slow"
  done
  eval "exec ${WORK[1]}>&-"
  wait "$work"
  head -n 3 "$T/in" | translate --beam-size 2 --scores | cmp - "$T/slow"
}

@test "CRLF, a byte-order mark and a last line without its end change nothing" {
  head -n 3 "$T/in" > "$T/three"
  translate < "$T/three" > "$T/out"
  sed 's/$/\r/' "$T/three" | translate | cmp - "$T/out"
  { printf '\xef\xbb\xbf'; cat "$T/three"; } | translate | cmp - "$T/out"
  head -c -1 "$T/three" | translate | cmp - "$T/out"
  [ -z "$(translate < /dev/null)" ]
  [ "$(printf '\n\n' | translate | wc -l)" -eq 2 ]
  gzip -c "$T/three" | translate | cmp - "$T/out"
}

@test "an n-best list has N entries for every line, empty ones too, with its number" {
  printf '\n%s\n \n' "$(head -n 1 "$T/in")" | translate --nbest 2 > "$T/list"
  [ "$(awk -F' [|][|][|] ' '{ print $1 }' "$T/list" | tr '\n' ' ')" = "0 0 1 1 2 2 " ]
  [ "$(sed -n '1p;2p;5p;6p' "$T/list" | awk -F' [|][|][|] ' '{ print $2 }' | tr -d '\n')" = "" ]
  [ "$(sed -n 3p "$T/list" | awk -F' [|][|][|] ' '{ print NF }')" -eq 4 ]
}

@test "sentence numbers of an n-best list go on over blocks of lines" {
  for _ in $(seq 30); do cat "$T/in"; done > "$T/many"  # more lines than a block has (512)
  translate --nbest 2 --beam-size 2 --max-length 1 < "$T/many" | awk '{ print $1 }' > "$T/numbers"
  seq 0 1199 | sed p | cmp - "$T/numbers"
}

@test "an n-best list is sorted by its last column, and --scores does not change it" {
  translate --nbest 3 < "$T/in" > "$T/list"
  awk -F' [|][|][|] ' '$1 == line && $4 > last { exit 1 } $3 != "Score= " $4 { exit 1 } { line = $1; last = $4 }' "$T/list"
  translate --nbest 3 --scores < "$T/in" | cmp - "$T/list"
}

@test "--model takes a run: its best checkpoint" {
  cp -r "$BATS_FILE_TMPDIR/run" "$T/run"
  ln -sfn "$(readlink "$T/run/checkpoints/latest")" "$T/run/checkpoints/best"
  "$TRIREME" translate --model "$T/run" --device cpu --threads 1 < "$T/in" > "$T/out" 2> "$T/err"
  grep -qxF "model    $T/run/checkpoints/best" "$T/err"
  translate < "$T/in" | cmp - "$T/out"
}

@test "--model takes a run without a best checkpoint: the latest" {
  "$TRIREME" translate --model "$BATS_FILE_TMPDIR/run" --device cpu --threads 1 < "$T/in" > "$T/out" 2> "$T/err"
  grep -qF "model    $BATS_FILE_TMPDIR/run/checkpoints/step-" "$T/err"
  grep -qF "the latest" "$T/err"
  translate < "$T/in" | cmp - "$T/out"
}

@test "--model with a run that has no checkpoint is an error that says so" {
  mkdir -p "$T/run/checkpoints"
  run "$TRIREME" translate --model "$T/run" --device cpu < "$T/in"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "$T/run is a run without a checkpoint" ]]
  [[ "$output" =~ "--resume" ]]
}

@test "--model with a missing path or no model is an error that says what to pass" {
  run "$TRIREME" translate --model "$T/nowhere" --device cpu < "$T/in"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "--model $T/nowhere: there is no such directory" ]]
  [[ "$output" =~ "(RUN/checkpoints/best)" ]]
  run "$TRIREME" translate --model "$T" --device cpu < "$T/in"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "not a model" ]]
  [[ "$output" =~ "RUN/checkpoints/best" ]]
}

@test "a mistyped --input is an error before the model is loaded" {
  run "$TRIREME" translate --model "$T/nowhere" --input "$T/nothing" --device cpu
  [ "$status" -eq 1 ]
  [[ "$output" == *"cannot open $T/nothing: No such file or directory"* ]]
}

@test "bytes that are not UTF-8 are an error after the lines before them are translated" {
  { head -n 2 "$T/in"; printf 'ab\377\n'; head -n 1 "$T/in"; } > "$T/odd"
  status=0; translate < "$T/odd" > "$T/out" 2> "$T/err" || status=$?
  [ "$status" -eq 1 ]
  head -n 2 "$T/in" | translate | cmp - "$T/out"
  grep -q "standard input:3: byte 3 .*iconv" "$T/err"
  { head -n 1 "$T/in"; printf 'a\0b\n'; } > "$T/odd"
  status=0; translate < "$T/odd" > "$T/out" 2> "$T/err" || status=$?
  [ "$status" -eq 1 ]
  [ "$(wc -l < "$T/out")" -eq 1 ]
  grep -q "standard input:2: byte 2 .*NUL" "$T/err"
}

@test "a line that is too long is cut with a warning that names it" {
  { head -n 1 "$T/in"; for i in $(seq 40); do head -n 40 "$T/in" | tr '\n' ' '; done; echo; } > "$T/long"
  translate --beam-size 1 --max-length 4 < "$T/long" > "$T/out" 2> "$T/err"
  [ "$(wc -l < "$T/out")" -eq 2 ]
  grep -q "line 2 is longer" "$T/err"
}

# wait_for PATTERN FILE: waits until a line of the file matches.
wait_for() {
  for _ in $(seq 1200); do
    grep -q -e "$1" "$2" && return 0
    sleep 0.1
  done
  cat "$2"
  return 1
}

# on_terminal OPTION…: runs translate with terminals as input and output; descriptor 8 is the
# keyboard, $T/screen the screen.
on_terminal() {
  script -qec true /dev/null > /dev/null 2>&1 || skip "no script(1), or no terminals for it to make"
  mkfifo "$T/keys"
  exec 8<> "$T/keys"
  : > "$T/screen"
  script -qefc "'$TRIREME' translate --model '$MODEL' --beam-size 2 --device cpu --threads 1 $*" /dev/null < "$T/keys" > "$T/screen" 3>&- 8>&- &
  terminal=$!
}

@test "on a terminal the prompt is printed before anything is read, and each translation at once" {
  head -n 2 "$T/in" | translate --beam-size 2 > "$T/want"
  on_terminal
  wait_for 'type a sentence' "$T/screen"
  wait_for '^> ' "$T/screen"  # nothing has been typed yet
  for i in 1 2; do
    sed -n "${i}p" "$T/in" >&8
    wait_for "^$(sed -n "${i}p" "$T/want" | sed 's/[][.*^$\\]/\\&/g')" "$T/screen"
  done
  printf '\004' >&8
  wait "$terminal"
  [ "$(grep -c '^> ' "$T/screen")" -eq 3 ]
}

@test "--quiet gives no prompt" {
  on_terminal --quiet
  head -n 1 "$T/in" >&8
  wait_for "^$(head -n 1 "$T/in" | translate --beam-size 2 | sed 's/[][.*^$\\]/\\&/g')" "$T/screen"
  printf '\004' >&8
  wait "$terminal"
  run grep -c -e '^> ' -e 'type a' "$T/screen"
  [ "$output" -eq 0 ]
}

@test "bench translate makes outputs of the requested lengths" {
  printf '5 6\n9 9\n3 12\n' > "$T/lengths"
  run "$TRIREME" bench translate --preset tiny --vocab-size 500 --lengths "$T/lengths" --beam-size 3 --device cpu --threads 1 --json
  [ "$status" -eq 0 ]
  perl -MJSON::PP -e '$j = decode_json($ARGV[0]); exit !($j->{tok_s} > 0 && $j->{cpu_s} > 0 && $j->{beam} == 3)' "$output"
  run "$TRIREME" bench translate --preset tiny --vocab-size 500 --lengths "$T/lengths" --batch-sentences 1 --device cpu --threads 1 --json
  [ "$status" -eq 0 ]
  perl -MJSON::PP -e '$j = decode_json($ARGV[0]); exit !($j->{batches} == 3 && $j->{steps} == 24 && $j->{graphs} == 0
    && $j->{p50_ms} > 0 && $j->{max_ms} >= $j->{p99_ms} && $j->{p99_ms} >= $j->{p50_ms})' "$output"
  run "$TRIREME" bench translate --preset tiny
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--lengths" ]]
}

@test "the GPU in use is named, but not with --quiet" {
  local model=$MODEL
  load ../ranks/support  # overwrites MODEL
  BATS_FILE_TMPDIR=$T make_gpu
  export TRIREME_PLUGIN_PATH="$T/plugins"
  for device in auto cuda; do
    "$TRIREME" translate --model "$model" --device $device < "$T/in" > "$T/out" 2> "$T/err"
    [ "$(cat "$T/err")" = "device   cuda:0: fake GPU" ]
    "$TRIREME" translate --model "$model" --device $device --quiet < "$T/in" > "$T/quiet" 2> "$T/err"
    [ ! -s "$T/err" ]
    cmp "$T/out" "$T/quiet"
  done
  "$TRIREME" translate --model "$model" --device cpu --threads 1 < "$T/in" > "$T/cpu" 2> "$T/err"
  [ ! -s "$T/err" ]
  cmp "$T/out" "$T/cpu"
}

# make_streams: builds a plug-in with a fake GPU that has streams, and puts it first in the search path.
make_streams() {
  local root=$BATS_TEST_DIRNAME/../.. version
  version=$("$TRIREME" --version | sed 's/^trireme \([0-9.]*\).*/\1/')
  mkdir "$T/plugins"
  "${CC:-cc}" -std=c11 -O1 -shared -fPIC -D_GNU_SOURCE -DTRIREME_VERSION="\"$version\"" -I"$root/src" \
    -o "$T/plugins/libtrireme-cuda.so" "$root/tests/device/fake_streams.c"
  export TRIREME_PLUGIN_PATH="$T/plugins" FAKE_STREAMS="$T/streams"
}

@test "batches on several streams of a GPU give the translations of one stream, in order" {
  make_streams
  for _ in 1 2; do cat "$T/in"; done > "$T/many"
  gpu() { "$TRIREME" translate --quiet --model "$MODEL" --device cuda --scores --nbest 2 --beam-size 3 --batch-tokens 64; }
  for n in 1 2 3 8; do
    TRIREME_STREAMS=$n gpu < "$T/many" > "$T/out$n"
    [ "$(cat "$T/streams")" = "$((n - 1)) $((n - 1)) $([ $n = 1 ] && echo "not bound" || echo bound)" ]
    cmp "$T/out1" "$T/out$n"
  done
  [ "$(wc -l < "$T/out1")" -eq 160 ]
  # three streams without the variable
  gpu < "$T/many" > "$T/usual"
  cmp "$T/out1" "$T/usual"
  [ "$(cat "$T/streams")" = "2 2 bound" ]
  # one batch needs one stream
  head -n 1 "$T/in" | gpu > "$T/line"
  head -n 2 "$T/out1" | cmp - "$T/line"
  [ "$(cat "$T/streams")" = "0 0 not bound" ]
  # samples depend on seed and line
  for n in 1 3; do TRIREME_STREAMS=$n "$TRIREME" translate --quiet --model "$MODEL" --device cuda --sample --nbest 2 --scores \
    --batch-tokens 64 < "$T/many" > "$T/sample$n"; done
  cmp "$T/sample1" "$T/sample3"
}

@test "a GPU with little memory gets small batches and one stream" {
  make_streams
  "$TRIREME" translate --quiet --model "$MODEL" --device cuda --beam-size 2 < "$T/in" > "$T/roomy"
  FAKE_FREE=1000000 "$TRIREME" translate --model "$MODEL" --device cuda --beam-size 2 < "$T/in" > "$T/tight" 2> "$T/err"
  cmp "$T/roomy" "$T/tight"
  [ "$(cat "$T/streams")" = "0 0 not bound" ]
  grep -q "^device   batches at a time: 1 instead of 3: not enough free memory" "$T/err"
}

@test "bench translate on several streams makes outputs of the requested lengths" {
  make_streams
  for i in 5 9 3 7 4 8; do echo "$i $((i + 2))"; done > "$T/lengths"
  TRIREME_STREAMS=3 "$TRIREME" bench translate --preset tiny --vocab-size 500 --lengths "$T/lengths" --beam-size 2 --device cuda \
    --batch-sentences 2 --json > "$T/json"
  perl -MJSON::PP -0777 -ne '$j = decode_json($_); exit !($j->{streams} == 3 && $j->{batches} == 3 && $j->{steps} == 23)' "$T/json"
  # one sentence at a time: its latency is measured
  TRIREME_STREAMS=3 "$TRIREME" bench translate --preset tiny --vocab-size 500 --lengths "$T/lengths" --beam-size 2 --device cuda \
    --batch-sentences 1 --json > "$T/json"
  perl -MJSON::PP -0777 -ne '$j = decode_json($_); exit !($j->{streams} == 1 && $j->{batches} == 6 && $j->{steps} == 42)' "$T/json"
}

@test "--output writes the file that standard output would be" {
  translate --beam-size 2 < "$T/in" > "$T/plain"
  echo old > "$T/file"
  translate --beam-size 2 --output "$T/file" < "$T/in" > "$T/stdout"
  cmp "$T/plain" "$T/file"
  [ ! -s "$T/stdout" ]
}

@test "an --output on a full disk, in a missing directory or equal to the input is an error with its name" {
  run translate --beam-size 2 --output /dev/full < "$T/in"
  [ "$status" -eq 1 ]
  [[ "$output" == *"cannot write /dev/full: No space left on device"* ]]
  run translate --output "$T/no-such-folder/file" < "$T/in"
  [ "$status" -eq 1 ]
  [[ "$output" == *"cannot create $T/no-such-folder/file: No such file or directory"* ]]
  cp "$T/in" "$T/both"
  run translate --input "$T/both" --output "$T/both"
  [ "$status" -eq 2 ]
  [[ "$output" == *"--output $T/both is the --input too"* ]]
  cmp "$T/in" "$T/both"
}

@test "a mistyped checkpoint of a run is answered with the best one" {
  mkdir -p "$T/run/checkpoints"
  cp -r "$MODEL/" "$T/run/checkpoints/best"
  for typo in best checkpoints/bset checkpoints/best/1; do
    run -1 "$TRIREME" translate --quiet --model "$T/run/$typo" --device cpu < "$T/in"
    [[ "$output" =~ "--model $T/run/$typo: there is no such directory" ]]
    [[ "$output" =~ "its run has a model in $T/run/checkpoints/best" ]]
  done
}

@test "beam search works with a small stack, on every thread" {
  translate --beam-size 4 < "$T/in" > "$T/usual"
  (
    ulimit -s 256
    "$TRIREME" translate --quiet --model "$MODEL" --device cpu --threads 2 --beam-size 4 < "$T/in" > "$T/small"
  )
  cmp "$T/usual" "$T/small"
}
