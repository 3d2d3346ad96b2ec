#!/usr/bin/env bats
# trireme board: the runs below a directory, their curves as JSON, and requests that must not work.
# The page itself is tested in a browser by 'make test-board'.
# run-tests: waits

bats_require_minimum_version 1.5.0
load ../tools/wait.bash

setup() {
  [ -f "$(dirname "$TRIREME")/libtrireme-board.so" ] || skip "built without libmicrohttpd or dygraphs"
  command -v curl > /dev/null || skip "curl is not installed"
  cd "$BATS_TEST_TMPDIR"
  mkdir runs
}

teardown() {
  if [ -n "${board:-}" ]; then
    kill "$board" || true
    wait "$board" || true
  fi
}

# make_run NAME STEPS: writes a run with a record for every step.
make_run() {
  mkdir -p "runs/$1"
  printf 'lr = 0.001\nsteps = %d\n' "$2" > "runs/$1/config"
  add_steps "$1" 1 "$2"
}

# add_steps NAME FIRST LAST: appends records; nll is 1000 / step.
add_steps() {
  awk -v first="$2" -v last="$3" 'BEGIN { for (i = first; i <= last; i++)
    printf "{\"nll\":%.6f,\"lr\":0.001,\"steps_per_s\":2,\"target_tokens_per_s\":100,\"step\":%d,\"seconds\":%.1f}\n",
      1000 / i, i, i / 2 }' >> "runs/$1/metrics.jsonl"
}

# start_board [OPTION…]: starts it; $url is its address without the token, $port its port.
start_board() {
  "$TRIREME" board runs --port 0 "$@" > address 2> errors 3>&- &
  board=$!
  until_true test -s address
  url=$(sed 's/?token.*//' address)
  port=$(sed 's|.*:\([0-9]*\)/.*|\1|' address)
}

# get PATH [OPTION…]: prints the body.
get() {
  curl -sS --max-time 60 "$url$1" "${@:2}"
}

# status_of PATH [OPTION…]: prints the HTTP status.
status_of() {
  curl -sS --max-time 60 -o body -w '%{http_code}\n' "$url$1" "${@:2}"
}

# value EXPRESSION < JSON: prints a Perl expression of the document $j.
value() {
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>); $v = eval $ARGV[0]; die $@ if $@; print defined $v ? $v : "undef", "\n"' "$1"
}

# run_id NAME: prints the id of a run, once the board has found it.
run_id() {
  until_true has_run "$1"
  get api/runs | value "(grep { \$_->{name} eq '$1' } @{\$j->{runs}})[0]{id}"
}
has_run() {
  [ "$(get api/runs | value "scalar grep { \$_->{name} eq '$1' } @{\$j->{runs}}")" -eq 1 ]
}

# series ID FIELDS [KIND [MORE]]: prints the curves of a run.
series() {
  get "api/series?run=$1&kind=${3:-train}&fields=$2${4:-}"
}

# shows ID EXPRESSION VALUE: does an expression of the curves nll of a run have this value?
shows() {
  [ "$(series "$1" nll | value "$2")" = "$3" ]
}

# list_has RUN NAME VALUE: whether the list of runs has this value of a run, to three digits.
list_has() {
  [ "$(get api/runs | value "\$v = (grep { \$_->{name} eq '$1' } @{\$j->{runs}})[0]{$2}; defined \$v ? sprintf('%.3f', \$v) : undef")" = "$3" ]
}

@test "the list of runs has no values of undone steps, whether they are read with the line that undoes them or before" {
  make_run before 10
  make_run all 10
  make_run now 10
  echo '{"undone_after":8,"step":8,"seconds":4}' >> runs/before/metrics.jsonl
  echo '{"undone_after":0,"step":0,"seconds":0}' >> runs/all/metrics.jsonl
  start_board
  until_true list_has before step 8.000
  list_has before nll 125.000
  until_true list_has all step 0.000
  list_has all nll undef
  until_true list_has now nll 100.000
  echo '{"undone_after":5,"step":5,"seconds":2}' >> runs/now/metrics.jsonl
  until_true list_has now step 5.000
  list_has now nll 200.000
  add_steps now 6 6
  until_true list_has now step 6.000
  list_has now nll 166.667
}

@test "board lists the runs below a directory, those in links, and those that come later" {
  make_run one 5
  make_run below/two 7
  mkdir elsewhere
  mv runs/one elsewhere/three
  ln -s "$PWD/elsewhere" runs/link
  ln -s .. runs/below/loop
  start_board
  until_true has_run below/two
  has_run link/three
  [ "$(get api/runs | value 'scalar @{$j->{runs}}')" -eq 2 ]
  make_run new 3
  until_true has_run new
}

@test "board: a later list has only the runs that changed" {
  make_run one 5
  make_run two 5
  start_board
  run_id one
  run_id two
  is_searched() { [ "$(get api/runs | value '$j->{searched}')" = 1 ]; }
  until_true is_searched
  version=$(get api/runs | value '$j->{version}')
  [ "$(get "api/runs?since=$version" | value 'scalar @{$j->{runs}}')" -eq 0 ]
  add_steps two 6 6
  has_one() { [ "$(get "api/runs?since=$version" | value 'join ",", map { "$_->{name} $_->{step}" } @{$j->{runs}}')" = "two 6" ]; }
  until_true has_one
}

@test "board: a run that is deleted is shown as gone, with its curves" {
  make_run one 50
  start_board
  id=$(run_id one)
  until_true shows "$id" 'scalar @{$j->{step}}' 50
  rm -r runs/one
  is_gone() { [ "$(get api/runs | value '$j->{runs}[0]{gone}')" = 1 ]; }
  until_true is_gone
  shows "$id" 'scalar @{$j->{step}}' 50
  make_run one 3
  until_true shows "$id" 'scalar @{$j->{step}}' 3
}

@test "board: a curve grows with its file, and a partial last line waits" {
  make_run one 10
  start_board
  id=$(run_id one)
  until_true shows "$id" '$j->{step}[-1]' 10
  epoch=$(series "$id" nll | value '$j->{epoch}')
  printf '{"nll":5.5,"step":11,' >> runs/one/metrics.jsonl
  shows "$id" '$j->{step}[-1]' 10
  printf '"seconds":6}\n' >> runs/one/metrics.jsonl
  until_true shows "$id" '$j->{step}[-1]' 11
  series "$id" nll train "&epoch=$epoch&have=10" > later.json
  [ "$(value '"$j->{from} @{$j->{step}} $j->{columns}{nll}{mean}[-1]"' < later.json)" = "9 10 11 5.5" ]
}

@test "board: steps that were undone are shown once, with the values of the second time" {
  make_run one 100
  printf '{"undone_after":40,"step":40,"seconds":20}\n{"nll":7,"step":41,"seconds":21}\n' >> runs/one/metrics.jsonl
  start_board
  id=$(run_id one)
  until_true shows "$id" 'scalar @{$j->{step}}' 41
  shows "$id" '$j->{columns}{nll}{mean}[-1]' 7
}

@test "board: undone steps of a long run are removed from within its merged points" {
  make_run one 5000
  start_board
  id=$(run_id one)
  until_true shows "$id" '$j->{exact}' 1
  [ "$(series "$id" nll | value '$j->{each}')" -gt 1 ]
  printf '{"undone_after":2501,"step":2501,"seconds":20}\n' >> runs/one/metrics.jsonl
  until_true shows "$id" '$j->{step}[-1]' 2501
  add_steps one 2502 2502
  until_true shows "$id" '$j->{step}[-1]' 2502
  series "$id" nll train '&from=2490&to=9000' > zoom
  [ "$(value 'join " ", @{$j->{step}}' < zoom)" = "$(seq -s ' ' 2490 2502)" ]
}

@test "board: one outlier among 20,000 records is in the curve, and zooming finds its step" {
  make_run one 20000
  awk '{ if (NR == 12345) sub(/"nll":[^,]*/, "\"nll\":77.5"); print }' runs/one/metrics.jsonl > changed
  mv changed runs/one/metrics.jsonl
  start_board
  id=$(run_id one)
  until_true shows "$id" '$j->{exact}' 1
  series "$id" nll > all
  [ "$(value 'scalar @{$j->{step}}' < all)" -le 1024 ]
  [ "$(value 'scalar grep { $_ == 77.5 } @{$j->{columns}{nll}{max}}' < all)" -eq 1 ]
  series "$id" nll train '&from=12340&to=12350' > zoom
  [ "$(value '$j->{step}[5]' < zoom)" -eq 12345 ]
  [ "$(value '$j->{columns}{nll}{mean}[5]' < zoom)" = 77.5 ]
  [ "$(value '$j->{tokens}[5]' < zoom)" -eq $((12345 * 50)) ]
}

@test "board: a file that is truncated or replaced is read again" {
  make_run one 300
  start_board
  id=$(run_id one)
  until_true shows "$id" '$j->{step}[-1]' 300
  head -n 20 runs/one/metrics.jsonl > short
  cat short > runs/one/metrics.jsonl
  until_true shows "$id" '$j->{step}[-1]' 20
  sed 's/"nll":[^,]*/"nll":3/' short > runs/one/new
  mv runs/one/new runs/one/metrics.jsonl
  until_true shows "$id" '$j->{columns}{nll}{mean}[4]' 3
}

@test "board: damaged lines and names are left out, and the answer is JSON" {
  make_run one 3
  printf 'nonsense\n{"step":-1,"nll":1}\n{"nll":1e999,"step":9}\n{"a\\"b":1,"nll":2,"step":4,"seconds":2}\n\x00\xff\n' >> runs/one/metrics.jsonl
  printf 'name = "\xff\x1b[2J\\"\n' >> runs/one/config
  start_board
  id=$(run_id one)
  until_true shows "$id" 'join ",", @{$j->{step}}' 1,2,3,4
  [ "$(get "api/run?run=$id" | value 'join ",", @{$j->{columns}{train}}')" = nll,lr,steps_per_s,target_tokens_per_s ]
}

@test "board: options, process, events, checkpoints and times of ranks of a run" {
  make_run one 3
  mkdir -p runs/one/checkpoints/step-2 runs/one/checkpoints/step-3 runs/one/checkpoints/partial
  ln -s step-2 runs/one/checkpoints/best
  printf '%s\n' '{"event":"restart","restart_count":1,"restart_reason":"rank 1 died","step":2,"seconds":1}' \
    '{"event":"ranks","rank_ms":[10,12],"hosts":["a","b"],"step":3,"seconds":2}' >> runs/one/metrics.jsonl
  printf '{"command":"first"}\n{"command":"train --lr 1","ranks":2}\n{"command":"not yet' > runs/one/processes.jsonl
  start_board
  id=$(run_id one)
  get "api/run?run=$id" > it
  [ "$(value '$j->{process}{command}' < it)" = "train --lr 1" ]
  [ "$(value 'join " ", map { @$_ } @{$j->{config}}' < it)" = "lr 0.001 steps 3" ]
  [ "$(value 'join " ", sort map { $_->{step} . ($_->{is_best} ? " best" : "") } @{$j->{checkpoints}}' < it)" = "2 best 3" ]
  [ "$(value 'join " ", map { "$_->{event} $_->{restart_reason}" } @{$j->{events}}' < it)" = "restart rank 1 died" ]
  [ "$(value '$j->{ranks}{rank_ms}[1]' < it)" = 12 ]
}

@test "board: of many long events the last ones are in the answer" {
  make_run one 3
  text=$(head -c 60000 /dev/zero | tr '\0' a)
  for i in $(seq 40); do printf '{"event":"note","text":"%s","step":3,"number":%d}\n' "$text" "$i"; done >> runs/one/metrics.jsonl
  start_board
  id=$(run_id one)
  has_last() { get "api/run?run=$id" > it && grep -q '"number": *40\b' it; }
  until_true has_last
  [ "$(value '$j->{events}[-1]{number}' < it)" = 40 ]
  [ "$(wc -c < it)" -lt 2000000 ]
}

# fact NAME: prints a value of the only run in the list.
fact() {
  get api/runs | value "\$j->{runs}[0]{$1}"
}
has_fact() {
  [ "$(fact "$1")" = "$2" ]
}

@test "board: the list follows a config that changes, and forgets the values of a file that is replaced" {
  make_run one 5
  printf '{"valid_bleu":31.5,"step":5,"seconds":3}\n' >> runs/one/metrics.jsonl
  start_board
  until_true has_fact valid_bleu 31.5
  until_true has_fact steps 5
  printf 'lr = 0.001\nsteps = 2k\n' > runs/one/config
  until_true has_fact steps 2000
  rm runs/one/metrics.jsonl
  add_steps one 1 7
  until_true has_fact step 7
  has_fact valid_bleu undef
}

@test "board: of a classifier the list has its metric, and tokens are those of its texts" {
  mkdir -p runs/one
  for step in 2 4; do
    echo "{\"nll\":1,\"steps_per_s\":2,\"tokens_per_s\":100,\"texts_per_s\":9,\"step\":$step,\"seconds\":$step}"
  done > runs/one/metrics.jsonl
  echo '{"valid_f1_macro":0.75,"valid_pearson":0.5,"step":4,"seconds":5}' >> runs/one/metrics.jsonl
  start_board
  until_true has_fact valid_f1_macro 0.75
  has_fact valid_pearson 0.5
  has_fact tokens_per_s 100
  id=$(run_id one)
  until_true shows "$id" '$j->{tokens}[-1]' 200
}

@test "board: the list of a board that is started later has the last validation before many records" {
  make_run one 5
  printf '{"valid_bleu":31.5,"step":5,"seconds":3}\n' >> runs/one/metrics.jsonl
  add_steps one 6 1000
  start_board
  until_true has_fact step 1000
  has_fact valid_bleu 31.5
}

@test "board: a process that resumed the run and trains steps again is an event" {
  make_run one 9
  printf '{"undone_after":6,"step":6,"seconds":3}\n' >> runs/one/metrics.jsonl
  add_steps one 7 8
  start_board
  id=$(run_id one)
  get "api/run?run=$id" > it
  [ "$(value 'join " ", map { "$_->{undone_after} $_->{step}" } @{$j->{events}}' < it)" = "6 6" ]
}

@test "board: hosts of a few runs stay in memory, those of others are read again" {
  for i in $(seq 10); do
    make_run "run$i" 3
    printf '{"time":%d,"host":"h%d","cpu":[50]}\n' "$((1000 + i))" "$i" > "runs/run$i/system.jsonl"
  done
  start_board
  has_all() { [ "$(get api/runs | value 'scalar @{$j->{runs}}')" -eq 10 ]; }
  until_true has_all
  mapfile -t ids < <(get api/runs | value 'join "\n", map { $_->{id} } sort { substr($a->{name}, 3) <=> substr($b->{name}, 3) } @{$j->{runs}}')
  host() { get "api/host?run=${ids[$1 - 1]}&host=0&fields=cpu"; }
  before=$(host 1 | value '$j->{epoch}')
  [ "$(host 1 | value '$j->{epoch}')" = "$before" ]
  for i in $(seq 2 10); do [ "$(host "$i" | value '$j->{step}[0]')" -eq $((1000 + i)) ]; done
  host 1 > again
  [ "$(value '$j->{epoch}' < again)" != "$before" ]
  [ "$(value '$j->{step}[0]' < again)" -eq 1001 ]
}

@test "board: hosts with their last sample and history" {
  make_run one 3
  for i in $(seq 20); do
    printf '{"time":%d,"host":"h1","cpu":[10,%d],"memory_used":5,"gpu":[{"index":0,"busy":%d}]}\n' $((1000 + i)) "$i" "$i"
    printf '{"time":%d,"host":"h2","cpu":[50,50]}\n' $((1000 + i))
  done > runs/one/system.jsonl
  start_board
  id=$(run_id one)
  get "api/system?run=$id" > it
  [ "$(value 'join " ", map { $_->{name} } @{$j->{hosts}}' < it)" = "h1 h2" ]
  [ "$(value '$j->{hosts}[0]{latest}{cpu}[1]' < it)" -eq 20 ]
  get "api/host?run=$id&host=0&fields=cpu,gpu0_busy" > history
  [ "$(value 'scalar @{$j->{columns}{cpu}{mean}}' < history)" -eq 20 ]
  [ "$(value '$j->{columns}{gpu0_busy}{mean}[6]' < history)" -eq 7 ]
}

@test "board: samples, without those that were undone" {
  make_run one 3
  printf '%s\n' '{"step":1,"seconds":1,"samples":[{"source":"a","reference":"b","output":"c"}]}' \
    '{"step":2,"seconds":1,"samples":[]}' '{"undone_after":1,"step":1,"seconds":1}' \
    '{"step":3,"seconds":1,"samples":[{"source":"x"}]}' > runs/one/samples.jsonl
  start_board
  id=$(run_id one)
  [ "$(get "api/samples?run=$id" | value 'join " ", map { $_->{step} } @{$j->{samples}}')" = "1 3" ]
}

@test "board: the page and its files are there, and nothing in them is from elsewhere" {
  start_board
  for path in '' board.js board.css store.js chart.js curves.js panels.js dygraph.js dygraph.css; do
    [ "$(status_of "$path" -D headers.txt)" = 200 ]
    [ -s body ]
    grep -qi "^Content-Security-Policy: default-src 'none'; script-src 'self'" headers.txt
    grep -qi '^X-Content-Type-Options: nosniff' headers.txt
    if [[ "$path" != dygraph* ]]; then
      run -1 grep -E '(src|href)="?(https?:)?//|@import|eval\(' body
    fi
  done
}

@test "board: HEAD has the headers of GET and no body" {
  start_board
  curl -sS -I "$url" > headers.txt
  grep -q '^HTTP/1.1 200' headers.txt
  grep -qi '^Content-Type: text/html' headers.txt
}

@test "board ends with status 0 on SIGINT and on SIGTERM" {
  for signal in INT TERM; do
    start_board
    kill -s "$signal" "$board"
    ended=0
    wait "$board" || ended=$?
    board=
    [ "$ended" -eq 0 ]
    rm address
  done
}

@test "board refuses a directory that is not there, and a port that is in use" {
  run -2 "$TRIREME" board nowhere
  [[ "$output" == *"there is no directory nowhere"* ]]
  start_board
  run -1 "$TRIREME" board runs --port "$port"
  [[ "$output" == *"port $port is in use"* ]]
  run -2 "$TRIREME" board runs --port 0 --bind example.org
  [[ "$output" == *"--bind example.org: not an address"* ]]
}

@test "board without its plug-in names the packages to install" {
  mkdir bin
  cp "$TRIREME" bin/
  TRIREME_PLUGIN_PATH='' run -1 bin/trireme board runs
  [[ "$output" == *"install libmicrohttpd-dev and libjs-dygraphs"* ]]
}

# Requests that must not work.

@test "board: a path that leaves the page's tables is not found, however it is written" {
  echo secret > secret
  make_run one 3
  start_board
  for path in ../secret ..%2fsecret %2e%2e/%2e%2e/etc/passwd ..%5csecret ....//secret /etc/passwd \
    api/../../secret runs/one/config api/runs/ api/run/x board.js/ .git/config '%c0%ae%c0%ae/secret'; do
    [ "$(status_of "$path" --path-as-is)" = 404 ]
    run -1 grep -q -e secret -e root: body
  done
}

@test "board: a coded NUL in the path is refused" {
  start_board
  [ "$(status_of 'api/runs%00.js')" = 400 ]
  [ "$(status_of '%00')" = 400 ]
}

@test "board: ids that are no ids are refused, unknown ones are not found" {
  make_run one 3
  start_board
  for id in '' x ../one one 0123456789ABCDEF 0123456789abcdef0 '%2e%2e%2f%2e%2e%2fetc' "0123456789abcde'"; do
    requests=()
    for path in run series samples system host; do requests+=(-o body "${url}api/$path?run=$id&kind=train"); done
    [ "$(curl -sS --max-time 60 -w '%{http_code} ' "${requests[@]}")" = "400 400 400 400 400 " ]
  done
  [ "$(status_of 'api/run')" = 400 ]
  [ "$(status_of 'api/run?run=0123456789abcdef')" = 404 ]
}

@test "board: ranges and numbers that are none are refused" {
  make_run one 3
  start_board
  id=$(run_id one)
  for query in kind=nothing kind= fields=nll 'kind=train&from=5' 'kind=train&from=5&to=4' 'kind=train&from=-1&to=4' \
    'kind=train&from=nan&to=nan' 'kind=train&from=0&to=1e999' 'kind=train&from=0x1&to=9' 'kind=train&have=-1' \
    'kind=train&have=1x' "kind=train&fields=$(seq -s , 60)"; do
    [ "$(status_of "api/series?run=$id&$query")" = 400 ]
  done
  [ "$(status_of 'api/runs?since=abc')" = 400 ]
  [ "$(status_of "api/host?run=$id&host=1.5")" = 400 ]
  [ "$(status_of "api/host?run=$id&host=0")" = 404 ]
}

@test "board: methods other than GET and HEAD, and requests with a body, are refused" {
  start_board
  for method in POST PUT DELETE OPTIONS PATCH CONNECT TRACE NONSENSE; do
    [ "$(status_of api/runs -X "$method")" = 405 ]
  done
  [ "$(status_of api/runs --data 'a=b')" = 405 ]
  [ "$(status_of api/runs -X GET --data 'a=b')" = 400 ]
  [ "$(status_of api/runs -X GET -H 'Transfer-Encoding: chunked' --data 'a=b')" = 400 ]
}

@test "board: a Host that is not this machine is refused, as after DNS rebinding" {
  start_board
  for host in evil.example evil.example:80 127.0.0.1.evil.example localhost.evil.example 10.0.0.1 'localhost:x' '' '[::1' "$(hostname)"; do
    [ "$(status_of api/runs -H "Host: $host")" != 200 ]
  done
  [ "$(status_of api/runs -H 'Host: evil.example')" = 421 ]
  for host in localhost "localhost:$port" 127.0.0.1 LOCALHOST:1 '[::1]:5'; do
    [ "$(status_of api/runs -H "Host: $host")" = 200 ]
  done
  exec 4<> "/dev/tcp/127.0.0.1/$port"
  printf 'GET /api/runs HTTP/1.0\r\n\r\n' >&4
  timeout 60 cat <&4 > answer || true
  exec 4>&-
  grep -q '^HTTP/1.[01] 4' answer
}

@test "board with --bind needs the token, which appears in the printed address alone" {
  make_run one 3
  start_board --bind 127.0.0.1
  token=$(sed -n 's/.*?token=\([0-9a-f]*\)$/\1/p' address)
  [ ${#token} -eq 32 ]
  for path in '' board.js api/runs 'api/runs?token=' "api/runs?token=${token:1}" "api/runs?token=${token}0" \
    'api/runs?token=00000000000000000000000000000000' "api/runs?token=${token^^}x" 'api/nothing'; do
    [ "$(status_of "$path")" = 403 ]
  done
  [ "$(status_of api/runs -H "Cookie: trireme_board_$port=00000000000000000000000000000000")" = 403 ]
  [ "$(status_of api/runs -H "Cookie: token=$token")" = 403 ]
  [ "$(status_of api/runs -H "Authorization: Bearer $token")" = 403 ]
  [ "$(status_of "?token=$token" -c jar -D headers.txt)" = 200 ]
  grep -qi "^Set-Cookie: trireme_board_$port=.*HttpOnly; SameSite=Strict" headers.txt
  [ "$(status_of api/runs -b jar)" = 200 ]
  [ "$(status_of api/runs -b jar -H 'Host: evil.example')" = 421 ]
  # The cookie is of the address 127.0.0.1, so curl would not send it to another name by itself.
  name=$(hostname)
  for host in "$name" "${name%%.*}.example.org:$port"; do
    [ "$(status_of api/runs -H "Host: $host" -H "Cookie: trireme_board_$port=$token")" = 200 ]
    [ "$(status_of api/runs -H "Host: $host")" = 403 ]
  done
  [ "$(status_of api/runs -H "Host: ${name%%.*}x.example.org" -H "Cookie: trireme_board_$port=$token")" = 421 ]
  run -1 grep -rq "$token" errors runs body
}

@test "board: a second board has another token" {
  start_board --bind 127.0.0.1
  first=$(sed 's/.*token=//' address)
  kill "$board"
  wait "$board"
  rm address
  start_board --bind 127.0.0.1
  [ "$first" != "$(sed 's/.*token=//' address)" ]
}

@test "board: huge headers, many headers and a huge URL are refused" {
  start_board
  long=$(head -c 60000 /dev/zero | tr '\0' a)
  [ "$(status_of api/runs -H "X-Long: $long")" = 431 ]
  [ "$(status_of "api/runs?x=$long")" = 414 ]
  [ "$(status_of "$long")" = 414 ]
  seq -f 'X-%g: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' 2000 > headers
  [ "$(status_of api/runs -H @headers)" = 431 ]
  [ "$(status_of api/runs)" = 200 ]
}

@test "board: nonsense instead of HTTP ends its connection and nothing else" {
  export TRIREME_FAULT=board-limit:1
  start_board
  for text in 'nonsense\r\n\r\n' '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' 'GET /\r\n\r\n' 'GET / HTTP/9.9\r\nHost: localhost\r\n\r\n' \
    'GET  HTTP/1.1\r\n\r\n' 'GET / HTTP/1.1\r\nHost localhost\r\n\r\n'; do
    exec 4<> "/dev/tcp/127.0.0.1/$port"
    # shellcheck disable=SC2059  # the texts are formats
    (printf "$text" >&4) || true # the board may hang up before the end
    timeout 60 cat <&4 > answer || true
    exec 4>&-
    run -1 grep -aq '^HTTP/1.[01] 200' answer
    [ "$(status_of api/runs)" = 200 ]
  done
}

@test "board: a client that sends its request byte by byte is cut off, and others are served" {
  export TRIREME_FAULT=board-limit:1
  start_board
  exec 4<> "/dev/tcp/127.0.0.1/$port"
  printf 'GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ' >&4
  # A byte every tenth of a second: the connection is never idle for long.
  (while printf a >&4; do sleep 0.1; done) 2> /dev/null 3>&- &
  slow=$!
  [ "$(status_of api/runs)" = 200 ]
  timeout 60 cat <&4 > answer || [ $? -eq 1 ]
  exec 4>&-
  kill "$slow" 2> /dev/null || true
  wait "$slow" 2> /dev/null || true
  run -1 grep -q '200 OK' answer
}

@test "board: many idle connections of one address do not keep others out, and are cut off" {
  export TRIREME_FAULT=board-limit:3
  start_board
  for i in $(seq 40); do
    exec {fd}<> "/dev/tcp/127.0.0.1/$port" || true
  done
  [ "$(status_of api/runs --interface 127.0.0.2)" = 200 ]
  is_served() { [ "$(status_of api/runs 2> /dev/null)" = 200 ]; }
  until_true is_served
}
