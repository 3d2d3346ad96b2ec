#!/bin/bash
# Trains small models on the GPU of this machine and compares: with the CPU, with a second run
# (the weights must be bit-identical), with runs that change the device at --resume, with several
# ranks, with every precision, with CUDA graphs disabled.
#   test_train_gpu.sh [STEPS [DATA]]
#     STEPS  number of steps in the comparison of precisions (default 200; 2000 is a stronger test)
#     DATA   a prepared data set, or a directory with the files of Multi30k (default: the demo data)
# Exits with status 77 if the machine has no NVIDIA GPU. Requires the program and its plug-ins in
# $BUILD (default build).
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support.bash"
steps=${1:-${GPU_STEPS:-200}} data=${2:-${GPU_DATA:-}}

model=(--preset tiny --d-model 128 --ffn-dim 256 --heads 2 --encoder-layers 2 --decoder-layers 2
  --batch-tokens 512 --micro-batches 4 --seed 1 --lr-scheduler constant --lr 5e-4 --warmup-steps 100 --clip-norm 1
  --valid-every 0 --average-checkpoints 0 --save-every 100000 --log-every 10)

# train RUN [OPTION…]: trains in one process
train() {
  local run=$1
  shift
  "$trireme" train --quiet --data "$set" --run "$T/$run" "${model[@]}" "$@"
}

# ranks N RUN [OPTION…]: trains on N ranks
ranks() {
  local n=$1 run=$2
  shift 2
  mpirun -n "$n" "$trireme" train --quiet --data "$set" --run "$T/$run" "${model[@]}" "$@"
}

# The data: the given set, or generated sentences.
set=$T/set
if [ -n "$data" ] && [ -f "$data/dataset.json" ]; then
  set=$data
elif [ -n "$data" ]; then
  "$trireme" prepare --quiet --recipe multi30k-en-de --source-dir "$data" --vocab-size 8000 --out "$set" > /dev/null || exit 1
else
  "$trireme" prepare --quiet --recipe demo --demo-pairs 20000 --vocab-size 2000 --out "$set" > /dev/null || exit 1
fi

need_gpu train none --dry-run --device cuda

# One GPU compared with the CPU. The first run also times GEMM algorithms.
check 'a training on the GPU' train gpu --device cuda --steps 200
check 'a training on the CPU' train cpu --device cpu --steps 200
check 'their losses agree to 1e-4' near gpu cpu 1e-4
again() { train third --device cuda --steps 200 && same gpu third; }
check 'two runs on the GPU, GEMM algorithms timed and cached: the same bits' again

to_and_fro() {
  train parts --device cuda --steps 70 && train parts --device cpu --steps 140 --resume &&
    train parts --device cuda --steps 200 --resume && near parts gpu 1e-4
}
check 'saved on the GPU, resumed on the CPU and back' to_and_fro
stopped() { train stopped --device cuda --steps 90 && train stopped --device cuda --steps 200 --resume && same stopped third; }
check 'stopped and resumed on the GPU: the same bits' stopped
scaled() { train scaled --device cuda --steps 200 --loss-scale dynamic && near scaled gpu 1e-4; }
check 'a scaled loss changes nothing in fp32' scaled

# With NCCL and one rank, whose sum is its own gradient.
if train none --dry-run --device cuda --allreduce-transport nccl > "$T/said" 2>&1; then
  train_nccl() { train nccl --device cuda --steps 200 --allreduce-transport nccl --bucket-size 64k && same nccl third; }
  check 'one rank through NCCL: the same bits' train_nccl
  pieces() { train pieces --device cuda --steps 200 --allreduce-transport nccl --bucket-size 64k --shard-optimizer && same pieces third; }
  check 'one rank through NCCL, a sharded optimiser: the same bits' pieces
  narrow() { train narrow --device cuda --steps 200 --allreduce-transport nccl --allreduce-dtype bf16 && near narrow gpu 0.02; }
  check 'one rank through NCCL in bf16: about the losses' narrow
else
  leave_out "NCCL: $(tail -n 1 "$T/said")"
fi

# Steps as CUDA graphs: a step of one micro-batch is one graph; otherwise each micro-batch is a
# graph, and the update another.
for precision in fp32 bf16 fp16; do
  for micro in 1 3; do
    way=(--device cuda --precision $precision --micro-batches $micro --ema-decay 0.9 --steps 50)
    with_graphs() {
      train "graphs$precision$micro" "${way[@]}" && TRIREME_GRAPH=0 train "plain$precision$micro" "${way[@]}" &&
        same "graphs$precision$micro" "plain$precision$micro" &&
        cmp <(figures loss "graphs$precision$micro") <(figures loss "plain$precision$micro")
    }
    check "$precision, $micro micro-batches: CUDA graphs give the bits of steps without" with_graphs
    halves() {
      train "halves$precision$micro" "${way[@]}" --steps 23 && train "halves$precision$micro" "${way[@]}" --resume &&
        same "halves$precision$micro" "graphs$precision$micro"
    }
    check "$precision, $micro micro-batches: stopped and resumed, the same bits" halves
  done
done
# A NaN gradient halves the loss scale, which needs another graph.
spoilt() {
  local way=(--device cuda --precision fp16 --micro-batches 1 --steps 40)
  TRIREME_FAULT=nan:7:0,nan:20:0 train spoilt "${way[@]}" &&
    TRIREME_FAULT=nan:7:0,nan:20:0 TRIREME_GRAPH=0 train spoilt-asked "${way[@]}" && same spoilt spoilt-asked &&
    [ "$(figures skipped spoilt | awk '{ n += $1 } END { print n + 0 }')" -ge 2 ]
}
check 'fp16, NaN gradients: the same bits with and without CUDA graphs' spoilt
# Validations in between use the same memory with other shapes.
valid() {
  local way=(--device cuda --precision bf16 --micro-batches 1 --steps 40 --valid-every 10)
  train valid "${way[@]}" && TRIREME_GRAPH=0 train valid-asked "${way[@]}" && same valid valid-asked
}
check 'validations in between: the same bits with and without CUDA graphs' valid
sgd() {
  local way=(--device cuda --precision bf16 --micro-batches 1 --steps 40 --optimizer sgd --lr 0.1)
  train sgd "${way[@]}" && TRIREME_GRAPH=0 train sgd-asked "${way[@]}" &&
    cmp "$T/sgd/checkpoints/latest/weights.safetensors" "$T/sgd-asked/checkpoints/latest/weights.safetensors"
}
check 'sgd: the same bits with and without CUDA graphs' sgd
# Gradient norm on the host and on the device; NovoGrad and a sharded optimizer compute it on the
# host.
hosts() { train sharded --device cuda --steps 60 --shard-optimizer && train unsharded --device cuda --steps 60 && same sharded unsharded; }
check 'norm and clipping by the host and by the device: the same bits' hosts
check 'novograd' train novograd --device cuda --steps 20 --optimizer novograd
count() {
  local i said
  for i in $(seq 2000); do echo "$((i * 7 % 37 + 3)) $((i * 11 % 41 + 3))"; done > "$T/lengths"
  said=$("$trireme" bench train --lengths "$T/lengths" --preset tiny --vocab-size 1000 --batch-tokens 4096 --steps 60 \
    --device cuda --precision bf16 --json) || return 1
  echo "$said"
  [[ "$said" =~ \"graphs\":\ ([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 1 ] && [ "${BASH_REMATCH[1]}" -le 8 ]
}
check 'few graphs for many batches' count

# Several ranks on one GPU; gradients are reduced through host memory.
if command -v mpirun > /dev/null && [ -f "$build/libtrireme-mpi.so" ]; then
  one() { train one --device cuda --steps 60 --reproducible; }
  check '1 rank, reproducible' one
  for n in 2 4; do
    some() { ranks $n "ranks$n" --device cuda --steps 60 && near "ranks$n" one 1e-4; }
    check "$n ranks on one GPU: the losses of one" some
    bits() { ranks $n "same$n" --device cuda --steps 60 --reproducible && same "same$n" one; }
    check "$n ranks on one GPU, reproducible: the bits of one" bits
    shard() { ranks $n "shard$n" --device cuda --steps 60 --reproducible --shard-optimizer && same "shard$n" one; }
    check "$n ranks on one GPU, a sharded optimiser: the bits of one" shard
  done
else
  leave_out 'ranks, as MPI is not installed'
fi

# Precisions: compares the mean loss of the last tenth of the steps.
last=$((steps / 100 > 0 ? steps / 100 : 1))
check "fp32, $steps steps" train fp32 --device cuda --steps "$steps"
for precision in tf32 bf16 fp16; do
  check "$precision, $steps steps" train $precision --device cuda --precision $precision --steps "$steps"
  check "$precision within 1 % of fp32 after $steps steps" near $precision fp32 0.01 "$last"
done
scale() {
  figures loss_scale fp16 | tail -n 1
  [ "$(figures skipped fp16 | awk '{ n += $1 } END { print n + 0 }')" -le $((steps / 20)) ] &&
    [ "$(figures loss_scale fp16 | tail -n 1 | awk '{ print ($1 >= 16) }')" -eq 1 ] &&
    [ "$(figures loss_scale bf16 | sort -u)" = 1.0 ]
}
check 'fp16 found a scale, and few steps were left out' scale

# fp8, with GEMMs that are large enough for it, compared with bf16.
wide=(--d-model 1024 --ffn-dim 2048 --heads 16 --batch-tokens 4096 --micro-batches 1 --dropout 0.3 --lr 2e-4)
if train none --dry-run --device cuda --precision fp8 "${wide[@]}" > "$T/said" 2>&1; then
  check "width 1024, bf16, $steps steps" train wide --device cuda --precision bf16 "${wide[@]}" --steps "$steps"
  check "width 1024, fp8, $steps steps" train fp8 --device cuda --precision fp8 "${wide[@]}" --steps "$steps"
  check "fp8 within 1 % of bf16 after $steps steps" near fp8 wide 0.01 "$last"
  by_tensor() { # what other GPUs than Hopper use
    TRIREME_FP8_SCALES=tensor train fp8-tensor --device cuda --precision fp8 "${wide[@]}" --steps "$steps"
  }
  check "width 1024, fp8 with one scale per tensor, $steps steps" by_tensor
  check "fp8 with one scale per tensor within 1.5 % of bf16" near fp8-tensor wide 0.015 "$last"
  eighth() {
    local way=(--device cuda --precision fp8 "${wide[@]}" --steps 40)
    train fp8-once "${way[@]}" && TRIREME_GRAPH=0 train fp8-asked "${way[@]}" && same fp8-once fp8-asked
  }
  check 'fp8: the same bits with and without CUDA graphs' eighth
else
  leave_out "fp8: $(tail -n 1 "$T/said")"
fi
small() {
  ! train none --dry-run --device cuda --precision fp8 2> "$T/err" && cat "$T/err" && grep -- '--precision' "$T/err"
}
check 'fp8 is refused where it would do nothing' small

# Memory: --batch-tokens auto fits, and a batch that is too large is refused.
fits() {
  "$trireme" train --data "$set" --run "$T/none" --preset base --device cuda --precision bf16 --batch-tokens auto --dry-run 2>&1 |
    tee /dev/stderr | grep -q '^memory   fits: '
}
check 'auto fits' fits
auto() {
  "$trireme" train --quiet --data "$set" --run "$T/auto" --preset base --device cuda --precision bf16 --batch-tokens auto --steps 3 \
    --average-checkpoints 0 && grep -E '^batch-tokens = [0-9]+$' "$T/auto/config"
}
check 'and trains, with a validation' auto
refused() {
  ! "$trireme" train --quiet --data "$set" --run "$T/none" --device cuda --batch-tokens 16777216 2> "$T/err" &&
    grep 'pass --batch-tokens' "$T/err" && [ ! -e "$T/none" ]
}
check 'what does not fit is refused before it begins' refused

finish
