#!/usr/bin/env bats
# prepare --task classify and inspect of its data sets: tables, labels, splits, and refused input.

bats_require_minimum_version 1.5.0

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f '##a' '##b' ',' '"' > vocab.txt
  # 200 rows; the class is yes in every fourth.
  perl -e '
    srand 3;
    print "text,class,score,x,y\n";
    for my $i (0 .. 199) {
      my $text = join " ", map { chr(97 + rand 6) } 1 .. 1 + rand 12;
      printf "\"%s, \"\"%s\"\"\",%s,%.2f,%d,%s\n", $text, "a", $i % 4 ? "no" : "yes", $i / 200, $i % 2, $i % 10 ? $i % 3 == 0 || 0 : "";
    }' > train.csv
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# prepare OUT [OPTION…]: prepares the table above with the vocabulary above.
prepare() {
  local out=$1
  shift
  "$TRIREME" prepare --quiet --task classify --train train.csv --text-column text --vocab vocab.txt --out "$out" "$@"
}

# refused WORDS [OPTION…]: prepare fails with a message that has the words, and writes nothing.
refused() {
  local words=$1
  shift
  run --separate-stderr "$TRIREME" prepare --quiet --task classify --text-column text --label-column class --vocab vocab.txt --out refused "$@"
  echo "$stderr"
  [ "$status" -ne 0 ]
  [[ "$stderr" == *"$words"* ]]
  [ ! -e refused ]
  [ ! -e refused.partial ]
}

# table NAME LINE…: writes a table.
table() {
  local name=$1
  shift
  printf '%s\n' "$@" > "$name"
}

@test "classes, split and lengths are as inspect shows them" {
  run -0 prepare classes --label-column class --split 0.2 0.1 --max-tokens 12
  [[ "$output" == *"texts"*"140"*"40"*"20"* ]]
  "$TRIREME" inspect classes --json --verify --quiet > classes.json
  perl -MJSON::PP -e '
    my $d = decode_json(join "", <STDIN>);
    die "task" unless $d->{task} eq "classify" && $d->{verified};
    die "names" unless "@{$d->{labels}{names}}" eq "no yes";
    die "train" unless "@{$d->{splits}{train}{labeled}}" eq "105 35";
    die "valid" unless "@{$d->{splits}{valid}{labeled}}" eq "30 10";
    die "test" unless "@{$d->{splits}{test}{labeled}}" eq "15 5";
    die "longest" unless $d->{splits}{train}{longest} == 12 && $d->{splits}{train}{cut} > 0;
    my ($n, $tokens) = (0, 0);
    for my $i (0 .. $#{$d->{texts_by_tokens}}) { $n += $d->{texts_by_tokens}[$i]; $tokens += $i * $d->{texts_by_tokens}[$i]; }
    die "lengths" unless $n == 140 && $tokens == $d->{splits}{train}{tokens};' < classes.json
  [ "$(cat classes/labels.txt)" = "$(printf 'no\nyes')" ]
  cmp classes/vocab.txt vocab.txt
  run -0 "$TRIREME" inspect classes --split valid
  [[ "$output" == *"2 classes"*"75.00 %"*"no"*"25.00 %"*"yes"* ]]
  [[ "$output" == *"texts were cut to 12 tokens"* ]]
  [[ "$output" == *"[CLS] "*" [SEP]"* ]]
}

@test "the same command writes the same bytes on any number of threads, another seed splits differently" {
  prepare one --label-column class --split 0.2 --threads 1
  prepare two --label-column class --split 0.2 --threads 3
  diff -r one two
  prepare three --label-column class --split 0.2 --seed 2
  run cmp -s one/valid.tok three/valid.tok
  [ "$status" -eq 1 ]
}

@test "CSV, TSV and JSON lines, plain or compressed, have the same ids" {
  perl -e 'print "class,text\n"; print "c$_,a b \"\"c\"\" d\n" =~ s/,(.*)/,"$1"/r for 1 .. 3' > t.csv
  perl -e 'print "text\tclass\n"; print "a b \"c\" d\tc$_\n" for 1 .. 3' > t.tsv
  perl -e 'print "{\"class\": \"c$_\", \"text\": \"a b \\\"c\\\" d\"}\n" for 1 .. 3' > t.jsonl
  gzip -k t.csv
  for file in t.csv t.csv.gz t.tsv t.jsonl; do
    "$TRIREME" prepare --quiet --task classify --train $file --text-column text --label-column class --vocab vocab.txt --out "set-$file" > /dev/null
    "$TRIREME_TOOLS/dump_texts" "set-$file" train > "$file.ids"
    cmp t.csv.ids "$file.ids"
  done
  [ "$(head -n 1 t.csv.ids)" = "$(printf '0\t8\t2 5 6 14 7 14 8 3')" ]
}

@test "validation rows are kept as a table that prepare reads again" {
  prepare kept --label-column class --split 0.3
  "$TRIREME" prepare --quiet --task classify --train train.csv --valid kept/valid.csv --text-column text --label-column class --vocab vocab.txt --out reread > /dev/null
  "$TRIREME_TOOLS/dump_texts" kept valid > kept.ids
  "$TRIREME_TOOLS/dump_texts" reread valid > reread.ids
  [ "$(wc -l < kept.ids)" -eq 60 ]
  cmp kept.ids reread.ids
}

@test "several label columns: any number of labels, empty fields are not known" {
  prepare multi --label-column x --label-column y
  "$TRIREME_TOOLS/dump_texts" multi train | cut -f 1 > got
  perl -e 'printf "%d %s\n", $_ % 2, $_ % 10 ? $_ % 3 == 0 || 0 : "nan" for 0 .. 199' > want
  cmp want got
  run -0 "$TRIREME" inspect multi
  [[ "$output" == *"2 labels, any number for a text"* ]]
  [[ "$output" == *"100  50.00 %"*"x"* ]]
}

@test "a threshold makes two classes, --label-type number keeps the values" {
  prepare above --label-column score --label-threshold 0.75
  "$TRIREME_TOOLS/dump_texts" above train | cut -f 1 | sort | uniq -c > got
  [ "$(tr -s ' \n' ' ' < got)" = " 150 0 50 1 " ]
  prepare number --label-column score --label-type number
  [ "$("$TRIREME_TOOLS/dump_texts" number train | sed -n 101p | cut -f 1)" = 0.5 ]
  run -0 "$TRIREME" inspect number
  [[ "$output" == *"least"*"mean"*"most"* ]]
}

@test "pairs of texts: the first text ends where segment says" {
  table pair.csv 'q,p,class' 'a b,c,1' 'd,"e f a b c d",2'
  "$TRIREME" prepare --quiet --task classify --train pair.csv --text-column q --text-column p --label-column class --vocab vocab.txt --max-tokens 8 --out pair > /dev/null
  "$TRIREME_TOOLS/dump_texts" pair train > got
  printf '0\t4\t2 5 6 3 7 3\n1\t3\t2 8 3 9 10 5 6 3\n' > want
  cmp want got
}

@test "a vocabulary is trained on the training rows" {
  "$TRIREME" prepare --quiet --task classify --train train.csv --text-column text --label-column class --split 0.1 --vocab-size 40 --out own > /dev/null
  [ "$(head -n 5 own/vocab.txt | tr '\n' ' ')" = '[PAD] [UNK] [CLS] [SEP] [MASK] ' ]
  run "$TRIREME_TOOLS/dump_texts" own train
  [ "$status" -eq 0 ]
  # No id is [UNK].
  [ "$(echo "$output" | cut -f 3 | tr ' ' '\n' | grep -cx 1)" -eq 0 ]
}

@test "SentencePiece: texts begin with <s> and end with </s>" {
  perl -e 'print join(" ", map { chr(97 + rand 6) x (1 + rand 3) } 1 .. 8), "\n" for 1 .. 300' > raw
  "$TRIREME" prepare --quiet --train raw raw --valid raw raw --vocab-size 24 --out sp > /dev/null || skip "built without SentencePiece"
  "$TRIREME" prepare --quiet --task classify --train train.csv --text-column text --label-column class --tokenizer sp/tokenizer.model --out spc > /dev/null
  [ "$("$TRIREME_TOOLS/dump_texts" spc train | cut -f 3 | grep -cE '^2 .* 1$')" -eq 200 ]
  run -0 "$TRIREME" inspect spc
  [[ "$output" == *"cls 2, sep 1"* ]]
}

@test "bad tables are refused with file and line, and leave nothing" {
  table bad.csv 'text,label' 'a,1'
  refused "bad.csv has no column 'class'; its columns are text, label" --train bad.csv
  table bad.csv 'text,class' 'a,1' 'b,2,3'
  refused "bad.csv:3: the row has 3 fields, but the first row names 2 columns" --train bad.csv
  table bad.csv 'text,class' '"a,1' 'b,2'
  refused "bad.csv:2: a quoted field of this row has no closing quote" --train bad.csv
  table bad.csv 'text,class' '"a"b,1'
  refused "goes on after its closing quote" --train bad.csv
  table bad.csv 'text,class' 'a,1' 'b,'
  refused "bad.csv:3: the row has no label: column 'class' is empty" --train bad.csv
  table bad.csv 'text,class' 'a,1' 'b,1'
  refused "one class alone, '1'" --train bad.csv
  table bad.csv 'text,class'
  refused "bad.csv has no rows" --train bad.csv
  printf 'text,class\n"%s",1\n' "$(head -c 10000000 /dev/zero | tr '\0' 'a')" > bad.csv
  refused "bad.csv" --train bad.csv
  [[ "$stderr" == *"longer than"* ]]
  printf 'text,class\n\xff,1\n' > bad.csv
  refused "bad.csv:2: byte 1 of the line is not UTF-8" --train bad.csv
  mkfifo pipe.csv
  refused "pipe.csv" --train pipe.csv
  cp train.csv bad.txt
  refused "should end with .csv, .tsv or .jsonl" --train bad.txt
}

@test "a label that only validation has is refused" {
  table extra.csv 'text,class' 'a,no' 'b,maybe'
  refused "extra.csv:3: the label 'maybe' does not occur in the training text, whose classes are no, yes" \
    --train train.csv --valid extra.csv
}

@test "a vocabulary without [CLS] is refused" {
  grep -vF '[CLS]' vocab.txt > bad.vocab
  run -1 "$TRIREME" prepare --task classify --train train.csv --text-column text --label-column class --vocab bad.vocab --out refused
  [[ "$output" == *"bad.vocab has no line [CLS]"* ]]
  [ ! -e refused ]
}

@test "options that do not fit are refused" {
  refused "--split and --valid both make validation text" --train train.csv --valid train.csv --split 0.1
  refused "at most 0.5 together" --train train.csv --split 0.4 0.2
  refused "pass only one of these" --train train.csv --vocab-size 100
  refused "--min-words is not an option of prepare --task classify" --train train.csv --min-words 2
  refused "takes one file with --task classify" --train train.csv train.csv
  refused "--label-column class is given twice" --train train.csv --label-column class
  refused "--text-column text is given twice, so both texts of a pair would be the same" --train train.csv --text-column text
  refused "--text-column and --label-column both name the column 'text'" --train train.csv --label-column text
  refused "--text-column and --label-column both name the column 'class'" --train train.csv --text-column class
  refused "--valid: given twice, 'none.csv' and 'train.csv'" --train train.csv --valid none.csv --valid train.csv
  refused "--vocab: given twice, 'vocab.txt' and 'other.txt'" --train train.csv --vocab other.txt
  run -2 "$TRIREME" prepare --task classify --train train.csv --text-column text --label-column class --out refused
  [[ "$output" == *"pass the tokenizer: --vocab"* ]]
  run -2 "$TRIREME" prepare --train a b --valid a b --text-column text --out refused
  [[ "$output" == *"--text-column is not an option of prepare --task translate"* ]]
}

@test "a count of one is followed by a singular" {
  table one.csv text,score 'a b c d e f a b c d e f a b c d,0.5'
  prepare singular --label-column score --label-type number --valid one.csv --max-tokens 12 > /dev/null
  run -0 "$TRIREME" inspect singular
  grep -q '^valid      1 text, .* in 1 shard$' <<< "$output"
  grep -q '^           1 text was cut to 12 tokens$' <<< "$output"
  grep -q '^1 value$' <<< "$output"
}

@test "too few --batch-tokens are answered with the number that the longest text needs" {
  table long.csv 'text,class' 'a b,no' 'a a a a a a a a a a a a a a a a a a,yes'
  "$TRIREME" prepare --quiet --task classify --train long.csv --text-column text --label-column class --vocab vocab.txt --out long > /dev/null
  run -2 "$TRIREME" inspect long --batch-tokens 16
  [[ "$output" == *"a batch of 16 tokens cannot hold the longest text, 20 tokens; give --batch-tokens 20 or more"* ]]
  "$TRIREME" inspect long --batch-tokens 20 > /dev/null
}

@test "another task refuses the data set" {
  prepare other --label-column class
  run -1 "$TRIREME" train --task translate --data other --run r --steps 1
  [[ "$output" == *"other is a data set for the task classify, not for translate"* ]]
}

@test "damaged labels and vocabularies are found when the data set is opened" {
  prepare damaged --label-column class
  cp -r damaged d1 && echo maybe >> d1/labels.txt
  run -1 "$TRIREME" inspect d1
  [[ "$output" == *"d1/labels.txt is damaged"* ]]
  cp -r damaged d2 && echo maybe >> d2/vocab.txt
  run -1 "$TRIREME" inspect d2
  [[ "$output" == *"d2/vocab.txt is not the tokenizer of this data set"* ]]
  cp -r damaged d3 && sed -i 's/"no"/"\\u0007"/' d3/dataset.json
  run -1 "$TRIREME" inspect d3
  [[ "$output" == *"'names' should be"* ]]
  cp -r damaged d4 && perl -0pi -e 's/"labeled": \[\s*\d+/"labeled": ["7"/' d4/dataset.json
  run -1 "$TRIREME" inspect d4
  [[ "$output" == *"d4/dataset.json is damaged: 'labeled' should be a list of whole numbers"* ]]
  cp -r damaged d5 && sed -Ei 's/"lower_case": [a-z]+/"lower_case": "no"/' d5/dataset.json
  run -1 "$TRIREME" inspect d5
  [[ "$output" == *"d5/dataset.json is damaged: 'lower_case' should be true or false"* ]]
}

@test "the name of a column with a NUL byte is refused, not cut" {
  printf 'class,text\0zz\nno,a b\nyes,b a\n' > nul.csv
  run -1 "$TRIREME" prepare --quiet --task classify --train nul.csv --text-column text --label-column class --vocab vocab.txt --out nul
  [[ "$output" == *"nul.csv:1: the name of column 2 contains a NUL byte"* ]]
  [ ! -e nul ]
}
