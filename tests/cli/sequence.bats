#!/usr/bin/env bats
# run-tests: waits
# Ranks that run different collectives, or wait for each other for ever, end with one line that
# names them, and leave no process or shared memory. On one host (shared memory) and on two
# (messages).

bats_require_minimum_version 1.5.0
load ../ranks/support

# on N HOSTS CASE: runs check_sequence on N ranks that report the host names h0, h1, … in turn.
on() {
  local list=() r
  for ((r = 0; r < $1; r++)); do
    if ((r)); then list+=(:); fi
    list+=(-n 1 -x "TRIREME_HOST=h$((r % $2))" "$TRIREME_TOOLS/check_sequence" "$3")
  done
  timeout 120 mpirun "${list[@]}" 2>&1
}

# wrong CASE TEXT [RANKS…]: the run ends with one error line that contains TEXT, on one host and
# on two, with 2 and 3 ranks or the given numbers of ranks.
wrong() {
  local n hosts
  for n in ${3:-2 3}; do
    for hosts in 1 2; do
      run on $n $hosts "$1"
      [ "$status" -ne 0 ] || { echo "$output"; return 1; }
      [ "$status" -ne 3 ] || { echo "$output"; return 1; }
      [ "$status" -ne 124 ] || { echo "$output"; return 1; }
      [ "$(grep -c '^trireme: ' <<< "$output")" -eq 1 ] || { echo "$output"; return 1; }
      grep -q "^trireme: .*$2" <<< "$output" || { echo "$output"; return 1; }
      [[ ! "$output" =~ MPI_ERR ]] || { echo "$output"; return 1; }
    done
  done
}

@test "a broadcast of another size: an error names both ranks and both sizes" {
  need_mpi
  wrong size "rank 0 on h0 runs 'weights' (broadcast, 1.0 kB), rank 1 on h. runs 'weights' (broadcast, 2.0 kB)"
}

@test "a collective of another name: an error names both" {
  need_mpi
  wrong name "collective [0-9]*: rank 0 on h0 runs 'losses' (sum, 8 B), rank 1 on h. runs 'norms' (sum, 8 B)"
}

@test "a collective of another kind with the same name and size: an error names both" {
  need_mpi
  wrong kind "rank 0 on h0 runs 'losses' (sum, 8 B), rank 1 on h. runs 'losses' (broadcast, 8 B)"
}

@test "collectives in another order: an error names what each rank runs" {
  need_mpi
  wrong order "rank 0 on h0 runs 'counters' (broadcast, 64 B), rank 1 on h. runs 'losses' (sum, 8 B)"
}

@test "a rank that is ahead remembers what the others should have run" {
  need_mpi
  wrong behind "rank 0 on h0 runs 'first' (broadcast, 8 B), rank 1 on h. runs 'other' (broadcast, 8 B)"
}

@test "an exchange in which one rank sends less than the other expects: an error names both sizes" {
  need_mpi
  wrong pair "'pieces' (exchange): rank 0 on h0 sends 24 bytes to rank 1 on h., which expects 32"
}

@test "buckets of gradients of another size: an error names both" {
  need_mpi
  wrong bucket "runs 'gradients' (gradient sum, 256 kB), rank 1 on h. runs 'gradients' (gradient sum, 512 kB)"
}

# bats test_tags=slow
@test "every rank waiting for the others is reported as a deadlock, with what each waits for" {
  need_mpi
  wrong deadlock "deadlock: every rank has been waiting for the others for [2-9][0-9] s; .*; rank 0 in 'losses' (sum, 8 B), rank 1 at the test" 3
}

@test "a system clock that is set back does not stop the heartbeats" {
  need_mpi
  # A CLOCK_REALTIME that is an hour ahead of the kernel's: code that computes a deadline with it
  # waits an hour too long.
  cat > "$BATS_TEST_TMPDIR/clock.c" <<- 'C'
	#include <dlfcn.h>
	#include <time.h>
	int clock_gettime(clockid_t id, struct timespec *t) {
	  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	  int code = real(id, t);
	  if (id == CLOCK_REALTIME) t->tv_sec += 3600;
	  return code;
	}
	C
  "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC "$BATS_TEST_TMPDIR/clock.c" -o "$BATS_TEST_TMPDIR/clock.so" -ldl
  if is_sanitized; then skip "the sanitizer must be loaded first"; fi
  # Only rank 1 has the wrong clock; if it stopped sending heartbeats, rank 0 would report it.
  run timeout 120 mpirun -n 1 "$TRIREME_TOOLS/check_sequence" idle : \
    -n 1 -x LD_PRELOAD="$BATS_TEST_TMPDIR/clock.so" "$TRIREME_TOOLS/check_sequence" idle
  [ "$status" -eq 0 ] || { echo "$output"; false; }
  [[ "$output" =~ "idle and alive" ]]
}

@test "ranks killed in the middle of sums leave no shared memory" {
  need_mpi
  local child i code
  TMPDIR=$BATS_TEST_TMPDIR mpirun --mca btl_vader_backing_directory "$BATS_TEST_TMPDIR" \
    -n 3 "$TRIREME_TOOLS/check_sequence" sums > "$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  child=$!
  until_there "$BATS_TEST_TMPDIR/out"
  grep -q 'and shared memory' "$BATS_TEST_TMPDIR/out"
  mapfile -t ranks < <(pgrep -P $child)
  [ "${#ranks[@]}" -eq 3 ]
  # the memory is mapped, but has no name in a file system
  grep -q 'memfd:trireme (deleted)' "/proc/${ranks[0]}/maps"
  kill -9 "${ranks[@]}"
  code=0
  wait $child || code=$?
  [ $code -ne 0 ]
  for i in "${ranks[@]}"; do [ ! -e "/proc/$i/maps" ] || [ -z "$(cat "/proc/$i/maps")" ]; done
  # Skips directories in /dev/shm, which belong to agents of trireme launch.
  run ! grep . <(find /dev/shm -maxdepth 1 -name '*trireme*' ! -type d)
}

@test "ranks of one host that cannot open each other's memory print a warning and reduce by messages" {
  need_mpi
  [ "$(id -u)" -eq 0 ] || skip "needs another process namespace, so root"
  unshare --pid --fork true 2> /dev/null || skip "no process namespaces here"
  # In another pid namespace Open MPI's single-copy mechanism does not work; leaks of its
  # libraries are not known to the leak checker.
  OMPI_MCA_btl_vader_single_copy_mechanism=none run timeout 120 mpirun -n 1 "$TRIREME_TOOLS/check_comm" : \
    -n 1 unshare --pid --fork env ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 "$TRIREME_TOOLS/check_comm"
  [ "$status" -eq 0 ] || { echo "$output"; false; }
  [[ "$output" =~ "all right on 2: 2 ranks on 1 host over" ]]
  [[ ! "$output" =~ "and shared memory" ]]
  [[ "$output" =~ "are in different process namespaces and cannot share memory" ]]
}
