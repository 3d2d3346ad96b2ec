# Builds and runs the test of the CUDA kernels, and nothing else, so that it works on
# a machine with no more than a C compiler and nvcc:
#   make -f src/backend/cuda/kernels.mk            build build/gpu/test_kernels
#   make -f src/backend/cuda/kernels.mk check      build and run it
#   make -f src/backend/cuda/kernels.mk speed      … and print times at the base shape
BUILD       ?= build/gpu
NVCC        ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) nvcc)
KERNEL_ARCH ?= -gencode=arch=compute_90a,code=sm_90a

.DELETE_ON_ERROR:
.PHONY: all check speed
all: $(BUILD)/test_kernels

kernel_sources := $(sort $(wildcard src/backend/cuda/*.cu))
kernel_objects := $(patsubst src/backend/cuda/%.cu,$(BUILD)/%.cu.o,$(kernel_sources))
c_objects      := $(addprefix $(BUILD)/,$(addsuffix .o,src/backend/reference.c src/backend/reference_step.c src/backend/host.c src/base/rng.c \
                    src/base/mem.c src/base/err.c tests/gpu/test_kernels.c \
                    tests/gpu/kernels_speed.c tests/gpu/check.c))

$(BUILD)/%.cu.o: src/backend/cuda/%.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O3 -Isrc $(KERNEL_ARCH) -Xcompiler -Wall,-Wextra,-Wshadow -MMD -c $< -o $@
$(BUILD)/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -g -Isrc -D_GNU_SOURCE -isystem $(dir $(realpath $(shell command -v $(NVCC))))../include \
	  -Wall -Wextra -Werror -Wshadow -Wconversion -MMD -c $< -o $@
$(BUILD)/test_kernels: $(kernel_objects) $(c_objects)
	$(NVCC) $(KERNEL_ARCH) $^ -lm -o $@

check: all
	$(BUILD)/test_kernels
speed: all
	$(BUILD)/test_kernels --speed

-include $(kernel_objects:.o=.d) $(c_objects:.o=.d)
