#!/bin/bash
# Trains models whose output layer and loss are one operation (Backend.linear_loss: Hopper, bf16, from 2^23
# logits on): with CUDA graphs and without, with several micro-batches, stopped and resumed, on two ranks,
# and compared with fp32, which has no such operation. Exit status 77: no NVIDIA GPU. Requires the program
# and its plug-ins in $BUILD (default build).
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support.bash"

set=$T/set
"$trireme" prepare --quiet --recipe demo --demo-pairs 20000 --vocab-size 2048 --out "$set" > /dev/null || exit 1
model=(--preset tiny --d-model 512 --ffn-dim 512 --heads 8 --encoder-layers 1 --decoder-layers 1 --batch-tokens 8192
  --seed 1 --lr-scheduler constant --lr 5e-4 --warmup-steps 10 --clip-norm 1 --valid-every 0 --average-checkpoints 0
  --save-every 100000 --log-every 1 --device cuda)
train() {
  local run=$1
  shift
  "$trireme" train --quiet --data "$set" --run "$T/$run" "${model[@]}" "$@"
}
need_gpu train none --dry-run

# The timed parts of a step have no line for the loss where it is part of the GEMM.
fused() {
  local i said
  for i in $(seq 4000); do echo "$((i * 7 % 37 + 3)) $((i * 11 % 41 + 3))"; done > "$T/lengths"
  said=$("$trireme" bench train --lengths "$T/lengths" --preset base --vocab-size 2048 --batch-tokens 8192 --steps 3 \
    --device cuda --precision bf16 --json) || return 1
  echo "$said"
  [[ "$said" == *'"GEMMs forward"'* && "$said" != *'"loss", "calls"'* ]]
}
if [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1)" = 9.0 ]; then
  check 'the loss is part of the GEMM' fused
else
  leave_out 'whether the loss is part of the GEMM, as this GPU is not Hopper'
fi

for micro in 1 3; do
  way=(--precision bf16 --micro-batches $micro --steps 24)
  graphs() {
    train "graphs$micro" "${way[@]}" && TRIREME_GRAPH=0 train "plain$micro" "${way[@]}" &&
      same "graphs$micro" "plain$micro" && cmp <(figures loss "graphs$micro") <(figures loss "plain$micro")
  }
  check "$micro micro-batches: CUDA graphs give the bits of steps without" graphs
  full() { train "full$micro" "${way[@]}" --precision fp32 && near "graphs$micro" "full$micro" 0.02; }
  check "$micro micro-batches: about the losses of fp32" full
done
resumed() { train halves --precision bf16 --micro-batches 3 --steps 11 && train halves --precision bf16 --micro-batches 3 --steps 24 --resume && same halves graphs3; }
check 'stopped and resumed: the same bits' resumed
if command -v mpirun > /dev/null && [ -f "$build/libtrireme-mpi.so" ]; then
  ranks() {
    local way=(--precision bf16 --micro-batches 4 --steps 12 --reproducible)
    train one "${way[@]}" && mpirun -n 2 "$trireme" train --quiet --data "$set" --run "$T/two" "${model[@]}" "${way[@]}" && same two one
  }
  check '2 ranks, reproducible: the bits of one' ranks
else
  leave_out 'ranks, as MPI is not installed'
fi
finish
