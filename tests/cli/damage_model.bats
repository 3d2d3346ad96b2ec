#!/usr/bin/env bats
bats_require_minimum_version 1.5.0
# Models that were damaged after they were written, or are malicious: `translate` refuses them,
# naming file and offset, before it allocates memory for sizes that the file claims.

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  perl -e 'srand 3; for (1 .. 300) { print join(" ", map { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 6 } 1 .. 3 + int rand 9), "\n" }' > a
  tr a-l l-za-k < a > b
  "$TRIREME" prepare --quiet --train a b --valid a b --vocab-size 100 --out set > /dev/null
  "$TRIREME" train --device cpu --quiet --data set --run run --preset tiny --steps 2 --save-every 1 --average-checkpoints 2 \
    --valid-every 0 --batch-tokens 512 > /dev/null
}

setup() {
  cd "$BATS_TEST_TMPDIR"
  cp -rL "$BATS_FILE_TMPDIR/run/average" model
  cp -rL "$BATS_FILE_TMPDIR/run/checkpoints/latest" checkpoint
}

# refused DIR WORD…: translate fails with exit status 1 and one line that contains each word,
# without output.
refused() {
  local dir=$1
  shift
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model "$dir" <<< "a b c"
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  [ "${#stderr_lines[@]}" -eq 1 ]
  for word in "$@"; do
    case $stderr in *"$word"*) ;; *) echo "lacks '$word': $stderr"; return 1 ;; esac
  done
}

# flip FILE OFFSET…: flips one bit at each offset.
flip() {
  perl -e '$f = shift; for $o (@ARGV) { open F, "+<", $f or die; seek F, $o, 0; read F, $c, 1; seek F, $o, 0; print F chr(ord($c) ^ 1); close F }' "$@"
}

# in_memory KB COMMAND…: limits the address space; not under the address sanitizer, which reserves
# a very large one.
in_memory() {
  if grep -q __asan_init "$TRIREME"; then
    run --separate-stderr "${@:2}"
  else
    run --separate-stderr bash -c 'ulimit -v "$1"; shift; exec "$@"' - "$@"
  fi
}

# old: replaces model.json with one of version 1, which has no checksums.
old() {
  perl -0pi -e 's/"version": 2/"version": 1/; s/\s*"checksum": "[^"]*",//; s/,\s*"files": \{.*?\}\s*\}\s*(?=\})//s' "$1/model.json"
}

# header PERL-CODE: changes the header of the weights file, $_, with the code.
header() {
  perl -e 'my $code = shift; local $/; open F, "<", "model/weights.safetensors"; binmode F; $all = <F>;
    $n = unpack "Q<", $all; $_ = substr $all, 8, $n; $data = substr $all, 8 + $n; eval $code; die $@ if $@;
    open F, ">", "model/weights.safetensors"; binmode F; print F pack("Q<", length), $_, $data' "$1"
}

@test "an averaged model and a checkpoint translate" {
  for dir in model checkpoint; do
    run --separate-stderr "$TRIREME" translate --device cpu --model "$dir" <<< "a b c"
    [ "$status" -eq 0 ]
    [[ "$stderr" != *"is not verified: its model.json, of an earlier version, has no checksums"* ]]
  done
}

@test "three flipped bits in the weights are refused" {
  size=$(stat -c %s model/weights.safetensors)
  for dir in model checkpoint; do
    flip $dir/weights.safetensors $((size - 1)) $((size / 2)) $((size / 2 + 999))
    refused $dir "$dir/weights.safetensors" "CRC-32"
  done
}

@test "flipped bits in the weights of a checkpoint without sums in model.json are refused" {
  old checkpoint
  size=$(stat -c %s checkpoint/weights.safetensors)
  flip checkpoint/weights.safetensors $((size / 2))
  refused checkpoint checkpoint/
}

@test "a model without checksums is translated with a warning" {
  old model
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a b c"
  [ "$status" -eq 0 ]
  [[ "$stderr" == *"is not verified: its model.json, of an earlier version, has no checksums"* ]]
}

@test "a flipped bit in the tokenizer of a model is refused" {
  flip model/tokenizer.model 60
  refused model "model/tokenizer.model" "CRC-32"
}

@test "a changed number in model.json is refused" {
  sed -i 's/"norm_epsilon": [^,]*/"norm_epsilon": 0.5/' model/model.json
  refused model "model/model.json" "checksum"
}

@test "a member of model.json with a wrong type is refused with the type that it must have" {
  old model
  cp model/model.json old.json
  # typed KEY VALUE EXPECTED: the member with another value is refused.
  typed() {
    sed "s/\"$1\": [^,]*/\"$1\": $2/" old.json > model/model.json
    run -1 cmp -s old.json model/model.json
    refused model "model/model.json is damaged: '$1' is missing or is not $3; copy the model again"
  }
  for wrong in 1 '"true"' null '[]'; do typed attention_bias "$wrong" "true or false"; done
  typed output_bias 0 "true or false"
  typed heads '"4"' "an integer from 1 to 1024"
  typed heads 4.0 "an integer from 1 to 1024"
  typed norm_epsilon '"1e-5"' "a number from 0 to 1"
  typed activation 1 'one of "relu", "gelu", "silu"'
  typed format 1 "a string"
  typed version '"1"' "an integer from 1 to 2"
}

@test "weights that are not finite are refused with the tensor and the byte" {
  old model
  size=$(stat -c %s model/weights.safetensors)
  printf '\x00\x00\xc0\x7f' | dd of=model/weights.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"'decoder."*"byte $((size - 4))"*"not finite"* ]]
}

@test "tensors that overlap are refused" {
  old model
  header 's/("encoder.0.feed.up.bias".*?"data_offsets":\[)(\d+),(\d+)/$1 . ($2 - 4) . "," . ($3 - 4)/e'
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*overlaps*byte* ]]
}

@test "a header that continues behind its JSON object is refused" {
  old model
  header '$_ .= "x"'
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"not a JSON object"*byte* ]]
}

@test "bytes between the header and the tensors are refused" {
  old model
  header '$data = "gap " . $data; s/"data_offsets":\[(\d+),(\d+)/"\"data_offsets\":[" . ($1 + 4) . "," . ($2 + 4)/ge'
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"follows unused bytes (byte "* ]]
}

@test "bytes behind the last tensor are refused" {
  old model
  echo >> model/weights.safetensors
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"bytes follow"* ]]
}

@test "a model of fewer layers than its weights is refused" {
  old model
  sed -i 's/"encoder_layers": [0-9]*/"encoder_layers": 1/' model/model.json
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*tensors* ]]
}

@test "a model.json that promises 8 million words is refused without their memory" {
  old model
  sed -i 's/"vocab": [0-9]*/"vocab": 8000000/' model/model.json
  in_memory 1500000 "$TRIREME" translate --device cpu --quiet --threads 1 --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*shape* ]]
}

@test "a header of nine million empty objects is refused without their memory" {
  old model
  perl -e 'my $h = "{\"a\":[" . "{}," x 9000000 . "1]}"; print pack("Q<", length $h), $h' > model/weights.safetensors
  in_memory 1500000 "$TRIREME" translate --device cpu --quiet --threads 1 --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"header is longer than"* ]]
  perl -e 'my $h = "{\"a\":[" . "{}," x 3000000 . "1]}"; print pack("Q<", length $h), $h' > model/weights.safetensors
  in_memory 1500000 "$TRIREME" translate --device cpu --quiet --threads 1 --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/weights.safetensors"*"JSON values"* ]]
}

@test "a tokenizer whose normalisation rules point outside is refused in a model" {
  old model
  perl -e 'local $/; open F, "+<", $ARGV[0]; binmode F; $_ = <F>; $at = index $_, "nmt_nfkc"; die if $at < 0;
    seek F, $at + 16, 0; print F "\xff\xff\xff\x7f" x 8' model/tokenizer.model
  run --separate-stderr "$TRIREME" translate --device cpu --quiet --model model <<< "a"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"model/tokenizer.model"*"rules are damaged at byte"* ]]
}
