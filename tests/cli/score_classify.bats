#!/usr/bin/env bats
# trireme score --task classify on the command line: scores of scikit-learn, formats and all errors.

bats_require_minimum_version 1.5.0
golden="$BATS_TEST_DIRNAME/../golden/classify"

setup() {
  cd "$BATS_TEST_TMPDIR" || exit 1
  printf 'text,class\none,a\ntwo,b\n' > ref.csv
  printf 'a,b\n0.9,0.1\n0.2,0.8\n' > hyp.csv
}

score() { "$TRIREME" score --task classify "$@"; }

# compare FILE SYSTEM NAME: every figure of tables.json under NAME is in the JSON output, to 1e-9.
compare() {
  perl -MJSON::PP -e '
    sub load { local (@ARGV, $/) = shift; decode_json(<>) }
    my ($got, $want) = (load($ARGV[0])->{systems}[$ARGV[1]]{scores}, load($ARGV[2])->{$ARGV[3]});
    my $count = 0;
    for my $score (sort keys %$want) {
      for my $figure (sort keys %{$want->{$score}}) {
        my ($x, $y) = ($got->{$score}{$figure}, $want->{$score}{$figure});
        die "$score $figure: $x, not $y\n" unless defined $x && abs($x - $y) <= 1e-9;
        $count++;
      }
    }
    die "nothing compared\n" unless $count;' "$1" "$2" "$golden/tables.json" "$3"
}

@test "scores, intervals and p-values are those of scikit-learn and NumPy" {
  score --ref "$golden/labels.csv" --label-column class --hyp "$golden/first.csv" --paired-bs "$golden/second.jsonl" \
    --resamples 200 --json > out.json
  compare out.json 0 first
  compare out.json 1 second
  score --ref "$golden/labels.csv" --label-column class --hyp "$golden/second.jsonl" --confidence --resamples 200 --json > out.json
  perl -MJSON::PP -0777 -e 'my $j = decode_json(<STDIN>); exit !($j->{texts} == 120 && @{$j->{systems}[0]{confusion}} == 3)' < out.json
}

@test "systems with equal scores do not differ: p is 1" {
  printf 'a,b\n0.6,0.4\n0.3,0.7\n' > other.csv # the same classes with other probabilities
  score --ref ref.csv --label-column class --hyp hyp.csv --paired-bs other.csv --paired-bs hyp.csv --resamples 100 > out
  grep -A 3 -E '^(accuracy|F1 macro|MCC)' out > equal
  [ "$(grep -c 'p = 1.0000$' equal)" -eq 6 ]
  run -1 grep -F 'p = 0.0' equal
}

@test "several labels per text: one column each, numbers with a threshold" {
  score --ref "$golden/many-labels.tsv" --label-column toxic --label-column obscene --hyp "$golden/many.csv" --json > out.json
  compare out.json 0 many
  # With a threshold above the numbers of the table no text has a label.
  run -0 score --ref "$golden/many-labels.tsv" --label-column toxic --label-column obscene --label-threshold 0.8 --hyp "$golden/many.csv"
  [[ "$output" =~ toxic\ +0\  ]]
  [[ ! "$output" =~ "MCC" ]]
  run -2 score --ref "$golden/many-labels.tsv" --label-column toxic --label-column toxic --hyp "$golden/many.csv"
  [[ "$output" =~ "--label-column toxic was given twice" ]]
}

@test "a class without texts in the reference is one of the predictions" {
  printf 'a,b,c\n0.9,0.1,0\n0.1,0.3,0.6\n' > three.csv
  printf '{"probabilities": {"a": 0.9, "b": 0.1, "c": 0}}\n{"probabilities": {"a": 0.1, "b": 0.3, "c": 0.6}}\n' > three.jsonl
  run -0 score --ref ref.csv --label-column class --hyp three.csv
  [ "${lines[0]}" = "2 texts, 3 classes" ]
  [[ "$output" =~ c\ +0\ +1\ +0.00\ +0.00\ +0.00\ +-\ +- ]]
  score --ref ref.csv --label-column class --hyp three.jsonl | cmp - <(printf '%s\n' "$output")
  # other columns of a table are not classes
  printf 'id,a,b\n0,0.9,0.1\n1,0.2,0.8\n' > named.csv
  run -0 score --ref ref.csv --label-column class --hyp named.csv
  [ "${lines[0]}" = "2 texts, 2 classes" ]
}

@test "labels as prepare reads them: empty fields, true and false, one column with a threshold" {
  printf 'x,y\n1,0\n,1\nTrue,false\n0,1\n' > many.csv
  printf 'x,y\n.9,.1\n.5,.5\n.8,.3\n.2,.6\n' > many-hyp.csv
  score --ref many.csv --label-column x --label-column y --hyp many-hyp.csv > found
  printf 'x,y\n1,0\n1,0\n0,1\n' > known.csv
  printf 'x,y\n.9,.1\n.8,.3\n.2,.6\n' > known-hyp.csv
  score --ref known.csv --label-column x --label-column y --hyp known-hyp.csv | cmp - found
  grep -q '^3 texts, 2 labels$' found
  printf 'x,y\n,1\n' > unknown.csv
  refused 1 "every row has an empty field" --ref unknown.csv --label-column x --label-column y --hyp many-hyp.csv
  printf 'v\n0.7\n0.1\n0.9\n' > numbers.csv
  printf '1,0\n.9,.1\n.1,.9\n.8,.2\n' > numbers-hyp.csv
  run -0 score --ref numbers.csv --label-column v --label-threshold 0.5 --hyp numbers-hyp.csv
  [[ "$output" =~ accuracy\ +100.00 ]]
  [[ "$output" =~ 1\ +2\ +2\ +100.00 ]]
}

@test "numbers of a regression model are refused by name" {
  printf '{"values": {"score": 0.5}}\n{"values": {"score": 0.5}}\n' > numbers.jsonl
  refused 1 "numbers.jsonl has the numbers of a regression model" --ref ref.csv --label-column class --hyp numbers.jsonl
}

@test "the text has a table of classes and a confusion matrix" {
  run -0 score --ref ref.csv --label-column class --hyp hyp.csv
  [ "${lines[0]}" = "2 texts, 2 classes" ]
  [[ "$output" =~ accuracy\ +100.00 ]]
  [[ "$output" =~ "log loss"\ +0.1643 ]]
  [[ "$output" =~ a\ +1\ +1\ +100.00 ]]
  [ "${lines[${#lines[@]} - 1]}" = "b            0        1" ]
}

@test "names of classes cannot command the terminal" {
  printf 'class\n"a\033[2J"\nb\n' > ref.csv
  printf '"a\033[2J",b\n0.9,0.1\n0.2,0.8\n' > hyp.csv
  run -0 score --ref ref.csv --label-column class --hyp hyp.csv
  [[ ! "$output" =~ $'\033' ]]
}

# refused STATUS WORDS OPTION…: one line of error with these words.
refused() {
  local status=$1 words=$2
  shift 2
  run "-$status" score "$@"
  [ "${#lines[@]}" -eq 1 ]
  [[ "$output" == *"$words"* ]]
}

@test "wrong options and tables are errors that name the place" {
  local is=(--ref ref.csv --label-column class --hyp hyp.csv)
  refused 2 "pass --label-column NAME" --ref ref.csv --hyp hyp.csv
  refused 2 "pass --ref FILE once" --label-column class --hyp hyp.csv
  refused 2 "pass --hyp FILE" --ref ref.csv --label-column class
  refused 2 "--metrics is for translations" "${is[@]}" --metrics bleu
  refused 2 "leave out --confidence" "${is[@]}" --paired-bs hyp.csv --confidence
  refused 1 "ref.csv has no column 'klass'; its columns are text, class" --ref ref.csv --label-column klass --hyp hyp.csv
  refused 2 "should end with .csv" --ref ref.csv --label-column class --hyp hyp
  printf 'a,b\n0.9,0.1\n' > short.csv
  refused 1 "short.csv has 1 row, but the reference has 2" --ref ref.csv --label-column class --hyp short.csv
  printf 'a,b\n0.9,0.1\n1.2,-0.2\n' > wrong.csv
  refused 1 "wrong.csv:3: column 'a' has '1.2', which is not a probability from 0 to 1" --ref ref.csv --label-column class --hyp wrong.csv
  printf 'id,a,b,c\n7,0.9,0.1,0\n8,0.1,0.3,0.6\n' > more.csv
  refused 1 "more.csv:3: the probabilities of the 2 classes sum to 0.4, not to 1" --ref ref.csv --label-column class --hyp more.csv
  printf 'text,class\nx,a\ny,a\n' > alone.csv
  printf 'a\n1\n1\n' > certain.csv
  refused 1 "there is 1 class; a classifier needs at least 2" --ref alone.csv --label-column class --hyp certain.csv
  printf 'text,class\nx,\n' > empty.csv
  refused 1 "empty.csv:2: column 'class' has '', which is not a label" --ref empty.csv --label-column class --hyp hyp.csv
  printf '{"probabilities": {"a": 1}}\n' > lacks.jsonl
  refused 1 "lacks.jsonl:1: there is no 'probabilities.b' in the object" --ref ref.csv --label-column class --hyp lacks.jsonl
  for hyp in '' '--hyp -'; do
    # shellcheck disable=SC2086 # two words
    refused 2 "predictions are not read from standard input" --ref ref.csv --label-column class $hyp
  done
  run -2 "$TRIREME" score --ref ref.csv --label-column class
  [[ "$output" =~ "--label-column is for classifiers: add --task classify" ]]
}
