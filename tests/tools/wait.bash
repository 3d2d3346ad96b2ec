# Functions that wait for a condition.

# until_true COMMAND…: repeats the command until it succeeds, less often after the first second,
# because each attempt takes CPU time from what is waited for. Gives up after 1,500 attempts, which
# take two minutes or more, or after ten minutes if attempts are slow.
until_true() {
  local i pause=0.02 end=$((SECONDS + 600))
  for i in {1..1500}; do
    if "$@"; then return 0; fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    if [ "$i" -eq 50 ]; then pause=0.1; fi
    sleep $pause
  done
  echo "this did not come true in $i tries: $*" >&2
  return 1
}
