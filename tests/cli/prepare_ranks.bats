#!/usr/bin/env bats
# prepare on several ranks: they divide the text and write the same data set as one process.
# TRIREME_FAULT=stretch:N assigns N lines at a time to each rank, so that a small text has many
# rounds; chunk:N makes them search line breaks in chunks of N bytes.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  # Most words are from a list of 1,000, because learning a tokenizer takes time for each distinct word.
  perl -e 'srand 3; sub word { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 6 } my @list = map { word } 1 .. 1000;
    for (1 .. 6000) { print join(" ", map { int rand 30 ? $list[rand @list] : word } 1 .. 3 + int rand 9), "\n" }' > a
  tr a-l l-za-k < a > b
  head -n 60 a > va
  head -n 60 b > vb
  "$TRIREME" prepare --quiet --train a b --valid va vb --vocab-size 100 --shard-size 24k --threads 1 --out reference > table
}

setup() {
  T=$BATS_FILE_TMPDIR
  cd "$BATS_TEST_TMPDIR"
  ln -sf "$T"/{a,b,va,vb} .
  export TRIREME_FAULT=stretch:300,chunk:3000
  OPTIONS=(--quiet --valid va vb --vocab-size 100 --shard-size 24k --threads 1)
  child= mounted= guard=
}

teardown() {
  if [ -n "$child" ]; then kill -KILL "$child" 2> /dev/null || true; fi
  if [ -n "$mounted" ]; then umount "$mounted" || umount -l "$mounted"; fi
}

# prepare N OUT [OPTION…]: runs on N ranks, with the reference's options.
prepare() {
  local n=$1 out=$2
  shift 2
  with "$n" timeout -k 5 300 "$TRIREME" prepare "${OPTIONS[@]}" --out "$out" "$@"
}

# two FIRST SECOND COMMAND…: runs the command on two ranks, each with its own TRIREME_FAULT; under
# $guard, if set.
two() {
  local first=$1 second=$2
  shift 2
  mpirun -n 1 env TRIREME_FAULT="stretch:300,chunk:3000$first" $guard timeout -k 5 300 "$@" : \
    -n 1 env TRIREME_FAULT="stretch:300,chunk:3000$second" $guard timeout -k 5 300 "$@"
}

# says WORDS…: there is one error, of one line, that contains each of the words.
says() {
  local line
  line=$(grep '^trireme: ' <<< "$output")
  [ "$(wc -l <<< "$line")" -eq 1 ] || { echo "$output"; return 1; }
  for word in "$@"; do
    case $line in *"$word"*) ;; *) echo "lacks '$word': $line"; return 1 ;; esac
  done
}

# Tests that several ranks write the same bytes as one process.

@test "2, 3 and 4 ranks write the bytes of one process, and print its table" {
  need_mpi
  for n in $(fewer '2 3 4' 3); do
    prepare "$n" "out$n" --train a b > table
    diff -r "out$n" "$T/reference"
    diff <(sed "s/out$n/reference/" table) "$T/table"
  done
}

@test "a text that ends with a stretch, a line before and a line behind it gives the bytes of one process" {
  need_mpi
  for lines in 599 600 601 900 1; do
    head -n "$lines" a > some.a
    head -n "$lines" b > some.b
    prepare 1 "one$lines" --train some.a some.b --tokenizer "$T/reference/tokenizer.model" > /dev/null
    prepare 2 "two$lines" --train some.a some.b --tokenizer "$T/reference/tokenizer.model" > /dev/null
    diff -r "one$lines" "two$lines"
  done
}

@test "the demo on 1 and 3 ranks is the same data set" {
  need_mpi
  export TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes}
  for n in 1 3; do
    with "$n" "$TRIREME" prepare --quiet --threads 1 --recipe demo --demo-pairs 3000 --vocab-size 600 --out "demo$n" > /dev/null
  done
  diff -r demo1 demo3
}

@test "many files, gzip, Zstandard, tabs, duplicates and bad UTF-8 on 2, 3 and 4 ranks are as on one" {
  need_mpi
  head -n 1700 a | gzip > 1.a.gz
  head -n 1700 b | zstd -q > 1.b.zst
  tail -n +1701 a | head -n 50 > 2.a
  tail -n +1701 b | head -n 50 > 2.b
  (paste a b | head -n 2100 | tail -n 500; paste a b | tail -n 900) | gzip > 3.tsv.gz
  sed '70s/^./\xff/' a | head -n 900 > 4.a
  head -n 900 b > 4.b
  text=(--train 1.a.gz 1.b.zst --train 2.a 2.b --train 3.tsv.gz --train 4.a 4.b --bad-utf8 drop --dedup --max-words 10
    --test va vb --tokenizer-sample 700 --tokenizer-type unigram --window-pairs 900)
  prepare 1 one "${text[@]}" > one.table
  [ "$(awk '/seen before/ { print $3 }' one.table)" != 0 ]
  for n in $(fewer '2 3 4' 4); do
    prepare "$n" "out$n" "${text[@]}" > /dev/null
    diff -r one "out$n"
  done
}

@test "standard input is kept by rank 0 and read by all" {
  need_mpi
  paste a b > tsv
  prepare 1 one --train - < tsv > /dev/null
  prepare 2 two --train - < tsv > /dev/null
  diff -r one two
}

@test "more ranks than stretches write the bytes of one process" {
  need_mpi
  TRIREME_FAULT=stretch:8192 prepare 3 out --train a b > /dev/null
  diff -r out "$T/reference"
}

# Tests of errors on several ranks.

@test "a bad line in another rank's part is one error with its rank and place, and nothing is left behind" {
  need_mpi
  sed '4000s/^.../abc\xff/' a > bad # line 4000 is in stretch 13: rank 1 of 2
  run prepare 2 out --train bad b
  [ "$status" -eq 1 ]
  says "rank 1 on $(hostname): bad:4000: byte 4 " "--bad-utf8 drop"
  [ ! -e out ]
  [ ! -e out.partial ]
}

@test "sides of different length, a missing file and an existing --out are one error on 3 ranks" {
  need_mpi
  head -n 5000 b > short
  run prepare 3 out --train a short
  [ "$status" -eq 1 ]
  says "a has 6000 lines and short has 5000"
  run prepare 3 out --train a missing
  [ "$status" -eq 1 ]
  says "rank 0 on $(hostname): cannot open missing"
  mkdir there
  run prepare 3 there --train a b
  [ "$status" -eq 1 ]
  says "there exists already"
  run prepare 3 out --train a b --recipe no-such
  [ "$status" -ne 0 ]
  says "no-such"
}

@test "a rank that does not see the output directory is named, before any work" {
  need_mpi
  mkdir elsewhere
  all=(timeout -k 5 300 "$TRIREME" prepare --quiet --train "$T/a" "$T/b" --valid "$T/va" "$T/vb" --vocab-size 100 --out out)
  run mpirun -n 1 "${all[@]}" : -n 1 --wdir elsewhere "${all[@]}"
  [ "$status" -eq 1 ]
  says "rank 1 on $(hostname): this rank does not see the output directory of rank 0" "--out a directory that all hosts share"
  [ ! -e out.partial ]
  [ ! -e elsewhere/out.partial ]
}

@test "a rank that sees other text is named with both sizes" {
  need_mpi
  mkdir elsewhere
  cp a b va vb elsewhere
  echo more >> elsewhere/b
  all=(timeout -k 5 300 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out "$PWD/out")
  run mpirun -n 1 "${all[@]}" : -n 1 --wdir elsewhere "${all[@]}"
  [ "$status" -eq 1 ]
  says "rank 1 on $(hostname): b has $(stat -L -c %s elsewhere/b) bytes here and $(stat -L -c %s b) on rank 0" "same text"
  [ ! -e out.partial ]
}

@test "text of the same size that ends earlier on one rank is an error" {
  need_mpi
  mkdir elsewhere
  ln -s "$T"/{va,vb} elsewhere
  for side in a b; do  # joins the last 3000 lines into one
    (head -n 3000 $side; tail -n +3001 $side | tr '\n' ' ') > "elsewhere/$side"
    [ "$(stat -L -c %s $side)" -eq "$(stat -c %s "elsewhere/$side")" ]
  done
  all=(timeout -k 5 300 "$TRIREME" prepare "${OPTIONS[@]}" --tokenizer "$T/reference/tokenizer.model" --train a b --out "$PWD/out")
  run mpirun -n 1 "${all[@]}" : -n 1 --wdir elsewhere "${all[@]}"
  [ "$status" -eq 1 ]
  says "the files differ between hosts"
}

@test "ranks with other options are refused, with the difference" {
  need_mpi
  all=(timeout -k 5 300 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out out)
  run mpirun -n 1 "${all[@]}" --seed 2 : -n 1 "${all[@]}" --seed 3
  [ "$status" -ne 0 ]
  says "rank 1 on $(hostname) has other options than rank 0: --seed is 3 and on rank 0 2"
  [ ! -e out.partial ]
}

@test "a pipe as training text is refused on ranks" {
  need_mpi
  mkfifo fifo
  run prepare 2 out --train fifo b --tokenizer "$T/reference/tokenizer.model"
  [ "$status" -eq 1 ]
  says "fifo is not a regular file, and every rank reads"
}

@test "prepare --convert on ranks is refused" {
  need_mpi
  run mpirun -n 2 "$TRIREME" prepare --convert "$T/reference" --out new
  [ "$status" -ne 0 ]
  says "prepare --convert runs as one process, but 2 ranks were started"
}

# Tests of runs that are stopped and resumed.

@test "a rank that is killed after a shard is named, and --resume on 1, 2 and 3 ranks gives the same bytes" {
  need_mpi
  for n in $(fewer '1 2 3' 3); do
    rm -rf out
    guard=$OUTLIVE run two "" ,die:prepare-shard-written:3 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out out
    echo "$output"
    [ "$status" -ne 0 ]
    # the last heartbeat may have been sent before the shard was written
    [[ "$output" =~ "rank 1 on $(hostname): process "[0-9]+" died; last reported: "[^.]*". Run stopped; continue with --resume" ]]
    [ -s out.partial/shards.manifest ]
    prepare "$n" out --train a b --resume > /dev/null
    diff -r out "$T/reference"
  done
}

@test "rank 0 that is killed at a shard, and all ranks at once: --resume gives the same bytes" {
  need_mpi
  run two ,die:prepare-shard:5 "" "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out out
  [ "$status" -ne 0 ]
  [ "$(wc -l < out.partial/shards.manifest)" -eq 6 ]  # including the shard of the validation text
  run two ,die:prepare-stretch:9 ,die:prepare-stretch:9 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out out --resume
  [ "$status" -ne 0 ]
  prepare 2 out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "a run that one process began is continued by ranks, and the reverse, with --dedup" {
  need_mpi
  prepare 1 one --train a b --train a b --dedup > /dev/null
  TRIREME_FAULT=die:prepare-shard:4 run prepare 1 out --train a b --train a b --dedup
  [ "$status" -ne 0 ]
  run two "" ,die:prepare-shard-written:4 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --train a b --dedup --out out --resume
  [ "$status" -ne 0 ]
  prepare 1 out --train a b --train a b --dedup --resume > /dev/null
  diff -r one out
}

# bats test_tags=slow
@test "kill -9 of either rank before any of its file operations, and --resume the same bytes" {
  need_mpi
  head -n 700 a > few.a
  head -n 700 b > few.b
  local text=(--train few.a few.b --tokenizer "$T/reference/tokenizer.model" --shard-size 8k)
  prepare 1 few "${text[@]}" > /dev/null
  kills=(0 0)
  for rank in 0 1; do
    for i in $(seq 1 3 "$(fewer 40 8)"); do
      faults=("" "")
      faults[rank]=,die:file:$i
      run two "${faults[@]}" "$TRIREME" prepare "${OPTIONS[@]}" "${text[@]}" --out out
      code=$status
      # If there is a data set, this removes the files that a kill after the rename has left.
      prepare $((1 + i % 2)) out "${text[@]}" --resume > /dev/null
      diff -r out few
      rm -rf out
      if [ "$code" -eq 0 ]; then break; fi  # the rank has fewer operations
      kills[rank]=$((kills[rank] + 1))
    done
  done
  [ "${kills[0]}" -gt 1 ]
  [ "${kills[1]}" -gt 1 ]
}

@test "SIGTERM to one rank stops all at the end of the round, and --resume gives the same bytes" {
  need_mpi
  two "" ,hang:prepare-stretch:4 "$TRIREME" prepare "${OPTIONS[@]}" --train a b --out out > log 2>&1 3>&- &
  child=$!
  until_true grep -q 'TRIREME_FAULT: waiting at prepare-stretch' log
  kill -TERM "$(rank_pid 1 out)"
  code=0
  wait "$child" || code=$?
  child=
  [ "$code" -ne 0 ]
  [ "$(grep -c '^trireme: ' log)" -eq 1 ]
  grep -q 'trireme: rank 1 on .*: stopped by a signal; continue with --resume, which uses what is finished in out.partial' log
  prepare 2 out --train a b --resume > /dev/null
  diff -r out "$T/reference"
}

@test "a full disk is one error, and --resume on ranks continues when there is room" {
  need_mpi
  [ "$(id -u)" -eq 0 ] || skip "not root: no small file system can be mounted"
  mkdir disk
  size=$(du -sb "$T/reference" | cut -f1)
  mount -t tmpfs -o size=$((size + size / 2 + 200000)) tmpfs disk 2> /dev/null || skip "mount does not work here"
  mounted=$PWD/disk
  head -c $((size + 100000)) /dev/zero > disk/ballast
  run prepare 2 disk/out --train a b
  [ "$status" -eq 1 ]
  says "disk/out.partial/" "No space left" "free some space"
  [ ! -e disk/out ]
  rm disk/ballast
  prepare 2 disk/out --train a b --resume > /dev/null
  diff -r disk/out "$T/reference"
  rm -r disk/out
}

@test "--resume over a complete data set on ranks does nothing" {
  need_mpi
  cp -R "$T/reference" out
  prepare 2 out --train a b --resume
  diff -r out "$T/reference"
}
