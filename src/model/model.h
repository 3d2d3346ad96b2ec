/* Models of any family, behind one table: a family is one file that fills a ModelFamily, and one
 * line in families.c. Training, checkpoints and `bench` use models only through this header.
 * Depends on backend, config, params. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "model/arena.h"
#include "model/config.h"
#include "model/params.h"

#define MODEL_SUMS 3 /* sums that a loss accumulates; StepNumbers.loss has as many */

typedef struct Model Model;

/* The key of one micro-batch's dropout masks, and how it treats gradients. */
typedef struct {
  uint64_t key;
  bool dropout; /* false: no dropout */
  bool first;   /* its gradients overwrite the array; those of other micro-batches are added */
} StepKey;

/* Called when the gradients of the parameters in [begin, end) of the flat array are complete: on
 * a device, when the work that completes them is queued. Covers each element of the array,
 * padding included, exactly once per backward pass. */
typedef void (*GradReady)(void *context, size_t begin, size_t end);

/* The loss of one forward and backward pass. */
typedef struct {
  float smoothing; /* label smoothing, where the family's loss has it */
  float scale;     /* gradients are those of (sum of losses) * scale */
  GradReady ready; /* or NULL */
  void *context;
} ModelPass;

/* Sums over the predictions of some batches. sum[0] is what training minimises; the family
 * defines the others (the translator: negative log-likelihood without smoothing, and correct
 * predictions), and the task names them. */
typedef struct {
  double sum[MODEL_SUMS];
  uint64_t predictions; /* target tokens, labels, … */
} ModelLoss;

/* Sizes of a model. They are used to plan a run and to check that the backend supports it, before
 * memory is allocated. */
typedef struct {
  size_t max_tokens; /* of a sentence, end mark included */
  size_t d_model, ffn_dim, head_dim, vocab;
  size_t gemm_widths
      [4]; /* output columns of its GEMMs; the first counts even above the limit of fp8 */
  double gemm_weights[2]; /* weights of the GEMMs that a source and a target token passes; a
                             family with one text has all in the first */
} ModelShape;

/* Arguments of model_plan and model_new. */
typedef struct {
  const ModelConfig *config;
  const Backend *backend; /* must outlive the model */
  size_t capacity;        /* tokens of a batch, on each side */
  size_t logit_rows; /* tokens whose logits are in memory at once; 0: as suits the backend */
  bool training;     /* false leaves out what only backward needs */
} ModelSpec;

/* What a family provides. `model` is the family's own struct, of which Model is the first
 * member. */
struct ModelFamily {
  const char *name;   /* as messages print it */
  const char *format; /* "format" in model.json */
  size_t bytes;       /* of the family's struct */
  const ConfigField *fields;

  /* Is the configuration possible? The error says what to change. */
  Err (*check)(const ModelConfig *config);
  /* Describes architecture and sizes in one line, for the start of a run and --dry-run. */
  void (*describe)(const ModelConfig *config, char *out, size_t size);
  ModelShape (*shape)(const ModelConfig *config);
  /* Names, shapes, offsets and initial distributions of the weights; see params.h. */
  Err (*lay_out_params)(Params *params, const ModelConfig *config);

  /* Fills model->params and what else needs no memory of the backend. */
  Err (*plan)(Model *model, const ModelSpec *spec);
  /* Takes all arrays from the arena, in the same order at each call: called first without
   * memory to count, then with it. Sets model->sums, (MODEL_SUMS). */
  void (*lay_out_memory)(Model *model, Arena *arena);
  /* After the memory is there: writes constants into it. NULL: nothing to write. */
  Err (*initialize)(Model *model);
  /* Frees what plan took. Called also after plan failed; NULL: nothing to free. */
  void (*release)(Model *model);

  /* Makes `batch`, of the type that the family's tasks fill, the current one, in the backend's
   * memory; sets model->shape. */
  void (*load)(Model *model, const void *batch, StepKey key);
  /* Forward and, where g is given, backward, of the current batch. See model_run. */
  void (*run)(Model *model, Weights w, float *g, const ModelPass *pass);
  /* Calls `ready` with the ranges of a backward pass, in its order, without its work. The order
   * must follow from the configuration alone. */
  void (*announce)(const Model *model, GradReady ready, void *context);
};

/* Ends with NULL. In families.c, alone, so that a test can link a table of its own. */
extern const ModelFamily *const model_families[];

struct Model {
  const ModelFamily *family;
  ModelConfig config;
  Params params;
  const Backend *backend;
  size_t capacity; /* tokens of a batch, on each side */
  bool training;
  void *arena; /* all of the backend's memory, in one block; NULL while only planned */
  size_t arena_bytes;

  double *sums;         /* (MODEL_SUMS) of losses since model_loss, in the backend's memory */
  uint64_t predictions; /* that went into them */
  /* The current batch: */
  uint64_t loads;      /* how many batches were loaded so far */
  uint32_t shape[4];   /* all of it that queued operations depend on: a CUDA graph captured for
                         one batch can be launched for another of the same shape */
  bool dropout, first; /* of its StepKey */
  double forward_end;  /* clock when the last forward pass ended, or was queued */
};

/* Plans a model: parameters and arena_bytes, without memory of the backend. */
NODISCARD Err model_plan(Model **model, const ModelSpec *spec);
/* Takes the planned memory. After an error the model must be freed. */
NODISCARD Err model_allocate(Model *model);
/* Calls model_plan and model_allocate. */
NODISCARD Err model_new(Model **model, const ModelSpec *spec);
void model_free(Model *model); /* NULL is allowed */
/* model_plan and model_free for a struct of family->bytes bytes that the caller owns; for
 * code that knows the family. */
NODISCARD Err model_plan_into(Model *storage, const ModelSpec *spec);
void model_release(Model *storage); /* harmless when zeroed */

/* Makes the batch the current one. Its memory may be written again when the call returns. */
void model_load(Model *model, const void *batch, StepKey key);
/* Forward and, where g is given, backward: gradients of (sum of losses) * pass->scale are added
 * to g; those of a first micro-batch overwrite it, padding included. Only queues operations of
 * the backend, the same ones for the same shape; a device may still be busy when it returns. */
void model_run(Model *model, Weights w, float *g, const ModelPass *pass);
/* The sums since the last call, which it clears. Waits for the device. */
NODISCARD Err model_loss(Model *model, ModelLoss *loss);
/* The order in which backward completes gradients; see ModelFamily. `model` is a Model; the
 * type is that of comm/reduce.h. */
void model_announce(const void *model, GradReady ready, void *context);
/* Reserves the backend's working memory for sentences of this model. */
NODISCARD Err model_reserve(const ModelConfig *config, const Backend *backend);

#endif
