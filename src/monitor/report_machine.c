/* Answers from the times of a step and the samples of hosts: were the devices busy, how long is a step.
 * What concerns the network is in report_network.c. Depends on facts, plot. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/report_internal.h"

#define BUSY_SHARE   0.9 /* a device that computes for this share of a step is busy */
#define BUSY_PERCENT 85  /* utilization from which a GPU is busy */
/* A device that reaches a smaller share of its peak could do more. The peak of AMX is three times that of
 * multiply-adds, so small models on a CPU reach less. */
#define LOW_MFU     0.2
#define LOW_CPU_MFU 0.1

static double or_zero(double value) {
  return isnan(value) ? 0 : value;
}

static const char *const part_names[] = {"forward",         "backward",   "update", "data wait",
                                         "all-reduce wait", "checkpoint", "other"};
#define PARTS (sizeof part_names / sizeof *part_names)

static void get_parts(const StepParts *p, double values[PARTS]) {
  const double all[PARTS] = {p->forward, p->backward,   p->update, p->data,
                             p->comm,    p->checkpoint, p->other};
  memcpy(values, all, sizeof all);
}

/* Names the largest part of a step that is not computation. */
static size_t find_largest_loss(const StepParts *p) {
  double values[PARTS];
  size_t largest = 3;
  get_parts(p, values);
  for (size_t i = 3; i < PARTS; i++)
    if (or_zero(values[i]) > or_zero(values[largest])) largest = i;
  return largest;
}

static void add_parts_chart(Answer *a, const StepParts *p) {
  double values[PARTS];
  get_parts(p, values);
  PlotRow row = {"step", values};
  PlotBars bars = {"Time of a step", "ms", part_names, PARTS, &row, 1};
  plot_bars(&bars, &a->chart);
  for (size_t i = 0; i < PARTS; i++) {
    char ms[32];
    if (or_zero(values[i]) > 0.005 * p->total)
      str_addf(&a->caption, "%s%s %s", a->caption.len ? ", " : "", part_names[i],
               report_ms(ms, values[i]));
  }
}

static double get_compute_share(const StepParts *p) {
  return (or_zero(p->forward) + or_zero(p->backward) + or_zero(p->update)) / p->total;
}

static void add_device_figures(Answer *a, const RunFacts *f) {
  char text[2][32];
  double share = get_compute_share(&f->parts);
  report_figure(a, "compute_share", "of a step computing (rank 0)", share, "%s",
                report_share(text[0], share));
  report_figure(a, "mfu", "MFU: share of the device's peak FLOP/s", f->mfu, "%s",
                report_share(text[0], f->mfu));
  report_figure(a, "tflops_per_s", "GEMM TFLOP/s, all ranks", f->tflops, "%.3g", f->tflops);
  /* GPUs of hosts on which a CPU trains are not used. */
  if (!isnan(f->gpus) && (f->is_on_gpu || !f->device[0])) {
    char limit[32] = "unknown";
    if (!isnan(f->gpu_watts_limit)) snprintf(limit, sizeof limit, "%.0f W", f->gpu_watts_limit);
    report_figure(a, "gpus", "GPUs of the run, of the hosts", f->gpus_used, "%.0f of %.0f",
                  f->gpus_used, f->gpus);
    report_figure(a, "gpu_busy_percent", "GPU utilisation", f->gpu_busy, "%.0f %%",
                  f->gpu_busy);
    report_figure(a, "gpu_watts", "power of a GPU, of its limit", f->gpu_watts, "%.0f W of %s",
                  f->gpu_watts, limit);
    report_figure(a, "gpu_memory_bytes", "GPU memory, most", f->gpu_memory_used, "%s of %s",
                  report_bytes(text[0], f->gpu_memory_used),
                  report_bytes(text[1], f->gpu_memory_total));
    report_figure(a, "gpu_throttled_share", "of the time with lowered clocks", f->gpu_throttled,
                  "%s", report_share(text[0], f->gpu_throttled));
  }
  report_figure(a, "cpu_busy_percent", "CPU utilisation, all cores and hosts", f->cpu_busy,
                "%.0f %%", f->cpu_busy);
  report_figure(a, "cores", "CPU cores", f->cores, "%.0f", f->cores);
}

/* Returns true if NVML reports a low utilization, whatever the times of steps show. */
static bool is_gpu_idle(const RunFacts *f) {
  return f->is_on_gpu && f->gpu_busy < BUSY_PERCENT;
}

static bool is_on_cpu(const RunFacts *f) {
  return f->device[0] && !f->is_on_gpu;
}

static bool is_mfu_low(const RunFacts *f) {
  return f->mfu < (is_on_cpu(f) ? LOW_CPU_MFU : LOW_MFU);
}

/* Returns true if a CPU of the run has cores for which it has no thread. */
static bool has_unused_cores(const RunFacts *f) {
  return is_on_cpu(f) && f->threads * f->ranks < f->cores;
}

/* The devices compute nearly all the time. NVML counts a GPU as busy while any kernel runs, so a busy GPU
 * may still be far from its peak. So may a CPU, which other processes use as well: its times of steps
 * contain what those took. */
static void judge_busy(Answer *a, const RunFacts *f, const char *share, const char *of_what) {
  char mfu[32];
  if (is_gpu_idle(f))
    report_verdict(a, VERDICT_MIXED, "Not fully: utilisation %.0f %%", f->gpu_busy);
  else if (is_mfu_low(f))
    report_verdict(a, VERDICT_MIXED, "Busy, but at %s of the peak FLOP/s",
                   report_share(mfu, f->mfu));
  else if (has_unused_cores(f))
    report_verdict(a, VERDICT_MIXED, "Not fully: %.0f thread%s on %.0f cores",
                   f->threads * f->ranks, f->threads * f->ranks == 1 ? "" : "s", f->cores);
  else if (is_on_cpu(f) && isnan(f->mfu))
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: %s of %s, at an unknown share of the peak",
                   share, of_what);
  else
    report_verdict(a, VERDICT_GOOD, "Yes: %s of %s", share, of_what);
}

/* The times of all ranks are known: what share of them is work. */
static void judge_ranks(Answer *a, const RunFacts *f) {
  double work = 0, wait = 0, data = 0, total = 0;
  Waiting w = report_waiting(f);
  char share[3][32], waited[32];
  for (size_t r = 0; r < f->rank_count; r++) {
    work += f->rank[r].work;
    wait += f->rank[r].wait;
    data += f->rank[r].data;
    total += f->rank[r].total;
  }
  report_share(share[0], work / total);
  report_share(share[1], wait / total);
  report_share(share[2], data / total);
  if (work / total >= BUSY_SHARE)
    judge_busy(a, f, share[0], "the ranks' time is work");
  else if (data > wait)
    report_verdict(a, VERDICT_BAD, "No: %s of the ranks' time is data wait", share[2]);
  else if (w.slowest != SIZE_MAX && w.straggler > w.network)
    report_verdict(a, VERDICT_BAD, "No: %s of the ranks' time waits for rank %zu",
                   report_share(waited, w.straggler * (double)f->rank_count / total),
                   w.slowest);
  else
    report_verdict(a, work / total < 0.7 ? VERDICT_BAD : VERDICT_MIXED,
                   "No: %s of the ranks' time is all-reduce wait", share[1]);
  report_say(
      a,
      "Over all %zu ranks, steps consist of %s work, %s waiting for other ranks and their "
      "gradients, and %s waiting for data.",
      f->rank_count, share[0], share[1], share[2]);
}

/* Only the times of rank 0 are known. */
static void judge_step(Answer *a, const RunFacts *f) {
  const StepParts *p = &f->parts;
  const char *device = f->is_on_gpu ? "GPU" : f->device[0] ? "CPU" : "device";
  char share[32], lost[32], ms[32];
  double values[PARTS], busy = get_compute_share(p);
  size_t loss = find_largest_loss(p);
  get_parts(p, values);
  report_share(share, busy);
  report_share(lost, or_zero(values[loss]) / p->total);
  if (busy >= BUSY_SHARE) {
    judge_busy(a, f, share, "a step computes");
    report_say(a,
               "The %s of rank 0 computes during %s of a step of %s; the largest other part is "
               "%s with %s.",
               device, share, report_ms(ms, p->total), part_names[loss], lost);
  } else {
    report_verdict(a, busy < 0.7 ? VERDICT_BAD : VERDICT_MIXED, "No: %s of a step is %s", lost,
                   part_names[loss]);
    report_say(
        a, "The %s of rank 0 computes during only %s of a step of %s; %s of the step is %s.",
        device, share, report_ms(ms, p->total), lost, part_names[loss]);
  }
}

/* Says what the utilisation of CPUs does not tell. */
static void mention_others(Answer *a, const RunFacts *f) {
  if (!is_on_cpu(f)) return;
  if (!isnan(f->cpu_busy))
    report_say(
        a,
        " The CPU utilisation of %.0f %% is that of the hosts, with all their processes: "
        "how much of it others took is unknown.",
        f->cpu_busy);
  if (has_unused_cores(f))
    report_say(a, " The run has %.0f thread%s on %.0f cores (--threads).",
               f->threads * f->ranks, f->threads * f->ranks == 1 ? "" : "s", f->cores);
}

/* Adds what the devices report of themselves. */
static void mention_utilisation(Answer *a, const RunFacts *f) {
  char share[32];
  if (f->is_on_gpu && !isnan(f->gpu_busy))
    report_say(
        a,
        " The GPUs report %.0f %% utilisation over all samples, which include the start, "
        "validations and checkpoints.",
        f->gpu_busy);
  if (isnan(f->cpu_busy) && isnan(f->gpu_busy))
    report_say(a, " Utilisation of the hosts was not measured (no system.jsonl).");
  mention_others(a, f);
  if ((f->is_on_gpu || is_on_cpu(f)) && isnan(f->mfu))
    report_say(a, " The share of the peak (MFU) is unknown.");
  if (!isnan(f->mfu))
    report_say(a, " GEMMs reach %s of the device's peak FLOP/s (MFU).",
               report_share(share, f->mfu));
  if (is_mfu_low(f) && is_on_cpu(f))
    report_say(a, " Other processes, or a small model or batch, keep it low.");
  else if (is_mfu_low(f))
    report_say(a, " Larger --batch-tokens, or a lower --precision, use more of it.");
}

static void answer_devices(RunReport *r) {
  Answer *a = &r->answers[ANSWER_DEVICES];
  const RunFacts *f = &r->facts;
  const StepParts *p = &f->parts;
  if (isnan(p->total) || isnan(p->forward)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "The times of steps were not measured.");
    return;
  }
  if (f->rank_count > 1)
    judge_ranks(a, f);
  else
    judge_step(a, f);
  mention_utilisation(a, f);
  add_device_figures(a, f);
  add_parts_chart(a, p);
}

/* Makes the curve of step times in ms from that of steps per second. */
static Err make_step_curve(const RunLog *log, Curve *c) {
  TRY(report_curve(log, "steps_per_s", c));
  for (size_t i = 0; i < c->points; i++) c->y[i] = c->y[i] > 0 ? 1e3 / c->y[i] : NAN;
  return ERR_OK;
}

static void answer_step(RunReport *r, const Curve *step) {
  Answer *a = &r->answers[ANSWER_STEP];
  const RunFacts *f = &r->facts;
  const StepParts *p = &f->parts;
  char ms[5][32];
  if (isnan(p->total)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "No record of a step has its rate.");
    return;
  }
  report_verdict(a, VERDICT_FACT, "%s", report_ms(ms[0], p->total));
  report_say(
      a,
      "A step takes %s on average (half of the records below %s, 95 %% below %s): %s forward, "
      "%s backward, and the rest in the parts below.",
      ms[0], report_ms(ms[1], f->step_median), report_ms(ms[2], f->step_p95),
      report_ms(ms[3], p->forward), report_ms(ms[4], p->backward));
  if (f->is_on_gpu && f->ranks == 1)
    report_say(a, " On one GPU a step is one CUDA graph, so backward contains everything.");
  double values[PARTS];
  static const char *const keys[PARTS] = {"forward_ms",   "backward_ms",  "update_ms",
                                          "data_wait_ms", "comm_wait_ms", "checkpoint_ms",
                                          "other_ms"};
  get_parts(p, values);
  report_figure(a, "step_ms", "step", p->total, "%s", ms[0]);
  for (size_t i = 0; i < PARTS; i++)
    report_figure(a, keys[i], part_names[i], values[i], "%s (%.1f %%)",
                  report_ms(ms[1], values[i]), 100 * values[i] / p->total);
  report_figure(a, "tokens_per_s",
                f->is_text_task ? "tokens per second" : "target tokens per second",
                f->tokens_per_s, "%s", report_count(ms[1], f->tokens_per_s));
  PlotSeries s = {.name = "step (ms)", .x = step->x, .y = step->y, .points = step->points};
  PlotLines lines = {
      .title = "Time of a step", .x_label = "step", .y_label = "ms", .mark = NAN};
  lines.includes_zero = true;
  lines.series = &s;
  lines.count = 1;
  report_chart(a, &lines);
}

/* Bars of the first 32 ranks; the table has all. */
static Err draw_ranks(RunReport *r) {
  static const char *const names[] = {"work", "data wait", "wait for others"};
  const RunFacts *f = &r->facts;
  size_t n = f->rank_count < 32 ? f->rank_count : 32;
  double(*values)[3] = NULL;
  char(*labels)[96] = NULL;
  PlotRow *rows = NULL;
  Err err;
  if (n == 0) return ERR_OK;
  TRY_DONE(mem_alloc(&values, n, sizeof *values));
  TRY_DONE(mem_alloc(&labels, n, sizeof *labels));
  TRY_DONE(mem_alloc(&rows, n, sizeof *rows));
  for (size_t i = 0; i < n; i++) {
    const RankTimes *t = &f->rank[i];
    values[i][0] = t->work;
    values[i][1] = t->data;
    values[i][2] = t->wait;
    snprintf(labels[i], sizeof labels[i], "rank %zu%s%s", i, *t->host ? " " : "", t->host);
    rows[i] = (PlotRow){labels[i], values[i]};
  }
  PlotBars bars = {"Time of a step on each rank", "ms", names, 3, rows, n};
  plot_bars(&bars, &r->rank_chart);
done:
  mem_free(values);
  mem_free(labels);
  mem_free(rows);
  return err;
}

Err report_answer_machine(RunReport *r) {
  const RunLog *log = &r->facts.log;
  Curve step = {0}, comm = {0}, data = {0};
  Err err;
  answer_devices(r);
  TRY_DONE(make_step_curve(log, &step));
  TRY_DONE(report_curve(log, "comm_wait_ms", &comm));
  TRY_DONE(report_curve(log, "data_wait_ms", &data));
  answer_step(r, &step);
  report_answer_network(r, &(StepCurves){.step = &step, .comm = &comm, .data = &data});
  Waiting w = report_waiting(&r->facts);
  r->straggler = w.slowest;
  TRY_DONE(draw_ranks(r));
done:
  report_free_curve(&step);
  report_free_curve(&comm);
  report_free_curve(&data);
  return err;
}
