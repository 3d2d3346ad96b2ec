#!/usr/bin/env bats
# scripts/test-gpu, with programs that need no GPU in the place of the tests.

load ../tools/wait
bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_TMPDIR"
  mkdir -p scripts tests/gpu build/tests/gpu
  cp "$BATS_TEST_DIRNAME/../../scripts/test-gpu" scripts
  touch build/libtrireme-cuda.so
  unset BUILD LIMIT JOBS
  export MAKE=true # everything is built
  for name in sanitizer_gpu nccl_ranks train_gpu; do program $name.sh 'echo "$# arguments: $*"'; done
  program decode_gpu.c 'echo "2 tests passed"'
}

# program NAME COMMAND: makes the test program tests/gpu/test_NAME
program() {
  local file=build/tests/gpu/test_${1%.c}
  touch "tests/gpu/test_$1"
  case $1 in *.sh) file=tests/gpu/test_$1 ;; esac
  printf '#!/bin/bash\n%s\n' "$2" > "$file"
  chmod +x "$file"
}

@test "each program has a line with its name and the last line of its output" {
  program extra.c 'echo first; echo; echo last; echo'
  run scripts/test-gpu
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 7 ]
  [[ "$output" == *"ok      test_nccl_ranks-1-2-4 "*" s  3 arguments: 1 2 4"* ]]
  [[ "$output" == *"ok      test_nccl_ranks-8 "*" s  1 arguments: 8"* ]]
  [[ "$output" == *"ok      test_decode_gpu "*" s  2 tests passed"* ]]
  [[ "$output" == *"ok      test_extra "*" s  last"* ]]
  [[ "${lines[6]}" == "6 GPU test programs passed, 0 failed, "*" at the same time" ]]
}

@test "only the named programs run" {
  run scripts/test-gpu decode train
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 3 ]
  [[ "${lines[2]}" == "2 GPU test programs passed, 0 failed, "* ]]
  run scripts/test-gpu nothing
  [ "$status" -eq 2 ]
  [[ "$output" == "no GPU test has a name with nothing; they are: test_sanitizer_gpu test_nccl_ranks-8 "* ]]
  run scripts/test-gpu nccl_ranks-8
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" == *"1 arguments: 8" ]]
}

@test "what a program leaves out is printed" {
  program train_gpu.sh 'echo "left out: ranks, as MPI is not installed"; echo "1 passed"'
  run scripts/test-gpu train
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" == "ok      test_train_gpu "*"1 passed" ]]
  [ "${lines[1]}" = "        left out: ranks, as MPI is not installed" ]
}

@test "a program that fails, crashes, hangs or is missing fails the whole, and the others run" {
  program train_gpu.sh 'echo reason; exit 3'
  program decode_gpu.c 'kill -SEGV $$'
  program sanitizer_gpu.sh 'sleep 1000'
  touch tests/gpu/test_missing.c
  LIMIT=2 JOBS=3 run scripts/test-gpu
  [ "$status" -eq 1 ]
  [[ "$output" == *"FAILED  test_train_gpu "*"exit status 3; its output is in build/test-gpu/test_train_gpu.log and ends with"*"        reason"* ]]
  [[ "$output" == *"FAILED  test_decode_gpu "*"exit status 139"* ]]
  [[ "$output" == *"FAILED  test_sanitizer_gpu "*"exit status 124"*"ended after 2 s: it hung"* ]]
  [[ "$output" == *"FAILED  test_missing "*"exit status 127"* ]]
  [[ "$output" == *"2 GPU test programs passed, 4 failed, 3 at the same time" ]]
}

@test "JOBS programs run at the same time" {
  for name in sanitizer_gpu nccl_ranks train_gpu; do
    # Each waits until three have begun.
    program $name.sh 'touch began.$$; until [ "$(ls began.* | wc -l)" -ge 3 ]; do sleep 0.1; done'
  done
  LIMIT=100 JOBS=3 run scripts/test-gpu sanitizer nccl train
  [ "$status" -eq 0 ]
  [[ "$output" == *"4 GPU test programs passed, 0 failed, 3 at the same time" ]]
}

@test "without a GPU the exit status is 77, unless a program fails" {
  program sanitizer_gpu.sh 'echo "cannot run: this machine has no NVIDIA GPU"; exit 77'
  JOBS=1 run scripts/test-gpu
  [ "$status" -eq 77 ]
  [ "${#lines[@]}" -eq 1 ]
  [[ "$output" == "no GPU  test_sanitizer_gpu "*"cannot run: this machine has no NVIDIA GPU" ]]
  program decode_gpu.c 'exit 77'
  program train_gpu.sh 'exit 1'
  JOBS=1 run scripts/test-gpu train decode
  [ "$status" -eq 1 ]
  rm build/libtrireme-cuda.so
  run scripts/test-gpu
  [ "$status" -eq 77 ]
  [[ "$output" == *"the CUDA plug-in is not built: run make first" ]]
  echo 'HAVE_CUDA := 1' > build/config.mk
  run scripts/test-gpu
  [ "$status" -eq 77 ]
  [[ "$output" == *"the CUDA plug-in is not built: run make first" ]]
  echo 'HAVE_CUDA :=' > build/config.mk
  run scripts/test-gpu
  [ "$status" -eq 77 ]
  [[ "$output" == *"nvcc was not found; install the CUDA toolkit" ]]
}

# has_ended FILE: the process whose number is in the file runs no more
has_ended() { ! grep -qs '^State:.[^Z]' "/proc/$(cat "$1")/status"; }

@test "a signal and the time limit end a program with all that it has started" {
  program train_gpu.sh 'echo $$ > pid; timeout 1000 bash -c "echo \$\$ > nested; exec sleep 1000"'
  scripts/test-gpu train 3>&- &
  local script=$! code=0
  for file in pid nested; do until_true test -s $file; done
  kill -TERM $script
  wait $script || code=$?
  [ "$code" -eq 130 ]
  for file in pid nested; do until_true has_ended $file; done
  rm nested
  LIMIT=1 run scripts/test-gpu train
  [ "$status" -eq 1 ]
  for file in pid nested; do until_true has_ended $file; done
}

@test "JOBS and LIMIT must be numbers" {
  for value in 0 x ''; do
    JOBS=$value LIMIT=$value run scripts/test-gpu train
    if [ -z "$value" ]; then
      [ "$status" -eq 0 ]
    else
      [ "$status" -eq 2 ]
      [ "$output" = "JOBS is '$value'; pass a whole number from 1 on" ]
    fi
  done
  LIMIT=5s run scripts/test-gpu train
  [ "$output" = "LIMIT is '5s'; pass a whole number from 1 on" ]
}
