#!/usr/bin/env bats
# scripts/structure: the modules of src/ may depend on each other in one direction only.

bats_require_minimum_version 1.5.0

setup() {
  command -v nm > /dev/null || skip "nm is not installed"
  root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
}

# compile FILE TEXT: creates a source file in a separate tree, and its object file.
compile() {
  mkdir -p "$(dirname "$1")" "build/$(dirname "$1")"
  printf '%s\n' "$2" > "$1"
  "${CC:-cc}" -Isrc -c "$1" -o "build/$1.o"
}

@test "no file of src/ has a circular dependency, and no module uses a later one" {
  cd "$root"
  run "$root/scripts/structure" "$(dirname "$TRIREME")"
  echo "$output"
  [ "$status" -eq 0 ]
}

@test "structure finds two files that call each other" {
  cd "$BATS_TEST_TMPDIR"
  compile src/base/a.c 'void b(void); void a(void); void a(void) { b(); }'
  compile src/base/b.c 'void a(void); void b(void); void b(void) { a(); }'
  run -1 "$root/scripts/structure" build
  [[ "$output" == *"a circle of 2 files"* ]]
  [[ "$output" == *"src/base/a.c uses src/base/b.c (b)"* ]]
}

@test "structure finds a call from base to train, and an include" {
  cd "$BATS_TEST_TMPDIR"
  compile src/train/loop.c 'void loop(void); void loop(void) {}'
  compile src/base/a.c 'void loop(void); void a(void); void a(void) { loop(); }'
  run -1 "$root/scripts/structure" build
  [[ "$output" == *"src/base/a.c uses src/train/loop.c (loop): the module train comes after base"* ]]
  echo '/* empty */' > src/train/loop.h
  compile src/base/a.c '#include "train/loop.h"'
  run -1 "$root/scripts/structure" build
  [[ "$output" == *"src/base/a.c uses src/train/loop.h (is included): the module train comes after base"* ]]
}

@test "structure accepts files that use each other in one direction" {
  cd "$BATS_TEST_TMPDIR"
  compile src/base/a.c 'void a(void); void a(void) {}'
  compile src/train/b.c 'void a(void); void b(void); void b(void) { a(); }'
  run -0 "$root/scripts/structure" build
}
