#!/usr/bin/env bats
# bench scale: the same command on several numbers of ranks, and the table of times, losses and bits.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h good bad > vocab.txt
  perl -e 'srand 5; print "text,class\n";
    for my $i (0 .. 119) { print join(" ", (map { chr(97 + rand 8) } 1 .. 2 + rand 6), $i % 2 ? "good" : "bad"), ",", $i % 2 ? "yes" : "no", "\n" }' > all.csv
  "$TRIREME" prepare --quiet --task classify --train all.csv --text-column text --label-column class --split 0.25 --vocab vocab.txt \
    --max-tokens 16 --out set > prepare.log
}

setup() { cd "$BATS_FILE_TMPDIR" || exit 1; }

SMALL=(--preset bert-tiny --d-model 32 --ffn-dim 64 --heads 2 --lr 5e-3 --warmup-steps 2 --batch-tokens 128 --steps 6
  --log-every 3 --valid-every 6 --save-every 6 --threads 1 --device cpu --system-metrics no --average-checkpoints 0)

# value NAME RUN FILE: prints a value of a run in the JSON output.
value() {
  perl -MJSON::PP -0777 -e 'my $j = decode_json(<STDIN>); print $j->{runs}[$ARGV[1]]{$ARGV[0]}' "$1" "$2" < "$3"
}

@test "train on 1 and 2 ranks: same work, same bits, loss and AUC" {
  need_mpi
  "$TRIREME" bench scale --json --ranks 1,2 -- train --data set --run runs "${SMALL[@]}" --reproducible > out.json 2> err
  grep -q "train gets --micro-batches 2" err
  for i in 0 1; do
    [ "$(value ranks $i out.json)" -eq $((i + 1)) ]
    [ "$(value is_same $i out.json)" -eq 1 ]
    [[ "$(value loss $i out.json)" =~ ^[0-9] ]]
    [[ "$(value valid_auc $i out.json)" =~ ^[0-9] ]]
  done
  [ "$(value loss 0 out.json)" = "$(value loss 1 out.json)" ]
  same_state runs/ranks-1 runs/ranks-2
}

@test "classify computes the probabilities of the validation in training" {
  [ -d runs/ranks-1 ] || "$TRIREME" train --data set --run runs/ranks-1 "${SMALL[@]}" > /dev/null 2>&1
  "$TRIREME" classify --quiet --device cpu --model runs/ranks-1 --input set/valid.csv --text-column text --json --output valid.jsonl
  "$TRIREME" score --task classify --ref set/valid.csv --label-column class --hyp valid.jsonl --json > score.json
  perl -MJSON::PP -e '
    sub load { local (@ARGV, $/) = shift; <> }
    my $got = decode_json(load("score.json"))->{systems}[0]{scores};
    my ($want) = map { $_->{valid_nll} } grep { exists $_->{valid_nll} } map { decode_json($_) } split /\n/, load("runs/ranks-1/metrics.jsonl");
    print "log loss $got->{log_loss}{score}, in training $want\n";
    exit !(abs($got->{log_loss}{score} - $want) < 1e-6)'
}

@test "classify on one rank: a table, with --output a file for each number" {
  [ -d runs/ranks-1 ] || "$TRIREME" train --data set --run runs/ranks-1 "${SMALL[@]}" > /dev/null 2>&1
  run -0 --separate-stderr "$TRIREME" bench scale --ranks 1 -- classify --model runs/ranks-1 --input set/valid.csv --text-column text --threads 1 --device cpu
  [[ "${lines[0]}" =~ ^ranks\ +time\ s\ +speed-up\ +efficiency\ +output$ ]]
  [[ "${lines[1]}" =~ ^\ +1\ +[0-9.]+\ +1.00\ +100.0\ %\ \ same\ bits$ ]]
  "$TRIREME" bench scale --quiet --ranks 1 -- classify --model runs/ranks-1 --input set/valid.csv --text-column text --threads 1 --device cpu --output labels > /dev/null
  [ "$(wc -l < labels.ranks-1)" -eq 30 ]
}

@test "wrong calls and commands that fail are errors with the reason" {
  for list in 0 2,1 1..0 '1,' a 1,2x 5000; do
    run -2 "$TRIREME" bench scale --ranks "$list" -- classify --model m --input in
    [[ "$output" =~ "--ranks $list: pass numbers of ranks" ]]
  done
  run -2 "$TRIREME" bench scale --ranks 1
  [[ "$output" =~ "bench scale runs train, translate or classify" ]]
  run -2 "$TRIREME" bench scale --ranks 1 -- score --ref a
  [[ "$output" =~ "bench scale runs train, translate or classify" ]]
  run -2 "$TRIREME" bench scale --ranks 1 -- classify --model m
  [[ "$output" =~ "name a file with --input FILE" ]]
  run -2 "$TRIREME" bench scale --ranks 1 -- train --data set --run r --resume
  [[ "$output" =~ "leave out --resume" ]]
  run -2 "$TRIREME" bench scale --ranks 1 -- train --data set
  [[ "$output" =~ "no --run given" ]]
  run -2 "$TRIREME" bench scale --ranks 1 -- train --wrong
  run -1 "$TRIREME" bench scale --ranks 1 -- classify --model nowhere --input set/valid.csv
  [[ "$output" =~ "classify on 1 rank failed with status 1: " ]]
  [[ "$output" =~ "--model nowhere: there is no such directory" ]]
  run -2 "$TRIREME" bench reader set more
  [[ "$output" =~ "unexpected argument" ]]
}
