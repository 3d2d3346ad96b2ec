# Functions for tests of transports between GPUs: fake GPUs that compute on the CPU, and a
# shared-memory transport instead of NCCL. Depends on support.bash.
load ../ranks/support

setup_file() {
  make_set
  make_gpu -DFAKE_COMM "$BATS_TEST_DIRNAME/../device/fake_comm.c" -lrt
}

setup() {
  T=$BATS_TEST_TMPDIR
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins" FAKE_GPUS=4
}

# say N RUN [OPTION…]: like train, on GPUs, but prints the output.
say() {
  local n=$1 run=$2
  shift 2
  with "$n" "$OUTLIVE" timeout -k 5 100 "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --device cuda "$@" 2>&1
}

# one_error TEXT: the output has exactly one error line of the program, which contains TEXT.
one_error() {
  # shellcheck disable=SC2154  # bats sets it
  echo "$output"
  [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ]
  grep -q "^trireme: .*$1" <<< "$output"
}

# failed_in_time: the command has ended by itself, with an error.
failed_in_time() {
  # shellcheck disable=SC2154  # bats sets it
  echo "exit status $status"
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
}
