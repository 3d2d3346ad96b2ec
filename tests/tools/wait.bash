# What the tests share that wait for something to happen.

# until_true COMMAND…: until it succeeds; two minutes at most, however slow the machine is.
until_true() {
  local i
  for i in $(seq 6000); do
    if "$@"; then return 0; fi
    sleep 0.02
  done
  echo "in two minutes this did not come true: $*" >&2
  return 1
}
