#!/usr/bin/env bats
bats_require_minimum_version 1.5.0
# Data sets that were damaged after they were written: damage is always detected, and the error
# names the file and the offset.

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  perl -e 'srand 3; for (1 .. 3000) { print join(" ", map { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 6 } 1 .. 3 + int rand 9), "\n" }' > a
  tr a-l l-za-k < a > b
  head -n 60 a > va
  head -n 60 b > vb
  "$TRIREME" prepare --quiet --train a b --valid va vb --vocab-size 100 --shard-size 24k --out reference > /dev/null
}

setup() {
  cd "$BATS_TEST_TMPDIR"
  cp -r "$BATS_FILE_TMPDIR/reference" set
  shard=train-00001.tok
}

# refused WORD…: inspect fails with and without --verify, with exit status 1 and one line that
# contains each word.
refused() {
  local option
  for option in --verify --no-verify; do
    run "$TRIREME" inspect set --quiet $option
    [ "$status" -eq 1 ]
    [ "$(echo "$output" | grep -c '^trireme: ')" -eq 1 ]
    for word in "$@"; do
      case $output in *"$word"*) ;; *) echo "$option lacks '$word': $output"; return 1 ;; esac
    done
  done
}

# flip FILE OFFSET: flips one bit at OFFSET, in place.
flip() {
  perl -e 'open F, "+<", $ARGV[0] or die; seek F, $ARGV[1], 0; read F, $c, 1; seek F, $ARGV[1], 0; print F chr(ord($c) ^ 4)' "set/$1" "$2"
}

# field FILE OFFSET: prints the 64-bit field at OFFSET of the header.
field() {
  perl -e 'open F, "<", $ARGV[0]; seek F, $ARGV[1], 0; read F, $c, 8; print unpack "Q<", $c' "set/$1" "$2"
}

restore() {
  cp "$BATS_FILE_TMPDIR/reference/$1" "set/$1"
}

@test "an undamaged data set is verified" {
  run "$TRIREME" inspect set --verify
  [ "$status" -eq 0 ]
  [[ "$output" == *"verify: "* ]]
  [[ "$output" == *"verified   every checksum matches: "*" shard"* ]]
}

@test "a flipped bit anywhere in a shard is refused with its offset" {
  size=$(stat -c %s set/$shard)
  index=$(field $shard 128)  # the first column, whose directory entry begins at byte 64
  payload=$(field $shard 56)
  [ "$payload" -gt "$index" ]
  [ "$size" -gt "$payload" ]
  for offset in 0 9 13 16 24 32 40 56 64 96 112 120 128 140 180 300 320 5000 $((index - 1)) "$index" $((index + 5)) $((payload - 1)) "$payload" $((size - 1)); do
    flip $shard "$offset"
    refused "set/$shard"
    if [ "$offset" -ge 64 ]; then
      # The error names the block that holds the byte, or the table with its checksum.
      place=$(echo "$output" | sed -n 's/.*between bytes \([0-9]*\) and \([0-9]*\) .*/\1 \2/p; s/.*damaged at byte \([0-9]*\):.*/\1 -/p')
      [ -n "$place" ]
      first=${place% *} last=${place#* }
      if [ "$last" = - ]; then
        [ "$first" -eq "$payload" ]
        [ "$offset" -ge "$payload" ]
      else
        [ "$offset" -ge "$first" ]
        [ "$offset" -lt "$last" ]
      fi
    fi
    restore $shard
  done
}

@test "a shard of another length is refused" {
  size=$(stat -c %s set/$shard)
  for keep in 0 1 127 128 1000 $((size - 5)) $((size - 1)); do
    head -c "$keep" "$BATS_FILE_TMPDIR/reference/$shard" > set/$shard
    refused "set/$shard"
    [[ "$output" == *truncated* ]]
    restore $shard
  done
  echo >> set/$shard
  refused "set/$shard"
}

@test "a flipped bit in the order is refused with its offset" {
  size=$(stat -c %s set/train.order)
  for offset in 0 8 12 16 24 32 40 64 70 1000 $((size / 2)) $((size - 5)) $((size - 1)); do
    flip train.order "$offset"
    refused "set/train.order"
    if [ "$offset" -ge 64 ]; then [[ "$output" == *byte*[0-9]* ]]; fi
    restore train.order
  done
  for keep in 0 63 64 1000 $((size - 1)); do
    head -c "$keep" "$BATS_FILE_TMPDIR/reference/train.order" > set/train.order
    refused "set/train.order"
    restore train.order
  done
}

@test "files that are missing or swapped are named" {
  rm set/$shard
  refused "set/$shard" "No such file"
  cp "set/train-00000.tok" set/$shard
  run "$TRIREME" inspect set --verify --quiet
  [ "$status" -eq 1 ]
  [[ "$output" == *"set/$shard"* ]]
  restore $shard
  cp set/valid.tok set/$shard  # the file is undamaged, but belongs to another data set
  refused "set/$shard" "does not belong"
  restore $shard
  rm set/train.order
  refused "set/train.order"
  restore train.order
  rm set/dataset.json
  refused "set is not a data set" "dataset.json"
  rm -r set
  refused "there is no data set set"
}

# untrainable WORD…: train refuses the data set, before the run begins, with an error that
# contains these words.
untrainable() {
  run "$TRIREME" train --device cpu --data set --run run --preset tiny --steps 1 --batch-tokens 64 --quiet
  [ "$status" -eq 1 ]
  [ ! -e run ]
  for word in "$@"; do
    case $output in *"$word"*) ;; *) echo "lacks '$word': $output"; return 1 ;; esac
  done
}

@test "a tokenizer that was changed is refused" {
  flip tokenizer.model 100
  refused "set/tokenizer.model" SHA-256
  untrainable "set/tokenizer.model" SHA-256
}

@test "a tokenizer of another vocabulary is refused though dataset.json names its hash" {
  head -n 500 "$BATS_FILE_TMPDIR/a" > a
  head -n 500 "$BATS_FILE_TMPDIR/b" > b
  "$TRIREME" prepare --quiet --train a b --valid a b --vocab-size 60 --out other > /dev/null
  cp other/tokenizer.model set/tokenizer.model
  refused "set/tokenizer.model" "not the tokenizer of this data set"
  untrainable "set/tokenizer.model" "not the tokenizer of this data set"
  old=$(sha256sum "$BATS_FILE_TMPDIR/reference/tokenizer.model" | cut -d' ' -f1)
  new=$(sha256sum set/tokenizer.model | cut -d' ' -f1)
  sed -i "s/$old/$new/" set/dataset.json
  refused "set/dataset.json" "vocabulary"
  untrainable "set/dataset.json" "vocabulary"
}

@test "a damaged header of a validation shard is refused before training begins" {
  flip valid.tok 64
  flip valid.tok 65
  refused "set/valid.tok" "byte"
  untrainable "set/valid.tok" "byte"
  restore valid.tok
  cp set/train-00000.tok set/valid.tok
  refused "set/valid.tok" "does not belong"
}

@test "a damaged header of the first training shard is refused before training begins" {
  flip train-00000.tok 64
  untrainable "set/train-00000.tok" "byte"
}

@test "dataset.json without an order is refused" {
  perl -0pi -e 's/,\s*"order": \{[^}]*\}//' set/dataset.json
  run ! cmp -s set/dataset.json "$BATS_FILE_TMPDIR/reference/dataset.json"
  refused "set/dataset.json" "'order'"
  untrainable "set/dataset.json" "'order'"
}

@test "a member of dataset.json that has another type is refused" {
  # mistyped KEY VALUE EXPECTED
  mistyped() {
    restore dataset.json
    sed -Ei "s/\"$1\": [a-z0-9.]+/\"$1\": $2/" set/dataset.json
    run ! cmp -s set/dataset.json "$BATS_FILE_TMPDIR/reference/dataset.json"
    refused "set/dataset.json is damaged: '$1' should be $3; prepare the data set again"
  }
  mistyped max_ratio '"9"' "a number"
  mistyped dedup 1 "true or false"
}

@test "max_tokens that is too small or too large is refused" {
  for value in 0 3 4096 2147483648 4294967295 4294967296; do
    sed "s/\"max_tokens\": [0-9]*/\"max_tokens\": $value/" "$BATS_FILE_TMPDIR/reference/dataset.json" > set/dataset.json
    refused "set/dataset.json" "'max_tokens'"
    untrainable "set/dataset.json" "'max_tokens'"
  done
}

@test "max_tokens below the pairs of the order is refused though 'longest' agrees" {
  sed -i 's/"max_tokens": [0-9]*/"max_tokens": 3/' set/dataset.json
  perl -0pi -e 's/("longest": \{\s*"source": )\d+(,\s*"target": )\d+/${1}3${2}3/g' set/dataset.json
  refused "'max_tokens'" "set/train.order"
  untrainable "'max_tokens'" "set/train.order"
}

@test "a longest validation sentence beyond max_tokens is refused" {
  perl -0pi -e 's/("valid": \{.*?"longest": \{\s*"source": )\d+/${1}4095/s' set/dataset.json
  run ! cmp -s set/dataset.json "$BATS_FILE_TMPDIR/reference/dataset.json"
  refused "set/dataset.json" "'max_tokens'" "of valid has 4095"
  untrainable "set/dataset.json" "'max_tokens'"
}

@test "dataset.json of a million empty values is refused before memory is taken" {
  perl -e 'print "[", "{}," x 1000000, "1]"' > set/dataset.json
  refused "set/dataset.json" "JSON values"
}

@test "a damaged dataset.json is refused with the key that is wrong" {
  json=$BATS_FILE_TMPDIR/reference/dataset.json
  edit() { sed "$1" "$json" > set/dataset.json; if cmp -s "$json" set/dataset.json; then return 1; fi; }
  head -c 300 "$json" > set/dataset.json
  refused "set/dataset.json:" "not JSON"
  : > set/dataset.json
  refused "set/dataset.json:"
  printf '\xff' > set/dataset.json
  refused "set/dataset.json:"
  edit 's/"format": "trireme-dataset"/"format": "x"/'
  refused "set/dataset.json" "'format'"
  edit 's/"version": 2/"version": 3/'
  refused "set/dataset.json" "newer version"
  edit 's/"requires": \[\]/"requires": ["columns of images"]/'
  refused "set/dataset.json" "newer version" "columns of images"
  edit 's/"requires": \[\]/"requires": "all"/'
  refused "set/dataset.json" "newer version"
  edit 's/"vocab": [0-9]*/"vocab": 0/'
  refused "set/dataset.json" "'vocab'"
  edit 's/"eos": [0-9]*/"eos": 100/'
  refused "set/dataset.json" "'eos'"
  edit 's/"file": "shards.manifest"/"file": "..\/shards.manifest"/'
  refused "set/dataset.json" "'file'"
  edit 's/"file": "shards.manifest"/"file": 5/'
  refused "set/dataset.json" "'file'"
  edit 's/"manifest"/"manifold"/'
  refused "set/dataset.json" "'manifest'"
  edit 's/"shards": 1/"shards": 2/'
  refused "set/dataset.json" "'shards'" "shards.manifest lists"
  edit 's/"shards"/"shades"/'
  refused "set/dataset.json" "'shards'"
  edit 's/"pairs": [0-9]*/"pairs": -1/'
  refused "set/dataset.json" "'pairs'"
  edit 's/"sha256": "[0-9a-f]*"/"sha256": "short"/'
  refused "set/dataset.json" "'sha256'"
  edit 's/"vocab": 100/"vocab": 101/'  # the number contradicts the shards
  refused "set/"
  perl -0pe 's/("train": \{\n *"lines": \d+,\n *"pairs": )\d+/${1}7/' "$json" > set/dataset.json
  refused "set/dataset.json" "pairs, not 7; prepare the data set again"
}

# manifest SED: edits the manifest and updates its length and hash in dataset.json.
manifest() {
  restore shards.manifest
  restore dataset.json
  sed -i "$1" set/shards.manifest
  run ! cmp -s set/shards.manifest "$BATS_FILE_TMPDIR/reference/shards.manifest"
  name_manifest
}

name_manifest() {
  local old new
  old=$(sha256sum < "$BATS_FILE_TMPDIR/reference/shards.manifest" | cut -d' ' -f1)
  new=$(sha256sum < set/shards.manifest | cut -d' ' -f1)
  sed -i "s/$old/$new/; s/\"bytes\": $(stat -c %s "$BATS_FILE_TMPDIR/reference/shards.manifest"),/\"bytes\": $(stat -c %s set/shards.manifest),/" set/dataset.json
}

@test "a manifest that is not the one of dataset.json is refused" {
  flip shards.manifest 100
  refused "set/shards.manifest" "SHA-256"
  restore shards.manifest
  tail -n 1 set/shards.manifest >> set/shards.manifest
  refused "set/shards.manifest" "bytes where dataset.json has"
  restore shards.manifest
  truncate -s -1 set/shards.manifest
  refused "set/shards.manifest" "bytes where dataset.json has"
  rm set/shards.manifest
  refused "set/shards.manifest" "No such file"
}

@test "a manifest line with more reasons to drop pairs than this version knows is read" {
  manifest '2s/\("dropped":\[[0-9,]*\)\]/\1,5,0]/'
  "$TRIREME" inspect set --quiet > /dev/null
  manifest '2s/"dropped":\[0,/"dropped":[/'
  refused "set/shards.manifest:2 "
  manifest '2s/\("dropped":\[[0-9,]*\)\]/\1,]/'
  refused "set/shards.manifest:2 "
}

@test "a damaged line of the manifest is refused with its number though the hash agrees" {
  manifest '2s/"file":"/"file":"..\//'
  refused "set/shards.manifest:2 " "byte"
  manifest '3s/"pairs":[0-9]*/"pairs":-1/'
  refused "set/shards.manifest:3 "
  manifest '3s/"pairs":[0-9]*/"pairs":99999999999999999999/'
  refused "set/shards.manifest:3 "
  manifest '2s/"split":"train"/"split":"other"/'
  refused "set/shards.manifest:2 "
  manifest '2s/}$//'
  refused "set/shards.manifest:2 "
  manifest '2s/"bytes":[0-9]*/"bytes":7/'
  refused "set/train-00000.tok" "does not belong"
  manifest '2s/"pairs":[0-9]*/"pairs":7/'
  refused "set/dataset.json" "pairs, not"
  manifest '2s/^/ /'
  refused "set/shards.manifest:2 "
}

@test "a shard that the manifest lists twice is refused" {
  manifest '3s/train-00001/train-00000/'
  refused "set/shards.manifest" "train-00000.tok twice"
}

@test "keys that a later version adds to a line of the manifest are ignored" {
  manifest 's/}$/,"compressed":0}/'
  run "$TRIREME" inspect set --verify --quiet
  [ "$status" -eq 0 ]
}

# shown WORDS: the last output contains the words, and no terminal control characters.
shown() {
  [[ "$output" == *"$1"* ]]
  run ! grep -q $'[\x01-\x08\x0b-\x1f\x7f]' <<< "$output"
}

@test "control characters in a file name are made visible" {
  run "$TRIREME" inspect $'no\e[2Jset\n\xff\u202e' --quiet
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
  shown 'no\x1b[2Jset\n\xff\u{202e}'
}

@test "control characters in dataset.json are made visible" {
  sed -i 's/"source": "[^"]*"/"source": "\\u001b[31men"/' set/dataset.json
  run "$TRIREME" inspect set --quiet
  [ "$status" -eq 0 ]
  shown '\x1b[31men to '
  sed -i 's/"file": "shards.manifest"/"file": "\\u001b]0;x\\u0007"/' set/dataset.json
  run "$TRIREME" inspect set --quiet
  [ "$status" -eq 1 ]
  shown '\x1b]0;x\x07'
}

@test "control characters in a config are made visible" {
  printf 'vocab-size = \033[2J\n' > config
  run "$TRIREME" prepare --config config --out x
  [ "$status" -eq 2 ]
  shown '\x1b[2J'
}

@test "control characters in the names of systems are made visible" {
  echo "a b c d e" > ref
  cp ref $'sys\e[1m'
  run "$TRIREME" score --ref ref --hyp ref --paired-bs $'sys\e[1m' --quiet
  [ "$status" -eq 0 ]
  shown 'sys\x1b[1m'
}

@test "control characters in the name of a run are made visible in what train reports" {
  run "$TRIREME" train --device cpu --data set --run $'r\e[2J\n\xff' --preset tiny --d-model 16 --ffn-dim 32 --heads 2 \
    --encoder-layers 1 --decoder-layers 1 --steps 2 --warmup-steps 1 --batch-tokens 64 --save-every 1 --average-checkpoints 2 --beam-size 1 --quiet
  [ "$status" -eq 0 ]
  [[ "$output" == *'in r\x1b[2J\n\xff/checkpoints/best'* ]]
  shown 'in r\x1b[2J\n\xff/average'
}

# break_rules FILE: makes eight units of the normalization trie point outside the trie; prints
# their offset.
break_rules() {
  perl -e 'local $/; open F, "+<", $ARGV[0]; binmode F; $_ = <F>; $at = index $_, "nmt_nfkc"; die if $at < 0;
    $at += 8 + 1 + 3 + 4; seek F, $at, 0; print F "\xff\xff\xff\x7f" x 8' "$1"
}

@test "a tokenizer whose normalisation rules point outside is refused by prepare" {
  cp "$BATS_FILE_TMPDIR/a" "$BATS_FILE_TMPDIR/b" .
  break_rules set/tokenizer.model
  run "$TRIREME" prepare --quiet --train a b --valid a b --tokenizer set/tokenizer.model --out new
  [ "$status" -eq 1 ]
  [[ "$output" == *"set/tokenizer.model"*"rules are damaged at byte"* ]]
}

@test "a tokenizer whose normalisation rules point outside is refused in a data set" {
  old=$(sha256sum set/tokenizer.model | cut -d' ' -f1)
  break_rules set/tokenizer.model
  new=$(sha256sum set/tokenizer.model | cut -d' ' -f1)
  sed -i "s/$old/$new/" set/dataset.json
  refused "set/tokenizer.model" "rules are damaged at byte"
  untrainable "set/tokenizer.model" "rules are damaged at byte"
}

# truncated_while_training FILE: truncates the file to 100 bytes during a training run that has
# completed steps.
truncated_while_training() {
  "$TRIREME" train --device cpu --data set --run run --preset tiny --batch-tokens 256 --steps 1000000 --valid-every 0 \
    --save-every 100000 --log-every 1 > out 2> err 3>&- &
  local pid=$! i
  for ((i = 0; i < 1200; i++)); do
    if [ -s run/metrics.jsonl ]; then break; fi
    sleep 0.1
  done
  [ -s run/metrics.jsonl ]
  size=$(stat -c %s "set/$1")
  truncate -s 100 "set/$1"
  status=0
  wait "$pid" || status=$?
}

@test "a shard that is truncated under a running training is an error that names it" {
  truncated_while_training train-00000.tok
  cat err
  [ "$status" -eq 1 ]
  grep -q "^trireme: set/train-00000.tok was truncated while it was in use: byte [0-9]* is gone, as it has 100 bytes and had $size; .*--resume" err
  grep -q "was truncated while it was in use" run/log.txt
}

@test "a FIFO in place of any file of a data set is refused, not waited for" {
  for file in dataset.json shards.manifest tokenizer.model train.order valid.tok $shard; do
    rm "set/$file"
    mkfifo "set/$file"
    run timeout 60 "$TRIREME" inspect set --quiet --verify
    [ "$status" -eq 1 ]
    case $output in *"$file is not a regular file"*) ;; *) echo "$output"; return 1 ;; esac
    rm "set/$file"
    restore "$file"
  done
}

# every_id N: sets all token ids of all training shards to N, with correct checksums.
every_id() {
  local file
  for file in set/train-*.tok; do
    perl -MCompress::Zlib -e 'local $/; open F, "+<", $ARGV[0]; binmode F; $_ = <F>;
      ($payload, $values, $bytes) = (unpack("Q<", substr $_, 56, 8), unpack("Q<Q<", substr $_, 112, 16));
      substr($_, $values, $bytes) = pack("v", $ARGV[1]) x ($bytes / 2);
      $table = join "", map { pack "V", crc32(substr $_, 65536 * $i++, 65536 * $i > $payload ? $payload - 65536 * ($i - 1) : 65536) } ($_) x int(($payload + 65535) / 65536);
      substr($_, $payload) = $table . pack("V", crc32($table)); seek F, 0, 0; print F $_' "$file" "$1"
  done
}

@test "an id of a shard beyond the vocabulary is refused though the checksums agree" {
  every_id 99
  run "$TRIREME" inspect set --quiet --samples 1
  [ "$status" -eq 0 ]
  for id in 100 65535; do
    every_id $id
    run "$TRIREME" inspect set --quiet --samples 1
    [ "$status" -eq 1 ]
    [[ "$output" == *"set/train-"*".tok is damaged near byte "*"id $id in a vocabulary of 100"* ]]
    run "$TRIREME" train --device cpu --data set --run "run$id" --preset tiny --steps 1 --batch-tokens 64 --quiet
    [ "$status" -eq 1 ]
    [[ "$output" == *"set/train-"*".tok is damaged near byte "*"id $id in a vocabulary of 100"* ]]
  done
}

@test "validation references that are not the data set's own are refused by train" {
  tac "$BATS_FILE_TMPDIR/reference/valid.ref" > set/valid.ref
  run "$TRIREME" train --data set --run run --preset tiny --device cpu --steps 1 --valid-every 1 --batch-tokens 256 --threads 1
  [ "$status" -eq 1 ]
  [[ "$output" == *"valid.ref is damaged: its SHA-256 is "* ]]
}
