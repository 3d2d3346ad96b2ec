#!/usr/bin/env bats
# The board's page in headless Chromium, on a run that trains meanwhile. 'make test-board' runs it;
# 'make test' does not, because Chromium is large. SHOTS=DIR keeps screenshots of every view.

bats_require_minimum_version 1.5.0
load ../ranks/support

setup_file() {
  make_set
}

setup() {
  CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "Chromium is not installed"
  [ -f "$(dirname "$TRIREME")/libtrireme-board.so" ] || skip "built without libmicrohttpd or dygraphs"
  export CHROMIUM
  cd "$BATS_TEST_TMPDIR"
  mkdir runs
}

teardown() {
  for pid in ${board:-} ${training:-}; do
    kill "$pid" || true
    wait "$pid" || true
  done
}

# start_board [OPTION…]: $address is the one that it prints.
start_board() {
  "$TRIREME" board runs --port 0 "$@" > address 3>&- &
  board=$!
  until_true test -s address
  address=$(cat address)
}

# make_long_run NAME RECORDS: a run as it would be after RECORDS records.
make_long_run() {
  mkdir -p "runs/$1"
  printf 'lr = 0.001\nsteps = %d\n' "$2" > "runs/$1/config"
  awk -v n="$2" 'BEGIN { for (i = 1; i <= n; i++)
    printf "{\"nll\":%.4f,\"lr\":0.001,\"steps_per_s\":2,\"target_tokens_per_s\":100,\"step\":%d,\"seconds\":%.1f}\n",
      1 + 5 / (1 + i / 500), i, i / 2 }' > "runs/$1/metrics.jsonl"
}

page() {
  timeout 550 perl "$BATS_TEST_DIRNAME/page.pl" "$@"
}

@test "page: curves of a live run appear and grow; a second run is laid over it, and deleted underneath" {
  train 1 runs/live --steps 1000000 --valid-every 20 --beam-size 1 --samples 2 --save-every 20 > log 2>&1 3>&- &
  training=$!
  until_true test -s runs/live/metrics.jsonl
  start_board
  page live "$address" runs
}

@test "page: zoom by mouse and keyboard shows the records of a long run" {
  make_long_run long 30000
  start_board
  page zoom "$address"
}

@test "page: every view fits at 1280 and 400 px, light and dark, without errors or foreign requests" {
  train 1 runs/one --steps 40 --valid-every 20 --beam-size 1 --samples 2 --save-every 20 > log 2>&1
  cp -r runs/one runs/two
  sed -i 's/^lr = .*/lr = 0.5/' runs/two/config
  start_board
  page views "$address" "${SHOTS:-}"
}

@test "page: names of runs, options and samples are text, never markup" {
  make_long_run '<img src=x onerror=window.bad=1>' 5
  cd "runs/<img src=x onerror=window.bad=1>"
  printf '<b>x = <script>window.bad=1</script>\n' >> config
  printf '{"samples":[{"<i>source":"<script>window.bad=1</script>"}],"step":5,"seconds":1}\n' > samples.jsonl
  printf '{"event":"<img src=x onerror=window.bad=1>","step":5,"seconds":1}\n' >> metrics.jsonl
  printf '{"time":1,"host":"<img src=x onerror=window.bad=1>","cpu":[1],"gpu":[{"name":"<b>gpu"}]}\n' > system.jsonl
  cd "$BATS_TEST_TMPDIR"
  start_board
  page markup "$address"
}

@test "page: values of the wrong type in the files of a run are unknown, and every view works" {
  make_long_run one 5
  cd runs/one
  odd='{"toString":1,"valueOf":1}'
  printf '{"constructor":1,"__proto__":2,"step":6,"seconds":1}\n' >> metrics.jsonl
  printf '{"event":"odd","step":6,"seconds":1,"event":%s,"step":null,"seconds":"x"}\n' "$odd" >> metrics.jsonl
  printf '{"event":"restart","step":6,"restart_count":%s,"restart_reason":%s}\n' "$odd" "$odd" >> metrics.jsonl
  printf '{"event":"ranks","rank_ms":[1,"2",null],"rank_wait_ms":5,"hosts":[%s],"step":6}\n' "$odd" >> metrics.jsonl
  printf '{"samples":[null,5,{"":%s,"marker":"shown"}],"step":5,"seconds":1}\n' "$odd" > samples.jsonl
  printf '{"command":%s,"ranks":null}\n' "$odd" > processes.jsonl
  printf '{"time":1,"host":"h1","cpu":["x",null],"net":{"a":null,"b":5,"c":{"speed":%s}},"gpu":[null,{"busy":"x","name":%s,"throttle":5}]}\n' "$odd" "$odd" > system.jsonl
  printf '{"time":2,"host":"h2","cpu":7,"net":[null],"gpu":5}\n' >> system.jsonl
  cd "$BATS_TEST_TMPDIR"
  start_board
  page odd "$address"
}

@test "page: more curves than the usual ones are all shown" {
  make_long_run one 5
  awk 'BEGIN { printf "{\"step\":6,\"seconds\":1"; for (i = 0; i < 18; i++) printf ",\"extra%d\":%d", i, i; print "}" }' >> runs/one/metrics.jsonl
  start_board
  page extra "$address"
}

@test "page: a classifier has charts of its own metrics and none of translations; beside a translation both are there" {
  mkdir runs/texts
  for step in 2 4; do
    echo "{\"nll\":1,\"steps_per_s\":2,\"tokens_per_s\":100,\"texts_per_s\":9,\"step\":$step,\"seconds\":$step}"
    echo "{\"valid_nll\":1,\"valid_f1_macro\":0.75,\"valid_accuracy\":0.8,\"step\":$step,\"seconds\":$step}"
  done > runs/texts/metrics.jsonl
  start_board
  page texts "$address"
  make_long_run pairs 5
  page both "$address"
}

@test "page: a change of a control goes through many runs with many columns a few times only" {
  make_long_run 1 5
  awk 'BEGIN { printf "{\"step\":6,\"seconds\":1"; for (i = 0; i < 60; i++) printf ",\"extra%d\":%d", i, i; print "}" }' >> runs/1/metrics.jsonl
  for i in $(seq 2 100); do cp -r runs/1 "runs/$i"; done
  start_board
  page many "$address" 100
}

@test "page: with a token the address loses it, and the page goes on with its cookie" {
  make_long_run one 10
  start_board --bind 127.0.0.1
  page token "$address"
}
