#!/usr/bin/env bats
# import on the command line: a model of Hugging Face that translate uses, and files that are refused.

bats_require_minimum_version 1.5.0  # needed for `run -1` and `run !`

setup() {
  T=$BATS_TEST_TMPDIR
  GOLDEN=$BATS_TEST_DIRNAME/../golden/marian
}

@test "an imported model translates" {
  "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model"
  "$TRIREME" translate --quiet --model "$T/model" --device cpu --threads 1 --search-rules hf --length-penalty 1 \
    --max-length 10 < "$GOLDEN/source.txt" > "$T/out"
  [ "$(wc -l < "$T/out")" -eq 200 ]
  grep -q . "$T/out"
}

@test "a slash at the end of --out is accepted, and nothing is left of an import that failed" {
  "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model/"
  [ -s "$T/model/weights.safetensors" ]
  [ ! -e "$T/model/.partial" ]
  run -2 "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model/"
  [[ "$output" == *"exists; pass the path of a new directory"* ]]
  run -1 prlimit --fsize=1000 "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/other"
  [ ! -e "$T/other" ]
  [ ! -e "$T/other.partial" ]
}

@test "two imports to one directory do not mix: the second is refused, and what a killed one left is replaced" {
  mkdir "$T/model.partial"
  echo left > "$T/model.partial/left"
  run -2 flock "$T/model.partial" "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model"
  [[ "$output" == *"model.partial is in use by another trireme process"* ]]
  [ -e "$T/model.partial/left" ]
  "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model"
  [ ! -e "$T/model/left" ]
  [ ! -e "$T/model.partial" ]
  run -2 "$TRIREME" import --from "$GOLDEN/hf" --out ""
  [[ "$output" == *"--out: the value is empty; pass DIR"* ]]
}

@test "an imported model whose vocabulary is damaged is refused" {
  "$TRIREME" import --quiet --from "$GOLDEN/hf" --out "$T/model"
  sed -i 's/"<unk>": 1/"<unk>": 2/' "$T/model/vocab.json"
  run -1 "$TRIREME" translate --model "$T/model" --device cpu < /dev/null
  [[ "$output" == *vocab.json* ]]
}

@test "a pickle that names a function is refused by that name and not executed" {
  mkdir "$T/hf"
  cp "$GOLDEN"/hf/{config.json,vocab.json,source.spm,target.spm} "$T/hf"
  # a file of the older form: magic number, version, facts, then a call of os.system
  printf '\200\002\212\012l\374\234F\371 j\250P\031.\200\002M\351\003.}.cos\nsystem\n(X%b' \
    "\\0$(printf '%o' $((${#T} + 8)))\\0\\0\\0touch $T/ran" > "$T/hf/pytorch_model.bin"
  printf 'tR.' >> "$T/hf/pytorch_model.bin"
  run -1 "$TRIREME" import --from "$T/hf" --out "$T/model"
  [[ "$output" == *"names os.system"*"nothing was executed"* ]]
  [ ! -e "$T/ran" ]
  [ ! -e "$T/model" ]
}

@test "weights that are cut off, or of other shapes than config.json says, are refused with file and reason" {
  local hf=$GOLDEN/../bert_import
  cp -r "$hf/bert" "$T/cut"
  head -c 40000 "$hf/bert/model.safetensors" > "$T/cut/model.safetensors"
  run -1 "$TRIREME" import --from "$T/cut" --out "$T/model"
  [[ "$output" == *"cut/model.safetensors is not a usable safetensors file: a tensor lies outside the file"*"copy the file again"* ]]
  head -c 100 "$hf/bert/model.safetensors" > "$T/cut/model.safetensors"
  run -1 "$TRIREME" import --from "$T/cut" --out "$T/model"
  [[ "$output" == *"its header is longer than the file (byte 0); copy the file again"* ]]
  cp -r "$hf/mlm" "$T/bin"
  head -c 50000 "$hf/mlm/pytorch_model.bin" > "$T/bin/pytorch_model.bin"
  run -1 "$TRIREME" import --from "$T/bin" --out "$T/model"
  [[ "$output" == *"bin/pytorch_model.bin"* ]]
  cp -r "$hf/bert" "$T/shapes"
  sed -i 's/"intermediate_size": 48/"intermediate_size": 64/' "$T/shapes/config.json"
  run -1 "$TRIREME" import --from "$T/shapes" --out "$T/model"
  echo "$output"
  [[ "$output" == *"shapes"*"48"*"64"* ]]
  [ ! -e "$T/model" ]
  [ ! -e "$T/model.partial" ]
}

@test "a classifier is imported with its vocabulary and its labels" {
  run "$TRIREME" import --from "$GOLDEN/../bert_import/bert" --out "$T/model"
  [ "$status" -eq 0 ]
  [[ "$output" == *"softmax head of 3 labels"* ]]
  printf 'clean\nrude\nthreat\n' | cmp - "$T/model/labels.txt"
  cmp "$GOLDEN/../bert_import/mlm/vocab.txt" "$T/model/vocab.txt"
  grep -q '"lower_case": true' "$T/model/model.json"
}

# texts.tsv has texts, their ids and the probabilities of transformers.
@test "an imported RoBERTa model classifies texts as transformers does" {
  local from=$GOLDEN/../bert_import/roberta
  "$TRIREME" import --quiet --from "$from" --out "$T/model"
  grep -q '"tokenizer.json"' "$T/model/model.json"
  cut -f 1 "$from/texts.tsv" | "$TRIREME" classify --quiet --device cpu --model "$T/model" --json --output "$T/found"
  paste "$T/found" <(cut -f 3 "$from/texts.tsv") | perl -ne '
    my ($line, $expected) = split /\t/;
    my @found = $line =~ /"LABEL_\d": ([\d.e-]+)/g;
    my @expected = split " ", $expected;
    die "line $.: $line" unless @found == 3 && @expected == 3;
    for (0 .. 2) { die "line $.: $found[$_], not $expected[$_]" if abs($found[$_] - $expected[$_]) > 1e-5 }
    END { die "$. lines" unless $. == 8 }'
  echo '{"model_max_length": 1e30}' > "$T/model/tokenizer_config.json" # not a file of the model
  echo 'rude.' | "$TRIREME" classify --quiet --device cpu --model "$T/model" | grep -q 'LABEL_1'
  echo ' ' >> "$T/model/tokenizer.json"
  run -1 "$TRIREME" classify --device cpu --model "$T/model" <<< rude
  [[ "$output" == *"tokenizer.json"* ]]
}

@test "a RoBERTa model without a tokenizer is imported with a warning, and classify says why it cannot be used" {
  cp -r "$GOLDEN/../bert_import/roberta" "$T/from"
  rm "$T/from/vocab.json"
  run "$TRIREME" import --from "$T/from" --out "$T/model"
  [ "$status" -eq 0 ]
  [[ "$output" == *"from has no tokenizer"* ]]
  run -1 "$TRIREME" classify --device cpu --model "$T/model" <<< rude
  [[ "$output" == *"has no tokenizer"*"import the model again"* ]]
}

@test "label names that a classifier cannot have are refused before anything is written" {
  cp -r "$GOLDEN/../bert_import/bert" "$T/from"
  sed -i 's/"threat"/"clean"/' "$T/from/config.json"
  run -1 "$TRIREME" import --from "$T/from" --out "$T/model"
  [[ "$output" == *"labels 0 and 2 of \"id2label\" have the same name, 'clean'"*"config.json"* ]]
  sed "s/\"threat\"/\"$(printf 'x%.0s' {1..256})\"/" "$GOLDEN/../bert_import/bert/config.json" > "$T/from/config.json"
  run -1 "$TRIREME" import --from "$T/from" --out "$T/model"
  [[ "$output" == *"label 2 of \"id2label\" has a name longer than 255 bytes"* ]]
  [ ! -e "$T/model" ]
}

@test "import --pairs: the classifier reads two texts, the second in segment 1" {
  local from=$GOLDEN/../bert_import/bert
  "$TRIREME" import --quiet --from "$from" --out "$T/single"
  "$TRIREME" import --quiet --from "$from" --pairs --out "$T/pairs"
  printf 'a,b\nyou are,rude\nkind,not\n' > "$T/in.csv"
  run -2 "$TRIREME" classify --device cpu --model "$T/single" --input "$T/in.csv" --text-column a --text-column b
  [[ "$output" == *"the model classifies single texts"*"import --pairs"* ]]
  "$TRIREME" classify --quiet --device cpu --model "$T/pairs" --json --input "$T/in.csv" --text-column a --text-column b > "$T/columns"
  [ "$(wc -l < "$T/columns")" -eq 2 ]
  printf 'you are\trude\nkind\tnot\n' | "$TRIREME" classify --quiet --device cpu --model "$T/pairs" --json | cmp - "$T/columns"
  printf 'you are rude\nkind not\n' | "$TRIREME" classify --quiet --device cpu --model "$T/single" --json > "$T/one"
  run -1 cmp -s "$T/one" "$T/columns"
  run -2 "$TRIREME" import --from "$GOLDEN/hf" --pairs --out "$T/none"
  [[ "$output" == *"--pairs is for classifiers"* ]]
  [ ! -e "$T/none" ]
}

@test "calls without a model, without an output, and of what is no model are refused" {
  run -2 "$TRIREME" import --out "$T/model"
  [[ "$output" == *"pass --from DIR"* ]]
  run -2 "$TRIREME" import --from "$GOLDEN/hf"
  [[ "$output" == *"pass --out DIR"* ]]
  run -1 "$TRIREME" import --from "$T" --out "$T/model"
  [[ "$output" == *"has no config.json"* ]]
}
