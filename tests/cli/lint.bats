#!/usr/bin/env bats
# scripts/lint reports assertions that can never fail, and accepts others.

setup() {
  command -v shellcheck > /dev/null || skip "shellcheck is not installed"
  cd "$BATS_TEST_TMPDIR"
}

# lint_lines LINE…: runs lint on a test with these lines.
lint_lines() {
  {
    printf '#!/usr/bin/env bats\n@test "a" {\n'
    printf '  %s\n' "$@"
    printf '  true\n}\n'
  } > it.bats
  run "$BATS_TEST_DIRNAME/../../scripts/lint" "$PWD/it.bats"
}

# && is written &''& below, so that lint accepts this file.

@test "lint refuses a negated command within a loop" {
  lint_lines 'for i in 1 2; do' '  ! cmp a b' 'done'
  [ "$status" -eq 1 ]
  [[ "$output" == *"it.bats:4: this can never fail"* ]]
}

@test "lint refuses a negated command on the line of its loop" {
  lint_lines 'for i in 1 2; do'' ! cmp a b; done'
  [ "$status" -eq 1 ]
  [[ "$output" == *"it.bats:3: this can never fail"* ]]
}

@test "lint refuses assertions joined by &&" {
  # shellcheck disable=SC2016  # text of a test
  lint_lines '[ "$BASH" = 1 ] &''& [ "$UID" = 2 ]'
  [ "$status" -eq 1 ]
  [[ "$output" == *"it.bats:3: only the last part of this can fail"* ]]
}

@test "lint refuses joined assertions behind then, else or a case" {
  # shellcheck disable=SC2016  # text of a test
  lint_lines 'if true; then' '  echo' 'else [ "$BASH" = 1 ] &''& [ "$UID" = 2 ]; fi'
  [ "$status" -eq 1 ]
  [[ "$output" == *"it.bats:5: only the last part"* ]]
}

@test "lint accepts run, conditions and one assertion on each line" {
  # shellcheck disable=SC2016  # text of a test
  lint_lines 'run ! cmp a b' 'if [ "$UID" = 1 ] &''& [ "$UID" = 2 ]; then echo; fi' '[ "$UID" = 1 ] &''& [ "$UID" = 2 ] || echo' '[ "$UID" = 3 ]'
  echo "$output"
  [ "$status" -eq 0 ]
}
