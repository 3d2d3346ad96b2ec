/* Builds records of metrics and writes them to all sinks. Depends on log, metrics_sink. */
#include "train/metrics.h"

#include <assert.h>

#include "base/log.h"

static const MetricsSink *const metrics_sinks[METRICS_SINKS] = {
    &metrics_jsonl, &metrics_tfevents, &metrics_wandb, &metrics_samples};

static void count_loss(Metrics *m, size_t i, Err err) {
  if (!err) return;
  bool is_first = m->lost[i]++ == 0;
  if (is_first)
    log_warn("%s; lines of the metrics are lost until the file can be written again",
             err_message());
}

static void write_record(Metrics *m, size_t i) {
  if (m->sink[i]) count_loss(m, i, metrics_sinks[i]->write(m->sink[i], &m->record));
}

Err metrics_open(Metrics *m, const MetricsSpec *spec) {
  *m = (Metrics){.is_open = true};
  for (size_t i = 0; i < METRICS_SINKS; i++) {
    uint64_t last_step = 0;
    Err err = metrics_sinks[i]->open(&m->sink[i], spec, &last_step);
    if (err) {
      metrics_close(m);
      return err;
    }
    if (last_step <= spec->step) continue;
    metrics_begin(m, spec->step, spec->seconds);
    metrics_undo_later(m);
    write_record(m, i);
  }
  return ERR_OK;
}

void metrics_close(Metrics *m) {
  if (!m->is_open) return;
  for (size_t i = 0; i < METRICS_SINKS; i++) {
    metrics_sinks[i]->close(m->sink[i]);
    m->sink[i] = NULL;
  }
  m->is_open = false;
}

void metrics_begin(Metrics *m, uint64_t step, double seconds) {
  m->record = (MetricsRecord){.step = step, .seconds = seconds};
}

void metrics_set_event(Metrics *m, const char *event) {
  m->record.event = event;
}

static void add_value(Metrics *m, MetricsValue value) {
  assert(m->record.values < METRICS_VALUES && "raise METRICS_VALUES");
  m->record.value[m->record.values++] = value;
}

void metrics_add(Metrics *m, const char *name, double value) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_REAL, .real = value});
}

void metrics_add_count(Metrics *m, const char *name, uint64_t count) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_COUNT, .count = count});
}

void metrics_add_text(Metrics *m, const char *name, const char *text) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_TEXT, .text = text});
}

void metrics_add_list(Metrics *m, const char *name, const double *list, size_t n) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_LIST, .list = {list, n}});
}

void metrics_add_texts(Metrics *m, const char *name, const char *const *list, size_t n) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_TEXTS, .texts = {list, n}});
}

void metrics_add_table(Metrics *m, const char *name, MetricsTable table) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_TABLE, .table = table});
}

void metrics_add_histogram(Metrics *m, const char *name, const Histogram *histogram) {
  add_value(m, (MetricsValue){.name = name, .kind = METRICS_HISTOGRAM, .histogram = histogram});
}

void metrics_undo_later(Metrics *m) {
  m->record.undoes_later = true;
}

void metrics_end(Metrics *m) {
  if (!m->is_open) return;
  for (size_t i = 0; i < METRICS_SINKS; i++) write_record(m, i);
}

void metrics_finish(Metrics *m, double seconds) {
  if (!m->is_open) return;
  for (size_t i = 0; i < METRICS_SINKS; i++)
    if (m->sink[i] && metrics_sinks[i]->finish)
      count_loss(m, i, metrics_sinks[i]->finish(m->sink[i], seconds));
}

uint64_t metrics_lost(const Metrics *m, int sink) {
  return m->lost[sink];
}
