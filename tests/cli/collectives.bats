#!/usr/bin/env bats
# Gradient all-reduce between GPUs, tested without a GPU: a plug-in with fake GPUs that compute on
# the CPU, and a shared-memory transport instead of NCCL. Also bench allreduce.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`
load ../ranks/transport
MODEL+=(--batch-tokens 64)

# bats test_tags=slow
@test "GPU to GPU and through the host: the same sums, sharded or not, in fp32 and bf16, in small buckets and one" {
  need_mpi
  for n in $(fewer '2 3' 2); do
    for way in "" "--shard-optimizer" "--allreduce-dtype bf16" "--shard-optimizer --allreduce-dtype bf16" "--bucket-size 16k" \
      "--bucket-size 1M --shard-optimizer" "--micro-batches 4 --ema-decay 0.9 --shard-optimizer"; do
      name=$n${way//[^a-z0-9]/}
      run say $n "$T/host$name" --steps 6 --clip-norm 0.5 $way --allreduce-transport host
      [ "$status" -eq 0 ] || { echo "$output"; false; }
      [[ "$output" =~ "gradient all-reduce through host memory (as asked)" ]]
      run say $n "$T/nccl$name" --steps 6 --clip-norm 0.5 $way
      [ "$status" -eq 0 ] || { echo "$output"; false; }
      [[ "$output" =~ "gradient all-reduce from GPU to GPU by fake NCCL" ]]
      same_state "$T/host$name" "$T/nccl$name"
    done
    run -1 cmp -s "$T/nccl$n/checkpoints/latest/weights.safetensors" "$T/nccl${n}allreducedtypebf16/checkpoints/latest/weights.safetensors"
  done
  # The run is resumed with the other transport.
  run say 2 "$T/host2" --resume --steps 9 --allreduce-transport nccl
  [ "$status" -eq 0 ]
  run say 2 "$T/nccl2" --resume --steps 9 --allreduce-transport host
  [ "$status" -eq 0 ]
  same_state "$T/host2" "$T/nccl2"
}

@test "one rank uses NCCL only where that is asked for, and the bits are the same" {
  run say 1 "$T/plain" --steps 5
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "GPU to GPU" ]]
  run say 1 "$T/nccl" --steps 5 --allreduce-transport nccl --shard-optimizer
  [ "$status" -eq 0 ]
  [[ "$output" =~ "all-reduce from GPU to GPU" ]]
  same_state "$T/plain" "$T/nccl"
}

@test "auto prints why it uses the host; nccl that is not available is an error with a remedy" {
  need_mpi
  # refuse NAME [OPTION…]: starts a dry run with nccl. These runs are parallel, because mpirun waits a
  # second or more after an error.
  refuse() {
    local name=$1
    shift
    { say 2 "$T/dry" --dry-run "$@" --allreduce-transport nccl > "$T/said-$name" || echo $? > "$T/status-$name"; } 3>&- &
  }
  # refused NAME TEXT: the run has ended with this error.
  refused() {
    status=$(cat "$T/status-$1") output=$(cat "$T/said-$1")
    [ "$status" -ne 0 ]
    one_error "$2"
  }
  # uses_host TEXT [OPTION…]: without nccl the run uses the host, with this reason.
  uses_host() {
    local text=$1
    shift
    run say 2 "$T/dry" --dry-run "$@"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    grep -q "^ranks .*gradient all-reduce through host memory ($text" <<< "$output" || { echo "$output"; return 1; }
  }
  FAKE_GPUS=1 refuse shared
  refuse reproducible --reproducible
  FAKE_COMM_MISSING=1 refuse one
  FAKE_COMM_MISSING='' refuse all
  refuse cpu --device cpu
  FAKE_GPUS=1 uses_host 'ranks 0 and 1 share a GPU'
  uses_host '--reproducible adds in the order' --reproducible
  FAKE_COMM_MISSING=1 uses_host 'NCCL was not found on rank 1 '
  FAKE_COMM_MISSING='' uses_host 'NCCL was not found on rank 0 '
  wait
  nccl='allreduce-transport nccl is not available:'
  refused shared "$nccl ranks 0 and 1 share a GPU.*one rank per GPU"
  refused reproducible "$nccl --reproducible adds in the order.*leave --reproducible out"
  refused one "$nccl NCCL was not found on rank 1 .*install libnccl2"
  refused all "$nccl NCCL was not found on rank 0 .*disabled by FAKE_COMM_MISSING; install libnccl2"
  refused cpu 'rank 0 has no GPU; pass --device cuda'
  run say 2 "$T/dry" --dry-run --device cpu
  [ "$status" -eq 0 ]
  [[ ! "$output" =~ "through host memory" ]]
  run "$TRIREME" train --data "$SET" --run "$T/dry" --allreduce-transport mpi
  [ "$status" -eq 2 ]
}

@test "a dry run's traffic: gradients in the dtype of the all-reduce both ways, a sharded optimizer's weights in fp32" {
  need_mpi
  # traffic PER_MILLE [OPTION…]: checks the bytes that each of two ranks sends, in 1/1000 of an
  # fp32 gradient.
  traffic() {
    local share=$1 of
    shift
    run say 2 "$T/dry" --dry-run --device cpu "$@"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    [[ "$output" =~ ", gradients "([0-9]+)" kB," ]] || return 1
    of=${BASH_REMATCH[1]}
    [[ "$output" =~ "network  each rank sends and receives "([0-9]+)" kB in a step" ]] || return 1
    echo "$* sends ${BASH_REMATCH[1]} kB, of $of"
    [ $((1000 * BASH_REMATCH[1] - share * of)) -le 1000 ]
    [ $((share * of - 1000 * BASH_REMATCH[1])) -le 1000 ]
  }
  traffic 1000
  [[ ! "$output" =~ bf16 ]]
  traffic 1000 --shard-optimizer
  traffic 500 --allreduce-dtype bf16
  grep -q '^ranks .*, gradients all-reduced in bf16' <<< "$output"
  traffic 750 --allreduce-dtype bf16 --shard-optimizer
  grep -q '^ranks .*, gradients all-reduced in bf16, optimizer state sharded' <<< "$output"
  traffic 1500 --reproducible  # three micro-batches on two ranks are two rounds
  traffic 1000 --reproducible --allreduce-dtype bf16 --shard-optimizer
}

# waits STEPS [OPTION…]: prints how often a rank of two waits for its device in a run of so many steps.
waits() {
  local steps=$1
  shift
  FAKE_WAITS=$T/waits say 2 "$T/waits$steps" --steps "$steps" "$@" > /dev/null && cat "$T/waits"
}

@test "GPU to GPU: losses and norm stay on the device, and the host waits once in a step" {
  need_mpi
  for way in "" "--shard-optimizer"; do
    few=$(waits 4 $way)
    many=$(waits 14 $way)
    [ $((many - few)) -eq 10 ]
    rm -r "$T"/waits*
  done
}

@test "GPU to GPU: steps captured in parts between the collectives give the bits of the host and of steps without graphs" {
  need_mpi
  ways=("" "--bucket-size 16k --micro-batches 2" "--micro-batches 5 --overlap no" "--ema-decay 0.9 --optimizer adamw --loss-scale dynamic --bucket-size 64k"
    "--shard-optimizer --ema-decay 0.9 --loss-scale dynamic --bucket-size 32k --micro-batches 2")
  if is_sanitized; then ways=("${ways[1]}" "${ways[4]}"); fi
  for way in "${ways[@]}"; do
    name=${way//[^a-z0-9]/}
    export TRIREME_FAULT=nan:13:1  # with dynamic loss scaling the update is skipped, otherwise the run goes back
    say 2 "$T/host$name" --steps 30 --save-every 10 --clip-norm 0.5 $way --allreduce-transport host > "$T/said" || { cat "$T/said"; false; }
    FAKE_GRAPH=0 FAKE_GRAPHS="$T/none" say 2 "$T/plain$name" --steps 30 --save-every 10 --clip-norm 0.5 $way > "$T/said" || { cat "$T/said"; false; }
    FAKE_GRAPHS="$T/some" say 2 "$T/graph$name" --steps 30 --save-every 10 --clip-norm 0.5 $way > "$T/said" || { cat "$T/said"; false; }
    for run in plain graph; do
      same_state "$T/host$name" "$T/$run$name"
      for field in loss grad_norm skipped; do cmp <(figures $field "$T/host$name") <(figures $field "$T/$run$name"); done
    done
    [ "$(cat "$T/none")" = "0 0 0" ]
    read -r made replayed left < "$T/some"
    echo "$way: $made captured, $replayed launched, $left left"
    [ "$made" -ge 3 ]        # before and after the sum of losses, and the update
    [ "$replayed" -ge 60 ]   # 20 of 30 steps
    [ "$left" -eq 0 ]
  done
}

@test "GPU to GPU: all ranks stop at the same step, by --patience, --max-time and after a signal" {
  need_mpi
  "$TRIREME" prepare --quiet --train "$SET"/test.{src,ref} --valid <(head -n 9 "$SET/valid.src") <(head -n 9 "$SET/valid.ref") \
    --tokenizer "$SET/tokenizer.model" --out "$T/few" > /dev/null
  for way in host nccl; do
    say 2 "$T/patience-$way" --data "$T/few" --steps 60 --valid-every 3 --patience 1 --lr 1e-9 --allreduce-transport $way > "$T/said" || { cat "$T/said"; false; }
    [ "$(last_step "$T/patience-$way")" -lt 60 ]
  done
  same_state "$T/patience-host" "$T/patience-nccl"
  say 2 "$T/time" --steps 100000000 --max-time 2s > "$T/said" || { cat "$T/said"; false; }
  [ -f "$T/time/checkpoints/latest/weights.safetensors" ]
  say 2 "$T/signal" --steps 100000000 > "$T/said" &
  until_there "$T/signal/metrics.jsonl"
  for pid in $(pgrep -f "^$TRIREME train .*--run $T/signal( |\$)"); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=1"; then kill -INT "$pid"; fi
  done
  code=0
  wait $! || code=$?
  cat "$T/said"
  [ $code -eq 3 ]  # stopped
  grep -q "^stopped at step" "$T/said"
  [ -f "$T/signal/checkpoints/latest/weights.safetensors" ]
}

@test "GPU to GPU: after the first step nothing is allocated" {
  need_mpi
  run say 2 "$T/two" --steps 12 --shard-optimizer --system-metrics no
  [ "$(figures allocations "$T/two" | tail -n +2 | sort -u)" = 0 ]
}

# rows: checks the members of every row in the JSON of a bench; prints the sizes.
rows() {
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>); $n = $j->{ranks}; print "$j->{way} $n\n";
    for (@{$j->{sizes}}) {
      die "no time" unless $_->{us} > 0 && $_->{times} > 0;
      die "sum" unless abs($_->{sum_gb_s} * $_->{us} * 1e3 / $_->{bytes} - 1) < 1e-3;
      die "bus" unless abs($_->{bus_gb_s} - $_->{sum_gb_s} * 2 * ($n - 1) / $n) <= 1e-3 * $_->{sum_gb_s};
      print "$_->{bytes}\n" }'
}

@test "bench allreduce on the CPU: right sums, times, bandwidths" {
  need_mpi
  run bash -c 'mpirun -n 2 "$TRIREME" bench allreduce --device cpu --max-bytes 256k --time 0.3s --json --quiet 2> /dev/null'
  [ "$status" -eq 0 ]
  [ "$(rows <<< "$output")" = "$(printf 'host 2\n4096\n16384\n65536\n262144')" ]
  run mpirun -n 3 "$TRIREME" bench allreduce --device cpu --max-bytes 16k --time 0.1s
  [ "$status" -eq 0 ]
  [ "$(grep -c 'kB' <<< "$output")" -eq 2 ]
  [[ "$output" =~ "3 ranks on 1 host" && "$output" =~ "bus (GB/s)" ]]
}

@test "bench allreduce with one rank prints that nothing is sent" {
  run "$TRIREME" bench allreduce --device cpu --max-bytes 16k --time 0.05s
  [ "$status" -eq 0 ]
  [[ "$output" =~ "One rank: nothing is sent" ]]
  [ "$("$TRIREME" bench allreduce --device cpu --max-bytes 4k --time 0.05s --json | rows)" = "$(printf 'host 1\n4096')" ]
}

@test "bench allreduce uses the transports of training" {
  need_mpi
  json() { mpirun -n 2 "$TRIREME" bench allreduce --device cuda --max-bytes 64k --time 0.2s --json --quiet "$@" 2> /dev/null | rows; }
  [ "$(json | head -n 1)" = "nccl 2" ]
  [ "$(json --allreduce-transport host | head -n 1)" = "host, from a GPU 2" ]
  run "$TRIREME" bench allreduce --device cpu --allreduce-transport nccl
  [ "$status" -eq 2 ]
  [[ "$output" =~ "rank 0 has no GPU" ]]
  run "$TRIREME" bench allreduces
  [ "$status" -eq 2 ]
  [[ "$output" =~ "allreduce" ]]
}

@test "without overlap the weights are the same, and the exposed communication is printed and recorded" {
  need_mpi
  for way in "" "--shard-optimizer"; do
    # shellcheck disable=SC2086
    train 2 "$T/yes" --steps 4 --bucket-size 16k $way
    # shellcheck disable=SC2086
    run mpirun -n 2 "$TRIREME" train --data "$SET" --run "$T/no" "${MODEL[@]}" --steps 4 --bucket-size 16k --overlap no $way
    [ "$status" -eq 0 ]
    [[ "$output" =~ "step 4  loss "[^$'\n']*" comm "[0-9]+" ms exposed  " ]]
    same_state "$T/yes" "$T/no"
    [ "$(figures comm_wait_ms "$T/no" | wc -l)" -eq 4 ]
    rm -r "$T/yes" "$T/no"
  done
}
