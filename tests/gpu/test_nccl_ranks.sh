#!/bin/bash
# Trains with nccl.c on 1, 2, 4 and 8 ranks of one GPU, through the stand-in for NCCL
# (nccl_stand_in.c): the weights have the bits of the sum through the host, which adds in the same
# order; a rank that is killed in a collective ends all, and is named. Exit status 77: cannot run
# here. Depends on the program, plug-ins and GPU test programs in $BUILD (build).
#   test_nccl_ranks.sh [RANKS…]   only these numbers of ranks
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support.bash"
stand_in=$build/tests/gpu/stand-in
export NCCL_STAND_IN_DIR=$T
export ONE_GPU_PLUGIN=$build/libtrireme-cuda.so TRIREME_PLUGIN_PATH=$stand_in:$build
export LD_LIBRARY_PATH=$stand_in${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
counts=("$@")
[ $# -gt 0 ] || counts=(1 2 4 8)

model=(--preset tiny --d-model 128 --ffn-dim 256 --heads 2 --encoder-layers 1 --decoder-layers 1
  --batch-tokens 512 --micro-batches 8 --seed 1 --lr-scheduler constant --lr 5e-4 --warmup-steps 10 --clip-norm 1
  --valid-every 0 --average-checkpoints 0 --save-every 100000 --log-every 1 --device cuda --rank-timeout 10s)

under=()  # a command that runs each rank
# ranks N RUN [OPTION…]: trains on N ranks. A rank's death is hidden from mpirun, which would end the
# other ranks before they can name it.
ranks() {
  local n=$1 run=$2
  shift 2
  local command=("$root/tests/ranks/outlive" timeout -k 5 100 "${under[@]}" "$trireme" train --data "$T/set" --run "$T/$run" "${model[@]}" "$@")
  if [ "$n" -eq 1 ]; then "${command[@]}"; else mpirun -n "$n" "${command[@]}"; fi
}

"$trireme" prepare --quiet --recipe demo --demo-pairs 5000 --vocab-size 1000 --out "$T/set" > /dev/null || exit 1
# The first run also times GEMM algorithms, which all others use.
need_gpu ranks 1 one --steps 3
if ! command -v mpirun > /dev/null || [ ! -f "$build/libtrireme-mpi.so" ]; then
  leave_out 'several ranks, as MPI is not installed'
  counts=(1)
fi

# The tests of one rank, with streams, events and aborts, on the stand-in too.
one_process() { ONE_GPU_PLUGIN='' TRIREME_PLUGIN_PATH=$build "$build/tests/gpu/test_nccl"; }

# compare N NAME [OPTION…]: trains through NCCL and through the host
compare() {
  local n=$1 name=$2
  shift 2
  NCCL_STAND_IN_CALLS=$T/calls$name ranks "$n" "nccl$name" --steps 8 --allreduce-transport nccl "$@" > "$T/log" 2>&1 || {
    cat "$T/log"
    return 1
  }
  cat "$T/log"
  grep -q 'gradient all-reduce from GPU to GPU by NCCL 2.99.0' "$T/log" || return 1
  ranks "$n" "host$name" --steps 8 --allreduce-transport host "$@" && same "nccl$name" "host$name"
}

# graphs N NAME [OPTION…]: trains with and without graphs; buckets are reduced between the parts of a graph
graphs() {
  local n=$1 name=$2
  shift 2
  local way=(--steps 60 --micro-batches "$((n > 2 ? n : 3))" --bucket-size 256k --allreduce-transport nccl --loss-scale dynamic --ema-decay 0.9 "$@")
  TRIREME_FAULT=nan:50:0 ranks "$n" "graphs$name" "${way[@]}" &&
    TRIREME_FAULT=nan:50:0 TRIREME_GRAPH=0 ranks "$n" "plain$name" "${way[@]}" && same "graphs$name" "plain$name"
}

# parts N: a run that ends and is resumed has the bits of one that does not; checkpoints have whole weights
parts() {
  local way=(--precision bf16 --shard-optimizer --ema-decay 0.9 --allreduce-transport nccl)
  ranks "$1" "parts$1" --steps 3 "${way[@]}" && ranks "$1" "parts$1" --steps 8 --resume && same "parts$1" "ncclhalf$1"
}

# occupied: collectives that occupy 16 SMs beside the kernels do not change the weights
occupied() {
  local way=(--d-model 512 --ffn-dim 2048 --heads 8 --batch-tokens 8192 --precision bf16 --steps 20 --bucket-size 256k --allreduce-transport nccl)
  ranks 1 free "${way[@]}" &&
    NCCL_STAND_IN_CALLS=$T/occupied.calls NCCL_STAND_IN_OCCUPY=16:50:20 ranks 1 occupied "${way[@]}" &&
    grep -q ' occupied [1-9][0-9][0-9]' "$T/occupied.calls" && same free occupied
}

# reserved: with --reserve-sms the algorithms of dgrad and wgrad, and no others, are chosen for fewer SMs
reserved() {
  XDG_CACHE_HOME=$T/reserved ranks 1 reserved --steps 3 --precision bf16 --allreduce-transport nccl --nccl-ctas 4 --reserve-sms yes || return 1
  cat "$T"/reserved/trireme/products-*.txt  # field 1 is the kind, 0 for forward; field 10 the SMs, 0 for all
  awk 'NR > 1 { if (($1 == 0) != ($10 == 0)) wrong++; limited += $10 > 0 } END { exit wrong || !limited }' "$T"/reserved/trireme/products-*.txt
}

# used N NAME COLLECTIVE…: every rank called each of these collectives more often than the self-test does
used() {
  local ranks=$1 most=$((2 * $1)) name=$2 what
  shift 2
  cat "$T/calls$name"
  for what in "$@"; do
    awk -v what="$what" -v most="$most" -v ranks="$ranks" \
      '{ for (i = 1; i < NF; i++) if ($i == what && $(i + 1) > most) n++ } END { exit n != ranks || NR != ranks }' "$T/calls$name" || return 1
  done
}

# killed N RANK COLLECTIVE:CALL [OPTION…]: the rank is killed in this call; the others end and name it
killed() {
  local n=$1 rank=$2 where=$3 code=0
  shift 3
  NCCL_STAND_IN_DIE=$where:$rank ranks "$n" "killed" --steps 100000 --quiet --allreduce-transport nccl "$@" > "$T/log" 2>&1 || code=$?
  rm -rf "$T/killed"
  cat "$T/log"
  echo "exit status $code"
  [ $code -ne 0 ] && [ $code -ne 124 ] && [ "$(grep -c '^trireme: ' "$T/log")" -eq 1 ] &&
    grep -q "^trireme: .*rank $rank on .*: process [0-9]* died" "$T/log"
}

# sanitized N NAME [OPTION…]: no rank uses memory wrongly, in steps with and without graphs
sanitized() {
  local n=$1 name=$2
  shift 2
  local under=("$sanitizer" --tool memcheck --error-exitcode 9)
  ranks "$n" "sanitized$name" --quiet --steps 3 --allreduce-transport nccl --micro-batches "$n" "$@"
}
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)

if [ "${counts[0]}" -eq 1 ]; then
  check 'one process, with the stand-in' one_process
  check 'collectives that occupy SMs, the same bits' occupied
  check 'GEMMs of the backward pass leave SMs free' reserved
fi
for n in "${counts[@]}"; do
  check "$n ranks: streams, buckets, pieces and an abort" env TRIREME_PLUGIN_PATH="$build" "$build/tests/nccl_ranks" "$n"
  equal="--shard-optimizer --bucket-size $((16 * n))k"  # buckets of one unit (16 kB) for each rank
  check "$n ranks: all-reduce in many buckets, the bits of the host" compare "$n" "$n" --bucket-size 32k
  check "$n ranks: steps as graphs, the bits of steps without" graphs "$n" "$n"
  check "$n ranks: sharded steps as graphs, the bits of steps without" graphs "$n" "shard$n" --shard-optimizer --precision bf16
  check "$n ranks: a sharded optimizer, the bits of the host" compare "$n" "equal$n" $equal
  check "$n ranks: reduce-scatter and all-gather were used" used "$n" "equal$n" reduce-scatter all-gather
  check "$n ranks: a sharded optimizer whose weights are gathered in bf16, the bits of the host" \
    compare "$n" "half$n" --precision bf16 --shard-optimizer --ema-decay 0.9
  check "$n ranks: a sharded run in two parts, the bits of one" parts "$n"
  # One rank alone rounds its gradients to bf16 through NCCL, but not through the host.
  [ "$n" -gt 1 ] || continue
  check "$n ranks: a sharded optimizer in bf16, the bits of the host" \
    compare "$n" "narrow$n" --shard-optimizer --allreduce-dtype bf16 --ema-decay 0.9
  check "$n ranks: reduce and broadcast were used" used "$n" "narrow$n" reduce broadcast
  check "$n ranks: one is killed in an all-reduce" killed "$n" $((n - 1)) all-reduce:6
  check "$n ranks: one is killed in an all-reduce between graphs" killed "$n" 0 all-reduce:90 --micro-batches "$n"
  check "$n ranks: one is killed in a reduce-scatter" killed "$n" 1 reduce-scatter:20 $equal
  check "$n ranks: one is killed in an all-gather" killed "$n" 0 all-gather:20 $equal
  # The self-test calls reduce once for each rank, broadcast twice and all-reduce twice; these are steps.
  check "$n ranks: one is killed in a reduce" killed "$n" 1 reduce:$((n + 3)) --shard-optimizer
  check "$n ranks: one is killed in a broadcast" killed "$n" $((n / 2)) broadcast:$((2 * n + 3)) --shard-optimizer
  check "$n ranks: one is killed in the sum of squares" killed "$n" 0 all-reduce:4 $equal
  if [ "$n" -eq 2 ]; then
    check "$n ranks: one is killed in a sum of squares between graphs" killed "$n" 1 all-reduce:80 $equal --micro-batches "$n"
    check "$n ranks: one is killed in an all-gather in bf16" killed "$n" 1 all-gather:20 $equal --precision bf16
  fi
  if [ "$n" -eq 2 ] && [ -n "$sanitizer" ]; then
    check "$n ranks: memcheck" sanitized "$n" "$n" --bucket-size 256k
    check "$n ranks: memcheck, sharded" sanitized "$n" "narrow$n" --shard-optimizer --allreduce-dtype bf16 --precision bf16
    check "$n ranks: memcheck, sharded in equal pieces" sanitized "$n" "equal$n" --shard-optimizer --precision bf16 --bucket-size $((64 * n))k
  fi
done
finish
