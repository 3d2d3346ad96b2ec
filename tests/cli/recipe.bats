#!/usr/bin/env bats
# Recipes on the command line: found, downloaded from a faulty server, read from a directory, or
# refused with a reason.

load ../tools/wait

setup() {
  cd "$BATS_TEST_TMPDIR"
  export XDG_CACHE_HOME="$PWD/xdg" no_proxy=127.0.0.1
  # Finds the recipes for any build directory.
  export TRIREME_RECIPES="$BATS_TEST_DIRNAME/../../recipes"
  data="$BATS_TEST_DIRNAME/../../../shared/data/multi30k"
  server=
}

teardown() {
  [ -z "$server" ] || kill "$server" 2> /dev/null || true
}

# serve DIR [FLAG…]: starts a server and sets $url; requests are logged in the file `requests`.
serve() {
  "$TRIREME_TOOLS/httpd" "$@" --seconds 120 --log "$PWD/requests" > port 3>&- &
  server=$!
  until_true test -s port
  url="http://127.0.0.1:$(cat port)"
}

# Skips the test if libcurl or libarchive is not built in.
need() {
  mkdir -p probe
  echo text > probe/text
  tar czf probe/a.tgz -C probe text
  printf 'fetch = a file://%s/probe/a.tgz\nunpack = a nothing b\ntrain = b\n' "$PWD" > probe/recipe.conf
  run "$TRIREME" prepare --recipe ./probe --out nowhere --download-dir probe/cache
  case $output in *"built without"*) skip "built without libcurl or libarchive" ;; esac
  [[ "$output" == *"no member nothing"* ]]
}

# Creates a recipe with text in an archive and in SGM, below remote/. Arguments are appended to
# its fetch line.
toy() {
  mkdir -p toy remote in
  perl -e 'srand 5; for (1 .. 400) { print join(" ", map { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 6 } 1 .. 3 + int rand 9), "\n" }' > in/train.en
  tr a-l l-za-k < in/train.en > in/train.de
  { echo '<refset>'; head -20 in/train.de | sed 's|.*|<seg id="1">&</seg>|'; echo '</refset>'; } > in/valid.sgm
  head -20 in/train.en > remote/valid.en
  tar czf remote/text.tgz in
  cat > toy/recipe.conf << CONF
about = A toy
fetch = text.tgz http://127.0.0.1:1/far/text.tgz $*
fetch = valid.en http://127.0.0.1:1/far/valid.en
unpack = text.tgz in/train.en train.en
unpack = text.tgz in/train.de train.de
unpack = text.tgz in/valid.sgm valid.sgm
sgm = valid.sgm valid.de
train = train.en train.de
valid = valid.en valid.de
vocab-size = 64
CONF
}

@test "an unknown recipe is answered with the known ones" {
  run "$TRIREME" prepare --recipe multi30k-en-d --out out
  [ "$status" -eq 2 ]
  [[ "$output" == *"did you mean 'multi30k-en-de'"* ]]
  [[ "$output" == *demo* && "$output" == *wmt16-en-de* ]]
  [ ! -e out ]
}

@test "an installed program finds its recipes" {
  unset TRIREME_RECIPES
  mkdir -p usr/bin usr/share/trireme/recipes/installed-one
  cp "$TRIREME" usr/bin/trireme
  echo 'generate = demo' > usr/share/trireme/recipes/installed-one/recipe.conf
  run usr/bin/trireme prepare --recipe installed-on --out out
  [ "$status" -eq 2 ]
  [[ "$output" == *"did you mean 'installed-one'"* ]]
}

@test "a broken recipe is named with its line" {
  toy
  echo 'fetch = ../up http://h/x' >> toy/recipe.conf
  run "$TRIREME" prepare --recipe ./toy --out out
  [ "$status" -eq 2 ]
  [[ "$output" == *"toy/recipe.conf:11"*"../up"* ]]
  [ ! -e out ]
}

@test "an option that prepare does not know is named with its line" {
  toy
  echo 'vocabulary-size = 5' >> toy/recipe.conf
  mkdir source && cp in/* remote/* source && touch source/valid.de
  run "$TRIREME" prepare --recipe ./toy --source-dir source --out out
  [ "$status" -eq 2 ]
  [[ "$output" == *"recipe.conf:11"*"vocabulary-size"* ]]
}

@test "without a network one error lists every file and the remedy" {
  toy
  need
  run "$TRIREME" prepare --recipe ./toy --out out --download-dir downloads
  [ "$status" -eq 1 ]
  last=${lines[-1]}
  [[ "$last" == *"2 files"*"http://127.0.0.1:1/far/text.tgz"*"http://127.0.0.1:1/far/valid.en"* ]]
  [[ "$last" == *"downloads"*"--source-dir"* ]]
  [ ! -e out ]
}

@test "a recipe is fetched through faults, unpacked, prepared, and kept" {
  toy
  need
  serve remote --fail 1 --cut 1000
  run "$TRIREME" prepare --recipe ./toy --out out --mirror "$url"
  [ "$status" -eq 0 ]
  [ -f out/dataset.json ]
  cat requests
  [ "$(sed -n 1p requests)" = "/text.tgz all 503" ]
  [ "$(sed -n 2p requests)" = "/text.tgz all 200" ]
  [ "$(sed -n 3p requests)" = "/text.tgz 1000- 206" ]
  cmp xdg/trireme/toy/text.tgz remote/text.tgz
  cmp xdg/trireme/toy/valid.de <(head -20 in/train.de)
  # The second call downloads nothing.
  rm requests
  run "$TRIREME" prepare --recipe ./toy --out again --mirror "$url"
  [ "$status" -eq 0 ]
  [ ! -e requests ]
}

@test "a download with another hash is refused" {
  toy "sha256:$(printf 'a%.0s' $(seq 64))"
  need
  serve remote
  sed -i "s|http://127.0.0.1:1/far|$url|" toy/recipe.conf
  run "$TRIREME" prepare --recipe ./toy --out out --download-dir downloads
  [ "$status" -eq 1 ]
  [[ "$output" == *"aaaaaaaa"* ]]
  [[ "$output" == *"$(sha256sum < remote/text.tgz | cut -c 1-64)"* ]]
  [ -e downloads/text.tgz.bad ]
  [ ! -e downloads/text.tgz ]
  [ ! -e out ]
}

@test "a file that is gone from its server is an error that names it" {
  toy
  need
  serve remote
  rm remote/valid.en
  sed -i "s|http://127.0.0.1:1/far|$url|" toy/recipe.conf
  run "$TRIREME" prepare --recipe ./toy --out out --download-dir downloads
  [ "$status" -eq 1 ]
  [[ "$output" == *"404"*"valid.en"* || "$output" == *"valid.en"*"404"* ]]
  [ ! -e out ]
}

@test "unpacked text in --source-dir needs no archive and no network" {
  toy
  mkdir source
  cp in/train.* source
  head -20 in/train.en > source/valid.en
  head -20 in/train.de > source/valid.de
  chmod a-w source
  run "$TRIREME" prepare --recipe ./toy --source-dir source --out out
  chmod u+w source
  [ "$status" -eq 0 ]
  [ -f out/dataset.json ]
  [ "$(ls source | wc -l)" -eq 4 ]
  [ ! -e xdg ]
}

# A text with both languages in one archive; the recipe holds out one sentence in eight. Some
# sources have two translations.
both() {
  toy
  paste in/train.en in/train.de | sed 's/$/\tby nobody/' > in/both.txt
  paste <(head -50 in/train.en) <(tail -50 in/train.de) >> in/both.txt
  tar czf remote/both.tgz in/both.txt
  cat > toy/recipe.conf << CONF
fetch = both.tgz http://127.0.0.1:1/far/both.tgz
unpack = both.tgz in/both.txt both.txt
split = both.txt 8 train.en train.de held.en held.de
train = train.en train.de
valid = held.en held.de
vocab-size = 64
CONF
}

# Computes the same split independently, in another language.
split_by_perl() {
  perl -MDigest::SHA=sha256_hex -F'\t' -lane '
    BEGIN { no warnings; open $f{$_}, ">", $_ for "t.en", "t.de", "h.en", "h.de" }
    no warnings "portable";
    $w = hex(substr(sha256_hex($F[0]), 0, 16)) % 8 ? "t" : "h";
    print { $f{"$w.en"} } $F[0]; print { $f{"$w.de"} } $F[1]' in/both.txt
}

@test "a text with both languages is split by the hash of its source" {
  both
  need
  run "$TRIREME" prepare --recipe ./toy --mirror "file://$PWD/remote" --out out
  [ "$status" -eq 0 ]
  split_by_perl
  [ "$(wc -l < h.en)" -gt 20 ]
  for side in en de; do
    cmp "xdg/trireme/toy/train.$side" "t.$side"
    cmp "xdg/trireme/toy/held.$side" "h.$side"
  done
  [ -z "$(comm -12 <(sort -u t.en) <(sort -u h.en))" ]
  cmp out/valid.src h.en
  cmp out/valid.ref h.de
}

@test "a text that cannot be split is named with its line, and nothing is left" {
  both
  mkdir source
  sed '17s/\t.*//' in/both.txt > source/both.txt
  run "$TRIREME" prepare --recipe ./toy --source-dir source --out out
  [ "$status" -eq 1 ]
  [[ "$output" == *"source/both.txt:17: no tab"* ]]
  [ -z "$(ls xdg/trireme/toy)" ]
  [ ! -e out ]
}

@test "the split texts in --source-dir, compressed or not, need no network" {
  both
  split_by_perl
  mkdir source
  gzip < t.en > source/train.en.gz
  zstd -q < t.de > source/train.de.zst
  cp h.en source/held.en
  gzip < h.de > source/held.de.gz
  run "$TRIREME" prepare --recipe ./toy --source-dir source --out out
  [ "$status" -eq 0 ]
  [ ! -e xdg ]
  cmp out/valid.ref h.de
  # Three of the four files could share sentences with those that would be downloaded.
  rm source/held.en
  run "$TRIREME" prepare --recipe ./toy --source-dir source --out again
  [ "$status" -eq 1 ]
  [[ "$output" == *"has train.de but not held.en"* ]]
}

@test "multi30k from a folder" {
  [ -d "$data" ] || skip "no ../shared/data/multi30k"
  before=$(ls -l "$data")
  run "$TRIREME" prepare --recipe multi30k-en-de --source-dir "$data" --vocab-size 2000 --out out
  [ "$status" -eq 0 ]
  [ -f out/dataset.json ]
  [ "$(ls -l "$data")" = "$before" ]
}

@test "multi30k from a mirror" {
  [ -d "$data" ] || skip "no ../shared/data/multi30k"
  toy
  need
  serve "$data" --cut 300000
  run "$TRIREME" prepare --recipe multi30k-en-de --mirror "$url" --vocab-size 2000 --out out
  [ "$status" -eq 0 ]
  [ "$(grep -c ' all 200$' requests)" -eq 6 ]
  grep -q '^/train.en.gz 300000- 206$' requests
  for file in "$data"/*.gz; do cmp "$file" "xdg/trireme/multi30k-en-de/${file##*/}"; done
}

@test "the table in the WMT16 recipe is what plan predicts" {
  readme="$TRIREME_RECIPES/wmt16-en-de/README.md"
  sed -n 's/^    \(h200s*\|t4s\)="\(.*\)"$/\1="\2"/p' "$readme" > variables
  [ "$(wc -l < variables)" -eq 3 ]
  . ./variables
  grep '^    trireme plan ' "$readme" | while read -r _ _ machine options; do
    machine=${machine#\$}
    # shellcheck disable=SC2086  # several options in one variable
    "$TRIREME" plan ${!machine} $options --json | perl -MJSON::PP -e 'undef $/; $s = decode_json(<STDIN>)->{sizes}[0];
      printf "%d x|%.0f ms|%.2f|%.2f\n", $s->{nodes} * $s->{gpus}, $s->{step_ms}, $s->{hours}, $s->{cost}'
  done > predicted
  awk -F' *[|] *' '/^\| [148] x / { split($2, machine, " "); printf "%s x|%s|%s|%s\n", machine[1], $4, $5, $6 }' "$readme" > written
  [ "$(wc -l < written)" -eq 9 ]
  diff predicted written
}

@test "the settings of the recipes are options of train" {
  "$TRIREME" prepare --recipe demo --demo-pairs 2000 --vocab-size 500 --quiet --out demo
  for conf in wmt16-en-de/course wmt16-en-de/modern europarl-en-de/train multi30k-en-de/train tatoeba-en-de/train; do
    run "$TRIREME" train --data demo --run none --config "$TRIREME_RECIPES/$conf.conf" --device cpu --precision fp32 --preset tiny --dry-run
    echo "$conf: $output"
    [ "$status" -eq 0 ]
    sed -n 's/^micro-batches = //p; $s/.*/1/p' "$TRIREME_RECIPES/$conf.conf" | head -1 > groups
    rows=$(sed -n 's/^batch-tokens = //p' "$TRIREME_RECIPES/$conf.conf")
    [[ "$output" == *"batches  $(cat groups) x $rows tokens a side in a step"* ]]
    [ ! -e none ]
  done
}

@test "the demo refuses texts, which it would not read" {
  for option in "--train a b" "--valid a b" "--test a b"; do
    # shellcheck disable=SC2086  # an option and its two values
    run "$TRIREME" prepare --recipe demo --demo-pairs 100 --out set $option
    [ "$status" -eq 2 ]
    [[ "$output" == *"--recipe demo generates its text and does not read that of ${option%% *}; "* ]]
    [ ! -e set ]
  done
}

@test "a mistyped recipe is reported before what an earlier call left" {
  mkdir out.partial
  run "$TRIREME" prepare --recipe demmo --out out
  [ "$status" -eq 2 ]
  [[ "$output" == *"demmo"* ]]
  [[ "$output" != *"out.partial"* ]]
}
