/* The exchange between the ranks of the stand-in for NCCL (nccl_stand_in.c): a file that all ranks
 * map, with one slot per rank. Contains no CUDA code, so that it is tested on any machine.
 * Threads: one thread runs steps; any thread may abort. Depends on POSIX. */
#ifndef TESTS_GPU_NCCL_EXCHANGE_H
#define TESTS_GPU_NCCL_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#define EXCHANGE_RANKS 16                /* largest number of ranks */
#define EXCHANGE_SLOT  ((size_t)1 << 20) /* bytes that a rank can send in one step */

typedef enum { EXCHANGE_ADD, EXCHANGE_COPY } ExchangeKind;
typedef enum { EXCHANGE_FP32, EXCHANGE_BF16, EXCHANGE_FP64 } ExchangeType;
enum { EXCHANGE_ALL = -1 };

/* One step. All ranks must run the same steps in the same order. */
typedef struct {
  int32_t kind; /* ADD: receive the sum of all ranks' elements; COPY: receive those of `root` */
  int32_t type;
  int32_t root; /* ADD: the rank that receives the sum, or EXCHANGE_ALL */
  int32_t call; /* what the caller does; compared with that of the other ranks */
  uint64_t n;   /* elements; at most EXCHANGE_SLOT bytes */
} ExchangeStep;

typedef enum { EXCHANGE_DONE, EXCHANGE_ABORTED, EXCHANGE_DIFFERS } ExchangeResult;

typedef struct Exchange Exchange;

/* Maps the file `path`, which the first rank to come creates, and waits without a limit until all
 * `size` ranks have mapped it; the file is removed then. NULL: the file cannot be used (errno). */
Exchange *exchange_open(const char *path, int rank, int size);
/* Must not be called during a step. */
void exchange_close(Exchange *x);
/* Ends the running step of this rank and all later ones; other ranks are not told. */
void exchange_abort(Exchange *x);

size_t exchange_width(int type); /* bytes of an element */
/* Sends the elements at `send` and writes the result to `recv`; each is ignored if the step does
 * not need it. Waits without a limit for the other ranks. Sums are added in the order of the ranks,
 * in fp32 or, for elements of fp64, in fp64; those of bf16 are rounded once, at the end. */
ExchangeResult exchange_run(Exchange *x, const ExchangeStep *step, const void *send,
                            void *recv);

#endif
