#!/usr/bin/env bats
# trireme doctor on this machine: the table, the JSON, and simulated problems.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  make_set
}

setup() {
  cd "$BATS_TEST_TMPDIR"
}

doctor() {
  "$TRIREME" doctor --quiet --preset tiny --vocab-size 1000 "$@"
}

# finding CHECK KEY < JSON: prints a member of the finding of this check.
finding() {
  perl -MJSON::PP -e 'undef $/; ($check, $key) = @ARGV; $j = decode_json(<STDIN>);
    print map { "$_->{$key}\n" } grep { $_->{check} eq $check } @{$j->{findings}}' "$1" "$2"
}

@test "doctor prints one row for each check and the counts" {
  run doctor
  [ "$status" -le 1 ]
  for check in program system cores memory GPUs "open files" "locked memory" /dev/shm network clock MPI; do
    [ "$(grep -c "^$check  *\(OK\|warning\|problem\)  *[^ ]" <<< "$output")" -eq 1 ]
  done
  [[ "$output" =~ [0-9]+" problem"s?", "[0-9]+" warning" ]]
}

@test "doctor: exit status and counts agree with the findings, and whatever is not OK has a remedy" {
  run --separate-stderr doctor --json
  perl -MJSON::PP -e 'undef $/; $status = shift; $j = decode_json(<STDIN>);
    for (@{$j->{findings}}) {
      $n{$_->{level}}++;
      die "$_->{check}: remedy" if ($_->{level} eq "OK") != ($_->{remedy} eq "");
    }
    die "problems" if $j->{problems} != ($n{problem} // 0);
    die "warnings" if $j->{warnings} != ($n{warning} // 0);
    die "status $status" if $status != ($j->{problems} ? 1 : 0);
    $m = $j->{machines}[0];
    die "cores" unless $m->{cores} >= 1;
    die "hash" unless $m->{sha256} =~ /^[0-9a-f]{64}$/;
    die "addresses" unless grep { $_->{is_loopback} && $_->{address} eq "127.0.0.1" } @{$m->{addresses}};' \
    "$status" <<< "$output"
}

@test "doctor runs an all-reduce of the gradient of the model on two ranks" {
  need_mpi
  run --separate-stderr doctor --json
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>); $a = $j->{allreduce};
    die "problem: $a->{problem}" if $a->{problem} ne "";
    die "ranks" unless $a->{ranks} == 2;
    die "bytes" unless $a->{bytes} == $j->{needs}{gradient} && $a->{bytes} == 4 * $j->{needs}{parameters};
    die "seconds" unless $a->{seconds} > 0;' <<< "$output"
}

@test "doctor: a disk too small for the checkpoints is a problem" {
  run --separate-stderr doctor --json --preset big --keep-checkpoints 1000000
  [ "$status" -eq 1 ]
  [ "$(finding "free space" level <<< "$output")" = problem ]
  [[ "$(finding "free space" remedy <<< "$output")" == *--keep-checkpoints* ]]
  [[ "$stderr" =~ [0-9]+" problem"s?" found" ]]
}

@test "doctor: a directory that cannot be written is a problem" {
  run --separate-stderr doctor --json --run /proc/self/runs
  [ "$status" -eq 1 ]
  [ "$(finding directory level <<< "$output")" = problem ]
  [[ "$(finding directory finding <<< "$output")" == "/proc/self: cannot create a file"* ]]
}

@test "doctor creates no directory for the run and leaves no file" {
  mkdir here
  run doctor --run here/runs/one
  [ "$status" -le 1 ]
  [[ "$output" == *"free in here"* ]]
  [ -z "$(ls -A here)" ]
}

@test "doctor: too few open files is a problem" {
  if is_sanitized; then skip "the sanitizers need more files"; fi
  ulimit -S -n 200
  run --separate-stderr doctor --json
  [ "$status" -eq 1 ]
  [ "$(finding "open files" level <<< "$output")" = problem ]
  [[ "$(finding "open files" finding <<< "$output")" == *"open 200 files"* ]]
}

@test "doctor: no mpirun in PATH is a problem" {
  need_mpi
  mkdir bin
  run --separate-stderr env PATH="$PWD/bin" "$TRIREME" doctor --quiet --preset tiny --json
  [ "$status" -eq 1 ]
  [ "$(finding MPI level <<< "$output")" = problem ]
  [[ "$(finding MPI finding <<< "$output")" == *"mpirun is not in PATH"* ]]
  [ -z "$(finding all-reduce level <<< "$output")" ]
}

@test "doctor: an MPI that cannot start ranks is a problem, with mpirun's reason" {
  need_mpi
  mkdir bin
  printf '#!/bin/sh\nif [ "$1" = --version ]; then %s --version; exit; fi\necho "no slots here" >&2\nexit 3\n' \
    "$(command -v mpirun)" > bin/mpirun
  chmod +x bin/mpirun
  PATH=$PWD/bin:$PATH run --separate-stderr doctor --json
  [ "$status" -eq 1 ]
  [ "$(finding all-reduce level <<< "$output")" = problem ]
  [[ "$(finding all-reduce finding <<< "$output")" == *"exit status 3: no slots here"* ]]
}

# make_nvml [OPTION…]: builds a fake NVML library with two GPUs.
make_nvml() {
  mkdir nvml
  "${CC:-cc}" -shared -fPIC "$@" "$BATS_TEST_DIRNAME/../device/fake_nvml.c" -o nvml/libnvidia-ml.so.1
  export LD_LIBRARY_PATH=$PWD/nvml:${LD_LIBRARY_PATH:-}
}

@test "doctor lists GPUs and their driver, and warns of a missing CUDA plug-in" {
  make_nvml
  mkdir plugins
  if has_mpi; then ln -s "$TRIREME_PLUGIN_PATH/libtrireme-mpi.so" plugins/; fi
  TRIREME_PLUGIN_PATH=$PWD/plugins run --separate-stderr doctor --json
  perl -MJSON::PP -e 'undef $/; $m = decode_json(<STDIN>)->{machines}[0];
    die "driver" unless $m->{gpu_driver} eq "550.54.15" && $m->{gpu_cuda} eq "12.4";
    die "gpus" unless @{$m->{gpus}} == 2 && $m->{gpus}[1]{name} eq "Test GPU" && $m->{gpus}[0]{memory} == 16e9;' <<< "$output"
  if [ ! -f "$(dirname "$TRIREME")/libtrireme-cuda.so" ]; then
    [ "$(finding GPUs level <<< "$output")" = warning ]
    [[ "$(finding GPUs finding <<< "$output")" == "2 x Test GPU, but libtrireme-cuda.so is not installed"* ]]
  fi
}

@test "doctor: a driver that does not match its library is a problem" {
  make_nvml -DFAKE_MISMATCH
  run --separate-stderr doctor --json
  [ "$status" -eq 1 ]
  [ "$(finding GPUs level <<< "$output")" = problem ]
  [[ "$(finding GPUs finding <<< "$output")" == *"Driver/library version mismatch"* ]]
}

@test "doctor takes the sizes of a run that exists from its checkpoint" {
  train 1 run --steps 2 --save-every 1 --keep-checkpoints 2
  run --separate-stderr doctor --json --preset big --run run
  bytes=$(stat -L -c %s run/checkpoints/latest/{weights,moment1,moment2,tokenizer,model}.* | perl -ne '$n += $_; END { print $n }')
  perl -MJSON::PP -e 'undef $/; $bytes = shift; $n = decode_json(<STDIN>)->{needs};
    die "$n->{checkpoint} bytes" unless $n->{checkpoint} == $bytes;
    die "parameters" unless $n->{parameters} < 1e6;
    die $n->{model} unless $n->{model} =~ /the run run$/;' "$bytes" <<< "$output"
}

@test "doctor takes the vocabulary from the data set" {
  run --separate-stderr doctor --json --data "$SET"
  perl -MJSON::PP -e 'undef $/; $n = decode_json(<STDIN>)->{needs};
    die $n->{model} unless $n->{model} =~ /vocabulary of 800$/' <<< "$output"
}

@test "doctor: a data set that does not exist is an error" {
  run doctor --data nowhere
  [ "$status" -eq 1 ]
  [[ "$output" == *"nowhere/dataset.json"* ]]
}

@test "doctor refuses to be a rank" {
  need_mpi
  run mpirun -n 2 "$TRIREME" doctor
  [ "$status" -ne 0 ]
  [[ "$output" == *"call it without mpirun or srun"* ]]
}

@test "a missing --ssh-key is an error before any host is called, also of launch and cluster" {
  mkdir bin
  printf '#!/bin/sh\ntouch "%s/called"\nexit 255\n' "$PWD" > bin/ssh
  chmod 755 bin/ssh
  for call in "doctor" "cluster status" "cluster up" "cluster ssh 1" "cluster run -- true" "launch -- train --data x --run y"; do
    # shellcheck disable=SC2086  # several words
    PATH=$PWD/bin:$PATH run "$TRIREME" ${call%%--*} --hosts a,b --ssh-key "$PWD/none" ${call#"${call%%--*}"}
    [ "$status" -eq 2 ]
    [[ "$output" == *"--ssh-key $PWD/none: No such file or directory"* ]]
  done
  [ ! -e called ]
}

@test "a host that is not reached is compared with nothing; in one stream the error comes last" {
  mkdir bin
  printf '#!/bin/sh\n[ "$1" != -G ] || exit 0  # asks for its configuration\necho "ssh: connect to host far port 22: Connection refused" >&2\nexit 255\n' > bin/ssh
  chmod 755 bin/ssh
  for hosts in far "$(hostname),far"; do
    PATH=$PWD/bin:$PATH run -1 "$TRIREME" doctor --preset tiny --vocab-size 1000 --hosts "$hosts" --run "$PWD/run"
    echo "$output"
    [[ "$output" == *"refuses the connection"* ]]
    [[ "$output" != *"same everywhere"* ]]
    [[ "$output" != *"of the other hosts"* ]]
    [[ "$output" != *"is shared"* ]]
    [[ "${lines[-1]}" == "trireme: 1 problem found; "* ]]
  done
}

@test "doctor with few open files names the limit and does not wait for MPI" {
  run --separate-stderr bash -c 'ulimit -n 30; exec "$@"' - "$TRIREME" doctor --quiet --json --preset tiny --vocab-size 1000
  [ "$status" -eq 1 ]
  [ "$(finding "open files" level <<< "$output")" = problem ]
  if [ "$(finding MPI level <<< "$output")" != problem ]; then
    [ "$(finding all-reduce finding <<< "$output")" = "not tried, because of the problem with 'open files'" ]
  fi
}
