/* The interface of all model families. A family is one file that fills in a ModelFamily, and
 * one line in families.c. Training, checkpoints and `bench` access models only through this
 * header. Depends on backend, config, params. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "base/opt.h"
#include "model/arena.h"
#include "model/config.h"
#include "model/params.h"

/* Number of sums that a loss accumulates; StepNumbers.loss has the same length. */
#define MODEL_SUMS 3

typedef struct Model Model;

/* Options of one micro-batch: key of its dropout masks, and whether it overwrites gradients. */
typedef struct {
  uint64_t key;
  bool dropout; /* whether dropout is applied */
  bool first;   /* overwrite the gradient array; false: add to it */
} StepKey;

/* Called when the gradients of [begin, end) of the flat array are complete; on a device, when
 * the kernels that compute them are queued. The ranges of a backward pass cover each element of
 * the array, padding included, exactly once. */
typedef void (*GradReady)(void *context, size_t begin, size_t end);

/* Arguments of one forward and backward pass. */
typedef struct {
  float smoothing; /* label smoothing, if the loss of the family has it */
  float scale;     /* the gradients are those of scale * (sum of losses) */
  GradReady ready; /* reports complete gradients; may be NULL */
  void *context;
} ModelPass;

/* Sums over the predictions of one or more batches. sum[0] is the training loss. The family
 * defines the other sums (for translation: negative log-likelihood without smoothing, and
 * number of correct predictions); the task names them. */
typedef struct {
  double sum[MODEL_SUMS];
  uint64_t predictions; /* number of predictions: target tokens, labels or the like */
} ModelLoss;

/* Sizes of a model, used to plan a run and to check that the backend supports the model before
 * memory is allocated. */
typedef struct {
  size_t max_tokens; /* longest sentence in tokens, including eos */
  size_t d_model, ffn_dim, head_dim, vocab;
  /* Output columns of the widest GEMMs. The memory estimate of the fp8 buffers includes the
   * first one even if it is above FP8_MAX_DIM. */
  size_t gemm_widths[4];
  /* Number of weights in the GEMMs that a source token and a target token pass through, for
   * FLOP counts. A family with a single sequence uses only the first. */
  double gemm_weights[2];
} ModelShape;

/* Arguments of model_plan and model_new. */
typedef struct {
  const ModelConfig *config;
  const Backend *backend; /* must outlive the model */
  /* Largest number of tokens of a batch, on the source and on the target side. */
  size_t capacity;
  /* Number of tokens whose logits are in memory at once; 0: chosen for the backend. */
  size_t logit_rows;
  bool training; /* false: do not allocate what only backward needs */
} ModelSpec;

/* What a family provides. `model` points to the family's own struct, whose first member is a
 * Model. */
struct ModelFamily {
  const char *name;   /* name in messages */
  const char *format; /* value of "format" in model.json */
  size_t bytes;       /* size of the family's struct */
  const ConfigField *fields;
  /* presets of this family, values of --preset: "tiny|small|base|big" */
  const char *presets;
  const char *default_preset;
  const char *cpu_preset; /* default without a GPU; NULL: default_preset */
  /* Tables of the options of train that `configure` reads in addition to --preset; ends with
   * NULL. Two families may list the same table. A name must not be in two tables. */
  const OptSpec *const *options;

  /* Sets the configuration from the options; the data set determines the remaining members. If
   * config->family is set, the configuration is that of a model from which a run begins, and only
   * options that are given change it; otherwise it begins with --preset. */
  Err (*configure)(ModelConfig *config, const OptSet *opts);
  /* Sets the configuration of a preset with a vocabulary of this size, to estimate sizes without a
   * data set. */
  Err (*configure_preset)(ModelConfig *config, const char *preset, int vocab);

  /* Checks the configuration. The error names the option to change. */
  Err (*check)(const ModelConfig *config);
  /* Writes architecture and sizes in one line, for the start of a run and --dry-run. */
  void (*describe)(const ModelConfig *config, char *out, size_t size);
  ModelShape (*shape)(const ModelConfig *config);
  /* Lists names, shapes, offsets and initial distributions of the weights; see params.h. */
  Err (*lay_out_params)(Params *params, const ModelConfig *config);

  /* Fills in model->params and other members that need no memory of the backend. */
  Err (*plan)(Model *model, const ModelSpec *spec);
  /* Takes all arrays from the arena. Called twice and must take the same arrays in the same
   * order: first to count bytes (the pointers are NULL), then with memory. Sets model->sums. */
  void (*lay_out_memory)(Model *model, Arena *arena);
  /* Writes constants into the allocated memory. NULL: there are none. */
  Err (*initialize)(Model *model);
  /* Frees what `plan` allocated; called also if `plan` has failed. NULL: nothing to free. */
  void (*release)(Model *model);

  /* Copies `batch` (of the type that the family's tasks produce) to the backend as the current
   * batch, and sets model->shape. */
  void (*load)(Model *model, const void *batch, StepKey key);
  /* Runs forward and, unless g is NULL, backward of the current batch; see model_run. */
  void (*run)(Model *model, Weights w, float *g, const ModelPass *pass);
  /* Calls `ready` with the same ranges and in the same order as a backward pass, without
   * computing gradients. The order must depend on the configuration only. */
  void (*announce)(const Model *model, GradReady ready, void *context);
};

/* Ends with NULL. Defined alone in families.c, so that a test can link a table of its own. */
extern const ModelFamily *const model_families[];

struct Model {
  const ModelFamily *family;
  ModelConfig config;
  Params params;
  const Backend *backend;
  /* Largest number of tokens of a batch, on the source and on the target side. */
  size_t capacity;
  bool training;
  /* Layers whose weights, and those below them, are not trained: backward stops above them and
   * leaves their gradients 0, except those of tied embeddings, which the decoder writes. Weights of Params.depth <= frozen_layers; 0: all are trained. A family
   * that does not number its layers ignores it. */
  uint32_t frozen_layers;
  void *arena; /* the model's memory in the backend, one block; NULL until model_allocate */
  size_t arena_bytes;

  double *sums; /* (MODEL_SUMS) losses since the last model_loss, in the backend's memory */
  uint64_t predictions; /* number of predictions in `sums` */
  /* Properties of the current batch: */
  uint64_t loads; /* number of batches loaded so far */
  /* Everything of the batch that queued operations depend on. A CUDA graph captured for one
   * batch can be launched for another of the same shape. */
  uint32_t shape[4];
  /* Whether this batch uses dropout, and whether it overwrites the gradients (StepKey). */
  bool dropout, first;
  double forward_end; /* time when the last forward pass ended or, on a device, was queued */
};

/* Plans a model: computes parameters and arena_bytes without allocating memory of the
 * backend. */
NODISCARD Err model_plan(Model **model, const ModelSpec *spec);
/* Allocates the planned memory. After an error the caller must free the model. */
NODISCARD Err model_allocate(Model *model);
/* Calls model_plan and model_allocate. */
NODISCARD Err model_new(Model **model, const ModelSpec *spec);
void model_free(Model *model); /* frees the model; accepts NULL */
/* model_plan and model_free for a struct of family->bytes bytes that the caller owns. */
NODISCARD Err model_plan_into(Model *storage, const ModelSpec *spec);
void model_release(Model *storage); /* frees what the struct owns; accepts a zeroed struct */

/* Makes `batch` the current one. The caller may reuse the batch after the call. */
void model_load(Model *model, const void *batch, StepKey key);
/* Runs forward and, unless g is NULL, backward: adds the gradients of pass->scale * (sum of
 * losses) to g, or overwrites g, padding included, if StepKey.first is set. Only queues
 * operations of the backend, the same ones for equal shapes; a device may still be computing
 * when it returns. */
void model_run(Model *model, Weights w, float *g, const ModelPass *pass);
/* Returns the sums since the last call and clears them. Waits for the device. */
NODISCARD Err model_loss(Model *model, ModelLoss *loss);
/* Reports the order in which backward completes gradients (ModelFamily.announce). `model` is a
 * Model; it is a void pointer to match ReduceAnnounce in comm/reduce.h. */
void model_announce(const void *model, GradReady ready, void *context);
/* Reserves working memory in the backend for the longest sentence of this model. */
NODISCARD Err model_reserve(const ModelConfig *config, const Backend *backend);

#endif
