/* Which algorithm a matrix product of a shape is done with, remembered on disk so
 * that it is timed once on a machine. Knows nothing of CUDA. Depends on file, mem. */
#ifndef BACKEND_CUDA_PLANS_H
#define BACKEND_CUDA_PLANS_H

#include "base/file.h"

#define PLAN_WORDS 8 /* of an algorithm's description, which only cuBLASLt reads */

/* Numbers only, so that keys can be compared as bytes. */
typedef struct {
  uint32_t kind, type, tf32, bias, add, aligned, rows, in, out;
} PlanKey;

typedef struct {
  PlanKey key;
  uint32_t fused; /* the bias's gradient is made by the product itself */
  uint64_t algorithm[PLAN_WORDS];
  size_t checked; /* rows the algorithm was last seen to fit; not on disk */
} Plan;

typedef struct {
  Plan *plan;
  size_t count, cap;
  char head[256];           /* what the file must begin with */
  char path[FILE_PATH_MAX]; /* "": there is nowhere to keep it */
} Plans;

/* Reads what is known for this GPU and this version of cuBLASLt; a file that is not
 * there, damaged or for something else is as good as empty, and so is one that cannot be
 * read, with a warning. */
NODISCARD Err plans_open(Plans *p, const char *gpu, size_t version);
/* Takes in what others have written meanwhile; what is known here stays. */
NODISCARD Err plans_read(Plans *p);
void plans_free(Plans *p);
Plan *plans_find(const Plans *p, const PlanKey *key); /* NULL if there is none */
/* Adds it, or takes the place of the one with its key. */
NODISCARD Err plans_add(Plans *p, const Plan *plan);
NODISCARD Err plans_save(const Plans *p);

#endif
