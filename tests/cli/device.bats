#!/usr/bin/env bats
# --device and --precision on the command line. The results do not depend on the machine's GPUs,
# because a plug-in that cannot be loaded is first in the search path.
# run-tests: needs cuda

setup() {
  T=$BATS_TEST_TMPDIR
  mkdir "$T/plugins"
  echo 'not a library' > "$T/plugins/libtrireme-cuda.so"
  export TRIREME_PLUGIN_PATH="$T/plugins"
  for i in 5 7 9 12; do echo "$i $((i + 1))"; done > "$T/lengths"
}

bench() {
  "$TRIREME" bench train --preset tiny --vocab-size 100 --lengths "$T/lengths" --steps 1 --batch-tokens 64 --threads 1 "$@"
}

@test "auto prints in one line why no GPU is used, and uses the CPU" {
  run bench
  [ "$status" -eq 0 ]
  [[ "$output" =~ "no GPU is used: cannot load $T/plugins/libtrireme-cuda.so" ]]
  [ "$(grep -c 'no GPU' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "cpu: " ]]
  [[ "$output" =~ "target tokens/s" ]]
}

@test "auto prints nothing about GPUs where neither a plug-in nor an NVIDIA device exists" {
  for device in /dev/nvidiactl /dev/nvidia0 /dev/nvhost-ctrl /dev/nvgpu /dev/dxg; do
    [ ! -e $device ] || skip "there is $device"
  done
  mkdir "$T/bin"
  cp "$TRIREME" "$T/bin/trireme"
  TRIREME=$T/bin/trireme TRIREME_PLUGIN_PATH='' run bench
  [ "$status" -eq 0 ]
  [[ "$output" =~ "cpu: " ]]
  [[ ! "$output" =~ "GPU" ]]
}

@test "a GPU requested by name is used or is an error with a remedy" {
  for name in cuda cuda:1; do
    run bench --device $name
    [ "$status" -eq 1 ]
    [[ "$output" =~ "--device $name is not available: " ]]
    [[ "$output" =~ "--device cpu" ]]
  done
}

@test "without a plug-in the error lists where it was searched" {
  rm "$T/plugins/libtrireme-cuda.so"
  mkdir "$T/bin"
  cp "$TRIREME" "$T/bin/trireme"
  TRIREME=$T/bin/trireme run bench --device cuda
  [ "$status" -eq 1 ]
  for place in "$T/plugins" "$T/bin" "$T/bin/../lib/trireme"; do [[ "$output" =~ "$place" ]]; done
}

@test "an unknown device or unsupported precision is refused, not replaced" {
  run bench --device gpu
  [ "$status" -eq 2 ]
  [[ "$output" =~ "auto, cpu, cuda, cuda:N" ]]
  for precision in tf32 fp16 fp8; do
    run bench --device cpu --precision $precision
    [ "$status" -eq 2 ]
    [[ "$output" =~ "--precision fp32 or bf16" ]]
    run bench --precision $precision  # auto selects the CPU here
    [ "$status" -eq 2 ]
  done
}

@test "translate and bench translate select devices as train does" {
  run "$TRIREME" bench translate --preset tiny --vocab-size 100 --lengths "$T/lengths" --threads 1
  [ "$status" -eq 0 ]
  [ "$(grep -c 'no GPU is used' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "sentences/s" ]]
  run "$TRIREME" bench translate --preset tiny --vocab-size 100 --lengths "$T/lengths" --device cuda
  [ "$status" -eq 1 ]
  [[ "$output" =~ "--device cuda is not available: " ]]
  for arguments in "--device cuda" "--device cpu --precision fp16" "--device gpu"; do
    run "$TRIREME" translate --model "$T" $arguments < /dev/null
    [ "$status" -ne 0 ]
    [[ "$output" =~ "--device c" || "$output" =~ "--precision fp32 or bf16" || "$output" =~ "unknown --device 'gpu'" ]]
  done
  run "$TRIREME" translate --model "$T" --precision fp8 < /dev/null
  [ "$status" -eq 2 ]
  [[ "$output" =~ "'fp8' is not one of fp32, tf32, bf16, fp16" ]]
}

@test "the plug-in that was built can be loaded" {
  local built=${TRIREME%/*}
  [ -f "$built/libtrireme-cuda.so" ] || skip 'it was not built here'
  TRIREME_PLUGIN_PATH=$built run bench --device cuda
  if [ "$status" -ne 0 ]; then  # the error is from the library, so the library was loaded
    [[ "$output" =~ "the NVIDIA driver is missing"|"there is no NVIDIA GPU here" ]]
  fi
}
