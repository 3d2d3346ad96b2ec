#!/usr/bin/env bats
# RUN/system.jsonl: measurements of every host of a run.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() { make_set; }
setup() { T=$BATS_TEST_TMPDIR; }

# on_hosts HOSTS RANKS COMMAND…: becomes an mpirun of the command on ranks that believe to be on this many
# hosts.
on_hosts() {
  local hosts=$1 ranks=$2 r list=()
  shift 2
  for ((r = 0; r < ranks; r++)); do
    if [ "$r" -gt 0 ]; then list+=(:); fi
    list+=(-n 1 env "TRIREME_HOST=h$((r % hosts))" "$@")
  done
  exec mpirun "${list[@]}"
}
lines() { cat "$T/run/system.jsonl" 2> /dev/null | wc -l; }
# each CONDITION: it is true (in Perl) for every line, whose object is $_, and there is a line.
each() {
  perl -MJSON::PP -e 'my ($condition, @lines) = ($ARGV[0]); open my $in, "<", $ARGV[1] or die;
    for my $line (<$in>) { local $_ = decode_json($line); push @lines, $line; eval $condition or die "$@: $line" }
    die "no line\n" unless @lines' "$1" "$T/run/system.jsonl"
}
# gpu INDEX: prints that GPU of the first line with sorted keys.
gpu() { head -n 1 "$T/run/system.jsonl" | perl -MJSON::PP -e 'print JSON::PP->new->canonical->encode(decode_json(<STDIN>)->{gpu}[$ARGV[0]])' "$1"; }
# build_nvml [OPTION…]: makes the fake NVML, with these compiler options, the one that is loaded.
build_nvml() {
  mkdir "$T/nvml"
  "${CC:-cc}" -shared -fPIC "$@" "$BATS_TEST_DIRNAME/../device/fake_nvml.c" -o "$T/nvml/libnvidia-ml.so.1"
  export LD_LIBRARY_PATH=$T/nvml:${LD_LIBRARY_PATH:-}
}

@test "a run measures its host, a short one at its end" {
  train 1 "$T/run" --steps 2
  each '$_->{host} eq "'"$(hostname)"'" && $_->{time} > 1.6e9 && @{$_->{cpu}} >= 1'
  each '!grep { $_ < 0 || $_ > 100 } @{$_->{cpu}}'
  each '$_->{memory_used} > 0 && $_->{memory_total} > $_->{memory_used} && $_->{process_memory} > 0'
  each '$_->{step} >= 0 && $_->{step} <= 2 && exists $_->{disk_free}'
  grep -q 'system   .* samples of this host, 0 of other hosts dropped' "$T/run/log.txt"
}

@test "system.jsonl goes on after --resume, also after an incomplete line" {
  train 1 "$T/run" --steps 2
  local before
  before=$(lines)
  printf '{"time":1' >> "$T/run/system.jsonl"
  train 1 "$T/run" --resume --steps 3
  [ "$(grep -c '^{"time":1$' "$T/run/system.jsonl")" -eq 1 ]
  sed -i '/^{"time":1$/d' "$T/run/system.jsonl"
  each '$_->{host}'
  [ "$(lines)" -gt "$before" ]
}

@test "--system-metrics no measures nothing" {
  train 1 "$T/run" --steps 2 --system-metrics no
  [ ! -e "$T/run/system.jsonl" ]
  run ! grep -q '  system   ' "$T/run/log.txt"
}

@test "lost lines of system.jsonl are reported once, and at the end with exit status 1" {
  [ -w /dev/full ] || skip "there is no /dev/full"
  train 1 "$T/run" --steps 2
  ln -sf /dev/full "$T/run/system.jsonl"
  run -1 "$TRIREME" train --quiet --run "$T/run" --resume --steps 4
  [ "$(grep -c '^warning: .*system.jsonl: No space left' <<< "$output")" -eq 1 ]
  [[ "$output" =~ "trireme: $T/run: could not be written and are lost: "[1-9][0-9]*" lines of system.jsonl; the checkpoints are complete" ]]
  [ "$(last_step "$T/run")" -eq 4 ]
}

@test "a system.jsonl that cannot be opened is a warning, and training goes on" {
  train 1 "$T/run" --steps 2
  rm "$T/run/system.jsonl"
  mkdir "$T/run/system.jsonl"
  run -1 "$TRIREME" train --quiet --run "$T/run" --resume --steps 4
  [ "$(grep -c '^warning: .*system.jsonl' <<< "$output")" -eq 1 ]
  [ "$(last_step "$T/run")" -eq 4 ]
}

@test "GPUs are measured through NVML; what one does not report is left out" {
  build_nvml
  train 1 "$T/run" --steps 2
  each '@{$_->{gpu}} == 2'
  [ "$(gpu 0)" = '{"busy":97,"celsius":61,"index":0,"memory_mhz":3201,"memory_total":16000000000,"memory_used":200000000,"name":"Test GPU","sm_mhz":1980,"throttle":["power_cap","hw_thermal","other"],"watts":612.3,"watts_limit":700}' ]
  [ "$(gpu 1)" = '{"index":1,"memory_total":16000000000,"memory_used":200000000,"name":"Test GPU"}' ]
}

@test "a driver that does not answer is a host without GPUs" {
  build_nvml -DFAKE_MISMATCH
  train 1 "$T/run" --steps 2
  each '!exists $_->{gpu}'
}

@test "a run ends although a measurement hangs in the driver" {
  build_nvml -DFAKE_HANG
  run -0 timeout -k 5 100 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet --steps 3
  [[ "$output" =~ "warning: the thread that measures this host hangs" ]]
  [ "$(last_step "$T/run")" -eq 3 ]
}

@test "a run ends although the disk hangs at a line of system.jsonl" {
  run -0 env TRIREME_FAULT=hang:system-line timeout -k 5 300 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet --steps 3
  [[ "$output" =~ "waiting at system-line" ]]
  [[ "$output" =~ "warning: the thread that measures this host hangs" ]]
  [ "$(last_step "$T/run")" -eq 3 ]
}

@test "every host of a run is in system.jsonl, with the memory of its own ranks" {
  need_mpi
  on_hosts 2 4 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --micro-batches 4 --quiet --steps 1000000 > "$T/log" 2>&1 3>&- &
  local pid=$! code=0
  until_true has_both
  kill -USR1 $pid
  wait $pid || code=$?
  [ "$code" -eq 3 ] || { cat "$T/log"; false; }
  each '$_->{host} =~ /^h[01]$/ && $_->{process_memory} > 0'
  # Only rank 0 has the run directory.
  each 'exists $_->{disk_free} eq ($_->{host} eq "h0")'
  grep -q 'system   .* 0 of other hosts dropped' "$T/run/log.txt"
}
has_both() { grep -q '"host":"h0"' "$T/run/system.jsonl" 2> /dev/null && grep -q '"host":"h1"' "$T/run/system.jsonl"; }

@test "metrics.jsonl has the times of every rank, and the share of the peak that they use" {
  need_mpi
  (on_hosts 2 3 "$TRIREME" train --data "$SET" --run "$T/run" "${MODEL[@]}" --quiet --steps 4 --log-every 2)
  perl -MJSON::PP -e 'my ($ranks, $records) = (0, 0);
    for (<STDIN>) {
      my $j = decode_json($_);
      if (($j->{event} // "") eq "ranks") {
        $ranks++;
        @{$j->{$_}} == 3 or die "$_" for qw(rank_ms rank_wait_ms rank_data_ms hosts);
        "@{$j->{hosts}}" eq "h0 h1 h0" or die "hosts";
        $j->{rank_ms}[$_] >= $j->{rank_wait_ms}[$_] + $j->{rank_data_ms}[$_] - 0.002 or die "times" for 0 .. 2;
      } else {
        $records++;
        $j->{mfu} > 0 && $j->{tflops_per_s} > 0 or die "mfu";
      }
    }
    $ranks == 2 && $records == 2 or die "$ranks, $records"' < "$T/run/metrics.jsonl"
}

@test "one rank has no record of ranks; a device of unknown peak has no mfu" {
  make_gpu
  TRIREME_PLUGIN_PATH=$BATS_FILE_TMPDIR/plugins train 1 "$T/run" --steps 2 --device cuda
  grep -q '"tflops_per_s":' "$T/run/metrics.jsonl"
  run ! grep -q '"mfu":\|"event":"ranks"' "$T/run/metrics.jsonl"
}
