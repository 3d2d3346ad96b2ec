#!/usr/bin/env bats
# trireme classify on the command line: labels, formats, tables, pairs, ranks, hostile input and
# damaged models. The models have random weights (tests/tools/make_classifier.c).

bats_require_minimum_version 1.5.0
load ../ranks/support

# new_model DIR HEAD TEXTS LABEL…: makes a model with these labels.
new_model() {
  local dir=$1 head=$2 texts=$3
  shift 3
  mkdir "$dir"
  { printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'; printf '%s\n' {a..z} '##'{a..z} {0..9} '##'{0..9} the good bad you are fool ! . ,; } > "$dir/vocab.txt"
  printf '%s\n' "$@" > "$dir/labels.txt"
  "$TRIREME_TOOLS/make_classifier" "$dir" "$head" $# "$texts"
}

setup_file() {
  export M="$BATS_FILE_TMPDIR"
  new_model "$M/class" softmax 1 hate offensive neither
  new_model "$M/multi" sigmoid 1 toxic obscene insult
  new_model "$M/number" square 1 score
  new_model "$M/pair" softmax 2 no yes
  mkdir "$M/translator"
  "$TRIREME_TOOLS/make_classifier" "$M/translator" translator 0 1
}

setup() {
  T=$BATS_TEST_TMPDIR
  cd "$T" || exit 1
  printf 'You are a fool!\n\nthe good\nbad, bad. BAD\n' > in
}

classify() {
  local model=$1
  shift
  "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/$model" "$@"
}

# objects FILE EXPRESSION: fails unless the Perl expression is true for each line, an object in $_.
objects() {
  perl -MJSON::PP -ne '$_ = decode_json($_); exit 1 unless '"$2"';' "$1"
}

@test "one line for each text, empty ones too: the class and its probability" {
  classify class < in > out
  [ "$(wc -l < out)" -eq 4 ]
  [ "$(grep -cE $'^(hate|offensive|neither)\t0\\.[0-9]{4}$' out)" -eq 4 ]
  classify class --json < in > out.jsonl
  [ "$(wc -l < out.jsonl)" -eq 4 ]
  objects out.jsonl '3 == keys %{$_->{probabilities}}'
  objects out.jsonl 'abs($_->{probabilities}{hate} + $_->{probabilities}{offensive} + $_->{probabilities}{neither} - 1) < 1e-6'
  objects out.jsonl '$_->{probability} == $_->{probabilities}{$_->{label}}'
  perl -MJSON::PP -ne '$_ = decode_json($_); for my $p (values %{$_->{probabilities}}) { exit 1 if $p > $_->{probability} }' out.jsonl
  # the lines of both formats say the same
  perl -MJSON::PP -ne '$_ = decode_json($_); printf "%s\t%.4f\n", $_->{label}, $_->{probability}' out.jsonl | cmp - out
}

@test "several labels: those above the threshold, in the order of labels.txt" {
  classify multi --json --threshold 0 < in > all.jsonl
  objects all.jsonl '3 == @{$_->{labels}}'
  objects all.jsonl '!grep { $_ <= 0 || $_ >= 1 } values %{$_->{probabilities}}'
  classify multi --threshold 0 < in | cut -f 1,3,5 > names
  [ "$(sort -u names)" = "$(printf 'toxic\tobscene\tinsult')" ]
  # no label above the threshold: an empty line
  classify multi --threshold 1 < in > none
  printf '\n\n\n\n' | cmp - none
  classify multi --threshold 1 --json < in > none.jsonl
  objects none.jsonl '0 == @{$_->{labels}}'
  for p in 0.3 0.5 0.7; do
    classify multi --threshold "$p" < in > "at.$p"
    perl -MJSON::PP -ne 'BEGIN { $p = shift } $_ = decode_json($_); $q = $_->{probabilities};
      print join("\t", map { sprintf "%s\t%.4f", $_, $q->{$_} } grep { $q->{$_} > $p } qw(toxic obscene insult)), "\n"' "$p" all.jsonl | cmp - "at.$p"
  done
  classify multi < in | cmp - at.0.5
}

@test "regression: a number for each text" {
  classify number < in > out
  [ "$(grep -cE '^-?[0-9.]+(e-?[0-9]+)?$' out)" -eq 4 ]
  classify number --json < in > out.jsonl
  perl -MJSON::PP -ne '$_ = decode_json($_); printf "%.6g\n", $_->{values}{score}' out.jsonl | cmp - out
}

@test "--threshold is refused by models that do not give several labels" {
  run -2 classify class --threshold 0.5 < in
  [[ "$output" =~ "this one chooses one class: leave it out" ]]
  run -2 classify number --threshold 0.5 < in
  [[ "$output" =~ "this one computes numbers: leave it out" ]]
}

@test "pairs: a tab between the two texts, or two columns" {
  printf 'you are\tgood\nyou\tbad\n\t\n' > pairs
  classify pair --json < pairs > out
  [ "$(wc -l < out)" -eq 3 ]
  printf 'b,a\ngood,you are\nbad,you\n,\n' > pairs.csv
  classify pair --json --input pairs.csv --text-column a --text-column b | cmp - out
  cp pairs pairs.tsv # without names of columns
  classify pair --json --input pairs.tsv | cmp - out
  # the order of the two texts counts
  classify pair --json --input pairs.csv --text-column b --text-column a > swapped
  run -1 cmp -s out swapped
  for line in 'no tab' $'two\ttabs\there'; do
    run -1 classify pair <<< "$line"
    [[ "$output" =~ "standard input:1: the line has" ]]
    [[ "$output" =~ "one tab between them" ]]
  done
  run -2 classify pair --input pairs.csv --text-column a
  [[ "$output" =~ "the model classifies pairs of texts: pass --text-column twice" ]]
  run -2 classify class --input pairs.csv --text-column a --text-column b
  [[ "$output" =~ "the model classifies single texts: pass --text-column once" ]]
}

@test "a table has the texts in a column, with line breaks and tabs in them" {
  printf 'id,text\n1,"You are\na\tfool!"\n2,\n3,the good\n4,"bad, bad. BAD"\n' > in.csv
  classify class --json < in > lines
  classify class --json --input in.csv --text-column text | cmp - lines
  gzip -k in.csv
  classify class --json --input in.csv.gz --text-column text | cmp - lines
  printf '{"text": "You are a fool!"}\n{"text": ""}\n{"text": "the good"}\n{"text": "bad, bad. BAD"}\n' > in.jsonl
  classify class --json --input in.jsonl --text-column text | cmp - lines
  run -1 classify class --input in.csv --text-column comment
  [[ "$output" =~ "comment" ]]
  run -2 classify class --input in.csv
  [[ "$output" =~ "--input in.csv is a table: pass --text-column NAME" ]]
  run -2 classify class --text-column text < in.csv
  [[ "$output" =~ "pass it with --input FILE.csv" ]]
  run -2 classify class --input in.csv --text-column a --text-column b --text-column c
  [[ "$output" =~ "one text or two" ]]
  run -2 classify class --input in --text-column text
  [[ "$output" =~ .csv ]]
}

@test "a NUL byte in a text: WordPiece drops it, in lines, tables and pairs" {
  printf 'You are good\n\n' | classify class --json > without
  printf 'You are g\0ood\0\n\0\n' | classify class --json | cmp - without
  printf 'text\nYou are g\0ood\0\n\0\n' > nul.csv
  classify class --json --input nul.csv --text-column text | cmp - without
  printf '{"text": "You are g\\u0000ood"}\n{"text": "\\u0000"}\n' > nul.jsonl
  classify class --json --input nul.jsonl --text-column text | cmp - without
  printf 'you are\tthe good\n' | classify pair --json > without
  printf 'y\0ou are\0\t\0the good\n' | classify pair --json | cmp - without
  printf 'a,b\ny\0ou are,the\0 good\n' > nul.csv
  classify pair --json --input nul.csv --text-column a --text-column b | cmp - without
}

@test "the test.csv of a data set with NUL bytes is classified" {
  for i in {1..30}; do printf '{"class": "%s", "text": "you\\u0000 are %s"}\n' "$((i % 2))" "$i"; done > nul.jsonl
  "$TRIREME" prepare --quiet --task classify --train nul.jsonl --text-column text --label-column class --split 0.1 0.2 --vocab "$M/class/vocab.txt" --out data
  tr -d '\0' < data/test.csv > clean.csv
  run -1 cmp -s data/test.csv clean.csv
  classify class --json --input clean.csv --text-column text > without
  classify class --json --input data/test.csv --text-column text | cmp - without
}

@test "score reads the output of classify --json" {
  classify class --json --output out.jsonl < in
  printf 'text,class\na,hate\nb,neither\nc,offensive\nd,hate\n' > ref.csv
  run -0 "$TRIREME" score --task classify --ref ref.csv --label-column class --hyp out.jsonl
  [ "${lines[0]}" = "4 texts, 3 classes" ]
  classify multi --json --output multi.jsonl < in
  printf 'toxic,obscene,insult\n1,0,0\n0,1,0\n0,0,1\n1,1,0\n' > ref.csv
  run -0 "$TRIREME" score --task classify --ref ref.csv --label-column toxic --label-column obscene --label-column insult --hyp multi.jsonl
  [ "${lines[0]}" = "4 texts, 3 labels" ]
}

@test "the output does not depend on batches, threads, ranks and how lines arrive" {
  for i in $(seq 60); do cat in; echo "you are number $i"; seq -s ' ' "$i"; done > many
  classify class --json < many > one
  [ "$(wc -l < one)" -eq 360 ]
  [ "$(sort -u one | wc -l)" -gt 60 ]
  for tokens in 16 100; do
    classify class --json --batch-tokens "$tokens" < many | cmp - one
  done
  "$TRIREME" classify --quiet --device cpu --model "$M/class" --threads 2 --json < many | cmp - one
  while read -r line; do classify class --json <<< "$line"; done < in | cmp - <(head -n 4 one)
}

@test "ranks share the texts and print the bytes of one process" {
  need_mpi
  for i in $(seq 500); do cat in; echo "you are number $i"; done > many
  classify class --json < many > one
  [ "$(wc -l < one)" -eq 2500 ]
  for n in $(fewer '2 3' 3); do
    with "$n" timeout -k 5 200 "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/class" --json --input many > "$n"
    cmp one "$n"
  done
  with 2 timeout -k 5 200 "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/class" --json < in | cmp - <(head -n 4 one)
  with 2 timeout -k 5 200 "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/pair" < <(printf 'you\tbad\nyou are\tgood\n') > two
  printf 'you\tbad\nyou are\tgood\n' | classify pair | cmp - two
}

@test "a text from a slow writer is classified before the next is written" {
  coproc WORK { classify class 2> "$T/err"; }
  local work=$WORK_PID
  for i in 1 2 3; do
    sed -n "${i}p" in >&"${WORK[1]}"
    IFS= read -r -t 120 line <&"${WORK[0]}"
    echo "$line" >> slow
  done
  eval "exec ${WORK[1]}>&-"
  wait "$work"
  head -n 3 in | classify class | cmp - slow
}

@test "bytes that are not UTF-8: the texts before are classified, then an error names line and byte" {
  head -n 2 in | classify class > two
  code=0
  { head -n 2 in; printf 'a\xffb\n'; cat in; } | classify class > out 2> err || code=$?
  [ "$code" -eq 1 ]
  cmp two out
  grep -q ':3: byte 2 of the line' err
}

@test "CRLF, a byte-order mark, gzip and a last line without its end change nothing" {
  classify class < in > out
  sed 's/$/\r/' in | classify class | cmp - out
  { printf '\xef\xbb\xbf'; cat in; } | classify class | cmp - out
  head -c -1 in | classify class | cmp - out
  gzip -c in | classify class | cmp - out
  [ -z "$(classify class < /dev/null)" ]
}

@test "a text longer than the model's maximum is cut and reported once" {
  { cat in; seq -s ' ' 100; seq -s ' ' 200; } > long
  "$TRIREME" classify --device cpu --threads 1 --model "$M/class" --json < long > out 2> err
  grep -q "text 5 (and 1 other) is longer than the model's maximum of 32 tokens and was cut" err
  [ "$(sed -n 5p out)" = "$(sed -n 6p out)" ]
  # 10 MB in one line is an error with the line
  { cat in; head -c 10000000 /dev/zero | tr '\0' 'a'; echo; } > huge
  run -1 classify class --input huge
  [[ "$output" =~ huge:5 ]]
}

@test "--output is written by rank 0; the input may not be the output" {
  classify class < in > out
  classify class --input in --output file
  cmp out file
  run -2 classify class --input in --output in
  [[ "$output" =~ "is the --input too" ]]
  run -1 classify class --input nowhere
  [[ "$output" =~ "cannot open nowhere" ]]
  # nor the file that the output is until it is complete
  cp in new.partial
  run -2 classify class --input new.partial --output new
  [[ "$output" == *"--output new is written as new.partial until it is complete, and that is the input"* ]]
  cmp in new.partial
  run -2 classify class --output new < new.partial
  cmp in new.partial
  [ ! -e new ]
  cp in other.partial
  ln -s other.partial link.in
  echo old > other
  run -2 classify class --input link.in --output other
  cmp in other.partial
  [ "$(cat other)" = old ]
}

@test "--output that may not be written is an error and leaves no other file" {
  [ "$(id -u)" -ne 0 ] || skip "root may write every file"
  echo old > fixed
  chmod 444 fixed
  run -1 classify class --input in --output fixed
  [[ "$output" == *"cannot create fixed"* ]]
  [ "$(cat fixed)" = old ]
  [ ! -e fixed.partial ]
}

@test "--output is complete or not there: after an error, a kill and Ctrl-C the file is as before" {
  classify class < in > want
  echo old > file
  # a damaged line: the texts before it are in file.partial, and a line says so
  { cat in; printf '\377\n'; } > damaged
  run -1 classify class --input damaged --output file
  [[ "$output" == *"what was finished before the error is in "*file.partial* ]]
  [ "$(cat file)" = old ]
  cmp file.partial want
  # an error before the first text leaves nothing
  rm file.partial
  run -1 classify nowhere --input in --output file
  [ "$(cat file)" = old ]
  [ ! -e file.partial ]
  # a kill before the file gets its name
  run -137 env TRIREME_FAULT=die:file:1 "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/class" --input in --output file
  [ "$(cat file)" = old ]
  cmp file.partial want
  # a signal while it reads
  mkfifo pipe
  "$TRIREME" classify --quiet --device cpu --threads 1 --model "$M/class" --input pipe --output file 3>&- &
  child=$!
  exec 7> pipe
  cat in >&7
  until_true cmp -s file.partial want
  # meanwhile another process may not write the same file
  run -2 classify class --input in --output file
  [[ "$output" == *"--output file: another process is writing "*file.partial* ]]
  cmp file.partial want
  kill -TERM "$child"
  status=0
  wait "$child" || status=$?
  exec 7>&-
  [ "$status" -eq 143 ]
  [ "$(cat file)" = old ]
  # a link stays a link, and its file is replaced
  chmod 600 file
  ln -s file link
  classify class --input in --output link
  [ -L link ]
  cmp file want
  [ "$(stat -c %a file)" = 600 ]
  [ ! -e file.partial ]
}

@test "--output on a full disk is an error with status 1 and the name of the file" {
  run -1 classify class --input in --output /dev/full
  [[ "$output" == *"cannot write /dev/full: No space left on device"* ]]
  [ "$(id -u)" -eq 0 ] || return 0
  mkdir disk
  mount -t tmpfs -o size=16k tmpfs disk 2> /dev/null || skip "mount does not work here"
  for i in $(seq 400); do cat in; done > many
  status=0
  classify class --json --input many --output disk/file > log 2>&1 || status=$?
  umount disk || umount -l disk
  cat log
  [ "$status" -eq 1 ]
  grep -q 'cannot write disk/file: ' log
  grep -q 'No space left\|free space of the disk' log
}

@test "a model of another kind is refused with the command to use" {
  run -2 "$TRIREME" classify < in
  [[ "$output" =~ "pass --model DIR" ]]
  run -1 "$TRIREME" translate --quiet --device cpu --model "$M/class" < in
  [[ "$output" =~ "use 'trireme classify' for it" ]]
  run -1 classify translator < in
  [[ "$output" =~ "use 'trireme translate' for it" ]]
  for head in none mlm; do
    mkdir "$head"
    cp "$M/class/vocab.txt" "$head"
    "$TRIREME_TOOLS/make_classifier" "$head" "$head" 0 1
    run -1 "$TRIREME" classify --quiet --device cpu --model "$head" < in
    [[ "$output" =~ "which does not classify" ]]
  done
  run -1 "$TRIREME" classify --quiet --device cpu --model "$T" < in
  [[ "$output" =~ "it has no model.json" ]]
}

@test "damaged and incomplete models are errors that name the file" {
  copy() { rm -rf m; cp -R "$M/class" m; }
  refused() {
    run -1 "$TRIREME" classify --quiet --device cpu --model m < in
    echo "$output"
    [[ "$output" =~ $1 ]]
  }
  copy; rm m/labels.txt; refused "m/labels.txt is missing"
  copy; echo more >> m/labels.txt; refused "m/labels.txt"
  copy; truncate -s -4 m/weights.safetensors; refused "m/weights.safetensors"
  copy; truncate -s 10 m/weights.safetensors; refused "m/weights.safetensors"
  copy; rm m/weights.safetensors; refused "m/weights.safetensors"
  copy; echo more >> m/vocab.txt; refused "m/vocab.txt"
  copy; rm m/vocab.txt; refused "m/vocab.txt"
  copy; sed -i 's/"labels": 3/"labels": 4/' m/model.json; refused "m/model.json"
}

@test "labels.txt that does not fit the model is refused although its checksum is right" {
  refused() {  # LABELS WORDS: a model with 3 outputs and this labels.txt
    rm -rf m
    cp -R "$M/class" m
    printf "$1" > m/labels.txt
    "$TRIREME_TOOLS/make_classifier" m softmax 3 1
    run -1 "$TRIREME" classify --quiet --device cpu --model m < in
    echo "$output"
    [[ "$output" =~ $2 ]]
  }
  refused 'a\nb\n' "labels.txt has 2 labels, but the model has 3"
  refused '' "labels.txt has 0 labels, but the model has 3"
  refused 'a\nb\nc\nd\n' "labels.txt has 4 labels, but the model has 3"
  refused 'a\nb\na\n' "labels.txt:3: the label 'a' is also on line 1"
  refused 'a\n\nc\n' "labels.txt:2: the name of the label is empty"
  refused 'a\nb\xff\nc\n' "labels.txt:2: the name of the label is not UTF-8"
  refused 'a\nb\033[2J\nc\n' "labels.txt:2: the name of the label contains a control character"
  # a last line without its end is a label too; quotes are escaped in JSON
  printf 'a"b\n\\\nc' > m/labels.txt
  "$TRIREME_TOOLS/make_classifier" m softmax 3 1
  "$TRIREME" classify --quiet --device cpu --model m --json < in > out.jsonl
  objects out.jsonl 'exists $_->{probabilities}{"a\"b"} && exists $_->{probabilities}{"\\"} && exists $_->{probabilities}{c}'
}

@test "a directory without a tokenizer is refused with the reason" {
  mkdir m
  printf 'a\nb\n' > m/labels.txt
  "$TRIREME_TOOLS/make_classifier" m softmax 2 1
  run -1 "$TRIREME" classify --quiet --device cpu --model m < in
  [[ "$output" =~ "has no tokenizer" ]]
}

@test "launch -- classify writes the output of one process" {
  need_mpi
  run -2 "$TRIREME" launch --nproc-per-node 2 -- classify --model "$M/class"
  [[ "$output" =~ "name a file with --input FILE" ]]
  classify class --json < in > one
  "$TRIREME" launch --nproc-per-node 2 --quiet -- classify --quiet --device cpu --threads 1 --model "$M/class" --json --input in --output out
  cmp one out
}
