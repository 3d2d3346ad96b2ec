# What the `run` of several recipes share. To be sourced with `here` set to the recipe's
# folder; sets program, out (the folder for all output) and data.
# shellcheck disable=SC2034,SC2154  # set or used by the script that sources this
tree=$(cd "$here/../.." && pwd)
# The comment at the head of a script is its help.
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0 ;;
  -*)
    echo "$0 has no option $1; $0 --help lists what it takes" >&2
    exit 2 ;;
esac
build=${BUILD:-$tree/build}

# The program in the source tree, beside an installed recipe, or in PATH.
for program in "$build/trireme" "$tree/../../bin/trireme" "$(command -v trireme || true)"; do
  if [ -x "$program" ]; then break; fi
done
program=${TRIREME:-$program}
[ -x "$program" ] || {
  echo "there is no trireme: run make first, or set TRIREME to the program" >&2
  exit 2
}
out=${here##*/}
if [ -d "$build" ]; then out=$build/$out; fi
out=${OUT:-$out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
data=$out/data

# need_device DEVICE PRECISION: ends the script with the program's reason if it cannot train so, before hours
# of preparation. It trains one step of a tiny model.
need_device() {
  "$program" bench train --device "$1" --precision "$2" --preset tiny --vocab-size 64 --batch-tokens 16 --steps 1 \
    --lengths /dev/stdin <<< '3 3' > /dev/null || exit
}

bold='' plain=''
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain" >&2; }

# quoted WORD…: prints the words, quoted for a shell.
quoted() {
  local words
  printf -v words ' %q' "$@"
  echo "${words# }"
}

# timed NAME COMMAND…: runs the command and adds a line with NAME and its seconds to the file
# $times.
timed() {
  local name=$1 start=$SECONDS
  shift
  say "\$ $(quoted "$@")"
  "$@"
  echo "$name $((SECONDS - start))" >> "$times"
}

# say_times: prints the sum of the seconds of each NAME in $times; interrupted commands are not
# included.
say_times() {
  awk '{ if (!($1 in sum)) order[++n] = $1; sum[$1] += $2 }
    END { for (i = 1; i <= n; i++) printf "%-10s %3d min %02d s\n", order[i], sum[order[i]] / 60, sum[order[i]] % 60 }' "$times"
}

# fit NAME RUN COMMAND…: trains RUN with this command, or continues it. RUN.done says that it is complete.
fit() {
  local name=$1 run=$2
  shift 2
  if [ -f "$run.done" ] && [ -d "$run" ]; then
    say "$run is trained; remove it to train again with other options"
    return
  fi
  timed "$name" "$@" --auto-resume
  touch "$run.done"
}

# is_translated MODEL FILE: is FILE there, and not older than the model?
is_translated() { [ -f "$2" ] && [ ! "$1/weights.safetensors" -nt "$2" ]; }

# models_of RUN: prints the models to score, as paths below RUN. Without validation there is no best checkpoint.
models_of() {
  if [ -d "$1/average" ]; then echo average; fi
  if [ -d "$1/checkpoints/best" ]; then echo checkpoints/best; else echo checkpoints/latest; fi
}
