#!/usr/bin/env bats
# trireme report on real runs with a known problem: overfitting, data wait, one slow rank; two
# runs compared; formats of the report. Runs limited by a slow link are in tests/cluster/report.bats.

bats_require_minimum_version 1.5.0
load ../ranks/support

# Random words on both sides: there is nothing to learn beyond the training pairs.
words() { perl -e 'my ($seed, $lines, $first) = @ARGV; srand $seed; for (1 .. $lines) { print join(" ", map { join "", map { chr $first + int rand 12 } 1 .. 1 + int rand 5 } 1 .. 3 + int rand 6), "\n" }' "$@"; }

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set" R="$BATS_FILE_TMPDIR"
  words 3 30 97 > "$R/train.a"
  words 4 30 110 > "$R/train.b"
  words 5 12 97 > "$R/valid.a"
  words 6 12 110 > "$R/valid.b"
  "$TRIREME" prepare --quiet --train "$R/train.a" "$R/train.b" --valid "$R/valid.a" "$R/valid.b" --vocab-size 48 --out "$SET" > /dev/null
  tiny "$R/overfitted" --dropout 0 --steps 120 --valid-every 12 > /dev/null
}

setup() {
  T=$BATS_TEST_TMPDIR
}

OPTIONS=(--quiet --device cpu --preset tiny --d-model 32 --ffn-dim 64 --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 512
  --lr-scheduler cosine --lr 1e-2 --warmup-steps 10 --log-every 1 --beam-size 1 --samples 0 --average-checkpoints 0 --threads 1)
# tiny RUN OPTION…: trains a tiny model.
tiny() {
  local run=$1
  shift
  "$TRIREME" train --data "$SET" --run "$run" "${OPTIONS[@]}" "$@"
}

# field REPORT PATH: a value of a report in JSON, for example runs/0/answers/network/headline.
field() { perl -MJSON::PP -e 'my $v = decode_json(do { local (@ARGV, $/) = shift; <> }); for (split m{/}, shift) { $v = ref $v eq "ARRAY" ? $v->[$_] : $v->{$_} } print defined $v ? $v : "unknown"' "$1" "$2"; }
headline() { field "$1" "runs/0/answers/$2/headline"; }

@test "a report finds that a run was overfitting, and since when" {
  "$TRIREME" report "$R/overfitted" --json > "$T/r.json"
  [[ "$(headline "$T/r.json" overfitting)" =~ ^"Yes, since step "[1-9] ]]
  [[ "$(headline "$T/r.json" trained)" =~ "Past its best" ]]
  [[ "$(field "$T/r.json" runs/0/answers/overfitting/sentence)" =~ "There was no dropout" ]]
  [[ "$(field "$T/r.json" runs/0/changes/0/what)" =~ "begins to overfit" ]]
}

@test "a report finds that a run was starved of data" {
  TRIREME_FAULT=slow-data:500 tiny "$T/run" --steps 5 --valid-every 0 > /dev/null
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [[ "$(headline "$T/r.json" devices)" =~ "of a step is data wait" ]]
  [[ "$(field "$T/r.json" runs/0/changes/0/what)" =~ "Feed data faster" ]]
}

@test "the parts of a step are within its time, also where validations fall between records" {
  tiny "$T/run" --steps 30 --log-every 5 --valid-every 4 > /dev/null
  perl -MJSON::PP -ne '$r = decode_json($_); next unless $r->{steps_per_s}; $sum = 0; $sum += $r->{"${_}_ms"} for qw(data_wait forward backward comm_wait update checkpoint);
    $n++; die "step $r->{step}: parts of $sum ms, step of ", 1e3 / $r->{steps_per_s}, " ms" if $sum > 1.001 * 1e3 / $r->{steps_per_s}; END { die "no records" unless $n == 6 }' "$T/run/metrics.jsonl"
}

@test "a report names the rank that was slow" {
  need_mpi
  mpirun -n 1 "$TRIREME" train --data "$SET" --run "$T/run" "${OPTIONS[@]}" --micro-batches 2 --steps 5 --valid-every 0 : \
    -n 1 env TRIREME_FAULT=slow-compute:500 "$TRIREME" train --data "$SET" --run "$T/run" "${OPTIONS[@]}" --micro-batches 2 --steps 5 --valid-every 0
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/straggler)" = 1 ]
  [[ "$(headline "$T/r.json" devices)" =~ "waits for rank 1" ]]
  [[ "$(field "$T/r.json" runs/0/changes/0/what)" =~ "Make rank 1 on ".*" as fast as the others" ]]
  "$TRIREME" report "$T/run" --out - | grep -q 'Straggler: rank 1'
}

@test "a report says how big data and checkpoints are, from the files" {
  "$TRIREME" report "$R/overfitted" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/answers/data/figures/lines)" = 30 ]
  bytes=$(cat "$R"/overfitted/checkpoints/latest/* | wc -c)
  [ "$(field "$T/r.json" runs/0/answers/checkpoint_size/figures/checkpoint_bytes)" = "$bytes" ]
  "$TRIREME" report "$R/overfitted" --markdown > "$T/r.md"
  for file in "$R"/overfitted/checkpoints/latest/*; do grep -q "^| ${file##*/} | " "$T/r.md"; done
}

@test "a report of a classifier has the size of its texts and the texts of each label" {
  cd "$T"
  perl -e 'print "text,class\n"; printf "a b c %s,%s\n", "d" x ($_ % 4), $_ % 3 ? "mild" : "<b>rude" for 1 .. 30' > texts.csv
  "$TRIREME" prepare --quiet --task classify --train texts.csv --text-column text --label-column class --split 0.2 --vocab-size 40 --out texts > /dev/null
  local small=(--quiet --device cpu --preset bert-tiny --d-model 16 --ffn-dim 16 --heads 2 --layers 1 --batch-tokens 64 --threads 1 --log-every 1)
  "$TRIREME" train --data texts --run classes "${small[@]}" --epochs 2 > /dev/null
  "$TRIREME" report classes --json > r.json
  [[ "$(headline r.json data)" =~ ^[0-9]+" B, 24 texts"$ ]]
  [[ "$(field r.json runs/0/answers/data/sentence)" == *"They have 2 classes"*"The run saw them 2.00 times."* ]]
  "$TRIREME" report classes --markdown > r.md
  grep -qF '| mild | 16 | training texts |' r.md
  "$TRIREME" report classes --out r.html > /dev/null
  grep -qF '&lt;b&gt;rude' r.html
  run ! grep -qF '<b>rude' r.html
  # A masked language model on the same texts has no labels.
  "$TRIREME" train --task mlm --data texts --run masked "${small[@]}" --epochs 1 > /dev/null
  "$TRIREME" report masked --json > r.json
  [[ "$(headline r.json data)" == *", 24 texts" ]]
  # Beside a translation: the tokens are not those of a target side, and are not compared.
  "$TRIREME" report "$R/overfitted" classes --markdown > r.md
  grep -q '^| tokens/s | [0-9,]* | [0-9,]* |$' r.md
  grep -q '^| speed-up (tokens/s) | 1.00 | unknown |$' r.md
  grep -q '^| efficiency (speed-up / ranks) | 100 % | unknown |$' r.md
  grep -q '^| best validation BLEU | [0-9.]* at step [0-9]* | unknown |$' r.md
}

@test "a report has the exact command and version, which give the same run" {
  "$TRIREME" report "$R/overfitted" --json > "$T/r.json"
  [[ "$("$TRIREME" --version)" =~ $(field "$T/r.json" runs/0/version) ]]
  command=$(field "$T/r.json" runs/0/command)
  [[ "$command" =~ "train --data $SET --run $R/overfitted --quiet --device cpu" ]]
  cd "$(field "$T/r.json" runs/0/directory)"
  eval "${command/"$R/overfitted"/"$T/again"}" > /dev/null
  cmp "$R/overfitted/checkpoints/latest/weights.safetensors" "$T/again/checkpoints/latest/weights.safetensors"
  cmp "$R/overfitted/valid-best.txt" "$T/again/valid-best.txt"
}

@test "the page is written to report.html, loads nothing, and is well-formed" {
  cd "$T"
  run "$TRIREME" report "$R/overfitted" --price-per-hour 2.5
  [ "$status" -eq 0 ]
  [[ "$output" =~ "Was it overfitting?"\ +"Yes, since step" ]]
  grep -q '<svg' report.html
  run ! grep -Eq ' src=|<script|<link|url\(|[ >"(±+-]nan' report.html
  # Every element that is opened is closed, in order.
  perl -0777 -ne 's/<!doctype html>|<meta[^>]*>//g; my @open;
    while (m{<(/?)([a-z0-9]+)[^>]*?(/?)>}gi) { next if $3; if ($1) { my $o = pop @open; die "$o closed by $2" if $o ne $2 } else { push @open, $2 } }
    die "open: @open" if @open' report.html
}

@test "two runs are compared: speed-up, efficiency, paired bootstrap as in score" {
  tiny "$T/other" --dropout 0 --steps 24 --valid-every 12 > /dev/null
  "$TRIREME" report "$R/overfitted" "$T/other" --json > "$T/r.json"
  [ "$(field "$T/r.json" comparison/speed_up/0)" = 1 ]
  [ "$(field "$T/r.json" comparison/ranks/1)" = 1 ]
  [ "$(field "$T/r.json" comparison/options/steps/0)" = 120 ]
  [ "$(field "$T/r.json" comparison/options/steps/1)" = 24 ]
  [ "$(field "$T/r.json" comparison/options/preset)" = unknown ]
  "$TRIREME" score --ref "$SET/valid.ref" --hyp "$R/overfitted/valid-best.txt" --paired-bs "$T/other/valid-best.txt" --json > "$T/s.json"
  [ "$(printf %.6f "$(field "$T/r.json" comparison/bleu_p_value/1)")" = "$(printf %.6f "$(field "$T/s.json" systems/1/scores/0/p_value)")" ]
  "$TRIREME" report "$R/overfitted" "$T/other" --markdown | grep -q '^- other: BLEU .*paired bootstrap, 1000 samples, 12 sentences'
}

@test "runs with the same outputs do not differ significantly" {
  cp -r "$R/overfitted" "$T/copy"
  "$TRIREME" report "$R/overfitted" "$T/copy" --json > "$T/r.json"
  [ "$(field "$T/r.json" comparison/bleu_p_value/1)" = 1 ]
  "$TRIREME" report "$R/overfitted" "$T/copy" --markdown | grep -q '^- copy: BLEU .*p = 1.0000, not distinguishable from chance'
}

@test "outputs or references that are no regular file, or too large, leave BLEU unknown: report does not wait for them" {
  cp -r "$R/overfitted" "$T/odd"
  cp -r "$SET" "$T/set"
  compare() { timeout 120 "$TRIREME" report "$@" --markdown | grep '^- .*BLEU cannot be compared: '; }
  rm "$T/odd/valid-best.txt"
  mkfifo "$T/odd/valid-best.txt"
  compare "$R/overfitted" "$T/odd" | grep -q 'valid-best.txt is not a regular file'
  compare "$T/odd" "$R/overfitted" | grep -q 'valid-best.txt is not a regular file'
  ln -sf /dev/zero "$T/odd/valid-best.txt"
  compare "$R/overfitted" "$T/odd" | grep -q 'valid-best.txt is not a regular file'
  rm "$T/odd/valid-best.txt"
  truncate -s 65M "$T/odd/valid-best.txt"
  compare "$R/overfitted" "$T/odd" | grep -q 'valid-best.txt is larger than the 67108864 bytes'
  cp "$R/overfitted/valid-best.txt" "$T/odd/"
  sed -i "s,^data = .*,data = \"$T/set\"," "$T/odd/config"
  rm "$T/set/valid.ref"
  mkfifo "$T/set/valid.ref"
  compare "$R/overfitted" "$T/odd" | grep -q 'valid.ref is not a regular file'
}

@test "what was not measured is unknown: a run without its data set, processes and samples" {
  cp -r "$R/overfitted" "$T/run"
  rm -f "$T"/run/processes.jsonl "$T"/run/system.jsonl
  sed -i 's/^data = .*/data = nowhere/' "$T/run/config"
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/command)" = unknown ]
  [ "$(field "$T/r.json" runs/0/answers/data/verdict)" = unknown ]
  [ "$(field "$T/r.json" runs/0/answers/network/verdict)" = unknown ]
  [ "$(field "$T/r.json" runs/0/costs/energy_kwh)" = unknown ]
  [ "$(field "$T/r.json" runs/0/answers/devices/figures/cpu_busy_percent)" = unknown ]
}

@test "damaged lines are skipped and named in the report" {
  cp -r "$R/overfitted" "$T/run"
  printf '{"nll":4,"ste\n' >> "$T/run/metrics.jsonl"
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/damaged_lines)" = 1 ]
  "$TRIREME" report "$T/run" --out - | grep -q 'could not be read, the first: .*metrics.jsonl: line [0-9]*, byte [0-9]*: '
}

@test "a run without a record yet: no figure of its report is nan, and how often it saw the data is not known" {
  mkdir "$T/begun"
  cp "$R/overfitted/config" "$T/begun"
  "$TRIREME" report "$T/begun" --markdown > "$T/r.md"
  grep -q 'How often the run saw them is not known' "$T/r.md"
  run grep -E '\bnan\b' "$T/r.md"
  [ "$status" -eq 1 ]
}

@test "processes.jsonl has the threads that were used, not those that the machine has" {
  grep -q '"threads":1,' "$R/overfitted/processes.jsonl"
}

@test "a report counts the processes of a run, also without automatic restarts" {
  cp -r "$R/overfitted" "$T/run"
  cat "$R/overfitted/processes.jsonl" >> "$T/run/processes.jsonl"
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/answers/duration/figures/processes)" = 2 ]
  [ "$(field "$T/r.json" runs/0/answers/duration/figures/restarts)" = 0 ]
}

@test "--out with a link writes to its target and leaves the link there" {
  ln -s target.html "$T/link"
  ln -s /dev/null "$T/null"
  "$TRIREME" report "$R/overfitted" --out "$T/link" > /dev/null 2>&1
  "$TRIREME" report "$R/overfitted" --out "$T/null" > /dev/null 2>&1
  [ -L "$T/link" ]
  [ -L "$T/null" ]
  [ -c /dev/null ]
  grep -q '</html>' "$T/target.html"
}

@test "a run with more names of values than report can keep: those that fit, and what is left out" {
  cp -r "$R/overfitted" "$T/run"
  perl -e 'print "{\"step\":9999,\"seconds\":9999", (map { ",\"v$_\":1" } 1 .. 300), "}\n"' >> "$T/run/metrics.jsonl"
  "$TRIREME" report "$T/run" --json > "$T/r.json"
  [[ "$(field "$T/r.json" runs/0/left_out)" =~ "metrics.jsonl has values of more than 256 names; those after the first 256 are left out, such as v" ]]
  [[ "$(headline "$T/r.json" overfitting)" =~ ^"Yes, since step "[1-9] ]]
  "$TRIREME" report "$T/run" --markdown | grep -q '^metrics.jsonl has values of more than 256 names'
  "$TRIREME" report "$T/run" --out - | grep -q '<p>metrics.jsonl has values of more than 256 names'
  "$TRIREME" report "$R/overfitted" --json > "$T/r.json"
  [ "$(field "$T/r.json" runs/0/left_out)" = unknown ]
}

@test "report of more than 16 runs is refused with the number" {
  run -2 "$TRIREME" report run{1..17}
  [[ "$output" == "trireme: 'report' takes at most 16 arguments, and 'run17' is one more; see 'trireme help report'" ]]
}

@test "report refuses what is no run, and two forms at once" {
  run "$TRIREME" report "$T"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "is no run: it has neither a config nor metrics.jsonl" ]]
  run "$TRIREME" report "$T/none"
  [ "$status" -eq 1 ]
  [[ "$output" =~ "is not a directory" ]]
  run "$TRIREME" report "$R/overfitted" --json --markdown
  [ "$status" -eq 2 ]
  [[ "$output" =~ "exclude each other" ]]
}
