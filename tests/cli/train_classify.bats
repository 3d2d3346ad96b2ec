#!/usr/bin/env bats
# train on data sets of labeled texts: what a classifier learns, metrics, ranks, resume, and refused options.

bats_require_minimum_version 1.5.0
load ../ranks/support

# A model that trains in a second.
SMALL=(--preset bert-tiny --d-model 32 --ffn-dim 64 --heads 2 --lr 5e-3 --warmup-steps 5 --batch-tokens 256
  --threads 1 --device cpu --system-metrics no --quiet)

# table FILE ROWS PROGRAM: appends rows with random texts to a table. PROGRAM, in Perl, returns the other fields of row
# $i, and may add words to @w.
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
  "$TRIREME" prepare --quiet --task classify --text-column text --vocab vocab.txt --out "$@" > prepare.log
}

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h good bad loud > vocab.txt
  echo text,class,good,loud,score > train.csv
  # One word decides the class, another the label loud, which is not known in some rows; the score is the sum of both.
  table train.csv 240 'my ($y, $l) = ($i % 2, $i % 3 == 0 || 0);
    push @w, $y ? "good" : "bad";
    unshift @w, "loud" if $l;
    join ",", $y ? "yes" : "no", $y, $i % 10 ? $l : "", $y + $l'
  prepare classes --train train.csv --label-column class --split 0.25
  prepare labels --train train.csv --label-column good --label-column loud --split 0.25
  prepare numbers --train train.csv --label-column score --label-type number --split 0.25
}

setup() {
  cd "$BATS_FILE_TMPDIR"
}

# fit DATA RUN [OPTION…]: trains.
fit() {
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
  perl -e 'exit !($ARGV[0] ne "none" && $ARGV[0] >= $ARGV[1])' "$value" "$3"
}

# validations RUN: prints all metrics of all validations, without their times.
validations() {
  perl -MJSON::PP -ne 'my $r = decode_json($_);
    my @names = grep { /^valid_/ && $_ ne "valid_seconds" } sort keys %$r;
    print join(" ", $r->{step}, map { "$_=$r->{$_}" } @names), "\n" if @names' "$1/metrics.jsonl"
}

# refused WORDS DATA [OPTION…]: train fails with a message that has the words, and writes nothing.
refused() {
  run --separate-stderr "$TRIREME" train --data "$2" --run refused "${SMALL[@]}" "${@:3}"
  echo "$stderr"
  [ "$status" -ne 0 ]
  [[ "$stderr" == *"$1"* ]]
  [ ! -e refused ]
}

@test "without --preset a run on a CPU trains bert-mini, says so, and keeps it" {
  local options=(--batch-tokens 256 --threads 1 --device cpu --system-metrics no --valid-every 0)
  "$TRIREME" train --data classes --run default "${options[@]}" --steps 1 > /dev/null 2> default.log
  grep -q '^model    bert-mini, the default without a GPU: bert-base is slow on a CPU' default.log
  grep -q '^preset = bert-mini$' default/config
  grep -q '"d": 256' default/checkpoints/latest/model.json
  "$TRIREME" train --run default --resume --steps 2 --quiet > /dev/null
  grep -q '"d": 256' default/checkpoints/latest/model.json
  # --preset and --init-from decide themselves.
  "$TRIREME" train --data classes --run none "${options[@]}" --preset bert-tiny --dry-run > /dev/null 2> tiny.log
  run ! grep -q 'bert-mini' tiny.log
  "$TRIREME" train --data classes --run none "${options[@]}" --init-from default --dry-run > /dev/null 2> init.log
  run ! grep -q 'bert-mini' init.log
  # Only the run's own device counts, so the choice is made before it is opened.
  run -1 --separate-stderr "$TRIREME" train --data classes --run none "${options[@]}" --device cuda:7 --dry-run
  [[ "$stderr" != *"bert-mini"* ]]
  [ ! -e none ]
}

@test "the log has one rate for one class per text, and two for several labels" {
  local set
  for set in classes labels; do
    "$TRIREME" train --data $set --run rates-$set "${SMALL[@]}" --no-quiet --steps 2 --log-every 1 --valid-every 0 2> $set.log > /dev/null
  done
  grep -q 'gnorm [0-9.]*  [0-9]* texts/s  ' classes.log
  run ! grep -q 'labels/s' classes.log
  grep -q '  [0-9]* labels/s  [0-9]* texts/s  ' labels.log
}

# samples RUN: prints the last samples, a line each: text, predicted, label.
samples() {
  perl -MJSON::PP -ne 'my $r = decode_json($_); $last = $r->{samples} if $r->{samples};
    END { print "$_->{text}\t$_->{predicted}\t$_->{label}\n" for @$last }' "$1/samples.jsonl"
}

@test "validations show texts with predicted and true labels, in the log and in samples.jsonl" {
  local options=("${SMALL[@]}" --no-quiet --steps 30 --valid-every 30)
  "$TRIREME" train --data classes --run show-classes "${options[@]}" > /dev/null 2> shown.log
  samples show-classes > got
  cat got
  [ "$(wc -l < got)" -eq 3 ]
  # The texts and labels are the first rows of valid.csv.
  perl -ne 'print "$1\t$2\n" if $. > 1 && /^"(.*)","(.*)"\r$/' classes/valid.csv | head -3 > want
  diff want <(cut -f 1,3 got)
  cut -f 2 got | perl -ne 'exit 1 unless /^(yes|no) \((0\.[5-9][0-9]|1\.00)\)$/'
  grep -qF "    -> $(head -1 got | cut -f 2)" shown.log
  grep -qF "    == $(head -1 got | cut -f 3)" shown.log
  "$TRIREME" train --data labels --run show-labels "${options[@]}" --samples 60 > /dev/null 2> /dev/null
  samples show-labels | cut -f 3 | sort -u > got
  cat got
  grep -qx 'good, loud' got
  grep -qx 'none' got
  grep -q 'loud unknown' got
  "$TRIREME" train --data numbers --run show-numbers "${options[@]}" > /dev/null 2> /dev/null
  samples show-numbers | perl -F'\t' -lane 'exit 1 unless $F[1] =~ /^score -?[0-9.]+(e-?[0-9]+)?$/ && $F[2] =~ /^score [012]$/'
  fit classes show-none --steps 2 --valid-every 1 --samples 0 > /dev/null
  [ ! -e show-none/samples.jsonl ]
}

@test "a data set whose valid.csv is gone is trained without samples" {
  cp -R classes no-rows
  chmod -R u+w no-rows
  rm no-rows/valid.csv
  "$TRIREME" train --data no-rows --run on-no-rows "${SMALL[@]}" --steps 2 --valid-every 1 > /dev/null 2> log
  grep -q 'warning: .*valid.csv.*; validations show no samples' log
  [ ! -e on-no-rows/samples.jsonl ]
}

@test "a valid.csv that is not the one of the data set is a warning: its rows are not shown with other labels" {
  cp -R classes other-rows
  chmod -R u+w other-rows
  { head -1 classes/valid.csv; tail -n +2 classes/valid.csv | tac; } > other-rows/valid.csv
  "$TRIREME" train --data other-rows --run on-other-rows "${SMALL[@]}" --steps 2 --valid-every 1 > /dev/null 2> log
  cat log
  grep -q 'warning: .*valid.csv.*; validations show no samples' log
  [ ! -e on-other-rows/samples.jsonl ]
}

@test "a classifier learns classes that words decide; the task follows from the data set" {
  run -0 fit classes learned --steps 60 --valid-every 30 --save-every 30
  [[ "$output" == *"best: macro-F1 "*" at step "* ]]
  above learned valid_accuracy 0.9
  above learned valid_f1_macro 0.9
  above learned valid_auc 0.9
  above learned accuracy 0.6
  above learned tokens_per_s 1
  [ "$(metric learned valid_mae)" = none ]
  grep -q '^task = classify$' learned/config
  grep -q '"task": "classify"' learned/checkpoints/best/training.json
}

@test "the directory of a checkpoint has what inference needs" {
  fit classes complete --steps 2
  local best=complete/checkpoints/best
  cmp classes/labels.txt $best/labels.txt
  cmp classes/vocab.txt $best/vocab.txt
  perl -MJSON::PP -e '
    my $m = decode_json(join "", <STDIN>);
    die "head" unless $m->{head} eq "softmax" && $m->{labels} == 2;
    die "ids" unless $m->{max_tokens} == 512 && $m->{lower_case} && $m->{strip_accents} && !$m->{pairs};
    die "files" unless $m->{files}{"vocab.txt"} && $m->{files}{"labels.txt"};' < $best/model.json
}

@test "several labels: the head is a sigmoid, and labels that are not known count nowhere" {
  run -0 fit labels several --steps 80 --valid-every 40
  above several valid_auc 0.9
  above several valid_f1_macro 0.8
  [ "$(metric several accuracy)" = none ]
  [ "$(metric several valid_mcc)" = none ]
  grep -q '"head": "sigmoid"' several/checkpoints/best/model.json
}

@test "numbers: the squared error falls, and the lowest is the best" {
  run -0 fit numbers regression --steps 100 --valid-every 50
  [[ "$output" == *"best: loss "* ]]
  above regression valid_pearson 0.8
  perl -e 'exit !($ARGV[0] < 0.3)' "$(metric regression valid_nll)"
  [ "$(metric regression valid_f1_macro)" = none ]
  grep -q '"head": "square"' regression/checkpoints/best/model.json
}

@test "pairs of texts are trained" {
  perl -e 'print "q,p,class\n"; printf "%s,%s,%d\n", ("good", "bad")[$_ % 2], ("a b", "c")[$_ % 3 == 0], $_ % 2 for 0 .. 39' > pairs.csv
  "$TRIREME" prepare --quiet --task classify --train pairs.csv --text-column q --text-column p --label-column class \
    --vocab vocab.txt --split 0.25 --out pairs > /dev/null
  run -0 fit pairs paired --steps 2
  grep -q '"pairs": true' paired/checkpoints/best/model.json
}

# best_of RUN: prints the step of the best checkpoint.
best_of() {
  local name
  name=$(readlink "$1/checkpoints/best")
  echo $((10#${name#step-}))
}

@test "--metric selects the best checkpoint, in its own direction" {
  # The labels of 2 in 5 validation texts are wrong: the better the words are learnt, the higher is the MCC, and the higher
  # the loss.
  echo text,class > wrong.csv
  table wrong.csv 100 'my $y = $i % 2; push @w, $y ? "good" : "bad"; ($i % 5 < 2 ? !$y : $y) ? "yes" : "no"'
  prepare wrong --train train.csv --label-column class --valid wrong.csv
  local last metric options=("${SMALL[@]}" --no-quiet --steps 1 --valid-every 1)
  for metric in log-loss mcc; do
    run -0 "$TRIREME" train --data wrong --run by-$metric "${options[@]}" --metric $metric
    [ "$(best_of by-$metric)" -eq 1 ]
    last=$("$TRIREME" train --run by-$metric --resume --quiet --steps 60 --valid-every 60)
    echo "$last"
    validations by-$metric
  done
  [[ "$output" == *"valid    step 1  loss "*"  accuracy "*"  macro-F1 "*"  AUC "*"  MCC "* ]]
  [ "$(best_of by-log-loss)" -eq 1 ]
  [ "$(best_of by-mcc)" -eq 60 ]
  [[ "$last" == *"best: MCC $(printf %.4f "$(metric by-mcc valid_mcc)") at step 60,"* ]]
  run -2 "$TRIREME" train --run by-mcc --resume --quiet --steps 62 --metric loss
  [[ "$output" == *"--metric is loss and was mcc"* ]]
}

@test "--patience ends a run whose metric does not get better" {
  # With a learning rate of 0 every validation has the same loss.
  run -0 fit classes early --steps 50 --valid-every 2 --lr 0 --metric log-loss --patience 2
  [[ "$output" == *"ended early at step 6 "* ]]
  [[ "$output" == *"best: loss "*" at step 2,"* ]]
  run -0 "$TRIREME" train --run early --resume
  [[ "$output" == *"the run ended early at step 6"*"larger --patience"* ]]
  if [[ "$output" == *"step 8"* ]]; then false; fi
  run -0 "$TRIREME" train --run early --resume --patience 3
  [[ "$output" == *"ended early at step 8"* ]]
}

@test "validation with one class alone has no AUC, and --metric auc is refused" {
  { echo text,class; echo a good,yes; echo b good,yes; } > one.csv
  prepare one --train train.csv --label-column class --valid one.csv
  run -0 fit one alone --steps 2
  [ "$(metric alone valid_auc)" = none ]
  above alone valid_accuracy 0
  refused "--metric auc is not defined: all validation texts have the same labels" one --metric auc
}

@test "a data set without validation trains, without a best checkpoint" {
  prepare plain --train train.csv --label-column class
  run -0 fit plain unjudged --steps 2
  [ -e unjudged/checkpoints/latest/labels.txt ]
  [ ! -e unjudged/checkpoints/best ]
}

@test "class weights of 1 change nothing, others change the loss but not its plain part" {
  fit classes unweighted --steps 3 --log-every 1 --lr-scheduler constant > /dev/null
  fit classes ones --steps 3 --log-every 1 --lr-scheduler constant --class-weights 1,1 > /dev/null
  same_state unweighted ones
  fit classes weighted --steps 1 --log-every 1 --class-weights 2,2 > /dev/null
  perl -e 'exit !(abs($ARGV[0] - 2 * $ARGV[1]) < 1e-4)' "$(metric weighted loss)" "$(metric weighted nll)"
}

@test "a step without a known label has no loss: nothing is rolled back" {
  echo text,good,loud > sparse.csv
  table sparse.csv 240 'join ",", $i % 40 ? "" : $i / 40 % 2, $i % 60 ? "" : $i / 60 % 2'
  prepare sparse --train sparse.csv --label-column good --label-column loud --split 0.25
  run -0 fit sparse few --steps 30 --valid-every 15 --batch-tokens 64 --log-every 1
  [[ "$output" != *"not finite"* ]]
  [ "$(grep -c '"loss":0[.]0,' few/metrics.jsonl)" -gt 3 ]
  [ "$(grep -c '"loss":0[.][0-9]*[1-9]' few/metrics.jsonl)" -gt 3 ]
}

@test "--class-weights balanced gives every class the same share of the loss" {
  echo text,class > rare.csv
  table rare.csv 80 '$i % 4 ? "no" : "yes"'
  prepare rare --train rare.csv --label-column class
  # 20 of 80 texts are yes: the weights are 80 / (2 * 60) and 80 / (2 * 20).
  fit rare balanced --steps 2 --class-weights balanced > /dev/null
  fit rare listed --steps 2 --class-weights 0.66666667,2 > /dev/null
  same_state balanced listed
}

@test "frozen layers keep their weights, and layers may have their own learning rates" {
  run -0 fit classes frozen --steps 2 --freeze-layers 1 --layer-lr-decay 0.5
  run -0 fit classes whole --steps 2
  run ! cmp -s frozen/checkpoints/latest/weights.safetensors whole/checkpoints/latest/weights.safetensors
}

@test "a resumed run ends with the same bits, and refuses another data set" {
  local options=(--lr-scheduler constant --valid-every 4 --save-every 4 --seed 5)
  fit classes straight "${options[@]}" --steps 12 > /dev/null
  fit classes parts "${options[@]}" --steps 5 > /dev/null
  run -2 "$TRIREME" train --run parts --resume --quiet --steps 12 --data labels
  "$TRIREME" train --run parts --resume --quiet --steps 12 > /dev/null
  same_state straight parts
  # The first part validates at its end too.
  validations straight > want
  validations parts | grep -v '^5 ' > got
  diff want got
}

@test "1, 2 and 4 ranks end with the same bits and scores under --reproducible" {
  need_mpi
  local options=(--reproducible --micro-batches 4 --batch-tokens 64 --steps 6 --valid-every 3) n
  fit classes rank1 "${options[@]}" > /dev/null
  validations rank1 > want
  for n in 2 4; do
    mpirun -n $n "$TRIREME" train --data classes --run rank$n "${SMALL[@]}" "${options[@]}" > /dev/null
    same_state rank1 rank$n
    validations rank$n > got
    diff want got
  done
}

@test "launch starts two ranks that train a classifier" {
  timeout 300 "$TRIREME" launch --nproc-per-node 2 -- \
    train --data classes --run launched "${SMALL[@]}" --reproducible --micro-batches 2 --steps 4 --valid-every 2 > launch.log 2>&1 || { cat launch.log; false; }
  fit classes single --reproducible --micro-batches 2 --steps 4 --valid-every 2 > /dev/null
  same_state single launched
}

@test "a device's memory, padding and graphs give the bits of the CPU" {
  make_gpu
  local options=(--steps 6 --valid-every 3 --class-weights "1,3")
  fit classes host "${options[@]}" > /dev/null
  TRIREME_PLUGIN_PATH=$BATS_FILE_TMPDIR/plugins fit classes device "${options[@]}" --device cuda > /dev/null
  same_state host device
  validations host > want
  validations device > got
  diff want got
}

@test "report and watch describe the run of a classifier" {
  fit classes seen --steps 6 --valid-every 2 --log-every 1 > /dev/null
  run -0 "$TRIREME" report seen --out seen.html
  [[ "$output" == *"for 6 steps"* ]]
  run -0 env COLUMNS=200 LINES=40 "$TRIREME" watch --once seen
  [[ "$output" == *"valid_nll"* ]]
  [[ "$output" == *"  accuracy 0."*"  macro-F1 0."*"  best macro-F1 0."*" at step "* ]]
  [[ "$output" == *" tokens/s  "*" texts/s  "* ]]
}

@test "the report of classifiers has their metrics, loss and schedule, and nothing of translations" {
  for run in first second; do
    fit classes "seen-$run" --steps 6 --valid-every 2 --log-every 1 > /dev/null
  done
  "$TRIREME" report seen-first seen-second --markdown --price-per-hour 2 > seen.md
  grep -q '^- best validation macro-F1: [01]\.[0-9]* at step [246]$' seen.md
  grep -q '^- last validation AUC: [01]\.[0-9]*$' seen.md
  grep -q 'Both are the same loss, per label' seen.md
  grep -q 'then it falls in a straight line' seen.md
  grep -q '^- tokens per second: [0-9]' seen.md
  grep -q '^| label | number | what |$' seen.md
  grep -q '^| tokens/s | [0-9,]* | [0-9,]* |$' seen.md
  grep -q '^| best validation accuracy | [01]\.[0-9]* at step [246] | [01]\.[0-9]* at step [246] |$' seen.md
  # The path of the temporary directory may have any letters.
  grep -v '^- called in' seen.md > seen.text
  run ! grep -iE 'bleu|pairs|target tokens|per token|noam' seen.text
  run ! grep -iw 'nan' seen.text
  "$TRIREME" report seen-first seen-second --out seen.html --quiet
  grep -q 'loss per label' seen.html
  grep -q 'validation macro-F1' seen.html
  sed "s|$PWD||g" seen.html > seen.text
  run ! grep -iE 'bleu|pairs|target tokens|nats/token' seen.text
}

@test "the report names the warm-up that a run had: by default a tenth of its steps" {
  local options=() i
  for ((i = 0; i < ${#SMALL[@]}; i++)); do
    if [ "${SMALL[i]}" = --warmup-steps ]; then i=$((i + 1)); else options+=("${SMALL[i]}"); fi
  done
  "$TRIREME" train --data classes --run seen-warmup "${options[@]}" --steps 40 --log-every 1 > /dev/null
  "$TRIREME" report seen-warmup --markdown > seen.md
  grep -q 'The rate rises linearly during the warm-up of 4 steps, .* to 0.005 near step [45], then it falls in a straight line' seen.md
  # Runs of earlier versions do not have the number.
  sed -i 's/,"warmup_steps":4//' seen-warmup/processes.jsonl
  "$TRIREME" report seen-warmup --markdown > seen.md
  grep -q 'The rate rises linearly, because .* to 0.005 near step [45], then it falls in a straight line' seen.md
}

@test "a classifier is reported as one without its data set, and without its config" {
  cp -R classes seen-set
  fit seen-set seen-alone --steps 6 --valid-every 2 --log-every 1 > /dev/null
  chmod -R u+w seen-set
  rm -r seen-set
  "$TRIREME" report seen-alone --markdown > seen.md
  grep -qx -- '- texts: unknown' seen.md
  run ! grep -iE 'pairs kept|source tokens|target tokens' seen.md
  rm seen-alone/config
  "$TRIREME" report seen-alone --markdown > seen.md
  grep -q 'Both are the same loss, per label' seen.md
  grep -q '^- tokens per second: [0-9]' seen.md
}

@test "the report of one number for each text says so in the singular" {
  fit numbers seen-number --steps 2 > /dev/null
  "$TRIREME" report seen-number --markdown > seen.md
  grep -q 'Each text has 1 number, listed' seen.md
}

@test "options of another task and wrong values are refused" {
  refused "--beam-size is an option of --task translate, not of classify" classes --beam-size 2
  refused "--encoder-layers is an option of --task translate, not of classify" classes --encoder-layers 2
  refused "--metric is an option of --task classify, not of translate" classes --task translate --metric auc
  refused "classes is a data set for the task classify, not for translate" classes --task translate --preset tiny
  refused "--preset small: there is no such preset of BERT models" classes --preset small
  refused "--metric mae is not defined: the labels of this data set are no numbers" classes --metric mae
  refused "--metric mcc is not defined: a text of this data set may have several labels" labels --metric mcc
  refused "--metric auc is not defined: the labels of this data set are numbers" numbers --metric auc
  refused "--class-weights balanced needs classes" numbers --class-weights balanced
  refused "--label-smoothing 0.1 needs classes, but the labels of this data set are numbers" numbers --label-smoothing 0.1
  for list in 1 1,2,3 1,x 1,0 1,-1 1,nan 1,inf "," ''; do
    refused "--class-weights '$list' is neither none, balanced nor a list of 2 numbers" classes --class-weights "$list"
  done
  { echo text,class; echo a b c d e f g h a b c d e f g h a b,yes; } > long.csv
  prepare long --train train.csv --label-column class --valid long.csv
  refused "cannot hold the longest validation text, 20 tokens; give --batch-tokens 20" long --batch-tokens 16
}

@test "--steps on the command line replaces epochs of a config file, and the reverse" {
  printf 'epochs = 1\n' > epochs.conf
  run -0 fit classes steps-over-epochs --config epochs.conf --steps 2 --valid-every 0
  echo "$output"
  [[ "$output" == *"done at step 2 "* ]]
  run -0 grep -E '^(steps|epochs) =' steps-over-epochs/config
  [ "$output" = "steps = 2" ]
  # the run is resumed with its steps, or those given now
  run -0 fit classes steps-over-epochs --resume
  echo "$output"
  [[ "$output" == *"done at step 2 "* ]]
  printf 'steps = 2\n' > steps.conf
  run -0 "$TRIREME" train --run steps-over-epochs --resume --epochs 1 --config steps.conf --quiet
  [[ "$output" == *"done at step "* && "$output" != *"done at step 2 "* ]]
  run -0 grep -E '^(steps|epochs) =' steps-over-epochs/config
  [ "$output" = "epochs = 1" ]
  # the same source
  run -2 fit classes refused --steps 2 --epochs 1
  [[ "$output" == *"--steps and --epochs exclude each other"* ]]
  printf 'steps = 2\nepochs = 1\n' > both.conf
  run -2 fit classes refused --config both.conf
  [[ "$output" == *"--steps and --epochs exclude each other"* ]]
  [ ! -e refused ]
}

@test "--patience and --metric without validation texts give a warning" {
  prepare unvalidated --train train.csv --label-column class
  run -0 fit unvalidated no-validation --steps 2 --warmup-steps 1 --patience 2 --metric auc
  [[ "$output" == *"warning: --patience 2 has no effect: the data set has no validation text"* ]]
  [[ "$output" == *"warning: --metric auc has no effect: the data set has no validation texts"* ]]
  run -0 fit unvalidated quiet-without --steps 2 --warmup-steps 1
  [[ "$output" != *warning* ]]
}
