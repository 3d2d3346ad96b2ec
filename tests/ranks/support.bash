# Functions for tests of several ranks: a tiny data set, a tiny model, mpirun.
load ../tools/wait
export OMP_WAIT_POLICY=passive
# Containers often have no user except root.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
TRIREME_PLUGIN_PATH=$(dirname "$TRIREME")
export TRIREME_PLUGIN_PATH
OUTLIVE=$BATS_TEST_DIRNAME/../ranks/outlive

has_mpi() { command -v mpirun > /dev/null && [ -f "$TRIREME_PLUGIN_PATH/libtrireme-mpi.so" ]; }
need_mpi() { has_mpi || skip "MPI is not installed"; }
# Fewer repetitions under the sanitizers, which are slow; each repetition runs the same code.
fewer() { if is_sanitized; then echo "$2"; else echo "$1"; fi; }
is_sanitized() { nm "$TRIREME" 2> /dev/null | grep -qE "__[at]san_init"; }

make_set() {
  export SET="$BATS_FILE_TMPDIR/set"
  TRIREME_RECIPES=${TRIREME_RECIPES:-$BATS_TEST_DIRNAME/../../recipes} \
    "$TRIREME" prepare --quiet --recipe demo --demo-pairs 3000 --vocab-size 800 --out "$SET" > /dev/null
}

# make_small_set: makes a set with 20 pairs of validation text, for tests that validate: a model
# that has learned nothing translates slowly, because it does not end its sentences.
make_small_set() {
  local side
  make_set
  for side in src ref; do
    head -n 20 "$SET/valid.$side" > "$BATS_FILE_TMPDIR/valid.$side"
    cat <(tail -n +21 "$SET/valid.$side") "$SET/test.$side" > "$BATS_FILE_TMPDIR/train.$side"
  done
  "$TRIREME" prepare --quiet --train "$BATS_FILE_TMPDIR"/train.{src,ref} --valid "$BATS_FILE_TMPDIR"/valid.{src,ref} \
    --tokenizer "$SET/tokenizer.model" --out "$BATS_FILE_TMPDIR/small" > /dev/null
  SET=$BATS_FILE_TMPDIR/small
}

# make_gpu [OPTION…]: builds a plug-in with fake GPUs that compute on the CPU, with these compiler
# options, and puts it and the MPI plug-in first in the search path.
make_gpu() {
  local plugins=$BATS_FILE_TMPDIR/plugins root=$BATS_TEST_DIRNAME/../.. version
  version=$("$TRIREME" --version | sed 's/^trireme \([0-9.]*\).*/\1/')
  mkdir "$plugins"
  if has_mpi; then ln -s "$TRIREME_PLUGIN_PATH/libtrireme-mpi.so" "$plugins/"; fi
  "${CC:-cc}" -std=c11 -O1 -shared -fPIC -D_GNU_SOURCE -DTRIREME_VERSION="\"$version\"" -I"$root/src" \
    -o "$plugins/libtrireme-cuda.so" "$root"/tests/device/fake_{cuda,graph}.c "$@"
}

MODEL=(--preset tiny --d-model 32 --ffn-dim 64 --heads 2 --encoder-layers 1 --decoder-layers 1
  --batch-tokens 256 --micro-batches 3 --seed 1 --lr-scheduler constant --lr 3e-3 --warmup-steps 10
  --valid-every 0 --average-checkpoints 0 --log-every 1 --device cpu --threads 1)

# with N COMMAND…: runs on N ranks; with N = 1 without mpirun.
with() {
  local n=$1
  shift
  if [ "$n" -eq 1 ]; then "$@"; else mpirun -n "$n" "$@"; fi
}

# rank_pid R OUT: prints the process of rank R that of prepare that writes OUT.
rank_pid() {
  local pid
  for pid in $(pgrep -f "^$TRIREME prepare .*--out $2( |\$)"); do
    if tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then echo "$pid"; fi
  done
}

# train N RUN [OPTION…]: trains a tiny model on N ranks.
train() {
  local n=$1 run=$2
  shift 2
  with "$n" "$TRIREME" train --data "$SET" --run "$run" "${MODEL[@]}" --quiet "$@"
}

# The runs have the same weights, optimizer state and EMA, bit for bit.
same_state() {
  local file
  [ -f "$1/checkpoints/latest/weights.safetensors" ] || return 1
  for file in "$1"/checkpoints/latest/*.safetensors; do cmp "$file" "$2/checkpoints/latest/$(basename "$file")" || return 1; done
}

# figures FIELD RUN: prints the values of a field of metrics.jsonl, without the times of the ranks.
figures() {
  perl -MJSON::PP -ne 'BEGIN { $f = shift } $j = decode_json($_); next if ($j->{event} // "") eq "ranks"; print "$j->{$f}\n" if exists $j->{$f}' "$1" "$2/metrics.jsonl"
}

# counted FIELD RUN: like figures, but without the records that a later record undoes.
counted() {
  perl -MJSON::PP -ne 'BEGIN { $f = shift } $j = decode_json($_); next if ($j->{event} // "") eq "ranks";
    if (exists $j->{undone_after}) { @r = grep { $_->{step} <= $j->{undone_after} } @r }
    push @r, $j; END { print map { "$_->{$f}\n" } grep { exists $_->{$f} } @r }' "$1" "$2/metrics.jsonl"
}

# last_step RUN: prints the last step in its metrics.jsonl; 0 before the first.
last_step() {
  local line
  line=$(tail -n 1 "$1/metrics.jsonl" 2> /dev/null || true)
  line=${line##*\"step\":}
  line=${line%%[!0-9]*}
  echo "${line:-0}"
}

# until_there FILE: waits until the file is not empty.
until_there() { until_true test -s "$1"; }
