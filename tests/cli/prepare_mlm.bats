#!/usr/bin/env bats
# prepare --task mlm and inspect of its data sets: plain text, tables, long and empty lines, refused input.

bats_require_minimum_version 1.5.0

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f > vocab.txt
  perl -e 'srand 3; print join(" ", map { chr(97 + rand 6) } 1 .. 1 + rand 12), "\n" for 1 .. 200' > lines.txt
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# prepare OUT OPTION…: prepares texts with the vocabulary above.
prepare() {
  local out=$1
  shift
  "$TRIREME" prepare --quiet --task mlm --vocab vocab.txt --out "$out" "$@"
}

# refused WORDS OPTION…: prepare fails with a message that has the words, and writes nothing.
refused() {
  local words=$1
  shift
  run --separate-stderr "$TRIREME" prepare --quiet --task mlm --out refused "$@"
  echo "$stderr"
  [ "$status" -ne 0 ]
  [[ "$stderr" == *"$words"* ]]
  [ ! -e refused ]
  [ ! -e refused.partial ]
}

@test "plain text: every line is a text, counts and lengths are as inspect shows them" {
  run -0 prepare plain --train lines.txt --split 0.1
  [[ "$output" == *"texts"*"180"*"20"* ]]
  "$TRIREME" inspect plain --json --verify --quiet > plain.json
  perl -MJSON::PP -e '
    my $d = decode_json(join "", <STDIN>);
    die "task" unless $d->{task} eq "mlm" && $d->{requires}[0] eq "mlm" && $d->{verified};
    die "labels" if exists $d->{labels} || exists $d->{splits}{train}{labeled};
    die "mask" unless $d->{tokenizer}{mask} == 4;
    die "rows" unless $d->{splits}{train}{rows} == 180 && $d->{splits}{valid}{examples} == 20;
    my ($n, $tokens) = (0, 0);
    for my $i (0 .. $#{$d->{texts_by_tokens}}) { $n += $d->{texts_by_tokens}[$i]; $tokens += $i * $d->{texts_by_tokens}[$i]; }
    die "lengths" unless $n == 180 && $tokens == $d->{splits}{train}{tokens};' < plain.json
  run -0 "$TRIREME" inspect plain --split valid
  [[ "$output" == *"data set for mlm, texts without labels"* ]]
  [[ "$output" == *"[CLS] "*" [SEP]"* ]]
  [[ "$output" != *"labels,"* ]]
}

@test "plain, compressed, and a column of a table have the same ids on any number of threads" {
  { echo 'id,text'; perl -ne 'chomp; print "$.,\"$_\"\n"' lines.txt; } > table.csv
  gzip -k lines.txt
  prepare one --train lines.txt --threads 1
  prepare two --train lines.txt --threads 3
  diff -r one two
  prepare three --train lines.txt.gz
  prepare four --train table.csv --text-column text
  for set in one three four; do "$TRIREME_TOOLS/dump_texts" $set train > $set.ids; done
  cmp one.ids three.ids
  cmp one.ids four.ids
  [ "$(wc -l < one.ids)" -eq 200 ]
}

@test "a long text is divided, empty lines and lines without a known word are left out" {
  printf '%s\n' 'a b c d e f a' '' 'x y' 'b' ' ' > long.txt
  run -0 prepare long --train long.txt --max-tokens 5
  [[ "$output" == *"divided at --max-tokens"*"1"* ]]
  [[ "$output" == *"without a word"*"2"* ]]
  "$TRIREME_TOOLS/dump_texts" long train | cut -f 3 > got
  printf '%s\n' '2 5 6 7 3' '2 8 9 10 3' '2 5 3' '2 6 3' > want
  cmp want got
}

@test "validation files, several training files, and a trained vocabulary" {
  "$TRIREME" prepare --quiet --task mlm --train lines.txt --train lines.txt --valid lines.txt --vocab-size 40 --out own > /dev/null
  [ "$(head -n 5 own/vocab.txt | tr '\n' ' ')" = '[PAD] [UNK] [CLS] [SEP] [MASK] ' ]
  [ "$("$TRIREME_TOOLS/dump_texts" own train | wc -l)" -eq 400 ]
  [ "$("$TRIREME_TOOLS/dump_texts" own valid | wc -l)" -eq 200 ]
}

@test "SentencePiece: <pad> takes the place of [MASK]" {
  perl -e 'print join(" ", map { chr(97 + rand 6) x (1 + rand 3) } 1 .. 8), "\n" for 1 .. 300' > raw
  "$TRIREME" prepare --quiet --train raw raw --valid raw raw --vocab-size 24 --out sp > /dev/null || skip "built without SentencePiece"
  "$TRIREME" prepare --task mlm --train raw --tokenizer sp/tokenizer.model --out spm > out 2>&1
  grep -q '<pad> takes the place of masked tokens' out
  run -0 "$TRIREME" inspect spm
  [[ "$output" == *"pad 0, cls 2, sep 1, unk 3, mask 0"* ]]
}

@test "bad input is refused, and leaves nothing" {
  : > empty.txt
  printf 'x y z\n' > unknown.txt
  printf 'a\n\377\n' > bytes.txt
  grep -v MASK vocab.txt > nomask.txt
  refused 'has no line that is not empty' --vocab vocab.txt --train empty.txt
  refused '--train -: texts are read more than once' --vocab vocab.txt --train -
  printf 'text\na b\n' > table.csv
  refused '--train table.csv is a table: pass --text-column NAME' --vocab vocab.txt --train lines.txt --train table.csv
  refused '--valid table.csv is a table: pass --text-column NAME' --vocab vocab.txt --train lines.txt --valid table.csv
  refused 'no line of the train text has a word' --vocab vocab.txt --train unknown.txt
  refused 'bytes.txt:2: byte 1 of the line is not UTF-8' --vocab vocab.txt --train bytes.txt
  refused 'nomask.txt has no piece [MASK]' --vocab nomask.txt --train lines.txt
  refused "takes one file with --task mlm, not 'lines.txt lines.txt'" --vocab vocab.txt --train lines.txt lines.txt
  refused '--label-column is not an option of prepare --task mlm' --vocab vocab.txt --train lines.txt --label-column x
  refused '--text-column is given 2 times' --vocab vocab.txt --train lines.txt --text-column a --text-column b
  refused 'pass the tokenizer' --train lines.txt
}

@test "each task refuses the data sets of another" {
  prepare other --train lines.txt
  run -1 --separate-stderr "$TRIREME" inspect --task classify other
  [[ "$stderr" == *"is a data set for the task mlm, not for classify"* ]]
  run -1 --separate-stderr "$TRIREME" inspect --task translate other
  [[ "$stderr" == *"is a data set for the task mlm, not for translate"* ]]
}
