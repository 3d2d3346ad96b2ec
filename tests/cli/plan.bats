#!/usr/bin/env bats
# trireme plan: known runs of others, measurements as input, and errors. Formulas: test_plan.c.

bats_require_minimum_version 1.5.0

setup_file() {
  export SET="$BATS_FILE_TMPDIR/set"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --recipe demo --demo-pairs 2000 --vocab-size 500 --quiet --out "$SET"
}

setup() { cd "$BATS_TEST_TMPDIR"; }

# sizes OPTION…: runs plan, checks that the parts sum to the step, prints for each size: machines, GPUs,
# step in ms, speed-up, hours, bytes sent by a machine, exposed ms.
sizes() {
  "$TRIREME" plan "$@" --json > json || return 1
  perl -MJSON::PP -e 'undef $/; $j = decode_json(<STDIN>);
    for (@{$j->{sizes}}) {
      $p = $_->{parts};
      $sum = 0;
      $sum += $p->{"${_}_ms"} for qw(forward backward straggler exposed copies update gather);
      die "parts $sum, step $_->{step_ms}" unless abs($sum - $_->{step_ms}) < 1e-6 * $sum;
      die "all-reduce" unless abs($p->{hidden_ms} + $p->{exposed_ms} - $p->{allreduce_ms}) < 1e-6 * ($p->{allreduce_ms} + 1);
      print join(" ", @$_{qw(nodes gpus step_ms speedup hours bytes_sent_per_node)}, $p->{exposed_ms}), "\n" }' < json
}

# near VALUE EXPECTED PERCENT
near() { awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { exit !(a > b * (1 - p / 100) && a < b * (1 + p / 100)) }' || { echo "$1, expected $2 within $3 %"; return 1; }; }

# write_measurement BACKEND PRECISION COPY_GB_S: writes here.json, a step of tiny
write_measurement() {
  echo "{\"bench\": \"train\", \"backend\": \"$1\", \"preset\": \"tiny\", \"precision\": \"$2\", \"batch_tokens\": 256," \
    "\"tgt_tok_s\": 1000, \"step_ms\": 100, \"parts\": {\"copy_gb_s\": $3, \"step\": {\"ms\": 100}, \"work\": []}}" > here.json
}

@test "one object for each number of machines; one GPU has no all-reduce" {
  run sizes --machine h200 --nodes 1..6 --gpus 1,8 --link 400Gbit,5us
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 8 ]
  [[ "${lines[0]}" == "1 1 "*" 1 "*" 0 0" ]]
  [[ "${lines[7]}" == "6 8 "* ]]
}

@test "a bucket is not larger than the gradients, and is counted in the type that is sent" {
  run -0 "$TRIREME" plan --machine h200
  [[ "$output" == *"244 MB of gradients a step in 30 buckets of 8.4 MB"* ]]
  run -0 "$TRIREME" plan --machine h200 --allreduce-dtype bf16
  [[ "$output" == *"122 MB of gradients a step in 30 buckets of 4.2 MB"* ]]
  run -0 "$TRIREME" plan --machine h200 --bucket-size 1G
  [[ "$output" == *"244 MB of gradients a step in 1 bucket of 244 MB"* ]]
}

@test "the example of docs/plan.md is what plan prints" {
  page="$BATS_TEST_DIRNAME/../../docs/plan.md"
  perl -0777 -ne 'm{```\n\$ trireme (plan .*?[^\\])\n(.*?)\n…}s or die; open $f, ">", "arguments"; print $f $1; print "$2\n"' "$page" > expected
  perl -pe 's/\\\n//' arguments | xargs "$TRIREME" > out
  head -n "$(wc -l < expected)" out | diff expected -
}

@test "four T4 with OpenSeq2Seq: 1.28 s a step, 365 MB per machine" {
  run sizes --machine t4 --precision fp32 --batch-tokens 7168 --nodes 4 --link 5Gbit,50us
  [ "$status" -eq 0 ]
  read -r _ _ step _ _ bytes _ <<< "$output"
  near "$step" 1280 5
  near "$bytes" 365e6 0.2
}

@test "two machines with two V100: 22 hours for 50,000 steps" {
  run sizes --machine v100 --batch-tokens 14336 --nodes 2 --gpus 2 --link 1Gbit,50us --link-efficiency 0.94 --nccl-algo ring \
    --allreduce-dtype bf16 --tokens 2867200000
  [ "$status" -eq 0 ]
  read -r _ _ _ _ hours _ <<< "$output"
  near "$hours" 22 5
}

@test "OpenSeq2Seq's speed-ups on 2, 4 and 8 GPUs" {
  run sizes --machine v100 --batch-tokens 14336 --gpus 1..8 --allreduce-dtype bf16 --jitter 0.08
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 4 ]
  expected=(1 1.93 3.73 7.0)
  for i in 0 1 2 3; do
    read -r _ _ _ speedup _ <<< "${lines[i]}"
    near "$speedup" "${expected[i]}" 3
  done
}

@test "the measured step of the H200 is reproduced and called measured, others assumed" {
  run "$TRIREME" plan --machine h200 --batch-tokens 25552
  [ "$status" -eq 0 ]
  [[ "$output" == *"(measured: bench/RESULTS.md, 20.6 ms"* ]]
  [[ "$output" == *" 20.60"$'\n'"step = "* ]]
  run "$TRIREME" plan --machine a100
  [[ "$output" == *"(assumed: 1.45 times the roofline"* ]]
  # The fused loss needs bf16 and a vocabulary that is a multiple of 256.
  run "$TRIREME" plan --machine h200 --batch-tokens 25552 --vocab-size 8192
  [[ "$output" == *"(assumed: 1.36 times the roofline of the data sheet; measured for base in bf16 on h200, vocabulary 32768)"* ]]
  run "$TRIREME" plan --machine h200 --batch-tokens 25552 --vocab-size 8000
  [[ "$output" == *"(assumed: 1.45 times the roofline of the data sheet; measured for base in bf16 on h200, vocabulary 32768)"* ]]
  run "$TRIREME" plan --machine h200 --batch-tokens 25552 --precision fp32
  [[ "$output" == *"(assumed: 1.45 times the roofline of the data sheet; measured for base in bf16 on h200)"* ]]
}

@test "between two measured batch sizes the step is interpolated" {
  # step TOKENS: its microseconds on an H200
  step() { "$TRIREME" plan --machine h200 --batch-tokens "$1" | awk '$1 == 1 && $3 == 1 { print int(1000 * $NF + 0.5); exit }'; }
  near "$(step 8173)" 6200 1
  near "$(step 8200)" "$(step 8173)" 1
  near "$(step 14464)" "$(step 14336)" 2
  near "$(step 25540)" 20600 1
  run "$TRIREME" plan --machine h200 --batch-tokens 14336
  [[ "$output" == *"6.2 ms for 8173 and 20.6 ms for 25552 target tokens, interpolated to this batch)"* ]]
}

@test "--shard-optimizer: NCCL gathers weights in 16 bits where the run computes in them, and norms in fp32 too" {
  # sent OPTION…: bytes that each of two machines sends in a step
  sent() {
    sizes --machine h200 --nodes 2 --link 100Gbit,5us "$@" > line || return 1
    awk '{ print $6 }' line
  }
  fp32=$(sent --precision fp32)
  [ "$(sent --precision fp32 --shard-optimizer)" = "$fp32" ]
  [ "$(sent --precision tf32 --shard-optimizer)" = "$fp32" ]
  # 32 norms of base, a gain and a bias of 512 each: half of 131,072 bytes
  for precision in bf16 fp16; do
    [ "$(sent --precision $precision --shard-optimizer)" = "$(awk -v b="$fp32" 'BEGIN { printf "%d", b * 3 / 4 + 65536 }')" ]
  done
  # fp8 needs big, whose norms have 1,024 columns
  whole=$(sent --preset big --precision fp32)
  [ "$(sent --preset big --precision fp8 --shard-optimizer)" = "$(awk -v b="$whole" 'BEGIN { printf "%d", b * 3 / 4 + 131072 }')" ]
  # the host transport gathers fp32
  [ "$(sent --precision bf16 --shard-optimizer --allreduce-transport host)" = "$fp32" ]
}

@test "--shard-optimizer through host memory copies the weights too" {
  # copies OPTION…: milliseconds of the copies in a step
  copies() {
    sizes --machine h200 --gpus 2 --allreduce-transport host "$@" > line || return 1
    perl -MJSON::PP -e 'undef $/; print decode_json(<STDIN>)->{sizes}[0]{parts}{copies_ms}' < json
  }
  whole=$(copies)
  near "$(copies --shard-optimizer)" "$(awk -v c="$whole" 'BEGIN { print 2 * c }')" 0.01
}

@test "fp8 is refused for the models and batches for which train refuses it" {
  run -2 "$TRIREME" plan --machine h200 --precision fp8
  [[ "$output" == *"--precision fp8 needs --d-model 1024 or more"*"this model has 512, 2048 and 4096: use --precision bf16"* ]]
  run -2 "$TRIREME" plan --machine h200 --preset big --precision fp8 --batch-tokens 2048
  [[ "$output" == *"--batch-tokens 4096 or more; this model has 1024, 4096 and 2048"* ]]
  run -0 "$TRIREME" plan --machine h200 --preset big --precision fp8 --batch-tokens 4096
  write_measurement "cuda:0: NVIDIA H200, 143 GB" fp8 4000
  run -2 "$TRIREME" plan --preset tiny --machine here.json
  [[ "$output" == *"--precision fp8 needs --d-model 1024 or more"* ]]
}

@test "--batch-tokens 0 is refused, as by train" {
  run -2 "$TRIREME" plan --machine h200 --batch-tokens 0
  [[ "$output" == *"--batch-tokens"*"16"* ]]
}

@test "a file of bench train --json: its step, on one machine and with a network" {
  for i in 5 7 9 12 21 30; do echo "$i $((i + 1))"; done > lengths
  "$TRIREME" bench train --preset tiny --vocab-size 200 --lengths lengths --steps 2 --batch-tokens 256 --threads 1 --device cpu --quiet --json > here.json
  run sizes --preset tiny --vocab-size 200 --machine here.json
  [ "$status" -eq 0 ]
  # the batches of the measurement are not quite full, those of plan are: the step grows with the tokens
  perl -MJSON::PP -e 'undef $/; open $f, "<", "here.json"; $m = decode_json(<$f>); open $f, "<", "json"; $j = decode_json(<$f>);
    $c = $j->{inputs}{compute}; $tokens = $m->{tgt_tok_s} * $m->{step_ms} / 1e3;
    $whole = ($c->{forward_ms} + $c->{backward_ms}) * $tokens / 256 + $c->{update_ms};
    die "$whole, measured $m->{step_ms}" unless abs($whole / $m->{step_ms} - 1) < 1e-3;
    die "a part is negative" if grep { $c->{$_} <= 0 } qw(forward_ms backward_ms update_ms);
    die "not measured" unless $c->{measured}'
  # 1 Mbit/s dominates: two machines send the gradients once
  run sizes --preset tiny --vocab-size 200 --machine here.json --nodes 2 --link 1Mbit,1us --link-efficiency 1 --jitter 0
  [ "$status" -eq 0 ]
  read -r _ _ _ _ _ bytes exposed <<< "$output"
  near "$exposed" "$(awk -v b="$bytes" 'BEGIN { print b / 125 }')" 1
}

@test "the prediction of a size does not depend on the other sizes of the list" {
  for measurement in "cpu: x, 8 threads|fp32|20" "cuda:0: NVIDIA H200, 143 GB|bf16|4000"; do
    IFS='|' read -r backend precision copy <<< "$measurement"
    write_measurement "$backend" "$precision" "$copy"
    sizes --preset tiny --machine here.json --gpus 2,8 | sort > up
    sizes --preset tiny --machine here.json --gpus 8,2 | sort > down
    [ "$(wc -l < up)" -eq 2 ]
    cmp up down
  done
  write_measurement "cpu: x, 8 threads" fp32 20
  run "$TRIREME" plan --preset tiny --machine here.json --gpus 8,1
  [[ "$output" == *"assumed: as fast with other ranks on the machine"* ]]
  [[ "$output" == *"inside   a machine: 10 GB/s for all its ranks, 20 us (measured copy in host memory; latency assumed)"* ]]
}

@test "a measured GPU has the links of its data sheet, an unknown one PCIe; both are called assumed" {
  write_measurement "cuda:0: NVIDIA H200, 143 GB" bf16 4000
  run "$TRIREME" plan --preset tiny --machine here.json --gpus 8
  [ "$status" -eq 0 ]
  [[ "$output" == *"inside   a machine: 360 GB/s a rank, 3 us (assumed: an all-reduce reaches 80 % of NVLink of the H200)"* ]]
  write_measurement "cuda:0: NVIDIA L4, 24 GB" bf16 250
  run "$TRIREME" plan --preset tiny --machine here.json --gpus 8
  [[ "$output" == *"inside   a machine: 19.2 GB/s a rank, 5 us (assumed: an all-reduce reaches 80 % of PCIe 4.0 x16, because the links of this GPU are not known)"* ]]
}

@test "GPUs without NCCL add gradients in host memory, which their ranks share" {
  run "$TRIREME" plan --machine h200 --gpus 8 --allreduce-transport host
  [ "$status" -eq 0 ]
  [[ "$output" == *"inside   a machine: 100 GB/s for all its ranks, 20 us (assumed: host memory of 200 GB/s, reads and writes counted)"* ]]
  # rate GPUS: bytes per second of one rank
  rate() {
    sizes --machine h200 --gpus "$1" --allreduce-transport host > /dev/null || return 1
    perl -MJSON::PP -e 'undef $/; print decode_json(<STDIN>)->{sizes}[0]{local_bytes_per_s}' < json
  }
  near "$(rate 8)" 12.5e9 0.01
  near "$(rate 2)" 50e9 0.01
}

@test "a file of bench train with a BERT preset: its step, and the tokens of a data set of texts" {
  for i in 5 7 9 12 21 30; do echo "$i"; done > lengths
  { echo text,class; for i in $(seq 40); do echo "the text number $i is short,$((i % 2))"; done; } > table.csv
  "$TRIREME" prepare --quiet --task classify --train table.csv --text-column text --label-column class --split 0.1 --vocab-size 60 --out texts > /dev/null
  vocab=$(wc -l < texts/vocab.txt)
  "$TRIREME" bench train --preset bert-tiny --vocab-size "$vocab" --lengths lengths --steps 2 --batch-tokens 256 --threads 1 --device cpu --quiet --json > here.json
  run sizes --preset bert-tiny --vocab-size "$vocab" --machine here.json
  [ "$status" -eq 0 ]
  perl -MJSON::PP -e 'undef $/; open $f, "<", "here.json"; $m = decode_json(<$f>); open $f, "<", "json"; $j = decode_json(<$f>);
    $c = $j->{inputs}{compute}; $tokens = $m->{tok_s} * $m->{step_ms} / 1e3;
    $whole = ($c->{forward_ms} + $c->{backward_ms}) * $tokens / 256 + $c->{update_ms};
    die "$whole, measured $m->{step_ms}" unless abs($whole / $m->{step_ms} - 1) < 1e-3;
    die "a part is negative" if grep { $c->{$_} <= 0 } qw(forward_ms backward_ms update_ms)'
  "$TRIREME" plan --preset bert-tiny --data texts --machine here.json --nodes 1,2 --link 1Gbit > out
  # 36 texts of at least 7 tokens fill one batch, or two.
  grep -q '^batches  256 tokens per micro-batch, [1-9][0-9]* tokens in it (counted in the data set)$' out
  run ! grep -q 'target tokens\|a side' out
  run -1 "$TRIREME" plan --preset tiny --data texts --machine h200
  [[ "$output" == *"texts is a data set for the task classify"* ]]
}

@test "a file that does not fit the options, or is damaged, is an error" {
  echo '{"bench": "train", "backend": "cpu: x", "preset": "tiny", "precision": "fp32", "batch_tokens": 256, "tgt_tok_s": 1000, "step_ms": 100, "parameters": 7}' > here.json
  run "$TRIREME" plan --machine here.json
  [ "$status" -eq 2 ]
  [[ "$output" == *"here.json was measured with --preset tiny, not base"* ]]
  run "$TRIREME" plan --machine here.json --preset tiny --precision bf16
  [ "$status" -eq 2 ]
  [[ "$output" == *"was measured with --precision fp32, not bf16"* ]]
  run "$TRIREME" plan --machine here.json --preset tiny
  [ "$status" -eq 2 ]
  [[ "$output" == *"a model of 7 parameters"* ]]
  run "$TRIREME" plan --machine here.json --preset tiny --allreduce-transport nccl
  [ "$status" -eq 2 ]
  sed 's/"preset": "tiny", //' here.json > wrong.json
  run -1 "$TRIREME" plan --machine wrong.json --preset tiny
  [[ "$output" == *"wrong.json is not the output of 'trireme bench train --json': preset is missing"* ]]
  sed 's/"parameters": 7/"parameters": "7"/' here.json > wrong.json
  run -1 "$TRIREME" plan --machine wrong.json --preset tiny
  [[ "$output" == *"parameters is not a number"* ]]
  head -c 60 here.json > cut.json
  run "$TRIREME" plan --machine cut.json --preset tiny
  [ "$status" -eq 1 ]
  [[ "$output" == *"cut.json: not JSON at byte"* ]]
}

@test "this machine is measured, with the ranks of a machine at once, and leaves no files" {
  mkdir temporary
  run --separate-stderr env TMPDIR="$PWD/temporary" "$TRIREME" plan --machine this --device cpu --preset tiny --data "$SET" --batch-tokens 256 --steps 2 --gpus 2
  [ "$status" -eq 0 ]
  [[ "$output" == *"(measured: this machine, now, "* ]]
  [[ "$output" == *$'\n'"1 x 2 "* ]]
  [[ "$stderr" == *"2 processes at once"* ]]
  [ -z "$(ls temporary)" ]
}

@test "a signal ends the measurement of this machine, which leaves no files and no processes" {
  mkdir stopped
  TMPDIR=$PWD/stopped "$TRIREME" plan --machine this --device cpu --preset base --steps 1000 --gpus 1 2> messages 3>&- &
  pid=$!
  for ((i = 0; i < 600; i++)); do
    if pgrep -f "bench train --lengths $PWD/stopped" > measuring; then break; fi
    sleep 0.1
  done
  code=0
  kill -TERM $pid
  wait $pid || code=$?
  [ -s measuring ]
  [ $code -eq 1 ]
  grep -q "a signal ended the measurement of this machine" messages
  [ -z "$(ls stopped)" ]
  run ! pgrep -f "bench train --lengths $PWD/stopped"
}

@test "a data set sets the vocabulary and the tokens of a batch" {
  run "$TRIREME" plan --machine h200 --preset tiny --data "$SET" --batch-tokens 1024 --json
  [ "$status" -eq 0 ]
  perl -MJSON::PP -e '$i = decode_json($ARGV[0])->{inputs}; $small = decode_json($ARGV[1])->{inputs};
    die "parameters" unless $i->{parameters} == $small->{parameters};
    die "tokens $i->{target_tokens}" unless $i->{target_tokens} > 700 && $i->{target_tokens} < 1024 && $small->{target_tokens} == 1024' \
    "$output" "$("$TRIREME" plan --machine h200 --preset tiny --vocab-size 500 --batch-tokens 1024 --json)"
}

@test "the memory is what train plans, without validation" {
  "$TRIREME" train --data "$SET" --run none --preset tiny --batch-tokens 1024 --device cpu --dry-run 2>&1 | sed -n 's/.*memory   [^:]*B: //p' | head -1 > shares
  [ -s shares ]
  "$TRIREME" bench train --preset tiny --vocab-size 500 --lengths <(seq 20 | sed 's/.*/8 8/') --steps 1 --batch-tokens 64 --device cpu --quiet --json > here.json
  "$TRIREME" plan --machine here.json --preset tiny --data "$SET" --batch-tokens 1024 --json > json
  perl -MJSON::PP -e 'open $f, "<", "json"; $m = decode_json(<$f>)->{sizes}[0]{memory_bytes}; open $f, "<", "shares"; %u = (kB => 1e3, MB => 1e6, GB => 1e9);
    for (split /, /, <$f>) { next if /validation/; /([\d.]+) (\w+)$/; $sum += $1 * $u{$2} }
    die "$m bytes, train plans $sum" unless $sum > 0 && abs($m / $sum - 1) < 0.03'
}

@test "a model that does not fit into the GPU is marked" {
  run "$TRIREME" plan --machine t4 --preset big --batch-tokens 25600
  [ "$status" -eq 0 ]
  [[ "$output" == *" GB!"* ]]
  [[ "$output" == *"! does not fit into the 16.0 GB of the GPU"* ]]
  run "$TRIREME" plan --machine h200 --preset big --batch-tokens 25600
  [[ "$output" != *"does not fit"* ]]
}

@test "--svg draws a well-formed document with every size and part" {
  run "$TRIREME" plan --machine h200 --nodes 1..8 --gpus 8 --link 400Gbit,5us --svg plan.svg
  [ "$status" -eq 0 ]
  perl -0777 -ne '@open = (); while (m{<(/?)([a-z]+)[^>]*?(/?)>}gi) { next if $3; $1 ? (pop(@open) eq $2 or die "</$2>") : push @open, $2 }
    die "open: @open" if @open; die "not one document" unless m{^<svg xmlns="http://www.w3.org/2000/svg"}' plan.svg
  for text in "1 x 8" "8 x 8" "exposed all-reduce" straggler predicted ideal; do grep -qF "$text" plan.svg; done
  run "$TRIREME" plan --machine h200 --svg none/plan.svg
  [ "$status" -eq 1 ]
  [[ "$output" == *"none/plan.svg"* ]]
}

@test "the machine, the precision, the link and the sizes must be known" {
  run "$TRIREME" plan
  [ "$status" -eq 2 ]
  [[ "$output" == *"pass --machine with h200, a100, v100, t4, 'this'"* ]]
  run "$TRIREME" plan --machine h300
  [ "$status" -eq 2 ]
  [[ "$output" == *"no machine and no file 'h300'; known are h200, a100, v100, t4, 'this'"* ]]
  run "$TRIREME" plan --machine t4 --precision bf16
  [ "$status" -eq 2 ]
  [[ "$output" == *"--machine t4 has no --precision bf16; it has fp32, fp16"* ]]
  run "$TRIREME" plan --machine t4 --nodes 4
  [ "$status" -eq 2 ]
  [[ "$output" == *"4 machines need a network: pass --link"* ]]
  run "$TRIREME" plan --machine t4 --nodes 4 --link 25Gb
  [ "$status" -eq 2 ]
  [[ "$output" == *"--link '25Gb' is not a bandwidth"* ]]
  run "$TRIREME" plan --machine t4 --nodes 8..4
  [ "$status" -eq 2 ]
  [[ "$output" == *"--nodes '8..4' is not a list"* ]]
  run "$TRIREME" plan --machine t4 --nodes 4 --link 25Gbit --micro-batches 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"--micro-batches 2 are too few for 4 x 1 ranks"* ]]
  run "$TRIREME" plan --machine t4 --nodes 65536 --gpus 65536 --link 25Gbit
  [ "$status" -eq 2 ]
  [[ "$output" == *"65536 machines of 65536 GPUs are 4294967296 ranks"* ]]
  run "$TRIREME" plan --machine this --gpus 65536
  [ "$status" -eq 2 ]
  [[ "$output" == *"65536 are too many for "*" cores; pass at most "* ]]
  run "$TRIREME" plan --machine this --gpus 1,2
  [ "$status" -eq 2 ]
  [[ "$output" == *"pass one number to --gpus"* ]]
}

@test "a run whose machines fail faster than they restart never ends" {
  run "$TRIREME" plan --machine t4 --failures-per-node-day 100000 --restart-time 600s
  [ "$status" -eq 0 ]
  [[ "$output" == *" never ends "* ]]
  run sizes --machine t4 --failures-per-node-day 100000 --restart-time 10000s --price-per-hour 1
  [ "$status" -eq 0 ]
  grep -q '"hours": null, "cost": null' json
}

@test "texts of a measurement cannot command a terminal, and several ranks of one process are assumed" {
  name=$'here\x1b[31m.json'
  echo '{"bench": "train", "backend": "cpu: \u001b]0;title\u0007", "preset": "tiny", "precision": "fp32", "batch_tokens": 256, "tgt_tok_s": 1000, "step_ms": 100}' > "$name"
  run "$TRIREME" plan --preset tiny --machine "$name" --gpus 2
  [ "$status" -eq 0 ]
  [[ "$output" != *$'\x1b'* ]]
  [[ "$output" == *"; assumed: as fast with other ranks on the machine)"* ]]
  run "$TRIREME" plan --preset tiny --machine "$name" --json
  [ "$status" -eq 0 ]
}
