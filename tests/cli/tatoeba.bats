#!/usr/bin/env bats
# The script recipes/tatoeba-en-de, with a text and a model small enough for a test.

# A copy of the recipe with small sizes, and a text in Tatoeba's format.
setup() {
  cd "$BATS_TEST_TMPDIR"
  # Makes nproc print 1, so that one rank is started.
  export XDG_CACHE_HOME="$PWD/xdg" OUT="$PWD/out" OMP_NUM_THREADS=1
  mkdir -p recipes texts
  cp -R "$BATS_TEST_DIRNAME"/../../recipes/{tatoeba-en-de,common.bash} recipes
  chmod -R u+w recipes
  recipe=recipes/tatoeba-en-de
  sed -i 's/^vocab-size .*/vocab-size = 64/' $recipe/recipe.conf
  sed -i 's/^steps .*/steps = 6/; s/^valid-every .*/valid-every = 3/; s/^save-every .*/save-every = 1/
    s/^preset .*/preset = tiny\nd-model = 16\nffn-dim = 16\nheads = 2/; s/layers .*/layers = 1/
    s/^batch-tokens .*/batch-tokens = 128/; s/^log-every .*/log-every = 1/' $recipe/train.conf
  perl -e 'srand 5; for (1 .. 900) { $_ = join " ", map { join "", map { chr 97 + int rand 12 } 1 .. 1 + int rand 4 } 1 .. 2 + int rand 4; ($t = $_) =~ tr/a-l/l-za-k/; print "$_\t$t\tCC-BY 2.0\n" }' > texts/deu.txt
}

@test "one command prepares, trains, translates and scores; a second call finds it done" {
  run $recipe/run texts
  [ "$status" -eq 0 ]
  [[ "$output" == *"done at step 6"* ]]
  [ "$(grep -c '^BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:.* = ' <<< "$output")" -eq 2 ]
  for part in prepare train translate; do grep -q "^$part *[0-9]* min [0-9][0-9] s$" <<< "$output"; done
  [ "$(wc -l < out/average.de)" -eq "$(wc -l < out/data/valid.ref)" ]
  [ "$(wc -l < out/best.de)" -eq "$(wc -l < out/data/valid.ref)" ]
  before=$(find out -type f -newermt 2001-01-01 -printf '%p %T@\n' | sort)
  run $recipe/run
  [ "$status" -eq 0 ]
  [[ "$output" != *"at step 6"* ]]
  [ "$(grep -c '^BLEU|' <<< "$output")" -eq 2 ]
  [ "$(find out -type f -newermt 2001-01-01 -printf '%p %T@\n' | sort)" = "$before" ]
}

@test "--help prints what the script takes, and an unknown option is an error" {
  run $recipe/run --help
  [ "$status" -eq 0 ]
  [[ "$output" == "One command from sentences"*"OUT "*"TRIREME "* ]]
  run $recipe/run --seed 2
  [ "$status" -eq 2 ]
  [[ "$output" == *"has no option --seed; "*"--help lists"* ]]
  [ ! -e out ]
}

@test "a training that was killed continues" {
  TRIREME_FAULT=die:4:0 run $recipe/run texts
  [ "$status" -ne 0 ]
  [ -f out/data/dataset.json ]
  [ ! -e out/run/average ]
  run $recipe/run
  [ "$status" -eq 0 ]
  [[ "$output" == *"resume   step "[34]* ]]
  [[ "$output" == *"done at step 6"* ]]
}

@test "without the texts and the network the error says what to do" {
  sed -i 's|https://[^ ]*/|http://127.0.0.1:1/|' $recipe/recipe.conf
  run $recipe/run
  [ "$status" -eq 1 ]
  [[ "$output" == *"--source-dir"* || "$output" == *"built without"* ]]
  TRIREME="$PWD/nowhere" run $recipe/run
  [ "$status" -eq 2 ]
  [[ "$output" == *"TRIREME"* ]]
}

@test "the real text from a folder" {
  data="$BATS_TEST_DIRNAME/../../../shared/data/tatoeba-en-de"
  [ -d "$data" ] || skip "no ../shared/data/tatoeba-en-de"
  export TRIREME_RECIPES="$BATS_TEST_DIRNAME/../../recipes"
  run "$TRIREME" prepare --recipe tatoeba-en-de --source-dir "$data" --vocab-size 1000 --out set
  [ "$status" -eq 0 ]
  [[ "$output" == *"156,798"* ]]
  cmp set/valid.src "$data/valid.en"
}
