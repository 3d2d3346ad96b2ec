#!/usr/bin/env bats
# scripts/run-tests: which test files a call selects, and what make builds for them.

bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_DIRNAME/../.."
  unset REACH
}

# needs ARGUMENT…: prints the targets that such a call needs, one a line.
needs() {
  BUILD=somewhere scripts/run-tests --programs "$@" | tr ' ' '\n' | sort -u
}

@test "one unit test is a program of its own, with the tools that it names" {
  run -0 needs unit/test_fetch
  [ "$output" = $'HAVE_CUDA=\nsomewhere/tests/httpd\nsomewhere/tests/test_fetch' ]
}

@test "a command-line test needs the program, the plug-ins and the tools that it names" {
  run -0 needs cli/tensorboard
  [ "$output" = $'HAVE_CUDA=\nplugins\nsomewhere/tests/dump_events\nsomewhere/trireme' ]
}

@test "the CUDA plug-in is built for tests that look at it, and for all tests" {
  run -0 needs cli/occupancy
  [ "$output" = $'plugins\nsomewhere/trireme' ]
  run -0 needs
  [ "$output" = $'all\ntest-programs' ]
}

@test "many unit tests are one program, except those that replace functions" {
  run -0 needs unit/test_
  [[ $'\n'"$output"$'\n' == *$'\nsomewhere/tests/unit_group\n'* ]]
  [[ $'\n'"$output"$'\n' == *$'\nsomewhere/tests/test_clock\n'* ]]
  [[ "$output" != *somewhere/tests/test_base* ]]
  [[ "$output" != *somewhere/trireme* ]]
}

@test "make check runs ten command-line files and no test that waits for time limits" {
  run -0 needs --check
  [[ $'\n'"$output"$'\n' == *$'\nsomewhere/tests/unit_group\n'* ]]
  [[ $'\n'"$output"$'\n' == *$'\nsomewhere/trireme\n'* ]]
  run -2 scripts/run-tests --programs --check test_watchdog
  [[ "$output" == *"no test file has test_watchdog in its path"* ]]
  quick=$(sed -n 's/^quick=(tests.cli.{\(.*\)}\.bats)$/\1/p' scripts/run-tests)
  IFS=, read -ra quick <<< "$quick"
  [ ${#quick[@]} -eq 10 ]
  for name in "${quick[@]}"; do [ -f "tests/cli/$name.bats" ]; done
}

@test "a word that is in no path is an error" {
  run -2 scripts/run-tests nosuchtest
  [[ "$output" == *"no test file has nosuchtest in its path"* ]]
  run -2 scripts/run-tests --fast
  [[ "$output" == *"--fast is not an option"* ]]
}
