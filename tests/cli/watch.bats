#!/usr/bin/env bats
# trireme watch: a run in the terminal. Most tests print one frame of a run directory that they write;
# those of the screen use tmux as the terminal.
# run-tests: waits

load ../tools/wait
bats_require_minimum_version 1.5.0

setup() {
  T=$BATS_TEST_TMPDIR
  cd "$T"
  export COLUMNS=80 LINES=24 LC_ALL=C TMUX_TMPDIR=$T
  unset NO_COLOR TMUX
}

teardown() {
  # tmux ends its server with the last session.
  if [ -S "$T/tmux-$(id -u)/watch" ]; then tmux -L watch kill-server 2> /dev/null || true; fi
}

# metrics FIRST LAST: prints records of steps FIRST, FIRST + 10 … LAST, ten steps a second.
metrics() {
  awk -v first="$1" -v last="$2" 'BEGIN { for (s = first; s <= last; s += 10)
    printf "{\"step\":%d,\"seconds\":%.1f,\"nll\":%.4f,\"lr\":0.001,\"grad_norm\":0.5,\"target_tokens_per_s\":12345.6,\"data_wait_ms\":10,\"forward_ms\":30,\"backward_ms\":60}\n",
      s, s / 10, 2 + 5 * exp(-s / 200) }'
}

# make_run DIR STEPS: writes a run that has trained 1,000 of STEPS steps; its files are new.
make_run() {
  mkdir -p "$1"
  metrics 10 1000 > "$1/metrics.jsonl"
  cat > "$1/processes.jsonl" << EOF
{"time":1.0,"step":0,"command":"train --run \"x\"","ranks":2,"hosts":["a","b"],"device":"cpu","steps":$2}
EOF
  touch -d '+1 hour' "$1/metrics.jsonl"
}

once() { "$TRIREME" watch "$1" --once; }

@test "one frame: steps, time left, the curve with its axes, figures" {
  make_run run 2000
  once run > frame
  grep -qx 'run  running' frame
  grep -qx 'step 1,000 of 2,000 (50 %)  1m 40s, 1m 40s left  2 ranks, cpu' frame
  grep -qx 'nll 2.0337' frame
  grep -q '^   6.756 ' frame
  grep -q '^   2.034 ' frame
  grep -qE '^ +step 10 +1,000$' frame
  grep -qx 'loss  2.0337  lr 0.001  gnorm 0.50' frame
  grep -qx 'speed  12,345 tokens/s' frame
  grep -qx 'step  100 ms:  data 10 %  forward 30 %  backward 60 %' frame
}

@test "the curve falls from the upper left to the lower right" {
  make_run run 2000
  once run > frame
  # The first row of the curve has dots at its left only, the last at its right.
  [[ "$(sed -n 4p frame)" =~ ^"   6.756 "[\':.]{1,6}$ ]]
  [[ "$(grep '^   2.034 ' frame)" =~ ^"   2.034 "\ {20,}[\':.]+$ ]]
}

@test "with UTF-8 the curve has Braille dots, without it every byte is ASCII" {
  make_run run 2000
  once run > frame
  run ! grep -q '[^ -~]' frame
  LC_ALL=C.UTF-8 once run | LC_ALL=C grep -q $'\xe2\xa0'
}

@test "small terminals: no line is wider, none is lost below" {
  make_run run 2000
  for size in '40 12' '20 4' '80 5' '21 40' '200 60'; do
    COLUMNS=${size% *} LINES=${size#* } once run > frame
    [ "$(wc -l < frame)" -le "${size#* }" ]
    [ "$(wc -L < frame)" -le "${size% *}" ]
    grep -q 'running' frame
  done
  COLUMNS=40 LINES=12 once run > frame
  grep -qx 'step 1,000 of 2,000 (50 %)  1m 40s left' frame
  grep -q '^loss  2.0337' frame
  COLUMNS=10 LINES=3 once run | grep -qx 'too small'
}

@test "a run that is complete, one that is silent, one without measurements, one that is not there" {
  make_run run 1000
  once run | grep -qx 'run  complete'
  make_run run 2000
  touch -d '2 hours ago' run/metrics.jsonl
  once run | grep -qE '^run  nothing written for 2h 00m( |$)'
  mkdir empty
  once empty | grep -qx 'empty  no measurements yet'
  run -1 once missing
  [ "$output" = "trireme: missing does not exist: give the directory of a run" ]
}

@test "a run whose last step is saved, but in no record, is complete" {
  make_run run 1005
  mkdir run/checkpoints
  ln -s step-00001000 run/checkpoints/latest
  once run | grep -qx 'run  running'
  ln -sfn step-00001005 run/checkpoints/latest
  once run > frame
  grep -qx 'run  complete' frame
  grep -qx 'step 1,005 of 1,005 (100 %)  1m 40s  2 ranks, cpu' frame
  "$TRIREME" watch run < /dev/null > lines # ends
  grep -q 'complete$' lines
  : > run/metrics.jsonl
  once run | grep -qx 'run  complete'
  ln -sfn elsewhere run/checkpoints/latest
  once run | grep -qx 'run  no measurements yet'
}

@test "steps that were undone are not shown" {
  make_run run 2000
  { echo '{"step":500,"seconds":101,"event":"rollback","undone_after":500,"rollbacks":1}'
    metrics 510 600; } >> run/metrics.jsonl
  touch -d '+1 hour' run/metrics.jsonl
  once run > frame
  grep -q '^step 600 of 2,000' frame
  grep -qE '^ +step 10 +600$' frame
  grep -q '^rollback  at step 500$' frame
}

@test "hosts, GPUs and ranks: what was measured, with the slowest rank named" {
  make_run run 2000
  cat > run/system.jsonl << 'EOF'
{"time":1000.0,"host":"a","cpu":[20,80],"memory_used":2000000000,"memory_total":8000000000,"net":{"eth0":{"received":1000000,"sent":3000000,"speed":1000},"eth1":{"received":1000000,"sent":0}},"gpu":[{"index":0,"name":"H200","busy":97,"memory_used":1000000000,"memory_total":2000000000,"watts":612,"celsius":61,"throttle":["power_cap"]}],"step":1004}
{"time":1000.1,"host":"b","cpu":[5,5],"step":1004}
EOF
  echo '{"step":1000,"seconds":100,"event":"ranks","rank_ms":[100,100],"rank_wait_ms":[40,5],"rank_data_ms":[1,2],"hosts":["a","b"]}' >> run/metrics.jsonl
  touch -d '+1 hour' run/*.jsonl
  LINES=40 once run > frame
  grep -q '^step 1,004 of 2,000' frame
  grep -qx 'host  a  CPU 50 %  busiest of 2 cores 80 %  memory 2.0 GB of 8.0 GB' frame
  grep -qx '      net 2.0 MB/s in, 3.0 MB/s out' frame
  grep -qx '  GPU 0  97 %  1.0 GB of 2.0 GB  612 W  61 C  slowed: power_cap' frame
  grep -qx 'host  b  CPU 5 %  busiest of 2 cores 5 %' frame
  grep -qx 'rank 0  a  100 ms  waits 40 ms  data 1 ms' frame
  grep -qx 'rank 1  b  100 ms  waits 5 ms  data 2 ms  slowest' frame
}

@test "more hosts than there are lines: none is in the line of another" {
  make_run run 2000
  for i in $(seq 300); do echo "{\"time\":1000.0,\"host\":\"node$i\",\"cpu\":[1]}"; done > run/system.jsonl
  LINES=1000 once run > frame
  grep -qx 'host  node200  CPU 1 %' frame
  run ! grep -q 'node.*node' frame
}

@test "the sum of many impossible rates is a number of bytes" {
  make_run run 2000
  { printf '{"time":1000.0,"host":"a","net":{"e0":{"received":1,"sent":1}'
    for i in $(seq 40); do printf ',"e%d":{"received":9e17,"sent":9e17}' "$i"; done
    printf '}}\n'; } > run/system.jsonl
  once run > frame
  grep -qE '^host  a  net ([0-9.]+ [A-Z]B)/s in, \1/s out$' frame
  run ! grep -qE 'net 0 B' frame
}

@test "damaged lines are counted, and what they contain does not reach the terminal" {
  make_run run 2000
  printf '{"step":1010,"seconds":101,"nll":1,"evil\033[2J":3}\n{"step":\n\033[31m\n' >> run/metrics.jsonl
  printf '{"time":1000.0,"host":"a\\u001b[31mb\033[2J","cpu":[1]}\n' > run/system.jsonl
  printf '{"steps":"many\033[2J","device":"\\u001b[5mx"}\n' >> run/processes.jsonl
  touch -d '+1 hour' run/metrics.jsonl
  LC_ALL=C.UTF-8 LINES=40 once run > frame
  LC_ALL=C run ! grep -q $'\033' frame
  grep -q '^damaged  ' frame
}

@test "a reason that is wider than the terminal continues on the next lines, whole words first" {
  make_run run 2000
  reason="rank 3 on machine-with-a-long-name: no heartbeat for 12 s (killed, stopped or network down); last reported: step 840, backward: THE END"
  echo "{\"step\":1000,\"seconds\":100,\"event\":\"restart\",\"restart_reason\":\"$reason\"}" >> run/metrics.jsonl
  for cols in 80 40; do
    COLUMNS=$cols LINES=40 once run > frame
    run ! grep -qE "^.{$((cols + 1))}" frame
    [[ "$(sed -n '/^restart/,$p' frame | tr -s ' \n' ' ')" =~ ^"restart at step 1,000 $reason" ]]
  done
}

@test "a reason of more bytes than a line has continues on the next lines, with every character whole" {
  make_run run 2000
  words=$(printf 'word %.0s' {1..98})
  accents=$(printf 'é%.0s' {1..248})
  for reason in "${words}THE-END" "$accents-THE-END"; do
    metrics 10 1000 > run/metrics.jsonl
    echo "{\"step\":1000,\"seconds\":100,\"event\":\"restart\",\"restart_reason\":\"$reason\"}" >> run/metrics.jsonl
    touch -d '+1 hour' run/metrics.jsonl
    for cols in 80 200 290 500 540 600; do
      LC_ALL=C.UTF-8 COLUMNS=$cols LINES=60 once run > frame
      shown=$(sed -n '/^restart/,$p' frame | tr -d ' \n')
      [[ "$shown" == *"${reason// /}"* ]] || { echo "$cols columns: $shown"; false; }
    done
  done
}

@test "a run with more names of values than watch can keep: those that fit, and what is left out" {
  make_run run 2000
  perl -e 'print "{\"step\":1010,\"seconds\":101", (map { ",\"v$_\":1" } 1 .. 300), "}\n"' >> run/metrics.jsonl
  COLUMNS=200 once run > frame
  grep -qx 'loss  2.0337  lr 0.001  gnorm 0.50' frame
  grep -q '^left out  metrics.jsonl has values of more than 256 names; those after the first 256 are left out, such as v' frame
}

@test "without a terminal: a line for each change, from before the run begins until it is complete" {
  "$TRIREME" watch run > lines 2>&1 3>&- &
  pid=$!
  until_true grep -qx 'run: does not exist yet' lines
  make_run new 1100
  mv new run # with all files at once
  until_true grep -q '^step 1,000 of 1,100 (90.9 %)  loss 2.0337  12,345 tokens/s  1m 40s, 10s left  running$' lines
  metrics 1010 1100 >> run/metrics.jsonl
  wait "$pid"
  [[ "$(tail -n 1 lines)" == "step 1,100 of 1,100 (100 %)  loss 2.0204  12,345 tokens/s  1m 50s  complete" ]]
}

@test "TERM=dumb on a terminal: lines without control sequences" {
  make_run run 1000
  script -qec "env TERM=dumb '$TRIREME' watch run" /dev/null > lines < /dev/null
  grep -q '^step 1,000 of 1,000 (100 %)' lines
  run ! grep -q $'\033' lines
}

@test "without the plug-in of the screen the package is named, and --once works" {
  make_run run 2000
  mkdir bin
  cp "$TRIREME" bin/trireme
  run script -qec "env TERM=xterm TRIREME_PLUGIN_PATH= bin/trireme watch run" /dev/null
  [ "$status" -eq 1 ]
  [[ "$output" =~ "the screen of watch is not available (install libncurses-dev and run make again; --once prints one frame without it)" ]]
  bin/trireme watch run --once | grep -qx 'run  running'
}

need_screen() {
  command -v tmux > /dev/null || skip "tmux is not installed"
  [ -f "$(dirname "$TRIREME")/libtrireme-watch.so" ] || skip "ncurses is not installed"
}

# begin_screen [NAME=VALUE…]: shows `run` in a terminal of 80 by 24.
begin_screen() {
  printf '#!/bin/sh\nenv %s "%s" watch run\necho "ended with $?" > status\n' "$*" "$TRIREME" > show
  chmod +x show
  tmux -L watch -f /dev/null new-session -d -x 80 -y 24 ./show
}
screen() { tmux -L watch capture-pane -p "$@"; }
key() { tmux -L watch send-keys "$@"; }
shows() { screen | grep -qE -- "$1"; }
hides() { ! screen | grep -qE -- "$1"; }

@test "screen: waits for the run, shows it and what is added, and q ends it" {
  need_screen
  begin_screen
  until_true shows '^run  does not exist yet'
  make_run run 2000
  until_true shows '^step 1,000 of 2,000 \(50 %\)'
  until_true shows '^nll 2.0337'
  shows '^q quit  h help'
  metrics 1010 1100 >> run/metrics.jsonl
  touch -d '+1 hour' run/metrics.jsonl
  until_true shows '^step 1,100 of 2,000'
  key q
  until_true grep -qx 'ended with 0' status
}

@test "screen: keys select another value, zoom, the logarithmic axis, help and lines out of sight" {
  need_screen
  make_run run 2000
  for i in $(seq 12); do echo "{\"time\":1000.0,\"host\":\"host$i\",\"cpu\":[1]}"; done > run/system.jsonl
  begin_screen
  until_true shows '^nll 2.0337'
  key Right
  until_true shows '^target_tokens_per_s '
  key Left Left
  until_true shows '^(forward|backward|data_wait)_ms '
  key Right l
  until_true shows '^nll 2.0337  log axis'
  key l + +
  until_true shows '^nll 2.0337  last 1/4'
  until_true shows 'step 752 '
  key -
  until_true shows '^nll 2.0337  last 1/2'
  hides 'host12'
  shows 'down: [0-9]+ more'
  for i in $(seq 12); do key Down; done
  until_true shows 'host12'
  key h
  until_true shows 'quit; training is not affected'
  key h
  until_true shows '^nll 2.0337'
}

@test "screen: follows the terminal's size down to nothing and back" {
  need_screen
  make_run run 2000
  begin_screen
  until_true shows '^nll 2.0337'
  tmux -L watch resize-window -x 40 -y 12
  until_true shows '^step 1,000 of 2,000 \(50 %\)  1m 40s left$'
  tmux -L watch resize-window -x 15 -y 3
  until_true shows '^too small'
  tmux -L watch resize-window -x 100 -y 30
  until_true shows '^step 1,000 of 2,000 \(50 %\)  1m 40s, 1m 40s left  2 ranks'
}

@test "screen: a run that is removed and begun anew is followed" {
  need_screen
  make_run run 2000
  begin_screen
  until_true shows '^step 1,000 of 2,000'
  mv run old
  until_true shows '^run  does not exist yet'
  mkdir run
  until_true shows '^run  no measurements yet'
  metrics 10 200 > run/metrics.jsonl
  until_true shows '^step 200'
  key q
  until_true grep -qx 'ended with 0' status
}

@test "screen: has colours" {
  need_screen
  make_run run 2000
  begin_screen
  until_true shows '^nll 2.0337'
  screen -e | grep -q $'\033\\[3[0-7]m'
}

@test "screen: NO_COLOR has none; SIGTERM ends it in order" {
  need_screen
  make_run run 2000
  begin_screen NO_COLOR=1
  until_true shows '^nll 2.0337'
  screen -e > escapes
  run ! grep -q $'\033\\[3[0-7]m' escapes
  pkill -TERM -P "$(tmux -L watch list-panes -F '#{pane_pid}')"
  until_true grep -qx 'ended with 0' status
}
