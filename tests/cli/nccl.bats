#!/usr/bin/env bats
# nccl.c without a GPU and without NCCL: fake GPUs that compute on the CPU, streams and events that
# are threads, and the stand-in for NCCL of the GPU tests. tests/gpu/test_nccl_ranks.sh runs the same
# on a GPU.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`
load ../ranks/transport
MODEL+=(--batch-tokens 64)

setup_file() {
  make_set
  make_nccl
}

# make_nccl: builds the fake CUDA runtime, a plug-in with nccl.c, and the stand-in.
make_nccl() {
  local root=$BATS_TEST_DIRNAME/../.. here=$BATS_FILE_TMPDIR/nccl
  local flags=(-std=c11 -O1 -g -Wall -Wextra ${WERROR:+-Werror} -shared -fPIC -pthread -D_GNU_SOURCE -I"$root/tests/device/cuda" -I"$root/src")
  mkdir "$here"
  "${CC:-cc}" "${flags[@]}" -o "$here/libfakecuda.so" "$root/tests/device/fake_runtime.c"
  "${CC:-cc}" "${flags[@]}" -o "$here/libnccl.so.2" "$root"/tests/gpu/nccl_{stand_in,exchange}.c -L"$here" -lfakecuda -Wl,-rpath,"$here"
  make_gpu -DFAKE_NCCL -I"$root/tests/device/cuda" "$root"/tests/device/fake_nccl.c "$root"/src/backend/cuda/nccl.c \
    -L"$here" -lfakecuda -Wl,-rpath,"$here" -pthread -ldl
}

setup() {
  T=$BATS_TEST_TMPDIR
  export TRIREME_PLUGIN_PATH="$BATS_FILE_TMPDIR/plugins" FAKE_GPUS=8 NCCL_STAND_IN_DIR="$T"
  export LD_LIBRARY_PATH="$BATS_FILE_TMPDIR/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

@test "collectives in the order of other work, in many buckets and pieces; an abort while ranks are missing" {
  for n in 1 $(fewer 3 2); do
    run timeout -k 5 300 "$TRIREME_TOOLS/nccl_ranks" $n
    echo "$output"
    [ "$output" = "$n ranks: all right" ]
  done
}

@test "nccl.c and the host give the same bits on 2 and 3 ranks, sharded or not, in fp32 and bf16" {
  need_mpi
  for n in $(fewer '2 3' 2); do
    for way in "" "--shard-optimizer" "--allreduce-dtype bf16" "--shard-optimizer --allreduce-dtype bf16" "--bucket-size 16k"; do
      name=$n${way//[^a-z0-9]/}
      run say $n "$T/host$name" --steps 6 --clip-norm 0.5 $way --allreduce-transport host
      [ "$status" -eq 0 ] || { echo "$output"; false; }
      run say $n "$T/nccl$name" --steps 6 --clip-norm 0.5 $way --allreduce-transport nccl
      [ "$status" -eq 0 ] || { echo "$output"; false; }
      [[ "$output" =~ "gradient all-reduce from GPU to GPU by NCCL 2.99.0" ]]
      same_state "$T/host$name" "$T/nccl$name"
      for field in loss grad_norm tokens learning_rate; do cmp <(figures $field "$T/host$name") <(figures $field "$T/nccl$name"); done
    done
  done
}
# The collectives of each kind of step: one array; pieces of equal size; of unequal size.
@test "nccl.c calls each collective, and a rank that is killed in one ends all and is named" {
  need_mpi
  # kill CALL RANK [OPTION…]: rank RANK of two is killed in this call.
  kill_rank() {
    local call=$1 rank=$2
    shift 2
    NCCL_STAND_IN_DIE=$call:$rank say 2 "$T/run-$call" --steps 1000000 --allreduce-transport nccl "$@" > "$T/said-$call" || echo $? > "$T/status-$call"
  }
  shard="--shard-optimizer --bucket-size"
  kill_rank all-reduce:5 1 &  # that of the losses, in fp64
  kill_rank all-reduce:6 0 &
  kill_rank all-reduce:90 1 &  # between two parts of a graph
  kill_rank all-reduce:4 0 $shard 32k &  # that of the squares
  kill_rank reduce-scatter:9 1 $shard 32k &
  kill_rank all-gather:9 0 $shard 32k &
  kill_rank reduce:8 0 $shard 16k &
  kill_rank broadcast:8 1 $shard 16k &
  wait
  for call in all-reduce:4 all-reduce:5 all-reduce:6 all-reduce:90 reduce-scatter:9 all-gather:9 reduce:8 broadcast:8; do
    status=$(cat "$T/status-$call") output=$(cat "$T/said-$call")
    failed_in_time
    one_error "rank [01] on .*: process [0-9]* died"
  done
  [ -z "$(compgen -G "$T/trireme-nccl-*")" ]  # the ranks leave no file behind
}

@test "a rank that is killed before the run exists: the advice is to start it again, afterwards --resume" {
  need_mpi
  NCCL_STAND_IN_DIE=all-reduce:1:1 run say 2 "$T/run" --steps 3 --allreduce-transport nccl  # in the self-test
  failed_in_time
  one_error "rank 1 on .*: process [0-9]* died; .*Run stopped; start it again$"
  [ ! -e "$T/run" ]
  NCCL_STAND_IN_DIE=all-reduce:6:1 run say 2 "$T/run" --steps 3 --allreduce-transport nccl
  failed_in_time
  one_error "Run stopped; continue from the last checkpoint with --resume$"
  NCCL_STAND_IN_DIE=all-reduce:1:1 run say 2 "$T/run" --resume --steps 3 --allreduce-transport nccl
  failed_in_time
  one_error "Run stopped; continue from the last checkpoint with --resume$"
}

@test "--nccl-ctas is an error in a new run without NCCL, and a line in a resumed one" {
  need_mpi
  run say 2 "$T/run" --steps 2 --nccl-ctas 4 --allreduce-transport host
  failed_in_time
  one_error "--nccl-ctas 4 is not available, because NCCL is not used: --allreduce-transport host; leave that out, or leave --nccl-ctas out"
  run say 2 "$T/run" --steps 2 --nccl-ctas 4 --reproducible
  failed_in_time
  one_error "--nccl-ctas 4 is not available, .*: --reproducible adds in the order of the micro-batches; leave --reproducible out, or"
  say 2 "$T/run" --steps 2 --nccl-ctas 4
  run say 2 "$T/run" --steps 3 --resume --allreduce-transport host
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "--nccl-ctas 4 has no effect: gradients are not reduced from GPU to GPU" ]]
  say 2 "$T/reserved" --steps 2 --nccl-ctas 4 --reserve-sms yes
  run say 2 "$T/reserved" --steps 3 --resume --allreduce-transport host
  [[ "$output" =~ "--nccl-ctas 4 and --reserve-sms yes have no effect: gradients are not reduced" ]]
  run -2 say 2 "$T/reserved" --steps 4 --resume --nccl-ctas 0
  one_error "--reserve-sms yes needs --nccl-ctas N with N above 0, the number of SMs; pass it, or --reserve-sms no"
  say 2 "$T/reserved" --steps 4 --resume --nccl-ctas 0 --reserve-sms no
}

# bats test_tags=slow
@test "--tune measures buckets and CTAs, keeps the choice for the resumed run, and the weights do not depend on it" {
  need_mpi
  for way in "" "--shard-optimizer" "--allreduce-dtype bf16"; do
    name=${way//[^a-z0-9]/}
    run say 2 "$T/plain$name" --steps 8 --bucket-size 16k --allreduce-transport nccl $way
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    run say 2 "$T/tuned$name" --steps 4 --bucket-size 16k --allreduce-transport nccl --tune $way
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "^tune     buckets of " <<< "$output")" -eq 8 ]
    [ "$(grep -c "^tune     .*at most [0-9]* CTAs, SMs reserved: " <<< "$output")" -eq 3 ]
    grep -q "^tune     buckets of 0.0156 MB, at most 4 CTAs\|^tune     buckets of 4 MB, at most 4 CTAs" <<< "$output"
    grep -q "^tuned    buckets of " <<< "$output"
    config=$(cat "$T/tuned$name/config")
    [ "$(grep -c '^bucket-size = ' <<< "$config")" -eq 1 ]
    [ "$(grep -c '^nccl-ctas = ' <<< "$config")" -eq 1 ]
    [ "$(grep -c '^reserve-sms = ' <<< "$config")" -eq 1 ]
    run -1 grep -q '^tune' <<< "$config"
    bucket=$(sed -n 's/^bucket-size = //p' <<< "$config") ctas=$(sed -n 's/^nccl-ctas = //p' <<< "$config")
    [[ " 16384 4194304 " = *" $bucket "* ]]
    [ "$ctas" -gt 0 ] || grep -q '^reserve-sms = no$' <<< "$config"
    NCCL_STAND_IN_CALLS=$T/calls$name run say 2 "$T/tuned$name" --resume --steps 8
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    [ "$(grep -c "ctas $ctas$" "$T/calls$name")" -eq "$((ctas ? 2 : 0))" ]
    same_state "$T/plain$name" "$T/tuned$name"
  done
  # A restart repeats the command line; the run that has begun keeps its buckets.
  before=$(grep -E '^(bucket-size|nccl-ctas|reserve-sms) = ' "$T/tuned/config")
  run say 2 "$T/tuned" --auto-resume --bucket-size 32k --nccl-ctas 0 --tune --steps 9
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "tune     nothing is measured: the run continues with the buckets it began with" ]]
  [ "$(grep -E '^(bucket-size|nccl-ctas|reserve-sms) = ' "$T/tuned/config")" = "$before" ]
  # A pair that was chosen stays one, although the command line has one of its values.
  sed -i '/^nccl-ctas = /d; /^reserve-sms = /d' "$T/tuned/config"
  printf '%s\n' 'nccl-ctas = 4' 'reserve-sms = yes' >> "$T/tuned/config"
  NCCL_STAND_IN_CALLS=$T/pair say 2 "$T/tuned" --auto-resume --nccl-ctas 0 --tune --steps 10
  [ "$(grep -c "ctas 4$" "$T/pair")" -eq 2 ]
  run say 1 "$T/one" --steps 1 --tune
  [[ "$output" =~ "tune     nothing is measured: gradients are not reduced from GPU to GPU" ]]
}

@test "Ctrl-C during --tune ends the measurement and chooses nothing" {
  NCCL_STAND_IN_OCCUPY=4:30000:25 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --steps 2 \
    --allreduce-transport nccl --device cuda --tune > "$T/said" 2>&1 3>&- &
  until_true grep -q "^tune     buckets of " "$T/said"
  kill -INT $!
  code=0
  wait $! || code=$?
  cat "$T/said"
  [ $code -eq 3 ]
  grep -q "stopping: the measurement ends after this candidate, and nothing is chosen" "$T/said"
  [ "$(grep -c "^tune     buckets of " "$T/said")" -lt 8 ]
  run -1 grep -E '^(tuned |bucket-size =|nccl-ctas =)' "$T/said" "$T/run/config"
}

@test "the self-test tries the collectives of the run, and names the one that fails" {
  need_mpi
  # wrong CALL [OPTION…]: starts a run in which this call has a wrong result on rank 1.
  wrong() {
    local call=$1
    shift
    { NCCL_STAND_IN_WRONG=$call:1 say 2 "$T/wrong-$call" --steps 2 --allreduce-transport nccl "$@" > "$T/said-$call" || echo $? > "$T/status-$call"; } &
  }
  # names NAME CALL…: the runs with a wrong result of these calls have ended with this name.
  names() {
    local name=$1 call
    shift
    for call; do
      status=$(cat "$T/status-$call") output=$(cat "$T/said-$call")
      failed_in_time
      one_error "NCCL $name self-test failed: .*; try --allreduce-transport host"
    done
  }
  # The runs are parallel, because mpirun waits a second or more after an error. The second all-reduce of
  # the self-test is that of fp64.
  for call in all-reduce:1 all-reduce:2; do wrong $call; done
  for call in reduce-scatter:1 reduce:2 all-gather:1 broadcast:1 all-gather:2 broadcast:3; do wrong $call --shard-optimizer; done
  wait
  names all-reduce all-reduce:1
  names 'fp64 all-reduce' all-reduce:2
  names reduce-scatter reduce-scatter:1 reduce:2
  names all-gather all-gather:1 broadcast:1
  names '16-bit all-gather' all-gather:2 broadcast:3
  NCCL_STAND_IN_CALLS=$T/calls say 2 "$T/right" --steps 1 --allreduce-transport nccl --shard-optimizer
  [ "$(grep -cE "^rank [01] all-reduce 4 reduce 4 reduce-scatter 1 all-gather 2 broadcast 6$" "$T/calls")" -eq 2 ]
  NCCL_STAND_IN_CALLS=$T/limited say 2 "$T/few" --steps 2 --allreduce-transport nccl --nccl-ctas 4
  [ "$(grep -cE "^rank [01] .* ctas 4$" "$T/limited")" -eq 2 ]
  NCCL_STAND_IN_OCCUPY=4:20:1 NCCL_STAND_IN_CALLS=$T/occupied say 1 "$T/occupied-run" --steps 2 --allreduce-transport nccl
  grep -qE "^rank 0 .* occupied [1-9]" "$T/occupied"
  NCCL_STAND_IN_OCCUPY=4:20 run say 1 "$T/refused" --steps 2 --allreduce-transport nccl
  failed_in_time
  one_error "stand-in: NCCL_STAND_IN_OCCUPY is not CTAS:US:GBS"
  NCCL_STAND_IN_FAIL=all-reduce:4:1 run say 2 "$T/fail" --steps 100 --allreduce-transport nccl
  failed_in_time
  one_error "rank 1 on .*NCCL failed in a collective: remote process exited or there was a network error (stand-in: failed by"
}
