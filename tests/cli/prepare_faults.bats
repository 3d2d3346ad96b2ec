#!/usr/bin/env bats
# prepare with invalid text, damaged files, a full disk and signals. An error names the file and
# the position; no incomplete data set looks complete; a run that was stopped and resumed writes
# the same bytes as an uninterrupted one.

load ../ranks/support

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  # Most words are from a list of 1,000, because learning a tokenizer takes time for each distinct word.
  perl -e 'srand 3; sub word { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 6 } my @list = map { word } 1 .. 1000;
    for (1 .. 12000) { print join(" ", map { int rand 30 ? $list[rand @list] : word } 1 .. 3 + int rand 9), "\n" }' > a
  tr a-l l-za-k < a > b
  head -n 60 a > va
  head -n 60 b > vb
  "$TRIREME" prepare --quiet --train a b --valid va vb --vocab-size 100 --shard-size 24k --out reference > /dev/null
  T=$PWD
  die prepare-shard:3 killed
}

setup() {
  T=$BATS_FILE_TMPDIR
  cd "$BATS_TEST_TMPDIR"
  ln -sf "$T"/{a,b,va,vb} .
  child= mounted=
}

teardown() {
  if [ -n "$child" ]; then kill -KILL "$child" 2> /dev/null || true; fi
  if [ -n "$mounted" ]; then umount "$mounted" || umount -l "$mounted"; fi
}

# call OUT [OPTION…]: sets $command to a prepare call with the text and options of the reference.
call() {
  local out=$1 valid=(--valid va vb)
  shift
  if [[ " $* " == *" --valid "* ]]; then valid=(); fi # given twice it is an error
  command=("$TRIREME" prepare --quiet "${valid[@]}" --vocab-size 100 --shard-size 24k --out "$out" "$@")
}

prepare() {
  call "$@"
  "${command[@]}"
}

# die PLACE:N OUT [OPTION…]: runs the reference's call, which kills itself at this fault point.
die() {
  local place=$1 out=$2
  shift 2
  call "$out" --train a b "$@"
  run env TRIREME_FAULT="die:$place" "${command[@]}"
  [ "$status" -eq 137 ]
}

# killed OUT: makes OUT.partial, as the reference's call leaves it when it is killed at its third shard.
killed() {
  cp -R "$T/killed.partial" "$1.partial"
}

# hang PLACE:N OUT [OPTION…]: starts the call in the background as $child; it stops at this fault
# point.
hang() {
  local place=$1 out=$2
  shift 2
  call "$out" --train a b "$@"
  # The log of an earlier call must be gone before this one is waited for.
  : > log
  TRIREME_FAULT="hang:$place" "${command[@]}" >> log 2>&1 3>&- &
  child=$!
  until grep -q 'TRIREME_FAULT: waiting' log; do
    kill -0 "$child"
    sleep 0.01
  done
}

# says WORDS…: the last error is one line and contains each of the words.
says() {
  local line
  line=$(echo "$output" | grep '^trireme: ')
  [ "$(echo "$line" | wc -l)" -eq 1 ]
  for word in "$@"; do
    case $line in *"$word"*) ;; *) echo "lacks '$word': $line"; return 1 ;; esac
  done
}

# Compares everything except the names and hashes of the inputs.
same_data() {
  diff -r -x dataset.json "$1" "$2"
}

# Tests with invalid or damaged text.

@test "a line that is not UTF-8 is named with its byte" {
  sed '4000s/^.../abc\xff/' a > bad
  run prepare out --train bad b
  [ "$status" -eq 1 ]
  says "bad:4000: byte 4 " "0xff" "--bad-utf8 drop"
  [ ! -e out ]
  sed '7s/^./\xe2\x82/' b > bad  # a truncated UTF-8 character
  run prepare other --train a bad
  [ "$status" -eq 1 ]
  says "bad:7: byte 1 " "0xe2"
  run prepare third --train a b --valid va bad
  [ "$status" -eq 1 ]
}

@test "--bad-utf8 drop counts such pairs and keeps the rest" {
  sed '4000s/^./\xff/; 5000s/$/\xc0\x80/' a > bad
  sed '6000s/^./\xed\xa0\x80/' b > bad2
  run prepare out --train bad bad2 --bad-utf8 drop
  [ "$status" -eq 0 ]
  [[ "$output" =~ "not UTF-8"\ +3\  ]]
  # After the three pairs are removed, the shards equal those of clean files.
  sed -i '4000d; 5000d; 6000d' bad
  sed '4000d; 5000d; 6000d' a > clean
  sed '4000d; 5000d; 6000d' b > clean2
  prepare clean-out --train clean clean2 --tokenizer out/tokenizer.model > /dev/null
  for file in out/train-*.tok; do cmp "$file" "clean-$file"; done
  # Validation text: no line may be dropped, because every line counts in BLEU.
  run prepare third --train a b --valid va bad2 --bad-utf8 drop
  [ "$status" -eq 1 ]
}

@test "two sides of different length are an error with both counts" {
  head -n 11000 b > short
  run prepare out --train a short
  [ "$status" -eq 1 ]
  says "a has 12000 lines" "short has 11000"
  run prepare out2 --train short a
  [ "$status" -eq 1 ]
  says "short has 11000 lines" "a has 12000"
  [ ! -e out ]
}

@test "empty files and empty text are refused" {
  : > none
  run prepare out --train none none
  [ "$status" -eq 1 ]
  says "none is empty"
  run prepare out2 --train a b --valid none none
  [ "$status" -eq 1 ]
  says "none is empty"
  yes '' | head -n 100 > blank
  run prepare out3 --train blank blank
  [ "$status" -eq 1 ]
  says "no pair is left"
  run prepare out4 --train a b --valid blank blank
  [ "$status" -eq 1 ]
  says "valid"
}

@test "a single file without a tab is named with its line" {
  paste a b | sed '777s/\t/ /' > tsv
  run prepare out --train tsv
  [ "$status" -eq 1 ]
  says "tsv:777: " "tab"
}

@test "files that cannot be read are named" {
  run prepare out --train a missing
  [ "$status" -eq 1 ]
  says "missing" "No such file"
  run prepare out2 --train a .
  [ "$status" -eq 1 ]
  says "directory"
  run prepare out3 --train a b --tokenizer missing.model
  [ "$status" -eq 1 ]
  says "missing.model"
  run prepare out4 --train a b --tokenizer a
  [ "$status" -eq 1 ]
  says "a" "not a SentencePiece model"
}

@test "a --tokenizer that is no SentencePiece model is named as given, and leaves nothing behind" {
  run prepare out --train a b --tokenizer a
  [ "$status" -eq 1 ]
  [[ "$output" == "trireme: a is not a SentencePiece model"* ]]
  [ ! -e out.partial ]
}

@test "validation text whose sides do not match is found before a tokenizer is learned" {
  run prepare out --train a b --valid va b
  [ "$status" -eq 1 ]
  says "va has" "must match line by line"
  [ ! -e out.partial ]
}

@test "test text that is not UTF-8 is found before a tokenizer is learned" {
  printf 'gut\n\377\n' > latin
  run prepare out --train a b --test latin latin
  [ "$status" -eq 1 ]
  says "latin:2" "UTF-8"
  [ ! -e out.partial ]
}

@test "a file without permission is named" {
  cp a secret
  chmod 000 secret
  if [ -r secret ]; then skip "this user reads everything"; fi
  run prepare out --train secret b
  [ "$status" -eq 1 ]
  says "secret" "Permission denied" "check the permissions"
}

@test "a call that fails at its start leaves nothing that a second call trips over" {
  run prepare out --train a missing
  [ "$status" -eq 1 ]
  prepare out --train a b > /dev/null
  diff -r out "$T/reference"
}

@test "tabbed, piped, CRLF and compressed text give the same data set" {
  paste a b > tsv
  prepare tabbed --train tsv > /dev/null
  same_data tabbed "$T/reference"
  prepare piped --train - < tsv > /dev/null
  same_data piped "$T/reference"
  prepare piped2 --train - b < a > /dev/null
  same_data piped2 "$T/reference"
  sed 's/$/\r/; 1s/^/\xef\xbb\xbf/' a > crlf.a
  # The file also has no line feed at the end.
  sed 's/$/\r/; 1s/^/\xef\xbb\xbf/' b | head -c -2 > crlf.b
  prepare crlf --train crlf.a crlf.b > /dev/null
  same_data crlf "$T/reference"
  zstd -q --no-check -c < a > a.zst
  gzip -c b > b.gz
  prepare packed --train a.zst b.gz > /dev/null
  same_data packed "$T/reference"
  run prepare twice --train - - < tsv
  [ "$status" -eq 2 ]
}

@test "files written by pzstd give the same data set" {
  command -v pzstd > /dev/null || skip "no pzstd"
  pzstd -q -p 2 -c a > a.zst
  pzstd -q -p 2 -c b > b.zst
  # The file begins with a skippable zstd frame.
  [ "$(head -c 4 a.zst | od -An -tx1 | tr -d ' ')" = 502a4d18 ]
  prepare packed --train a.zst b.zst > /dev/null
  same_data packed "$T/reference"
}

@test "a line of a megabyte is not encoded, and a longer one is named" {
  { cat va; head -c 1000000 /dev/zero | tr '\0' x; echo; } > long.a
  { cat vb; echo x; } > long.b
  prepare out --train a b --valid long.a long.b > /dev/null
  cmp long.a out/valid.src
  run "$TRIREME" inspect out --quiet --json
  [ "$(sed -n '/"valid"/,$p' out/dataset.json | sed -n 's/.*"tokens": \([0-9]*\).*/\1/p' | tail -n 1)" -eq 1 ]
  { head -n 11999 a; head -c 2000000 /dev/zero | tr '\0' x; echo; } > long.c
  run prepare out2 --train long.c b
  [ "$status" -eq 1 ]
  says "long.c:12000: " "1048576 bytes"
}

@test "pipes are accepted for text that is read once" {
  prepare out --train <(cat a) <(cat b) --valid <(cat va) <(cat vb) --tokenizer "$T/reference/tokenizer.model" > /dev/null
  same_data out "$T/reference"
}

@test "a pipe as text that is read twice is refused before any work" {
  run prepare out --train <(cat a) b
  [ "$status" -eq 1 ]
  says "not a regular file" "read twice" "--tokenizer"
  [ ! -e out.partial/tokenizer.model ]
}

@test "a FIFO as tokenizer or config is refused, not waited for" {
  mkfifo fifo
  run timeout 60 "$TRIREME" prepare --quiet --train a b --valid va vb --tokenizer fifo --out out
  [ "$status" -eq 1 ]
  says "fifo is not a regular file"
  run timeout 60 "$TRIREME" prepare --config fifo --out out
  [ "$status" -ne 124 ]
  says "fifo is not a regular file"
}

@test "compressed files that end too early or are damaged are named" {
  gzip -c a > a.gz
  zstd -q -c < a > a.zst
  zstd -q --no-check -c < a > b.zst
  for file in a.gz a.zst b.zst; do
    size=$(stat -c %s $file)
    for keep in 5 $((size / 2)) $((size - 1)); do
      head -c "$keep" $file > "cut.${file##*.}"
      run prepare "out-$file-$keep" --train "cut.${file##*.}" b
      [ "$status" -eq 1 ]
      says "cut.${file##*.}" "damaged near byte" "too early"
      [ ! -e "out-$file-$keep" ]
    done
  done
  for file in a.gz a.zst; do
    cp $file hurt
    perl -e 'open F, "+<", "hurt"; seek F, 9000, 0; print F "\xff\x00\xff\x00\xff\x00\xff\x00"'
    run prepare "out-$file" --train hurt b
    [ "$status" -eq 1 ]
    says hurt damaged
  done
}

@test "a vocabulary larger than the text allows is an error with the largest possible size" {
  head -n 50 a > few.a
  head -n 50 b > few.b
  run prepare out --train few.a few.b --vocab-size 5000
  [ "$status" -eq 1 ]
  says "5000 pieces is too large" "--vocab-size to "
  most=$(echo "$output" | sed -n 's/.*--vocab-size to \([0-9]*\) or less.*/\1/p')
  prepare out2 --train few.a few.b --vocab-size "$most" > /dev/null
}

@test "a vocabulary too small for its characters is an error" {
  run prepare out --train a b --vocab-size 20
  [ "$status" -eq 1 ]
  says "20 pieces is too small" "raise --vocab-size" "--character-coverage"
  [ ! -e out ]
}

@test "more pairs than a data set holds are refused before anything is encoded" {
  TRIREME_FAULT=most-pairs:11000 run prepare out --train a b
  [ "$status" -eq 1 ]
  says "more than 11,000 pairs"
  [ ! -e out.partial ]  # refused before the tokenizer is trained
  TRIREME_FAULT=most-pairs:12000 prepare out2 --train a b > /dev/null
  diff -r out2 "$T/reference"
}

@test "more pairs than a data set holds are refused at the first one too many" {
  TRIREME_FAULT=most-pairs:11000 run prepare out --train a b --tokenizer "$T/reference/tokenizer.model"
  [ "$status" -eq 1 ]
  says "more than 11,000 pairs"
  [ ! -e out.partial/train.order ]
}

@test "more pairs than one window holds: --resume --window-pairs continues with the shards that are done" {
  call out --train a b --tokenizer "$T/reference/tokenizer.model" --threads 1
  TRIREME_FAULT=most-pairs:5000 run "${command[@]}"
  [ "$status" -eq 1 ]
  says "more than 5,000 pairs" "--window-pairs" "--resume"
  inode=$(stat -c %i out.partial/train-00000.tok)
  TRIREME_FAULT=most-pairs:5000 "${command[@]}" --resume --window-pairs 4000 > /dev/null
  [ "$(stat -c %i out/train-00000.tok)" = "$inode" ]
  prepare whole --train a b --tokenizer "$T/reference/tokenizer.model" --window-pairs 4000 > /dev/null
  diff -r out whole
}

@test "more windows than a data set may have are refused while shards are written, and --resume corrects it" {
  call out --train a b --tokenizer "$T/reference/tokenizer.model" --threads 1
  TRIREME_FAULT=most-windows:3 run "${command[@]}" --window-pairs 10
  [ "$status" -eq 1 ]
  says "--window-pairs 10 would create more than 3 windows" "use a larger number"
  [ "$(ls out.partial/train-*.tok | wc -l)" -eq 4 ]
  TRIREME_FAULT=most-windows:3 "${command[@]}" --window-pairs 4000 --resume > /dev/null
  prepare whole --train a b --tokenizer "$T/reference/tokenizer.model" --window-pairs 4000 > /dev/null
  diff -r out whole
}

@test "a file name that is not UTF-8 is kept in dataset.json, escaped" {
  name=$(printf 'caf\351\\x.en')
  cp a "$name"
  prepare out --train "$name" b --valid va vb > /dev/null
  grep -qF '"file": "caf\\xe9\\x5cx.en"' out/dataset.json
  [ "$(grep -c '"file": ' out/dataset.json)" -eq "$(grep -c '"file": ' "$T/reference/dataset.json")" ]
  "$TRIREME" inspect out --quiet --verify > /dev/null
  same_data out "$T/reference"
}

@test "a file name that is not UTF-8 is kept in dataset.json, escaped, after a kill too" {
  name=$(printf '\377.en')
  cp a "$name"
  call out --train "$name" b
  run env TRIREME_FAULT=die:prepare-shard:2 "${command[@]}"
  [ "$status" -eq 137 ]
  prepare out --train "$name" b --resume > /dev/null
  grep -qF '"file": "\\xff.en"' out/dataset.json
  same_data out "$T/reference"
}

@test "a language code that dataset.json cannot hold is refused at the start" {
  run prepare out --train a b --source-lang "$(printf '\377')"
  [ "$status" -eq 2 ]
  says "--source-lang" "language code"
  run prepare out --train a b --target-lang aaaaaaaaaabbbbbbbbbbccccccccccdd
  [ "$status" -eq 2 ]
  says "--target-lang" "language code"
  [ ! -e out.partial ]
}

# Tests of output that cannot be written.

@test "an existing --out is not touched" {
  mkdir out
  echo mine > out/file
  run prepare out --train a b
  [ "$status" -eq 1 ]
  says "out exists already"
  run prepare out/ --train a b --resume
  [ "$status" -eq 1 ]
  [ "$(cat out/file)" = mine ]
  [ ! -e out.partial ]
  echo mine > plain
  run prepare plain --train a b
  [ "$status" -eq 1 ]
  [ "$(cat plain)" = mine ]
}

@test "an unfinished --out is not overwritten, and the error names --resume" {
  killed out
  run prepare out --train a b
  [ "$status" -eq 1 ]
  says "out.partial is left" "--resume"
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "a second prepare on the same --out is refused" {
  hang prepare-shard:2 out
  for option in --resume --no-resume; do
    run prepare out --train a b $option
    [ "$status" -eq 1 ]
    says "another process is writing to" "out.partial"
  done
  kill -INT "$child"
  wait "$child" || true
  child=
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "a full disk is an error, and --resume continues when there is room" {
  [ "$(id -u)" -eq 0 ] || skip "not root: no small file system can be mounted"
  mkdir disk
  size=$(du -sb "$T/reference" | cut -f1)
  mount -t tmpfs -o size=$((size + size / 2 + 200000)) tmpfs disk 2> /dev/null || skip "mount does not work here"
  mounted=$PWD/disk
  head -c $((size + 100000)) /dev/zero > disk/ballast
  run prepare disk/out --train a b
  [ "$status" -eq 1 ]
  says "disk/out.partial/" "No space left" "free some space"
  [ ! -e disk/out ]
  [ -e disk/out.partial/train-00000.tok ]  # prepare had begun to write
  run prepare disk/out --train a b --resume  # the disk is still full
  [ "$status" -eq 1 ]
  says "No space left"
  rm disk/ballast
  prepare disk/out --train a b --resume > /dev/null
  diff -r disk/out "$T/reference"
  rm -r disk/out
}

# Tests of runs that are stopped and resumed.

@test "the number of threads does not change a byte" {
  for threads in 1 2 3; do
    prepare "out$threads" --train a b --threads $threads > /dev/null
    diff -r "out$threads" "$T/reference"
  done
}

# kill_everywhere NAME LAST [OPTION…]: kills a run before each of its file operations until the
# file LAST exists, and kills the resumed run once more. The run that completes the set must write
# the same bytes as an uninterrupted one.
kill_everywhere() {
  local name=$1 last=$2
  kills=0
  shift 2
  head -n 500 a > few.a
  head -n 500 b > few.b
  local text=(--train few.a few.b --vocab-size 60 --shard-size 8k --threads 1 "$@")
  prepare "$name" "${text[@]}" > /dev/null
  for ((n = 1; ; n++)); do
    local out=$name-$n
    call "$out" "${text[@]}"
    run env TRIREME_FAULT=die:file:$n "${command[@]}"
    [ "$status" -eq 137 ] || break
    kills=$((kills + 1))
    [ ! -e "$out.partial/$last" ] || break
    if [ ! -e "$out" ]; then
      call "$out" "${text[@]}" --resume
      run env TRIREME_FAULT=die:file:$((1 + n % 9)) "${command[@]}"
      # 0: fewer operations were left, so nothing was killed.
      [ "$status" -eq 137 ] || [ "$status" -eq 0 ]
    fi
    prepare "$out" "${text[@]}" --resume > /dev/null
    diff -r "$out" "$name"
    rm -rf "$out"
  done
  echo "killed at $kills places"
}

@test "kill -9 at any moment leaves no data set, and --resume the same bytes" {
  # Ends at the first shard: from there on it does not matter where the tokenizer came from.
  kill_everywhere learned train-00000.tok
  [ "$kills" -gt 15 ]
}

# bats test_tags=slow
@test "kill -9 at any moment with a given tokenizer and --dedup, and --resume the same bytes" {
  kill_everywhere given none --tokenizer "$T/reference/tokenizer.model" --dedup --max-words 8
  [ "$kills" -gt 30 ]
  [ "$status" -eq 0 ]  # the run ended before operation $n, so it was not killed
  diff -r "given-$n" given
}

@test "killed just before the rename to --out, --resume keeps the finished shards" {
  die prepare-rename:1 out
  inode=$(stat -c %i out.partial/train-00000.tok)
  prepare out --train a b --resume > /dev/null
  [ "$(stat -c %i out/train-00000.tok)" = "$inode" ]
  diff -r out "$T/reference"
}

@test "killed just after the rename to --out, the data set is complete and --resume removes what is left" {
  die prepare-renamed:1 out
  "$TRIREME" inspect out --verify --quiet > /dev/null
  [ -e out/state ]
  prepare out --train a b --resume
  diff -r out "$T/reference"
}

@test "--resume over a complete data set with other options or inputs names them, and changes nothing" {
  cp -R "$T/reference" out
  prepare out --train a b --resume
  for other in "--max-words 20:--max-words is 20 and was 80" "--dedup:--dedup is on and was off" "--seed 4:--seed is 4 and was 1" \
    "--vocab-size 90:--vocab-size is 90 and was 100" "--tokenizer-type unigram:--tokenizer-type is unigram and was bpe" \
    "--train a b:--train is given 2 times and was 1 times" "--test va vb:--test is given 1 times and was 0 times" \
    "--max-ratio 3 --min-words 2:--min-words is 2 and was 1; --max-ratio is 3 and was 9"; do
    run prepare out --train a b --resume ${other%%:*}
    [ "$status" -eq 1 ]
    says "out is complete, but was made with other options: ${other#*:};" "another --out"
  done
  run prepare out --train b a --resume
  says "--train is b a and was a b"
  mkdir longer
  (cat a; echo more) > longer/a
  run prepare out --train longer/a b --resume
  says "longer/a has $(stat -c %s longer/a) bytes and had $(stat -L -c %s a)"
  run prepare out --train a b --tokenizer a --resume
  says "--tokenizer is a and was another one"
  prepare out --train a b --tokenizer "$T/reference/tokenizer.model" --resume
  diff -r out "$T/reference"
}

@test "--resume over a complete data set of a recipe compares its options" {
  export TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes}
  demo=("$TRIREME" prepare --quiet --recipe demo --vocab-size 400 --out demo)
  "${demo[@]}" --demo-pairs 500 > /dev/null
  "${demo[@]}" --demo-pairs 500 --resume
  run "${demo[@]}" --demo-pairs 600 --resume
  [ "$status" -eq 1 ]
  says "--demo-pairs is 600 and was 500"
}

@test "shards of an earlier run without a state are not in the result" {
  die prepare-tokenizer:1 out
  for file in train-00000.tok train-00999.tok train.order dataset.json shards.manifest test.src test.ref; do
    echo old > "out.partial/$file"
  done
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "leftover files of a killed run are not in the result" {
  killed out
  for file in state.tmp.4711 shards.manifest.tmp dataset.json.tmp.4711 tokenizer.model.tmp.4711 train-00003.tok.tmp train.order.list; do
    echo half > "out.partial/$file"
  done
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "SIGINT and SIGTERM stop between blocks, and --resume continues" {
  for signal in INT TERM; do
    hang prepare-shard:2 "out$signal" --tokenizer "$T/reference/tokenizer.model" --threads 1 --shard-size 8k
    kill -$signal "$child"
    code=0
    wait "$child" || code=$?
    [ "$code" -eq 3 ]
    output=$(cat log)
    says "stopped by a signal" "out$signal.partial" "--resume"
    [ ! -e "out$signal" ]
    prepare "out$signal" --train a b --tokenizer "$T/reference/tokenizer.model" --shard-size 8k --resume > /dev/null
  done
  same_data outINT outTERM
  for file in tokenizer.model valid.tok train.order; do cmp "outINT/$file" "$T/reference/$file"; done
}

@test "--resume with other options or other text is refused" {
  killed out
  for other in "--seed 2" "--vocab-size 90" "--shard-size 32k" "--max-words 5" "--dedup" "--source-lang fr" "--valid vb va"; do
    run prepare out --train a b --resume $other
    [ "$status" -eq 1 ]
    says "out.partial" "other options"
  done
  rm a
  cp "$T/a" a  # rewrites the file with the same contents and another mtime
  touch -d '2001-01-01' a
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "other inputs"
  rm a
  ln -s "$T/a" .
  # An option that does not change the result.
  prepare out --train a b --resume --threads 3 > /dev/null
  diff -r out "$T/reference"
}

@test "a tokenizer learned with other options is not reused" {
  die prepare-tokenizer:1 out  # after the tokenizer, before the first shard
  [ -e out.partial/tokenizer.model ]
  [ ! -e out.partial/train-00000.tok ]
  run prepare out --train a b --resume --vocab-size 90
  if [ "$status" -eq 0 ]; then grep -q '"vocab": 90' out/dataset.json; else says "other options"; fi
}

@test "--resume with nothing to resume starts from the beginning" {
  run prepare out --train a b --resume
  [ "$status" -eq 0 ]
  diff -r out "$T/reference"
}

@test "killed between the append of a manifest line and its sync, --resume the same bytes" {
  for n in 1 2 4; do  # append number 1 is that of the validation shard
    die manifest-append:$n out$n
    prepare out$n --train a b --resume > /dev/null
    diff -r out$n "$T/reference"
  done
}

@test "a last line of the manifest that a crash cut or emptied is written again" {
  killed out
  cp -r out.partial kept
  count=$(wc -l < kept/shards.manifest)
  for cut in 1 20 150; do
    truncate -s -$cut out.partial/shards.manifest
    run prepare out --train a b --resume
    [ "$status" -eq 0 ]
    diff -r out "$T/reference"
    rm -r out
    cp -r kept out.partial
  done
  # Simulates blocks that the file system reserved, but never wrote.
  head -c 300 /dev/zero >> out.partial/shards.manifest
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
  rm -r out
  cp -r kept out.partial
  sed -i "${count}d" out.partial/shards.manifest  # the last line was lost, but its shard exists
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "a damaged or repeated line within an unfinished manifest is an error, not a repair" {
  killed out
  cp -r out.partial kept
  sed -i '2s/"pairs":/"pears":/' out.partial/shards.manifest
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "out.partial/shards.manifest:2 "
  cp kept/shards.manifest out.partial/shards.manifest
  tail -n 1 kept/shards.manifest >> out.partial/shards.manifest
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "out.partial/shards.manifest" "twice"
  sed 1d kept/shards.manifest > out.partial/shards.manifest  # without the validation shard
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "out.partial/shards.manifest" "valid"
  cp kept/shards.manifest out.partial/shards.manifest
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "the state of another version of trireme is named as such, with what to do" {
  killed out
  sed -i '1s/3/2/' out.partial/state
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "out.partial/state was written by an earlier version" "state format 2" "remove out.partial and start again"
  sed -i '1s/2/4/' out.partial/state
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "out.partial/state was written by a newer version" "state format 4"
}

@test "a damaged prepare state is an error" {
  killed out
  cp out.partial/state state
  for edit in 's/^trireme-prepare/trireme-prepared/' '2s/./x/' '3s/.*/-/' 's/"shards"/"shads"/' '$d'; do
    sed "$edit" state > out.partial/state
    run prepare out --train a b --resume
    [ "$status" -eq 1 ]
    says "out.partial"
  done
  : > out.partial/state
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  cp state out.partial/state
  cp out.partial/train-00001.tok kept
  # A complete shard is verified before the run continues.
  head -c 500 kept > out.partial/train-00001.tok
  run prepare out --train a b --resume
  [ "$status" -eq 1 ]
  says "train-00001.tok"
  cp kept out.partial/train-00001.tok
  prepare out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}
