#!/usr/bin/env bats
# The table of bench train: the time of each kind of operation, on the CPU and on a fake GPU with
# timestamps (a plug-in that computes on the CPU).

load ../ranks/support

setup_file() {
  make_gpu
  for i in 5 7 9 12 21 30; do echo "$i $((i + 1))"; done > "$BATS_FILE_TMPDIR/lengths"
}

setup() {
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins"
}

bench() {
  "$TRIREME" bench train --preset tiny --vocab-size 200 --lengths "$BATS_FILE_TMPDIR/lengths" --steps 2 --batch-tokens 256 --threads 1 --quiet "$@"
}

# parts: checks that the figures in the JSON are consistent; prints names and numbers of calls.
parts() {
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>); $p = $j->{parts}; $step = $p->{step}{ms}; $sum = 0;
    sub about { my ($a, $b) = @_; abs($a - $b) <= 1e-3 * (abs($a) + abs($b)) }
    die "no headline" unless $j->{step_ms} > 0;
    die "no rates" unless $p->{product_tflops} > 0 && $p->{copy_gb_s} > 0;
    $between = pop @{$p->{work}};
    die "what is between is not last" unless $between->{name} eq "between";
    for (@{$p->{work}}) {
      die "$_->{name}: $_->{ms} ms" unless $_->{ms} >= 0 && $_->{calls} > 0;
      $sum += $_->{ms}; $ops += $_->{floor_operations_ms}; $bytes += $_->{floor_bytes_ms};
      die "$_->{name}: share" unless about($_->{share}, $_->{ms} / $step);
      die "$_->{name}: rates" unless about($_->{gb_s} * $_->{ms}, $_->{floor_bytes_ms} * $p->{copy_gb_s}) &&
        about($_->{tflops} * $_->{ms}, $_->{floor_operations_ms} * $p->{product_tflops});
      $least = $_->{floor_operations_ms} > $_->{floor_bytes_ms} ? $_->{floor_operations_ms} : $_->{floor_bytes_ms};
      die "$_->{name}: ratio" unless about($_->{ratio} * $least, $_->{ms});
      printf "%s: %g\n", $_->{name}, $_->{calls}; }
    die "$sum of $step ms" unless $sum <= 1.0001 * $step && $sum >= 0.5 * $step;
    die "between" unless abs($sum + $between->{ms} - $step) <= 1e-3 * $step && $between->{ms} >= 0;
    die "floors" unless about($ops, $p->{step}{floor_operations_ms}) && about($bytes, $p->{step}{floor_bytes_ms})'
}

@test "bench train: a row for each kind of work, and the roofline" {
  run bench --device cpu
  [ "$status" -eq 0 ]
  [[ "$output" =~ "target tokens/s" ]]
  for name in "GEMMs forward" "GEMMs, input grads" "GEMMs, weight grads" "attention forward" "attention backward" \
    "norms forward" "norms backward" "activation forward" "activation backward" embeddings loss optimizer "copies, zeroing" between step; do
    [ "$(grep -c "^$name  .* %" <<< "$output")" -eq 1 ]
  done
  [[ "$output" =~ "lower bounds of the step: operations "[0-9.]+" ms at "[0-9.]+" TFLOP/s" ]]
  [[ "$output" =~ "bytes "[0-9.]+" ms at "[0-9.]+" GB/s" ]]
  [[ "$output" =~ "from 2 timed steps" ]]
}

@test "bench train: the parts in JSON sum to the step, and the roofline follows from the rates" {
  bench --device cpu --json > "$BATS_TEST_TMPDIR/json"
  run parts < "$BATS_TEST_TMPDIR/json"
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 13 ]
}

@test "bench train: a device's time is that of its events, and the counts are the CPU's" {
  bench --device cpu --json | parts > "$BATS_TEST_TMPDIR/cpu"
  bench --device cuda --json | parts > "$BATS_TEST_TMPDIR/cuda"
  diff "$BATS_TEST_TMPDIR/cpu" "$BATS_TEST_TMPDIR/cuda"
  [ "$(wc -l < "$BATS_TEST_TMPDIR/cuda")" -eq 13 ]
}

# bench_texts FILE [OPTION…]: trains a classifier on texts of the lengths in a file.
bench_texts() {
  local lengths=$1
  shift
  "$TRIREME" bench train --preset bert-tiny --vocab-size 200 --lengths "$lengths" --steps 2 --batch-tokens 256 --threads 1 --quiet "$@"
}

@test "bench train: a BERT preset reads one length per line and prints tokens and texts per second" {
  cut -d ' ' -f 1 "$BATS_FILE_TMPDIR/lengths" | gzip > "$BATS_TEST_TMPDIR/texts.gz"
  run bench_texts "$BATS_TEST_TMPDIR/texts.gz" --device cpu
  [ "$status" -eq 0 ]
  [[ "$output" =~ "bert-tiny, "[0-9,]+" parameters, batches of 256 tokens"$'\n' ]]
  [[ "$output" =~ "train: "[0-9]+" tokens/s, "[0-9]+" texts/s, "[0-9.]+" ms a step, "[0-9.]+" TFLOP/s, MFU "[0-9.]+" %, mean loss" ]]
  for name in "GEMMs forward" "attention backward" "activation backward" embeddings loss optimizer between step; do
    [ "$(grep -c "^$name  .* %" <<< "$output")" -eq 1 ]
  done
  for device in cpu cuda; do
    bench_texts "$BATS_TEST_TMPDIR/texts.gz" --device $device --json > "$BATS_TEST_TMPDIR/$device.json"
    # 84 tokens are 6 texts
    perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>); $ratio = $j->{tok_s} / $j->{texts_s};
      exit !($j->{preset} eq "bert-tiny" && abs($ratio - 14) < 1e-3 && $j->{loss} > 0 && $j->{memory_gb} > 0 && !$j->{tgt_tok_s})' \
      < "$BATS_TEST_TMPDIR/$device.json"
    # A device copies the batch.
    parts < "$BATS_TEST_TMPDIR/$device.json" | grep -v "^copies" > "$BATS_TEST_TMPDIR/$device"
  done
  diff "$BATS_TEST_TMPDIR/cpu" "$BATS_TEST_TMPDIR/cuda"
}

@test "bench train: a wrong file of text lengths is an error" {
  cd "$BATS_TEST_TMPDIR"
  printf '7\n5 6\n' > pairs
  printf '1\n' > short
  printf '513\n' > long
  : > empty
  run bench_texts pairs --device cpu
  [ "$status" -eq 1 ]
  [[ "$output" =~ "pairs:2: expected the length of a text from 2 to 512 tokens, with [CLS] and [SEP]; correct this line" ]]
  for name in short long; do
    run bench_texts $name --device cpu
    [ "$status" -eq 1 ]
    [[ "$output" =~ "$name:1: expected the length of a text" ]]
  done
  run bench_texts empty --device cpu
  [ "$status" -eq 1 ]
  [[ "$output" =~ "empty is empty; it must have one length per line" ]]
}

# gigabytes DIR [OPTION…]: prints the memory of a training run with the plug-in in DIR. Batches
# are small and the vocabulary is large, so that weights need most of the memory.
gigabytes() {
  local plugins=$1
  shift
  yes "7 8" | head -n 40 > "$BATS_TEST_TMPDIR/short"
  FAKE_GRAPH=0 TRIREME_PLUGIN_PATH=$plugins bench --lengths "$BATS_TEST_TMPDIR/short" --vocab-size 20000 --batch-tokens 16 --json "$@" |
    sed 's/.*"memory_gb": \([0-9.]*\),.*/\1/'
}

@test "bench train: the memory is all that the device allocates, the bf16 copy of the weights and its own included" {
  TRIREME_PLUGIN_PATH=$(dirname "$TRIREME") BATS_FILE_TMPDIR=$BATS_TEST_TMPDIR \
    make_gpu -Dtrireme_backend_cuda=fake_open "$BATS_TEST_DIRNAME/../device/fake_memory.c"
  # This GPU always reports the same free memory.
  asked=$(gigabytes "$BATS_FILE_TMPDIR/plugins" --device cuda)
  fp32=$(gigabytes "$BATS_TEST_TMPDIR/plugins" --device cuda)
  bf16=$(gigabytes "$BATS_TEST_TMPDIR/plugins" --device cuda --precision bf16)
  cpu=$(gigabytes "$BATS_FILE_TMPDIR/plugins" --device cpu)
  # Compared with `asked`: fp32 has 10 MB of working memory more; bf16 also 2 bytes per weight,
  # minus what smaller activations save.
  echo "asked $asked, fp32 $fp32, bf16 $bf16, cpu $cpu"
  perl -e '($asked, $fp32, $bf16, $cpu) = @ARGV; $n = 20000 * 128 * 2e-9;
    exit !($asked > 8 * $n && abs($fp32 - $asked - 0.01) < 1e-4 && $bf16 > $fp32 && $bf16 < $fp32 + 1.5 * $n &&
      abs($cpu - $asked) < 0.1 * $asked)' "$asked" "$fp32" "$bf16" "$cpu"
}

@test "bench: an unknown bench or argument is an error" {
  run bench_of nothing
  [ "$status" -eq 2 ]
  [[ "$output" =~ "there is no bench 'nothing'; pass reader, train" ]]
  for what in train translate allreduce; do
    run bench_of $what more
    [ "$status" -eq 2 ]
    [[ "$output" =~ "bench $what: unexpected argument 'more'" ]]
  done
  run bench_of reader
  [ "$status" -eq 2 ]
}

bench_of() { "$TRIREME" bench "$@"; }

# value OPTION: prints a valid value of the option.
value() {
  case $1 in
    allreduce-transport) echo host ;;
    device) echo cpu ;;
    bytes | max-bytes) echo 4k ;;
    lengths) echo no-such-file ;;
    precision) echo fp32 ;;
    preset) echo tiny ;;
    *) echo 16 ;;
  esac
}

# takes BENCH OPTION: asserts that the benchmark accepts the option and fails for another reason.
takes() {
  local end=()
  if [ "$1" = allreduce ]; then end=(--device none); fi
  run bench_of "$1" "--$2" "$(value "$2")" "${end[@]}"
  [ "$status" -ne 0 ] || return 1
  [[ ! "$output" =~ "bench $1 has no option --$2" ]]
}

@test "bench: an option of one bench is refused by the others, with its name" {
  cd "$BATS_TEST_TMPDIR"
  "$TRIREME" help bench > help
  sed '/^Tokenizer/,$d' help | tr '\n' ' ' > about
  options=$(sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' help | grep -vxE 'json|quiet|config|version')
  [ "$(wc -w <<< "$options")" -ge 13 ]
  for option in $options; do
    of=
    for what in reader train translate allreduce scale; do
      if takes "$what" "$option"; then of="$of, bench $what"; fi
    done
    [ -n "$of" ]
    for what in reader train translate allreduce scale; do
      list=$(sed "s/.* $what: [^;]*; it takes \([^.]*\)\..*/\1/" about)
      if [[ "$of," == *" bench $what,"* ]]; then
        [[ ", $list," == *", --$option,"* ]]
        continue
      fi
      run bench_of "$what" "--$option" "$(value "$option")"
      [ "$status" -eq 2 ]
      [ "$output" = "trireme: bench $what has no option --$option, which belongs to ${of#, }; leave it out" ]
      [[ ", $list," != *", --$option,"* ]]
    done
  done
}

@test "bench: a config file's options count as the line's" {
  echo "max-bytes = 4k" > "$BATS_TEST_TMPDIR/conf"
  run bench --device cpu --config "$BATS_TEST_TMPDIR/conf"
  [ "$status" -eq 2 ]
  [ "$output" = "trireme: bench train has no option --max-bytes, which belongs to bench allreduce; leave it out" ]
  echo "steps = 1" > "$BATS_TEST_TMPDIR/conf"
  run "$TRIREME" bench allreduce --device cpu --config "$BATS_TEST_TMPDIR/conf"
  [ "$status" -eq 2 ]
  # A config file may contain options of other commands.
  echo "d-model = 8" > "$BATS_TEST_TMPDIR/conf"
  run bench --device cpu --config "$BATS_TEST_TMPDIR/conf"
  [ "$status" -eq 0 ]
}

@test "bench translate: fp8 is refused, because translating does not use it" {
  run "$TRIREME" bench translate --lengths "$BATS_FILE_TMPDIR/lengths" --precision fp8
  [ "$status" -eq 2 ]
  [ "$output" = "trireme: bench translate has no --precision fp8: translating does not use it; pass --precision bf16" ]
}

@test "bench: several ranks are refused, except by allreduce" {
  need_mpi
  make_set
  for what in "reader $SET" train translate; do
    run mpirun -n 2 "$TRIREME" bench $what
    [ "$status" -eq 2 ]
    [[ "$output" =~ "bench ${what%% *} runs as one process, but 2 ranks were started; call it without mpirun or srun; bench allreduce measures ranks" ]]
  done
  run mpirun -n 1 "$TRIREME" bench reader "$SET" --time 0.05s
  [ "$status" -eq 0 ]
  [[ "$output" =~ "M tokens/s" ]]
}
