#!/usr/bin/env bats
# translate as a user calls it: sampling, lengths, slow writers, odd bytes.

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set" MODEL="$BATS_FILE_TMPDIR/run/checkpoints/latest"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 400 --out "$SET" > /dev/null
  "$TRIREME" train --quiet --data "$SET" --run "$BATS_FILE_TMPDIR/run" --preset tiny --width 32 --feed-width 64 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 --warmup 10 --valid-every 0 --steps 40 --lr-policy fixed --lr 3e-3 \
    --threads 1 > /dev/null 2>&1
}

setup() {
  T=$BATS_TEST_TMPDIR
  head -n 40 "$SET/test.src" > "$T/in"
}

translate() {
  "$TRIREME" translate --quiet --model "$MODEL" --device cpu --threads 1 "$@"
}

@test "--max-length bounds every output" {
  translate --beam 2 < "$T/in" > "$T/free"
  translate --beam 2 --max-length 2 < "$T/in" > "$T/short"
  [ "$(wc -l < "$T/short")" -eq 40 ]
  ! cmp -s "$T/free" "$T/short"
  [ "$(wc -c < "$T/short")" -lt "$(wc -c < "$T/free")" ]
  awk 'NF > 2 { exit 1 }' "$T/short" # a token is never more than a word
}

@test "samples depend on seed and line, not on batches" {
  translate --sample --nbest 3 --scores < "$T/in" > "$T/a"
  translate --sample --nbest 3 --scores --batch-tokens 16 < "$T/in" > "$T/b"
  cmp "$T/a" "$T/b"
  [ "$(wc -l < "$T/a")" -eq 120 ]
  while read -r line; do echo "$line"; sleep 0.05; done < "$T/in" | translate --sample --nbest 3 --scores > "$T/c"
  cmp "$T/a" "$T/c"
  translate --sample --nbest 3 --scores --seed 2 < "$T/in" > "$T/d"
  ! cmp -s "$T/a" "$T/d"
  translate --sample < "$T/in" > "$T/one"
  awk -F'\t' '$1 == 1 { print $3 }' "$T/a" | cmp - "$T/one"
  # The same sentence on two lines is drawn apart.
  yes "$(head -n 1 "$T/in")" | head -n 20 | translate --sample | sort -u > "$T/unlike"
  [ "$(wc -l < "$T/unlike")" -gt 1 ]
}

@test "--top-k 1 draws what greedy search finds; a cold temperature too" {
  translate --beam 1 < "$T/in" > "$T/greedy"
  translate --sample --top-k 1 < "$T/in" | cmp - "$T/greedy"
  translate --sample --temperature 0.01 --seed 3 < "$T/in" > "$T/cold"
  [ "$(paste -d '\n' "$T/greedy" "$T/cold" | awk 'NR % 2 { a = $0; next } a == $0' | wc -l)" -ge 35 ]
}

@test "options that do not go together are told what to do" {
  for call in "--temperature 2" "--top-k 5" "--seed 2"; do
    run translate $call < "$T/in"
    [ "$status" -eq 2 ]
    [[ "$output" =~ "add --sample" ]]
  done
  for call in "--beam 2" "--alpha 1"; do
    run translate --sample $call < "$T/in"
    [ "$status" -eq 2 ]
    [[ "$output" =~ "leave it out" ]]
  done
  run translate --nbest 5 < "$T/in"
  [ "$status" -eq 2 ]
  [[ "$output" =~ "raise --beam" ]]
  run translate --max-length 0 < "$T/in"
  [ "$status" -eq 2 ]
}

@test "a line from a slow writer comes back before the next is written" {
  coproc WORK { translate --beam 2 --scores 2> "$T/err"; }
  local work=$WORK_PID # bash forgets it when the work ends
  for i in 1 2 3; do
    sed -n "${i}p" "$T/in" >&"${WORK[1]}"
    IFS= read -r -t 20 line <&"${WORK[0]}"
    [ -n "$line" ]
    echo "$line" >> "$T/slow"
  done
  eval "exec ${WORK[1]}>&-"
  wait "$work"
  head -n 3 "$T/in" | translate --beam 2 --scores | cmp - "$T/slow"
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

@test "empty lines stay empty among n-best lists" {
  printf '\n%s\n \n' "$(head -n 1 "$T/in")" | translate --nbest 2 --scores > "$T/list"
  [ "$(cut -f 1 "$T/list" | tr '\n' ' ')" = "1 1 2 1 " ]
  [ -z "$(sed -n '1p;4p' "$T/list" | cut -f 3 | tr -d '\n')" ]
}

@test "bytes that are no text are told, after the lines before them" {
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
  translate --beam 1 --max-length 4 < "$T/long" > "$T/out" 2> "$T/err"
  [ "$(wc -l < "$T/out")" -eq 2 ]
  grep -q "line 2 is longer" "$T/err"
}

@test "on a terminal it asks for a sentence" {
  command -v script > /dev/null || skip "needs script (package bsdutils)"
  head -n 1 "$T/in" | translate --beam 2 --scores > "$T/want"
  { head -n 1 "$T/in"; sleep 1; printf '\004'; } |
    script -qec "'$TRIREME' translate --model '$MODEL' --beam 2 --scores --device cpu --threads 1" /dev/null > "$T/screen"
  grep -q 'type a sentence' "$T/screen"
  grep -q '^> ' "$T/screen"
  tr -d '\r' < "$T/screen" | sed 's/^> //' | grep -qxF -e "$(cat "$T/want")"
}

@test "bench translate makes outputs of the lengths asked for" {
  printf '5 6\n9 9\n3 12\n' > "$T/lengths"
  run "$TRIREME" bench translate --preset tiny --vocab-size 500 --lengths "$T/lengths" --beam 3 --device cpu --threads 1 --json
  [ "$status" -eq 0 ]
  perl -MJSON::PP -e '$j = decode_json($ARGV[0]); exit !($j->{tok_s} > 0 && $j->{cpu_s} > 0 && $j->{beam} == 3)' "$output"
  run "$TRIREME" bench translate --preset tiny
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--lengths" ]]
}

@test "a GPU that is taken is named, but not under --quiet" {
  local model=$MODEL
  load ../ranks/support # has a MODEL of its own
  BATS_FILE_TMPDIR=$T make_gpu
  export TRIREME_PLUGIN_PATH="$T/plugins"
  for device in auto cuda; do
    "$TRIREME" translate --model "$model" --device $device < "$T/in" > "$T/out" 2> "$T/err"
    [ "$(cat "$T/err")" = "machine  cuda:0: a GPU that is none" ]
    "$TRIREME" translate --model "$model" --device $device --quiet < "$T/in" > "$T/quiet" 2> "$T/err"
    [ ! -s "$T/err" ]
    cmp "$T/out" "$T/quiet"
  done
  "$TRIREME" translate --model "$model" --device cpu --threads 1 < "$T/in" > "$T/cpu" 2> "$T/err"
  [ ! -s "$T/err" ]
  cmp "$T/out" "$T/cpu"
}
