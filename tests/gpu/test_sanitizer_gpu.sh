#!/bin/bash
# Runs compute-sanitizer over the kernels: the plain ones of fp32, those of bf16 that use tensor cores, those of
# beam search, of classifiers, and of fp8. racecheck reports races inside kernels of cuBLASLt that use clusters
# (nvjet…), which we cannot fix, and the sanitizer fails if they are excluded. They are counted; any other error
# line is a failure. Exit status 77: no NVIDIA GPU. Requires the program and its
# plug-ins in $BUILD (default build).
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support.bash"

sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
if [ -z "$sanitizer" ]; then
  echo 'left out: memcheck and racecheck, as compute-sanitizer is not installed'
  exit 0
fi

set=$T/set
"$trireme" prepare --quiet --recipe demo --demo-pairs 5000 --vocab-size 1000 --out "$set" > /dev/null || exit 1
texts=$T/texts
make_texts "$T" || exit 1
model=(--preset tiny --d-model 128 --ffn-dim 256 --heads 2 --encoder-layers 1 --decoder-layers 1 --batch-tokens 256
  --valid-every 0 --average-checkpoints 0 --steps 1 --quiet --device cuda)
wide=(--d-model 1024 --ffn-dim 2048 --heads 16 --batch-tokens 4096)
need_gpu "$trireme" train --data "$set" --run "$T/none" "${model[@]}" --dry-run

# under TOOL COMMAND…: no error but races inside the library.
under() {
  local tool=$1 code=0 report
  shift
  report=$(mktemp "$T/report.XXXXXX")
  timeout 900 "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" > "$report" 2>&1 || code=$?
  cat "$report"
  [ $code -eq 0 ] && return
  local all theirs races
  all=$(grep -cE '(Read|Write) access at|Error' "$report")
  theirs=$(grep -cE '(Read|Write) access at nvjet_' "$report")
  races=$(grep -c 'Race reported between' "$report")
  [ "$tool" = racecheck ] && [ $code -eq 9 ] && [ "$races" -gt 0 ] && [ "$all" -eq "$theirs" ] &&
    grep -qE "RACECHECK SUMMARY: $races hazards? displayed" "$report"
}

# translator TOOL PRECISION: a step of training, and a search with the result.
translator() {
  local run=$T/$1-$2
  under "$1" "$trireme" train --data "$set" --run "$run" "${model[@]}" --precision "$2" &&
    head -n 3 "$set/valid.src" > "$run/three" &&
    under "$1" "$trireme" translate --quiet --model "$run/checkpoints/latest" --device cuda --precision "$2" \
      --max-length 12 --input "$run/three" --output "$run/out" && [ "$(wc -l < "$run/out")" -eq 3 ]
}

# classifier TOOL PRECISION: a step of training, and the classes of three texts.
classifier() {
  local run=$T/classes-$1-$2
  under "$1" "$trireme" train --data "$texts" --run "$run" "${classifier_model[@]}" --precision "$2" \
    --device cuda --steps 1 --layers 1 --batch-tokens 256 &&
    head -n 3 "$T/valid.txt" > "$run/three" &&
    under "$1" "$trireme" classify --quiet --model "$run/checkpoints/latest" --device cuda --precision "$2" \
      --input "$run/three" --output "$run/out" && [ "$(wc -l < "$run/out")" -eq 3 ]
}

eighths() {
  under memcheck "$trireme" train --data "$set" --run "$T/fp8" "${model[@]}" "${wide[@]}" --precision fp8
}

for tool in memcheck racecheck; do
  for precision in fp32 bf16; do
    check "$tool, $precision, a translator" translator $tool $precision
    check "$tool, $precision, a classifier" classifier $tool $precision
  done
  check "$tool, operands in fp8" under $tool "$build/tests/gpu/test_kernels" --fp8
  check "$tool, a GEMM with the backward of ReLU" under $tool "$build/tests/gpu/test_kernels" --relu
  check "$tool, an output layer with its loss" under $tool "$build/tests/gpu/test_kernels" --loss
  # Layer norms wider than 256 use named barriers beside __syncthreads. There racecheck reports races between accesses
  # that __syncthreads separates, so it gets the narrow ones.
  widest=()
  [ $tool = racecheck ] && widest=(256)
  check "$tool, column sums" under $tool "$build/tests/gpu/test_kernels" --sums "${widest[@]}"
done
if "$trireme" train --data "$set" --run "$T/none" "${model[@]}" "${wide[@]}" --precision fp8 --dry-run > "$T/said" 2>&1; then
  check 'memcheck, fp8' eighths
else
  leave_out "fp8: $(tail -n 1 "$T/said")"
fi
finish
