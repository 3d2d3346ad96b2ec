# Trireme. `make demo` and `make test` need nothing but a fresh machine; `make help` lists the other
# targets. Requires GNU make; there is no configure step.
VERSION := 0.1.0
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=

CC       ?= cc
CXX      ?= c++
OBJCOPY  ?= objcopy
NM       ?= nm
OPTIMISE ?= -O3 -g
# WERROR=1, as CI has it, makes warnings errors: a newer compiler has warnings that are unknown here.
WERROR   ?=
WARN     := -Wall -Wextra -Wshadow $(if $(WERROR),-Werror)
CWARN    := $(WARN) -Wconversion -Wstrict-prototypes -Wmissing-prototypes
SAN      ?=
RUN      ?= # prefix to run programs of another architecture, such as qemu
# clang warns about kernel loops that it does not vectorise. It writes DWARF 5 by default, which
# valgrind of Debian 12 cannot read.
is_clang := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
# The machine that the compiler makes programs for. The redirection calls a shell, without which make
# prints an error of its own where no compiler is installed yet.
target   := $(shell $(CC) -dumpmachine 2>/dev/null)
CWARN    += $(if $(is_clang),-Wno-pass-failed)
OPTIMISE += $(if $(is_clang),-gdwarf-4)

.DELETE_ON_ERROR:
.PHONY: all demo check coverage test test-cluster test-slow test-fault asan fuzz mutate tsan clang cross other-debian format check-format lint install uninstall clean help deps test-deps
all: $(BUILD)/trireme $(BUILD)/trireme.1 $(BUILD)/trireme.bash plugins

# Libraries and compilers of this machine, found by scripts/probe.
# Everything is compiled again only if the answers change, or this file.
-include $(BUILD)/config.mk
$(BUILD)/config.mk: $(BUILD)/probed ;
$(BUILD)/probed: scripts/probe Makefile
	@mkdir -p $(@D)
	@{ CC="$(CC)" CXX="$(CXX)" scripts/probe; echo "# Makefile $$(cksum < Makefile)"; } > $@
	@cmp -s $@ $(BUILD)/config.mk || cp $@ $(BUILD)/config.mk

CPPFLAGS += -Isrc -D_GNU_SOURCE -DTRIREME_VERSION='"$(VERSION)"' $(PROBED_CPPFLAGS)
CFLAGS   += -std=c11 $(OPTIMISE) $(CWARN) $(SAN) -pthread $(PROBED_OPENMP)
CXXFLAGS += -std=c++17 $(OPTIMISE) $(WARN) $(SAN) -pthread
LDLIBS   += $(PROBED_LIBS) -lm -ldl
# Plug-ins call functions of the program's module base, so its symbols are exported.
LINK     = $(if $(HAVE_SENTENCEPIECE),$(CXX),$(CC)) $(OPTIMISE) $(SAN) -pthread $(PROBED_OPENMP) -rdynamic

comma    := ,
# in builds for coverage, a process that ends by _exit writes its counts too
counted  := $(if $(findstring --coverage,$(SAN)),$(BUILD)/tests/coverage/exit.c.o)
LINK     += $(if $(counted),-Wl$(comma)--wrap=_exit $(counted))
# what the leak checker must not report
leaks    := $(if $(findstring address,$(SAN)),$(BUILD)/tests/ranks/sanitizer.c.o)
whole    := -Wl,--whole-archive $(BUILD)/libtrireme.a -Wl,--no-whole-archive

sources  := $(sort $(filter-out src/comm/mpi.c src/monitor/watch_screen.c src/monitor/board_http.c src/monitor/board_page.c src/backend/cuda/%,$(wildcard src/*/*.c src/*/*/*.c)) $(if $(HAVE_SENTENCEPIECE),$(wildcard src/*/*.cc)))
# The fast CPU kernels are compiled once per instruction set; the program selects one at start.
kernels  := $(wildcard src/backend/cpu/fast/*.c)
isas     := base $(if $(filter x86_64%,$(target)),v3 v4)
objects  := $(addprefix $(BUILD)/,$(addsuffix .o,$(sources)) $(foreach i,$(isas),$(kernels:.c=.$i.o)))
unit     := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
tools    := $(patsubst tests/tools/%.c,$(BUILD)/tests/%,$(wildcard tests/tools/*.c)) \
            $(patsubst tests/ranks/%.c,$(BUILD)/tests/%,$(wildcard tests/ranks/check_*.c))
formatted = $(shell git ls-files -co --exclude-standard 'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'tests/*.c' 'tests/*.h' 'tests/*.cu')

# `make V=1` shows the whole commands.
say = $(if $(V),,@echo '  $(1)	$(patsubst $(BUILD)/%,%,$@)';)
$(BUILD)/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/src/backend/cpu/%: CFLAGS += $(KERNELS) -ffp-contract=fast -fno-math-errno -fno-trapping-math
$(BUILD)/src/launch/cluster_script.c.o: src/launch/cluster.sh # cluster_script.c includes it
# Compiled for BFMMLA, which is used only if the processor reports it.
$(BUILD)/src/backend/cpu/gemm_bfmmla.c.o: CFLAGS += $(if $(filter aarch64%,$(target)),-march=armv8.2-a+bf16)
isa_v3 := -march=x86-64-v3
isa_v4 := -march=x86-64-v4 -mprefer-vector-width=512
define kernel_rule
$(BUILD)/src/backend/cpu/fast/%.$1.o: src/backend/cpu/fast/%.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(isa_$1) -DISA=$1 -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(isas),$(eval $(call kernel_rule,$i)))
$(BUILD)/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(objects) $(BUILD)/src/main.c.o: $(BUILD)/config.mk | required
# The build requires these libraries. Without one of the others only some features are missing.
.PHONY: required
required:
	@test -n "$(HAVE_ZLIB)" -a -n "$(HAVE_JANSSON)" || { \
	  echo 'zlib and Jansson are needed: run scripts/install-deps, or install zlib1g-dev and libjansson-dev' >&2; exit 1; }

$(BUILD)/libtrireme.a: $(objects) | $(counted)
	@rm -f $@
	$(call say,AR)$(AR) rcs $@ $^
# Plug-ins call functions of libtrireme.a in the program, so the program is linked with all of it.
$(BUILD)/trireme: $(BUILD)/src/main.c.o $(leaks) $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $< $(leaks) $(whole) $(LDLIBS) -o $@
# Plug-ins, which the program loads with dlopen when they are needed.
.PHONY: plugins
plugins: $(if $(PROBED_MPI),$(BUILD)/libtrireme-mpi.so)
$(BUILD)/libtrireme-mpi.so: src/comm/mpi.c src/comm/transport.h src/base/plugin.h $(BUILD)/config.mk
	$(call say,PLUGIN)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared $< $(PROBED_MPI) -o $@
plugins: $(if $(PROBED_NCURSES),$(BUILD)/libtrireme-watch.so)
$(BUILD)/libtrireme-watch.so: src/monitor/watch_screen.c src/monitor/watch_screen.h src/monitor/watch.h src/monitor/canvas.h src/monitor/runlog.h src/base/plugin.h $(BUILD)/config.mk
	$(call say,PLUGIN)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared $< $(PROBED_NCURSES) -o $@

# The board's HTTP server with its page: the files of src/monitor/page and the chart library dygraphs
# of the distribution are put into one directory, which board_page.c embeds.
page := $(BUILD)/page
page_files := $(patsubst src/monitor/page/%,$(page)/%,$(wildcard src/monitor/page/*)) $(page)/dygraph.js $(page)/dygraph.css
plugins: $(if $(PROBED_MICROHTTPD),$(if $(DYGRAPHS),$(BUILD)/libtrireme-board.so))
$(page)/dygraph.%: $(DYGRAPHS)/dygraph.min.%
	@mkdir -p $(@D)
	@cp $< $@
$(page)/%: src/monitor/page/%
	@mkdir -p $(@D)
	@cp $< $@
board_sources := src/monitor/board_http.c src/monitor/board_page.c
$(BUILD)/libtrireme-board.so: $(board_sources) $(page_files) src/monitor/board.h src/monitor/board_page.h src/base/plugin.h $(BUILD)/config.mk
	$(call say,PLUGIN)$(CC) $(CPPFLAGS) -DPAGE_DIR='"$(page)"' $(CFLAGS) -fPIC -shared $(board_sources) $(PROBED_MICROHTTPD) -o $@

# The CUDA plug-in is built if nvcc is found: for those of the architectures below that nvcc supports
# (72 and 87 are Jetson boards, 100 is Blackwell in data centers and 120 in workstations), or for the
# one given by `make CUDA_ARCH=90a`, which takes a fraction of the time. CUDA_PTX is the
# architecture of the PTX that the driver compiles for newer GPUs; CUDA_PTX=none omits it. CUDA_AS=75
# compiles the source as for sm_75 to machine code of CUDA_ARCH, to test code for older GPUs on a newer one;
# there is no PTX of CUDA_PTX then, because it cannot be made from such source.
CUDA_ARCH ?= 72 75 80 86 87 89 90a 100 120
CUDA_PTX  ?= 90
cuda_ptx   = $(if $(CUDA_AS),,$(filter-out none,$(CUDA_PTX)))
cuda_obj  := $(patsubst %,$(BUILD)/%.o,$(wildcard src/backend/cuda/*.c src/backend/cuda/*.cu))
gencode    = -gencode arch=compute_$(or $(CUDA_AS),$1)$(comma)code=$2
cuda_has   = $(filter sm_$(1:a=),$(CUDA_HAS))
cuda_asked = $(if $(filter file,$(origin CUDA_ARCH)),,$(CUDA_ARCH)) $(cuda_ptx)
cuda_lacks = $(foreach a,$(cuda_asked),$(if $(call cuda_has,$a),,$a))
cuda_code  = $(if $(strip $(cuda_lacks)),$(error $(NVCC) has no sm_$(strip $(cuda_lacks)); it has: $(CUDA_HAS))) \
  $(foreach a,$(CUDA_ARCH),$(if $(call cuda_has,$a),$(call gencode,$a,sm_$a))) \
  $(if $(call cuda_has,$(cuda_ptx)),$(call gencode,$(cuda_ptx),compute_$(cuda_ptx)))
NVCCFLAGS += -std=c++17 -O3 --threads 2 $(cuda_code)$(if $(CUDA_AS), -DCUDA_AS=$(CUDA_AS)) $(if $(WERROR),-Werror all-warnings) -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra
# The CUDA plug-in is not part of builds with sanitizers; `make test-gpu` tests it.
plugins: $(if $(SAN),,$(if $(HAVE_CUDA),$(BUILD)/libtrireme-cuda.so))
$(BUILD)/src/backend/cuda/%.c.o: CFLAGS += -fPIC $(CUDA_CFLAGS)
# ptxas reports registers, shared memory and spills of each kernel, which scripts/occupancy reads from
# the .usage file beside the object; everything else that nvcc prints is shown.
ptxas_says := '^ptxas info *: (Compiling entry|Function properties|Used [0-9]|Compile time|[0-9]+ bytes gmem)|^ +[0-9]+ bytes stack frame'
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) -Isrc -D_GNU_SOURCE -DTRIREME_VERSION='"$(VERSION)"' $(NVCCFLAGS) -MMD -MP -c $< -o $@ \
	  2> $(@:.o=.usage); code=$$?; grep -vE $(ptxas_says) $(@:.o=.usage) >&2; exit $$code
$(cuda_obj): $(BUILD)/config.mk
# Rebuilds everything if the flags change.
$(BUILD)/nvcc.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCCFLAGS)' | cmp -s - $@ || echo '$(NVCCFLAGS)' > $@
$(filter %.cu.o,$(cuda_obj)): $(BUILD)/nvcc.flags
.PHONY: FORCE
$(BUILD)/libtrireme-cuda.so: $(cuda_obj)
	$(call say,LINK)$(CXX) -shared $(LDFLAGS) $^ $(CUDA_LIBS) -o $@
# Test programs that need a GPU: those that load the plug-in, and one linked with the kernels.
gpu_tests := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/gpu/test_*.c))
$(BUILD)/tests/gpu/%.c.o: CFLAGS += $(CUDA_CFLAGS)$(if $(CUDA_AS), -DCUDA_AS=$(CUDA_AS))
$(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.c.o $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $< $(whole) $(LDLIBS) -lcmocka -o $@
$(BUILD)/tests/gpu/test_kernels: $(patsubst %,$(BUILD)/tests/gpu/%.c.o,test_kernels check kernels_speed kernels_attention kernels_decode kernels_fp8 kernels_relu kernels_head kernels_loss kernels_sums) \
  $(BUILD)/tests/gpu/occupy.cu.o \
  $(filter %.cu.o,$(cuda_obj)) $(BUILD)/libtrireme.a
	$(call say,LINK)$(CXX) -pthread $(PROBED_OPENMP) $(LDFLAGS) $^ $(CUDA_LIBS) $(LDLIBS) -o $@
# For tests of several ranks on one GPU: a stand-in for NCCL, and a plug-in that gives each process a
# GPU of its own by name.
stand_in := $(BUILD)/tests/gpu/stand-in
$(BUILD)/tests/gpu/occupy.cu.o: $(BUILD)/nvcc.flags
$(stand_in)/libnccl.so.2: tests/gpu/nccl_stand_in.c tests/gpu/nccl_exchange.c tests/gpu/nccl_exchange.h src/backend/cuda/nccl_abi.h $(BUILD)/tests/gpu/occupy.cu.o $(BUILD)/config.mk
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(CPPFLAGS) $(CFLAGS) $(CUDA_CFLAGS) -fPIC -shared -Wl,--exclude-libs,ALL $(filter %.c %.o,$^) $(filter-out -lcublasLt,$(CUDA_LIBS)) -o $@
$(stand_in)/libtrireme-cuda.so: tests/gpu/one_gpu.c src/backend/cuda/cuda.h src/backend/backend.h src/base/plugin.h $(BUILD)/config.mk
	@mkdir -p $(@D)
	$(call say,PLUGIN)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared $< -ldl -o $@
.PHONY: occupancy
occupancy:
	@$(MAKE) --no-print-directory -j$(jobs) $(BUILD)/libtrireme-cuda.so
	@scripts/occupancy --update $(BUILD) bench/occupancy.tsv
	@git --no-pager diff --stat bench/occupancy.tsv || :
.PHONY: test-gpu gpu-programs
# Devices of the driver: of a graphics card, a Jetson board, Windows' subsystem for Linux.
gpu_device := $(wildcard /dev/nvidiactl /dev/nvhost-gpu /dev/nvgpu /dev/dxg)
gpu-programs: $(gpu_tests) $(stand_in)/libnccl.so.2 $(stand_in)/libtrireme-cuda.so $(BUILD)/tests/nccl_ranks
test-gpu:
	@test -n "$(gpu_device)" || { echo 'test-gpu cannot run: this machine has no NVIDIA GPU' >&2; exit 77; }
	@$(MAKE) --no-print-directory -j$(jobs) all
	@BUILD=$(BUILD) MAKE='$(MAKE)' scripts/test-gpu $(TESTS)

$(BUILD)/trireme.1: $(BUILD)/trireme
	$(call say,MAN)$(RUN) $(abspath $<) help --man > $@
$(BUILD)/trireme.bash: $(BUILD)/trireme
	$(call say,BASH)$(RUN) $(abspath $<) help --completion > $@

$(BUILD)/tests/test_%: $(BUILD)/tests/unit/test_%.c.o $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$(BUILD)/tests/test_nccl_exchange: $(BUILD)/tests/gpu/nccl_exchange.c.o
# The test includes sources of the CUDA plug-in and compiles them with fake headers of CUDA.
$(BUILD)/tests/unit/test_matmul.c.o: CPPFLAGS := -Itests/device/cuda $(CPPFLAGS)
$(BUILD)/tests/check_%: $(BUILD)/tests/ranks/check_%.c.o $(leaks) $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(BUILD)/tests/%: $(BUILD)/tests/tools/%.c.o $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $^ $(LDLIBS) -o $@
# Loads a plug-in, which calls functions of libtrireme.a.
$(BUILD)/tests/nccl_ranks: $(BUILD)/tests/tools/nccl_ranks.c.o $(leaks) $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $< $(leaks) $(whole) $(LDLIBS) -o $@
# The unit tests of most files in one program, so that one is linked instead of a hundred; `make test
# TESTS=word` links a few alone. Object files are used again, with main renamed. A file that replaces a function
# of the program or the C library must be a program of its own: it has "run-tests: own program" in its head.
alone    := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(shell grep -lE '^ \* run-tests: own program( \*/)?$$' tests/unit/test_*.c))
grouped  := $(patsubst $(BUILD)/tests/%,$(BUILD)/tests/unit/%.c.o,$(filter-out $(alone),$(unit)))
$(BUILD)/tests/unit_group: $(BUILD)/tests/unit/group.c.o $(BUILD)/tests/gpu/nccl_exchange.c.o $(grouped) $(BUILD)/libtrireme.a
	@rm -rf $@.d && mkdir -p $@.d
	@for object in $(grouped); do name=$$(basename $$object .c.o); \
	  if $(NM) -g --defined-only $$object | grep -vE ' (main|__odr_asan\..*)$$'; then \
	    echo "tests/unit/$$name.c defines these: it needs 'run-tests: own program' in its head" >&2; exit 1; fi; \
	  $(OBJCOPY) --redefine-sym main=$$name $$object $@.d/$$name.o || exit 1; done
	$(call say,LINK)$(LINK) $(LDFLAGS) $@.d/*.o $(filter-out $(grouped),$^) $(LDLIBS) -lcmocka -o $@
.SECONDARY: # keeps the object files of the tests

# Installs only the packages that are missing.
deps:
	@scripts/install-deps
test-deps:
	@scripts/install-deps test
jobs := $(shell nproc 2>/dev/null || echo 1)

test: test-deps
	@programs=$$(BUILD=$(BUILD) scripts/run-tests --programs $(TESTS)) && $(MAKE) --no-print-directory -j$(jobs) $$programs
	@BUILD=$(BUILD) scripts/run-tests $(TESTS)
.PHONY: test-programs
test-programs: $(BUILD)/tests/unit_group $(alone) $(tools) $(if $(SAN),,$(if $(HAVE_CUDA),gpu-programs))

# In less than a minute after a change of one source file: most unit tests, and some command-line tests.
check:
	@$(MAKE) --no-print-directory -j$(jobs) $$(BUILD=$(BUILD) scripts/run-tests --programs --check)
	@BUILD=$(BUILD) scripts/run-tests --check

# The tests on simulated hosts: machines made of namespaces. Root only.
test-cluster: test-deps
	@$(MAKE) --no-print-directory -j$(jobs) HAVE_CUDA= all
	@BUILD=$(BUILD) scripts/run-tests --cluster

# The tests that take more than 20 s each; TESTS selects some of them.
test-slow: test-deps
	@$(MAKE) --no-print-directory -j$(jobs) all test-programs
	@BUILD=$(BUILD) scripts/run-tests --slow $(TESTS)

# Compiling the CUDA plug-in takes longer than the demo, so the demo builds it only if there is a GPU.
demo:
	@scripts/install-deps demo
	@$(MAKE) --no-print-directory -j$(jobs) $(if $(gpu_device),,HAVE_CUDA=) all
	@BUILD=$(BUILD) scripts/demo

# All tests under the address and undefined-behaviour sanitizers, without the CUDA plug-in, which
# they cannot check. Only two stack frames are kept per allocation, because SentencePiece makes
# millions; ASAN_OPTIONS=malloc_context_size=30 prints the full stack of a leak. Without use_sigaltstack=0
# the end of a thread that was cancelled (console_screen.c) is reported, because cancelling leaves marks
# on its stack.
asan:
	@ASAN_OPTIONS="malloc_context_size=2:use_sigaltstack=0:$$ASAN_OPTIONS" $(MAKE) --no-print-directory \
	  BUILD=$(BUILD)/asan HAVE_CUDA= OPTIMISE='-O2 -g' \
	  SAN='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' test

# Lines and branches of src/ that the unit and command-line tests run, per folder; scripts/coverage also lists
# the missed ones of a file. The kernels are compiled with -O2, as without it trainings take minutes.
coverage: test-deps
	@$(MAKE) --no-print-directory -j$(jobs) BUILD=$(BUILD)/coverage HAVE_CUDA= OPTIMISE='-O0 -g' KERNELS=-O2 \
	  SAN='--coverage -fprofile-update=atomic' all test-programs
	@find $(BUILD)/coverage -name '*.gcda' -delete
	@rm -rf $(BUILD)/coverage/reach && mkdir $(BUILD)/coverage/reach
	@BUILD=$(BUILD)/coverage REACH=$(abspath $(BUILD))/coverage/reach scripts/run-tests $(TESTS) > $(BUILD)/coverage/tests.txt || \
	  grep -B 1 -A 20 ' [1-9][0-9]* failed' $(BUILD)/coverage/tests.txt
	@scripts/coverage $(BUILD)/coverage

# Tests of code with threads (word cache, pipeline, loader, saver, communication) under the thread
# sanitizer. Needs clang, whose OpenMP runtime reports its synchronization (Archer); gcc's does not.
# Libraries compiled without the sanitizer are not checked. TESTS selects other tests.
TSAN_TESTS := lease wordcache seen saver comm allreduce checkpoint tokenizer data decode train \
  translate prepare ranks collectives recover cli/system test_post
tsan:
	@scripts/install-deps tsan
	@TSAN_OPTIONS="ignore_noninstrumented_modules=1:$$TSAN_OPTIONS" \
	  OMP_TOOL_LIBRARIES="$$(ls /usr/lib/llvm-*/lib/libarcher.so | tail -n 1)" $(MAKE) --no-print-directory \
	  BUILD=$(BUILD)/tsan HAVE_CUDA= CC=clang CXX=clang++ OPTIMISE='-O1 -g' SAN=-fsanitize=thread \
	  TESTS="$(or $(TESTS),$(TSAN_TESTS))" test

# Reads MUTATIONS randomly damaged files under the same sanitizers; SEED repeats a run.
MUTATIONS ?= 6000
mutate:
	@$(MAKE) --no-print-directory -j$(jobs) BUILD=$(BUILD)/asan HAVE_CUDA= OPTIMISE='-O2 -g' \
	  SAN='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
	  all $(BUILD)/asan/tests/mutate
	@BUILD=$(BUILD)/asan MUTATIONS=$(MUTATIONS) SEED=$(SEED) scripts/mutate
$(BUILD)/tests/mutate: $(BUILD)/tests/fuzz/mutate.c.o $(BUILD)/libtrireme.a
	$(call say,LINK)$(LINK) $(LDFLAGS) $^ $(LDLIBS) -o $@

# FAULTS random faults on runs of `trireme launch` on HOSTS test hosts; SEED repeats a run. Root only.
FAULTS ?= 30
HOSTS  ?= 4
test-fault:
	@$(MAKE) --no-print-directory -j$(jobs) all
	@TRIREME=$(BUILD)/trireme tests/fault/soak --hosts $(HOSTS) --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

# The page of the board in headless Chromium, which is installed if it is missing. SHOTS=DIR keeps
# screenshots.
.PHONY: test-board
test-board: test-deps
	@scripts/install-deps browser
	@$(MAKE) --no-print-directory -j$(jobs) all
	@TRIREME=$(abspath $(BUILD)/trireme) SHOTS="$(if $(SHOTS),$(abspath $(SHOTS)))" bats tests/browser

# Builds with clang, which has other warnings than gcc, and runs the unit tests.
clang: test-deps
	@scripts/install-deps tsan
	@$(MAKE) --no-print-directory -j$(jobs) BUILD=$(BUILD)/clang HAVE_CUDA= CC=clang CXX=clang++ all test-programs
	@CC=clang BUILD=$(BUILD)/clang scripts/run-tests $(or $(TESTS),test_)

# Builds for the other architecture (x86-64 or ARM) and tests with qemu; exits with 77 if this
# machine cannot.
cross:
	@BUILD=$(BUILD) scripts/cross $(TESTS)

# Builds without a warning and passes the unit tests (TESTS: others) on Debian RELEASE, with its gcc and its
# clang. Root only.
other-debian:
	@BUILD=$(BUILD) scripts/other-debian $(or $(RELEASE),trixie) $(TESTS)

# Runs each fuzzer for FUZZ_SECONDS; needs clang. Findings are stored in build/fuzz.
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/install-deps fuzz
	@CC=clang CXX=clang++ FUZZ_SECONDS=$(FUZZ_SECONDS) BUILD=$(BUILD)/fuzz scripts/run-fuzz $(FUZZERS)

format:
	@scripts/install-deps format
	@clang-format -i $(formatted)
check-format:
	@scripts/install-deps format
	@clang-format --dry-run --Werror $(formatted)
# Checks scripts, and finds assertions in tests that can never fail.
lint:
	@scripts/install-deps lint
	@scripts/lint

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/trireme
	install -m 755 $(BUILD)/trireme $(DESTDIR)$(PREFIX)/bin/trireme
	for plugin in mpi board watch; do test ! -f $(BUILD)/libtrireme-$$plugin.so || \
	  install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/trireme $(BUILD)/libtrireme-$$plugin.so; done
	install -m 644 $(BUILD)/trireme.1 $(DESTDIR)$(PREFIX)/share/man/man1/trireme.1
	install -m 644 $(BUILD)/trireme.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/trireme
	cp -R recipes $(DESTDIR)$(PREFIX)/share/trireme/
	test ! -f $(BUILD)/libtrireme-cuda.so || install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/trireme \
	  $(BUILD)/libtrireme-cuda.so
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/trireme $(DESTDIR)$(PREFIX)/share/man/man1/trireme.1 \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions/trireme
	rm -rf $(DESTDIR)$(PREFIX)/share/trireme $(DESTDIR)$(PREFIX)/lib/trireme

clean:
	rm -rf $(BUILD)

help:
	@echo 'make               build build/trireme with what is installed'
	@echo 'make CUDA_ARCH=90a the same, with the CUDA plug-in for this kind of GPU alone'
	@echo 'make demo          install what it needs, build, show a run from text to translations'
	@echo 'make deps          install the compilers and every library that the program can use'
	@echo 'make check         most unit tests and some command-line tests, in less than a minute'
	@echo 'make test          install what is missing, build, run the unit and command-line tests'
	@echo 'make test-cluster  the tests on simulated hosts; root only'
	@echo 'make test-slow     the tests that take longer (TESTS=WORD: some of them)'
	@echo 'make coverage      lines and branches that the tests run, per folder'
	@echo 'make other-debian  build and test with the compilers of Debian RELEASE (trixie); root only'
	@echo 'make asan          every test under the address and undefined-behaviour sanitizers'
	@echo 'make tsan          tests of what has threads under the thread sanitizer (clang)'
	@echo 'make clang         build with clang, run the unit tests (TESTS=NAME: others)'
	@echo 'make cross         build for the other architecture, run its unit tests under qemu'
	@echo 'make test-gpu      the CUDA plug-in on the GPU of this machine'
	@echo 'make occupancy     store blocks per SM and waves of the CUDA kernels in bench/occupancy.tsv'
	@echo 'make test-fault    FAULTS (30) random faults on runs over HOSTS (4) test hosts; root only'
	@echo 'make test-board    the page of the board in headless Chromium (SHOTS=DIR: screenshots)'
	@echo 'make mutate        MUTATIONS (6000) damaged files of every kind, under the sanitizers'
	@echo 'make fuzz          every fuzzer for FUZZ_SECONDS (60) each'
	@echo 'make format        lay the source out with clang-format; check-format only looks'
	@echo 'make lint          shellcheck over scripts and tests, and assertions that can never fail'
	@echo 'make install       to PREFIX (/usr/local), below DESTDIR; also uninstall'
	@echo 'make clean         remove build/'

-include $(objects:.o=.d) $(cuda_obj:.o=.d) $(BUILD)/src/main.c.d $(wildcard $(BUILD)/tests/*/*.d)
