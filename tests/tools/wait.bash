# Functions that wait for a condition.

# until_true COMMAND…: repeats the command until it succeeds. Gives up after 6,000 attempts, which
# take two minutes or more, or after ten minutes if attempts are slow. UNTIL_PAUSE: seconds between
# two attempts, for commands that use much of a core.
until_true() {
  local i end=$((SECONDS + 600))
  for i in $(seq 6000); do
    if "$@"; then return 0; fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    sleep "${UNTIL_PAUSE:-0.02}"
  done
  echo "this did not come true in $i tries: $*" >&2
  return 1
}
