/* Histograms of all weights and gradients. Arrays on a device are copied to host memory, one
 * after the other. Depends on step, histogram, metrics. */
#include "train/histograms.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/progress.h"
#include "train/step.h"

/* On rank 0: writes a histogram of scale * array for each weight. `array` is in host memory. */
static Err write_array(Trainer *t, const char *group, const float *array, double scale) {
  const Params *p = &t->state.model->params;
  Metrics *m = &t->run.metrics;
  Histogram *h;
  TRY(mem_alloc(&h, 1, sizeof *h));
  for (size_t i = 0; i < p->count; i++) {
    const Param *param = &p->param[i];
    char name[sizeof param->name + 16];
    histogram_compute(h, array + param->offset, param->rows * param->cols, (float)scale);
    snprintf(name, sizeof name, "%s/%s", group, param->name);
    metrics_begin(m, t->run.at.step, run_elapsed(&t->run));
    metrics_add_histogram(m, name, h);
    metrics_end(m);
  }
  mem_free(h);
  return ERR_OK;
}

/* Returns the array in host memory; on a device it is copied to grads.host. */
static Err get_array(Trainer *t, const float *array, const float **host) {
  const Backend *b = &t->world.backend;
  float *buffer = t->world.grads.host;
  *host = b->host ? array : buffer;
  if (b->host) return ERR_OK;
  return b->get(b, buffer, array, t->state.model->params.padded * sizeof *array);
}

/* With a sharded optimizer a rank has only the sums of its own pieces of the gradient. */
static Err collect_gradients(Trainer *t, const float **host) {
  Gradients *q = &t->world.grads;
  bool is_sharded = t->state.update == UPDATE_SHARDED;
  if (!is_sharded && !world_is_writer(&t->world)) return ERR_OK;
  TRY(get_array(t, q->g, host)); /* on a CPU, q->host is q->g */
  if (is_sharded) reducer_allgather(q->reducer, "gradients for histograms", q->host);
  return ERR_OK;
}

Err train_write_histograms(Trainer *t, const StepSum *step) {
  double start = progress_clock();
  const float *host = NULL;
  bool is_writer = world_is_writer(&t->world);
  TRY(train_complete_weights(t));
  comm_report(t->world.comm, COMM_NO_LIMIT, "step %" PRIu64 ", writing histograms",
              t->run.at.step);
  if (is_writer) {
    TRY(get_array(t, t->state.w, &host));
    TRY(write_array(t, "weights", host, 1));
  }
  TRY(collect_gradients(t, &host));
  if (is_writer) TRY(write_array(t, "gradients", host, 1 / step->grad_divisor));
  t->since_start += progress_clock() - start;
  return ERR_OK;
}
