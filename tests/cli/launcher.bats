#!/usr/bin/env bats
# Launchers: ranks of another MPI library, a batch script, and commands that run in a single
# process.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  make_set
}

setup() {
  T=$BATS_TEST_TMPDIR
}

@test "ranks of another MPI's launcher are an error with the remedy, and write nothing" {
  need_mpi
  PMI_SIZE=4 PMI_RANK=0 run train 1 "$T/run" --steps 2
  [ "$status" -eq 1 ]
  [[ "$output" =~ "4 ranks were started (PMI_SIZE), but Open MPI "[^\ ]*" sees 1" ]]
  [[ "$output" =~ "start them with the mpirun of Open MPI" ]]
  [ ! -e "$T/run" ]
}

@test "a launcher's ranks without the MPI plug-in are an error with the remedy" {
  mkdir "$T/bin"
  cp "$TRIREME" "$T/bin/trireme"
  TRIREME="$T/bin/trireme" TRIREME_PLUGIN_PATH="$T" PMI_SIZE=4 PMI_RANK=0 run train 1 "$T/run" --steps 2
  [ "$status" -eq 1 ]
  [[ "$output" =~ "4 ranks were started, but MPI is not available (install libopenmpi-dev" ]]
  [ ! -e "$T/run" ]
}

@test "a batch script's variables start no ranks" {
  SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_JOB_ID=7 run train 1 "$T/run" --steps 2
  [ "$status" -eq 0 ]
  [[ "$output" =~ "done at step 2" ]]
}

@test "score on several ranks is refused, and prints no figure" {
  need_mpi
  run mpirun -n 2 "$TRIREME" score --ref "$SET/valid.ref" < "$SET/valid.ref"
  [ "$status" -ne 0 ] # mpirun returns the status of the first rank that ends
  [ "$(grep -c 'score runs as one process, but 2 ranks were started' <<< "$output")" -eq 1 ]
  [[ ! "$output" =~ "BLEU" ]]
}

@test "inspect on several ranks is refused" {
  need_mpi
  run mpirun -n 2 "$TRIREME" inspect "$SET"
  [ "$status" -ne 0 ] # mpirun returns the status of the first rank that ends
  [ "$(grep -c 'inspect runs as one process, but 2 ranks were started' <<< "$output")" -eq 1 ]
}

@test "score on one of several ranks is refused at once, and does not wait for the others" {
  need_mpi
  echo hello > "$T/text"
  run timeout -k 5 120 mpirun -n 2 sh -c \
    'if [ "$OMPI_COMM_WORLD_RANK" -eq 0 ]; then "$0" score --ref "$1" --hyp "$1"; fi' "$TRIREME" "$T/text"
  [ "$status" -eq 2 ]
  [[ "$output" =~ "score runs as one process, but 2 ranks were started" ]]
}
