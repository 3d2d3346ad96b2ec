#!/usr/bin/env bats
# Training on several ranks gives the results of one rank: close values and, with --reproducible,
# the same bits on any number of ranks, stopped and resumed at any step.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`
load ../ranks/support
MODEL+=(--batch-tokens 64)

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

@test "collectives and sums of gradients are right on 1, 2, 3 and 4 ranks, in shared memory" {
  need_mpi
  run mpirun -n 1 "$TRIREME_TOOLS/check_comm"
  [ "$status" -eq 0 ] || { echo "$output"; false; }
  grep -qx "all right on 1: one process" <<< "$output"
  for n in 2 3 4; do
    run mpirun -n $n "$TRIREME_TOOLS/check_comm"
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    # One line: the ranks of one run, not $n runs of one rank.
    [ "$(grep -c "all right" <<< "$output")" -eq 1 ]
    grep -qx "all right on $n: $n ranks on 1 host over .* and shared memory" <<< "$output" || { echo "$output"; false; }
  done
}

# spread N HOSTS COMMAND…: runs on N ranks that report the host names h0, h1, … in turn.
spread() {
  local n=$1 hosts=$2 list=() r
  shift 2
  for ((r = 0; r < n; r++)); do
    if ((r)); then list+=(:); fi
    # Mpirun -x cannot pass the environment of a sanitizer.
    list+=(-n 1 env "TRIREME_HOST=h$((r % hosts))" "$@")
  done
  mpirun "${list[@]}"
}

@test "collectives and sums of gradients are right on 2, 3 and 4 ranks of two hosts" {
  need_mpi
  for n in 2 3 4; do
    run spread $n 2 "$TRIREME_TOOLS/check_comm"
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    [[ "$output" =~ "all right on $n: $n ranks on 2 hosts over" ]]
    [[ ! "$output" =~ "shared memory" ]]
  done
}

@test "eight ranks on one core: a waiting rank yields the core to the others" {
  need_mpi
  run timeout 100 mpirun -n "$(fewer 8 4)" taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$TRIREME_TOOLS/check_comm" few
  [ "$status" -eq 0 ] || { echo "$output"; false; }
  [[ "$output" =~ "and shared memory" ]]
}

# close A B: losses differ by at most 1e-5, weights by at most a thousandth of their norm.
close() {
  paste <(figures loss "$1") <(figures loss "$2") | perl -ane 'exit 1 if @F != 2 || abs($F[0] - $F[1]) > 1e-5 * $F[0]; END { exit 1 if !$. }' || return 1
  perl -e 'for (@ARGV) { local $/; open F, "<:raw", $_ or die; $b = <F>; push @w, [unpack "f<*", substr $b, 8 + unpack "Q<", $b] }
    ($a, $b) = @w; for (0 .. $#$a) { $d += ($a->[$_] - $b->[$_]) ** 2; $s += $a->[$_] ** 2 } exit !(@$a > 1000 && @$a == @$b && sqrt($d) < 1e-3 * sqrt($s))' \
    "$1/checkpoints/latest/weights.safetensors" "$2/checkpoints/latest/weights.safetensors"
}

@test "1, 2, 3 and 4 ranks: close, and with --reproducible, sharded or not, fp32 or bf16, the same bits" {
  need_mpi
  for n in $(fewer '1 2 3 4' '1 3'); do
    mkdir "$T/$n"
    with $n "$TRIREME_TOOLS/check_train" "$SET" "$T/$n"
    [ "$(ls "$T/$n" | wc -l)" -eq 20 ]
    for way in "$T/$n"/*-shard; do same_weights "$way" "${way%-shard}"; done
  done
  for n in $(fewer '2 3 4' 3); do
    for way in "$T"/1/*-same; do same_weights "$way" "$T/$n/$(basename "$way")"; done
    close "$T/1/adam-6-fp32" "$T/$n/adam-6-fp32"
    # The runs must differ for this comparison to be meaningful.
    run -1 same_weights "$T/1/adam-6-fp32" "$T/$n/adam-6-fp32"
    run -1 same_weights "$T/$n/adam-6-fp32-same" "$T/$n/adam-6-bf16-same"
  done
  run ! close "$T/1/adam-6-fp32" "$T/1/sgd-6-fp32-same"
  run ! close "$T/1/adam-6-fp32-same" "$T/1/adam-4-fp32-same"
}

@test "three ranks on two hosts train to the bits of one rank, and of three on one host" {
  need_mpi
  options=("$TRIREME" train --data "$SET" "${MODEL[@]}" --quiet --reproducible --steps 6)
  "${options[@]}" --run "$T/one"
  mpirun -n 3 "${options[@]}" --run "$T/near"
  spread 3 2 "${options[@]}" --run "$T/far"
  same_state "$T/one" "$T/near"
  same_state "$T/one" "$T/far"
  mpirun -n 3 "${options[@]}" --allreduce-dtype bf16 --shard-optimizer --run "$T/near-bf16"
  spread 3 2 "${options[@]}" --allreduce-dtype bf16 --shard-optimizer --run "$T/far-bf16"
  same_state "$T/near-bf16" "$T/far-bf16"
}

@test "two machines of one name are two hosts" {
  need_mpi
  echo another > "$T/boot_id"
  cat > "$T/elsewhere" << 'END'
#!/bin/sh
mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"
END
  chmod +x "$T/elsewhere"
  elsewhere=(unshare -m "$T/elsewhere" "$T/boot_id")
  "${elsewhere[@]}" true 2> /dev/null || skip "this needs a mount namespace"
  bench=("$TRIREME" bench allreduce --device cpu --max-bytes 4k)
  run mpirun -n 1 "${bench[@]}" : -n 1 "${elsewhere[@]}" "${bench[@]}"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "2 ranks on 2 hosts over " ]]
  [[ ! "$output" =~ "shared memory" ]]
}

same_weights() {
  cmp -s "$1/checkpoints/latest/weights.safetensors" "$2/checkpoints/latest/weights.safetensors"
}

# lines_of FILE: prints its number of lines; 0 if it does not exist.
lines_of() { wc -l 2> /dev/null < "$1" || echo 0; }

# make_note: writes the program `note FILE COMMAND…`, which runs a command as a rank and appends its
# exit status to a file. mpirun sends a signal to both processes.
make_note() {
  cat > "$T/note" << 'END'
#!/bin/bash
trap : USR1
file=$1
shift
"$@"
code=$?
echo $code >> "$file"
exit $code
END
  chmod +x "$T/note"
}

# stop_at SIGNAL N RUN [OPTION…]: resumes the run and stops it with a signal.
stop_at() {
  local signal=$1 n=$2 run=$3 before child code=0
  shift 3
  before=$(lines_of "$run/metrics.jsonl")
  if [ "$n" -eq 1 ]; then
    "$TRIREME" train --run "$run" --quiet "$@" > "$run.out" 2>&1 3>&- &
  # Without the option mpirun waits for seconds after the first rank has ended, to kill the others.
  elif [ "$signal" = USR1 ]; then
    mpirun --mca orte_abort_on_non_zero_status 0 -n "$n" "$T/note" "$run.statuses" \
      "$TRIREME" train --run "$run" --quiet "$@" > "$run.out" 2>&1 3>&- &
  # Seconds: mpirun forwards SIGTERM and kills the ranks after this time, which must suffice to
  # save.
  else
    mpirun --mca odls_base_sigkill_timeout 6 -n "$n" "$TRIREME" train --run "$run" --quiet "$@" > "$run.out" 2>&1 3>&- &
  fi
  child=$!
  has_written() { [ "$(lines_of "$run/metrics.jsonl")" -gt $((before + 3)) ]; }
  until_true has_written
  kill -"$signal" $child
  wait $child || code=$?
  grep -q '^stopped at step' "$run.out" || { tail -n 20 "$run.out"; return 1; }
  # if mpirun received the signal itself, its exit status differs
  if [ "$n" -eq 1 ]; then
    [ $code -eq 3 ]
  elif [ "$signal" = USR1 ]; then
    [ "$(grep -cx 3 "$run.statuses")" -eq "$n" ]
    rm "$run.statuses"
  else
    [ $code -ne 0 ]
  fi
}

# bats test_tags=slow
@test "stopped by any signal, on 1, 2 and 3 ranks in turn, the bits are those of a run never stopped" {
  need_mpi
  make_note
  options=(--data "$SET" "${MODEL[@]}" --reproducible --steps 100000)
  stop_at USR1 1 "$T/parts" "${options[@]}"
  stop_at TERM 1 "$T/parts" --resume
  stop_at INT 1 "$T/parts" --resume
  stop_at USR1 2 "$T/parts" --resume --shard-optimizer
  stop_at TERM 2 "$T/parts" --resume
  stop_at USR1 3 "$T/parts" --resume
  steps=$(($(figures step "$T/parts" | tail -n 1) + 3))
  train 2 "$T/parts" --resume --reproducible --steps $steps
  train 1 "$T/whole" --reproducible --steps $steps
  same_state "$T/whole" "$T/parts"
  # every step occurs once, with the loss of the uninterrupted run
  cmp <(figures step "$T/parts") <(seq $steps)
  cmp <(figures loss "$T/parts") <(figures loss "$T/whole")
}

@test "every optimizer and the EMA resume to the bit" {
  for way in "--optimizer sgd" "--optimizer novograd" "--optimizer adamw --weight-decay 0.1 --ema-decay 0.9"; do
    rm -rf "${T:?}"/*
    train 1 "$T/whole" $way --steps 8
    train 1 "$T/parts" $way --steps 3
    train 1 "$T/parts" $way --steps 8 --resume
    same_state "$T/whole" "$T/parts"
  done
  [ -f "$T/parts/checkpoints/latest/training.safetensors" ]
}

@test "optimizer groups give the same bits on one rank, on two, and sharded" {
  need_mpi
  train 1 "$T/one" --steps 6 --optimizer adamw --weight-decay 0.1 --decay-biases no --reproducible
  train 2 "$T/two" --steps 6 --optimizer adamw --weight-decay 0.1 --decay-biases no --reproducible
  train 2 "$T/shard" --steps 6 --optimizer adamw --weight-decay 0.1 --decay-biases no --reproducible --shard-optimizer
  train 1 "$T/all" --steps 6 --optimizer adamw --weight-decay 0.1 --reproducible
  same_state "$T/one" "$T/two"
  same_state "$T/one" "$T/shard"
  run -1 cmp "$T/one/checkpoints/latest/weights.safetensors" "$T/all/checkpoints/latest/weights.safetensors"
}

@test "two ranks resume to the bit without --reproducible, sharded, with an EMA" {
  need_mpi
  train 2 "$T/whole" --steps 8 --ema-decay 0.9
  train 2 "$T/parts" --steps 3 --ema-decay 0.9 --shard-optimizer
  mpirun -n 2 "$TRIREME" train --run "$T/parts" --resume --steps 8 > /dev/null 2>&1
  same_state "$T/whole" "$T/parts"
}

@test "an epoch uses every pair once" {
  train 1 "$T/run" --batch-tokens 2048 --micro-batches 1 --epochs 1
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<>); exit !($j->{pairs} == 3000 && $j->{step} > 10)' "$T/run/checkpoints/latest/training.json"
  [ "$(figures epoch "$T/run" | tail -n 1)" = 1 ]
}

@test "a dry run prints the cost and writes nothing" {
  run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --dry-run
  [ "$status" -eq 0 ]
  [[ "$output" =~ "memory" && "$output" =~ "GFLOP/s" && ! "$output" =~ "network" ]]
  [ ! -e "$T/run" ]
  need_mpi
  run mpirun -n 2 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --dry-run
  [ "$status" -eq 0 ]
  [ "$(grep -c '^network ' <<< "$output")" -eq 1 ]
  [ "$(grep -c '^memory .* on rank 0: weights' <<< "$output")" -eq 1 ]
  [ "$(grep -c '^memory .*fits: each rank needs' <<< "$output")" -eq 1 ]
  [ ! -e "$T/run" ]
}

@test "--resume needs the run's name alone, and refuses what would change the run" {
  train 1 "$T/run" --steps 4
  run "$TRIREME" train --run "$T/run" --resume --steps 6 --quiet
  [ "$status" -eq 0 ]
  [[ "$output" =~ "done at step 6" ]]
  run "$TRIREME" train --run "$T/run" --resume --steps 8 --seed 7 --batch-tokens 512
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--seed is 7 and was not set" && "$output" =~ "--batch-tokens is 512 and was 64" ]]
  run "$TRIREME" train --run "$T/run" --resume --steps 8 --optimizer sgd
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--optimizer is sgd and was" ]]
  run "$TRIREME" train --run "$T/run" --resume --steps 8 --micro-batches 2
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--micro-batches" ]]
  # the refused call changed nothing; another learning rate is accepted with a warning
  run -1 grep -q '^seed' "$T/run/config"
  grep -q '^batch-tokens = 64$' "$T/run/config"
  run "$TRIREME" train --run "$T/run" --resume --steps 8 --lr 1e-3
  [ "$status" -eq 0 ]
  [[ "$output" =~ "--lr is" ]]
  grep -q '^steps = 8$' "$T/run/config"
}

# one_error TEXT: the output has exactly one error line of the program, which contains TEXT.
one_error() {
  echo "$output"
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  grep -q "^trireme: .*$1" <<< "$output"
}

@test "ranks that were started differently are refused, with the difference" {
  need_mpi
  both=("$TRIREME" train --data "$SET" "${MODEL[@]}" --quiet --steps 3)
  run mpirun -n 1 "${both[@]}" --run "$T/run" : -n 1 "${both[@]}" --run "$T/run" --seed 5
  [ "$status" -ne 0 ]
  one_error "rank 1 on .*--seed is 5 and on rank 0 not set"
  cp -R "$SET" "$T/other"
  echo >> "$T/other/dataset.json"
  run mpirun -n 1 "${both[@]}" --run "$T/run" : -n 1 "${both[@]}" --run "$T/run" --data "$T/other"
  [ "$status" -ne 0 ]
  one_error "data-set-hash"
  [ ! -e "$T/run" ]
}

@test "more ranks than micro-batches, a run that exists or is in use: one error for all ranks" {
  need_mpi
  run train 2 "$T/run" --steps 3 --micro-batches 1
  [ "$status" -ne 0 ]
  one_error "pass --micro-batches 2 or more"
  train 1 "$T/run" --steps 3
  run train 2 "$T/run" --steps 3
  [ "$status" -ne 0 ]
  one_error "exists already"
  exec 9> "$T/run/lock"
  flock 9
  run train 2 "$T/run" --steps 4 --resume 9>&-
  [ "$status" -ne 0 ]
  one_error "in use by another"
}

@test "options of NCCL that cannot have an effect are refused: one error for all ranks" {
  need_mpi
  run train 2 "$T/run" --steps 2 --nccl-ctas 4
  [ "$status" -ne 0 ]
  one_error "--nccl-ctas 4 is not available, because NCCL is not used: rank 0 has no GPU; pass --device cuda"
  [ ! -e "$T/run" ]
  run -2 train 1 "$T/run" --steps 2 --reserve-sms yes
  one_error "--reserve-sms yes needs --nccl-ctas N with N above 0, the number of SMs; pass it, or --reserve-sms no"
  run -2 train 1 "$T/run" --steps 2 --reproducible --tune
  one_error "--tune is not available with --reproducible, which does not use NCCL"
  run -2 train 1 "$T/run" --steps 2 --allreduce-transport host --tune
  one_error "--tune is not available with --allreduce-transport host"
  run "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 1 --nccl-ctas 4  # one rank, as after an elastic restart
  [ "$status" -eq 0 ]
  [[ "$output" =~ "--nccl-ctas 4 has no effect" ]]
}

@test "a wrong value of an option is one error for all ranks" {
  need_mpi
  run train 2 "$T/run" --bucket-size 0
  [ "$status" -ne 0 ]
  one_error "--bucket-size: 0 is below the minimum"
}

@test "validation on 1, 2 and 3 ranks: every sentence once, the same loss and BLEU" {
  need_mpi
  head -n 61 "$SET/valid.src" > "$T/v.src"
  head -n 61 "$SET/valid.ref" > "$T/v.ref"
  "$TRIREME" prepare --quiet --train "$SET/test.src" "$SET/test.ref" --valid "$T/v.src" "$T/v.ref" \
    --tokenizer "$SET/tokenizer.model" --out "$T/small" > /dev/null
  train 1 "$T/start" --data "$T/small" --steps 40 --batch-tokens 512
  for n in 1 2 3; do
    cp -R "$T/start" "$T/$n"
    with $n "$TRIREME" train --run "$T/$n" --resume --reproducible --steps 41 --valid-every 41 --samples 100 --beam-size 2 2> "$T/$n.err"
    grep -A 2 '^  [^ ]' "$T/$n.err" | grep -E '^ +(->|==)|^  [^ ]' > "$T/$n.lines"
    [ "$(grep -c '^    == ' "$T/$n.lines")" -eq 61 ]
  done
  grep '^    == ' "$T/1.lines" | sed 's/^    == //' | cmp - "$T/v.ref"
  for n in 2 3; do
    cmp "$T/1.lines" "$T/$n.lines"
    [ -n "$(figures valid_bleu "$T/$n")" ]
    for what in valid_bleu valid_nll; do
      perl -e 'exit !(abs($ARGV[0] - $ARGV[1]) <= 1e-9 * abs $ARGV[0])' "$(figures $what "$T/1")" "$(figures $what "$T/$n")"
    done
  done
}

# The thread that measures the host allocates memory for its first samples, in whichever step they
# fall.
@test "after the first step nothing is allocated" {
  train 1 "$T/one" --steps 12 --system-metrics no
  [ "$(figures allocations "$T/one" | tail -n +2 | sort -u)" = 0 ]
  need_mpi
  train 2 "$T/two" --steps 12 --system-metrics no
  [ "$(figures allocations "$T/two" | tail -n +2 | sort -u)" = 0 ]
}

@test "memcheck finds nothing in a training" {
  command -v valgrind > /dev/null || skip "valgrind is not installed"
  if is_sanitized; then skip "a sanitizer is at work already"; fi
  # --device cpu: a search for GPUs would report memory errors of the loader and of CUDA's
  # libraries.
  OMP_NUM_THREADS=1 run valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --device cpu --quiet --steps 2 --micro-batches 1
  [ "$status" -eq 0 ] || { echo "$output"; false; }
}

@test "metrics.jsonl counts the bytes of messages, as a dry run predicts them" {
  need_mpi
  options=(--data "$SET" --run "$T/run" "${MODEL[@]}" --steps 4 --micro-batches 2)
  spread 2 2 "$TRIREME" train "${options[@]}" --dry-run 2>&1 | tee "$T/plan"
  predicted=$(sed -n 's/^network  each rank sends and receives \([0-9.]*\) kB in a step.*/\1/p' "$T/plan")
  spread 2 2 "$TRIREME" train "${options[@]}" --quiet
  for field in sent_bytes received_bytes; do
    [ "$(figures $field "$T/run" | wc -l)" -eq 4 ]
    # the prediction is rounded and excludes the sums of losses, which are less than 100 bytes
    figures $field "$T/run" | perl -ne "exit 1 if abs(\$_ / 1000 - $predicted) > 0.2 + $predicted / 100"
  done
  # ranks of one host exchange gradients in shared memory
  train 2 "$T/one" --steps 2 --micro-batches 2
  [ "$(figures sent_bytes "$T/one" | sort -u)" = 0 ]
}
