/* What backend/cuda/matmul.h needs of cuBLASLt, for fake GPUs (cuda_runtime_api.h beside it). */
#ifndef TESTS_DEVICE_CUDA_CUBLASLT_H
#define TESTS_DEVICE_CUDA_CUBLASLT_H

#define CUBLAS_VERSION 120900

typedef void *cublasLtHandle_t;

#endif
