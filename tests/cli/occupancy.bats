#!/usr/bin/env bats
# scripts/occupancy: blocks per SM and waves of the CUDA kernels do not get worse than in
# bench/occupancy.tsv. CONTRIBUTING.md explains the table.
# run-tests: needs cuda

bats_require_minimum_version 1.5.0

setup() {
  command -v perl > /dev/null || skip "perl is not installed"
  command -v c++filt > /dev/null || skip "c++filt is not installed"
  root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
  table=$root/bench/occupancy.tsv
  occupancy=$root/scripts/occupancy
}

# make_build REGISTERS SPILLS: creates a build in which ptxas reported this for norm_backward on
# sm_90a, and a table of one with 64 registers and no spills.
make_build() {
  cd "$BATS_TEST_TMPDIR"
  mkdir -p build/src/backend/cuda
  printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.1"\n' > nvcc
  chmod +x nvcc
  echo "NVCC := $PWD/nvcc" > build/config.mk
  report_kernel 64 0
  "$occupancy" --update build table.tsv
  report_kernel "$1" "$2"
}

# report_kernel REGISTERS SPILLS: writes what ptxas prints.
report_kernel() {
  local name=_Z13norm_backwardI13__nv_bfloat16Li512ELi64ELb0EEvPT_S2_PfPKS1_S5_S5_PKfS7_jj4Drop
  cat > build/src/backend/cuda/norm_backward.cu.usage << END
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '$name' for 'sm_90a'
ptxas info    : Function properties for $name
    0 bytes stack frame, $2 bytes spill stores, $2 bytes spill loads
ptxas info    : Used $1 registers, used 16 barriers, 24832 bytes smem
END
}

@test "no kernel of this build has fewer blocks per SM, more waves or more spills than in the table" {
  run "$occupancy" --check "$(dirname "$TRIREME")" "$table"
  echo "$output"
  [ "$status" -ne 77 ] || skip "$output"
  [ "$status" -eq 0 ]
}

@test "every line of the table has the blocks per SM of NVIDIA's cuda_occupancy.h" {
  command -v cc > /dev/null || skip "cc is not installed"
  include=$(sed -n 's/^CUDA_CFLAGS := //p' "$(dirname "$TRIREME")/config.mk")
  # shellcheck disable=SC2086
  echo '#include <cuda_occupancy.h>' | cc $include -E - > /dev/null 2>&1 || skip "cuda_occupancy.h is not installed"
  # shellcheck disable=SC2086
  cc -std=c11 $include "$root/tests/gpu/occupancy_nvidia.c" -o "$BATS_TEST_TMPDIR/nvidia"
  run -0 "$BATS_TEST_TMPDIR/nvidia" < "$table"
  [ "$(grep -c '^sm_' "$table")" -eq "${output%% *}" ]
}

@test "the table has threads, shared memory, blocks and waves of a kernel" {
  make_build 64 0
  run -0 "$occupancy" build
  line=$'sm_90a\tnorm_backward<bf16, 512, 64, false>\t512\t64\t24832\t16\t0\t2\t50\tregisters\t792@2\tH100-PCIe=1,H100-SXM=1\tH100-PCIe=100,H100-SXM=100'
  [ "${lines[1]}" = "$line" ]
  run -0 "$occupancy" --check build table.tsv
  [ "$output" = "1 kernel on sm_90a compared" ]
  run -0 "$occupancy" --weak table.tsv
  [ -z "$output" ]
}

@test "a kernel with a fixed grid has the waves of each GPU, and is weak if it has two" {
  make_build 64 0
  sed 's/_Z13norm_backward[^ '"'"']*/_Z9sum_shareI13__nv_bfloat16Lb1EEvPfPKT_mm/; s/Used 64/Used 32/; s/16 barriers, 24832/1 barriers, 8192/' \
    build/src/backend/cuda/norm_backward.cu.usage > build/src/backend/cuda/columns.cu.usage
  "$occupancy" --update build table.tsv
  line=$'sm_90a\tsum_share<bf16, true>\t256\t32\t8192\t1\t0\t8\t100\tthreads\t1024\tH100-PCIe=2,H100-SXM=1\tH100-PCIe=100,H100-SXM=103'
  grep -qxF "$line" table.tsv
  run -0 "$occupancy" --weak table.tsv
  [ "$output" = "sm_90a sum_share<bf16, true>: 2 waves on H100-PCIe (uneven 100 %)" ]
}

@test "a kernel that loses a block per SM fails, with what was before and what to do" {
  make_build 65 0
  run -1 "$occupancy" --check build table.tsv
  [[ "${lines[0]}" == "sm_90a norm_backward<bf16, 512, 64, false>: 2 blocks per SM before, 1 now (limited by registers); "* ]]
  [[ "${lines[0]}" == *"; 1 wave on H100-PCIe before, 2 now; 1 wave on H100-SXM before, 2 now" ]]
  [[ "$output" == *"\`make occupancy\` updates table.tsv"* ]]
  "$occupancy" --update build table.tsv
  run -0 "$occupancy" --check build table.tsv
}

@test "a kernel that spills more fails, one that needs fewer registers passes" {
  make_build 64 8
  run -1 "$occupancy" --check build table.tsv
  [ "${lines[0]}" = "sm_90a norm_backward<bf16, 512, 64, false>: 0 bytes of spills before, 16 now" ]
  report_kernel 40 0
  run -0 "$occupancy" --check build table.tsv
  [[ "$output" == *"1 kernel got better"* ]]
}

@test "a kernel that is not in the table fails, and a line of a kernel that is gone" {
  make_build 64 0
  sed -i 's/512, 64, false/512, 32, false/' table.tsv
  run -1 "$occupancy" --check build table.tsv
  [[ "$output" == *"sm_90a norm_backward<bf16, 512, 64, false>: not in the table"* ]]
  [[ "$output" == *"sm_90a norm_backward<bf16, 512, 32, false>: in the table, but not in the build"* ]]
}

@test "architectures that the build lacks are not compared, and an update keeps their lines" {
  make_build 64 0
  sed 's/^sm_90a/sm_80/' table.tsv | grep '^sm_80' > lines.txt
  cat lines.txt >> table.tsv
  run -0 "$occupancy" --check build table.tsv
  "$occupancy" --update build table.tsv
  grep -qxF "$(cat lines.txt)" table.tsv
  sed "s/'sm_90a'/'sm_86'/" build/src/backend/cuda/norm_backward.cu.usage > lines.txt
  cat lines.txt >> build/src/backend/cuda/norm_backward.cu.usage
  run -0 "$occupancy" --check build table.tsv # the table has no line of sm_86
  [ "$output" = "1 kernel on sm_90a compared" ]
}

@test "another compiler and a build without kernels are not compared" {
  make_build 255 0
  sed -i 's/^# nvcc .*/# nvcc 12.4.1/' table.tsv
  run -77 "$occupancy" --check build table.tsv
  [[ "$output" == *"the table is of nvcc 12.4.1, and this build of nvcc 13.0.1" ]]
  rm -r build/src
  run -77 "$occupancy" --check build table.tsv
  [ "$output" = "cannot compare: build has no kernels compiled for a known architecture" ]
  run -1 "$occupancy" build
  [ "$output" = "occupancy: build has no *.usage files; build the CUDA plug-in first: make all" ]
}

@test "a damaged table is an error that names the line, and a truncated one is not blamed on the build" {
  make_build 64 0
  mv table.tsv right.tsv
  for change in blocks:8 registers:4 spill:7 waves:12 uneven:13 grid:11; do
    perl -F'\t' -lane 'BEGIN { $i = shift } $F[$i - 1] = "abc" if /^sm_/; print join "\t", @F' "${change#*:}" right.tsv > table.tsv
    run -1 "$occupancy" --check build table.tsv
    [ "$output" = "occupancy: table.tsv:4: ${change%:*} is 'abc'; restore the table from git" ]
  done
  for change in '12:s/\t[^\t]*$//' '14:s/$/\t1/' '14:s/$/\t/' '1:s/.*/sm_90a/'; do
    sed "4${change#*:}" right.tsv > table.tsv
    run -1 "$occupancy" --check build table.tsv
    word=columns
    if [ "${change%%:*}" -eq 1 ]; then word=column; fi
    [ "$output" = "occupancy: table.tsv:4: this line has ${change%%:*} $word, not 13; restore the table from git" ]
  done
  sed '3s/$/\twarps/' right.tsv > table.tsv
  run -1 "$occupancy" --check build table.tsv
  [ "$output" = "occupancy: table.tsv:3: this line has 14 columns, not 13; restore the table from git" ]
  sed 's/^sm_90a/sm_80/' right.tsv > table.tsv
  run -77 "$occupancy" --check build table.tsv
  [ "$output" = "cannot compare: table.tsv has no line of sm_90a, for which this build was compiled" ]
  for lines in 0 3; do
    head -n $lines right.tsv > table.tsv
    run -1 "$occupancy" --check build table.tsv
    [ "$output" = "occupancy: table.tsv has no lines; \`make occupancy\` writes them" ]
    run -1 "$occupancy" --weak table.tsv
    [ "$output" = "occupancy: table.tsv has no lines; \`make occupancy\` writes them" ]
  done
  grep -v '^# nvcc' right.tsv > table.tsv
  run -1 "$occupancy" --check build table.tsv
  [ "$output" = "occupancy: table.tsv has no line '# nvcc VERSION'; restore the table from git" ]
}

@test "the path of a build may have blanks" {
  make_build 64 0
  mv build "my build"
  run -0 "$occupancy" --check "my build" table.tsv
  [ "$output" = "1 kernel on sm_90a compared" ]
}
