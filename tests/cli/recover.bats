#!/usr/bin/env bats
# What a long run recovers from, with injected faults: NaN gradients, kills at any time, a full
# disk.

load ../ranks/support

setup_file() {
  make_small_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

@test "a NaN gradient: back to the last checkpoint at half the learning rate" {
  for n in 1 2; do
    if [ $n -eq 2 ]; then need_mpi; fi
    TRIREME_FAULT=nan:7:$((n - 1)) train $n "$T/$n" --steps 20 --save-every 5 2> "$T/err"
    grep -q 'step 7: the gradient is not finite .* back to step 5, with the learning rate times 0.5 from now on (roll-back 1 of 3)' "$T/err"
    [ "$(figures rolled_back_from "$T/$n")" = 7 ]
    [ "$(figures step "$T/$n" | tail -n 1)" = 20 ]
    [ "$(figures lr "$T/$n" | tail -n 1)" = 0.0015 ]
    [ -z "$(figures loss "$T/$n" | grep -i nan)" ]
  done
}

@test "a NaN before the first checkpoint restarts from the beginning, and the halved rate survives a resume" {
  TRIREME_FAULT=nan:3:0 train 1 "$T/run" --steps 12 2> "$T/err"
  grep -q 'back to step 0' "$T/err"
  train 1 "$T/run" --steps 14 --resume
  [ "$(figures lr "$T/run" | tail -n 1)" = 0.0015 ]
}

@test "a gradient that stays NaN ends the run, with advice" {
  TRIREME_FAULT='nan*:7:0' run train 1 "$T/run" --steps 20 --save-every 5 --max-rollbacks 2
  [ "$status" -eq 1 ]
  [ "$(grep -c 'back to step 5' <<< "$output")" -eq 2 ]
  [[ "$output" =~ "after 2 roll-backs" && "$output" =~ "lower --lr" ]]
  [[ "$(readlink "$T/run/checkpoints/latest")" =~ ^step-0*5$ ]]
  # two ranks fail with the same error, which is printed once
  need_mpi
  TRIREME_FAULT='nan*:4:1' run train 2 "$T/two" --steps 20 --save-every 3 --max-rollbacks 1
  [ "$status" -ne 0 ]
  [ "$(grep -c '^trireme: .*after 1 roll-backs' <<< "$output")" -eq 1 ]
}

@test "a diverging loss is detected, and its checkpoints are not kept" {
  train 1 "$T/run" --steps 40 --save-every 10
  run train 1 "$T/run" --resume --steps 200 --save-every 10 --lr 1000 --max-rollbacks 1
  [ "$status" -eq 1 ]
  [[ "$output" =~ "the loss diverged" || "$output" =~ "not finite" ]]
  [[ "$output" =~ "back to step" ]]
  run train 1 "$T/run" --resume --steps 60 --save-every 10 --max-rollbacks 5
  [ "$status" -eq 0 ]
  perl -e 'exit !($ARGV[0] < 6)' "$(figures loss "$T/run" | tail -n 1)"
}

# bats test_tags=slow
@test "a run killed fifty times at random resumes each time, and ends with the bits of a run never killed" {
  RANDOM=7
  options=(--save-every 1 --keep-checkpoints 2 --micro-batches 1)
  inside=0 times=$(fewer 50 10)
  has_moved() { [ "$(last_step "$T/run")" -gt "$before" ] || ! kill -0 $child; }
  for i in $(seq "$times"); do
    if [ -d "$T/run" ]; then more=--resume before=$(last_step "$T/run"); else more='' before=0; fi
    fault=''
    # The fifth process dies while it writes.
    if [ $((i % 10)) -eq 5 ]; then fault=die:file:$((10 + RANDOM % 40)); fi
    TRIREME_FAULT=$fault "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" "${options[@]}" $more --steps 1000000 \
      > /dev/null 2> "$T/err" 3>&- &
    child=$!
    # The tenth process dies while it starts.
    if [[ $((i % 10)) -ne 0 && -z $fault ]]; then
      until_true has_moved
      kill -0 $child || { cat "$T/err"; false; }
    fi
    perl -e 'select undef, undef, undef, $ARGV[0] / 32768 * 0.04' $RANDOM
    if [ -z "$fault" ]; then kill -9 $child; fi
    code=0
    wait $child || code=$?
    [ $code -eq 137 ]
    # At most the two steps that were being saved are lost.
    resumed=$(sed -n 's/^resume  *step \([0-9]*\),.*/\1/p' "$T/err")
    if [ $((i % 10)) -ne 0 ]; then [ "${resumed:-0}" -ge $((before - 2)) ]; fi
    if find "$T/run/checkpoints" -mindepth 1 -maxdepth 1 -printf '%f\n' | grep -vqxE 'step-[0-9]+|latest|best'; then inside=$((inside + 1)); fi
  done
  [ "$inside" -gt 0 ]  # shows that some processes were killed while writing
  steps=$(($(last_step "$T/run") + 3))
  train 1 "$T/run" "${options[@]}" --resume --steps $steps
  train 1 "$T/whole" --micro-batches 1 --steps $steps
  same_state "$T/whole" "$T/run"
}

@test "a full disk while saving: training continues with a warning, the last checkpoint stays usable, a stopped run exits with failure" {
  [ "$(id -u)" -eq 0 ] || skip "only root can make a small disk"
  mkdir "$T/disk"
  mount -t tmpfs -o size=8m tmpfs "$T/disk" 2> /dev/null || skip "no disk can be mounted here"
  code=0
  full_disk || code=$?
  umount "$T/disk"
  [ $code -eq 0 ]
}

full_disk() {
  local run="$T/disk/run" child i steps code
  "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --save-every 10 --log-every 1000 --steps 1000000 > "$T/out" 2> "$T/err" 3>&- &
  child=$!
  until_there "$run/checkpoints/latest/training.json" || return 1
  # Fills the disk repeatedly, because the run frees space when it removes checkpoints.
  failed_twice() {
    head -c 20m /dev/zero >> "$T/disk/filler" 2> /dev/null
    [ "$(grep -c '^warning: .*No space left' "$T/err")" -ge 2 ]
  }
  until_true failed_twice || return 1  # the run continued after the first failure
  kill -USR1 $child
  code=0
  wait $child || code=$?
  cat "$T/err"
  [ $code -eq 1 ] || return 1  # the save requested by the signal failed
  [ "$(grep -c '^warning: .*No space left' "$T/err")" -ge 2 ] || return 1
  grep -q '^trireme: the last checkpoint, of step .* was not saved: .*No space left.*--resume' "$T/err" || return 1
  [ ! -s "$T/out" ] || return 1
  "$TRIREME" translate --device cpu --model "$run/checkpoints/latest" <<< "The dog sleeps." > /dev/null || return 1
  rm "$T/disk/filler"
  steps=$(readlink "$run/checkpoints/latest")
  steps=$((10#${steps#step-} + 2))
  train 1 "$run" --resume --steps $steps || return 1
  train 1 "$T/whole" --steps $steps || return 1
  same_state "$T/whole" "$run"
}

@test "after a kill and a resume no step counts twice in metrics.jsonl" {
  for n in 1 2; do
    if [ $n -eq 2 ]; then need_mpi; fi
    train $n "$T/$n" --steps 5 --log-every 1
    TRIREME_FAULT=die:8:0 run train $n "$T/$n" --resume --steps 12 --save-every 100 --log-every 1
    [ "$status" -ne 0 ]
    [ "$(figures step "$T/$n" | tail -n 1)" = 8 ]
    train $n "$T/$n" --resume --steps 12 --log-every 1
    [ "$(figures undone_after "$T/$n")" = 5 ]
    [ "$(figures loss "$T/$n" | wc -l)" -eq 15 ]  # the refused call removed nothing
    # The file was written at step 5.
    cmp <(counted step "$T/$n") <(printf '%s\n' 1 2 3 4 5 5 6 7 8 9 10 11 12)
    [ "$(counted loss "$T/$n" | wc -l)" -eq 12 ]
  done
}

@test "after a roll-back no step counts twice in metrics.jsonl" {
  TRIREME_FAULT=nan:7:0 train 1 "$T/run" --steps 10 --save-every 5 --log-every 1
  [ "$(figures undone_after "$T/run")" = 5 ]
  [ "$(figures loss "$T/run" | wc -l)" -eq 12 ]
  [ "$(counted loss "$T/run" | wc -l)" -eq 10 ]
}

@test "a finished run that is resumed undoes no step" {
  train 1 "$T/run" --steps 6 --save-every 5 --log-every 1
  train 1 "$T/run" --resume --steps 9 --log-every 1
  [ -z "$(figures undone_after "$T/run")" ]
  cmp <(counted step "$T/run") <(seq 9)
}

@test "metrics.jsonl: perplexity of the loss, FLOPs of the tokens, roll-backs so far" {
  TRIREME_FAULT=nan:3:0 train 1 "$T/metrics" --steps 4 --save-every 2 --valid-every 4
  perl -MJSON::PP -e '
    sub about { abs($_[0] - $_[1]) <= 1e-6 * $_[1] }
    for (map { decode_json($_) } <>) {
      die "perplexity" if exists $_->{nll} && !about($_->{perplexity}, exp $_->{nll});
      die "validation" if exists $_->{valid_nll} && !about($_->{valid_perplexity}, exp $_->{valid_nll});
      next unless exists $_->{nll};
      die "TFLOP/s" unless $_->{tflops_per_s} > 0 && $_->{steps_per_s} > 0 && $_->{checkpoint_ms} >= 0;
      # the FLOPs per target token vary only with the length of the sources
      my $ratio = $_->{tflops_per_s} / $_->{target_tokens_per_s};
      $first //= $ratio;
      die "FLOPs per token" unless $ratio > 0.7 * $first && $ratio < 1.4 * $first;
      push @rollbacks, $_->{rollbacks};
    }
    die "roll-backs @rollbacks" unless "@rollbacks" eq "0 0 0 1 1"' "$T/metrics/metrics.jsonl"
}
