#!/usr/bin/env bats
# Version, help, man page and shell completion; also the installed files.

setup() {
  cd "$BATS_TEST_TMPDIR"
  root="$BATS_TEST_DIRNAME/../.."
  commands=$("$TRIREME" help | sed -n 's/^  \([a-z]*\)  *.*/\1/p')
}

# options COMMAND: prints the names of its options, from its help.
options() {
  "$TRIREME" help "$1" | sed -n 's/^  \(-h, \)\?--\([a-z0-9-]*\).*/\2/p'
}

@test "the version" {
  run "$TRIREME" --version
  [ "$status" -eq 0 ]
  [[ "$output" =~ ^trireme\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "--version is an option of every command" {
  version=$("$TRIREME" --version)
  [[ "$version" =~ ^trireme\ [0-9] ]]
  for command in $commands; do
    [ "$("$TRIREME" "$command" --quiet --version)" = "$version" ]
  done
}

@test "-h is --help" {
  [ "$("$TRIREME" -h)" = "$("$TRIREME" help)" ]
  for command in $commands; do
    [ "$("$TRIREME" "$command" -h)" = "$("$TRIREME" help "$command")" ]
  done
}

@test "help and man page document --no-NAME, -h and --version" {
  "$TRIREME" help prepare > page
  grep -q -e '--no-NAME' page
  grep -q -e '-h, --help' page
  grep -q -e '--version' page
  "$TRIREME" help --man > page
  grep -qF -e '\-\-no\-NAME' page
  grep -qF -e '\-\-help \fRor\fB \-h' page
  grep -qF -e '\-\-version' page
}

@test "help gives the defaults of each task" {
  "$TRIREME" help prepare | tr -s '\n ' ' ' > page
  grep -qF 'mlm divides them (default 255; 512 for classify and mlm)' page
  grep -qF 'classify and mlm train WordPiece, and only if this is given (default 32768)' page
  "$TRIREME" help train | tr -s '\n ' ' ' > page
  grep -qF '(default 1e-9; 1e-8 for classify, 1e-6 for mlm)' page
  grep -qF 'use instead of --steps (default 3 for classify, 10 for mlm)' page
  "$TRIREME" help bench | tr -s '\n ' ' ' > page
  grep -qF 'which both languages share (default 32768)' page
}

@test "a file to read that is given twice is refused, other values are replaced" {
  printf 'a b c d\n' > ref
  run "$TRIREME" score --ref ref --hyp none --hyp ref
  [ "$status" -eq 2 ]
  [[ "$output" == *"--hyp: given twice, 'none' and 'ref', and takes only one; leave one out"* ]]
  for command in translate classify; do
    run "$TRIREME" $command --model m --input a --input b
    [ "$status" -eq 2 ]
    [[ "$output" == *"--input: given twice"* ]]
  done
  printf 'hyp = none\n' > conf
  "$TRIREME" score --ref ref --config conf --hyp ref --width 1 --width 0 | grep -q '^BLEU.* = 100 '
}

@test "--no-NAME switches off what a config file has switched on" {
  printf 'json = yes\n' > conf
  printf 'a\n' > ref
  "$TRIREME" score --ref ref --hyp ref --config conf | grep -q '^{'
  "$TRIREME" score --ref ref --hyp ref --config conf --no-json | grep -q '^BLEU'
}

@test "an argument after -- is no option" {
  run "$TRIREME" inspect -- --version
  [ "$status" -eq 1 ]
  [[ "$output" == *"there is no data set --version"* ]]
  run "$TRIREME" score -- -h
  [ "$status" -eq 2 ]
  [[ "$output" == *"'-h'"* ]]
}

@test "help lists the commands" {
  run "$TRIREME" help
  [ "$status" -eq 0 ]
  for command in prepare inspect score help; do [[ "$output" == *"  $command "* ]]; done
  [ "$("$TRIREME" --help)" = "$output" ]
}

@test "every command has help, in 80 columns, on standard output" {
  [ "$(echo "$commands" | wc -l)" -ge 4 ]
  for command in $commands; do
    "$TRIREME" help "$command" > out 2> err
    [ ! -s err ]
    [ "$(head -n 1 out | cut -d: -f1)" = "trireme $command" ]
    grep -q '^Usage: trireme ' out
    perl -CSD -ne 'chomp; die "too wide: $_\n" if length > 80; die "blank at the end\n" if / $/' out
    "$TRIREME" "$command" --help > again
    cmp out again
    "$TRIREME" "$command" --anything "x y" --help > again
    cmp out again
  done
}

@test "help and man page are ASCII, whatever the locale" {
  for command in $commands; do
    run grep -nP '[^\x00-\x7f]' <("$TRIREME" help "$command")
    echo "$output"
    [ "$status" -eq 1 ]
  done
  run grep -nP '[^\x00-\x7f]' <("$TRIREME" help --man)
  [ "$status" -eq 1 ]
  run grep -nP '[^\x00-\x7f]' <("$TRIREME" help)
  [ "$status" -eq 1 ]
}

@test "no command at all is a wrong call" {
  run "$TRIREME"
  [ "$status" -eq 2 ]
  [[ "$output" == *"trireme help"* ]]
}

@test "an unknown command is answered with the nearest" {
  for call in "prepar" "help prepar"; do
    run "$TRIREME" $call
    [ "$status" -eq 2 ]
    [[ "$output" == *"no command 'prepar'"*"did you mean 'prepare'"* ]]
  done
  run "$TRIREME" xyzzy
  [ "$status" -eq 2 ]
  [[ "$output" != *"did you mean"* ]]
}

@test "an option before the command is an error that says where to put it" {
  run "$TRIREME" --threads 2 train
  [ "$status" -eq 2 ]
  [[ "$output" == *"pass the command first"*"trireme help"* ]]
}

@test "a file without an option is answered with the option it belongs to" {
  for call in "translate:--input FILE" "score:--hyp FILE" "train:--data DIR" "prepare:--train SRC TGT"; do
    run "$TRIREME" "${call%%:*}" some-file
    [ "$status" -eq 2 ]
    [[ "$output" == *"'some-file'"*"${call#*:}"*"trireme help ${call%%:*}"* ]]
  done
}

@test "a wrong choice is answered with the choices and the nearest" {
  run "$TRIREME" train --lr-scheduler cosin
  [ "$status" -eq 2 ]
  [[ "$output" == *"'cosin' is not one of noam, constant, "*"did you mean cosine?"* ]]
  run "$TRIREME" train --layer-norm xyzzy
  [ "$status" -eq 2 ]
  [[ "$output" == *"'xyzzy' is not one of pre, post" ]]
}

@test "a config file that cannot be read is named with its option" {
  run "$TRIREME" train --config nowhere
  [ "$status" -eq 1 ]
  [[ "$output" == *"--config: cannot open nowhere: No such file or directory"* ]]
  mkdir folder
  run "$TRIREME" train --config folder
  [ "$status" -eq 1 ]
  [[ "$output" == *"--config: folder is a directory"* ]]
}

@test "an unknown option is answered with the nearest" {
  run "$TRIREME" prepare --vocab-sise 5
  [ "$status" -eq 2 ]
  [[ "$output" == *"did you mean --vocab-size?"* ]]
  run "$TRIREME" inspect x --xyzzy
  [ "$status" -eq 2 ]
  [[ "$output" == *"trireme help inspect"* ]]
  run "$TRIREME" inspect
  [ "$status" -eq 2 ]
  run "$TRIREME" inspect one two
  [ "$status" -eq 2 ]
  [[ "$output" == *"'two'"* ]]
  run "$TRIREME" prepare -o x
  [ "$status" -eq 2 ]
}

@test "a former name and a name of another program are accepted" {
  printf 'a\n' > ref
  for option in --metrics --metric; do
    [ "$("$TRIREME" score --ref ref --hyp ref $option ter)" = "$("$TRIREME" score --ref ref --sys ref --metrics=ter)" ]
  done
}

@test "a name with another meaning is answered with what to pass" {
  run "$TRIREME" train --update-freq 4
  [ "$status" -eq 2 ]
  [[ "$output" == *"--update-freq is an option of fairseq: it counts micro-batches of each rank; --micro-batches counts those of all ranks: pass --micro-batches N * ranks" ]]
  run "$TRIREME" translate --lenpen 1
  [ "$status" -eq 2 ]
  [[ "$output" == *"--lenpen is an option of fairseq"*"--length-penalty"* ]]
}

@test "help aliases lists every other name in 80 columns, and the man page has them" {
  "$TRIREME" help aliases > out
  perl -CSD -ne 'chomp; die "too wide: $_\n" if length > 80; die "blank at the end\n" if / $/' out
  "$TRIREME" help --man > trireme.1
  for name in --beam --num-beams --update-freq --gradient-accumulation-steps --warmup-updates --share-all-embeddings \
    --per-device-train-batch-size --max-grad-norm --fp16; do
    grep -q -e "$name\b" out
    grep -qF -e "${name//-/\\-}" trireme.1
  done
}

@test "a config option of another command that also is an alias here is ignored with a warning" {
  printf 'max-tokens = 99\n' > conf
  run "$TRIREME" train --config conf --data nowhere --run run
  [[ "$output" == *"'max-tokens' belongs to another command and is ignored by train; for the option of fairseq write 'batch-tokens'"* ]]
}

@test "a config file's errors name file and line" {
  printf '# fine\nseed = 3\nvocab-size = huge\n' > conf
  run "$TRIREME" prepare --config conf
  [ "$status" -eq 2 ]
  [[ "$output" == *"conf:3: "*"huge"* ]]
}

@test "a byte-order mark at the beginning of a config file is ignored" {
  printf '\xef\xbb\xbfvocab-size = huge\r\n' > conf
  run "$TRIREME" prepare --config conf
  [ "$status" -eq 2 ]
  [[ "$output" == *"conf:1: vocab-size: "*"huge"* ]]
}

@test "a UTF-16 config file is answered with what to do" {
  printf '\xff\xfes\0e\0e\0d\0' > conf
  run "$TRIREME" prepare --config conf
  [ "$status" -eq 2 ]
  [[ "$output" == *"conf:1: the file contains a NUL byte; save it as UTF-8"* ]]
}

@test "errors go to standard error, and only they" {
  code=0
  "$TRIREME" prepare --nonsense > out 2> err || code=$?
  [ "$code" -eq 2 ]
  [ ! -s out ]
  [ "$(wc -l < err)" -eq 1 ]
  [[ "$(cat err)" == "trireme: "* ]]
}

@test "colour is for terminals, and not with NO_COLOR" {
  script -qec true /dev/null > /dev/null 2>&1 || skip "no script(1), or no terminals for it to make"
  red=$(printf '\033[31m')
  run env TERM=xterm NO_COLOR= script -qec "$TRIREME xyzzy" /dev/null
  [[ "$output" == *"$red"* ]]
  run env TERM=xterm NO_COLOR=1 script -qec "$TRIREME xyzzy" /dev/null
  [[ "$output" == *"no command"* && "$output" != *$'\033'* ]]
  run env TERM=dumb NO_COLOR= script -qec "$TRIREME xyzzy" /dev/null
  [[ "$output" == *"no command"* && "$output" != *$'\033'* ]]
  run env TERM=xterm "$TRIREME" xyzzy  # standard output is a pipe, not a terminal
  [[ "$output" == *"no command"* && "$output" != *$'\033'* ]]
}

@test "the man page has every command and option" {
  "$TRIREME" help --man > trireme.1
  head -n 1 trireme.1 | grep -q '^\.TH TRIREME 1 '
  for section in NAME SYNOPSIS COMMANDS "EXIT STATUS"; do grep -q "^\.SH $section$" trireme.1; done
  for command in $commands; do
    grep -q "^\.SS $command$" trireme.1
    for option in $(options "$command"); do grep -qF -- ".B \\-\\-${option//-/\\-}" trireme.1; done
  done
  # These are the only roff requests in the page; no line of text may begin like a request.
  run grep -vE "^([^.']|$|\.(TH|SH|SS|B|I|PP|TP|nf|fi)( |$))" trireme.1
  [ "$status" -eq 1 ]
}

@test "the man page renders without a warning" {
  if command -v mandoc > /dev/null; then
    "$TRIREME" help --man | mandoc -W error > page
  elif command -v man > /dev/null && command -v groff > /dev/null; then
    "$TRIREME" help --man > trireme.1
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings=w -l trireme.1 > page 2> err || skip "man does not render here: $(head -n 1 err)"
    cat err
    [ ! -s err ]
  else
    skip "neither mandoc nor man with groff"
  fi
  perl -pe 's/.\x08//g' page > plain
  [ "$(wc -l < plain)" -gt 100 ]
  for command in $commands; do
    for option in $(options "$command"); do grep -qE -- "^ +--$option( |$)" plain; done
  done
}

# completions WORD…: prints what bash would offer for the last word.
completions() {
  bash -c 'source ./trireme.bash; COMP_WORDS=(trireme "$@"); COMP_CWORD=$#; COMPREPLY=(); _trireme; printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}

@test "completion offers commands, options, choices and files" {
  "$TRIREME" help --completion > trireme.bash
  bash -n trireme.bash
  bash -c 'source ./trireme.bash; complete -p trireme' | grep -q -- '-F _trireme trireme'
  [ "$(completions "" | sort)" = "$(echo "$commands" | sort)" ]
  [ "$(completions pre)" = prepare ]
  for command in $commands; do
    [ "$(completions "$command" -- | sort)" = "$(options "$command" | sed 's/^/--/' | sort)" ]
  done
  [ "$(completions prepare --vocab-)" = --vocab-size ]
  [ "$(completions prepare --tokenizer-type "" | tr '\n' ' ')" = "bpe unigram " ]
  [ "$(completions prepare --tokenizer-type u)" = unigram ]
  [ "$(completions help ins)" = inspect ]
  [ "$(completions help al)" = aliases ]
  [ "$(completions train --preset "" | tr '\n' ' ')" = "tiny small base big bert-tiny bert-mini bert-small bert-medium bert-base bert-large " ]
  [ "$(completions translate --device cp)" = cpu ]
  [ "$(completions prepare --recipe d)" = demo ]
  [ "$(completions train --batch-tokens a)" = auto ]
  [ "$(completions score --metrics c | tr '\n' ' ')" = "chrf chrf++ cer " ]
  [ "$(completions train --lr-scheduler c | tr '\n' ' ')" = "constant cosine " ]
  touch some-file
  [ "$(completions inspect some)" = some-file ]
  [ "$(completions prepare --train some)" = some-file ]
  [ -z "$(completions xyzzy --)" ]
}

@test "an installation has its parts and finds its recipes" {
  unset MAKEFLAGS MAKELEVEL TRIREME_RECIPES
  build=$(dirname "$TRIREME")
  # Installs the existing build: -o prevents make from rebuilding it.
  run make -C "$root" -o all install BUILD="$build" DESTDIR="$PWD/dest" PREFIX=/usr
  [ "$status" -eq 0 ]
  [ -x dest/usr/bin/trireme ]
  head -n 1 dest/usr/share/man/man1/trireme.1 | grep -q TRIREME
  grep -q _trireme dest/usr/share/bash-completion/completions/trireme
  diff -r "$root/recipes" dest/usr/share/trireme/recipes
  run dest/usr/bin/trireme prepare --recipe no-such-recipe --out out
  [ "$status" -eq 2 ]
  for recipe in "$root"/recipes/*/recipe.conf; do [[ "$output" == *"$(basename "${recipe%/*}")"* ]]; done
  [ ! -e out ]
  run make -C "$root" uninstall BUILD="$build" DESTDIR="$PWD/dest" PREFIX=/usr
  [ "$status" -eq 0 ]
  [ -z "$(find dest -type f)" ]
}
