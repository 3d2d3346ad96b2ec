#!/usr/bin/env bats
# prepare --task classify and mlm: kills, signals and --resume, and several ranks. Each gives the bytes of
# one process that was not disturbed. TRIREME_FAULT=stretch:N assigns N rows at a time to each rank, so
# that a small table has many rounds.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f '##a' '##b' ',' '"' > vocab.txt
  # 3,000 rows. The label y is not always known, texts are cut and some are empty.
  perl -e '
    srand 3;
    print "text,class,x,y\n";
    for my $i (0 .. 2999) {
      my $text = join " ", map { chr(97 + rand 6) } 1 .. rand 24;
      printf "\"%s\",%s,%d,%s\n", $text, $i % 4 ? "no" : "yes", $i % 2, $i % 10 ? $i % 3 == 0 || 0 : "";
    }' > train.csv
  head -n 200 train.csv > valid.csv
  cut -d, -f1 train.csv > lines.txt
  prepare classify classes > classes.table
  prepare mlm lines > lines.table
}

setup() {
  cd "$BATS_FILE_TMPDIR"
  child= mounted=
  rm -rf made made.partial
}

teardown() {
  if [ -n "$child" ]; then kill -KILL "$child" 2> /dev/null || true; fi
  if [ -n "$mounted" ]; then umount "$mounted" || umount -l "$mounted"; fi
}

# call TASK OUT [OPTION…]: sets `command` to the call whose result is the reference of the task.
call() {
  local task=$1 out=$2
  shift 2
  command=("$TRIREME" prepare --quiet --task "$task" --vocab vocab.txt --max-tokens 16 --shard-size 4k --threads 1 --out "$out" --split 0.1 0.05)
  case $task in
    classify) command+=(--train train.csv --text-column text --label-column x --label-column y) ;;
    mlm) command+=(--train lines.txt) ;;
  esac
  command+=("$@")
}

prepare() {
  call "$@"
  "${command[@]}"
}

# on_ranks N TASK OUT [OPTION…]
on_ranks() {
  local n=$1
  shift
  call "$@"
  with "$n" timeout -k 5 300 "${command[@]}"
}

# two FIRST SECOND TASK OUT [OPTION…]: two ranks, each with its own TRIREME_FAULT.
two() {
  local first=$1 second=$2
  shift 2
  call "$@"
  mpirun -n 1 env TRIREME_FAULT="stretch:100$first" timeout -k 5 300 "${command[@]}" : \
    -n 1 env TRIREME_FAULT="stretch:100$second" timeout -k 5 300 "${command[@]}"
}

# reference TASK: prints the undisturbed data set of the task.
reference() {
  case $1 in classify) echo classes ;; mlm) echo lines ;; esac
}

@test "the references have several training shards, and both held-out splits" {
  for set in classes lines; do
    [ "$(grep -c '"split":"train"' $set/shards.manifest)" -gt 5 ]
    [ -e $set/valid.tok ]
    [ -e $set/test.tok ]
    grep -q '"cut":[1-9][0-9]*,"empty":[1-9]' $set/shards.manifest
  done
}

# bats test_tags=slow
@test "kill -9 before any file operation leaves no data set, and --resume the same bytes" {
  for task in classify mlm; do
    kills=0
    for ((n = 1; ; n += $(fewer 3 17))); do
      call "$task" made
      run env TRIREME_FAULT=die:file:$n "${command[@]}"
      [ "$status" -eq 137 ] || break
      kills=$((kills + 1))
      if [ ! -e made ]; then
        call "$task" made --resume
        run env TRIREME_FAULT=die:file:$((1 + n % 9)) "${command[@]}"
        # 0: fewer operations were left, so nothing was killed.
        [ "$status" -eq 137 ] || [ "$status" -eq 0 ]
      fi
      prepare "$task" made --resume > /dev/null
      diff -r made "$(reference "$task")"
      rm -rf made
    done
    rm -rf made
    [ "$kills" -gt 3 ]
  done
}

@test "a killed run keeps its shards, is not begun again by mistake, and prints the same table" {
  for task in classify mlm; do
    call "$task" made
    run env TRIREME_FAULT=die:classify-shard:4 "${command[@]}"
    [ "$status" -eq 137 ]
    [ ! -e made ]
    inode=$(stat -c %i made.partial/train-00003.tok)
    run prepare "$task" made
    [ "$status" -eq 1 ]
    [[ "$output" == *"made.partial is left from a run that was stopped: continue it with --resume, or remove it"* ]]
    prepare "$task" made --resume > table
    [ "$(stat -c %i made/train-00003.tok)" = "$inode" ]
    diff -r made "$(reference "$task")"
    diff <(sed '/^written/d' table) <(sed '/^written/d' "$(reference "$task").table")
    "$TRIREME" inspect made --verify > /dev/null
    rm -r made
  done
}

@test "killed after validation and test are written, --resume gives the same bytes" {
  call classify made
  run env TRIREME_FAULT=die:prepare-rename:1 "${command[@]}"
  [ "$status" -eq 137 ]
  grep -q '"split":"test"' made.partial/shards.manifest
  prepare classify made --resume > /dev/null
  diff -r made classes
}

@test "a signal stops with status 3, and --resume continues" {
  call classify made
  TRIREME_FAULT=hang:classify-shard:2 "${command[@]}" > log 2>&1 3>&- &
  child=$!
  until_true grep -q 'TRIREME_FAULT: waiting' log
  kill -INT "$child"
  status=0
  wait "$child" || status=$?
  child=
  [ "$status" -eq 3 ]
  [ ! -e made ]
  grep -q 'stopped by a signal; continue with --resume, which uses what is finished in made.partial' log
  prepare classify made --resume > /dev/null
  diff -r made classes
}

@test "a vocabulary that was trained is kept" {
  call classify trained
  command=("${command[@]/--vocab/--vocab-size}")
  command=("${command[@]/vocab.txt/16}")
  "${command[@]}" > /dev/null
  command=("${command[@]/trained/made}")
  run env TRIREME_FAULT=die:prepare-tokenizer:1 "${command[@]}"
  [ "$status" -eq 137 ]
  inode=$(stat -c %i made.partial/vocab.txt)
  "${command[@]}" --resume > /dev/null
  [ "$(stat -c %i made/vocab.txt)" = "$inode" ]
  diff -r made trained
}

@test "--resume with other options or another table is refused" {
  call classify made
  run env TRIREME_FAULT=die:classify-shard:2 "${command[@]}"
  [ "$status" -eq 137 ]
  run prepare classify made --resume --max-tokens 12
  [ "$status" -eq 1 ]
  [[ "$output" == *"made.partial was begun with other options or other inputs"* ]]
  run prepare classify made --resume --train valid.csv
  [ "$status" -eq 1 ]
  [[ "$output" == *"was begun with other options or other inputs"* ]]
  prepare classify made --resume > /dev/null
  diff -r made classes
}

@test "--resume over a complete data set does nothing, and names options that differ" {
  cp -R classes made
  prepare classify made --resume
  diff -r made classes
  for other in '--max-tokens 12' '--seed 7' '--label-column class' '--label-threshold 0.5' '--casing cased' '--train valid.csv'; do
    # shellcheck disable=SC2086
    run prepare classify made --resume $other
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"made is complete, but was made with other options: "*"${other%% *}"* ]]
  done
  run prepare mlm made --resume
  [ "$status" -eq 1 ]
  [[ "$output" == *"--task is mlm and was classify"* ]]
  diff -r made classes
}

# resume [OPTION…]: --resume over the data set `made` of the columns text and x, with further options
resume() {
  "$TRIREME" prepare --quiet --task classify --train train.csv --text-column text --label-column x --split 0.1 0.05 \
    --max-tokens 16 --threads 1 --out made --resume "$@"
}

@test "--resume over a complete data set names other labels" {
  cp -R classes made
  run -1 resume --vocab vocab.txt
  [[ "$output" == *"--label-column is given 1 times and was 2 times"* ]]
  run -1 resume --vocab vocab.txt --label-column y --label-type number
  [[ "$output" == *"--label-type is number and was class"* ]]
  rm -r made
  resume --vocab vocab.txt > /dev/null
  resume --vocab vocab.txt
  run -1 resume --vocab vocab.txt --label-column y
  [[ "$output" == *"--label-column is given 2 times and was 1 times"* ]]
}

@test "--resume over a complete data set names another byte-level BPE" {
  roberta=$BATS_TEST_DIRNAME/../golden/bert_import/roberta
  mkdir bpe
  cp "$roberta"/{vocab.json,merges.txt} bpe
  resume --tokenizer "$roberta" > /dev/null
  resume --tokenizer bpe
  sed '$d' "$roberta/merges.txt" > bpe/merges.txt
  run -1 resume --tokenizer bpe
  [[ "$output" == *"--tokenizer is bpe and was another one"* ]]
  run -1 resume --vocab vocab.txt
  [[ "$output" == *"--tokenizer is vocab.txt and was tokenizer.json"* ]]
}

@test "a full disk is an error, and --resume continues when there is room" {
  [ "$(id -u)" -eq 0 ] || skip "not root: no small file system can be mounted"
  mkdir disk
  mount -t tmpfs -o size=400k tmpfs disk 2> /dev/null || skip "mount does not work here"
  mounted=$PWD/disk
  head -c 360k /dev/zero > disk/ballast
  run prepare classify disk/made
  [ "$status" -eq 1 ]
  [[ "$output" == *"No space left"* ]]
  [ ! -e disk/made ]
  rm disk/ballast
  prepare classify disk/made --resume > /dev/null
  diff -r disk/made classes
  rm -r disk/made
}

@test "2, 3 and 4 ranks write the bytes of one process, and print its table" {
  need_mpi
  export TRIREME_FAULT=stretch:100
  for n in $(fewer '2 3 4' 3); do
    for task in classify mlm; do
      on_ranks "$n" "$task" made > table
      diff -r made "$(reference "$task")"
      diff <(sed '/^written/d' table) <(sed '/^written/d' "$(reference "$task").table")
      rm -r made
    done
  done
}

@test "a vocabulary trained on ranks, validation files, and more ranks than stretches" {
  need_mpi
  local options=(--quiet --task classify --train train.csv --train train.csv --valid valid.csv --text-column text --label-column class --vocab-size 16 --threads 1)
  "$TRIREME" prepare "${options[@]}" --out one > /dev/null
  with 3 timeout -k 5 300 "$TRIREME" prepare "${options[@]}" --out made > /dev/null
  diff -r made one
}

# in_dir DIR COMMAND…
in_dir='cd "$1" && shift && exec "$@"'

@test "a vocabulary on rank 1 that differs from that of rank 0 has no effect" {
  need_mpi
  mkdir here there
  cp vocab.txt here
  { cat vocab.txt; echo A; } > there/vocab.txt
  sed '2,$s/b/B/g' train.csv > capitals.csv
  local options=(--quiet --task classify --train "$PWD/capitals.csv" --text-column text --label-column class --max-tokens 16 --threads 1)
  "$TRIREME" prepare "${options[@]}" --vocab vocab.txt --out uncased > /dev/null
  options+=(--vocab vocab.txt --out "$PWD/made")
  TRIREME_FAULT=stretch:100 timeout -k 5 300 mpirun -n 1 bash -c "$in_dir" - here "$TRIREME" prepare "${options[@]}" : \
    -n 1 bash -c "$in_dir" - there "$TRIREME" prepare "${options[@]}" > /dev/null
  diff -r made uncased
}

@test "either rank that is killed, and --resume on 1, 2 and 3 ranks gives the same bytes" {
  need_mpi
  for n in $(fewer '1 2 3' 2); do
    run two "" ,die:classify-round:7 classify made
    [ "$status" -ne 0 ]
    [ ! -e made ]
    run two ,die:classify-shard:3 "" classify made --resume
    [ "$status" -ne 0 ]
    TRIREME_FAULT=stretch:100 on_ranks "$n" classify made --resume > /dev/null
    diff -r made classes
    rm -r made
  done
}

@test "a signal to one rank stops all, and --resume gives the same bytes" {
  need_mpi
  two "" ,hang:classify-round:5 mlm made > log 2>&1 3>&- &
  child=$!
  until_true grep -q 'TRIREME_FAULT: waiting at classify-round' log
  kill -TERM "$(rank_pid 1 made)"
  status=0
  wait "$child" || status=$?
  child=
  [ "$status" -ne 0 ]
  grep -q 'trireme: rank 1 on .*: stopped by a signal; continue with --resume, which uses what is finished in made.partial' log
  on_ranks 2 mlm made --resume > /dev/null
  diff -r made lines
}

@test "a bad row is one error on ranks, with file and line, and nothing is left" {
  need_mpi
  { cat train.csv; echo 'a,b'; } > ragged.csv
  run on_ranks 3 classify made --train ragged.csv
  echo "$output"
  [ "$status" -eq 1 ]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [[ "$output" == *"ragged.csv:3002"* ]]
  [ ! -e made ]
  [ ! -e made.partial ]
}

@test "a rank that sees another table is named" {
  need_mpi
  mkdir -p here there
  cp train.csv here/table.csv
  sed 's/no/on/' train.csv > there/table.csv
  call classify "$PWD/made"
  command=("${command[@]/train.csv/table.csv}")
  command=("${command[@]/#vocab.txt/$PWD/vocab.txt}")
  run mpirun -n 1 --wdir "$PWD/here" timeout 300 "${command[@]}" : -n 1 --wdir "$PWD/there" timeout 300 "${command[@]}"
  echo "$output"
  [ "$status" -ne 0 ]
  [[ "$output" == *"rank 1 on "*": table.csv differs from the file on rank 0"* ]]
  [ ! -e made.partial ]
}

@test "launch starts ranks of prepare" {
  need_mpi
  call classify made
  command=("${command[@]:1}")
  run "$TRIREME" launch --nproc-per-node 2 -- "${command[@]}"
  echo "$output"
  [ "$status" -eq 0 ]
  diff -r made classes
}
