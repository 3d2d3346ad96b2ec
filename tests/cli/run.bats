#!/usr/bin/env bats
# A run directory is changed completely or not at all: what remains after a refused call, a full
# disk or a signal, and the exit status.
bats_require_minimum_version 1.5.0

load ../ranks/support

setup_file() {
  make_small_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

step_of() {
  local name
  name=$(readlink "$1/checkpoints/latest")
  echo $((10#${name#step-}))
}

@test "--max-time counts this call, not the run's past" {
  train 1 "$T/run" --steps 1000000 --max-time 1s
  before=$(step_of "$T/run")
  train 1 "$T/run" --resume --max-time 0.2s
  [ "$(step_of "$T/run")" -gt "$before" ]
}

@test "a warm-up longer than the run is a warning" {
  run train 1 "$T/run" --steps 4 --warmup-steps 5
  [ "$status" -eq 0 ]
  [[ "$output" =~ "warning: --warmup-steps 5 is longer than the run of 4 steps" ]]
}

@test "a warm-up as long as the run is no warning" {
  run train 1 "$T/run" --steps 5 --warmup-steps 5
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "--warmup-steps" ]]
}

@test "a run of an earlier version is resumed, and its config gets the present names" {
  train 1 "$T/run" --steps 4 --ema-decay 0.9
  sed -i 's/^d-model =/width =/; s/^ffn-dim =/feed-width =/; s/^lr-scheduler = constant/lr-policy = fixed/
    s/^warmup-steps =/warmup =/; s/^average-checkpoints =/average =/; s/^ema-decay =/ema =/' "$T/run/config"
  [ "$(grep -cE '^(width|feed-width|lr-policy|warmup|average|ema) =' "$T/run/config")" -eq 6 ]
  run "$TRIREME" train --run "$T/run" --resume --steps 6
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "other options" ]]
  [ "$(step_of "$T/run")" -eq 6 ]
  [ "$(grep -cE '^(width|feed-width|lr-policy|warmup|average|ema) =' "$T/run/config")" -eq 0 ]
  [ "$(grep -cE '^(d-model|ffn-dim|warmup-steps|average-checkpoints|ema-decay) =' "$T/run/config")" -eq 5 ]
  grep -qx 'lr-scheduler = constant' "$T/run/config"
}

@test "a run is begun with the names of fairseq, Marian and Hugging Face" {
  "$TRIREME" train --quiet --data "$SET" --output_dir "$T/run" --preset tiny --encoder-embed-dim 32 --transformer-dim-ffn 64 \
    --transformer-heads 2 --enc-depth 1 --dec-depth 1 --share-all-embeddings --max-tokens 256 --max-update 3 \
    --lr-scheduler inverse_sqrt --learning-rate 3e-3 --warmup-updates 2 --max_grad_norm 1 --adam-beta2 0.98 \
    --eval-steps 0 --save-interval-updates 2 --early-stopping 0 --bf16 --cpu --device cpu --precision fp32
  for line in 'd-model = 32' 'ffn-dim = 64' 'heads = 2' 'encoder-layers = 1' 'decoder-layers = 1' 'batch-tokens = 256' \
    'steps = 3' 'lr-scheduler = inverse-sqrt' 'lr = 3e-3' 'warmup-steps = 2' 'clip-norm = 1' 'beta2 = 0.98' 'save-every = 2'; do
    grep -qx "$line" "$T/run/config" || { echo "no $line"; cat "$T/run/config"; false; }
  done
}

@test "a learning rate that noam would make tiny is a warning with the remedy" {
  run train 1 "$T/run" --steps 2 --warmup-steps 2 --lr-scheduler noam --lr 5e-6
  [ "$status" -eq 0 ]
  [[ "$output" == *"warning: --lr 5e-06 is a factor of the noam schedule: the learning rate is at most 6.25e-07"*"inverse-sqrt"* ]]
  run train 1 "$T/run2" --steps 2 --warmup-steps 2 --lr-scheduler noam
  [[ ! "$output" =~ "factor of the noam schedule" ]]
}

@test "resuming a run that has all its steps prints so" {
  train 1 "$T/run" --steps 4
  run "$TRIREME" train --run "$T/run" --resume --steps 3
  [ "$status" -eq 0 ]
  [ "$(grep -c 'the run is at step 4, and its last step is 3: nothing is left to train; pass more --steps or --epochs' <<< "$output")" -eq 1 ]
  [ "$(step_of "$T/run")" -eq 4 ]
  run "$TRIREME" train --run "$T/run" --resume --steps 5
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "nothing is left" ]]
}

# step_lines: prints the beginnings of the lines about steps in $output.
step_lines() {
  grep -oE '^step [0-9]+( of [0-9]+)?' <<< "$output" | paste -sd,
}

@test "slow steps print progress before the first line of the log" {
  TRIREME_FAULT=train-progress:0 run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 3 --log-every 50
  [ "$status" -eq 0 ]
  [ "$(step_lines)" = 'step 1 of 3,step 2 of 3,step 3' ]
  [[ "$output" =~ "step 2 of 3  loss "[0-9.]+"  "[0-9.]+"s a step" ]]
  [ "$(figures step "$T/run")" = 3 ]
  run "$TRIREME" train --data "$SET" --run "$T/fast" "${MODEL[@]}" --steps 3 --log-every 50
  [ "$(step_lines)" = 'step 3' ]
}

@test "the last step has a record, whatever --log-every is" {
  train 1 "$T/run" --steps 7 --log-every 3
  [ "$(figures loss "$T/run" | wc -l)" -eq 3 ]
  [ "$(figures epoch "$T/run" | wc -l)" -eq 3 ]
  [ "$(figures step "$T/run" | tr '\n' ' ')" = '3 6 7 ' ]
  train 1 "$T/run" --resume --steps 10 --log-every 3
  [ "$(figures step "$T/run" | tr '\n' ' ')" = '3 6 7 9 10 ' ]
}

@test "on two ranks the last step has a record, and the times of the ranks" {
  has_mpi || skip "MPI is not installed"
  train 2 "$T/run" --steps 5 --log-every 3
  [ "$(figures step "$T/run" | tr '\n' ' ')" = '3 5 ' ]
  [ "$(grep -c '"event":"ranks"' "$T/run/metrics.jsonl")" -eq 2 ]
}

@test "a run that --patience ends has a record of its last step" {
  train 1 "$T/run" --steps 100 --log-every 50 --valid-every 2 --samples 0 --beam-size 1 --patience 1 --lr 1e-12
  step=$(step_of "$T/run")
  [ "$step" -lt 50 ]
  [ "$(grep '"loss"' "$T/run/metrics.jsonl" | grep -c "\"step\":$step,")" -eq 1 ]
}

# state_of RUN: prints every file and link of the run with a checksum.
state_of() {
  (cd "$1" && find . -type l -printf '%p -> %l\n' -o -type f -exec sha256sum {} + | sort)
}

# other_set OUT [OPTION…]: makes a data set with other pairs.
other_set() {
  local out=$1
  shift
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 800 --seed 5 --out "$out" "$@" > /dev/null
}

# refused WORDS [OPTION…]: resuming with these options is a usage error and changes nothing;
# without them the run resumes.
refused() {
  local words=$1 before
  shift
  train 1 "$T/run" --steps 4
  before=$(state_of "$T/run")
  run "$TRIREME" train --run "$T/run" --resume --steps 6 "$@"
  [ "$status" -eq 2 ] || { echo "$output"; return 1; }
  [[ "$output" =~ $words ]] || { echo "$output"; return 1; }
  diff <(echo "$before") <(state_of "$T/run") || return 1
  "$TRIREME" train --quiet --run "$T/run" --resume --steps 6 || return 1
  [ "$(step_of "$T/run")" -eq 6 ]
}

@test "a resume refused for another d_model leaves the run as it was" {
  refused "a different model" --d-model 64
}

@test "a resume refused for another preset leaves the run as it was" {
  refused "a different model" --preset small --heads 4 --ffn-dim 128
}

@test "a resume refused for another seed leaves the run as it was" {
  refused "cannot be resumed with other options: --seed is 2.*; pass the run's own, or begin a new run" --seed 2
}

@test "a resume refused for other data leaves the run as it was" {
  other_set "$T/other"
  refused "trained on another data set.*--accept-data" --data "$T/other"
}

@test "a resume refused for data of another vocabulary names the data as the reason" {
  other_set "$T/other" --vocab-size 700
  refused "trained on another data set.*--accept-data" --data "$T/other"
}

@test "--accept-data continues with other data of the same tokenizer, and later resumes expect that data" {
  other_set "$T/other" --tokenizer "$SET/tokenizer.model"
  train 1 "$T/run" --steps 4
  run "$TRIREME" train --quiet --run "$T/run" --resume --steps 6 --data "$T/other" --accept-data
  [ "$status" -eq 0 ]
  [[ "$output" =~ "continues on another data set than it was trained on so far: $T/other" ]]
  run ! grep -qE '^(accept-data|resume)' "$T/run/config"
  run "$TRIREME" train --quiet --run "$T/run" --resume --steps 8
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "other data" ]]
  run "$TRIREME" train --quiet --run "$T/run" --resume --steps 10 --data "$SET"
  [ "$status" -eq 2 ]
}

@test "data in another place are the same data" {
  train 1 "$T/run" --steps 4
  cp -R "$SET" "$T/moved"
  "$TRIREME" train --quiet --run "$T/run" --resume --steps 6 --data "$T/moved"
}

@test "a run copied without its symbolic links continues, and has them again" {
  train 1 "$T/run" --steps 4 --valid-every 2 --beam-size 1
  cp -rL "$T/run" "$T/copy"
  run "$TRIREME" train --quiet --run "$T/copy" --resume --steps 6
  [ "$status" -eq 0 ] || { echo "$output"; return 1; }
  [ -L "$T/copy/checkpoints/latest" ]
  [ "$(step_of "$T/copy")" -eq 6 ]
  [ ! -e "$T/copy/checkpoints/latest.copy" ]
  "$TRIREME" train --quiet --run "$T/run" --resume --steps 6
  same_state "$T/run" "$T/copy"
}

@test "a run directory moved during training ends it with an error, and can be resumed at its new place" {
  train 1 "$T/run" --steps 1000000 --save-every 2 > "$T/out" 2>&1 3>&- &
  pid=$!
  until [ -e "$T/run/checkpoints/latest" ] || ! kill -0 $pid; do sleep 0.05; done
  mv "$T/run" "$T/moved"
  ended=0
  wait $pid || ended=$?
  [ "$ended" -eq 1 ]
  grep -q "trireme: $T/run was moved or removed during training.*--resume" "$T/out"
  [ -e "$T/moved/config" ]
  at=$(step_of "$T/moved")
  "$TRIREME" train --quiet --run "$T/moved" --resume --steps $((at + 2))
}

@test "--resume of a run that does not exist is an error and creates nothing" {
  mkdir "$T/runs"
  for more in "" "--data $SET"; do
    run "$TRIREME" train --run "$T/runs/mien" --resume $more
    [ "$status" -eq 2 ]
    [[ "$output" =~ "there is no run $T/runs/mien to resume" ]]
    [ ! -e "$T/runs/mien" ]
  done
}

@test "--resume of a mistyped run names the one that was meant" {
  train 1 "$T/runs/mine" --steps 2
  mkdir "$T/runs/mind"
  run "$TRIREME" train --run "$T/runs/mien" --resume
  [ "$status" -eq 2 ]
  [[ "$output" =~ "did you mean --run $T/runs/mine?" ]]
}

# damaged_refused SED WORDS: a run whose config was edited by SED is refused with WORDS and not
# changed.
damaged_refused() {
  local before
  train 1 "$T/run" --steps 4 --seed 3
  sed -i "$1" "$T/run/config"
  before=$(state_of "$T/run")
  run "$TRIREME" train --run "$T/run" --resume --steps 6
  [ "$status" -eq 2 ] || { echo "$output"; return 1; }
  [[ "$output" =~ $2 ]] || { echo "$output"; return 1; }
  diff <(echo "$before") <(state_of "$T/run")
}

@test "a run whose config has other sizes is refused before memory is taken for them" {
  damaged_refused 's/^d-model = .*/d-model = 16384/; s/^ffn-dim = .*/ffn-dim = 65536/' "a different model"
}

@test "a run whose config lost its seed is refused, not resumed in another order" {
  damaged_refused '/^seed =/d' "--batch-tokens 256 --seed 3 and cannot go on with --batch-tokens 256 --seed 1;"
}

@test "a run whose config lost its batch size is refused, not resumed in another order" {
  damaged_refused '/^batch-tokens =/d' "--batch-tokens 256 --seed 3 and cannot go on with --batch-tokens 4096 --seed 3;"
}

# best_step RUN: prints the best step stored in the newest checkpoint.
best_step() {
  perl -MJSON::PP -e 'undef $/; print decode_json(<>)->{best_step}' "$1/checkpoints/latest/training.json"
}

# limited KB COMMAND…: runs the command with a limit on the size of files.
limited() {
  local size=$1
  shift
  (ulimit -f "$size" && "$@")
}

@test "a run whose checkpoints cannot be written fails, without done and without a best" {
  run limited 20 train 1 "$T/run" --steps 6 --valid-every 3 --samples 0 --beam-size 2
  [ "$status" -eq 1 ]
  [[ "$output" =~ "warning: the checkpoint of step 3 was not saved, training goes on: " ]]
  [[ "$output" =~ "warning: the checkpoint of step 6 was not saved, and is tried once more: " ]]
  [[ "$output" =~ "trireme: the last checkpoint, of step 6 ".*", was not saved: ".*"File too large; the file size limit is reached: raise it with 'ulimit -f'; then continue with --resume" ]]
  [[ ! "$output" =~ "done at" ]]
  [[ ! "$output" =~ "best: BLEU" ]]
  [ ! -e "$T/run/checkpoints/best" ]
}

@test "a best checkpoint that was not saved does not count, now or after --resume" {
  # BLEU was 0 to 0.24 after 10 steps and 3.2 to 8.6 after 200 with six seeds, so it rises on every machine.
  learn=(--samples 0 --beam-size 1 --log-every 100 --lr 5e-3 --dropout 0 --d-model 64 --ffn-dim 128)
  train 1 "$T/run" --steps 10 --valid-every 10 "${learn[@]}"
  run limited 20 train 1 "$T/run" --resume --steps 200 --valid-every 200 "${learn[@]}"
  [ "$status" -eq 1 ]
  figures valid_bleu "$T/run" > "$T/bleu"
  perl -e '@b = <>; exit !(@b == 2 && $b[1] > $b[0])' "$T/bleu"
  [ "$(readlink "$T/run/checkpoints/best")" = step-00000010 ]
  [ "$(step_of "$T/run")" -eq 10 ]
  [ "$(best_step "$T/run")" -eq 10 ]
  train 1 "$T/run" --resume --steps 200 --valid-every 200 "${learn[@]}"
  [ "$(readlink "$T/run/checkpoints/best")" = step-00000200 ]
  [ "$(best_step "$T/run")" -eq 200 ]
}

@test "a failed save followed by a good one is no failure" {
  train 1 "$T/run/a" --steps 4
  # An immutable directory makes the next saves fail until the run has reported a failure.
  mkdir "$T/run/a/checkpoints/unfinished"
  chattr +i "$T/run/a/checkpoints/unfinished" 2> /dev/null || skip "no directory can be made immutable here"
  "$TRIREME" train --quiet --run "$T/run/a" --resume --steps 1000000 --save-every 5 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_true grep -q 'was not saved, training goes on' "$T/err"
  chattr -i "$T/run/a/checkpoints/unfinished"
  kill -USR1 $child
  code=0
  wait $child || code=$?
  [ "$code" -eq 3 ]
  grep -q '^stopped at step' "$T/out"
}

# begin FAULT [OPTION…]: starts a run with a fault in the background; pid in $child, output in the
# files err and out.
begin() {
  local fault=$1
  shift
  TRIREME_FAULT=$fault "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" "$@" > "$T/out" 2> "$T/err" 3>&- &
  child=$!
}

# ended: waits for the run; its exit status is in $code.
ended() {
  code=0
  wait "$child" || code=$?
  cat "$T/err" "$T/out"
}

@test "a stopped run has an exit status of its own, and what follows it with && is not done" {
  begin hang:micro-batch:5 --steps 100
  until_true grep -q 'waiting at micro-batch' "$T/err"
  kill -TERM $child
  ended
  [ $code -eq 3 ]
  grep -q '^stopped at step' "$T/out"
  run ! grep -q '^trireme: ' "$T/err"
}

@test "a stopped run has a record of its last step, and the resumed run goes on from there" {
  begin hang:micro-batch:10 --micro-batches 3 --steps 100 --log-every 50
  until_true grep -q 'waiting at micro-batch' "$T/err"
  kill -TERM $child
  ended
  [ $code -eq 3 ]
  step=$(step_of "$T/run")
  [ "$step" -lt 50 ]
  [ "$(figures step "$T/run")" = "$step" ]
  "$TRIREME" train --quiet --run "$T/run" --resume --steps $((step + 2))
  [ "$(figures step "$T/run" | tr '\n' ' ')" = "$step $((step + 2)) " ]
}

@test "a signal is answered at once, in one line" {
  begin hang:micro-batch:2 --micro-batches 65536 --steps 2
  until_true grep -q 'waiting at micro-batch' "$T/err"
  kill -INT $child
  until_true grep -q '^stopping: finishing this step, then saving' "$T/err"
  kill -0 $child  # the first signal lets the step continue
  kill -USR1 $child  # launchers repeat the signal; one message is printed
  kill -INT $child
  ended
  [ "$(grep -c '^stopping: ' "$T/err")" -eq 2 ]
}

@test "a second Ctrl-C loses only the current step" {
  begin hang:micro-batch:10 --micro-batches 3 --steps 100
  until_true grep -q 'waiting at micro-batch' "$T/err"  # counted from 0: the fourth step
  kill -INT $child
  kill -INT $child
  ended
  [ $code -eq 3 ]
  step=$(step_of "$T/run")
  [ "$step" -ge 3 ]
  "$TRIREME" train --quiet --run "$T/run" --resume --steps 8
  train 1 "$T/whole" --steps 8
  same_state "$T/whole" "$T/run"
}

@test "a second Ctrl-C abandons a long step" {
  begin hang:micro-batch:2 --micro-batches 65536 --steps 2
  until_true grep -q 'waiting at micro-batch' "$T/err"
  kill -INT $child
  until_true grep -q '^stopping: finishing this step, then saving' "$T/err"
  kill -INT $child
  ended
  [ $code -eq 3 ]
  grep -q '^stopping: this step is dropped' "$T/err"
  grep -q '^stopped at step 0 ' "$T/out"
}

@test "a signal ends a validation; its checkpoint is saved, and the resumed run begins with it" {
  valid=(--valid-every 3 --samples 0 --beam-size 2)
  begin hang:validation "${valid[@]}" --steps 6
  until_true grep -q 'waiting at validation' "$T/err"
  kill -INT $child
  until_true grep -q '^stopping: this validation is interrupted, and --resume begins with it' "$T/err"
  ended
  [ $code -eq 3 ]
  [ "$(step_of "$T/run")" -eq 3 ]
  [ -z "$(figures valid_nll "$T/run")" ]
  "$TRIREME" train --quiet --run "$T/run" --resume
  train 1 "$T/whole" "${valid[@]}" --steps 6
  [ "$(figures valid_nll "$T/run" | sort -u | wc -l)" -eq 2 ]
  cmp <(figures valid_nll "$T/whole") <(figures valid_nll "$T/run")
  [ "$(best_step "$T/run")" -eq "$(best_step "$T/whole")" ]
  same_state "$T/whole" "$T/run"
}

@test "a validation that takes long prints how many sentences are translated" {
  export TRIREME_FAULT=valid-progress:0
  run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 2 --valid-every 2 --beam-size 1
  [ "$status" -eq 0 ]
  [[ "$output" =~ "valid    0 of "[0-9,]+" sentences translated, " ]]
}

@test "a run resumed before its first validation names no best BLEU" {
  train 1 "$T/run" --steps 2 --valid-every 0
  run "$TRIREME" train --run "$T/run" --resume --steps 3
  [ "$status" -eq 0 ]
  [[ "$output" =~ "resume   step 2, no best checkpoint yet" ]]
  [[ ! "$output" =~ "BLEU so far" ]]
}

@test "a run with fewer checkpoints than --average-checkpoints averages the existing ones, without a warning" {
  run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 4 --valid-every 0 \
    --save-every 2 --warmup-steps 4 --average-checkpoints 5
  [ "$status" -eq 0 ]
  [[ "$output" =~ "average of 2 checkpoints (--average-checkpoints 5), steps 2 to 4" ]]
  [[ ! "$output" =~ "warning" ]]
}

@test "the average and the kept checkpoints do not depend on stops" {
  options=(--save-every 4 --valid-every 0 --average-checkpoints 3 --keep-checkpoints 3 --lr-scheduler constant)
  train 1 "$T/whole" --steps 16 "${options[@]}"
  for end in 5 6 11 14 16; do
    if [ -d "$T/parts" ]; then more=--resume; else more=''; fi
    train 1 "$T/parts" $more --steps $end "${options[@]}"
  done
  cmp "$T/whole/average/weights.safetensors" "$T/parts/average/weights.safetensors"
  [ "$(cd "$T/parts/checkpoints" && echo step-*)" = "step-00000008 step-00000012 step-00000016" ]
}

@test "a slash at the end of --run is not doubled in the output" {
  run train 1 "$T/run/" --steps 2 --valid-every 2 --samples 0 --beam-size 1
  [ "$status" -eq 0 ]
  [[ "$output" =~ "in $T/run/checkpoints/best" ]]
}

@test "a run killed within a validation has saved its step, and validates it when resumed" {
  valid=(--valid-every 3 --samples 0 --beam-size 2)
  begin hang:validation "${valid[@]}" --steps 3
  until_true grep -q 'waiting at validation' "$T/err"
  until_there "$T/run/checkpoints/latest/training.json"
  kill -KILL $child
  ended
  "$TRIREME" train --quiet --run "$T/run" --resume
  [ "$(figures valid_bleu "$T/run" | wc -l)" -eq 1 ]
  [ -d "$T/run/checkpoints/best/" ]
}

@test "the time of a validation is in its checkpoint: a resumed run does not go back in time" {
  valid=(--valid-every 3 --samples 0 --beam-size 1)
  train 1 "$T/run" "${valid[@]}" --steps 3
  train 1 "$T/run" "${valid[@]}" --resume --steps 6
  [ "$(figures valid_nll "$T/run" | wc -l)" -eq 2 ]
  figures seconds "$T/run" | sort -gc
}

@test "a best step that was never saved is not looked for when the last save needs a second try" {
  if is_sanitized; then skip "the sanitizers' library must be the first one loaded"; fi
  cat > "$T/full.c" << 'END'
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Simulates a disk that is full for the first three checkpoints. */
int mkdir(const char *path, mode_t mode) {
  static int failed;
  const char *name = strrchr(path, '/');
  if (name && strcmp(name, "/unfinished") == 0 && failed++ < 3) return errno = ENOSPC, -1;
  return (int)syscall(SYS_mkdirat, -100, path, mode);
}
END
  "${CC:-cc}" -shared -fPIC -D_GNU_SOURCE -o "$T/full.so" "$T/full.c"
  LD_PRELOAD=$T/full.so begin hang:micro-batch:14 --valid-every 3 --save-every 4 --samples 0 --beam-size 1 --steps 100
  # The checkpoint is of step 5; steps 3 and 4 were not saved.
  until_true grep -q 'waiting at micro-batch' "$T/err"
  kill -INT $child
  ended
  [ $code -eq 3 ]
  [ "$(step_of "$T/run")" -eq 5 ]
  [ "$(grep -c 'was not saved' "$T/err")" -eq 2 ]
  [ "$(best_step "$T/run")" -eq 0 ]  # the checkpoint stores no best step
  [ ! -e "$T/run/checkpoints/best" ]
}

# replaced NAME: makes a run of four steps and replaces its file NAME with a full device.
replaced() {
  [ -w /dev/full ] || skip "there is no /dev/full"
  train 1 "$T/run" --steps 4
  ln -sf /dev/full "$T/run/$1"
}

@test "lost lines of metrics.jsonl are reported once, and at the end with exit status 1" {
  replaced metrics.jsonl
  run "$TRIREME" train --quiet --run "$T/run" --resume --steps 9
  [ "$status" -eq 1 ]
  [ "$(grep -c '^warning: .*metrics.jsonl: No space left' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "trireme: $T/run: could not be written and are lost: 5 lines of metrics.jsonl; the checkpoints are complete" ]]
  [ "$(step_of "$T/run")" -eq 9 ]
}

@test "lost lines of log.txt are reported once, and at the end with exit status 1" {
  replaced log.txt
  run "$TRIREME" train --quiet --run "$T/run" --resume --steps 9
  [ "$status" -eq 1 ]
  [ "$(grep -c '^warning: .*log.txt: No space left' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "trireme: $T/run: could not be written and are lost: "[1-9][0-9]*" lines of log.txt; the checkpoints are complete" ]]
}

# A limit of the size of files makes the checkpoint fail; the metrics are lost on a full device.
@test "lost lines are reported too if the last checkpoint fails" {
  replaced metrics.jsonl
  run bash -c 'ulimit -f 16 && exec "$@"' - "$TRIREME" train --quiet --run "$T/run" --resume --steps 9 --system-metrics no
  [ "$status" -eq 1 ]
  [[ "$output" =~ "warning: $T/run: could not be written and are lost: 5 lines of metrics.jsonl" ]]
  [[ "$output" =~ "trireme: the last checkpoint, of step 9 "[^$'\n']*", was not saved: "[^$'\n']*"File too large" ]]
}

@test "every line of log.txt has its time, from the first message to the result" {
  train 1 "$T/run" --steps 4 --warmup-steps 5
  run ! grep -vE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z  ' "$T/run/log.txt"
  grep -q 'Z  warning: --warmup-steps 5 is longer' "$T/run/log.txt"
  tail -n 1 "$T/run/log.txt" | grep -q 'Z  done at step 4 '
}

@test "control characters in a run's name are visible in what a training prints" {
  train 1 "$T/r"$'\033[1m' --steps 2 --valid-every 2 --samples 0 --beam-size 1 > "$T/out"
  grep -qF 'in '"$T"'/r\x1b[1m/checkpoints/best' "$T/out"
  run ! grep -q $'\033' "$T/out"
}

@test "the error that ends a run is the last line of log.txt" {
  TRIREME_FAULT='nan*:3:0' run train 1 "$T/run" --steps 6 --max-rollbacks 1
  [ "$status" -eq 1 ]
  tail -n 1 "$T/run/log.txt" | grep -q 'Z  trireme: step 3: the gradient is not finite'
}

@test "a disk that fills up loses whole lines only" {
  [ "$(id -u)" -eq 0 ] || skip "only root can make a small disk"
  mkdir "$T/disk"
  mount -t tmpfs -o size=2m tmpfs "$T/disk" 2> /dev/null || skip "no disk can be mounted here"
  train 1 "$T/disk/run" --steps 2 || true
  head -c 4m /dev/zero > "$T/disk/filler" 2> /dev/null || true
  code=0
  "$TRIREME" train --quiet --run "$T/disk/run" --resume --steps 60 --save-every 60 > "$T/out" 2> "$T/err" || code=$?
  cp -R "$T/disk/run" "$T/copy"
  umount "$T/disk"
  cat "$T/err"
  [ $code -eq 1 ]
  [ "$(tail -c 1 "$T/copy/metrics.jsonl" | od -An -c | tr -d ' ')" = '\n' ]
  figures step "$T/copy"  # every line is valid JSON
  [ "$(tail -c 1 "$T/copy/log.txt" | od -An -c | tr -d ' ')" = '\n' ]
}

@test "on two ranks a last checkpoint that cannot be written is one error, printed once" {
  need_mpi
  train 1 "$T/run" --steps 2
  mkdir "$T/run/checkpoints/unfinished"
  chattr +i "$T/run/checkpoints/unfinished" 2> /dev/null || skip "no directory can be made immutable here"
  run train 2 "$T/run" --resume --steps 4
  chattr -i "$T/run/checkpoints/unfinished"
  [ "$status" -eq 1 ]
  [ "$(grep -c '^trireme: .*the last checkpoint, of step 4 ' <<< "$output")" -eq 1 ]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
}

@test "on two ranks a signal ends a validation" {
  need_mpi
  TRIREME_FAULT=hang:validation mpirun -n 2 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 6 \
    --valid-every 3 --samples 0 --beam-size 2 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_true grep -q 'waiting at validation' "$T/err"
  kill -USR1 $child
  ended
  [ $code -eq 3 ]
  grep -q '^stopped at step 3 ' "$T/out"
  [ -z "$(figures valid_nll "$T/run")" ]
}

@test "a dry run of a model that does not fit says so" {
  run "$TRIREME" train --data "$SET" --run "$T/run" --device cpu --d-model 65536 --ffn-dim 262144 --heads 16 --batch-tokens 256 --dry-run
  [ "$status" -ne 0 ]
  [[ "$output" == *"the run does not fit into memory"* ]]
  [ ! -e "$T/run" ]
}
