#!/bin/bash
# Trains on two ranks, one on the CPU and one on the GPU of this machine: the losses differ from
# those of one process on the CPU by at most a thousandth (with bf16 gradients a hundredth). Rank
# 0 is on the CPU and on the GPU in turn; gradients in one bucket and in several; with a sharded
# optimizer. Exit status 77: cannot run here. Depends on the program and plug-ins in $BUILD
# (build).
set -u
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=$(cd "$root" && cd "${BUILD:-build}" && pwd) || exit 1
trireme=$build/trireme
export TRIREME_PLUGIN_PATH=${TRIREME_PLUGIN_PATH:-$build} TRIREME_RECIPES=${TRIREME_RECIPES:-$root/recipes}
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if ! command -v mpirun > /dev/null || [ ! -f "$build/libtrireme-mpi.so" ]; then
  echo 'left out: ranks on the CPU and a GPU, as MPI is not installed'
  exit 0
fi
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export XDG_CACHE_HOME=$T/cache
failed=0

model=(--preset tiny --d-model 64 --ffn-dim 128 --heads 2 --encoder-layers 2 --decoder-layers 2
  --batch-tokens 512 --micro-batches 4 --seed 1 --lr-scheduler constant --lr 5e-4 --warmup-steps 10 --clip-norm 1
  --valid-every 0 --average-checkpoints 0 --save-every 100000 --log-every 1 --steps 20)

"$trireme" prepare --quiet --recipe demo --demo-pairs 5000 --vocab-size 1000 --out "$T/set" > /dev/null || exit 1
if ! "$trireme" train --quiet --data "$T/set" --run "$T/none" "${model[@]}" --device cuda --dry-run > "$T/said" 2>&1; then
  cat "$T/said"
  [ -e /dev/nvidiactl ] && exit 1
  echo 'cannot run: this machine has no NVIDIA GPU'
  exit 77
fi

# losses RUN: prints the losses of its 20 steps
losses() { sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$T/$1/metrics.jsonl"; }

# near MOST A B: the 20 losses of A and B differ by at most the fraction MOST
near() {
  paste <(losses "$2") <(losses "$3") | awk -v most="$1" '
    { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d <= most * $2)) { print "step " NR ": " $0; bad = 1 } }
    END { if (NR != 20) print NR " losses, not 20"; exit bad || NR != 20 }'
}

# check MOST NAME FIRST SECOND [OPTION…]: trains with rank 0 on device FIRST and rank 1 on SECOND
check() {
  local most=$1 name=$2 first=$3 second=$4 code=0
  shift 4
  local both=("$trireme" train --quiet --data "$T/set" --run "$T/$name" "${model[@]}" "$@")
  timeout 300 mpirun -n 1 "${both[@]}" --device "$first" : -n 1 "${both[@]}" --device "$second" > "$T/said" 2>&1 || code=$?
  if [ $code -eq 0 ] && near "$most" "$name" cpu >> "$T/said"; then
    echo "ok      $name: rank 0 on $first, rank 1 on $second ${*:-}"
  else
    echo "FAILED  $name: rank 0 on $first, rank 1 on $second ${*:-}; exit status $code"
    sed 's/^/        /' "$T/said" | tail -n 30
    failed=$((failed + 1))
  fi
}

"$trireme" train --quiet --data "$T/set" --run "$T/cpu" "${model[@]}" --device cpu > "$T/said" 2>&1 || {
  cat "$T/said"
  exit 1
}
check 1e-3 mixed cpu cuda
check 1e-3 turned cuda cpu
check 1e-3 buckets cpu cuda --bucket-size 16k
check 1e-3 sharded cuda cpu --bucket-size 16k --shard-optimizer
check 1e-2 bf16 cpu cuda --allreduce-dtype bf16
[ "$failed" -eq 0 ]
