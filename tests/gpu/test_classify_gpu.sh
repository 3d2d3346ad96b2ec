#!/bin/bash
# Trains small BERT classifiers and masked language models on the GPU of this machine and compares: with the CPU, with
# CUDA graphs disabled, after a stop, with several ranks, with every precision; and classifies on both. Exit
# status 77: no NVIDIA GPU. Requires the program and its plug-ins in $BUILD (default build).
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support.bash"
make_texts "$T" || exit 1

# train DATA RUN [OPTION…]
train() {
  "$trireme" train --data "$T/$1" --run "$T/$2" "${classifier_model[@]}" "${@:3}"
}

need_gpu train texts none --device cuda --dry-run

# Dropout is drawn from the same numbers on both devices.
for kind in texts labels numbers; do
  both() {
    train $kind "$kind-cpu" --device cpu --steps 60 && train $kind "$kind-gpu" --device cuda --steps 60 &&
      near "$kind-gpu" "$kind-cpu" 1e-3
  }
  check "$kind: the losses of the CPU" both
done
masked() {
  "$trireme" prepare --quiet --task mlm --train "$T/valid.txt" --vocab "$T/vocab.txt" --out "$T/mlm" > /dev/null &&
    train mlm mlm-cpu --device cpu --steps 40 && train mlm mlm-gpu --device cuda --steps 40 && near mlm-gpu mlm-cpu 1e-3
}
check 'masked language model: the losses of the CPU' masked

options=(--layer-lr-decay 0.9 --freeze-layers 1 --class-weights balanced --label-smoothing 0.1)
grouped() {
  train texts groups-cpu --device cpu --steps 40 "${options[@]}" &&
    train texts groups-gpu --device cuda --steps 40 "${options[@]}" &&
    near groups-gpu groups-cpu 1e-3
}
check 'rates of layers, a frozen layer, class weights, label smoothing: the losses of the CPU' grouped

for precision in fp32 bf16 fp16; do
  way=(--device cuda --precision $precision --steps 50)
  with_graphs() {
    train texts "graphs$precision" "${way[@]}" && TRIREME_GRAPH=0 train texts "plain$precision" "${way[@]}" &&
      same "graphs$precision" "plain$precision"
  }
  check "$precision: CUDA graphs give the bits of steps without" with_graphs
  halves() {
    train texts "halves$precision" "${way[@]}" --steps 23 && train texts "halves$precision" "${way[@]}" --resume &&
      same "halves$precision" "graphs$precision"
  }
  check "$precision: stopped and resumed, the same bits" halves
  check "$precision: about the losses of fp32" near "graphs$precision" graphsfp32 0.1 5
done

valid() {
  local way=(--device cuda --precision bf16 --steps 40 --valid-every 10)
  train texts valid "${way[@]}" && TRIREME_GRAPH=0 train texts valid-plain "${way[@]}" && same valid valid-plain
}
check 'validations in between: the same bits with and without CUDA graphs' valid

if command -v mpirun > /dev/null && [ -f "$build/libtrireme-mpi.so" ]; then
  check '1 rank, reproducible' train texts one --device cuda --steps 40 --micro-batches 4 --reproducible
  for n in 2 4; do
    ranks() {
      mpirun -n $n "$trireme" train --data "$T/texts" --run "$T/ranks$n" "${classifier_model[@]}" --device cuda \
        --steps 40 --micro-batches 4 --reproducible && same "ranks$n" one
    }
    check "$n ranks on one GPU, reproducible: the bits of one" ranks
  done
else
  leave_out 'ranks, as MPI is not installed'
fi

# classify prints four digits: a probability may differ by one in the last one, or by 0.02 in bf16 and fp16.
classified() {
  "$trireme" classify --quiet --model "$T/texts-cpu/checkpoints/latest" --input "$T/valid.txt" --output "$T/$1-$2" \
    --device "$1" --precision "$2"
}
alike() {
  classified cpu fp32 && classified cuda "$1" && [ "$(wc -l < "$T/cuda-$1")" -eq 100 ] &&
    paste "$T/cpu-fp32" "$T/cuda-$1" | awk -v most="$2" '
      { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 && $2 > 0.5 + most || $1 == $3 && d > most) { print; bad = 1 } }
      END { exit bad }'
}
check 'classify, fp32: the probabilities of the CPU' alike fp32 0.00011
check 'classify, bf16: about the probabilities of the CPU' alike bf16 0.02
check 'classify, fp16: about the probabilities of the CPU' alike fp16 0.02
finish
