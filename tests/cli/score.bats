#!/usr/bin/env bats
# trireme score on the command line: scores, formats and all errors.

golden="$BATS_TEST_DIRNAME/../golden/score"
wmt="$BATS_TEST_DIRNAME/../../../shared/data/bleu-wmt17"

setup() {
  cd "$BATS_TEST_TMPDIR" || exit 1
  printf 'the cat sat on the mat\nhello there\n' > ref
  printf 'the cat is on the mat\nhello there\n' > hyp
}

# Separates the outputs: $output is standard output, $errors standard error, $status the exit
# status.
score() {
  status=0
  "$TRIREME" score "$@" > out 2> err || status=$?
  output=$(cat out)
  errors=$(cat err)
}

is() { [ "$1" = "$2" ] || { printf 'got:  %s\nwant: %s\n' "$1" "$2"; return 1; }; }
has() { case $1 in *"$2"*) ;; *) printf '"%s" is not in: %s\n' "$2" "$1"; return 1 ;; esac; }
one_line() { is "$(printf '%s\n' "$1" | wc -l)" 1; }

@test "score reads standard input and prints sacreBLEU's line" {
  score --ref ref < hyp
  is "$status" 0
  is "$output" "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 39.48 87.5/66.7/25.0/16.7 (BP = 1.000 ratio = 1.000 hyp_len = 8 ref_len = 8)"
  is "$errors" ""
}

@test "score --hyp reads a file, '-' is standard input" {
  score --ref ref --hyp hyp < /dev/null
  is "$status" 0
  from_file=$output
  score --ref ref --hyp - < hyp
  is "$output" "$from_file"
}

@test "score prints one line per metric, in the order asked" {
  score --ref ref --metrics ter,chrf,chrf++,bleu --hyp hyp
  is "$status" 0
  is "$(printf '%s\n' "$output" | sed 's/|.*//' | tr '\n' ' ')" "TER chrF2 chrF2++ BLEU "
  has "$output" "TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0 = 12.50"
  has "$output" "chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2.6.0 = "
}

@test "score prints word and character error rates; --lowercase ignores case" {
  score --ref ref --hyp hyp --metrics wer,cer
  is "$status" 0
  has "$output" "WER|nrefs:1|case:mixed|unit:word|version:jiwer-4.0.0 = "
  has "$output" "CER|nrefs:1|case:mixed|unit:char|version:jiwer-4.0.0 = "
  tr a-z A-Z < ref > loud
  score --ref ref --hyp loud --metrics wer,cer --lowercase
  is "$(printf '%s\n' "$output" | sed 's/.* = //' | tr '\n' ' ')" "0.00 0.00 "
  score --ref ref --ref ref --hyp hyp --metrics wer
  is "$status" 2
  has "$errors" "WER is defined for one reference, not for 2: pass --ref once"
}

@test "score takes several references, lower case and another tokenizer" {
  printf 'The cat is on the mat\nhi\n' > ref2
  score --ref ref --ref ref2 --lowercase --tokenize intl --hyp hyp
  is "$status" 0
  has "$output" "BLEU|nrefs:2|case:lc|eff:no|tok:intl|smooth:exp|version:2.6.0 = 100.00 "
}

@test "score --width sets the digits" {
  score --ref ref --hyp hyp --width 4 --metrics ter
  has "$output" " = 12.5000"
}

@test "score --sentence-level prints a row per line, and a column per metric" {
  score --ref ref --hyp hyp --sentence-level
  is "$status" 0
  is "$output" "$(printf '37.99\n100.00')"
  has "$errors" "eff:yes"
  score --ref ref --hyp hyp --sentence-level --metrics bleu,ter --quiet
  is "$output" "$(printf '37.99\t16.67\n100.00\t0.00')"
  is "$errors" ""
}

@test "score --json has every digit, the signature and the version of trireme" {
  score --ref ref --hyp hyp --metrics bleu,ter --json
  is "$status" 0
  has "$output" '"score": 39.4844768378'
  has "$output" '"signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"'
  has "$output" "\"trireme\": \"$("$TRIREME" --version | sed 's/trireme //')\""
  has "$output" '"lines": 2'
  printf '%s' "$output" | perl -MJSON::PP -0777 -e '
    my $j = decode_json(<STDIN>);
    my ($bleu, $ter) = @{$j->{systems}[0]{scores}};
    die "bleu" unless $bleu->{hyp_len} == 8 && @{$bleu->{precisions}} == 4;
    die "ter" unless $ter->{score} == 12.5 && $ter->{edits} == 1;
    die "refs" unless $j->{references}[0] eq "ref";'
}

@test "score --confidence gives mean and interval, with the seed in the signature" {
  score --ref "$golden/salad.ref0" --hyp "$golden/salad.hyp" --confidence --resamples 300
  is "$status" 0
  has "$output" "BLEU|nrefs:1|bs:300|seed:12345|case:mixed|eff:no|"
  has "$output" " (μ = "
  first=$output
  score --ref "$golden/salad.ref0" --hyp "$golden/salad.hyp" --confidence --resamples 300
  is "$output" "$first"
  score --ref "$golden/salad.ref0" --hyp "$golden/salad.hyp" --confidence --resamples 300 --seed 2
  [ "$output" != "$first" ]
}

@test "score --paired-bs compares systems, the baseline first" {
  score --ref "$golden/salad.ref0" --hyp "$golden/salad.hyp" --paired-bs "$golden/salad.other" \
    --paired-bs "$golden/salad.ref0" --metrics bleu,chrf
  is "$status" 0
  is "$(printf '%s\n' "$output" | grep -c ' p = ')" 4
  is "$(printf '%s\n' "$output" | grep -c '  baseline  ')" 2
  has "$output" "100.00 (μ = 100.00 ± 0.00)  p = 0.00"
}

@test "score reads CRLF files as LF files" {
  sed 's/$/\r/' hyp > crlf
  score --ref ref --hyp hyp --metrics bleu,chrf,chrf++,ter
  lf=$output
  score --ref ref --hyp crlf --metrics bleu,chrf,chrf++,ter
  is "$output" "$lf"
}

@test "score takes a last line without its LF" {
  printf 'the cat is on the mat\nhello there' > "cut"
  score --ref ref --hyp cut
  is "$status" 0
  has "$output" " = 39.48 "
}

@test "score of empty hypotheses is 0, not an error" {
  printf '\n\n' > blank
  score --ref ref --hyp blank --metrics bleu,chrf,ter
  is "$status" 0
  has "$output" "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 0.00 "
  has "$output" "asian:no|version:2.6.0 = 100.00"
}

@test "score warns of text that looks tokenized" {
  for i in $(seq 120); do echo "line $i ."; done > tokenized
  score --ref tokenized --hyp tokenized
  is "$status" 0
  has "$errors" "120 lines of tokenized end in ' .'"
}

@test "score without --ref is a wrong call" {
  score --hyp hyp
  is "$status" 2
  has "$errors" "--ref FILE"
  one_line "$errors"
}

@test "score refuses an unknown metric, an empty one and one named twice" {
  score --ref ref --hyp hyp --metrics bleu,meteor
  is "$status" 2
  has "$errors" "there is no metric 'meteor'"
  score --ref ref --hyp hyp --metrics bleu,
  is "$status" 2
  score --ref ref --hyp hyp --metrics bleu,bleu
  is "$status" 2
  has "$errors" "BLEU twice"
}

@test "score refuses an unknown tokenizer and too few resamples" {
  score --ref ref --hyp hyp --tokenize zh
  is "$status" 2
  score --ref ref --hyp hyp --confidence --resamples 1
  is "$status" 2
}

@test "score refuses options that contradict each other" {
  score --ref ref --hyp hyp --sentence-level --confidence
  is "$status" 2
  has "$errors" "--confidence"
  score --ref ref --hyp hyp --sentence-level --paired-bs hyp
  is "$status" 2
  score --ref ref --hyp hyp --confidence --paired-bs hyp
  is "$status" 2
  score --ref - < hyp
  is "$status" 2
  has "$errors" "standard input"
}

@test "score names both counts and both files when lines do not correspond" {
  printf 'one\n' > short
  score --ref ref --hyp short
  is "$status" 1
  has "$errors" "short has 1 lines, but the reference ref has 2"
  score --ref ref --hyp hyp --paired-bs short
  is "$status" 1
  score --ref ref --ref short --hyp hyp
  is "$status" 1
  has "$errors" "hyp has 2 lines, but the reference short has 1"
}

@test "score names the line and byte that is not UTF-8" {
  printf 'fine\nnot \377 fine\n' > bad
  score --ref ref --hyp bad
  is "$status" 1
  has "$errors" "bad, line 2, byte 5 (byte 10 of the file): 0xff is not UTF-8"
  one_line "$errors"
}

@test "score names the file that is missing or empty" {
  score --ref nowhere --hyp hyp
  is "$status" 1
  has "$errors" "nowhere"
  score --ref ref < /dev/null
  is "$status" 1
  has "$errors" "standard input is empty"
  : > empty
  score --ref empty --hyp hyp
  is "$status" 1
  has "$errors" "empty is empty"
}

@test "score fails when standard output cannot be written" {
  [ -e /dev/full ] || skip "no /dev/full here"
  run sh -c "'$TRIREME' score --ref ref --hyp hyp > /dev/full"
  is "$status" 1
}

@test "score of the WMT17 outputs is sacreBLEU's, to the printed digit" {
  [ -d "$wmt" ] || skip "the WMT17 outputs are not here"
  score --ref "$wmt/newstest2017.ref.de" --metrics bleu,chrf,chrf++,ter < "$wmt/newstest2017.C-3MA.4959.en-de"
  is "$status" 0
  has "$output" "version:2.6.0 = 22.67 56.2/28.7/16.9/10.3 (BP = 0.985 ratio = 0.985 hyp_len = 60395 ref_len = 61287)"
  has "$output" "nw:0|space:no|version:2.6.0 = 51.95"
  has "$output" "nw:2|space:no|version:2.6.0 = 49.17"
  has "$output" "asian:no|version:2.6.0 = 66.88"
}

@test "a file name that is not UTF-8 is escaped in the JSON, not lost" {
  cd "$BATS_TEST_TMPDIR"
  name=$(printf 'r\351f')
  printf 'a cat sat on the mat .\n' > "$name"
  run "$TRIREME" score --ref "$name" --hyp "$name" --json
  [ "$status" -eq 0 ]
  case $output in *'"r\\xe9f"'*) ;; *) echo "$output"; return 1 ;; esac
  case $output in *null*) echo "$output"; return 1 ;; esac
}
