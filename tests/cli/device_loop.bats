#!/usr/bin/env bats
# The training loop on a GPU, tested without one: a plug-in with fake GPUs that compute on the
# CPU.

load ../ranks/support
MODEL+=(--batch-tokens 64)

setup_file() {
  make_set
  make_gpu
}

setup() {
  T=$BATS_TEST_TMPDIR
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins"
}

# say N RUN [OPTION…]: like train, but prints the output.
say() {
  local n=$1 run=$2
  shift 2
  with "$n" "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" "$@" 2>&1
}

@test "a device's memory, copies and order of work: the same bits as on the CPU" {
  for way in "" "--reproducible" "--shard-optimizer" "--ema-decay 0.9" "--optimizer sgd" "--loss-scale dynamic"; do
    name=${way//[^a-z]/}
    train 1 "$T/cpu$name" --device cpu --steps 6 --clip-norm 0.5 $way
    train 1 "$T/gpu$name" --device cuda --steps 6 --clip-norm 0.5 $way
    same_state "$T/cpu$name" "$T/gpu$name"
  done
}

@test "a run saved on the CPU resumes on a device, and back" {
  train 1 "$T/whole" --device cpu --steps 9
  train 1 "$T/parts" --device cuda --steps 3
  train 1 "$T/parts" --device cpu --steps 6 --resume
  train 1 "$T/parts" --device cuda --steps 9 --resume
  same_state "$T/whole" "$T/parts"
}

@test "several ranks: each uses the next GPU, and a warning is printed when they share one" {
  need_mpi
  train 1 "$T/one" --device cuda --steps 5 --reproducible
  for n in $(fewer '2 3' 3); do
    for way in "" "--shard-optimizer"; do
      FAKE_GPUS=2 run say $n "$T/$n$way" --device cuda --steps 5 --reproducible $way
      [ "$status" -eq 0 ]
      same_state "$T/one" "$T/$n$way"
      [[ "$output" =~ "devices  rank 0 on cuda:0, rank 1 on cuda:1" ]]
      if [ $n -eq 3 ]; then [[ "$output" =~ "rank 2 on cuda:0" && "$output" =~ "gradient all-reduce through host memory (ranks 0 and 2 share a GPU)" ]]; fi
      if [ $n -eq 2 ]; then [[ ! "$output" =~ "share a GPU" ]]; fi
    done
  done
  FAKE_GPUS=2 run say 2 "$T/same" --device cuda:1 --steps 2
  [[ "$output" =~ "rank 0 on cuda:1, rank 1 on cuda:1" && "$output" =~ "(ranks 0 and 1 share a GPU)" ]]
}

# mixed RUN [OPTION…]: trains with rank 0 on the CPU and rank 1 on a GPU, with gradients in many
# buckets.
mixed() {
  local run=$1
  shift
  local both=("$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --bucket-size 16K --quiet "$@")
  mpirun -n 1 "${both[@]}" --device cpu : -n 1 "${both[@]}" --device cuda
}

@test "a rank on the CPU and one on a GPU train together: the bits of two equal ranks" {
  need_mpi
  for way in "" "--shard-optimizer" "--allreduce-dtype bf16" "--reproducible" "--reproducible --shard-optimizer"; do
    name=${way//[^a-z]/}
    train 2 "$T/equal$name" --device cpu --bucket-size 16K --steps 5 --clip-norm 0.5 $way
    mixed "$T/mixed$name" --steps 5 --clip-norm 0.5 $way
    same_state "$T/equal$name" "$T/mixed$name"
  done
  # with --reproducible both runs have the same bits as one process
  train 1 "$T/one" --device cpu --steps 5 --clip-norm 0.5 --reproducible
  same_state "$T/one" "$T/mixedreproducible"
}

@test "a step synchronizes with the device once" {
  for steps in 10 30; do
    FAKE_WAITS="$T/$steps" train 1 "$T/run$steps" --device cuda --steps $steps --save-every 1000
  done
  [ $(($(cat "$T/30") - $(cat "$T/10"))) -eq 20 ]
}

# planned: prints the bytes of GPU memory in the log line `memory`, without the GEMM workspace and
# the libraries. Each figure is rounded, so half a unit of its last digit is added.
planned() {
  perl -ne 'next unless s/^.*memory   .* on the GPU: //;
    s/GEMM workspace and libraries [^,]*//;
    while (/ ([\d.]+) (B|kB|MB|GB)/g) {
      my ($x, $unit) = ($1, { B => 1, kB => 1e3, MB => 1e6, GB => 1e9 }->{$2});
      $sum += ($x + ($unit == 1 ? 0 : $x =~ /\./ ? 0.05 : 0.5)) * $unit;
    }
    END { printf "%d\n", $sum }' <<< "$output"
}

@test "the memory of validations is planned, and allocated before the first step" {
  # A validation set with few sentences: an empty one, and one with more tokens than
  # max_positions.
  (head -n 20 "$SET/valid.src"; echo; head -n 90 "$SET/valid.src" | tr '\n' ' '; echo) > "$T/valid.src"
  (head -n 20 "$SET/valid.ref"; echo; echo "lang") > "$T/valid.ref"
  "$TRIREME" prepare --quiet --train "$SET"/valid.{src,ref} --valid "$T"/valid.{src,ref} \
    --tokenizer "$SET/tokenizer.model" --out "$T/few" > /dev/null
  SET="$T/few"
  # An untrained model never predicts eos, so its hypotheses reach the maximum length.
  ways=("" "--beam-size 1 --average-checkpoints 2" "--ema-decay 0.9 --batch-tokens 2048")
  if is_sanitized; then ways=("${ways[1]}"); fi
  for more in "${ways[@]}"; do
    name=${more//[^a-z0-9]/}
    way=(--steps 3 --valid-every 1 --decoder-layers 3 $more)
    FAKE_MEMORY="$T/memory" run say 1 "$T/gpu$name" --device cuda "${way[@]}"
    [ "$status" -eq 0 ]
    read -r peak late < "$T/memory"
    [ "$late" -eq 0 ]
    # The plan covers all memory, and no more than is needed.
    [ "$peak" -le "$(planned)" ]
    [ $((peak * 100)) -ge $(($(planned) * 97)) ]
    # Sums over many tokens differ from the CPU's in the last bits.
    case $more in *2048*) continue ;; esac
    train 1 "$T/cpu$name" --device cpu "${way[@]}"
    same_state "$T/cpu$name" "$T/gpu$name"
    cmp <(figures valid_bleu "$T/cpu$name") <(figures valid_bleu "$T/gpu$name")
    cmp <(figures average_bleu "$T/cpu$name") <(figures average_bleu "$T/gpu$name")
  done
}

# Several batches, whose numbers of hypotheses shrink as sentences end, the first with the longest sentences.
@test "decoding steps launched as graphs give the bits of steps without graphs" {
  train 1 "$T/run" --device cpu --steps 6
  head -n 90 "$SET/valid.src" > "$T/source"
  ways=("" "--beam-size 1" "--batch-tokens 256 --nbest 2 --beam-size 5" "--sample --top-k 9 --nbest 3 --batch-tokens 512")
  if is_sanitized; then ways=("${ways[2]}"); fi
  for way in "${ways[@]}"; do
    name=${way//[^a-z0-9]/}
    translate=("$TRIREME" translate --quiet --model "$T/run" --scores --max-length 24 $way)
    "${translate[@]}" --device cpu < "$T/source" > "$T/cpu$name"
    FAKE_GRAPH=0 FAKE_GRAPHS="$T/none$name" "${translate[@]}" --device cuda < "$T/source" > "$T/plain$name"
    FAKE_GRAPHS="$T/some$name" "${translate[@]}" --device cuda < "$T/source" > "$T/graphs$name"
    [ "$(wc -l < "$T/cpu$name")" -ge 90 ]
    cmp "$T/cpu$name" "$T/plain$name"
    cmp "$T/cpu$name" "$T/graphs$name"
    [ "$(cat "$T/none$name")" = "0 0 0" ]
    read -r made replayed left < "$T/some$name"
    [ "$made" -ge 1 ]
    [ "$made" -le 32 ]
    [ "$replayed" -ge "$made" ]
    [ "$left" -eq 0 ]
  done
}

@test "steps captured and launched as graphs give the bits of steps without graphs" {
  ways=("" "--micro-batches 1" "--micro-batches 1 --ema-decay 0.9" "--micro-batches 1 --optimizer sgd --clip-norm 0.1"
    "--micro-batches 1 --optimizer adamw --loss-scale dynamic --ema-decay 0.5" "--optimizer novograd" "--shard-optimizer")
  if is_sanitized; then ways=("" "${ways[4]}" "${ways[6]}"); fi
  for way in "${ways[@]}"; do
    name=${way//[^a-z0-9]/}
    FAKE_GRAPH=0 FAKE_GRAPHS="$T/none$name" train 1 "$T/plain$name" --device cuda --steps 20 --clip-norm 0.5 $way
    FAKE_GRAPHS="$T/some$name" train 1 "$T/replayed$name" --device cuda --steps 20 --clip-norm 0.5 $way
    same_state "$T/plain$name" "$T/replayed$name"
    cmp <(figures loss "$T/plain$name") <(figures loss "$T/replayed$name")
    cmp <(figures grad_norm "$T/plain$name") <(figures grad_norm "$T/replayed$name")
    [ "$(cat "$T/none$name")" = "0 0 0" ]
    read -r made replayed left < "$T/some$name"
    [ "$made" -ge 1 ]
    [ "$made" -le 9 ]
    [ "$left" -eq 0 ]
    # A step is one graph, or one for each of three micro-batches and one for the update.
    case $way in
      *"micro-batches 1"*)
        [ "$replayed" -ge 10 ]
        [ "$replayed" -lt 20 ]
        ;;
      *) [ "$replayed" -ge 50 ] ;;
    esac
  done
}

@test "graphs: a NaN gradient, a smaller loss scale, a stop in between" {
  for micro in $(fewer '1 3' 3); do
    way=(--loss-scale dynamic --ema-decay 0.9 --micro-batches $micro)
    TRIREME_FAULT=nan:7:0,nan:12:0 train 1 "$T/cpu$micro" --device cpu --steps 20 "${way[@]}"
    TRIREME_FAULT=nan:7:0,nan:12:0 train 1 "$T/gpu$micro" --device cuda --steps 20 "${way[@]}"
    same_state "$T/cpu$micro" "$T/gpu$micro"
    cmp <(figures loss_scale "$T/cpu$micro") <(figures loss_scale "$T/gpu$micro")
    [ "$(figures skipped "$T/gpu$micro" | awk '{ n += $1 } END { print n }')" -eq 2 ]
    train 1 "$T/parts$micro" --device cuda --steps 5 "${way[@]}"
    TRIREME_FAULT=nan:7:0,nan:12:0 train 1 "$T/parts$micro" --device cuda --steps 20 "${way[@]}" --resume
    same_state "$T/cpu$micro" "$T/parts$micro"
  done
  # Without loss scaling an overflow is a divergence: the run rolls back to the last checkpoint
  # and continues.
  TRIREME_FAULT=nan:7:0 train 1 "$T/back" --device cuda --steps 12 --micro-batches 1 --save-every 5
  TRIREME_FAULT=nan:7:0 train 1 "$T/back-cpu" --device cpu --steps 12 --micro-batches 1 --save-every 5
  same_state "$T/back" "$T/back-cpu"
}

@test "graphs: ranks that share a device" {
  need_mpi
  train 1 "$T/one" --device cuda --steps 12 --micro-batches 2 --reproducible
  for way in "" "--shard-optimizer"; do
    FAKE_GRAPHS="$T/count" train 2 "$T/two$way" --device cuda --steps 12 --micro-batches 2 --reproducible $way
    same_state "$T/one" "$T/two$way"
    read -r made replayed left < "$T/count"
    [ "$made" -ge 1 ]
    [ "$replayed" -ge 5 ]
    [ "$left" -eq 0 ]
  done
}

@test "bench train runs the steps of train, and counts its captures" {
  yes "9 11
12 8
20 23
5 6" | head -n 400 > "$T/lengths"
  bench() { "$TRIREME" bench train --lengths "$T/lengths" --preset tiny --vocab-size 100 --batch-tokens 64 --steps 6 --threads 1 "$@"; }
  run bench --device cuda --precision fp32 --json
  [ "$status" -eq 0 ]
  [[ "$output" =~ "\"graphs\": "([0-9]+) ]]
  [ "${BASH_REMATCH[1]}" -ge 1 ]
  [ "${BASH_REMATCH[1]}" -le 8 ]
  loss=$(sed 's/.*"loss": \([^,]*\).*/\1/' <<< "$output")
  FAKE_GRAPH=0 run bench --device cuda --precision fp32 --json
  [[ "$output" =~ "\"graphs\": 0" && "$output" =~ "\"loss\": $loss," ]]
  if is_sanitized; then return; fi  # bench.bats tests the CPU
  run bench --device cpu --precision fp32
  [ "$status" -eq 0 ]
  [[ "$output" =~ "target tokens/s" && ! "$output" =~ "graphs" ]]
}

@test "a batch that does not fit is refused before training, with the size that fits" {
  FAKE_FREE=2000000000 run say 1 "$T/run" --device cuda --d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens 32768
  [ "$status" -eq 1 ]
  [[ "$output" =~ "with batches of 32768 tokens a side, and the GPU has 2.0 GB free; pass --batch-tokens "([0-9]+)", or auto" ]]
  rows=${BASH_REMATCH[1]}
  [ ! -e "$T/run" ]
  # This batch size fits, and one that is 256 larger does not.
  FAKE_FREE=2000000000 run say 1 "$T/run" --dry-run --device cuda --d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens "$rows"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "memory   fits: " ]]
  FAKE_FREE=2000000000 run say 1 "$T/run" --dry-run --device cuda --d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens $((rows + 256))
  [ "$status" -eq 1 ]  # the error comes after the whole plan, in one line
  [[ "$output" =~ "time     " && ! "$output" =~ "memory   fits: " ]]
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  [[ "${lines[-1]}" =~ ^"trireme: the run does not fit into memory: ".*"pass --batch-tokens $rows, or auto"$ ]]
  # Two ranks on one GPU get half of its memory each.
  if has_mpi; then
    FAKE_FREE=2000000000 run say 2 "$T/run" --device cuda --d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens "$rows"
    [ "$status" -ne 0 ]
    [[ "$output" =~ "the GPU has 1.0 GB free" ]]
    FAKE_FREE=2000000000 run say 2 "$T/run" --dry-run --device cuda --d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens "$rows"
    [ "$status" -eq 1 ]
    [[ "$output" =~ "network  " ]]
    [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
    grep -q '^trireme: rank 0 on .*: the run does not fit into memory: .*, or auto$' <<< "$output"
  fi
  # The model alone does not fit.
  FAKE_FREE=100000000 run say 1 "$T/run" --device cuda
  [ "$status" -eq 1 ]
  [[ "$output" =~ "no batch size fits: use a smaller model" ]]
  FAKE_FREE=100000000 run say 1 "$T/run" --device cuda --batch-tokens auto
  [ "$status" -eq 1 ]
  [[ "$output" =~ "does not fit into" ]]
}

@test "fp8 is refused where no GEMM would use it, and its memory is counted" {
  for small in "--d-model 512 --batch-tokens 4096" "--d-model 1024 --batch-tokens 2048"; do
    run say 1 "$T/none" --device cuda --precision fp8 --dry-run $small
    [ "$status" -eq 2 ]
    [[ "$output" =~ "--precision fp8 needs --d-model 1024 or more" && "$output" =~ "use --precision bf16" ]]
  done
  run say 1 "$T/none" --device cuda --precision fp8 --dry-run --d-model 1024 --batch-tokens 4096
  [ "$status" -eq 0 ]
  [[ "$output" =~ "fp8 operands " ]]
  run "$TRIREME" bench train --preset base --vocab-size 100 --lengths <(echo 5 6) --device cuda --precision fp8 --batch-tokens 4096
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--precision fp8 needs --d-model 1024 or more" ]]
  run "$TRIREME" bench translate --preset big --vocab-size 100 --lengths <(echo 5 6) --device cuda --precision fp8
  [ "$status" -eq 2 ]
  [[ "$output" =~ "bench translate has no --precision fp8" ]]
}

@test "--batch-tokens auto: determined once, written to the config, kept on resume" {
  wide=(--d-model 512 --ffn-dim 2048 --heads 8 --steps 1 --batch-tokens auto)
  FAKE_FREE=2000000000 run say 1 "$T/dry" --dry-run --device cuda "${wide[@]}"
  [[ "$output" =~ "--batch-tokens auto is "([0-9]+)" tokens" ]]
  rows=${BASH_REMATCH[1]}
  [ $((rows % 256)) -eq 0 ]
  [ "$rows" -ge 256 ]
  for device in cpu cuda; do
    run say 1 "$T/$device" --device $device --batch-tokens auto --steps 2
    [ "$status" -eq 0 ]
    [[ "$output" =~ "--batch-tokens auto is "([0-9]+)" tokens: larger batches would leave too few in an epoch" ]]
    rows=${BASH_REMATCH[1]}
    grep -qx "batch-tokens = $rows" "$T/$device/config"
    [[ "$output" =~ "3 x $rows tokens a side in a step" ]]
  done
  # A resumed run keeps its batch size even with less memory, whether --batch-tokens is given
  # again or not.
  FAKE_FREE=700000000 train 1 "$T/cuda" --device cuda --steps 3 --resume --batch-tokens auto
  "$TRIREME" train --quiet --run "$T/cuda" --steps 4 --resume
  grep -qx "batch-tokens = $rows" "$T/cuda/config"
  run say 1 "$T/cuda" --steps 5 --resume --batch-tokens 512
  [ "$status" -eq 2 ]
  [[ "$output" =~ "--batch-tokens is 512 and was $rows" ]]
  for wrong in automatic 1 1G; do
    run say 1 "$T/wrong" --batch-tokens $wrong
    [ "$status" -eq 2 ]
    [[ "$output" =~ "--batch-tokens" ]]
  done
}
