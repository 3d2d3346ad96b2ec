#!/usr/bin/env bats
# Event files for TensorBoard, as its event accumulator reads them (tests/tools/dump_events.c):
# every tag at every step, once, before and after a kill, a resume and a roll-back.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_small_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

event_files() {
  (shopt -s nullglob && LC_ALL=C && printf '%s\n' "$1"/events.out.tfevents.*) | sed '/^$/d'
}

# events RUN: prints "STEP TAG VALUE" lines.
events() {
  local files
  mapfile -t files < <(event_files "$1")
  "$TRIREME_TOOLS/dump_events" "${files[@]}"
}

# curve RUN TAG: prints "STEP VALUE" lines.
curve() {
  events "$1" | awk -v tag="$2" '$2 == tag { print $1, $3 }'
}

# Fails if a tag has a step twice, or steps that do not increase.
each_step_once() {
  events "$1" | awk '($2 in last) && $1 <= last[$2] { print "step " $1 " of " $2 " after " last[$2]; bad = 1 }
    { last[$2] = $1 } END { exit bad }'
}

@test "a run's events have every tag at every step, with the values of metrics.jsonl" {
  train 1 "$T/run" --steps 6 --valid-every 3 --average-checkpoints 2
  each_step_once "$T/run"
  for tag in train/loss train_loss train/nll train/accuracy train/lr learning_rate train/grad_norm \
    Loss_Optimization/global_gradient_norm train/loss_scale loss_scale train/steps_per_s global_step/sec \
    train/epoch epoch train/target_tokens_per_s train/pairs_per_s train/skipped time/data_wait_ms \
    time/forward_ms time/backward_ms time/comm_wait_ms time/update_ms train/mfu; do
    [ "$(curve "$T/run" $tag | awk '{ print $1 }' | tr '\n' ' ')" = "1 2 3 4 5 6 " ] || { echo $tag; false; }
  done
  for tag in valid/nll eval_loss valid/bleu Eval_BLEU_Score valid/seconds; do
    [ "$(curve "$T/run" $tag | awk '{ print $1 }' | tr '\n' ' ')" = "3 6 " ] || { echo $tag; false; }
  done
  [ "$(curve "$T/run" average/bleu | wc -l)" -eq 1 ]
  [ "$(curve "$T/run" _hparams_/session_start_info | sed 's/:.*//')" = "0 tensor" ]
  # Hyperparameters that were given and those with their default value.
  grep -aq 'warmup-steps' "$(event_files "$T/run")"
  grep -aq 'label-smoothing' "$(event_files "$T/run")"
  # float32 has 7 digits
  diff <(curve "$T/run" train/nll | cut -d' ' -f2) \
    <(perl -ne 'printf "%.7g\n", unpack "f", pack "f", $1 if /"nll":([-0-9.e]+)/' "$T/run/metrics.jsonl")
}

@test "killed and resumed, each step is there once, with the curve of a run never killed" {
  train 1 "$T/whole" --steps 12 --save-every 5 --valid-every 10
  TRIREME_FAULT=die:8:0 run -137 train 1 "$T/run" --steps 12 --save-every 5 --valid-every 10
  [ "$(curve "$T/run" train/nll | tail -n 1 | cut -d' ' -f1)" -eq 8 ]
  TRIREME_FAULT=die:11:0 run -137 train 1 "$T/run" --resume --steps 12 --valid-every 10
  train 1 "$T/run" --resume --steps 12 --valid-every 10
  [ "$(event_files "$T/run" | wc -l)" -eq 3 ]
  each_step_once "$T/run"
  diff <(curve "$T/whole" train/nll) <(curve "$T/run" train/nll)
  diff <(curve "$T/whole" valid/nll) <(curve "$T/run" valid/nll)
  diff <(curve "$T/whole" valid/bleu) <(curve "$T/run" valid/bleu)
  [ "$(curve "$T/run" _hparams_/session_start_info | sed 's/:.*//')" = "0 tensor" ]
}

@test "half a record that a kill left does not hide what follows" {
  TRIREME_FAULT=die:8:0 run -137 train 1 "$T/run" --steps 12 --save-every 5
  first=$(event_files "$T/run")
  truncate -s -5 "$first"
  train 1 "$T/run" --resume --steps 12
  each_step_once "$T/run"
  [ "$(curve "$T/run" train/nll | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 11 12 " ]
}

@test "a roll-back removes the steps that it undoes" {
  TRIREME_FAULT=nan:7:0 train 1 "$T/run" --steps 10 --save-every 5
  each_step_once "$T/run"
  [ "$(curve "$T/run" train/nll | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 " ]
  [ "$(curve "$T/run" train/lr | awk '$1 == 6 || $1 == 10 { print $2 }' | tr '\n' ' ')" = "0.0009 0.0015 " ]
}

@test "a finished run that is resumed writes no value twice" {
  train 1 "$T/run" --steps 4 --valid-every 2 --save-every 2 --average-checkpoints 2
  for steps in 4 6; do
    train 1 "$T/run" --resume --steps $steps --valid-every 2 --save-every 2 --average-checkpoints 2
  done
  each_step_once "$T/run"
}

@test "of several ranks only rank 0 writes events" {
  need_mpi
  train 2 "$T/run" --steps 3
  [ "$(event_files "$T/run" | wc -l)" -eq 1 ]
  [ "$(curve "$T/run" train/nll | wc -l)" -eq 3 ]
}

@test "--tensorboard no writes no events, also when the run is resumed" {
  train 1 "$T/run" --steps 2 --tensorboard no
  train 1 "$T/run" --resume --steps 3
  [ -z "$(event_files "$T/run")" ]
  train 1 "$T/run" --resume --steps 4 --tensorboard yes
  [ "$(curve "$T/run" train/nll | cut -d' ' -f1)" = 4 ]
}

@test "samples of validations are there as texts" {
  train 1 "$T/run" --steps 4 --valid-every 2 --samples 3
  [ "$(curve "$T/run" valid/samples | sed 's/:.*//' | tr '\n' ' ')" = "2 tensor 4 tensor " ]
  first=$(event_files "$T/run")
  grep -aq translation "$first"
  head -n 3 "$SET/valid.src" | while read -r line; do grep -aqF "$line" "$first"; done
  run ! grep -aqF "$(sed -n 4p "$SET/valid.src")" "$first"
  train 1 "$T/none" --steps 2 --valid-every 2 --samples 0
  [ -z "$(curve "$T/none" valid/samples)" ]
}

@test "histograms of all weights and gradients, every --histogram-every steps" {
  train 1 "$T/run" --steps 5 --histogram-every 2
  each_step_once "$T/run"
  for group in weights gradients; do
    [ "$(events "$T/run" | awk -v group="$group/" 'index($2, group) == 1 { print $1 }' | sort -n | uniq | tr '\n' ' ')" = "2 4 " ]
  done
  diff <(events "$T/run" | awk '$2 ~ /^weights\// { sub("weights/", "", $2); print $1, $2 }') \
    <(events "$T/run" | awk '$2 ~ /^gradients\// { sub("gradients/", "", $2); print $1, $2 }')
  events "$T/run" | grep -q '^2 weights/encoder.0.self.in.weight histogram:'
  [ "$(grep -c histogram "$T/run/metrics.jsonl")" -eq 0 ]
  [ "$(wc -l < "$T/run/metrics.jsonl")" -eq 5 ]
  # the weights are the same as without histograms
  train 1 "$T/without" --steps 5
  same_state "$T/run" "$T/without"
}

@test "histograms of a sharded optimizer equal those of whole gradients" {
  need_mpi
  train 3 "$T/whole" --steps 4 --histogram-every 2
  train 3 "$T/shards" --steps 4 --histogram-every 2 --shard-optimizer
  diff <(events "$T/whole" | grep histogram) <(events "$T/shards" | grep histogram)
  [ "$(events "$T/shards" | grep -c ' gradients/')" -gt 20 ]
  same_state "$T/whole" "$T/shards"
}

@test "histograms of a device equal those of the CPU" {
  make_gpu
  options=(--steps 4 --histogram-every 2 --micro-batches 1)
  train 1 "$T/cpu" "${options[@]}"
  TRIREME_PLUGIN_PATH=$BATS_FILE_TMPDIR/plugins train 1 "$T/gpu" "${options[@]}" --device cuda
  [ "$(events "$T/gpu" | grep -c ' gradients/')" -gt 20 ]
  diff <(events "$T/cpu" | grep histogram) <(events "$T/gpu" | grep histogram)
}

@test "--histogram-every without TensorBoard is an error" {
  run -2 train 1 "$T/run" --steps 4 --histogram-every 2 --tensorboard no
  [[ "$output" == *"--histogram-every 2 writes histograms for TensorBoard: pass --tensorboard yes"* ]]
}

@test "events that cannot be written are reported once, and at the end with exit status 1" {
  # Histograms soon exceed the limit, which the other files do not reach.
  run -1 bash -c 'ulimit -f 1500; trap "" XFSZ; exec "$@"' - \
    "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet --steps 40 --histogram-every 1
  [ "$(grep -c '^warning: .*events.out.tfevents.*File too large' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "trireme: $T/run: could not be written and are lost: "[1-9][0-9]*" records for TensorBoard; the checkpoints are complete" ]]
  events "$T/run" > "$T/events"
  [ "$(awk '$2 == "train/nll"' "$T/events" | wc -l)" -gt 2 ]
}
