#!/usr/bin/env bats
# The log of a run for Weights & Biases (tests/tools/dump_wandb.c prints it): one file, each step once, the
# values of metrics.jsonl, before and after a kill, a resume and a roll-back.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_small_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

# log_of RUN: prints the path of the only log of the run.
log_of() {
  local id logs=("$1"/wandb/offline-run-*/run-*.wandb)
  id=$(head -c 8 "$1/id")
  [ ${#logs[@]} -eq 1 ] || return 1
  [[ "${logs[0]}" =~ ^"$1"/wandb/offline-run-20[0-9]{6}_[0-9]{6}-"$id"/run-"$id".wandb$ ]] || return 1
  echo "${logs[0]}"
}

# records RUN: prints the records; the whole file must consist of complete ones.
records() {
  local log dump
  log=$(log_of "$1") || return 1
  dump=$("$TRIREME_TOOLS/dump_wandb" "$log") || return 1
  [ "$(tail -n 1 <<< "$dump")" = "end $(stat -c %s "$log")" ] || return 1
  sed '$d' <<< "$dump"
}

# types RUN: prints the types of the records, without repetitions.
types() {
  records "$1" | cut -d' ' -f1 | uniq | tr '\n' ' '
}

# curve RUN KEY: prints "STEP VALUE" lines.
curve() {
  records "$1" | awk -v key="$2" '$1 == "history" { for (i = 3; i <= NF; i++) if (index($i, key "=") == 1)
    print $2, substr($i, length(key) + 2) }'
}

# steps RUN: prints the steps of the history.
steps() {
  records "$1" | awk '$1 == "history" { print $2 }' | tr '\n' ' '
}

@test "a finished run has every step once, with the values of metrics.jsonl, a summary and an end" {
  train 1 "$T/run" --steps 6 --valid-every 3 --average-checkpoints 2 --wandb offline
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 " ]
  [ "$(curve "$T/run" valid/bleu | cut -d' ' -f1 | tr '\n' ' ')" = "3 6 " ]
  diff <(curve "$T/run" train/nll | cut -d' ' -f2) \
    <(sed -n 's/.*[{,]"nll":\([-0-9.e]*\).*/\1/p' "$T/run/metrics.jsonl")
  [ "$(records "$T/run" | head -n 3 | cut -d' ' -f1 | tr '\n' ' ')" = "header run environment " ]
  [ "$(records "$T/run" | tail -n 1)" = exit ]
  records "$T/run" | grep '^summary' | tail -n 1 | grep -q ' average/bleu='
  compgen -G "$T/run/wandb/offline-run-*/files/" > /dev/null
}

@test "the log of the run ends with the command that uploads it" {
  train 1 "$T/a run" --steps 1 --wandb offline
  grep -qF "wandb sync '$(dirname "$(log_of "$T/a run")")'" "$T/a run/log.txt"
}

@test "killed and resumed, it is one log with the curve of a run never killed" {
  train 1 "$T/whole" --steps 12 --save-every 5 --valid-every 10 --wandb offline
  TRIREME_FAULT=die:8:0 run -137 train 1 "$T/run" --steps 12 --save-every 5 --valid-every 10 --wandb offline
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 7 8 " ]
  [ "$(records "$T/run" | tail -n 1 | cut -d' ' -f1)" = summary ]
  TRIREME_FAULT=die:11:0 run -137 train 1 "$T/run" --resume --steps 12 --valid-every 10
  train 1 "$T/run" --resume --steps 12 --valid-every 10
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 7 8 9 10 11 12 " ]
  diff <(curve "$T/whole" train/nll) <(curve "$T/run" train/nll)
  diff <(curve "$T/whole" valid/nll) <(curve "$T/run" valid/nll)
  diff <(curve "$T/whole" valid/bleu) <(curve "$T/run" valid/bleu)
  [ "$(records "$T/run" | grep -c '^exit')" -eq 1 ]
}

@test "half a record that a kill left is removed when the run continues" {
  TRIREME_FAULT=die:8:0 run -137 train 1 "$T/run" --steps 12 --save-every 5 --wandb offline
  truncate -s -5 "$(log_of "$T/run")"
  train 1 "$T/run" --resume --steps 12
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 7 8 9 10 11 12 " ]
}

@test "a roll-back removes the steps that it undoes" {
  TRIREME_FAULT=nan:7:0 train 1 "$T/run" --steps 10 --save-every 5 --wandb offline
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 7 8 9 10 " ]
  [ "$(curve "$T/run" train/lr | awk '$1 == 6 || $1 == 10 { print $2 }' | tr '\n' ' ')" = "0.0009 0.0015 " ]
}

@test "a finished run goes on in the same log, and an upload before that is not the last one" {
  train 1 "$T/run" --steps 4 --wandb offline
  touch "$(log_of "$T/run").synced"
  train 1 "$T/run" --resume --steps 6
  [ "$(steps "$T/run")" = "1 2 3 4 5 6 " ]
  [ "$(records "$T/run" | grep -c '^exit')" -eq 1 ]
  [ ! -e "$(log_of "$T/run").synced" ]
}

@test "several ranks write one log" {
  need_mpi
  train 2 "$T/run" --steps 3 --wandb offline --wandb-project other
  [ "$(steps "$T/run")" = "1 2 3 " ]
  grep -aqF other "$(log_of "$T/run")"
}

@test "without --wandb offline nothing is written" {
  train 1 "$T/run" --steps 1
  [ ! -e "$T/run/wandb" ]
}

@test "--wandb online and names that the server refuses are errors that say what to do" {
  run -2 train 1 "$T/run" --steps 1 --wandb online
  [[ "$output" == *"--wandb online is not available: train with --wandb offline"*"wandb sync DIR"* ]]
  run -2 train 1 "$T/run" --steps 1 --wandb offline --wandb-project a/b
  [[ "$output" == *"--wandb-project 'a/b' is not the name of a project"* ]]
  [ ! -e "$T/run" ]
}
