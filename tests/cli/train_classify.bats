#!/usr/bin/env bats
# train on data sets of labeled texts: what a classifier learns, ranks, resume, and refused options.

bats_require_minimum_version 1.5.0

# A model that trains in a second, and steps that suffice for the words below.
SMALL=(--preset bert-tiny --d-model 32 --ffn-dim 64 --heads 2 --lr 5e-3 --warmup-steps 5 --batch-tokens 256
  --threads 1 --device cpu --system-metrics no --quiet)

# table FILE ROWS PROGRAM: writes a table of ROWS random texts. PROGRAM makes the fields after the text of $i, and may
# add words to @w.
table() {
  perl -e '
    my ($rows, $program) = @ARGV;
    srand 3;
    for $i (0 .. $rows - 1) {
      @w = map { chr(97 + rand 8) } 1 .. 2 + rand 6;
      my $fields = eval $program;
      die $@ if $@;
      print join(" ", @w), ",$fields\n";
    }' "$2" "$3" >> "$1"
}

# prepare OUT [OPTION…]
prepare() {
  local out=$1
  shift
  "$TRIREME" prepare --quiet --task classify --text-column text --vocab vocab.txt --split 0.25 --out "$out" "$@" > prepare.log
}

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h good bad loud > vocab.txt
  echo text,class,loud,score > train.csv
  # The class is decided by one word, the label loud by another, and the score is the sum of both.
  table train.csv 240 'my $y = $i % 2; my $l = $i % 3 == 0 || 0;
    push @w, $y ? "good" : "bad"; unshift @w, "loud" if $l;
    ($y ? "yes" : "no") . "," . $l . "," . ($y + $l)'
  prepare classes --train train.csv --label-column class
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# train DATA RUN [OPTION…]
train() {
  "$TRIREME" train --data "$1" --run "$2" "${SMALL[@]}" "${@:3}"
}

# metric RUN NAME: prints the last value of a metric.
metric() {
  perl -MJSON::PP -ne 'BEGIN { $name = shift } my $r = decode_json($_); $x = $r->{$name} if defined $r->{$name};
    END { print $x // "none" }' "$2" "$1/metrics.jsonl"
}

# above RUN NAME VALUE: the last value of a metric is at least VALUE.
above() {
  local value
  value=$(metric "$1" "$2")
  echo "$2 $value"
  perl -e 'exit !($ARGV[0] >= $ARGV[1])' "$value" "$3"
}

# same_weights RUN RUN
same_weights() {
  cmp "$1/checkpoints/latest/weights.safetensors" "$2/checkpoints/latest/weights.safetensors"
}

# refused WORDS [OPTION…]: train fails with a message that has the words, and writes nothing.
refused() {
  local words=$1
  shift
  run --separate-stderr "$TRIREME" train --run refused "${SMALL[@]}" "$@"
  echo "$stderr"
  [ "$status" -eq 2 ]
  [[ "$stderr" == *"$words"* ]]
  [ ! -e refused ]
}

@test "a classifier learns classes that words decide; the task follows from the data set" {
  run -0 train classes learned --steps 60 --valid-every 30 --save-every 30
  [[ "$output" == *"best: macro-F1 "*" at step "* ]]
  above learned valid_accuracy 0.9
  above learned valid_f1_macro 0.9
  above learned valid_auc 0.9
  grep -q '^task = classify$' learned/config
  grep -q '"task": "classify"' learned/checkpoints/best/training.json
  # The directory of the model is complete.
  cmp classes/labels.txt learned/checkpoints/best/labels.txt
  cmp classes/vocab.txt learned/checkpoints/best/vocab.txt
  grep -q '"head": "softmax"' learned/checkpoints/best/model.json
  grep -q '"lower_case": true' learned/checkpoints/best/model.json
}
