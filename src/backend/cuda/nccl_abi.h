/* The part of NCCL's ABI that nccl.c calls, as documented for NCCL 2.13 and later. The plug-in
 * builds without NCCL's headers and loads any such version at run time. Depends on the CUDA
 * runtime's types. */
#ifndef BACKEND_CUDA_NCCL_ABI_H
#define BACKEND_CUDA_NCCL_ABI_H

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

#include "backend/device_comm.h"

#define NCCL_LIBRARY "libnccl.so.2"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_FLOAT = 7, NCCL_DOUBLE = 8, NCCL_BF16 = 9 };
enum { NCCL_ADD = 0 };

typedef struct NcclComm NcclComm;
typedef struct {
  char bytes[128];
} NcclId;

/* ncclConfig_t of NCCL 2.17, which later versions accept because it states its size and version. Integers
 * of NCCL_CONFIG_UNDEF are chosen by NCCL. */
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size;
  int min_ctas, max_ctas; /* blocks of threads of a collective's kernel */
  const char *net_name;
} NcclConfig;
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION DEVICE_COMM_CTAS_VERSION
#define NCCL_CONFIG_UNDEF   INT_MIN

/* The functions of NCCL. Results, types and operations are C enums, passed as int. Counts are in
 * elements. */
typedef struct {
  int (*GetVersion)(int *version);
  int (*GetUniqueId)(NcclId *id);
  int (*CommInitRank)(NcclComm **comm, int size, NcclId id, int rank);
  /* NULL before NCCL 2.14. */
  int (*CommInitRankConfig)(NcclComm **comm, int size, NcclId id, int rank, NcclConfig *);
  int (*CommAbort)(NcclComm *comm);
  int (*CommGetAsyncError)(NcclComm *comm, int *state);
  const char *(*GetErrorString)(int result);
  const char *(*GetLastError)(NcclComm *comm);
  int (*AllReduce)(const void *from, void *to, size_t n, int type, int op, NcclComm *,
                   cudaStream_t);
  int (*Reduce)(const void *from, void *to, size_t n, int type, int op, int root, NcclComm *,
                cudaStream_t);
  int (*ReduceScatter)(const void *from, void *to, size_t each, int type, int op, NcclComm *,
                       cudaStream_t);
  int (*AllGather)(const void *from, void *to, size_t each, int type, NcclComm *, cudaStream_t);
  int (*Broadcast)(const void *from, void *to, size_t n, int type, int root, NcclComm *,
                   cudaStream_t);
  int (*GroupStart)(void);
  int (*GroupEnd)(void);
} Nccl;

/* Minimum version. 2.28.3 has the number 22803; before 2.9 the numbers were shorter. */
#define NCCL_OLDEST 21300

#endif
