# What the tests of training on a GPU share: the program in $BUILD (default build), a temporary
# directory $T, counted tests, and comparisons of runs in $T.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
build=$(cd "$root" && cd "${BUILD:-build}" && pwd) || exit 1
trireme=$build/trireme
export TRIREME_PLUGIN_PATH=${TRIREME_PLUGIN_PATH:-$build} TRIREME_RECIPES=${TRIREME_RECIPES:-$root/recipes}
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export XDG_CACHE_HOME=$T/cache  # the first run times GEMM algorithms and caches them for the others
passed=0 failed=0 left=0

# check NAME COMMAND…: runs and counts a test, and prints its output if it fails.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@" > "$T/said" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
  else
    echo "FAILED  $name"
    sed 's/^/        /' "$T/said" | tail -n 20
    failed=$((failed + 1))
  fi
}

# leave_out WHAT: prints that a test is skipped, and counts it.
leave_out() {
  echo "left out: $1"
  left=$((left + 1))
}

# need_gpu COMMAND…: exits with 77 if the machine has no GPU, and with 1 if COMMAND fails although it has one.
need_gpu() {
  "$@" > "$T/said" 2>&1 && return
  cat "$T/said"
  [ -e /dev/nvidiactl ] && exit 1
  echo 'cannot run: this machine has no NVIDIA GPU'
  exit 77
}

# finish: prints the counts, and exits with 1 if a test failed.
finish() {
  echo "$passed passed, $failed failed, $left left out"
  if [ "$failed" -gt 0 ] || [ "$passed" -eq 0 ]; then exit 1; fi
  exit 0
}

# figures FIELD RUN: prints the values of a field of metrics.jsonl
figures() {
  sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$T/$2/metrics.jsonl"
}

# near A B MOST [LAST]: losses differ by at most the fraction MOST: all of them, or the mean of
# the last LAST.
near() {
  paste <(figures loss "$1") <(figures loss "$2") | tail -n "${4:-1000000}" |
    awk -v most="$3" -v mean="${4:-0}" -v names="$1 and $2" '
      function apart(a, b) { return a > b ? (a - b) / b : (b - a) / b }
      NF != 2 { print names ": one has more lines"; bad = 1; exit }
      { n++; a += $1; b += $2; if (!mean && !(apart($1, $2) <= most)) { print names ", line " n ": " $1, $2; bad = 1 } }
      END {
        if (n && mean) { print names ": " a / n, b / n; if (!(apart(a, b) <= most)) bad = 1 }
        exit bad || !n
      }'
}

# same A B: all arrays of the last checkpoints have the same bits
same() {
  local file
  for file in "$T/$1"/checkpoints/latest/*.safetensors; do
    cmp "$file" "$T/$2/checkpoints/latest/${file##*/}" || return 1
  done
}

# make_texts DIR: writes the data sets DIR/texts (two classes), DIR/labels (two labels per text) and
# DIR/numbers, and the texts DIR/valid.txt.
make_texts() {
  local dir=$1 kind
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e f g h good bad loud > "$dir/vocab.txt"
  awk 'BEGIN {
    srand(3)
    print "text,class,good,loud,score"
    for (i = 0; i < 2000; i++) {
      y = i % 2; l = i % 3 == 0
      text = (l ? "loud " : "") (y ? "good" : "bad")
      for (n = 2 + int(rand() * 30); n > 0; n--) text = text " " substr("abcdefgh", 1 + int(rand() * 8), 1)
      print text "," (y ? "yes" : "no") "," y "," (i % 10 ? l : "") "," y + l
    }
  }' > "$dir/texts.csv"
  tail -n 100 "$dir/texts.csv" | cut -d, -f1 > "$dir/valid.txt"
  for kind in texts:class labels:good:loud numbers:score; do
    local columns=() name
    for name in $(echo "${kind#*:}" | tr : ' '); do columns+=(--label-column "$name"); done
    [ "${kind%%:*}" != numbers ] || columns+=(--label-type number)
    "$trireme" prepare --quiet --task classify --train "$dir/texts.csv" --text-column text "${columns[@]}" --split 0.1 \
      --vocab "$dir/vocab.txt" --out "$dir/${kind%%:*}" > /dev/null || return
  done
}
# The classifier that is trained on them.
classifier_model=(--preset bert-tiny --d-model 128 --ffn-dim 256 --heads 2 --lr 1e-3 --lr-scheduler constant --warmup-steps 10
  --batch-tokens 1024 --seed 1 --average-checkpoints 0 --valid-every 0 --log-every 10 --quiet)
