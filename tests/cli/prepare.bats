#!/usr/bin/env bats
# prepare and inspect on the command line: which pairs are kept, their ids, the bytes written.

setup_file() {
  export DATA="$BATS_TEST_DIRNAME/../../../shared/data"
  # A small corpus of difficult text: unusual spaces, pipes, long lines, empty lines, several
  # scripts.
  perl -CO -e '
    srand 7;
    my @w = map { join "", map { chr(97 + rand 26) } 1 .. 1 + rand 9 } 1 .. 400;
    push @w, "Stra\x{df}e", "na\x{ef}ve", "\x{4f60}\x{597d}", "|", "a|b", "x" x 1001, "e\x{301}t\x{e9}", "\x{2581}odd", "5\x{a0}km", "\x{301}mark", "\x{1f600}";
    my @space = (" ", " ", " ", "  ", "\t", "\x{a0}", "\x{2003}", "\x{3000}");
    for my $file (0, 1) {
      open my $f, ">:encoding(UTF-8)", "$ARGV[0]/raw.$file" or die;
      srand 100 + $file;
      for my $i (1 .. 4000) {
        my $n = rand() < .01 ? 0 : rand() < .02 ? 75 + rand 12 : rand() < .05 ? 1 : 1 + rand 25;
        my $line = join "", map { $w[rand() < .02 ? rand @w : rand 400] . $space[rand() < .9 ? 0 : rand @space] } 1 .. $n;
        $line = " " . $line if rand() < .05;
        print $f $line, "\n";
      }
    }' "$BATS_FILE_TMPDIR"
  head -n 200 "$BATS_FILE_TMPDIR/raw.0" | sed 's/^$/empty/' > "$BATS_FILE_TMPDIR/dev.0"
  head -n 200 "$BATS_FILE_TMPDIR/raw.1" | sed 's/^$/empty/' > "$BATS_FILE_TMPDIR/dev.1"
}

setup() {
  T=$BATS_FILE_TMPDIR
}

# prepare OUT [OPTION…]: prepares the corpus above.
prepare() {
  local out=$1
  shift
  "$TRIREME" prepare --quiet --out "$out" --train "$T/raw.0" "$T/raw.1" --valid "$T/dev.0" "$T/dev.1" "$@"
}

@test "kept pairs equal those of the Moses rules" {
  perl "$BATS_TEST_DIRNAME/../tools/clean_oracle.pl" 1 80 9 "$T/raw.0" "$T/raw.1" "$T/kept.0" "$T/kept.1" "$T/kept.n"
  run prepare "$T/moses" --vocab-size 600
  [ "$status" -eq 0 ]
  kept=$(wc -l < "$T/kept.n")
  [ "$kept" -gt 3000 ]
  [ "$kept" -lt 3990 ]
  [[ "$output" =~ "kept" ]]
  [ "$(echo "$output" | awk '$1 == "kept" { gsub(",", "", $2); print $2 }')" -eq "$kept" ]
  "$TRIREME_TOOLS/dump_ids" "$T/moses" train source > "$T/moses.ids"
  [ "$(wc -l < "$T/moses.ids")" -eq "$kept" ]
}

@test "the ids are SentencePiece's own on every line" {
  command -v spm_encode > /dev/null || skip "spm_encode is not installed (package sentencepiece)"
  perl "$BATS_TEST_DIRNAME/../tools/clean_oracle.pl" 1 80 9 "$T/raw.0" "$T/raw.1" "$T/kept.0" "$T/kept.1" "$T/kept.n"
  for type in bpe unigram; do
    prepare "$T/ids-$type" --vocab-size 400 --max-tokens 4095 --tokenizer-type $type > /dev/null
    for side in 0 1; do
      spm_encode --model="$T/ids-$type/tokenizer.model" --output_format=id < "$T/kept.$side" > "$T/want" 2> /dev/null
      "$TRIREME_TOOLS/dump_ids" "$T/ids-$type" train "$([ $side = 0 ] && echo source || echo target)" > "$T/got"
      cmp "$T/want" "$T/got"
    done
  done
}

@test "a given model's own special ids are honoured" {
  command -v spm_train > /dev/null || skip "spm_train is not installed (package sentencepiece)"
  cat "$T/raw.0" "$T/raw.1" > "$T/both"
  spm_train --input="$T/both" --model_prefix="$T/own" --vocab_size=500 --model_type=bpe --pad_id=7 --unk_id=0 --bos_id=-1 --eos_id=3 \
    --byte_fallback=true --minloglevel=2 2> /dev/null
  prepare "$T/own-set" --tokenizer "$T/own.model" > /dev/null
  run "$TRIREME" inspect "$T/own-set" --samples 1
  [ "$status" -eq 0 ]
  [[ "$output" =~ "pad 7, bos -1, eos 3, unk 0" ]]
}

@test "the given wmt model gives SentencePiece's ids on real text" {
  [ -d "$DATA" ] || skip "no ../shared/data here"
  command -v spm_encode > /dev/null || skip "spm_encode is not installed (package sentencepiece)"
  "$TRIREME" prepare --quiet --out "$T/news" --train "$DATA/newstest/newstest2013.en" "$DATA/newstest/newstest2013.de" \
    --valid "$DATA/newstest/newstest2014.en" "$DATA/newstest/newstest2014.de" --tokenizer "$DATA/wmt-spm/m_common.model" > /dev/null
  spm_encode --model="$DATA/wmt-spm/m_common.model" --output_format=id < "$DATA/newstest/newstest2014.de" > "$T/want" 2> /dev/null
  "$TRIREME_TOOLS/dump_ids" "$T/news" valid target > "$T/got"
  cmp "$T/want" "$T/got"
  cmp "$T/news/valid.ref" "$DATA/newstest/newstest2014.de"
}

@test "validation text is kept raw and whole" {
  prepare "$T/whole" --vocab-size 600 --max-tokens 10 > /dev/null
  cmp "$T/whole/valid.src" "$T/dev.0"
  cmp "$T/whole/valid.ref" "$T/dev.1"
}

@test "limits are options, and each drop is counted" {
  run prepare "$T/limits" --vocab-size 600 --min-words 2 --max-words 20 --max-ratio 2 --max-word-length 9 --max-tokens 60 --dedup
  [ "$status" -eq 0 ]
  for reason in "side is empty" "too many words" "too few words" "too unlike" "word too long"; do [[ "$output" =~ "$reason" ]]; done
  read=$(echo "$output" | awk '$1 == "read" { gsub(",", "", $2); print $2 }')
  sum=$(echo "$output" | sed -n '3,/^tokens/p' | sed '$d' | sed 's/ *[0-9.]* %$//; s/,//g' | awk '{ s += $NF } END { print s }')
  [ "$read" -eq "$sum" ]
  [ "$read" -eq 4000 ]
}

@test "training pairs with a NUL byte are dropped and counted" {
  for i in 1 2 3 4; do echo "one two three $i"; done > "$T/nul.0"
  printf 'eins zwei\nzw\0ei drei\nvier\nf\0nf\n' > "$T/nul.1"
  "$TRIREME" prepare --quiet --out "$T/nul" --train "$T/nul.0" "$T/nul.1" --valid "$T/nul.0" "$T/nul.0" --vocab-size 40 > "$T/table"
  grep -qE 'a NUL byte +2 ' "$T/table"
  grep -qE 'kept +2 ' "$T/table"
  "$TRIREME" inspect "$T/nul" --verify --samples 0 > "$T/report"
  grep -q 'dropped 2: a NUL byte' "$T/report"
}

@test "validation text with a NUL byte is an error with its place" {
  printf 'eins zwei\nzw\0ei drei\n' > "$T/held.1"
  printf 'one two\ntwo three\n' > "$T/held.0"
  run "$TRIREME" prepare --quiet --out "$T/held" --train "$T/held.0" "$T/held.0" --valid "$T/held.0" "$T/held.1" --vocab-size 40
  [ "$status" -eq 1 ]
  [[ "$output" == *"held.1:2: byte 3 of the line is NUL"*"tr -d"* ]]
}

@test "duplicates are dropped with --dedup, and only with it" {
  for i in 1 2 3; do echo "one two three"; echo "four five"; done > "$T/dup.0"
  for i in 1 2 3; do echo "eins zwei drei"; echo "vier $i"; done > "$T/dup.1"
  run "$TRIREME" prepare --quiet --out "$T/dup" --train "$T/dup.0" "$T/dup.1" --valid "$T/dup.0" "$T/dup.1" --vocab-size 40 --dedup
  [ "$status" -eq 0 ]
  [[ "$output" =~ "seen before"\ +2 ]]
  [[ "$output" =~ "kept"\ +4 ]]
}

@test "a second run, and other thread counts, give the same bytes" {
  prepare "$T/one" --vocab-size 600 --threads 1 --shard-size 16k > /dev/null
  prepare "$T/two" --vocab-size 600 --threads 3 --shard-size 16k > /dev/null
  diff -r "$T/one" "$T/two"
  [ -f "$T/one/train-00003.tok" ]
}

@test "compressed, tabbed and piped inputs give the same data set" {
  head -n 500 "$T/raw.0" | tr '\t' ' ' > "$T/in.0"
  head -n 500 "$T/raw.1" | tr '\t' ' ' > "$T/in.1"
  gzip -k -f "$T/in.0"
  head -c 3000 "$T/in.1" | gzip > "$T/in.1.gz"  # the file consists of two gzip members
  tail -c +3001 "$T/in.1" | gzip >> "$T/in.1.gz"
  zstd -q -f "$T/in.0" "$T/in.1"
  paste "$T/in.0" "$T/in.1" > "$T/in.tsv"
  go() { "$TRIREME" prepare --quiet --vocab-size 500 --valid "$T/dev.0" "$T/dev.1" "$@" > /dev/null; }
  go --out "$T/i1" --train "$T/in.0" "$T/in.1"
  go --out "$T/i2" --train "$T/in.0.gz" "$T/in.1.gz"
  go --out "$T/i3" --train "$T/in.0.zst" "$T/in.1.zst"
  go --out "$T/i4" --train "$T/in.tsv"
  go --out "$T/i5" --train - < "$T/in.tsv"
  sed 's/$/\r/; 1s/^/\xef\xbb\xbf/' "$T/in.0" > "$T/in.crlf"
  go --out "$T/i6" --train "$T/in.crlf" "$T/in.1"
  for i in 2 3 4 5 6; do
    for f in tokenizer.model train-00000.tok train.order valid.tok; do cmp "$T/i1/$f" "$T/i$i/$f"; done
  done
}

@test "several training pairs are joined in order" {
  head -n 1000 "$T/raw.0" > "$T/a.0"
  head -n 1000 "$T/raw.1" > "$T/a.1"
  tail -n +1001 "$T/raw.0" > "$T/b.0"
  tail -n +1001 "$T/raw.1" > "$T/b.1"
  prepare "$T/joined-1" --vocab-size 600 > /dev/null
  "$TRIREME" prepare --quiet --out "$T/joined-2" --train "$T/a.0" "$T/a.1" --train "$T/b.0" "$T/b.1" --valid "$T/dev.0" "$T/dev.1" \
    --vocab-size 600 > /dev/null
  for f in tokenizer.model train-00000.tok train.order; do cmp "$T/joined-1/$f" "$T/joined-2/$f"; done
}

@test "options may come from a config file" {
  printf 'vocab-size = 600 # small\nmax-words = 10\nseed = 3\n' > "$T/conf"
  prepare "$T/c1" --config "$T/conf" --max-words 30 > /dev/null
  prepare "$T/c2" --vocab-size 600 --max-words 30 --seed 3 > /dev/null
  diff -r "$T/c1" "$T/c2"
}

@test "inspect prints counts, packing efficiency and samples; JSON agrees" {
  prepare "$T/look" --vocab-size 600 > /dev/null
  run "$TRIREME" inspect "$T/look" --batch-tokens 512 --samples 2
  [ "$status" -eq 0 ]
  [[ "$output" =~ "pairs of 4,000 lines" ]]
  [[ "$output" =~ "batches of 512 tokens a side" ]]
  fill=$(echo "$output" | sed -n 's/.* \([0-9.]*\) % full.*/\1/p')
  awk -v f="$fill" 'BEGIN { exit !(f > 90 && f <= 100) }'
  "$TRIREME" inspect "$T/look" --json --samples 2 --verify 2> /dev/null > "$T/look.json"
  perl -MJSON::PP -e 'undef $/; my $j = decode_json(<>); exit !(@{$j->{samples}} == 2 && $j->{splits}{train}{lines} == 4000 && $j->{batches}{fill} > .9 && $j->{verified})' "$T/look.json"
}

@test "a sample decodes to the text it came from" {
  "$TRIREME" prepare --quiet --out "$T/plain" --train "$T/dev.0" "$T/dev.0" --valid "$T/dev.0" "$T/dev.0" --vocab-size 500 > /dev/null
  run "$TRIREME" inspect "$T/plain" --samples 5
  [ "$status" -eq 0 ]
  echo "$output" | sed -n '/^samples/,$p' | sed -n 's/^  en  //p' > "$T/decoded"
  [ "$(wc -l < "$T/decoded")" -eq 5 ]
  perl -CSD -pe 's/\s+/ /g; s/^ //; s/ $/\n/; $_ .= "\n" unless /\n$/' "$T/dev.0" > "$T/squeezed"
  while read -r line; do
    # Normalization may change characters of other scripts.
    case $line in *[!\ -~]*) continue ;; esac
    grep -qxF "$line" "$T/squeezed"
  done < "$T/decoded"
}
