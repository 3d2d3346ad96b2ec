#!/usr/bin/env bats
# train on data sets of plain text: what a masked language model learns, ranks, resume, and refused options.

bats_require_minimum_version 1.5.0
load ../ranks/support

# A model that trains in a second.
SMALL=(--preset bert-tiny --d-model 32 --ffn-dim 64 --heads 2 --layers 1 --lr 1e-2 --warmup-steps 5 --batch-tokens 256
  --threads 1 --device cpu --system-metrics no --quiet)

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h > vocab.txt
  # Every text repeats one word, so a masked word can be read from the others.
  perl -e 'for my $i (0 .. 239) { print join(" ", (chr(97 + $i % 8)) x (3 + $i % 7)), "\n" }' > lines.txt
  "$TRIREME" prepare --quiet --task mlm --train lines.txt --split 0.25 --vocab vocab.txt --out set > /dev/null
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# fit RUN [OPTION…]: trains.
fit() {
  "$TRIREME" train --data set --run "$1" "${SMALL[@]}" "${@:2}"
}

# validations RUN: prints step and metrics of all validations.
validations() {
  perl -MJSON::PP -ne 'my $r = decode_json($_);
    print "$r->{step} $r->{valid_nll} $r->{valid_accuracy}\n" if defined $r->{valid_nll}' "$1/metrics.jsonl"
}

# same_state RUN RUN: the last checkpoints have the same weights and optimizer state.
same_state() {
  local file
  for file in weights moment1 moment2; do
    cmp "$1/checkpoints/latest/$file.safetensors" "$2/checkpoints/latest/$file.safetensors"
  done
}

@test "a masked language model learns to read masked words from the others" {
  run -0 fit learn --steps 80 --valid-every 40
  [[ "$output" == *"best: loss"* ]]
  validations learn > got
  cat got
  # Chance is 1 of 8 words.
  perl -ane '($step, $nll, $accuracy) = @F; END { exit !($step == 80 && $nll < 1 && $accuracy > 0.6) }' got
  grep -q '"head": "mlm"' learn/checkpoints/best/model.json
  grep -q '"pooler": "none"' learn/checkpoints/best/model.json
  cmp vocab.txt learn/checkpoints/best/vocab.txt
}

@test "validations of the same weights have the same masks, for any batch size" {
  fit small --steps 2 --lr 0 --valid-every 1 --batch-tokens 64 > /dev/null
  fit large --steps 1 --lr 0 --valid-every 1 --batch-tokens 2048 > /dev/null
  validations small > got
  validations large >> got
  cat got
  # Sums of other batches may differ in the last digits.
  [ "$(awk '{ printf "%.5f %.5f\n", $2, $3 }' got | sort -u | wc -l)" -eq 1 ]
}

@test "a resumed run ends with the same bits" {
  local options=(--lr-scheduler constant --valid-every 4 --save-every 4 --seed 5)
  fit straight "${options[@]}" --steps 12 > /dev/null
  fit parts "${options[@]}" --steps 5 > /dev/null
  "$TRIREME" train --run parts --resume --quiet --steps 12 > /dev/null
  same_state straight parts
  validations straight > want
  # The first part validates at its end too.
  validations parts | grep -v '^5 ' > got
  diff want got
}

@test "1, 2 and 4 ranks end with the same bits under --reproducible" {
  need_mpi
  local options=(--reproducible --micro-batches 4 --batch-tokens 64 --steps 6 --valid-every 3) n
  fit rank1 "${options[@]}" > /dev/null
  validations rank1 > want
  for n in 2 4; do
    mpirun -n $n "$TRIREME" train --data set --run rank$n "${SMALL[@]}" "${options[@]}" > /dev/null
    same_state rank1 rank$n
    validations rank$n > got
    diff want got
  done
}

# parameters MODEL: prints name and shape of every parameter, without those of the head.
parameters() {
  perl -MJSON::PP -e 'local $/; open my $in, "<:raw", $ARGV[0] or die; my $all = <$in>;
    my $header = decode_json(substr $all, 8, unpack "Q<", $all);
    print map { "$_ @{$header->{$_}{shape}}\n" } sort grep { !/^(__metadata__|mlm|pooler|classifier)/ } keys %$header' \
    "$1/weights.safetensors"
}

@test "the encoder has the parameters of a classifier of the same preset" {
  perl -ne 'BEGIN { print "text,class\n" } chomp; print "$_,", $. % 2, "\n"' lines.txt > table.csv
  "$TRIREME" prepare --quiet --task classify --train table.csv --text-column text --label-column class \
    --vocab set/vocab.txt --max-tokens 16 --out labeled > /dev/null
  "$TRIREME" train --data labeled --run classes "${SMALL[@]}" --steps 1 > /dev/null
  fit encoder --steps 1 > /dev/null
  parameters encoder/checkpoints/latest > got
  parameters classes/checkpoints/latest > want
  grep -q '^embed.positions 512 32' want
  diff want got
  "$TRIREME" train --data labeled --run tuned --init-from encoder --steps 1 --batch-tokens 256 --threads 1 --device cpu --system-metrics no > /dev/null 2> log
  grep 'initialised: pooler.weight, pooler.bias, classifier.weight, classifier.bias$' log
}

@test "texts with labels are pretraining text too: their masks and weights are those of texts without" {
  perl -ne 'BEGIN { print "text,class\n" } chomp; print "$_,", $. % 2, "\n"' lines.txt > both.csv
  "$TRIREME" prepare --quiet --task mlm --train both.csv --text-column text --vocab vocab.txt --out plain > /dev/null
  "$TRIREME" prepare --quiet --task classify --train both.csv --text-column text --label-column class --vocab vocab.txt \
    --out marked > /dev/null
  for set in plain marked; do
    "$TRIREME" train --task mlm --data $set --run on-$set "${SMALL[@]}" --steps 4 --valid-every 0 > /dev/null
  done
  same_state on-plain on-marked
  "$TRIREME" train --run on-marked --resume --quiet --steps 5 > /dev/null
  grep -q '"head": "mlm"' on-marked/checkpoints/latest/model.json
  [ ! -e on-marked/checkpoints/latest/labels.txt ]
}

@test "texts with labels that cannot be masked: without a word, or without [MASK]" {
  printf 'text,class\n%s' "$(printf ',%d\n' 0 1 0 1 0 1)" > empty.csv
  "$TRIREME" prepare --quiet --task classify --train empty.csv --text-column text --label-column class --vocab vocab.txt \
    --out empty > /dev/null
  run -2 --separate-stderr "$TRIREME" train --task mlm --data empty --run refused "${SMALL[@]}"
  [[ "$stderr" == *"no training text of "*"empty has a word"* ]]
  grep -v MASK vocab.txt > maskless.txt
  "$TRIREME" prepare --quiet --task classify --train both.csv --text-column text --label-column class --vocab maskless.txt \
    --out maskless > /dev/null
  run -2 --separate-stderr "$TRIREME" train --task mlm --data maskless --run refused "${SMALL[@]}"
  [[ "$stderr" == *"has no piece [MASK]"* ]]
  # <pad> serves for SentencePiece alone, not for a byte-level BPE.
  mkdir bytes
  cp "$BATS_TEST_DIRNAME/../golden/bert_import/roberta/merges.txt" bytes
  sed 's/"<mask>"/"zz"/' "$BATS_TEST_DIRNAME/../golden/bert_import/roberta/vocab.json" > bytes/vocab.json
  "$TRIREME" prepare --quiet --task classify --train both.csv --text-column text --label-column class --tokenizer bytes \
    --out maskless-bytes > /dev/null
  run -2 --separate-stderr "$TRIREME" train --task mlm --data maskless-bytes --run refused "${SMALL[@]}"
  [[ "$stderr" == *"has no piece <mask>"* ]]
  [ ! -e refused ]
  # In a data set with words, some texts may have none.
  { cat both.csv; printf ',1\n,0\n'; } > some.csv
  "$TRIREME" prepare --quiet --task classify --train some.csv --text-column text --label-column class --vocab vocab.txt \
    --out some > /dev/null
  "$TRIREME" train --task mlm --data some --run on-some "${SMALL[@]}" --steps 2 --valid-every 0 > /dev/null
}

@test "another mask rate trains other weights" {
  fit rate15 --steps 2 > /dev/null
  fit rate40 --steps 2 --mask-rate 0.4 > /dev/null
  run ! cmp -s rate15/checkpoints/latest/weights.safetensors rate40/checkpoints/latest/weights.safetensors
}

@test "options of another task and data sets of another task are refused" {
  run -2 --separate-stderr "$TRIREME" train --data set --run refused "${SMALL[@]}" --class-weights balanced
  [[ "$stderr" == *"--class-weights is an option of --task classify, not of mlm"* ]]
  run -2 --separate-stderr "$TRIREME" train --data set --run refused "${SMALL[@]}" --mask-rate 0
  [[ "$stderr" == *"mask-rate"* ]]
  run --separate-stderr "$TRIREME" train --task classify --data set --run refused "${SMALL[@]}"
  [ "$status" -ne 0 ]
  [[ "$stderr" == *"set is a data set for the task mlm, not for classify"* ]]
  [ ! -e refused ]
}
